"""One write as an instant: begun, and then completed or aborted.

    begin      recover what others left; heartbeat; T.requested; T.inflight; only then look at what there is to write on
    commit     see whether others are in the way; then as any instant is completed (`completion`)
    abort      data files, T.inflight, T.requested, heartbeat away: as if nothing had been

Readers see nothing of a write before the file T_C.<action>, and all of it after. Cut off before its claim, a write
is rolled back by the next; cut off after it, it is published by the next.

Several writers may be at it at once. Nobody waits while rows are written; under the table's lock, a write looks at
what others have completed since it began, and commits if none of them touched what it touched. Otherwise it may write
the file groups that are concerned once more, on what there is then (`rebase`), or is aborted and run again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace

from bucketlake.commit.claims import Claims, latest_time
from bucketlake.commit.clock_skew import check_clock
from bucketlake.commit.completion import Said, complete, taken_for_dead, tidy
from bucketlake.commit.conflicts import (
    Conflict,
    Footprint,
    Other,
    ReadBasis,
    Slot,
    find_conflict,
    find_stale_read,
    footprint_of,
)
from bucketlake.commit.heartbeat import (
    Heartbeat,
    is_alive,
    list_heartbeats,
    start_heartbeat,
    stop_heartbeat,
)
from bucketlake.commit.locks import table_lock
from bucketlake.commit.markers import delete_data_files, marked_files
from bucketlake.commit.operation import TRANSACTIONS, Operation, action_of
from bucketlake.commit.overtaken import gives_way
from bucketlake.commit.publishing import completed_time, plan_of, settle
from bucketlake.commit.recovery import look_for_leftovers, recover_from
from bucketlake.commit.stream import Batch, refuse_other_query
from bucketlake.commit.writable import check_writable
from bucketlake.config import MergeMode, TableProperties, TableType, keep_copy, load_properties
from bucketlake.errors import CommitConflictError, ConcurrentWriteError, ConflictError
from bucketlake.index import Index, resolve_index
from bucketlake.index.keeper import Change, carry_out
from bucketlake.index.keepers import keepers_of
from bucketlake.index.listed import KeyRecords, listed_indexes, resolve_listed
from bucketlake.index.resolve import simple_count
from bucketlake.layout import FileGroupId
from bucketlake.layout.names import partition_metadata_path
from bucketlake.layout.partition_metadata import partition_depth, render_partition_metadata
from bucketlake.metadata.change import index_files_of
from bucketlake.metadata.places import INDEX_BUILT, SECONDARY_BUILT
from bucketlake.state import TableState, load_state
from bucketlake.storage import Store
from bucketlake.timeline import (
    Action,
    Clock,
    CommitMetadata,
    Instant,
    Timeline,
    delete_pending,
    encode_commit_metadata,
    encode_requested_replace,
    process_clock,
    read_commit_metadata,
    read_requested_replace,
    read_rollback_metadata,
    write_inflight,
    write_requested,
)

__all__ = [
    "Committed",
    "Heartbeat",
    "Transaction",
    "abort",
    "begin",
    "commit",
    "decided",
    "keeps_files",
    "looks_keys_up",
    "rebase",
    "refresh",
    "refuse_live_writers",
    "say_commit",
]

_TIMES_DRAWN_MAX = 16


Moment = tuple[str | None, tuple[str, ...]]
"""Where a timeline begins, and its completed replacecommits: as long as they stay, so does the layout."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Transaction:
    """A write that has begun."""

    store: Store
    properties: TableProperties
    instant: str
    action: Action
    operation: Operation
    index: Index
    """By which its rows are placed."""
    seen: frozenset[str]
    """The requested times of the writes it builds on."""
    listed: tuple[KeyRecords, ...] = ()
    """What is told of keys beside the index, as it was then."""
    layout_version: str = ""
    """The version of the layout that must still count when it commits; empty if the table has none."""
    moving: frozenset[str] = frozenset()
    """The instants of resizes that were under way when it began, and that it writes beside."""
    replaced: Moment | None = None
    """What told which version that is; None if that is to be found out again."""
    batch: Batch | None = None
    """The batch of a stream that it writes, if it is one."""
    room: Mapping[FileGroupId, int] = field(default_factory=dict)
    """How many more keys file groups take to which it appended new ones, where there is a limit."""
    read: ReadBasis | None = None
    """What its rows were computed from, as the table was when it began; None if they do not depend on the table."""

    @property
    def owner(self) -> str:
        """The stream that it is of; empty if it is of none."""
        return "" if self.batch is None else self.batch.stream


def looks_keys_up(transaction: Transaction) -> bool:
    """Tell whether a write goes by where keys were recorded, or tells somebody of them."""
    return transaction.index.recorded is not None or bool(transaction.listed)


def keeps_files(transaction: Transaction) -> bool:
    """Tell whether files may stay of a write that was overtaken: where keys are looked up, it must be possible to take
    back a part of what was recorded; and nobody else may have been told of them."""
    recorded = transaction.index.recorded
    if transaction.listed or (recorded is not None and transaction.operation.replaces):
        return False
    if recorded is not None:
        return recorded.reread is not None
    # A merge-on-read table's second file would be a log, and the first, a base file, be left.
    return transaction.properties.table_type is TableType.COPY_ON_WRITE


def begin(
    store: Store,
    *,
    operation: Operation,
    index_of: Callable[[TableState], Index] = resolve_index,
    check: Callable[[TableState], None] | None = None,
    clock: Clock | None = None,
    plan: bytes | None = None,
    batch: Batch | None = None,
) -> tuple[Transaction, TableState]:
    """Begin a write: return it, and the table as it is to be written on.

    `plan` is what its requested file says, of a write that others can go on with; `batch`, which batch of a
    stream it is.

    `index_of` and `check` may refuse the table by raising, before anything is written to it. Raises
    `ConcurrentWriteError` while somebody moves file groups. A `Heartbeat` must run from now until `commit` or `abort`:
    after two minutes without, others take the write for dead.
    """
    left = look_for_leftovers(store)
    before = load_state(store)
    index = _checked(before, index_of, check)
    properties = before.properties
    keep_copy(store, properties)
    if clock is None:
        check_clock(store)
        clock = process_clock(properties.timeline_timezone)
    _, claims, timeline = recover_from(store, properties, left, before.timeline, clock=clock)
    action = action_of(operation, properties.table_type)
    latest = latest_time(timeline, claims)
    for draws_left in reversed(range(_TIMES_DRAWN_MAX)):
        owner = "" if batch is None else batch.stream
        instant = _announce(store, properties, action, clock, plan, after=latest, owner=owner)
        begun = Transaction(
            store=store,
            properties=properties,
            instant=instant,
            action=action,
            operation=operation,
            index=index,
            seen=frozenset(),
            batch=batch,
        )
        try:
            write_inflight(store, properties, instant=instant, action=action)
            # What there is to write on is read after others can see us: who completes from now on conflicts.
            state = load_state(store)
            if _has_changed(before, state, but=instant):
                index = _checked(state, index_of, check)
            _refuse_movers(state)
            listed = resolve_listed(state)
            begun = replace(begun, properties=state.properties, index=index, listed=listed, seen=_seen(state))
            begun = replace(
                begun,
                layout_version=index.version,
                moving=_moving(begun, state.timeline),
                replaced=_moment(state.timeline),
            )
            later = _later_than(begun, state)
            if later is not None and not draws_left:
                raise _overtaken(begun, later)
        except BaseException:
            abort(begun)
            raise
        if later is None:
            return begun, state
        abort(begun)
        before, latest = state, latest_time(state.timeline, claims)
    raise AssertionError("the last draw returns or raises")


def _moving(transaction: Transaction, timeline: Timeline) -> frozenset[str]:
    keepers = keepers_of(transaction.properties)
    return frozenset[str]().union(*(keeper.moving(transaction.store, timeline) for keeper in keepers))


def _moment(timeline: Timeline) -> Moment:
    return timeline.start, tuple(i.requested for i in timeline.completed(Action.REPLACE_COMMIT))


def _has_changed(before: TableState, now: TableState, *, but: str) -> bool:
    """Tell whether anything has happened to a table, other than the instant `but`."""
    instants = tuple(i for i in now.timeline.instants if i.requested != but)
    return instants != before.timeline.instants or now.properties.raw != before.properties.raw


def rebase(
    transaction: Transaction,
    metadata: CommitMetadata,
    index_of: Callable[[TableState], Index] = resolve_index,
) -> tuple[Transaction, TableState, frozenset[Slot]] | None:
    """Take in what others have completed since a write began, after it was refused for that.

    Returns the write as it builds on that, the table, and the slots of the file groups that must be written again
    before it can be completed; None if all of it must be run again.
    """
    state = load_state(transaction.store)
    check_writable(state)
    _refuse_movers(state)
    _refuse_gone(transaction, state.timeline)
    _refuse_other_query(transaction, state.timeline)
    _refuse_undone(transaction, state.timeline)
    _refuse_stale_read(transaction, metadata, state.timeline)
    if looks_keys_up(transaction) and _later_than(transaction, state) is not None:
        return None  # what is recorded of a key counts by when its writer began, not by when he was done
    conflict = _conflict(transaction, metadata, state.timeline)
    if conflict is not None and not conflict.stale:
        return None
    stale = conflict.stale if conflict is not None else frozenset()
    return replace(transaction, index=index_of(state), seen=_seen(state)), state, stale


def refresh(transaction: Transaction) -> tuple[Transaction, TableState]:
    """Take in all that others have completed: return the write as it builds on that, and the table.

    For who compares the files it was made of with those there are now, and does not care who wrote them.
    """
    state = load_state(transaction.store)
    check_writable(state)
    _refuse_movers(state)
    _refuse_gone(transaction, state.timeline)
    _refuse_other_layout(transaction, state.timeline)
    return replace(transaction, seen=_seen(state), listed=resolve_listed(state)), state


def _seen(state: TableState) -> frozenset[str]:
    # A rollback may have drawn the same time as a write: it is none that is built on.
    seen = {i.requested for i in (*state.timeline.writes, *state.timeline.completed(Action.RESTORE))}
    # A compaction that was planned before may complete beside us: it leaves room for our log files.
    seen |= {i.requested for i in state.timeline.pending(Action.COMPACTION, Action.LOG_COMPACTION)}
    return frozenset(seen)


@dataclass(frozen=True, slots=True)
class Committed:
    """A write that is committed."""

    completed: str
    """Its completion time."""
    number: int
    """How many writes of its action were on the active timeline then, with this one: no two writes have the same,
    and none is left out, until an archive begins to count anew. 0 if that is not known."""


def commit(
    transaction: Transaction,
    metadata: CommitMetadata,
    *,
    clock: Clock | None = None,
    publishes_later: bool = False,
) -> Committed:
    """Commit a write; who `publishes_later` only decides it: see `complete`.

    Raises `CommitConflictError` if another write was completed since this one began and touched the same file groups,
    or somebody has taken this one for dead; then, as after any other error, call `abort`.
    """
    number = 0

    def say(claims: Claims, timeline: Timeline) -> Said:
        nonlocal number
        number = len(timeline.completed(transaction.action)) + 1
        return say_commit(transaction, metadata, claims, timeline)

    completed = complete(transaction, say, clock=clock, publishes_later=publishes_later)
    return Committed(completed, number)


def say_commit(
    transaction: Transaction, metadata: CommitMetadata, claims: Claims, timeline: Timeline
) -> Said:
    """Say what a write says when it is committed, unless others are in its way."""
    if claims.rollback_of(transaction.instant) is not None:
        raise taken_for_dead(transaction)
    _refuse_conflicts(transaction, metadata, timeline)
    _refuse_unknown_moves(transaction, metadata, timeline, claims)
    _keep_partitions(transaction, metadata)
    index = transaction.index
    return Said(
        encode_commit_metadata(metadata, action=transaction.action),
        Change(
            instant=transaction.instant,
            index=index.replacing(transaction.instant) if transaction.operation.replaces else index,
            written=frozenset(stat.partition for stat in metadata.write_stats),
            replaced=frozenset(metadata.replaced),
            recorded=frozenset(file.path for file in index_files_of(metadata)),
        ),
    )


def abort(transaction: Transaction) -> str | None:
    """Take a write back, so that nothing of it is left but its markers. May be called again if it fails.

    A later write deletes the markers, with what tasks that were still running have written meanwhile.

    If the commit had been decided, because `commit` failed after its claim, the write is published instead, and
    its completion time returned.
    """
    store, properties, instant = transaction.store, transaction.properties, transaction.instant
    completed = decided(transaction)
    if completed is not None:
        tidy(transaction, None)
        return completed
    _delete_files(transaction)
    # While the instant is pending nobody counts its rules or rings; once it is gone, Hudi would.
    for keeper in keepers_of(properties):
        carry_out(store, keeper.after_taking_back(store, instant=instant, action=transaction.action))
    delete_pending(store, properties, instant=instant, action=transaction.action)
    stop_heartbeat(store, instant)
    return None


def decided(transaction: Transaction) -> str | None:
    """Return the completion time of a write whose commit was claimed, after seeing to it that it is published."""
    _, timeline = settle(transaction.store, transaction.properties)
    return completed_time(timeline, transaction.instant, transaction.action)


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
    store: Store,
    properties: TableProperties,
    action: Action,
    clock: Clock,
    plan: bytes | None,
    *,
    after: str,
    owner: str,
) -> str:
    """Choose an instant later than everything on the timeline, and put its heartbeat and requested file there."""
    nothing = encode_requested_replace() if action is Action.REPLACE_COMMIT else b""
    body = nothing if plan is None else plan
    while True:
        instant = clock.next_instant(after=after)
        if not start_heartbeat(store, instant, owner=owner):
            continue  # another writer has drawn the same millisecond
        if write_requested(store, properties, instant=instant, action=action, body=body):
            return instant
        stop_heartbeat(store, instant)


def _checked(
    state: TableState,
    index_of: Callable[[TableState], Index],
    check: Callable[[TableState], None] | None,
) -> Index:
    """Return the table's index, unless it may not be written."""
    check_writable(state)
    with gives_way(state, "this write began"):
        if check is not None:
            check(state)
        return index_of(state)


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


def _later_than(transaction: Transaction, state: TableState) -> str | None:
    """Name what a write builds on that has a later time, or the same; None if there is no such thing.

    Somebody drew his time after ours, and was done before we looked. Readers go by the times: for them what we build on
    his files would come before those, and be hidden by them. So another time is drawn.
    """
    for other in state.timeline.instants:
        if other.requested == transaction.instant:
            # A rollback or a plan of the same millisecond is not told apart.
            is_in_the_way = other.action is not transaction.action
        else:
            # Beside a resize, a write is later than it.
            is_built_on = (other.is_completed and other.is_write) or other.requested in transaction.moving
            is_in_the_way = is_built_on and other.requested > transaction.instant
        if is_in_the_way:
            return f"{other.action} of {other.requested}"
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


def _refuse_conflicts(transaction: Transaction, metadata: CommitMetadata, timeline: Timeline) -> None:
    _refuse_gone(transaction, timeline)
    _refuse_other_query(transaction, timeline)
    _refuse_undone(transaction, timeline)
    _refuse_stale_read(transaction, metadata, timeline)
    recorded = transaction.index.recorded
    for records in (*transaction.listed, *([recorded] if recorded is not None else [])):
        other = records.overtaken(timeline, instant=transaction.instant)
        if other is not None:
            error = _overtaken(transaction, f"write of {other}")
            error.is_partial = keeps_files(transaction)
            raise error
    conflict = _conflict(transaction, metadata, timeline)
    if conflict is not None:
        error = _overtaken(transaction, conflict.name)
        error.is_partial = bool(conflict.stale)
        raise error


def _refuse_unknown_moves(
    transaction: Transaction, metadata: CommitMetadata, timeline: Timeline, claims: Claims
) -> None:
    """Refuse a write to buckets that somebody has begun to resize, or given up resizing, since it began."""
    for keeper in keepers_of(transaction.properties):
        found = keeper.in_the_way(
            transaction.store,
            transaction.properties,
            timeline,
            metadata,
            index=transaction.index,
            known=transaction.moving,
            is_given_up=lambda instant: claims.rollback_of(instant) is not None,
        )
        if found is not None:
            raise _overtaken(transaction, f"resize of {found}")


def _refuse_gone(transaction: Transaction, timeline: Timeline) -> None:
    if all(i.requested != transaction.instant for i in timeline.pending(transaction.action)):
        raise taken_for_dead(transaction)


def _refuse_other_query(transaction: Transaction, timeline: Timeline) -> None:
    """Refuse a batch of a stream if another query has committed it, or a later one, since the write began."""
    if transaction.batch is None:
        return
    for other in timeline.completed(transaction.action):
        if other.requested not in transaction.seen:
            body = _commit_of(transaction.store, other)
            if body is not None:
                refuse_other_query(body, other, transaction.batch)


def _conflict(transaction: Transaction, metadata: CommitMetadata, timeline: Timeline) -> Conflict | None:
    """Look for others who have completed since we began, and were in our way."""
    found = _footprints(transaction, metadata, timeline)
    if found is None:
        return None
    ours, others = found
    properties = transaction.properties
    rows_say_order = properties.merge_mode is MergeMode.EVENT_TIME_ORDERING and bool(
        properties.ordering_fields
    )
    keeps_keys = transaction.index.recorded is not None or bool(listed_indexes(properties))
    keeps_values = any(records.columns for records in transaction.listed)
    return find_conflict(
        ours,
        others,
        logs_commute=rows_say_order,
        keeps_keys=keeps_keys,
        keeps_values=keeps_values,
        room=transaction.room,
    )


def _footprints(
    transaction: Transaction, metadata: CommitMetadata, timeline: Timeline
) -> tuple[Footprint, Iterator[Other]] | None:
    """Say what we touched, and what those did who have completed since we began; None if there are no such."""
    unseen = [i for i in timeline.completed(*TRANSACTIONS) if i.requested not in transaction.seen]
    if not unseen:
        return None
    slot_of = transaction.index.slot_of_file
    others = (
        Other(
            f"{i.action} of {i.requested}",
            footprint_of(body, slot_of),
            is_earlier=i.requested < transaction.instant,
        )
        for i in unseen
        if (body := _commit_of(transaction.store, i)) is not None
    )
    return footprint_of(metadata, slot_of), others


def _refuse_stale_read(transaction: Transaction, metadata: CommitMetadata, timeline: Timeline) -> None:
    """Refuse rows that were computed from what others have changed since."""
    found = None if transaction.read is None else _footprints(transaction, metadata, timeline)
    if found is None or transaction.read is None:
        return
    other = find_stale_read(transaction.read, *found, transaction.index.slot_of_file)
    if other is not None:
        raise _overtaken(transaction, other)


def _commit_of(store: Store, instant: Instant) -> CommitMetadata | None:
    try:
        return read_commit_metadata(store, instant)
    except FileNotFoundError:
        return None  # taken back since the timeline was listed: it is in nobody's way any more


def _refuse_undone(transaction: Transaction, timeline: Timeline) -> None:
    """Refuse to build on what was taken back meanwhile, or on buckets that were changed."""
    for restore in timeline.completed(Action.RESTORE):
        if restore.requested not in transaction.seen:
            raise _overtaken(transaction, f"restore of {restore.requested}")
    for rollback in _rollbacks_of(transaction.store, timeline, transaction.seen):
        raise _overtaken(transaction, f"rollback of {rollback.requested}")
    for rollback in timeline.completed(Action.ROLLBACK):
        if rollback.requested > transaction.instant:
            try:
                undone = set(read_rollback_metadata(transaction.store, rollback).rolled_back)
            except FileNotFoundError:
                # Only the restore that it is a part of takes a rollback off the timeline.
                raise _overtaken(transaction, f"restore with the rollback of {rollback.requested}") from None
            if undone & transaction.seen:
                raise _overtaken(transaction, f"rollback of {', '.join(sorted(undone))}")
    _refuse_other_layout(transaction, timeline)


def _refuse_other_layout(transaction: Transaction, timeline: Timeline) -> None:
    version = transaction.layout_version
    if transaction.replaced != _moment(timeline):
        keepers = keepers_of(transaction.properties)
        version = "".join(keeper.version(transaction.store, timeline) for keeper in keepers)
    if version != transaction.layout_version:
        raise _overtaken(
            transaction,
            f"change of the bucket rules, from {transaction.layout_version or 'none'} to {version or 'none'},",
        )
    if _layout_of(transaction.properties, version) != _layout_of(load_properties(transaction.store), version):
        raise _overtaken(transaction, "change of hoodie.properties")


def _layout_of(properties: TableProperties, version: str) -> tuple[object, ...]:
    """What a write depends on and somebody may change: a metadata table, the version, the buckets.

    Beside rules the one count means nothing; it goes a moment after they have come.
    """
    return (
        properties.metadata_partitions,
        properties.raw.get(INDEX_BUILT),
        properties.raw.get(SECONDARY_BUILT),
        properties.table_version,
        properties.index_type,
        properties.engine,
        None if version else simple_count(properties),
        properties.hash_fields,
    )


def _under_way(other: Instant) -> ConcurrentWriteError:
    return ConcurrentWriteError(
        f"the {other.action} of {other.requested} is under way: its writer's heartbeat is fresh. "
        f"Wait for it to end; if its process is dead, it counts as such two minutes after its "
        f"last beat, and the next write rolls it back."
    )


def _overtaken(transaction: Transaction, other: str) -> CommitConflictError:
    return CommitConflictError(
        f"the {_word(transaction)} of {transaction.instant} cannot commit: the {other} came in between, and was "
        f"built on the same state of the table. Nothing of ours is visible. Run it again."
    )


def _word(transaction: Transaction) -> str:
    return transaction.operation.lower().replace("_", " ")
