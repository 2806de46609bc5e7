"""Partition columns take their values from the partition's path, not from the file.

So does Hudi's own reader, and it makes a difference: null and the empty text share one folder and read as
null, and a row that a global index left in its old partition shows that partition's value. Where a path has
no single reading (timestamps by pattern, slashes in values) or the text depends on the writer (dates, floats),
the file's value stands.
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from bucketlake.errors import UnsupportedError
from bucketlake.keygen import KeyGenerator


def path_columns_of(keys: KeyGenerator, schema: pa.Schema) -> tuple[str, ...]:
    """Return the partition columns that paths can speak for."""
    return tuple(
        field.name
        for field in keys.partition_fields
        if field.name in schema.names and _has_one_reading(schema.field(field.name).type)
    )


def _has_one_reading(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_integer(kind))


def values_of_path(
    partition: str, columns: tuple[str, ...], keys: KeyGenerator, schema: pa.Schema
) -> Mapping[str, pa.Scalar] | None:
    """Return the values a partition's path gives these columns, or None if it cannot be read back."""
    texts = keys.partition_values(partition)
    if texts is None:
        return None
    try:
        return {name: pa.scalar(texts[name], pa.string()).cast(schema.field(name).type) for name in columns}
    except pa.ArrowInvalid:  # a folder that someone made by hand
        return None


def fill_path_columns(
    batch: pa.RecordBatch, partition: str, columns: tuple[str, ...], keys: KeyGenerator, *, are_dropped: bool
) -> pa.RecordBatch:
    """Set the columns that the path speaks for. `are_dropped`: the files do not have them at all."""
    wanted = tuple(name for name in columns if name in batch.schema.names)
    values = values_of_path(partition, wanted, keys, batch.schema)
    if values is None:
        if are_dropped and wanted:
            raise UnsupportedError(
                subject=f"partition {partition!r}",
                found="a path that does not tell the values of its columns, which the files lack",
                supported="dropped partition columns whose path reads back",
                remedy=f"Leave out {', '.join(wanted)} with columns=[...].",
            )
        return batch
    for name, value in values.items():
        position = batch.schema.get_field_index(name)
        batch = batch.set_column(position, batch.schema.field(position), pa.repeat(value, batch.num_rows))
    return batch
