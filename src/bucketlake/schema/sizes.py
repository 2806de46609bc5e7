"""How many bytes rows take.

Arrow's own `nbytes` ends the process for some columns that Spark sends: a list or map without a row, as it lies
inside one that is null or empty in every row, comes without offsets, and `nbytes` reads the first of them.
"""

from __future__ import annotations

from functools import lru_cache

import pyarrow as pa
from pyarrow import types


def bytes_of(rows: pa.Table | pa.RecordBatch) -> int:
    """Count the bytes of rows: what a slice leaves out is not counted.

    >>> bytes_of(pa.table({"words": [["ab"], [], None]}).slice(1))
    13
    """
    if not _has_nested(rows.schema):
        return int(rows.nbytes)
    columns = (
        rows.columns if isinstance(rows, pa.RecordBatch) else (c for t in rows.columns for c in t.chunks)
    )
    return sum(map(_bytes_of, columns))


# A write asks once for each batch, and most schemas have no such columns.
@lru_cache(maxsize=64)
def _has_nested(schema: pa.Schema) -> bool:
    return any(types.is_nested(kind) for kind in schema.types)


def _bytes_of(values: pa.Array) -> int:
    kind = values.type
    if not len(values):
        return 0
    if not types.is_nested(kind):
        return int(values.nbytes)
    validity = -(-len(values) // 8) if values.null_count else 0
    if types.is_struct(kind):
        return validity + sum(_bytes_of(values.field(number)) for number in range(kind.num_fields))
    if not (types.is_list(kind) or types.is_large_list(kind) or types.is_map(kind)):
        return int(values.get_total_buffer_size())
    offsets = values.offsets
    start, stop = offsets[0].as_py(), offsets[-1].as_py()
    inside = [values.keys, values.items] if types.is_map(kind) else [values.values]
    return validity + int(offsets.nbytes) + sum(_bytes_of(part[start:stop]) for part in inside)
