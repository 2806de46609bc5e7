"""Nulls where they may not be, at any depth.

A null inside counts only if what is around it is there: the field of a null
struct is not a null field. Everything works on whole columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types


def find_null_element(data: pa.Table | pa.RecordBatch) -> str | None:
    """Return the dotted name of the first array column, at any depth, that holds a null element.

    Hudi's lists have two levels in Parquet and no place for one: it reads such a file, but fails to
    rewrite it.

    >>> find_null_element(pa.table({"words": [["a"], None, []], "numbers": [[1], [None], None]}))
    'numbers'
    """
    for name, values, field in _everything(data, _columns_with_lists(data.schema)):
        if _is_list(field.type) and _elements(values).null_count:
            return name
    return None


def find_null(data: pa.Table | pa.RecordBatch) -> str | None:
    """Return the dotted name of the first place that holds a null though its field says it may not.

    >>> required = pa.struct([pa.field("x", pa.int32(), nullable=False)])
    >>> find_null(pa.table({"s": pa.array([None, {"x": 1}, {"x": None}], required)}))
    's.x'
    """
    for name, values, field in _everything(data, _columns_with_required(data.schema)):
        if not field.nullable and values.null_count:
            return name
    return None


def all_nullable(schema: pa.Schema) -> pa.Schema:
    """Return the schema with nulls allowed at every depth, but for the keys of maps.

    >>> all_nullable(pa.schema([pa.field("n", pa.int32(), nullable=False)]))
    n: int32
    """
    return pa.schema([_nullable(field) for field in schema])


def _nullable(field: pa.Field) -> pa.Field:
    kind = field.type
    if types.is_struct(kind):
        kind = pa.struct([_nullable(inner) for inner in kind])
    elif types.is_map(kind):
        kind = pa.map_(kind.key_field, _nullable(kind.item_field))
    elif types.is_list(kind):
        kind = pa.list_(_nullable(kind.value_field))
    return field.with_type(kind).with_nullable(True)


Place = tuple[str, pa.Array, pa.Field]
"""The dotted name of a column or of something inside it, its values under whatever is there, and its field."""


def _everything(data: pa.Table | pa.RecordBatch, columns: Iterable[int]) -> Iterator[Place]:
    for position in columns:
        field, column = data.schema.field(position), data.column(position)
        for values in column.chunks if isinstance(column, pa.ChunkedArray) else [column]:
            yield from _places(field.name, values, field)


# A write asks once for each of its files, and most schemas have no such columns.
@lru_cache(maxsize=64)
def _columns_with_lists(schema: pa.Schema) -> tuple[int, ...]:
    return _columns_with(schema, lambda field: _is_list(field.type))


@lru_cache(maxsize=64)
def _columns_with_required(schema: pa.Schema) -> tuple[int, ...]:
    return _columns_with(schema, lambda field: not field.nullable)


def _columns_with(schema: pa.Schema, has: Callable[[pa.Field], bool]) -> tuple[int, ...]:
    """Find the columns that are, or hold at any depth, a field that `has` it."""

    def is_or_holds(field: pa.Field) -> bool:
        return has(field) or any(is_or_holds(inner) for inner in _inside(field.type))

    return tuple(position for position, field in enumerate(schema) if is_or_holds(field))


def _inside(kind: pa.DataType) -> Iterable[pa.Field]:
    if types.is_struct(kind):
        return tuple(kind)
    if types.is_map(kind):
        return kind.key_field, kind.item_field
    return (kind.value_field,) if _is_list(kind) else ()


def _places(name: str, values: pa.Array, field: pa.Field) -> Iterator[Place]:
    yield name, values, field
    if types.is_struct(field.type):
        present = values.drop_null() if values.null_count else values
        for index, inner in enumerate(field.type):
            yield from _places(f"{name}.{inner.name}", present.field(index), inner)
    elif types.is_map(field.type):
        entries = _elements(_as_lists(values))
        yield from _places(f"{name}.key", entries.field(0), field.type.key_field)
        yield from _places(f"{name}.value", entries.field(1), field.type.item_field)
    elif _is_list(field.type):
        yield from _places(f"{name}.element", _elements(values), field.type.value_field)


def _is_list(kind: pa.DataType) -> bool:
    return bool(types.is_list(kind) or types.is_large_list(kind))


def _elements(lists: pa.Array) -> pa.Array:
    """Return what the lists hold, one after another; a slice gives only what is in it, and a null list nothing."""
    return pc.list_flatten(lists)


def _as_lists(maps: pa.MapArray) -> pa.ListArray:
    entries = pa.StructArray.from_arrays([maps.keys, maps.items], names=["key", "value"])
    validity, offsets = maps.buffers()[:2]
    return pa.Array.from_buffers(
        pa.list_(entries.type), len(maps), [validity, offsets], offset=maps.offset, children=[entries]
    )
