"""The rows of some file groups into others, sorted: the work of a clustering, whatever it is for.

    Regroup         which file groups give way, how the ids of those that come begin, and who of them gets a row
    keep_buckets    the one that moves no key: every bucket gets a new file group for its old one
    regroup         a task: merge, divide, sort, write, prove

Who splits or merges buckets puts a function beside `keep_buckets`; its index is the one that holds after the change.
All that follows is the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bucketlake.basefile import BaseFileWriter, FileFacts, read_base_file
from bucketlake.basefile.footer import NO_ROWS
from bucketlake.errors import CorruptTableError, ProofError
from bucketlake.index import Index
from bucketlake.layout import TimelineView, parse_data_file
from bucketlake.layout.file_slice import LogFile
from bucketlake.layout.names import (
    WRITE_TOKEN,
    BaseFileName,
    new_file_id,
    path_in_partition,
    render_base_file_name,
    split_path,
)
from bucketlake.logfile import read_log_files
from bucketlake.merge import MergeRules, merge_slice
from bucketlake.schema import RECORD_KEY_COLUMN, named_in
from bucketlake.services.compaction import put_base_file
from bucketlake.storage import Spill, Store
from bucketlake.timeline import ClusteringSlice, WriteStat

SORTED_KEY = "bucketlake.sorted_by"
"""Where a base file's footer keeps the columns that its rows are sorted by."""

_OWNER = "_bucketlake_owner"
_BATCH_ROWS = 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Regroup:
    """File groups of a partition whose rows go into others: all of them, and nobody else's."""

    partition: str
    slices: tuple[ClusteringSlice, ...]
    """What gives way."""
    prefixes: tuple[str, ...]
    """How the ids of the new file groups begin: one for each."""
    index: Index
    """Says by its key which of them a row goes to."""


def keep_buckets(slices: Iterable[ClusteringSlice], index: Index) -> tuple[Regroup, ...]:
    """Give every file group a new one of the same bucket."""
    owners: dict[tuple[str, str], Regroup] = {}
    for part in slices:
        prefix = index.prefix_of_file(part.partition, part.file_id)
        if prefix is None or (part.partition, prefix) in owners:
            raise CorruptTableError(
                path=part.partition or ".",
                found=f"the file group {part.file_id}, "
                + ("which is no bucket" if prefix is None else f"a second one of bucket {prefix}"),
                expected=f"one file group per bucket, of {index}",
                remedy="`bucketlake fsck` tells what is in it. Cluster other partitions meanwhile.",
            )
        owners[part.partition, prefix] = Regroup(
            partition=part.partition, slices=(part,), prefixes=(prefix,), index=index
        )
    return tuple(owners.values())


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
    blocks_of: TimelineView | None = None
    """Which log blocks are committed, where the names of their files do not tell."""

    def file_id(self, prefix: str) -> str:
        return new_file_id(prefix, partition=self.work.partition, instant=self.instant)

    def path(self, prefix: str) -> str:
        """Where the base file of a new group goes."""
        name = render_base_file_name(BaseFileName(self.file_id(prefix), WRITE_TOKEN, self.instant))
        return path_in_partition(self.work.partition, name)

    @property
    def paths(self) -> tuple[str, ...]:
        return tuple(self.path(prefix) for prefix in self.work.prefixes)


@dataclass(frozen=True, slots=True)
class Regrouped:
    """What a task did."""

    stats: tuple[WriteStat, ...]
    """Of the new file groups that have rows; the others are not made."""
    rows: int
    key_hash_sum: int


def regroup(task: RegroupTask) -> Regrouped:
    """Write the rows of some file groups into new ones. Rows keep the commit they are of; deleted ones go.

    The rows of a task are in memory while they are sorted.
    """
    rows = pa.Table.from_batches(_merged(task), task.schema).combine_chunks()
    read = FileFacts.of_keys(rows.column(RECORD_KEY_COLUMN))
    owners = _owners(task, rows)
    order = _order(rows, owners, task.by)
    stats = []
    written, start = NO_ROWS, 0
    for number, prefix in enumerate(task.work.prefixes):
        count = int((owners == number).sum())
        if count:
            facts, size_bytes = _write(task, task.path(prefix), rows, order.slice(start, count))
            stats.append(_stat(task, prefix, facts, size_bytes))
            written, start = written + facts, start + count
    if written != read:
        raise ProofError(
            f"{task.work.partition or 'the table'}: {read.rows} rows with the key sum {read.key_hash_sum} were read, "
            f"and {written.rows} with {written.key_hash_sum} written. Nothing was committed; this is a bug, please "
            f"report it."
        )
    return Regrouped(tuple(stats), written.rows, written.key_hash_sum)


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
        )
        batches = read_base_file(task.store, base, task.schema) if base is not None else ()
        yield from merge_slice(batches, list(logs), task.rules, task.schema)


def _owners(task: RegroupTask, rows: pa.Table) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
    """Return the position of the new file group of every row."""
    keys = rows.column(RECORD_KEY_COLUMN).combine_chunks()
    located = task.work.index.locate(task.work.partition, keys)
    of_prefix = pc.index_in(located.dictionary, value_set=pa.array(task.work.prefixes, pa.string()))
    owners = of_prefix.take(located.indices)
    if owners.null_count:
        stray = keys[pc.index(owners.is_null(), True).as_py()].as_py()
        raise CorruptTableError(
            path=path_in_partition(task.work.partition, task.work.slices[0].file_id),
            found=f"the key {stray!r}",
            expected=f"keys of the file groups {', '.join(task.work.prefixes)}, by {task.work.index}",
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


def _write(task: RegroupTask, path: str, rows: pa.Table, order: pa.Array) -> tuple[FileFacts, int]:
    with Spill() as spill:
        writer = BaseFileWriter(
            spill, task.schema, avro_schema=task.avro_schema, row_group_bytes=task.row_group_bytes
        )
        for start in range(0, len(order), _BATCH_ROWS):
            for batch in rows.take(order.slice(start, _BATCH_ROWS)).combine_chunks().to_batches():
                writer.write(named_in(batch, split_path(path)[1]))
        facts = writer.finish({SORTED_KEY: ",".join(task.by)})
        return facts, put_base_file(task.store, path, spill.content, facts, instant=task.instant)


def _stat(task: RegroupTask, prefix: str, facts: FileFacts, size_bytes: int) -> WriteStat:
    return WriteStat(
        partition=task.work.partition,
        file_id=task.file_id(prefix),
        path=task.path(prefix),
        previous_instant=None,
        written=facts.rows,
        inserted=facts.rows,
        updated=0,
        deleted=0,
        errors=0,
        written_bytes=size_bytes,
        size_bytes=size_bytes,
    )
