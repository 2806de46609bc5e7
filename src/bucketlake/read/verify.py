"""Is the bucket count that a caller gave the table's own?

Hudi stores none, and a wrong one would prune away rows. So before file groups are left out by a caller's word,
some keys of each partition are hashed and must lie where they should: a wrong count is caught by every second
key or more, and dozens are looked at.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import pyarrow as pa

from bucketlake.basefile import read_base_file
from bucketlake.errors import ConfigError
from bucketlake.index import Index
from bucketlake.layout import FileSlice
from bucketlake.read.plan import ReadPlan
from bucketlake.read.task import ReadContext, read_slice
from bucketlake.read.virtual_keys import key_columns_of
from bucketlake.schema import RECORD_KEY_COLUMN

KEYS_LOOKED_AT = 64


def check_buckets(plan: ReadPlan, index: Index, checked: set[str]) -> None:
    """Check the partitions in which the plan left file groups out, and add them to `checked`."""
    for partition, slices in _left_out(plan).items():
        if partition not in checked:
            _check_slices(slices, plan.context, index, looked_at=0)
            checked.add(partition)


def check_keys_met(plan: ReadPlan, index: Index, keys_met: Sequence[pa.ChunkedArray]) -> None:
    """Check the same by keys that were met in the plan's slices, and by others only where those are too few.

    A key of a slice that was read tells as much as one of a slice that was not. In a table with m buckets the
    keys of bucket b have hashes h = b (mod m), and of those n buckets keep only each second in place, or fewer,
    unless n divides m. Then all stay, and nothing is lost: file groups from n on make the index give up, and
    where there are none both counts say the same.
    """
    met: dict[str, list[tuple[FileSlice, pa.ChunkedArray]]] = {}
    for file_slice, keys in zip(plan.slices, keys_met, strict=True):
        met.setdefault(file_slice.partition, []).append((file_slice, keys))
    for partition, slices in _left_out(plan).items():
        looked_at = 0
        for file_slice, keys in met.get(partition, ()):
            _check_keys(keys, file_slice, index)
            looked_at += len(keys)
        _check_slices(slices, plan.context, index, looked_at=looked_at)


def _left_out(plan: ReadPlan) -> dict[str, list[FileSlice]]:
    by_partition: dict[str, list[FileSlice]] = {}
    for file_slice in plan.left_out:
        by_partition.setdefault(file_slice.partition, []).append(file_slice)
    return by_partition


def _check_slices(slices: list[FileSlice], context: ReadContext, index: Index, *, looked_at: int) -> None:
    for file_slice in slices:
        if looked_at >= KEYS_LOOKED_AT:
            return
        for keys in _some_keys(file_slice, context):
            _check_keys(keys, file_slice, index)
            looked_at += len(keys)
            if looked_at >= KEYS_LOOKED_AT:
                return


def _check_keys(keys: pa.Array | pa.ChunkedArray, file_slice: FileSlice, index: Index) -> None:
    stray = index.stray(file_slice.partition, file_slice.file_id, keys)
    if stray is not None:
        raise ConfigError(
            f"the table was opened with {index}, and the record key {stray!r} of partition "
            f"{file_slice.partition!r} lies in the file group {file_slice.file_id}, where it would not be. Reading "
            f"by key would miss rows: give what the table's writer was given (hoodie.bucket.index.num.buckets, "
            f"hash.field and partition.expressions), or leave it out."
        )


def _some_keys(file_slice: FileSlice, context: ReadContext) -> Iterator[pa.Array]:
    """Yield keys of a slice, of its base file in small batches if it has one: the first will do."""
    if context.has_virtual_keys:
        columns = tuple(sorted(key_columns_of(context.keys)))
        for batch in read_slice(file_slice, replace(context, columns=columns, path_columns=(), filters=())):
            yield context.keys.record_keys(batch)
    elif file_slice.base_file is not None:
        schema = pa.schema([context.table_schema.field(RECORD_KEY_COLUMN)])
        path = file_slice.base_file.path
        for batch in read_base_file(context.store, path, schema, batch_rows=KEYS_LOOKED_AT):
            yield batch.column(0)
    else:
        keys_only = replace(context, columns=(RECORD_KEY_COLUMN,), filters=(), commit_times=None)
        for batch in read_slice(file_slice, keys_only):
            yield batch.column(0)
