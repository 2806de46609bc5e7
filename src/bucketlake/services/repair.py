"""Repair: what indexes say of keys and values, and what their rows are, brought together again.

    look      the whole record-level index is compared with the whole table, and so is every secondary index:
              `key_faults.py`, `value_faults.py`
    plan      what would be done, key by key; shown, and nothing changed
    run       the keys of the plan are looked at again, on the table as it is; what is still as the plan says is mended,
              by one commit: rows that are too many are deleted from their file groups, one log per shard says what was
              wrong. It is taken back as any commit is

A commit that only has index logs changes no data file. It is an upsert of no rows on the timeline.

Others may write meanwhile. Before it commits, under the table's lock, a repair looks whether anybody has written to a
file group, or recorded a key, that it is about; then it looks at the keys once more. Its commit names these file
groups, so that writers who began before it, and went by what the index said then, are run again. Nobody may be
clustering: a clustering that was planned before the repair and ends after it would record its keys under an older time.
Nor may Hudi be writing, which looks at nothing of this.

Beside the commit, shards are removed that nobody has: a rollback of Hudi's leaves them, and its next write to the
partition fails. They are no part of the table, so taking the repair back does not bring them again.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from random import Random
from time import sleep

import pyarrow as pa

from bucketlake.commit.claims import Claims
from bucketlake.commit.completion import Said, complete
from bucketlake.commit.locks import table_lock
from bucketlake.commit.metadata_build import hudis_writes
from bucketlake.commit.operation import TRANSACTIONS, Operation
from bucketlake.commit.transaction import Heartbeat, Transaction, abort, begin, say_commit
from bucketlake.commit.writable import check_writable
from bucketlake.errors import CommitConflictError, ConcurrentWriteError, ConfigError, CorruptTableError
from bucketlake.index import ENTRIES, RecordedIndex
from bucketlake.index.fingerprint import writing_index
from bucketlake.index.listed import KeyRecords, RowsChanged, resolve_listed
from bucketlake.index.secondary import SecondaryIndex
from bucketlake.layout import FileGroupId
from bucketlake.logfile import LogFormat
from bucketlake.metadata.change import CONCERNED_KEY, IndexFile, render_concerned
from bucketlake.schema import RECORD_KEY_COLUMN
from bucketlake.services.index_proof import record_entries
from bucketlake.services.key_faults import (
    Columns,
    Fault,
    KeyFault,
    faults_of,
    look_for_faults,
    slices_by_group,
)
from bucketlake.services.tasks import Tasks, here
from bucketlake.services.value_faults import (
    ValueFault,
    ValueFaultKind,
    entries_to_mend,
    look_for_value_faults,
    value_faults_of,
)
from bucketlake.state import TableState, files_of, load_state, table_schema
from bucketlake.storage import Store, in_parallel
from bucketlake.timeline import Action, Timeline
from bucketlake.write.report import commit_metadata, received_sum
from bucketlake.write.state import WriteState, asked_columns, plan_write
from bucketlake.write.stored_rows import read_stored
from bucketlake.write.task import GroupWritten, delete_keys

ATTEMPTS = 6
"""How often keys are looked at again if others keep being faster."""
EXAMPLES = 3
MENDS_MAX = 1_000_000
"""So many keys are mended at once; where more are wrong, an index is better built anew."""

_DONE = {
    Fault.MISSING: "record it",
    Fault.WRONG: "correct it",
    Fault.SURPLUS: "remove it",
    Fault.DUPLICATE: "delete the others",
}
_DONE_OF_VALUES = {ValueFaultKind.MISSING: "record it", ValueFaultKind.SURPLUS: "remove it"}
_LOOKS = 3
_chance = Random(os.getpid())
_log = logging.getLogger("bucketlake.services")


@dataclass(frozen=True, slots=True, kw_only=True)
class Repair:
    """What is wrong with the keys of a table, and would be mended; prints as a list."""

    table: str
    index: str
    rows: int
    entries: int
    """How many rows and entries were compared."""
    mends: tuple[KeyFault, ...]
    values: tuple[ValueFault, ...] = ()
    """Entries of secondary indexes."""
    left: tuple[KeyFault, ...] = ()
    """Keys with several rows, beside buckets: which of them are meant, the index does not tell."""
    more: int = 0
    """Keys, and entries of values, beyond those that are mended at once."""
    debris: Mapping[str, tuple[str, ...]]
    """Partition -> files of shards that were taken back by halves."""
    ordering: tuple[str, ...] = ()
    """The columns by which rows of one key are compared; none: by when they were written."""

    @property
    def is_empty(self) -> bool:
        return not (self.mends or self.values or self.debris)

    @property
    def counts(self) -> Mapping[Fault, int]:
        """How many keys are mended, by what is wrong with them."""
        return {kind: sum(one.kind is kind for one in self.mends) for kind in Fault}

    @property
    def value_counts(self) -> Mapping[ValueFaultKind, int]:
        """The same of entries of secondary indexes."""
        return count_values(self.values)

    def __str__(self) -> str:
        seen = f"{self.rows:,} rows and {self.entries:,} entries were compared"
        if self.is_empty and not self.left:
            return f"nothing to repair in the {self.index} of {self.table}: {seen}"
        lines = [f"repair the {self.index} of {self.table}; {seen}:"]
        for kind, count in self.counts.items():
            if count:
                lines.append(f"  {_keys(count)} {kind}: {_DONE[kind]}")
                lines += _examples([one for one in self.mends if one.kind is kind])
            if count and kind is Fault.DUPLICATE:
                first = f"with the greatest {', '.join(self.ordering)}; of equals " if self.ordering else ""
                lines.append(
                    f"    of the rows the one stays {first}of the newest commit; then the one that the index names; "
                    f"then the first by partition and file group"
                )
        for value_kind, count in self.value_counts.items():
            if count:
                lines.append(f"  {_values(count)} {value_kind}: {_DONE_OF_VALUES[value_kind]}")
                lines += _examples([one for one in self.values if one.kind is value_kind])
        if self.more:
            lines.append(
                f"  {_keys(self.more)} more are left for another repair; to build it anew may be quicker"
            )
        if self.left:
            lines.append(
                f"  {_keys(len(self.left))} with several rows are left alone: buckets place them, and the index has "
                f"one place for a key. Delete all but one, or make the index one for each partition"
            )
            lines += _examples(self.left)
        for partition, files in sorted(self.debris.items()):
            lines.append(
                f"  remove {len(files):,} empty files of shards of the partition {partition!r}, which a rollback left"
            )
        groups = len({place for one in self.mends for place in one.goes})
        if self.mends or self.values:
            rewritten = (
                f", and rows of {groups:,} file groups deleted" if groups else "; no data file changes"
            )
            lines.append(f"  one commit, with one index log per shard{rewritten}. rollback takes it back")
        return "\n".join(lines)


def _keys(count: int) -> str:
    return f"{count:,} key{'' if count == 1 else 's'}"


def _values(count: int) -> str:
    return f"{count:,} value{'' if count == 1 else 's'} of a secondary index"


def count_values(faults: Sequence[ValueFault]) -> Mapping[ValueFaultKind, int]:
    """Return how many there are of each kind."""
    return {kind: sum(one.kind is kind for one in faults) for kind in ValueFaultKind}


def _examples(faults: Sequence[KeyFault] | Sequence[ValueFault]) -> list[str]:
    more = [f"    and {len(faults) - EXAMPLES:,} more"] if len(faults) > EXAMPLES else []
    return [*(f"    {one}" for one in faults[:EXAMPLES]), *more]


@dataclass(frozen=True, slots=True, kw_only=True)
class Repaired:
    """What a repair did; prints as a few lines."""

    table: str
    instant: str | None = None
    """Of its commit; None if there was none."""
    completed: str | None = None
    mends: tuple[KeyFault, ...] = ()
    values: tuple[ValueFault, ...] = ()
    passed_over: int = 0
    """Keys and values of the plan that are right by now, or wrong in another way."""
    removed: tuple[str, ...] = ()
    """Files of shards that nobody had."""

    @property
    def counts(self) -> Mapping[Fault, int]:
        return {kind: sum(one.kind is kind for one in self.mends) for kind in Fault}

    @property
    def value_counts(self) -> Mapping[ValueFaultKind, int]:
        return count_values(self.values)

    def __str__(self) -> str:
        said = [f"{_keys(count)} {kind}" for kind, count in self.counts.items() if count]
        said += [f"{_values(count)} {kind}" for kind, count in self.value_counts.items() if count]
        lines = []
        if self.instant is not None:
            lines.append(f"repaired {self.table} by the commit of {self.instant}: {', '.join(said)}")
        if self.passed_over:
            lines.append(f"{_keys(self.passed_over)} passed over: others have changed them since. Plan again")
        if self.removed:
            lines.append(f"removed {len(self.removed):,} files of shards that a rollback left")
        return "\n".join(lines) or f"nothing to repair in {self.table}"


def repairable_index(state: TableState) -> RecordedIndex:
    """Return the index that a repair is about; an error names what else helps, if it does not."""
    check_writable(state)
    own = writing_index(state).recorded
    listed = (records.recorded for records in resolve_listed(state))
    index = next((one for one in (own, *listed) if one is not None), None)
    uri = state.store.uri
    if index is None:
        raise ConfigError(
            f"{uri} has no index that records keys, so there is nothing to repair. To check a table with buckets, run "
            f"`bucketlake fsck {uri}`. To mend hoodie.properties, run `bucketlake fsck --repair {uri}`."
        )
    if not index.is_kept:
        raise _beyond_repair(index, uri, "not told of every write")
    return index


def _beyond_repair(index: RecordedIndex, uri: str, found: str) -> CorruptTableError:
    return CorruptTableError(
        path=uri,
        found=f"a {index} that cannot be relied on: {found}",
        expected="one that is in step with the table, and whole",
        remedy=f"It is beyond repair. Build it anew: `bucketlake metadata rebuild {uri}`, or table.metadata.rebuild().",
    )


def _sound_index(store: Store) -> tuple[TableState, RecordedIndex]:
    """Return a table and its index, if that is whole. What seems wrong may be going on just now: so look again."""
    fault = None
    for _ in range(_LOOKS):
        state = load_state(store)
        index = repairable_index(state)
        fault = index.fault
        if fault is None:
            return state, index
    raise _beyond_repair(index, store.uri, fault or "")


def plan_repair(store: Store, *, tasks: Tasks = here) -> Repair:
    """Compare whole indexes with the whole table, and say what would be mended. Reads every key and indexed value."""
    state, index = _sound_index(store)
    found = look_for_faults(state, index, tasks=tasks)
    values = look_for_value_faults(state, index, tasks=tasks)
    is_placed = writing_index(state).recorded is None
    left = tuple(fault for fault in found.faults if is_placed and fault.goes)
    mends = [fault for fault in found.faults if not (is_placed and fault.goes)]
    rules = Columns.of(state).rules
    return Repair(
        table=store.uri,
        index=str(index),
        rows=found.rows,
        entries=found.entries + values.entries,
        mends=tuple(mends[:MENDS_MAX]),
        values=values.faults[:MENDS_MAX],
        left=left,
        more=max(0, len(mends) - MENDS_MAX) + max(0, len(values.faults) - MENDS_MAX),
        debris=_debris(index, found.partitions),
        ordering=() if rules.by_commit_time else tuple(rules.ordering_fields),
    )


def _debris(index: RecordedIndex, partitions: frozenset[str]) -> dict[str, tuple[str, ...]]:
    """Find shards that an instant has begun which is no more, of partitions without rows."""
    return {
        partition: files
        for partition, files in sorted(index.left_behind().items())
        if partition not in partitions
    }


def run_repair(work: Repair, store: Store, *, tasks: Tasks = here) -> Repaired:
    """Mend what is still as the plan says.

    Raises `CommitConflictError` if nothing of it is, or others keep writing to the same keys.
    """
    removed = _remove_debris(store, work) if work.debris else ()
    if not (work.mends or work.values):
        return Repaired(table=store.uri, removed=removed)
    for left in reversed(range(ATTEMPTS)):
        try:
            return replace(_run_once(store, work, tasks), removed=removed)
        except _NothingLeft as nothing:
            raise CommitConflictError(str(nothing)) from None
        except CommitConflictError as conflict:
            if not left:
                raise
            _log.info("%s", conflict)
            sleep(_chance.uniform(0.0, 0.1 * 2 ** (ATTEMPTS - left)))
    raise AssertionError("the last attempt returns or raises")


class _NothingLeft(Exception):  # noqa: N818 # it is for the caller above only
    """None of the keys is as the plan says."""


def _remove_debris(store: Store, work: Repair) -> tuple[str, ...]:
    """Delete those of the files that are still nobody's, under the lock: a writer may have begun with the partition."""
    with table_lock(store):
        state = load_state(store)
        partitions = frozenset(p for p, files in files_of(state).items() if files)
        now = _debris(repairable_index(state), partitions)
        files = tuple(
            path
            for partition, planned in sorted(work.debris.items())
            for path in planned
            if path in now.get(partition, ())
        )
        in_parallel(store.delete, files, store)
    return files


def _run_once(store: Store, work: Repair, tasks: Tasks) -> Repaired:
    operation = Operation.DELETE if any(one.goes for one in work.mends) else Operation.UPSERT

    def check(state: TableState) -> None:
        repairable_index(state)
        _refuse_clusterings(state.timeline)

    transaction, state = begin(store, operation=operation, index_of=writing_index, check=check)
    with _aborted_on_failure(transaction), Heartbeat(transaction):
        index = _index_of(transaction)
        now = faults_of(state, index, {one.identity: one.places for one in work.mends}, tasks=tasks)
        planned = set(work.mends)
        mends = tuple(fault for fault in now if fault in planned)
        planned_values = {one.name for one in work.values}
        values_now = value_faults_of(state, index, work.values, tasks=tasks)
        values = tuple(fault for fault in values_now if fault.name in planned_values)
        if not (mends or values):
            raise _NothingLeft(
                f"{store.uri} has moved on since this was planned: its keys are right by now, or wrong in another way. "
                f"Nothing was changed. Plan again."
            )
        written, removed = _delete_rows(transaction, state, mends, tasks)
        recorded = _record(state, index, mends, values, transaction.instant)
        recorded += _record_values(transaction, state, mends, removed, values)
        places = {place for fault in mends for place in fault.places}
        places |= {fault.place for fault in values if fault.place is not None}
        completed = _commit(transaction, state, index, frozenset(places), written, recorded)
    return Repaired(
        table=store.uri,
        instant=transaction.instant,
        completed=completed,
        mends=mends,
        values=values,
        passed_over=len(work.mends) + len(work.values) - len(mends) - len(values),
    )


def _index_of(transaction: Transaction) -> RecordedIndex:
    """Return the index as the transaction sees it: what it is overtaken by is found by that."""
    own = transaction.index.recorded
    listed = (records.recorded for records in transaction.listed)
    index = next((one for one in (own, *listed) if one is not None), None)
    assert index is not None, "checked when it began"
    return index


@contextmanager
def _aborted_on_failure(transaction: Transaction) -> Iterator[None]:
    try:
        yield
    except BaseException:
        abort(transaction)
        raise


@dataclass(frozen=True, slots=True)
class DeleteTask:
    """Keys to delete from one file group. Frozen and picklable."""

    state: WriteState
    place: FileGroupId
    keys: pa.Array


def delete_rows(task: DeleteTask) -> tuple[tuple[GroupWritten, ...], RowsChanged]:
    """Delete keys from a file group, whatever the index says of them; say which rows went."""
    return delete_keys(task.place, task.keys, task.state)


def _delete_rows(
    transaction: Transaction, state: TableState, mends: Sequence[KeyFault], tasks: Tasks
) -> tuple[list[GroupWritten], list[RowsChanged]]:
    going: dict[FileGroupId, list[str]] = {}
    for fault in mends:
        for place in fault.goes:
            going.setdefault(place, []).append(fault.key)
    if not going:
        return [], []
    plan = plan_write(
        state,
        transaction.index,
        files_of(state, {partition for partition, _ in going}),
        instant=transaction.instant,
        operation=transaction.operation,
        schema=table_schema(state),
        cores=1,
        log_format=LogFormat.PARQUET,
    )
    work = [
        DeleteTask(plan, place, pa.array(sorted(keys), pa.string())) for place, keys in sorted(going.items())
    ]
    done = tasks(delete_rows, work)
    return [group for groups, _ in done for group in groups], [changed for _, changed in done]


def _record(
    state: TableState,
    index: RecordedIndex,
    mends: Sequence[KeyFault],
    values: Sequence[ValueFault],
    instant: str,
) -> list[IndexFile]:
    """Put a log per shard, with what was wrong of its keys.

    A key that is nowhere, and has an entry of a value, is said to be nowhere: a writer who is bringing it meanwhile
    finds by that that it was overtaken.
    """
    entries: list[tuple[str, str, str | None]] = []
    for fault in mends:
        if fault.stays is not None and fault.stays != fault.entry:
            entries.append((fault.key, *fault.stays))
        elif fault.stays is None:
            assert fault.entry is not None, "neither row nor entry"
            entries.append((fault.key, fault.partition or fault.entry[0], None))
    said = {key for key, _, _ in entries}
    nowhere = {fault.key for fault in values if fault.place is None}
    entries += [(key, "", None) for key in sorted(nowhere - said)]
    if not entries:
        return []
    columns = zip(*entries, strict=True)
    arrays = [pa.array(column, pa.string()) for column in columns]
    return record_entries(state, index, pa.Table.from_arrays(arrays, schema=ENTRIES), instant)


def _record_values(
    transaction: Transaction,
    state: TableState,
    mends: Sequence[KeyFault],
    removed: Sequence[RowsChanged],
    values: Sequence[ValueFault],
) -> list[IndexFile]:
    """Put what indexes of values are to have of rows that went, and what was wrong in them.

    The row of a key that stays may have the same value as one that goes: it comes again. What a row that goes lacks is
    not recorded.
    """
    told = [records for records in transaction.listed if records.columns]
    changes = _changes_of_values(state, told, mends, removed) if told and removed else []
    doubled = {fault.key for fault in mends if fault.goes}
    recorded: list[IndexFile] = []
    for records in told:
        parts = [records.told(changed) for changed in changes]
        if isinstance(records, SecondaryIndex):
            mine = [
                fault
                for fault in values
                if fault.index == records.definition.name and (fault.is_there or fault.key not in doubled)
            ]
            parts.append(entries_to_mend(mine))
        entries = pa.Table.from_batches(parts, ENTRIES)
        if entries.num_rows:
            recorded += record_entries(state, records, entries, transaction.instant)
    return recorded


def _changes_of_values(
    state: TableState,
    told: Sequence[KeyRecords],
    mends: Sequence[KeyFault],
    removed: Sequence[RowsChanged],
) -> list[RowsChanged]:
    """Return the rows that went, and those of the same keys that stay."""
    staying: dict[FileGroupId, list[str]] = {}
    for fault in mends:
        if fault.goes and fault.stays is not None:
            staying.setdefault(fault.stays, []).append(fault.key)
    asked, columns = asked_columns(told), Columns.of(state)
    changes = list(removed)
    slices = slices_by_group(state, {partition for partition, _ in staying})
    for (partition, file_id), keys in sorted(staying.items()):
        part = slices.get((partition, file_id))
        if part is not None:
            wanted = pa.array(keys, pa.string())
            stored = read_stored(
                state.store,
                part,
                columns.rules,
                table_schema=columns.file_schema,
                columns=asked,
                keys=wanted,
            )
            rows = stored.merged([RECORD_KEY_COLUMN, *asked])
            none = wanted.slice(0, 0)
            changes.append(RowsChanged(partition, file_id, came=none, went=none, after=rows))
    return changes


def _commit(
    transaction: Transaction,
    state: TableState,
    index: RecordedIndex,
    places: frozenset[FileGroupId],
    written: Sequence[GroupWritten],
    recorded: Sequence[IndexFile],
) -> str:
    metadata = commit_metadata(
        written,
        operation=transaction.operation,
        schema=table_schema(state),
        table=state.properties.name,
        sent=received_sum(written),
        replaced={},
        recorded=recorded,
    )
    metadata = replace(metadata, extra={**metadata.extra, CONCERNED_KEY: render_concerned(places)})
    # Where a key has one place in its partition, writers do not compare which keys they record.
    is_apart = transaction.index.recorded is None and not index.is_global

    def say(claims: Claims, timeline: Timeline) -> Said:
        _refuse_clusterings(timeline)
        _refuse_hudi(transaction.store, timeline)
        if is_apart:
            _refuse_others(transaction, timeline)
        return say_commit(transaction, metadata, claims, timeline)

    try:
        return complete(transaction, say)
    except Exception:
        decided = abort(transaction)
        if decided is None:
            raise
        return decided  # the decision had fallen, and was carried out


def _refuse_clusterings(timeline: Timeline) -> None:
    for one in timeline.pending(Action.CLUSTERING):
        raise ConcurrentWriteError(
            f"the {one.action} of {one.requested} is pending, and would record keys under an older time than a repair. "
            f"Run it or take it back, then repair."
        )


def _refuse_hudi(store: Store, timeline: Timeline) -> None:
    for one in hudis_writes(store, timeline):
        raise ConcurrentWriteError(
            f"{store.uri} is not repaired while the {one.action} of {one.requested} is pending: it is not ours, and "
            f"would go by what the index said before. Try again when it is done."
        )


def _refuse_others(transaction: Transaction, timeline: Timeline) -> None:
    """Refuse to commit if others have written since it began, or write under an earlier time."""
    for other in (*timeline.pending(*TRANSACTIONS), *timeline.writes):
        if other.is_completed and other.requested not in transaction.seen:
            raise _overtaken(transaction, f"{other.action} of {other.requested}")
        if not other.is_completed and other.requested < transaction.instant:
            raise _overtaken(transaction, f"{other.action} of {other.requested}, which is under way,")


def _overtaken(transaction: Transaction, other: str) -> CommitConflictError:
    return CommitConflictError(
        f"the repair of {transaction.instant} cannot commit: the {other} came in between. Nothing of it is visible. "
        f"Run it again."
    )
