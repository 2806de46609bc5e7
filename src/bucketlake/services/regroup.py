"""The rows of some file groups into others, sorted: the work of a clustering, whatever it is for.

    Regroup         which file groups give way, how the ids of those that come begin, and who of them gets a row
    keep_buckets    the one that moves no key: every bucket gets a new file group for its old one
    join_groups     the one for tables that look keys up: any row may be in any file group of its partition
    regroup         a task: merge, divide, sort, write, prove

Who splits or merges buckets puts a function beside `keep_buckets`; its index is the one that holds after the change.
All that follows is the same.

A task holds rows up to its budget, and the rows of one new file group at least. What is more is left for another pass
over the old ones: each pass writes as many of the new groups as there is room for.

A file says in its footer what it was made of. So a task that was cut off is gone on with, and one whose old groups
were written to meanwhile is done again, over the files of the first time.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bucketlake.basefile import BaseFileWriter, FileFacts, read_base_file, read_footer
from bucketlake.basefile.footer import NO_ROWS
from bucketlake.errors import CommitConflictError, CorruptTableError, ProofError
from bucketlake.index import PlacedIndex, RecordedIndex
from bucketlake.layout import FileSlice, TimelineView, parse_data_file
from bucketlake.layout.file_slice import LogFile
from bucketlake.layout.names import (
    WRITE_TOKEN,
    BaseFileName,
    path_in_partition,
    render_base_file_name,
    split_path,
)
from bucketlake.logfile import read_log_files
from bucketlake.merge import MergeRules, merge_slice
from bucketlake.schema import RECORD_KEY_COLUMN, bytes_of, key_hashes, named_in
from bucketlake.services.compaction import put_base_file
from bucketlake.storage import Spill, Store
from bucketlake.timeline import ClusteringGroup, ClusteringSlice, WriteStat

SORTED_KEY = "bucketlake.sorted_by"
"""Where a base file's footer keeps the columns that its rows are sorted by."""

ORIGIN_KEY = "bucketlake.regrouped"
"""Where a base file's footer says which files its rows are from, and how many rows those had for all new groups."""

_OWNER = "_bucketlake_owner"
_BATCH_ROWS = 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Regroup:
    """File groups of a partition whose rows go into others: all of them, and nobody else's."""

    partition: str
    slices: tuple[ClusteringSlice, ...]
    """What gives way."""
    slots: tuple[str, ...]
    """Of the new file groups."""
    index: PlacedIndex
    """Says by its key which of them a row goes to."""


def keep_buckets(slices: Iterable[ClusteringSlice], index: PlacedIndex) -> tuple[Regroup, ...]:
    """Give every file group a new one of the same bucket."""
    owners: dict[tuple[str, str], Regroup] = {}
    for part in slices:
        slot = index.slot_of_file(part.partition, part.file_id)
        if slot is None or (part.partition, slot) in owners:
            raise CorruptTableError(
                path=part.partition or ".",
                found=f"the file group {part.file_id}, "
                + ("which is no bucket" if slot is None else f"a second one of bucket {slot}"),
                expected=f"one file group per bucket, of {index}",
                remedy="`bucketlake fsck` tells what is in it. Cluster other partitions meanwhile.",
            )
        owners[part.partition, slot] = Regroup(
            partition=part.partition, slices=(part,), slots=(slot,), index=index
        )
    return tuple(owners.values())


@dataclass(frozen=True, slots=True)
class Anywhere(PlacedIndex):
    """Spreads keys over some new file groups, evenly: where an index records where they are, any is as good."""

    slots: tuple[str, ...]
    hash_fields: tuple[str, ...] = ()

    def __str__(self) -> str:
        return "any file group"

    def slot_of_file(self, partition: str, file_id: str) -> str | None:  # noqa: ARG002 # the protocol's
        return None

    def slot_of(self, partition: str, pieces: Any) -> str | None:  # noqa: ARG002 # the protocol's
        return None

    def locate(self, partition: str, record_keys: Any) -> Any:  # noqa: ARG002 # the protocol's
        numbers = (key_hashes(record_keys) % np.uint64(len(self.slots))).astype(np.int32)
        return pa.DictionaryArray.from_arrays(numbers, pa.array(self.slots, pa.string()))


def join_groups(
    groups: Iterable[ClusteringGroup], index: RecordedIndex, *, instant: str
) -> tuple[Regroup, ...]:
    """Give the file groups that a plan names together as many new ones as it says; the same ids every time.

    One that is alone, and whose place only one may take, gets that one.
    """
    found = []
    for number, group in enumerate(groups):
        partition = group.slices[0].partition
        names = (f"{instant}/{partition}/{number}/{output}" for output in range(max(1, group.outputs)))
        slots = tuple(f"{zlib.crc32(name.encode()):08x}" for name in names)
        if len(group.slices) == len(slots) == 1:
            heir = index.heir_slot(partition, group.slices[0].file_id)
            slots = slots if heir is None else (heir,)
        found.append(Regroup(partition=partition, slices=group.slices, slots=slots, index=Anywhere(slots)))
    return tuple(found)


@dataclass(frozen=True, slots=True, kw_only=True)
class RegroupTask:
    """One `Regroup` to do: all that a task is told. Frozen and picklable."""

    store: Store
    instant: str
    work: Regroup
    by: tuple[str, ...]
    """The columns to sort by."""
    rules: MergeRules
    schema: pa.Schema
    """The table's columns, meta columns included."""
    avro_schema: str
    row_group_bytes: int
    size_bytes: int
    """Of the files that are read."""
    whole: frozenset[str] = frozenset()
    """Those of the files that a commit says are whole."""
    blocks_of: TimelineView | None = None
    """Which log blocks are committed, where the names of their files do not tell."""
    budget_bytes: int | None = None
    """Rows to hold at a time, in bytes of Arrow's; those of one new group are held at least. None: all of them."""
    stale: Mapping[str, str] = field(default_factory=dict)
    """Path -> version of files that an earlier attempt left: replaced, unless they are from the same files."""
    is_repeat: bool = False
    """Whether somebody was at it before. Then a group without rows gets a file too: a late task of the first attempt
    could still put one there."""

    def file_id(self, slot: str) -> str:
        return self.work.index.new_file_id(self.work.partition, slot, instant=self.instant)

    def path(self, slot: str) -> str:
        """Where the base file of a new group goes."""
        name = render_base_file_name(BaseFileName(self.file_id(slot), WRITE_TOKEN, self.instant))
        return path_in_partition(self.work.partition, name)

    @property
    def paths(self) -> tuple[str, ...]:
        return tuple(self.path(slot) for slot in self.work.slots)

    @property
    def origin(self) -> str:
        """Stands for the files that are read, and the groups they go to: the same for every attempt at the same."""
        parts = [
            [base_path(part), *log_paths(part)]
            for part in sorted(self.work.slices, key=lambda part: part.file_id)
        ]
        text = json.dumps([self.work.partition, self.work.slots, parts])
        return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Regrouped:
    """What a task did."""

    stats: tuple[WriteStat, ...]
    """Of the new file groups that have rows; the others are not made, unless it is a repeat."""
    rows: int
    key_hash_sum: int
    versions: Mapping[str, str] = field(default_factory=dict)
    """Path -> version of the files."""


def regroup(task: RegroupTask) -> Regrouped:
    """Write the rows of some file groups into new ones. Rows keep the commit they are of; deleted ones go.

    Files of an earlier attempt that are from the same files, and whole, stay as they are.
    """
    kept = _kept(task) if task.is_repeat else None
    if kept is not None:
        return kept
    slots = task.work.slots
    stats: list[WriteStat] = []
    read, written, first = NO_ROWS, NO_ROWS, 0
    while first < len(slots):
        held = _hold(task, first)
        read = held.read if first == 0 else read
        for stat, facts in _write_held(task, held, first, read):
            stats.append(stat)
            written += facts
        first = held.end
        del held  # before the next are read
    if written != read:
        raise ProofError(
            f"{task.work.partition or 'the table'}: {read.rows} rows with the key sum {read.key_hash_sum} were read, "
            f"and {written.rows} with {written.key_hash_sum} written. Nothing was committed; this is a bug, please "
            f"report it."
        )
    return _regrouped(task, stats, written)


def _write_held(
    task: RegroupTask, held: _Held, first: int, read: FileFacts
) -> Iterator[tuple[WriteStat, FileFacts]]:
    order, start = _order(held.rows, held.owners, task.by), 0
    for number in range(first, held.end):
        count = int((held.owners == number).sum())
        if count or task.is_repeat:
            yield _write(task, task.work.slots[number], held.rows, order.slice(start, count), read)
        start += count


def _regrouped(task: RegroupTask, stats: Sequence[WriteStat], written: FileFacts) -> Regrouped:
    try:
        versions = {stat.path: task.store.stat(stat.path).version for stat in stats}
    except FileNotFoundError as gone:
        raise CommitConflictError(
            f"what was written of {task.instant} is gone: somebody has taken it for dead and rolled it back ({gone}). "
            f"Nothing of it is visible. Run it again."
        ) from gone
    return Regrouped(tuple(stats), written.rows, written.key_hash_sum, versions)


def _kept(task: RegroupTask) -> Regrouped | None:
    """Return what an earlier attempt at the same did, if the footers of its files prove that it is whole.

    Groups that it left without a file, because they have no rows, get one now.
    """
    found: dict[str, FileFacts] = {}
    total: FileFacts | None = None
    for slot, path in zip(task.work.slots, task.paths, strict=True):
        try:
            footer = read_footer(task.store, path).metadata
        except FileNotFoundError:
            continue
        origin = json.loads(footer.get(ORIGIN_KEY, "{}"))
        if origin.get("from") != task.origin:
            return None
        found[slot] = FileFacts.of_footer(footer, path=path)
        total = FileFacts(
            rows=origin["rows"], key_hash_sum=origin["key_hash_sum"], min_key=None, max_key=None
        )
    written = sum(found.values(), start=NO_ROWS)
    if total is None or (written.rows, written.key_hash_sum) != (total.rows, total.key_hash_sum):
        return None
    stats = []
    for slot in task.work.slots:
        if slot in found:
            size_bytes = task.store.stat(task.path(slot)).size_bytes
            stats.append(_stat(task, slot, found[slot], size_bytes))
        else:
            nothing = pa.array([], pa.uint64())
            stats.append(_write(task, slot, task.schema.empty_table(), nothing, total)[0])
    return _regrouped(task, stats, written)


@dataclass(frozen=True, slots=True)
class _Held:
    """Rows of some of the new groups."""

    rows: pa.Table
    owners: np.ndarray[tuple[int], np.dtype[np.int32]]
    """The number of the new group of every row."""
    end: int
    """The first group that there was no room for."""
    read: FileFacts
    """What was read, for all groups, if it was the first pass."""


def _hold(task: RegroupTask, first: int) -> _Held:
    """Read the rows of the new groups from `first` on, as many groups as the budget allows."""
    end, size, read = len(task.work.slots), 0, NO_ROWS
    rows: list[pa.RecordBatch] = []
    owners: list[np.ndarray[tuple[int], np.dtype[np.int32]]] = []
    for batch in _merged(task):
        if first == 0:
            read += FileFacts.of_keys(batch.column(RECORD_KEY_COLUMN))
        of_batch = _owners(task, batch.column(RECORD_KEY_COLUMN))
        rows.append(batch)
        owners.append(of_batch)
        rows[-1:], owners[-1:] = _within(rows[-1:], owners[-1:], first, end)
        size += sum(map(bytes_of, rows[-1:]))
        while task.budget_bytes is not None and size > task.budget_bytes and end - first > 1:
            end = first + (end - first) // 2
            rows, owners = _within(rows, owners, first, end)
            size = sum(map(bytes_of, rows))
    held = pa.Table.from_batches(rows, task.schema).combine_chunks()
    return _Held(held, np.concatenate([np.empty(0, np.int32), *owners]), end, read)


def _within(
    rows: Sequence[pa.RecordBatch],
    owners: Sequence[np.ndarray[tuple[int], np.dtype[np.int32]]],
    first: int,
    end: int,
) -> tuple[list[pa.RecordBatch], list[np.ndarray[tuple[int], np.dtype[np.int32]]]]:
    """Keep the rows of the groups from `first` up to `end`."""
    kept = [(part >= first) & (part < end) for part in owners]
    return (
        [part if here.all() else part.filter(pa.array(here)) for part, here in zip(rows, kept, strict=True)],
        [part[here] for part, here in zip(owners, kept, strict=True)],
    )


def named(part: FileSlice) -> ClusteringSlice:
    """Name the files of a slice, as a plan does."""
    return ClusteringSlice(
        partition=part.partition,
        file_id=part.file_id,
        base_file=split_path(part.base_file.path)[1] if part.base_file else None,
        log_files=tuple(split_path(log.path)[1] for log in part.log_files),
    )


def base_path(part: ClusteringSlice) -> str | None:
    return _path(part, part.base_file) if part.base_file else None


def log_paths(part: ClusteringSlice) -> tuple[str, ...]:
    """The logs of a slice in the order in which they apply; Hudi's plans have them the other way round."""
    logs = [parse_data_file(_path(part, log), size_bytes=0) for log in part.log_files]
    return tuple(
        log.path for log in sorted((f for f in logs if isinstance(f, LogFile)), key=lambda log: log.order)
    )


def _path(part: ClusteringSlice, file: str) -> str:
    # A plan gives whole paths, of where the table was when it was made: the last part is the name.
    return path_in_partition(part.partition, split_path(file)[1])


def _merged(task: RegroupTask) -> Iterator[pa.RecordBatch]:
    for part in task.work.slices:
        base = base_path(part)
        logs = read_log_files(
            task.store,
            list(log_paths(part)),
            task.schema,
            ordering_fields=task.rules.ordering_fields,
            table_schema=task.schema,
            is_committed=task.blocks_of.is_committed if task.blocks_of else None,
            whole=task.whole,
        )
        batches = read_base_file(task.store, base, task.schema) if base is not None else ()
        yield from merge_slice(batches, list(logs), task.rules, task.schema)


def _owners(task: RegroupTask, keys: pa.Array) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
    """Return the number of the new file group of every key."""
    located = task.work.index.locate(task.work.partition, keys)
    of_slot = pc.index_in(located.dictionary, value_set=pa.array(task.work.slots, pa.string()))
    owners = of_slot.take(located.indices)
    if owners.null_count:
        stray = keys[pc.index(owners.is_null(), True).as_py()].as_py()
        raise CorruptTableError(
            path=path_in_partition(task.work.partition, task.work.slices[0].file_id),
            found=f"the key {stray!r}",
            expected=f"keys of the file groups {', '.join(task.work.slots)}, by {task.work.index}",
            remedy="The key may be in its own bucket too: `bucketlake fsck` tells. Read the partition, and write it "
            "anew with overwrite.",
        )
    numbers: np.ndarray[tuple[int], np.dtype[np.int32]] = owners.to_numpy(zero_copy_only=False)
    return numbers


def _order(rows: pa.Table, owners: np.ndarray[tuple[int], np.dtype[np.int32]], by: Sequence[str]) -> pa.Array:
    """Return the rows' positions, group after group: nulls last, and by their keys where all else is equal."""
    names = list(dict.fromkeys([*by, RECORD_KEY_COLUMN]))
    columns = rows.select(names).append_column(_OWNER, pa.array(owners, pa.int32()))
    return pc.sort_indices(columns, sort_keys=[(name, "ascending") for name in (_OWNER, *names)])


def _write(
    task: RegroupTask, slot: str, rows: pa.Table, order: pa.Array, read: FileFacts
) -> tuple[WriteStat, FileFacts]:
    path = task.path(slot)
    origin = {"from": task.origin, "rows": read.rows, "key_hash_sum": read.key_hash_sum}
    with Spill() as spill:
        writer = BaseFileWriter(
            spill, task.schema, avro_schema=task.avro_schema, row_group_bytes=task.row_group_bytes
        )
        for start in range(0, len(order), _BATCH_ROWS):
            for batch in rows.take(order.slice(start, _BATCH_ROWS)).combine_chunks().to_batches():
                writer.write(named_in(batch, split_path(path)[1]))
        facts = writer.finish({SORTED_KEY: ",".join(task.by), ORIGIN_KEY: json.dumps(origin)})
        size_bytes = put_base_file(
            task.store, path, spill.content, facts, instant=task.instant, stale=task.stale.get(path)
        )
    if task.is_repeat:
        _check_origin(task, path)
    return _stat(task, slot, facts, size_bytes), facts


def _check_origin(task: RegroupTask, path: str) -> None:
    """See that the file is ours, or another attempt's at the same: one from other files may have the same keys."""
    origin = json.loads(read_footer(task.store, path).metadata.get(ORIGIN_KEY, "{}"))
    if origin.get("from") != task.origin:
        raise CommitConflictError(
            f"{path} was written by somebody else meanwhile: two processes work on {task.instant}. Nothing of it is "
            f"visible. Let one of them finish."
        )


def _stat(task: RegroupTask, slot: str, facts: FileFacts, size_bytes: int) -> WriteStat:
    return WriteStat(
        partition=task.work.partition,
        file_id=task.file_id(slot),
        path=task.path(slot),
        previous_instant=None,
        written=facts.rows,
        inserted=facts.rows,
        updated=0,
        deleted=0,
        errors=0,
        written_bytes=size_bytes,
        size_bytes=size_bytes,
    )
