"""Rows by key, without a cluster.

A key tells its partition (if the caller does) and its file group; what is
left is a handful of slices, read here and now.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from bucketlake.errors import FilterError
from bucketlake.index import Index
from bucketlake.keygen import KeyGenerator
from bucketlake.layout import FileSlice
from bucketlake.read.filters import check_value
from bucketlake.read.plan import ReadPlan
from bucketlake.read.task import ReadContext, read_slice
from bucketlake.read.verify import KEYS_LOOKED_AT, check_keys_met
from bucketlake.storage import in_parallel

Key = object
"""The value of the key column, or a mapping from key columns to values."""


def record_keys_of(keys: Sequence[Key], generator: KeyGenerator, schema: pa.Schema) -> pa.Array:
    """Spell keys as the table stores them, checking each value against its column."""
    return pa.array(
        [generator.record_key_of(_key_values(key, generator.record_key_fields, schema)) for key in keys],
        pa.string(),
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
            f"the key of this table is ({', '.join(fields)}) and got ({', '.join(map(str, key))}). Give these columns "
            f"alone; a partition is named beside them, by its path: partition=."
        )
    return {field: _scalar(key[field], field, schema) for field in fields}


def _scalar(value: object, field: str, schema: pa.Schema) -> pa.Scalar:
    """Give a value its column's type, which decides how it is spelled in a key."""
    kind = schema.field(field).type
    try:
        return pa.scalar(None if value is None else check_value(value, kind, field), type=kind)
    except pa.ArrowInvalid as error:
        raise FilterError(f"column {field!r} is a {kind} and cannot hold {value!r}: {error}") from None


def lookup(plan: ReadPlan, record_keys: pa.Array, *, unproven: Index | None = None) -> pa.Table:
    """Read the rows with these record keys from the slices of a plan.

    `unproven` is the index that the plan left slices out by, if only a caller vouches for it. The keys that are met
    on the way then must lie where it says; to check them costs next to nothing, they were read anyway.
    """
    found = in_parallel(lambda s: _look_into(s, plan.context, record_keys), plan.slices, plan.context.store)
    if unproven is not None:
        check_keys_met(plan, unproven, [entry.keys_met for entry in found])
    return pa.Table.from_batches([batch for entry in found for batch in entry.batches], plan.context.schema)


@dataclass(frozen=True, slots=True)
class _Found:
    batches: list[pa.RecordBatch]
    keys_met: pa.ChunkedArray
    """Some of the slice's keys; none if its logs or its key range were all that was looked at."""


def _look_into(file_slice: FileSlice, context: ReadContext, wanted: pa.Array) -> _Found:
    met: list[pa.ChunkedArray] = []
    batches = list(read_slice(file_slice, context, record_keys=wanted, on_keys=met.append))
    return _Found(batches, met[0].slice(0, KEYS_LOOKED_AT) if met else _NO_KEYS)


_NO_KEYS = pa.chunked_array([], pa.string())


def read_by_keys(plan: ReadPlan) -> pa.Table:
    """Read the rows of a plan in this process, several slices at once if it says which keys are wanted."""
    if plan.record_keys is None:
        return pa.Table.from_batches(read_all(plan), plan.context.schema)
    return lookup(plan, plan.record_keys)


def read_all(plan: ReadPlan, *, limit: int | None = None) -> Iterator[pa.RecordBatch]:
    """Read the slices of a plan in this process, one after the other, until `limit` rows are found."""
    left = limit
    for file_slice in plan.slices:
        if left == 0:
            return
        for batch in read_slice(file_slice, plan.context, record_keys=plan.record_keys):
            yield batch if left is None else batch.slice(0, left)
            if left is not None:
                left = max(0, left - batch.num_rows)
                if left == 0:
                    return
