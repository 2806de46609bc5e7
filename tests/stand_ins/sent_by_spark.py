"""Rows as Spark's JVM sends them to Python: an array without rows, as it lies inside others, has no offsets."""

from __future__ import annotations

import numpy as np
import pyarrow as pa


def as_spark_sends(rows: pa.Table) -> pa.RecordBatch:
    """Return the same rows with an empty buffer in place of every offset that is not needed.

    What follows an empty buffer in memory is never zero here: whoever reads it anyway comes to harm.
    """
    order = pa.array(np.arange(rows.num_rows))
    columns = [_sent(column.combine_chunks().take(order)) for column in rows.columns]
    return pa.RecordBatch.from_arrays(columns, schema=rows.schema)


def _sent(values: pa.Array) -> pa.Array:
    kind = values.type
    if not len(values):
        return _nothing(kind)
    if pa.types.is_struct(kind):
        children = [_sent(values.field(number)) for number in range(kind.num_fields)]
        return pa.Array.from_buffers(kind, len(values), values.buffers()[:1], children=children)
    if pa.types.is_map(kind):
        children = [_entries(_sent(values.keys), _sent(values.items), kind)]
    elif pa.types.is_list(kind):
        children = [_sent(values.values)]
    else:
        return values
    return pa.Array.from_buffers(kind, len(values), values.buffers()[:2], children=children)


def _nothing(kind: pa.DataType) -> pa.Array:
    empty = pa.py_buffer(b"\x7f" * 64).slice(0, 0)
    if pa.types.is_struct(kind):
        return pa.Array.from_buffers(kind, 0, [None], children=[_nothing(field.type) for field in kind])
    if pa.types.is_map(kind):
        entries = _entries(_nothing(kind.key_type), _nothing(kind.item_type), kind)
        return pa.Array.from_buffers(kind, 0, [None, empty], children=[entries])
    if pa.types.is_list(kind):
        return pa.Array.from_buffers(kind, 0, [None, empty], children=[_nothing(kind.value_type)])
    buffers = len(pa.array([], kind).buffers())
    return pa.Array.from_buffers(kind, 0, [None, *[empty] * (buffers - 1)])


def _entries(keys: pa.Array, items: pa.Array, kind: pa.MapType) -> pa.Array:
    return pa.StructArray.from_arrays([keys, items], fields=[kind.key_field, kind.item_field])
