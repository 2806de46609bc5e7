"""Rollback: take instants back, writes that were committed or one that was not.

`plan_rollback` decides; it refuses what others depend on. A committed write goes only while it is the newest, is not
protected by a savepoint, and no clean has deleted the files that would come back. A pending write goes only if nobody
is at it. A pending compaction or clustering goes with its plan.

Several committed writes go the newest first, all of them or none: they are checked as a whole, and announced before the
first is taken back, so that nobody begins to write between them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace

from bucketlake.commit.claims import latest_time, list_claims
from bucketlake.commit.heartbeat import (
    Heartbeat,
    is_alive,
    list_heartbeats,
    start_heartbeat,
    stop_heartbeat,
)
from bucketlake.commit.locks import table_lock
from bucketlake.commit.operation import PLANNED, TRANSACTIONS
from bucketlake.commit.recovery import Recovery, recover
from bucketlake.commit.rollback import (
    RolledBack,
    Target,
    announce_rollback,
    built_on,
    roll_back,
    roll_back_run,
)
from bucketlake.commit.stream import batches_in
from bucketlake.commit.writable import check_writable
from bucketlake.config import TableProperties
from bucketlake.errors import BucketlakeError, CommitConflictError, ConcurrentWriteError, InstantError
from bucketlake.index.keepers import keepers_of
from bucketlake.layout import DataFile, list_files
from bucketlake.layout.names import parse_base_file_name, parse_log_file_name
from bucketlake.services.wanted_indexes import build_wanted_indexes
from bucketlake.state import TableState, commit_metadata, list_folders, load_state
from bucketlake.storage import Store
from bucketlake.timeline import (
    WRITE_ACTIONS,
    Action,
    Clock,
    CommitMetadata,
    Instant,
    Timeline,
    delete_pending,
    load_history,
    process_clock,
    read_clean_metadata,
    read_cleaner_plan,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What a rollback has to know beside the timeline, read once."""

    commit: CommitMetadata | None
    """What the instant wrote, if it was committed."""
    files: tuple[DataFile, ...]
    """The files that bear its time."""
    cleaned: Mapping[str, Mapping[str, tuple[str, ...]]]
    """What cleans since have deleted, or are about to: by instant, by partition."""
    is_archived: bool
    is_alive: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RollbackOrder:
    """What a rollback is to do; prints as a few lines."""

    instant: Instant
    files: tuple[DataFile, ...]
    batches: tuple[str, ...] = ()
    """Which batches of streams go with it, a line for each stream."""

    @property
    def size_bytes(self) -> int:
        return sum(file.size_bytes for file in self.files)

    def __str__(self) -> str:
        state = "committed" if self.instant.is_completed else f"{self.instant.state}"
        lines = [
            f"roll back the {state} {self.instant.action} of {self.instant.requested}: "
            f"{len(self.files):,} files, {self.size_bytes:,} bytes",
            *(f"  {line}" for line in self.batches),
        ]
        return "\n".join(
            [*lines, *(f"  delete {file.path} ({file.size_bytes:,} bytes)" for file in self.files)]
        )


def find_instant(state: TableState, requested: str) -> Instant:
    """Return the write of this time on the active timeline; `InstantError` if there is none."""
    for instant in state.timeline.instants:
        if instant.requested == requested and instant.is_write:
            return instant
    other = next((i for i in state.timeline.instants if i.requested == requested), None)
    if other is not None:
        raise InstantError(
            f"{requested} is a {other.action}, and only writes, compactions and clusterings can be rolled back. "
            f"One that was cut off is finished by running it again."
        )
    writes = [i.requested for i in state.timeline.instants if i.is_write]
    known = f"{writes[0]} to {writes[-1]}" if writes else "empty"
    archived = " An older one is archived, and can no longer be taken back." if writes else ""
    raise InstantError(
        f"{state.store.uri} has no write of {requested} on its timeline, which is {known}.{archived} "
        f"`bucketlake timeline` lists them."
    )


def gather_evidence(state: TableState, instant: Instant, *, clock: Clock | None = None) -> Evidence:
    clock = clock or process_clock(state.properties.timeline_timezone)
    commit = commit_metadata(state, instant) if instant.is_completed else None
    if commit is None:
        listed = list_folders(state).files
    else:
        listed = list_files(state.store, sorted({stat.partition for stat in commit.write_stats}))
    cleans = [i for i in state.timeline.completed(Action.CLEAN) if i.requested > instant.requested]
    # One that was cut off may have deleted all that it names, and whoever cleans next goes on with it.
    pending = state.timeline.pending(Action.CLEAN)
    last_beat_ms = list_heartbeats(state.store).get(instant.requested)
    return Evidence(
        commit=commit,
        files=tuple(file for files in listed.values() for file in files if file.instant == instant.requested),
        cleaned={
            **{i.requested: read_clean_metadata(state.store, i).deleted for i in cleans},
            **{i.requested: read_cleaner_plan(state.store, i).files for i in pending},
        },
        is_archived=any(
            a.requested == instant.requested and a.action in WRITE_ACTIONS
            for a in load_history(state.store, state.properties, since=instant.requested)
        ),
        is_alive=not instant.is_completed and is_alive(last_beat_ms, now_ms=clock.now_ms()),
    )


def plan_rollback(state: TableState, instant: Instant, evidence: Evidence) -> RollbackOrder:
    """Decide whether `instant` can be taken back, and what that deletes. Raises `InstantError` if it must stay."""
    what = f"the {instant.action} of {instant.requested}"
    if evidence.is_alive:
        raise ConcurrentWriteError(
            f"{what} is under way: its writer's heartbeat is fresh. Stop it first; two minutes after its last beat "
            f"it counts as dead, and the next write rolls it back."
        )
    if instant.requested in state.timeline.savepoints:
        raise InstantError(
            f"{what} is protected by a savepoint. Delete that first: "
            f"bucketlake delete-savepoint {state.store.uri} {instant.requested}"
        )
    if instant.is_completed:
        check_layout(state, instant)
        _check_newest(state, instant, what)
        _check_archive(state, instant, evidence, what)
        _check_cleans(evidence, what)
    return RollbackOrder(
        instant=instant,
        files=tuple(sorted(evidence.files, key=lambda file: file.path)),
        batches=batches_in(() if evidence.commit is None else (evidence.commit,)),
    )


def check_layout(state: TableState, instant: Instant) -> None:
    """Raise `InstantError` if an instant has left file groups that no longer fit the table."""
    if instant.action is not Action.REPLACE_COMMIT or not instant.is_completed:
        return
    for keeper in keepers_of(state.properties):
        why = keeper.why_it_stays(state.properties, instant.requested)
        if why is not None:
            raise InstantError(f"the {instant.action} of {instant.requested} cannot be taken back: {why}.")


def look_for_rollback(state: TableState, requested: str, *, clock: Clock | None = None) -> RollbackOrder:
    """Find an instant, read what its rollback depends on, and plan it."""
    check_writable(state)
    instant = find_instant(state, requested)
    return plan_rollback(state, instant, gather_evidence(state, instant, clock=clock))


def look_for_rollbacks(
    state: TableState, requested: Iterable[str], *, clock: Clock | None = None
) -> tuple[RollbackOrder, ...]:
    """Plan to take several instants back, the newest first; refused as a whole if one of them must stay."""
    check_writable(state)
    return _plan_in_order(state, [find_instant(state, one) for one in requested], clock)


def _plan_in_order(
    state: TableState, instants: Iterable[Instant], clock: Clock | None
) -> tuple[RollbackOrder, ...]:
    """Plan each on the timeline as those before it leave it."""
    orders = []
    for instant in instants:
        orders.append(plan_rollback(state, instant, gather_evidence(state, instant, clock=clock)))
        state = _without(state, [instant])
    return tuple(orders)


def _without(state: TableState, gone: Sequence[Instant]) -> TableState:
    return replace(state, timeline=Timeline(tuple(i for i in state.timeline.instants if i not in gone)))


def run_rollback(order: RollbackOrder, store: Store, *, clock: Clock | None = None) -> RolledBack:
    """Take the instant back, as Hudi does it. If that is cut off, the next write or recovery finishes it.

    Raises `CommitConflictError` if the table has moved on since the plan was made, `ConcurrentWriteError` while
    somebody writes to it.
    """
    if order.instant.action in TRANSACTIONS and not order.instant.is_completed:
        state = load_state(store)
        check_writable(state)
        clock = clock or process_clock(state.properties.timeline_timezone)
        return _of_dead_writer(order, store, state.properties, clock)
    return run_rollbacks([order], store, clock=clock)[0]


def run_rollbacks(
    orders: Sequence[RollbackOrder], store: Store, *, clock: Clock | None = None
) -> tuple[RolledBack, ...]:
    """Take committed writes back, the newest first, or a plan: all of them, or none where one must stay by now.

    Raises as `run_rollback`. If it is cut off, the next write or recovery finishes the one that was being taken back.
    """
    state = load_state(store)
    check_writable(state)
    properties = state.properties
    clock = clock or process_clock(properties.timeline_timezone)
    recovery = recover(store, properties, clock=clock)
    refuse_others(recovery)
    # Those whose rollback was begun by somebody who died are gone now.
    finished = {done.instant: done for done in recovery.rolled_back}
    asked, orders = orders, [order for order in orders if order.instant.requested not in finished]
    if not orders:
        return tuple(finished[order.instant.requested] for order in asked)
    done = _run_in_order(orders, store, properties, clock)
    build_wanted_indexes(store, clock=clock)
    return done


def _run_in_order(
    orders: Sequence[RollbackOrder], store: Store, properties: TableProperties, clock: Clock
) -> tuple[RolledBack, ...]:
    with table_lock(store, now_ms=clock.now_ms):
        state = load_state(store)
        for order in orders:
            if order.instant not in state.timeline.instants:
                raise CommitConflictError(
                    f"the {order.instant.action} of {order.instant.requested} is no longer as it was when its rollback "
                    f"was planned. Nothing was changed. Look at the timeline, and plan again."
                )
        _plan_in_order(state, [order.instant for order in orders], clock)
        if orders[0].instant.action in PLANNED:
            assert len(orders) == 1, "plans go one by one"
            return (_of_plan(orders[0], store, properties, clock),)
        return _of_commits(orders, store, properties, clock)


@contextmanager
def announced_time(store: Store, clock: Clock) -> Iterator[str]:
    """Choose the instant of a rollback or restore, and beat for it while the block runs.

    If the block fails, the heartbeat stays and goes stale: by that the next comer knows that it is his to finish.
    """
    latest = latest_time(load_state(store).timeline, list_claims(store))
    instant = clock.next_instant(after=latest)
    while not start_heartbeat(store, instant):
        instant = clock.next_instant(after=latest)
    with Heartbeat(_Beating(store, instant), is_another=True):
        yield instant
    stop_heartbeat(store, instant)


def refuse_others(found: Recovery) -> None:
    """Refuse to take anything back beside a write that is under way, or a rescale that somebody may resume."""
    refuse_the_living(found.alive)
    if found.resumable:
        raise ConcurrentWriteError(
            f"the rescale of {found.resumable[0].requested} was cut off, and is pending. Nothing can be taken back "
            f"beside it. Finish it (bucketlake buckets resume) or take it back (bucketlake buckets abort) first."
        )


def refuse_the_living(alive: tuple[Instant, ...]) -> None:
    if alive:
        raise ConcurrentWriteError(
            f"the {alive[0].action} of {alive[0].requested} is under way: its heartbeat is fresh. Nothing can be "
            f"taken back beside it. Wait for it to end, or stop it."
        )


@dataclass(frozen=True, slots=True)
class _Beating:
    store: Store
    instant: str


def _of_commits(
    orders: Sequence[RollbackOrder], store: Store, properties: TableProperties, clock: Clock
) -> tuple[RolledBack, ...]:
    with ExitStack() as under_way:
        announced: list[tuple[str, Target]] = []
        for order in orders:
            rollback = under_way.enter_context(announced_time(store, clock))
            files = tuple(file.path for file in order.files)
            target = Target.of(order.instant, rollback=rollback, files=files)
            announce_rollback(store, properties, target, rollback=rollback, files=files)
            announced.append((rollback, target))
        # Who begins from now on sees the rollbacks; who began before is seen here.
        state = _without(load_state(store), [order.instant for order in orders])
        done: list[RolledBack] = []
        try:
            refuse_the_living(state.timeline.pending(*TRANSACTIONS))
            oldest = orders[-1].instant
            _check_newest(state, oldest, f"the {oldest.action} of {oldest.requested}")
            for order in orders:
                with suppress(FileNotFoundError):  # taken back by somebody who took us for dead
                    evidence = gather_evidence(load_state(store), order.instant, clock=clock)
                    _check_cleans(evidence, f"the {order.instant.action} of {order.instant.requested}")
            for order, (_, target) in zip(orders, announced, strict=True):
                done.append(_of_commit(order.instant, target, store, properties, clock))
        except BucketlakeError:
            # Those of older instants first: left alone, each would be taken for one that can be finished.
            for rollback, _ in reversed(announced[len(done) :]):
                delete_pending(store, properties, instant=rollback, action=Action.ROLLBACK)
                stop_heartbeat(store, rollback)
            raise
    return tuple(done)


def _of_commit(
    instant: Instant, target: Target, store: Store, properties: TableProperties, clock: Clock
) -> RolledBack:
    # Who slept through his lock may find that others have gone on.
    done = roll_back(
        store,
        properties,
        target,
        clock,
        keep_partitions=False,
        may_go=lambda timeline: not built_on(timeline, instant),
    )
    if done is None:
        raise CommitConflictError(
            f"the {instant.action} of {instant.requested} stays: others have planned or written on it while its "
            f"rollback was held up. Look at the timeline, and plan again."
        )
    return done


def _of_dead_writer(
    order: RollbackOrder, store: Store, properties: TableProperties, clock: Clock
) -> RolledBack:
    # Who names a rescale that was cut off gives it up.
    recovery = recover(store, properties, clock=clock, given_up={order.instant.requested})
    for done in recovery.rolled_back:
        if done.instant == order.instant.requested:
            return done
    refuse_the_living(recovery.alive)
    raise CommitConflictError(
        f"the {order.instant.action} of {order.instant.requested} is no longer pending: somebody has finished it or "
        f"taken it back. Nothing was changed."
    )


def _of_plan(order: RollbackOrder, store: Store, properties: TableProperties, clock: Clock) -> RolledBack:
    """Take back what was run of a compaction or clustering, then its plan."""
    done = roll_back_run(store, properties, order.instant, clock=clock, keeps_plan=False)
    if done is None:
        raise CommitConflictError(
            f"the {order.instant.action} of {order.instant.requested} was completed just now. Nothing was changed. "
            f"Plan its rollback again."
        )
    return done


def _check_newest(state: TableState, instant: Instant, what: str) -> None:
    newer = built_on(state.timeline, instant)
    if newer:
        names = ", ".join(
            f"{i.requested} ({i.action}{'' if i.is_completed else ', planned'})" for i in newer[:5]
        )
        raise InstantError(
            f"{what} cannot be rolled back: {len(newer)} newer instants may depend on it: {names}. Roll those back "
            f"first, the newest before the others; or restore to a savepoint, which does so."
        )


def _check_archive(state: TableState, instant: Instant, evidence: Evidence, what: str) -> None:
    others = [i for i in state.timeline.writes if i.requested != instant.requested]
    if evidence.is_archived or (not others and load_history(state.store, state.properties)):
        # Whatever is older than the active timeline counts as committed, for us and for Hudi: without any write on
        # it, nothing would.
        found = (
            "is in the history already" if evidence.is_archived else "is the only write that is not archived"
        )
        raise InstantError(
            f"{what} cannot be rolled back: it {found}. Write to the table, and delete the rows."
        )


def _check_cleans(evidence: Evidence, what: str) -> None:
    assert evidence.commit is not None
    touched = {(stat.partition, stat.file_id) for stat in evidence.commit.write_stats}
    touched |= {(p, file_id) for p, file_ids in evidence.commit.replaced.items() for file_id in file_ids}
    for clean, deleted in evidence.cleaned.items():
        for partition, names in deleted.items():
            lost = next((name for name in names if (partition, _file_id(name)) in touched), None)
            if lost is not None:
                raise InstantError(
                    f"{what} cannot be rolled back: the clean of {clean} deletes {lost} in {partition!r}, which "
                    f"held rows as they were before it. Write the rows again instead."
                )


def _file_id(path: str) -> str:
    name = path.rpartition("/")[2]
    found = parse_base_file_name(name) or parse_log_file_name(name)
    return found.file_id if found else ""
