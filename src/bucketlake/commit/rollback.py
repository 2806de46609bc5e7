"""Take an instant back: one that its writer did not finish, or one that was committed.

    claim        from here on the instant is rolled back, whoever does it
    plan         R.rollback.requested names the files; R.rollback.inflight
    unpublish    a committed one: T.requested, T.inflight, then T_C.<action>: readers no longer see it
    files        data files, bucket rules and ring versions of the instant
    instant      T.inflight, T.requested of a pending one
    done         R_C.rollback

Whoever is cut off leaves a pending instant or a pending rollback, and either leads the next comer to the rest. All of
it may be done twice, or by two at once. Hudi goes on with a pending rollback of ours in the same way.

A run of a compaction or a clustering is taken back to its plan, which is as good as it was (`roll_back_run`); a resize
goes with its plan, and what writers have put beside it.

A committed instant is announced first (plan, then claim), with a heartbeat under the rollback's own time: a writer
that begins meanwhile sees it and keeps away.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from bucketlake.commit.claims import Claim, Claims, Outcome, list_claims, take, unpacked
from bucketlake.commit.heartbeat import stop_heartbeat
from bucketlake.commit.markers import delete_data_files, delete_markers, files_of_instant, marked_files
from bucketlake.config import TableProperties
from bucketlake.index import forget_layout
from bucketlake.index.resizes import bring_back, shadow_logs
from bucketlake.layout import list_table
from bucketlake.layout.names import path_in_partition, split_path
from bucketlake.state import load_state
from bucketlake.storage import Store
from bucketlake.timeline import (
    Action,
    Clock,
    Instant,
    InstantName,
    RequestedReplace,
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
    publish,
    read_requested_replace,
    read_restore_metadata,
    read_rollback_metadata,
    read_rollback_plan,
    requested_path,
    write_inflight,
    write_requested,
)

PLANNED = (Action.COMPACTION, Action.LOG_COMPACTION, Action.CLUSTERING)
"""Pending instants of these have a plan that anybody can run, and run again."""


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
    published: str | None = None
    """Of a committed one, the path of its completed file."""
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
            published=instant.path if instant.is_completed else None,
            files=files,
            keeps_plan=keeps_plan,
        )


def roll_back(
    store: Store, properties: TableProperties, target: Target, clock: Clock, *, keep_partitions: bool
) -> RolledBack | None:
    """Take one instant back; None if it is pending and turns out to be committed.

    That nothing was built on a committed one is for the caller to know.
    """
    claim = _claim_rollback(store, properties, target, clock)
    if claim is None:
        return None
    assert claim.rollback is not None
    started_ms = clock.now_ms()
    resize = _resize_of(store, properties, target)
    if resize is not None:
        # It goes as a whole: its plan is what writers go by. Now that it was claimed, nobody commits beside it.
        bring_back(store, resize, view=load_state(store).view)
        beside = tuple(log.path for log in shadow_logs(store, target.instant, resize))
        target = replace(target, keeps_plan=False, files=(*target.files, *beside))
    files = _files_to_delete(store, properties, target, claim.rollback)
    announce_rollback(store, properties, target, rollback=claim.rollback, files=files)
    if target.published is not None:
        _unpublish(store, properties, target)
    if target.keeps_plan and _was_run_again(store, properties, target):
        return None  # by somebody who took us for dead, and took the rollback to its end; the files are his
    delete_data_files(store, files, instant=target.instant, keep_partitions=keep_partitions)
    if target.action.when_completed is Action.REPLACE_COMMIT:
        forget_layout(store, target.instant)
    if target.keeps_plan:
        store.delete(instant_path(properties, InstantName(target.instant, target.action, State.INFLIGHT)))
    else:
        delete_pending(store, properties, instant=target.instant, action=target.action)
    by_partition = _by_partition(files)
    publish(
        store,
        properties,
        instant=claim.rollback,
        action=Action.ROLLBACK,
        completed=claim.completed,
        body=encode_rollback_metadata(
            RollbackMetadata(rolled_back=(target.instant,), files_deleted=len(files), deleted=by_partition),
            action=target.action,
            started=claim.rollback,
            taken_ms=max(0, clock.now_ms() - started_ms),
            root=store.uri,
        ),
    )
    stop_heartbeat(store, target.instant)
    if target.published is not None:
        # All tasks of a committed write are done: no file can come after this, so the markers need not stay.
        delete_markers(store, target.instant)
    return RolledBack(instant=target.instant, action=target.action, files=files)


def _resize_of(store: Store, properties: TableProperties, target: Target) -> RequestedReplace | None:
    """Return the plan of a pending resize, None if the target is none."""
    if target.action is not Action.CLUSTERING or target.published is not None:
        return None
    path = instant_path(properties, InstantName(target.instant, Action.CLUSTERING, State.REQUESTED))
    try:
        plan = read_requested_replace(
            store, Instant(target.instant, Action.CLUSTERING, State.REQUESTED, None, path)
        )
    except FileNotFoundError:
        return None
    return plan if plan.is_resize else None


def _was_run_again(store: Store, properties: TableProperties, target: Target) -> bool:
    """Tell whether a plan that we were taking back to its beginning was run, and completed, meanwhile."""
    newest = list_claims(store).newest
    if newest is not None and newest.instant == target.instant and newest.outcome is Outcome.COMMIT:
        return True
    completed = load_timeline(store, properties).completed(target.action.when_completed)
    return any(instant.requested == target.instant for instant in completed)


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


def plan_of(store: Store, rollback: Instant) -> RollbackPlan | None:
    """Read the plan of a pending rollback; None if it is of no use, because Hudi was cut off while writing it."""
    try:
        if not store.read(requested_path(rollback)):
            return None
        return read_rollback_plan(store, rollback)
    except FileNotFoundError:
        return None


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


def is_settled(store: Store, properties: TableProperties, claim: Claim, timeline: Timeline) -> bool:
    """Tell whether nothing is left to do for a claim: it is published, or void, its instant being gone.

    A claimed plan is void if somebody has completed something after it without knowing of it, as Hudi may.

    A claimed rollback is always settled in this sense: it keeps the instant from being committed, and that is all
    that those who claim after it rely on.
    """
    if claim.outcome is Outcome.ROLLBACK or _is_published(timeline, claim):
        return True
    if claim.outcome is Outcome.SCHEDULE:
        return any(
            claim.instant == i.requested or (i.completed or "") > claim.instant for i in timeline.instants
        )
    # Hudi rolls a completed commit back by making it inflight again; it is not for us to complete it once more.
    rollbacks = (plan_of(store, rollback) for rollback in timeline.pending(Action.ROLLBACK))
    if any(plan is not None and plan.target == claim.instant for plan in rollbacks):
        return True
    return not _read_or_empty(store, _inflight_path(properties, claim)) or _was_undone(store, timeline, claim)


def _was_undone(store: Store, timeline: Timeline, claim: Claim) -> bool:
    """Tell whether a commit was taken back after it was claimed. Hudi's restore leaves a clustering pending again."""
    undone: set[str] = set()
    for later in timeline.completed(Action.ROLLBACK, Action.RESTORE):
        if later.requested > claim.completed:
            is_restore = later.action is Action.RESTORE
            undone.update(
                (read_restore_metadata if is_restore else read_rollback_metadata)(store, later).rolled_back
            )
    return claim.instant in undone


def publish_claimed(store: Store, properties: TableProperties, claim: Claim) -> None:
    """Publish a claimed commit with the body that its writer had put into the inflight file before; or a plan."""
    if claim.outcome is Outcome.SCHEDULE:
        assert claim.plan is not None
        body = unpacked(claim.plan)
        write_requested(store, properties, instant=claim.instant, action=claim.action, body=body)
        return
    assert claim.outcome is Outcome.COMMIT
    body = _read_or_empty(store, _inflight_path(properties, claim))
    if body:
        publish(
            store,
            properties,
            instant=claim.instant,
            action=claim.action,
            completed=claim.completed,
            body=body,
        )


def settle(store: Store, properties: TableProperties) -> tuple[Claims, Timeline]:
    """Finish what the newest claim left open; return the claims and, read after them, the timeline."""
    while True:
        claims = list_claims(store)
        timeline = load_timeline(store, properties)
        newest = claims.newest
        if newest is None or is_settled(store, properties, newest, timeline):
            return claims, timeline
        publish_claimed(store, properties, newest)


def completed_time(timeline: Timeline, instant: str) -> str | None:
    """Return when the write requested at `instant` was completed, None if it was not."""
    return next((i.completed for i in timeline.writes if i.requested == instant), None)


def latest_time(timeline: Timeline, claims: Claims) -> str:
    """Return the latest time that anybody has used: every new one must be later."""
    times = [time for i in timeline.instants for time in (i.requested, i.completed) if time is not None]
    return max([*times, claims.newest.completed if claims.newest else ""])


def _claim_rollback(store: Store, properties: TableProperties, target: Target, clock: Clock) -> Claim | None:
    """Decide that an instant is rolled back, or find that decided; None if it was committed instead."""
    while True:
        claims = list_claims(store)
        decided = claims.rollback_of(target.instant)
        timeline = load_timeline(store, properties)
        if decided is not None and not (target.action in PLANNED and _is_done(timeline, decided)):
            return decided
        newest = claims.newest
        if newest is not None and not is_settled(store, properties, newest, timeline):
            publish_claimed(store, properties, newest)
            continue
        if completed_time(timeline, target.instant) is not None and target.published is None:
            return None
        latest = latest_time(timeline, claims)
        rollback = target.rollback or clock.next_instant(after=latest)
        claim = Claim(
            number=claims.next_number,
            instant=target.instant,
            action=target.action,
            outcome=Outcome.ROLLBACK,
            completed=clock.next_instant(after=max(latest, rollback)),
            rollback=rollback,
        )
        if take(store, claim):
            return claim


def _is_done(timeline: Timeline, claim: Claim) -> bool:
    """Tell whether a claimed rollback is complete: what was run again since needs another."""
    return any(i.requested == claim.rollback for i in timeline.completed(Action.ROLLBACK))


def _is_published(timeline: Timeline, claim: Claim) -> bool:
    action = claim.action.when_completed
    return any(i.requested == claim.instant and i.action is action for i in timeline.completed())


def _files_to_delete(
    store: Store, properties: TableProperties, target: Target, rollback: str
) -> tuple[str, ...]:
    """Find what an instant has, or may have, written: by its markers, and by the plan if there is one.

    A write without any marker may have lost them, or be one that Hudi ran without; then the whole table is looked
    through. A file left behind would be taken for committed once the timeline is archived beyond it.
    """
    marked = marked_files(store, target.instant)
    planned: set[str] = set()
    path = instant_path(properties, InstantName(rollback, Action.ROLLBACK, State.REQUESTED))
    if _read_or_empty(store, path):
        plan = read_rollback_plan(store, Instant(rollback, Action.ROLLBACK, State.REQUESTED, None, path))
        planned = {path_in_partition(p, name) for p, names in plan.files.items() for name in names}
    elif marked is None and target.state is State.INFLIGHT:
        table = list_table(store, is_partitioned=bool(properties.partition_fields))
        marked = files_of_instant((file for files in table.files.values() for file in files), target.instant)
    return tuple(sorted({*(marked or ()), *planned, *target.files}))


def _unpublish(store: Store, properties: TableProperties, target: Target) -> None:
    """Take a completed instant off the timeline, its completed file last: it never looks pending.

    A completed compaction has the action of a commit, but its pending files have their own; they would become a
    plan again.
    """
    assert target.published is not None
    for action in Action:
        if action.when_completed is target.action.when_completed:
            delete_pending(store, properties, instant=target.instant, action=action)
    store.delete(target.published)


def _by_partition(files: Iterable[str]) -> Mapping[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for path in files:
        partition, name = split_path(path)
        found[partition] = (*found.get(partition, ()), name)
    return found


def _inflight_path(properties: TableProperties, claim: Claim) -> str:
    return instant_path(properties, InstantName(claim.instant, claim.action, State.INFLIGHT))


def _read_or_empty(store: Store, path: str) -> bytes:
    try:
        return store.read(path)
    except FileNotFoundError:
        return b""
