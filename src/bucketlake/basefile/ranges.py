"""The ranges in a footer, made true of columns that hold NaN.

Spark and Hudi put NaN above every number; Arrow leaves it out of a column's range. So whoever skips by the range of
such a column loses rows: `x > 0` is true of NaN, and not of a range that ends at -1. No range at all would be the
honest one, and Hudi's column statistics take it for the range from 0 to 0. A range from -infinity to infinity keeps
every row that is compared with a number. Where it is written, the footer says that no value need be at its ends.

    FileMetaData.row_groups[n].columns[m].meta_data.statistics
                 4              1         3         12            numbers of these fields in Parquet's Thrift

Arrow has no way to set a range, so the bytes of the footer are changed, in files that hold a NaN only.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import accumulate

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

MAGIC = b"PAR1"
_LENGTH = struct.Struct("<I")
_CODES = {pa.float32(): "<f", pa.float64(): "<d"}
_NUMPY = {kind: np.dtype(code) for kind, code in _CODES.items()}

Leaves = dict[int, pa.DataType]
"""Some columns of a Parquet file: their positions among all, and their types."""


def leaves_with_nan(table: pa.Table) -> Leaves:
    """Return the Parquet columns of a row group that hold a NaN.

    >>> nan = float("nan")
    >>> leaves_with_nan(pa.table({"a": [nan], "s": [{"n": 1, "x": [nan]}], "b": [0.5]}))
    {0: DataType(double), 2: DataType(double)}
    """
    return {
        place: kind
        for number, position in _columns_with_floats(table.schema)
        for chunk in table.column(number).chunks
        for place, kind in _places_of_nan(chunk, position)
    }


@lru_cache(maxsize=64)
def _columns_with_floats(schema: pa.Schema) -> tuple[tuple[int, int], ...]:
    """Return the numbers of columns with floats in them, each with the position of its first leaf."""
    leaves = [list(_leaf_types(field.type)) for field in schema]
    starts = accumulate(map(len, leaves), initial=0)
    return tuple(
        (number, position)
        for number, (kinds, position) in enumerate(zip(leaves, starts, strict=False))
        if not _CODES.keys().isdisjoint(kinds)
    )


def _leaf_types(kind: pa.DataType) -> Iterator[pa.DataType]:
    if not types.is_nested(kind):
        yield kind
        return
    for number in range(kind.num_fields):
        yield from _leaf_types(kind.field(number).type)


def _places_of_nan(values: pa.Array, position: int) -> Iterator[tuple[int, pa.DataType]]:
    """Yield the leaves with a NaN, of which the first has `position`."""
    # Arrow may have no buffers for what has no values, and crashes where it looks for them.
    if len(values) == values.null_count:
        return
    if not types.is_nested(values.type):
        if values.type in _CODES and _holds_nan(values):
            yield position, values.type
        return
    for inner in _inner(values):
        yield from _places_of_nan(inner, position)
        position += sum(1 for _ in _leaf_types(inner.type))


def _inner(values: pa.Array) -> list[pa.Array]:
    """Return what an array is made of, without what was cut off it; the values under a null may be among it."""
    kind = values.type
    if types.is_struct(kind):
        return [values.field(number) for number in range(kind.num_fields)]
    offsets = values.offsets
    start, end = offsets[0].as_py(), offsets[-1].as_py()
    whole = [values.keys, values.items] if types.is_map(kind) else [values.values]
    return [child.slice(start, end - start) for child in whole]


def _holds_nan(values: pa.Array) -> bool:
    """Look at the numbers as they lie there, which is quick; under a null a NaN means nothing."""
    kind = _NUMPY[values.type]
    numbers = np.frombuffer(values.buffers()[1], kind, len(values), values.offset * kind.itemsize)
    return bool(np.isnan(numbers.max())) and bool(pc.any(pc.is_nan(values)).as_py())


def widened(tail: bytes, row_groups: Sequence[Leaves]) -> bytes:
    """Return the end of a Parquet file, footer and all, with open ranges for these columns of its row groups."""
    assert tail.endswith(MAGIC), "a footer ends with Parquet's magic word"
    (length,) = _LENGTH.unpack(tail[-8:-4])
    start = len(tail) - 8 - length
    pieces: list[bytes] = []
    done = start
    for begin, end, kind in _ranges(tail, start, row_groups):
        pieces += [tail[done:begin], _open_range(tail, begin, kind)]
        done = end
    footer = b"".join([*pieces, tail[done:-8]])
    return tail[:start] + footer + _LENGTH.pack(len(footer)) + MAGIC


def _ranges(data: bytes, start: int, row_groups: Sequence[Leaves]) -> Iterator[tuple[int, int, pa.DataType]]:
    """Yield where the statistics of these columns begin and end."""
    groups = _items(data, _field(data, start, 4))
    for leaves, group in zip(row_groups, groups, strict=True):
        if not leaves:
            continue
        for position, chunk in enumerate(_items(data, _field(data, group, 1))):
            if position in leaves:
                begin = _field(data, _field(data, chunk, 3), 12)
                yield begin, _skip(data, begin, _STRUCT), leaves[position]


def _open_range(data: bytes, begin: int, kind: pa.DataType) -> bytes:
    """Write statistics anew: how many nulls, a range without ends, and that it is wider than the values."""
    least, most = (struct.pack(_CODES[kind], number) for number in (-math.inf, math.inf))
    nulls = _field(data, begin, 3)
    null_count = data[nulls : _skip(data, nulls, _I64)]
    return b"".join(
        [
            bytes([3 << 4 | _I64]) + null_count,
            bytes([2 << 4 | _BINARY, len(most)]) + most,  # max_value
            bytes([1 << 4 | _BINARY, len(least)]) + least,  # min_value
            bytes([1 << 4 | _FALSE, 1 << 4 | _FALSE, _STOP]),  # is_max_value_exact, is_min_value_exact
        ]
    )


# ── Thrift's compact protocol, as far as a footer needs it ──────────────────────────────────────────────────────────

_STOP, _TRUE, _FALSE, _BYTE, _I16, _I32, _I64, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT = range(13)


def _number(data: bytes, at: int) -> tuple[int, int]:
    """Read a number of seven bits to the byte; return it and where it ends."""
    value = shift = 0
    while data[at] & 0x80:
        value |= (data[at] & 0x7F) << shift
        shift += 7
        at += 1
    return value | data[at] << shift, at + 1


def _field(data: bytes, at: int, wanted: int) -> int:
    """Return where a field of a struct is, which must be there."""
    number = 0
    while head := data[at]:
        at += 1
        if head >> 4:
            number += head >> 4
        else:
            spelled, at = _number(data, at)
            number = (spelled >> 1) ^ -(spelled & 1)
        if number == wanted:
            return at
        at = _skip(data, at, head & 0x0F)
    raise AssertionError(f"a footer without field {wanted}")


def _list(data: bytes, at: int) -> tuple[int, int, int]:
    """Return how many items a list has, of which type, and where the first one is."""
    count, kind = data[at] >> 4, data[at] & 0x0F
    at += 1
    if count == 15:
        count, at = _number(data, at)
    return count, kind, at


def _items(data: bytes, at: int) -> Iterator[int]:
    """Yield where each item of a list is."""
    count, kind, at = _list(data, at)
    for _ in range(count):
        yield at
        at = _skip(data, at, kind)


def _skip(data: bytes, at: int, kind: int) -> int:
    """Return where a value ends."""
    if _I16 <= kind <= _I64:
        while data[at] & 0x80:
            at += 1
        return at + 1
    if kind == _BINARY:
        length, at = _number(data, at)
        return at + length
    if kind == _STRUCT:
        while head := data[at]:
            at = _skip(data, at + 1 if head >> 4 else _number(data, at + 1)[1], head & 0x0F)
        return at + 1
    if kind == _LIST:
        count, inner, at = _list(data, at)
        for _ in range(count):
            at = at + 1 if inner <= _FALSE else _skip(data, at, inner)
        return at
    if kind <= _FALSE:
        return at  # the type is the value
    assert kind in (_BYTE, _DOUBLE), f"a footer with a field of Thrift's type {kind}"
    return at + (1 if kind == _BYTE else 8)
