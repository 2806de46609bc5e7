"""Rows by key, without a cluster.

A key tells its partition (if the caller does) and its file group; what is
left is a handful of slices, read here and now.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa

from bucketlake.errors import FilterError
from bucketlake.keygen import KeyGenerator
from bucketlake.read.filters import check_value
from bucketlake.read.plan import ReadPlan
from bucketlake.read.task import read_slice
from bucketlake.storage import in_parallel

Key = object
"""The value of the key column, or a mapping from key columns to values."""


def record_keys_of(keys: Sequence[Key], generator: KeyGenerator, schema: pa.Schema) -> tuple[str, ...]:
    """Spell keys as the table stores them, checking each value against its column."""
    return tuple(
        generator.record_key_of(_key_values(key, generator.record_key_fields, schema)) for key in keys
    )


def _key_values(key: Key, fields: tuple[str, ...], schema: pa.Schema) -> dict[str, pa.Scalar]:
    if not isinstance(key, Mapping):
        if len(fields) != 1:
            raise FilterError(
                f"the key of this table is ({', '.join(fields)}) and got {key!r}; "
                f"give a mapping, such as {{{', '.join(f'{f!r}: …' for f in fields)}}}."
            )
        key = {fields[0]: key}
    if set(key) != set(fields):
        raise FilterError(
            f"the key of this table is ({', '.join(fields)}) and got ({', '.join(map(str, key))})."
        )
    return {field: _scalar(key[field], field, schema) for field in fields}


def _scalar(value: object, field: str, schema: pa.Schema) -> pa.Scalar:
    """Give a value its column's type, which decides how it is spelled in a key."""
    kind = schema.field(field).type
    try:
        return pa.scalar(None if value is None else check_value(value, kind, field), type=kind)
    except pa.ArrowInvalid as error:
        raise FilterError(f"column {field!r} is a {kind} and cannot hold {value!r}: {error}") from None


def lookup(plan: ReadPlan, record_keys: Sequence[str]) -> pa.Table:
    """Read the rows with these record keys from the slices of a plan."""
    wanted = pa.array(record_keys, pa.string())
    context = plan.context
    found = in_parallel(
        lambda s: list(read_slice(s, context, record_keys=wanted)), plan.slices, context.store
    )
    return pa.Table.from_batches([batch for batches in found for batch in batches], plan.context.schema)


def read_all(plan: ReadPlan) -> Iterator[pa.RecordBatch]:
    """Read every slice of a plan in this process, one after the other."""
    for file_slice in plan.slices:
        yield from read_slice(file_slice, plan.context)
