"""One write as an instant: begun, and then completed or aborted.

    begin      recover what others left; heartbeat; T.requested; T.inflight; only then look at what there is to write on
    complete   the commit's body into T.inflight; a claim; T_C.<action>; markers and heartbeat away
    abort      data files, T.inflight, T.requested, heartbeat away: as if nothing had been

Readers see nothing of a write before the file T_C.<action>, and all of it after. Cut off before its claim, a write
is rolled back by the next; cut off after it, it is published by the next.

One writer at a time: a second one finds the first one's pending instant and its heartbeat when it begins, and the
first finds out when it commits if anybody has committed in spite of that.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace

from bucketlake.config import TableProperties, load_properties
from bucketlake.errors import CommitConflictError, ConcurrentWriteError, ConflictError
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
    read_rollback_metadata,
    write_inflight,
    write_requested,
)
from bucketlake.write.claims import Claim, Outcome, forget_old, list_claims, take
from bucketlake.write.heartbeat import (
    Heartbeat,
    is_alive,
    list_heartbeats,
    start_heartbeat,
    stop_heartbeat,
)
from bucketlake.write.markers import delete_data_files, delete_markers, marked_files
from bucketlake.write.recovery import (
    TRANSACTIONS,
    completed_time,
    is_settled,
    latest_time,
    publish_claimed,
    recover,
)
from bucketlake.write.state import Operation, action_of
from bucketlake.write.writable import check_writable

__all__ = [
    "Heartbeat",
    "Transaction",
    "abort",
    "begin",
    "check_writable",
    "complete",
    "refuse_live_writers",
]

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
    """The requested times of the writes it builds on; no other may complete before it does."""


def begin(
    store: Store,
    *,
    operation: Operation,
    check: Callable[[TableState], None] | None = None,
    clock: Clock | None = None,
) -> tuple[Transaction, TableState]:
    """Begin a write: return it, and the table as it is to be written on.

    `check` may refuse the table by raising, before anything is written to it. Raises `ConcurrentWriteError` while
    another write is under way. A `Heartbeat` must run from now until `complete` or `abort`: after two minutes
    without, others take the write for dead.
    """
    before = load_state(store)
    _check(before, check)
    properties = before.properties
    clock = clock or process_clock(properties.timeline_timezone)
    recovery = recover(store, properties, clock=clock)
    if recovery.alive:
        raise _under_way(recovery.alive[0])
    action = action_of(operation, properties.table_type)
    instant = _announce(store, properties, action, clock)
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
        _refuse_others(state, instant, clock)
    except BaseException:
        abort(begun)
        raise
    seen = {i.requested for i in state.timeline.completed()}
    # A compaction that was planned before may complete beside us: it leaves room for our log files.
    seen |= {i.requested for i in state.timeline.pending(Action.COMPACTION, Action.LOG_COMPACTION)}
    return replace(begun, properties=state.properties, seen=frozenset(seen)), state


def complete(transaction: Transaction, metadata: CommitMetadata, *, clock: Clock | None = None) -> str:
    """Commit a write; return its completion time.

    Raises `CommitConflictError` if another write was completed since this one began, or somebody has taken it for
    dead; then, as after any other error, call `abort`.
    """
    clock = clock or process_clock(transaction.properties.timeline_timezone)
    body = encode_commit_metadata(metadata, action=transaction.action)
    _store_body(transaction, body)
    claim = _claim_commit(transaction, clock)
    publish(
        transaction.store,
        transaction.properties,
        instant=claim.instant,
        action=claim.action,
        completed=claim.completed,
        body=body,
    )
    _tidy(transaction, claim)
    return claim.completed


def abort(transaction: Transaction) -> str | None:
    """Take a write back, so that nothing of it is left but its markers. May be called again if it fails.

    A later write deletes the markers, with what tasks that were still running have written meanwhile.

    If the commit had been decided, because `complete` failed after its claim, the write is published instead, and
    its completion time returned.
    """
    store, properties, instant = transaction.store, transaction.properties, transaction.instant
    completed = _decided(transaction)
    if completed is not None:
        _tidy(transaction, None)
        return completed
    delete_data_files(store, marked_files(store, instant) or (), instant=instant, keep_partitions=False)
    delete_pending(store, properties, instant=instant, action=transaction.action)
    stop_heartbeat(store, instant)
    return None


def _announce(store: Store, properties: TableProperties, action: Action, clock: Clock) -> str:
    """Choose an instant later than everything on the timeline, and put its heartbeat and requested file there."""
    body = encode_requested_replace() if action is Action.REPLACE_COMMIT else b""
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


def _refuse_others(state: TableState, instant: str, clock: Clock) -> None:
    """Refuse to write beside a write that is alive, or on a table that somebody is halfway through changing."""
    refuse_live_writers(state, but=instant, clock=clock)
    unfinished = (Action.CLUSTERING, Action.ROLLBACK, Action.RESTORE, Action.INDEXING, *TRANSACTIONS)
    for other in state.timeline.pending(*unfinished):
        if other.requested != instant:
            raise ConcurrentWriteError(
                f"the {other.action} of {other.requested} is pending, and rows may not be written beside it. Let the "
                f"engine that began it finish it or roll it back, then write again."
            )


def _store_body(transaction: Transaction, body: bytes) -> None:
    """Put the commit's body into the inflight file, from where others can publish it, unless the file is gone."""
    path = _inflight_path(transaction)
    try:
        version = transaction.store.stat(path).version
    except FileNotFoundError:
        raise _taken_for_dead(transaction) from None
    if not transaction.store.replace_if(path, body, version):
        raise _taken_for_dead(transaction)


def _claim_commit(transaction: Transaction, clock: Clock) -> Claim:
    store, properties = transaction.store, transaction.properties
    while True:
        claims = list_claims(store)
        if claims.rollback_of(transaction.instant) is not None:
            raise _taken_for_dead(transaction)
        newest = claims.newest
        timeline = load_timeline(store, properties)
        _refuse_conflicts(transaction, timeline)
        if newest is not None and not is_settled(store, properties, newest, timeline):
            raise _overtaken(transaction, f"{newest.action} of {newest.instant}")
        claim = Claim(
            number=claims.next_number,
            instant=transaction.instant,
            action=transaction.action,
            outcome=Outcome.COMMIT,
            completed=clock.next_instant(after=latest_time(timeline, claims)),
        )
        if take(store, claim):
            return claim


def _refuse_conflicts(transaction: Transaction, timeline: Timeline) -> None:
    pending = {i.requested for i in timeline.pending(transaction.action)}
    if transaction.instant not in pending:
        raise _taken_for_dead(transaction)
    for instant in timeline.completed(*TRANSACTIONS, Action.RESTORE):
        if instant.requested not in transaction.seen:
            raise _overtaken(transaction, f"{instant.action} of {instant.requested}")
    for rollback in timeline.completed(Action.ROLLBACK):
        if rollback.requested > transaction.instant:
            undone = set(read_rollback_metadata(transaction.store, rollback).rolled_back)
            if undone & transaction.seen:
                raise _overtaken(transaction, f"rollback of {', '.join(sorted(undone))}")
    ours, theirs = transaction.properties, load_properties(transaction.store)
    if _layout_of(ours) != _layout_of(theirs):
        raise _overtaken(transaction, "change of hoodie.properties")


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


def _decided(transaction: Transaction) -> str | None:
    """Return the completion time of a write whose commit was claimed, after seeing to it that it is published."""
    store, properties = transaction.store, transaction.properties
    claim = list_claims(store).newest
    if claim is not None and claim.instant == transaction.instant and claim.outcome is Outcome.COMMIT:
        publish_claimed(store, properties, claim)
    return completed_time(load_timeline(store, properties), transaction.instant)


def _tidy(transaction: Transaction, claim: Claim | None) -> None:
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
        f"the {other.action} of {other.requested} is under way: its writer's heartbeat is fresh. Two writers at once "
        f"are not supported yet. Wait for it to end; if its process is dead, it counts as such two minutes after its "
        f"last beat, and the next write rolls it back."
    )


def _taken_for_dead(transaction: Transaction) -> ConflictError:
    return CommitConflictError(
        f"the {_word(transaction)} of {transaction.instant} cannot commit: somebody has taken it for dead and "
        f"rolled it back. Nothing of it is visible. Run it again; if its process slept for minutes, find out why."
    )


def _overtaken(transaction: Transaction, other: str) -> ConflictError:
    return CommitConflictError(
        f"the {_word(transaction)} of {transaction.instant} cannot commit: the {other} came in between, and was "
        f"built on the same state of the table. Nothing of ours is visible. Run it again."
    )


def _word(transaction: Transaction) -> str:
    return transaction.operation.lower().replace("_", " ")
