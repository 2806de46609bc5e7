"""One write as an instant: begun, and then completed or aborted.

    begin      recover what others left; heartbeat; T.requested; T.inflight; only then look at what there is to write on
    complete   the commit's body into T.inflight; a claim; T_C.<action>; markers and heartbeat away
    abort      data files, T.inflight, T.requested, heartbeat away: as if nothing had been

Readers see nothing of a write before the file T_C.<action>, and all of it after. Cut off before its claim, a write
is rolled back by the next; cut off after it, it is published by the next.

Several writers may be at it at once. Nobody waits while rows are written; under the table's lock, a write looks at
what others have completed since it began, and commits if none of them touched what it touched. Otherwise it may write
the file groups that are concerned once more, on what there is then (`rebase`), or is aborted and run again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace

from bucketlake.commit.claims import Claim, Claims, Outcome, forget_old, list_claims, take
from bucketlake.commit.clock_skew import check_clock
from bucketlake.commit.commit_lock import commit_lock
from bucketlake.commit.conflicts import Conflict, Footprint, Group, Other, find_conflict, footprint_of
from bucketlake.commit.heartbeat import (
    Heartbeat,
    is_alive,
    list_heartbeats,
    start_heartbeat,
    stop_heartbeat,
)
from bucketlake.commit.locks import table_lock
from bucketlake.commit.markers import delete_data_files, delete_markers, marked_files
from bucketlake.commit.operation import Operation, action_of
from bucketlake.commit.recovery import (
    TRANSACTIONS,
    completed_time,
    latest_time,
    publish_claimed,
    recover,
    settle,
)
from bucketlake.commit.rollback import plan_of
from bucketlake.commit.writable import check_writable
from bucketlake.config import MergeMode, TableProperties, TableType, keep_copy, load_properties
from bucketlake.errors import CommitConflictError, ConcurrentWriteError, ConflictError
from bucketlake.index import NO_RULES, VersionedRules, current_version, forget_layout, load_rules
from bucketlake.index.recorded_counts import forget_counts, record_counts
from bucketlake.index.resizes import find_unknown_resize, pending_resizes
from bucketlake.layout.names import partition_metadata_path
from bucketlake.layout.partition_metadata import partition_depth, render_partition_metadata
from bucketlake.state import TableState, load_state
from bucketlake.storage import Store
from bucketlake.timeline import (
    Action,
    Clock,
    CommitMetadata,
    Instant,
    InstantName,
    State,
    Timeline,
    delete_pending,
    encode_commit_metadata,
    encode_requested_replace,
    instant_path,
    load_timeline,
    process_clock,
    publish,
    read_commit_metadata,
    read_requested_replace,
    read_rollback_metadata,
    write_inflight,
    write_requested,
)

__all__ = [
    "Heartbeat",
    "Transaction",
    "abort",
    "begin",
    "check_writable",
    "complete",
    "complete_locked",
    "decided",
    "rebase",
    "refresh",
    "refuse_live_writers",
    "tidy",
]

_TIMES_DRAWN_MAX = 16

_log = logging.getLogger("bucketlake.write")


@dataclass(frozen=True, slots=True, kw_only=True)
class Transaction:
    """A write that has begun."""

    store: Store
    properties: TableProperties
    instant: str
    action: Action
    operation: Operation
    seen: frozenset[str]
    """The requested times of the writes it builds on."""
    layout_version: str = ""
    """The version of the bucket rules that must still count when it commits; empty if the table has none."""
    resizes: frozenset[str] = frozenset()
    """The instants of resizes that were under way when it began, and that it writes beside."""
    counts: VersionedRules = NO_RULES
    """The rules that give the partitions it writes to their counts: the table's, or a rescale's own."""


def begin(
    store: Store,
    *,
    operation: Operation,
    check: Callable[[TableState], None] | None = None,
    clock: Clock | None = None,
    plan: bytes | None = None,
) -> tuple[Transaction, TableState]:
    """Begin a write: return it, and the table as it is to be written on.

    `plan` is what its requested file says, of a write that others can go on with.

    `check` may refuse the table by raising, before anything is written to it. Raises `ConcurrentWriteError` while
    somebody moves file groups. A `Heartbeat` must run from now until `complete` or `abort`: after two minutes
    without, others take the write for dead.
    """
    before = load_state(store)
    _check(before, check)
    properties = before.properties
    keep_copy(store, properties)
    if clock is None:
        check_clock(store)
        clock = process_clock(properties.timeline_timezone)
    recover(store, properties, clock=clock)
    action = action_of(operation, properties.table_type)
    for left in reversed(range(_TIMES_DRAWN_MAX)):
        instant = _announce(store, properties, action, clock, plan)
        begun = Transaction(
            store=store,
            properties=properties,
            instant=instant,
            action=action,
            operation=operation,
            seen=frozenset(),
        )
        try:
            write_inflight(store, properties, instant=instant, action=action)
            # What there is to write on is read after others can see us: who completes from now on conflicts.
            state = load_state(store)
            _check(state, check)
            _refuse_movers(state)
            resizes = frozenset(pending_resizes(store, state.timeline))
            later = _later_than(begun, state, resizes)
            if later is not None and not left:
                raise _overtaken(begun, later)
            rules = load_rules(store, state.timeline)
        except BaseException:
            abort(begun)
            raise
        if later is None:
            break
        abort(begun)
    begun = replace(begun, properties=state.properties, seen=_seen(state), resizes=resizes)
    return replace(begun, layout_version=rules.version, counts=rules), state


def rebase(
    transaction: Transaction, metadata: CommitMetadata
) -> tuple[Transaction, TableState, frozenset[Group]] | None:
    """Take in what others have completed since a write began, after it was refused for that.

    Returns the write as it builds on that, the table, and the file groups, by partition and bucket, that must be
    written again before it can be completed; None if all of it must be run again.
    """
    state = load_state(transaction.store)
    _check(state, None)
    _refuse_movers(state)
    _refuse_undone(transaction, state.timeline)
    conflict = _conflict(transaction, footprint_of(metadata), state.timeline)
    if conflict is not None and not conflict.stale:
        return None
    stale = conflict.stale if conflict is not None else frozenset()
    return replace(transaction, seen=_seen(state)), state, stale


def refresh(transaction: Transaction) -> tuple[Transaction, TableState]:
    """Take in all that others have completed: return the write as it builds on that, and the table.

    For who compares the files it was made of with those there are now, and does not care who wrote them.
    """
    state = load_state(transaction.store)
    _check(state, None)
    _refuse_movers(state)
    _refuse_gone(transaction, state.timeline)
    _refuse_other_layout(transaction, state.timeline)
    return replace(transaction, seen=_seen(state)), state


def _seen(state: TableState) -> frozenset[str]:
    seen = {i.requested for i in state.timeline.completed()}
    # A compaction that was planned before may complete beside us: it leaves room for our log files.
    seen |= {i.requested for i in state.timeline.pending(Action.COMPACTION, Action.LOG_COMPACTION)}
    return frozenset(seen)


def complete(transaction: Transaction, metadata: CommitMetadata, *, clock: Clock | None = None) -> str:
    """Commit a write; return its completion time.

    Raises `CommitConflictError` if another write was completed since this one began and touched the same file groups,
    or somebody has taken this one for dead; then, as after any other error, call `abort`.
    """
    clock = clock or process_clock(transaction.properties.timeline_timezone)
    with commit_lock(transaction.store, transaction.properties, transaction.instant, clock):
        claim = complete_locked(transaction, metadata, clock=clock)
    tidy(transaction, claim)
    return claim.completed


def complete_locked(
    transaction: Transaction, metadata: CommitMetadata, *, clock: Clock | None = None
) -> Claim:
    """Commit a write under its `commit_lock`; `tidy` is to follow, without it."""
    clock = clock or process_clock(transaction.properties.timeline_timezone)
    body = encode_commit_metadata(metadata, action=transaction.action)
    _keep_partitions(transaction, metadata)
    _store_body(transaction, body)
    claim = _claim_commit(transaction, metadata, clock)
    publish(
        transaction.store,
        transaction.properties,
        instant=claim.instant,
        action=claim.action,
        completed=claim.completed,
        body=body,
    )
    return claim


def abort(transaction: Transaction) -> str | None:
    """Take a write back, so that nothing of it is left but its markers. May be called again if it fails.

    A later write deletes the markers, with what tasks that were still running have written meanwhile.

    If the commit had been decided, because `complete` failed after its claim, the write is published instead, and
    its completion time returned.
    """
    store, properties, instant = transaction.store, transaction.properties, transaction.instant
    completed = decided(transaction)
    if completed is not None:
        tidy(transaction, None)
        return completed
    _delete_files(transaction)
    if transaction.counts.rules is not None:
        forget_counts(store, instant)
    if transaction.action is Action.REPLACE_COMMIT:
        # While the instant is pending nobody counts its rules or rings; once it is gone, Hudi would.
        forget_layout(store, instant)
    delete_pending(store, properties, instant=instant, action=transaction.action)
    stop_heartbeat(store, instant)
    return None


def _delete_files(transaction: Transaction) -> None:
    """Delete what the write has put into the table, under the lock: partitions may go, which others rely on."""
    store, instant = transaction.store, transaction.instant
    paths = marked_files(store, instant) or ()
    if not paths:
        return
    try:
        with table_lock(store):
            delete_data_files(store, paths, instant=instant, keep_partitions=False)
    except ConflictError:
        delete_data_files(store, paths, instant=instant, keep_partitions=True)


def _keep_partitions(transaction: Transaction, metadata: CommitMetadata) -> None:
    """See to it that the partitions we wrote to are still there: whoever made them may have been aborted since."""
    opened = {stat.partition for stat in metadata.write_stats if stat.previous_instant is None}
    for partition in sorted(opened):
        body = render_partition_metadata(transaction.instant, partition_depth(partition))
        transaction.store.put_new(partition_metadata_path(partition), body)


def _announce(
    store: Store, properties: TableProperties, action: Action, clock: Clock, plan: bytes | None
) -> str:
    """Choose an instant later than everything on the timeline, and put its heartbeat and requested file there."""
    nothing = encode_requested_replace() if action is Action.REPLACE_COMMIT else b""
    body = nothing if plan is None else plan
    latest = latest_time(load_timeline(store, properties), list_claims(store))
    while True:
        instant = clock.next_instant(after=latest)
        if not start_heartbeat(store, instant):
            continue  # another writer has drawn the same millisecond
        if write_requested(store, properties, instant=instant, action=action, body=body):
            return instant
        stop_heartbeat(store, instant)


def _check(state: TableState, check: Callable[[TableState], None] | None) -> None:
    check_writable(state)
    if check is not None:
        check(state)


def refuse_live_writers(state: TableState, *, but: str = "", clock: Clock | None = None) -> None:
    """Raise `ConcurrentWriteError` if a write is under way, other than the one of the instant `but`."""
    others = [i for i in state.timeline.pending(*TRANSACTIONS) if i.requested != but]
    if not others:
        return
    heartbeats = list_heartbeats(state.store)
    now_ms = (clock or process_clock(state.properties.timeline_timezone)).now_ms()
    for other in others:
        if is_alive(heartbeats.get(other.requested), now_ms=now_ms):
            raise _under_way(other)


def _refuse_movers(state: TableState) -> None:
    """Refuse to write on a table whose file groups somebody is halfway through moving, or taking back."""
    for other in state.timeline.pending(Action.CLUSTERING, Action.RESTORE, Action.INDEXING):
        if other.action is Action.CLUSTERING and _gives_way(state.store, other):
            continue
        raise ConcurrentWriteError(
            f"the {other.action} of {other.requested} is pending, and rows may not be written beside it. Let the "
            f"engine that began it finish it or roll it back, then write again."
        )
    completed = {i.requested for i in state.timeline.writes}
    for rollback in _rollbacks_of(state.store, state.timeline, completed):
        raise _under_way(rollback)


def _later_than(transaction: Transaction, state: TableState, resizes: Collection[str]) -> str | None:
    """Name what a write builds on that has a later time, or the same; None if there is no such thing.

    Somebody drew his time after ours, and was done before we looked. Readers go by the times: for them what we build on
    his files would come before those, and be hidden by them. So another time is drawn.
    """
    for other in state.timeline.writes:
        if other.requested >= transaction.instant:
            return f"{other.action} of {other.requested}"
    for plan in (i for i in state.timeline.pending() if i.is_write and i.action not in TRANSACTIONS):
        # A plan of the same millisecond is not told apart; beside a resize, a write is later than it.
        is_later_resize = plan.requested in resizes and plan.requested > transaction.instant
        if plan.requested == transaction.instant or is_later_resize:
            return f"{plan.action} of {plan.requested}"
    return None


def _gives_way(store: Store, clustering: Instant) -> bool:
    """Tell whether a pending clustering leaves writers alone.

    Who runs one that only sorts looks for writes to its file groups first; of a resize, writers know themselves.
    """
    try:
        plan = read_requested_replace(store, clustering)
        return plan.is_sort or plan.is_resize
    except FileNotFoundError:
        return True  # taken back since the timeline was listed


def _rollbacks_of(store: Store, timeline: Timeline, commits: Collection[str]) -> Iterator[Instant]:
    """Find pending rollbacks of these commits, or of what we cannot tell; those of failed writes harm nobody."""
    for rollback in timeline.pending(Action.ROLLBACK):
        plan = plan_of(store, rollback)
        if plan is None or plan.target in commits:
            yield rollback


def _store_body(transaction: Transaction, body: bytes) -> None:
    """Put the commit's body into the inflight file, from where others can publish it, unless the file is gone."""
    path = _inflight_path(transaction)
    try:
        version = transaction.store.stat(path).version
    except FileNotFoundError:
        raise _taken_for_dead(transaction) from None
    if not transaction.store.replace_if(path, body, version):
        raise _taken_for_dead(transaction)


def _claim_commit(transaction: Transaction, metadata: CommitMetadata, clock: Clock) -> Claim:
    store, properties = transaction.store, transaction.properties
    ours = footprint_of(metadata)
    partitions = {stat.partition for stat in metadata.write_stats}
    while True:
        # What somebody decided and did not live to do comes before ours.
        claims, timeline = settle(store, properties)
        if claims.rollback_of(transaction.instant) is not None:
            raise _taken_for_dead(transaction)
        _refuse_conflicts(transaction, ours, timeline)
        _refuse_unknown_resizes(transaction, metadata, timeline, claims)
        is_rescale = transaction.counts.version == transaction.instant
        if transaction.counts.rules is not None and (partitions or is_rescale):
            record_counts(store, timeline, partitions, transaction.counts, instant=transaction.instant)
        claim = Claim(
            number=claims.next_number,
            instant=transaction.instant,
            action=transaction.action,
            outcome=Outcome.COMMIT,
            completed=clock.next_instant(after=latest_time(timeline, claims)),
        )
        if take(store, claim):
            return claim


def _refuse_conflicts(transaction: Transaction, ours: Footprint, timeline: Timeline) -> None:
    _refuse_gone(transaction, timeline)
    _refuse_undone(transaction, timeline)
    conflict = _conflict(transaction, ours, timeline)
    if conflict is not None:
        error = _overtaken(transaction, conflict.name)
        error.is_partial = bool(conflict.stale)
        raise error


def _refuse_unknown_resizes(
    transaction: Transaction, metadata: CommitMetadata, timeline: Timeline, claims: Claims
) -> None:
    """Refuse a write to buckets that somebody has begun to resize, or given up resizing, since it began."""
    resize = find_unknown_resize(
        transaction.store,
        timeline,
        metadata,
        known=transaction.resizes,
        is_given_up=lambda resize: claims.rollback_of(resize) is not None,
        is_copy_on_write=transaction.properties.table_type is TableType.COPY_ON_WRITE,
    )
    if resize is not None:
        raise _overtaken(transaction, f"resize of {resize}")


def _refuse_gone(transaction: Transaction, timeline: Timeline) -> None:
    if all(i.requested != transaction.instant for i in timeline.pending(transaction.action)):
        raise _taken_for_dead(transaction)


def _conflict(transaction: Transaction, ours: Footprint, timeline: Timeline) -> Conflict | None:
    """Look for others who have completed since we began, and were in our way."""
    others = (
        Other(
            f"{i.action} of {i.requested}",
            footprint_of(read_commit_metadata(transaction.store, i)),
            is_earlier=i.requested < transaction.instant,
        )
        for i in timeline.completed(*TRANSACTIONS)
        if i.requested not in transaction.seen
    )
    properties = transaction.properties
    rows_say_order = properties.merge_mode is MergeMode.EVENT_TIME_ORDERING and bool(
        properties.ordering_fields
    )
    return find_conflict(ours, others, logs_commute=rows_say_order)


def _refuse_undone(transaction: Transaction, timeline: Timeline) -> None:
    """Refuse to build on what was taken back meanwhile, or on buckets that were changed."""
    for restore in timeline.completed(Action.RESTORE):
        if restore.requested not in transaction.seen:
            raise _overtaken(transaction, f"restore of {restore.requested}")
    for rollback in _rollbacks_of(transaction.store, timeline, transaction.seen):
        raise _overtaken(transaction, f"rollback of {rollback.requested}")
    for rollback in timeline.completed(Action.ROLLBACK):
        if rollback.requested > transaction.instant:
            undone = set(read_rollback_metadata(transaction.store, rollback).rolled_back)
            if undone & transaction.seen:
                raise _overtaken(transaction, f"rollback of {', '.join(sorted(undone))}")
    _refuse_other_layout(transaction, timeline)


def _refuse_other_layout(transaction: Transaction, timeline: Timeline) -> None:
    if _layout_of(transaction.properties) != _layout_of(load_properties(transaction.store)):
        raise _overtaken(transaction, "change of hoodie.properties")
    version = current_version(transaction.store, timeline)
    if version != transaction.layout_version:
        raise _overtaken(
            transaction,
            f"change of the bucket rules, from {transaction.layout_version or 'none'} to {version or 'none'},",
        )


def _layout_of(properties: TableProperties) -> tuple[object, ...]:
    """What a write depends on and somebody may change: a metadata table, the version, the buckets."""
    return (
        properties.metadata_partitions,
        properties.table_version,
        properties.index_type,
        properties.bucket_engine,
        properties.bucket_count,
        properties.hash_fields,
    )


def decided(transaction: Transaction) -> str | None:
    """Return the completion time of a write whose commit was claimed, after seeing to it that it is published."""
    store, properties = transaction.store, transaction.properties
    claim = list_claims(store).newest
    if claim is not None and claim.instant == transaction.instant and claim.outcome is Outcome.COMMIT:
        publish_claimed(store, properties, claim)
    return completed_time(load_timeline(store, properties), transaction.instant)


def tidy(transaction: Transaction, claim: Claim | None) -> None:
    """Remove what a committed write needs no more. It is committed, so nothing here may fail it."""
    try:
        delete_markers(transaction.store, transaction.instant)
        stop_heartbeat(transaction.store, transaction.instant)
        if claim is not None:
            forget_old(transaction.store, claim)
    except Exception as fault:
        _log.warning("%s is committed, but its markers may still be there: %s", transaction.instant, fault)


def _inflight_path(transaction: Transaction) -> str:
    name = InstantName(transaction.instant, transaction.action, State.INFLIGHT)
    return instant_path(transaction.properties, name)


def _under_way(other: Instant) -> ConcurrentWriteError:
    return ConcurrentWriteError(
        f"the {other.action} of {other.requested} is under way: its writer's heartbeat is fresh. "
        f"Wait for it to end; if its process is dead, it counts as such two minutes after its "
        f"last beat, and the next write rolls it back."
    )


def _taken_for_dead(transaction: Transaction) -> CommitConflictError:
    return CommitConflictError(
        f"the {_word(transaction)} of {transaction.instant} cannot commit: somebody has taken it for dead and "
        f"rolled it back. Nothing of it is visible. Run it again; if its process slept for minutes, find out why."
    )


def _overtaken(transaction: Transaction, other: str) -> CommitConflictError:
    return CommitConflictError(
        f"the {_word(transaction)} of {transaction.instant} cannot commit: the {other} came in between, and was "
        f"built on the same state of the table. Nothing of ours is visible. Run it again."
    )


def _word(transaction: Transaction) -> str:
    return transaction.operation.lower().replace("_", " ")
