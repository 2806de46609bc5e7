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


def told_by_path(
    partition: str, columns: tuple[str, ...], keys: KeyGenerator, schema: pa.Schema, *, are_dropped: bool
) -> Mapping[str, pa.Scalar]:
    """Return what a partition's path says of its columns: all of them or, if it can't be read back, none.

    `are_dropped`: the files do not have them at all.
    """
    values = values_of_path(partition, columns, keys, schema)
    if values is None and are_dropped and columns:
        raise UnsupportedError(
            subject=f"partition {partition!r}",
            found="a path that does not tell the values of its columns, which the files lack",
            supported="dropped partition columns whose path reads back",
            remedy=f"Leave out {', '.join(columns)} with columns=[...].",
        )
    return values or {}


def fill_path_columns(batch: pa.RecordBatch, told: Mapping[str, pa.Scalar]) -> pa.RecordBatch:
    """Set or add the columns that the path speaks for."""
    for name, value in told.items():
        column = pa.repeat(value, batch.num_rows)
        position = batch.schema.get_field_index(name)
        if position < 0:
            batch = batch.append_column(pa.field(name, value.type), column)
        else:
            batch = batch.set_column(position, batch.schema.field(position), column)
    return batch
