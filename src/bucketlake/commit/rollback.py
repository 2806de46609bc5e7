"""Take an instant back: one that its writer did not finish, or one that was committed.

    claim        from here on the instant is rolled back, whoever does it
    rows         what lies only in files that are to go, goes back to where it came from
    plan         R.rollback.requested names the files; R.rollback.inflight
    unpublish    a committed one is inflight again, without a body: readers no longer see it
    metadata     out of the metadata table
    files        data files, and what the engine keeps of the instant
    instant      T.inflight, T.requested
    done         R_C.rollback; a metadata table that could not take the instant back is built anew

Whoever is cut off leaves a pending instant or a pending rollback, and either leads the next comer to the rest. All of
it may be done twice, or by two at once. Hudi goes on with a pending rollback of ours in the same way.

A run of a compaction or a clustering is taken back to its plan, which is as good as it was (`roll_back_run`); a resize
goes with its plan, and what writers have put beside it.

A committed instant is announced first (plan, then claim), with a heartbeat under the rollback's own time: a writer
that begins meanwhile sees it and keeps away.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from bucketlake.commit.claims import Claim, Claims, Outcome, latest_time, list_claims
from bucketlake.commit.heartbeat import stop_heartbeat
from bucketlake.commit.markers import delete_data_files, delete_markers, files_of_instant, marked_files
from bucketlake.commit.metadata_build import build_if_wanted
from bucketlake.commit.metadata_table import delist, is_listed, is_taken_in, take_back
from bucketlake.commit.operation import PLANNED
from bucketlake.commit.publishing import (
    Decision,
    complete_instant,
    completed_time,
    decide,
    follow,
    plan_of,
    settle,
    unpublish,
)
from bucketlake.config import TableProperties, load_properties
from bucketlake.index.keeper import Undone, carry_out
from bucketlake.index.keepers import keepers_of
from bucketlake.layout import list_table
from bucketlake.layout.names import path_in_partition, split_path
from bucketlake.storage import Store
from bucketlake.timeline import (
    Action,
    Clock,
    CommitMetadata,
    Instant,
    InstantName,
    RollbackMetadata,
    RollbackPlan,
    State,
    Timeline,
    delete_pending,
    encode_rollback_metadata,
    encode_rollback_plan,
    instant_path,
    load_timeline,
    process_clock,
    read_commit_metadata,
    read_rollback_plan,
    write_inflight,
    write_requested,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RolledBack:
    instant: str
    action: Action
    files: tuple[str, ...]
    """The data files it had announced; some may never have been written."""

    def __str__(self) -> str:
        return f"rolled back the {self.action} of {self.instant}, {len(self.files)} files"


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """An instant to roll back."""

    instant: str
    action: Action
    state: State | None
    """None if it is gone already, and only its rollback is left to finish."""
    rollback: str | None = None
    """A pending rollback of it, to go on with."""
    published: Instant | None = None
    """A committed one, as it is on the timeline."""
    files: tuple[str, ...] = ()
    """Data files that are known to be its own; what markers and plan name is added."""
    keeps_plan: bool = False
    """Of a pending compaction or clustering: only what was run of it is taken back."""

    @classmethod
    def of(
        cls,
        instant: Instant,
        *,
        rollback: str | None = None,
        files: tuple[str, ...] = (),
        keeps_plan: bool = False,
    ) -> Target:
        return cls(
            instant=instant.requested,
            action=instant.action,
            state=instant.state,
            rollback=rollback,
            published=instant if instant.is_completed else None,
            files=files,
            keeps_plan=keeps_plan,
        )


def roll_back(
    store: Store,
    properties: TableProperties,
    target: Target,
    clock: Clock,
    *,
    keep_partitions: bool,
    may_go: Callable[[Timeline], bool] | None = None,
) -> RolledBack | None:
    """Take one instant back; None if it is pending and turns out to be committed, or must stay.

    Whether a committed one may go is for the caller to know; `may_go` is asked when that is decided, and not again.
    """
    claim = _claim_rollback(store, properties, target, clock, may_go)
    if claim is None:
        return None
    assert claim.rollback is not None
    started_ms = clock.now_ms()
    commit = _commit_of(store, target)
    target = _with_engine(store, properties, target, commit)
    files = _files_to_delete(store, properties, target, commit, claim.rollback)
    announce_rollback(store, properties, target, rollback=claim.rollback, files=files)
    if target.published is not None:
        _delist_if_needed(store, properties, target)
        unpublish(store, properties, target.published)
    if target.keeps_plan and _was_run_again(store, properties, target):
        return None  # by somebody who took us for dead, and took the rollback to its end; the files are his
    if claim.metadata_completed is not None:
        take_back(
            store,
            properties,
            instant=target.instant,
            rollback=claim.rollback,
            completed=claim.metadata_completed,
        )
    delete_data_files(store, files, instant=target.instant, keep_partitions=keep_partitions)
    for keeper in keepers_of(properties):
        carry_out(store, keeper.after_taking_back(store, instant=target.instant, action=target.action))
    if target.action.when_completed is Action.REPLACE_COMMIT:
        follow(store, load_properties(store), load_timeline(store, properties))
    _delete_instant(store, properties, target)
    metadata = RollbackMetadata(
        rolled_back=(target.instant,), files_deleted=len(files), deleted=_by_partition(files)
    )
    body = encode_rollback_metadata(
        metadata,
        action=target.action,
        started=claim.rollback,
        taken_ms=max(0, clock.now_ms() - started_ms),
        root=store.uri,
    )
    write_inflight(store, properties, instant=claim.rollback, action=Action.ROLLBACK, body=body)
    complete_instant(
        store, properties, instant=claim.rollback, action=Action.ROLLBACK, completed=claim.completed
    )
    stop_heartbeat(store, target.instant)
    if target.published is not None:
        # All tasks of a committed write are done: no file can come after this, so the markers need not stay.
        delete_markers(store, target.instant)
        build_if_wanted(store, load_properties(store), clock=clock)
    return RolledBack(instant=target.instant, action=target.action, files=files)


def _delist_if_needed(store: Store, properties: TableProperties, target: Target) -> None:
    """What a base file of the metadata table tells cannot be taken out of it again."""
    if is_listed(load_properties(store)) and is_taken_in(store, properties, target.instant):
        delist(store)


def _commit_of(store: Store, target: Target) -> CommitMetadata | None:
    if target.published is None:
        return None
    try:
        return read_commit_metadata(store, target.published)
    except FileNotFoundError:
        return None  # another who takes it back has come as far as that


def _with_engine(
    store: Store, properties: TableProperties, target: Target, commit: CommitMetadata | None
) -> Target:
    """Do what the engine wants done first, and add what it says goes with the instant.

    Now that the rollback was claimed, nobody commits beside it.
    """
    undone = Undone(instant=target.instant, action=target.action, commit=commit)
    for keeper in keepers_of(properties):
        undoing = keeper.before_taking_back(store, properties, load_timeline(store, properties), undone)
        if undoing.files or undoing.upkeep.joins:
            delist(store)  # other instants have told of these files
        carry_out(store, undoing.upkeep)
        keeps_plan = target.keeps_plan and not undoing.takes_plan
        target = replace(target, keeps_plan=keeps_plan, files=(*target.files, *undoing.files))
    return target


def _delete_instant(store: Store, properties: TableProperties, target: Target) -> None:
    if target.keeps_plan:
        store.delete(instant_path(properties, InstantName(target.instant, target.action, State.INFLIGHT)))
        return
    # The pending files of a completed compaction have an action of their own; they would become a plan again.
    for action in Action:
        if action.when_completed is target.action.when_completed:
            delete_pending(store, properties, instant=target.instant, action=action)


def _was_run_again(store: Store, properties: TableProperties, target: Target) -> bool:
    """Tell whether a plan that we were taking back to its beginning was run, and completed, meanwhile."""
    newest = list_claims(store).newest
    is_theirs = newest is not None and (newest.instant, newest.action) == (target.instant, target.action)
    if is_theirs and newest is not None and newest.outcome is Outcome.COMMIT:
        return True
    return completed_time(load_timeline(store, properties), target.instant, target.action) is not None


def announce_rollback(
    store: Store, properties: TableProperties, target: Target, *, rollback: str, files: tuple[str, ...]
) -> None:
    """Put the plan on the timeline; one that is there stays as it is."""
    plan = RollbackPlan(target=target.instant, action=target.action, files=_by_partition(files))
    write_requested(
        store,
        properties,
        instant=rollback,
        action=Action.ROLLBACK,
        body=encode_rollback_plan(plan, root=store.uri),
    )
    write_inflight(store, properties, instant=rollback, action=Action.ROLLBACK)


def built_on(timeline: Timeline, instant: Instant) -> tuple[Instant, ...]:
    """Return what may have been built on a completed write: writes that completed later, and newer plans.

    A pending compaction or clustering names the files it will read; those of the write may be among them.
    """
    assert instant.completed is not None
    later = [i for i in timeline.writes if i.completed is not None and i.completed > instant.completed]
    plans = timeline.pending(Action.COMPACTION, Action.LOG_COMPACTION, Action.CLUSTERING)
    return tuple(sorted([*later, *(plan for plan in plans if plan.requested > instant.requested)]))


def roll_back_run(
    store: Store,
    properties: TableProperties,
    instant: Instant,
    *,
    clock: Clock | None = None,
    keeps_plan: bool = True,
) -> RolledBack | None:
    """Take back what was done of a pending compaction or clustering, up to its plan; None if it was completed.

    If the plan goes too, the markers stay: by them what late tasks write is found.
    """
    assert instant.action in PLANNED
    clock = clock or process_clock(properties.timeline_timezone)
    _, timeline = settle(store, properties)
    plans = {plan.target: r for r in timeline.pending(Action.ROLLBACK) if (plan := plan_of(store, r))}
    rollback = plans[instant.requested].requested if instant.requested in plans else None
    target = Target.of(instant, rollback=rollback, keeps_plan=keeps_plan)
    done = roll_back(store, properties, target, clock, keep_partitions=True)
    if done is not None and keeps_plan:
        delete_markers(store, instant.requested)
    return done


def _claim_rollback(
    store: Store,
    properties: TableProperties,
    target: Target,
    clock: Clock,
    may_go: Callable[[Timeline], bool] | None,
) -> Claim | None:
    """Decide that an instant is rolled back, or find that decided; None if it was committed instead, or must stay."""
    found: Claim | None = None

    def look(claims: Claims, timeline: Timeline) -> Decision | None:
        nonlocal found
        found = claims.rollback_of(target.instant)
        if found is not None and not (target.action in PLANNED and _is_done(timeline, found)):
            return None
        if found is not None and found.rollback == target.rollback:
            found = None
            return None  # it was taken to its end since we looked
        found = None
        is_committed = completed_time(timeline, target.instant, target.action) is not None
        if (is_committed and target.published is None) or (may_go is not None and not may_go(timeline)):
            return None
        return Decision(
            instant=target.instant,
            action=target.action,
            outcome=Outcome.ROLLBACK,
            rollback=target.rollback or clock.next_instant(after=latest_time(timeline, claims)),
            keeps_plan=target.keeps_plan,
        )

    return decide(store, properties, clock, look) or found


def _is_done(timeline: Timeline, claim: Claim) -> bool:
    """Tell whether a claimed rollback is complete: what was run again since needs another."""
    return any(i.requested == claim.rollback for i in timeline.completed(Action.ROLLBACK))


def _files_to_delete(
    store: Store,
    properties: TableProperties,
    target: Target,
    commit: CommitMetadata | None,
    rollback: str,
) -> tuple[str, ...]:
    """Find what an instant has, or may have, written: by its markers, its commit, and the plan if there is one.

    A write without any marker may have lost them, or be one that Hudi ran without; then the whole table is looked
    through. A file left behind would be taken for committed once the timeline is archived beyond it.
    """
    marked = marked_files(store, target.instant)
    planned: set[str] = set()
    path = instant_path(properties, InstantName(rollback, Action.ROLLBACK, State.REQUESTED))
    if _is_filled(store, path):
        plan = read_rollback_plan(store, Instant(rollback, Action.ROLLBACK, State.REQUESTED, None, path))
        planned = {path_in_partition(p, name) for p, names in plan.files.items() for name in names}
    elif marked is None and target.state is State.INFLIGHT:
        table = list_table(store, is_partitioned=bool(properties.partition_fields))
        marked = files_of_instant((file for files in table.files.values() for file in files), target.instant)
    # A write beside a resize has files that bear the resize's time.
    written = {stat.path for stat in commit.write_stats} if commit is not None else set()
    return tuple(sorted({*(marked or ()), *planned, *target.files, *written}))


def _by_partition(files: Iterable[str]) -> Mapping[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for path in files:
        partition, name = split_path(path)
        found[partition] = (*found.get(partition, ()), name)
    return found


def _is_filled(store: Store, path: str) -> bool:
    try:
        return store.stat(path).size_bytes > 0
    except FileNotFoundError:
        return False
