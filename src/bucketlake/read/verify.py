"""Is the bucket count that a caller gave the table's own?

Hudi stores none, and a wrong one would prune away rows. So before file groups are left out by a caller's word,
some keys of each partition are hashed and must lie where they should: a wrong count is caught by every second
key or more, and dozens are looked at.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa

from bucketlake.basefile import read_base_file
from bucketlake.errors import ConfigError
from bucketlake.index import Index, verify
from bucketlake.layout import FileSlice
from bucketlake.read.plan import ReadPlan
from bucketlake.read.task import KEY_COLUMN, ReadContext, read_slice

KEYS_LOOKED_AT = 64


def check_buckets(plan: ReadPlan, index: Index, checked: set[str]) -> None:
    """Check the partitions in which the plan left file groups out, and add them to `checked`."""
    by_partition: dict[str, list[FileSlice]] = {}
    for file_slice in plan.left_out:
        by_partition.setdefault(file_slice.partition, []).append(file_slice)
    for partition, slices in by_partition.items():
        if partition not in checked:
            _check_partition(partition, slices, plan.context, index)
            checked.add(partition)


def _check_partition(partition: str, slices: list[FileSlice], context: ReadContext, index: Index) -> None:
    looked_at = 0
    for file_slice in slices:
        for keys in _some_keys(file_slice, context):
            stray = verify(index, partition, file_slice.file_id, keys)
            if stray is not None:
                raise ConfigError(
                    f"the table was opened with {index}, and the record key {stray!r} of partition {partition!r} lies "
                    f"in the file group {file_slice.file_id}, where it would not be. Reading by key would miss rows: "
                    f"give what the table's writer was given (hoodie.bucket.index.num.buckets, hash.field and "
                    f"partition.expressions), or leave it out."
                )
            looked_at += len(keys)
            if looked_at >= KEYS_LOOKED_AT:
                return


def _some_keys(file_slice: FileSlice, context: ReadContext) -> Iterator[pa.Array]:
    """Yield keys of a slice, of its base file in small batches if it has one: the first will do."""
    if file_slice.base_file is not None:
        schema = pa.schema([context.table_schema.field(KEY_COLUMN)])
        path = file_slice.base_file.path
        for batch in read_base_file(context.store, path, schema, batch_rows=KEYS_LOOKED_AT):
            yield batch.column(0)
    else:
        keys_only = replace(context, columns=(KEY_COLUMN,), filters=(), commit_times=None)
        for batch in read_slice(file_slice, keys_only):
            yield batch.column(0)
