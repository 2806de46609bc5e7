"""What a table's schema becomes when rows with another schema are written.

    the rows have                       the table
    ------------------------------------------------------------------------
    a column more                       gets it, nullable, after its own
    a wider type                        widens: int -> long, int or float -> double, decimal -> wider decimal
    a narrower type                     stays; the rows are widened (also long -> double, int or long -> float)
    another nullability                 stays; a null where it may not be is found with the rows
    anything else, or a column less     refuses, before anything is written

A struct, wherever it is, gets new fields as a table gets columns. But what is inside a column never widens: Hudi on
Spark cannot read such a table, its own neither, unless it is told not to read in batches ("Nested types with type
changes cannot be read in vectorized mode"). Hudi's writer also goes further than the list: it turns a number column
to text when rows bring text, and rounds a stored long to a double. Neither can be undone, so here both are refused.

Columns in `fixed` place a record (record key, partition, hash) or order its
versions. Their text is in files and folder names already: 1 must not become 1.0.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TypeVar

import pyarrow as pa
from pyarrow import types

from bucketlake.errors import CorruptTableError, SchemaError
from bucketlake.schema.align import align
from bucketlake.schema.avro_writer import storable
from bucketlake.schema.names import RESERVED, check_names
from bucketlake.schema.nulls import find_null

Batch = TypeVar("Batch", pa.RecordBatch, pa.Table)


def evolve(stored: pa.Schema, incoming: pa.Schema, *, fixed: Collection[str]) -> pa.Schema:
    """Return the table's schema after a write of rows with schema `incoming`.

    Both are without meta columns. What does not fit raises `SchemaError`, which names the column.

    >>> old = pa.schema([("id", pa.string()), ("n", pa.int32())])
    >>> evolve(old, pa.schema([("n", pa.int64()), ("id", pa.string()), ("note", pa.string())]), fixed=["id"])
    id: string
    n: int64
    note: string
    """
    return pa.schema(_evolved_fields(stored, storable(incoming), "", fixed))


def fit_rows(rows: Batch, schema: pa.Schema) -> Batch:
    """Return `rows` with exactly the columns and types of the table's `schema`, which `evolve` gave.

    A null in a column that may not be null raises `SchemaError`.
    """
    try:
        fitted = align(rows, schema, path="the rows to write")
    except CorruptTableError as error:
        raise SchemaError(
            f"the rows to write do not fit the table: found {error.found}, expected {error.expected}. "
            f"Fill or cast the column before writing."
        ) from error
    column = find_null(fitted)
    if column is not None:
        raise SchemaError(
            f"the rows to write do not fit the table: found a null in column {column!r}, expected a value in "
            f"every row. Fill the column before writing."
        )
    return fitted


def _evolved_fields(
    stored: Iterable[pa.Field], incoming: Iterable[pa.Field], parent: str, fixed: Collection[str]
) -> list[pa.Field]:
    arriving = {field.name: field for field in incoming}
    known = {field.name for field in stored}
    evolved = []
    for field in stored:
        column = f"{parent}{field.name}"
        if field.name not in arriving:
            raise _missing(column, field, arriving)
        evolved.append(field.with_type(_evolved(field.type, arriving[field.name].type, column, fixed)))
    new = [field for name, field in arriving.items() if name not in known]
    reserved = {} if parent else RESERVED
    check_names(new, parent=parent, taken={**reserved, **{name.lower(): name for name in known}})
    # They are null in all rows there are, whatever the frame says of them.
    return [*evolved, *(field.with_nullable(True) for field in new)]


def _missing(column: str, field: pa.Field, arriving: Collection[str]) -> SchemaError:
    for name in arriving:
        if name.lower() == field.name.lower():
            return SchemaError(
                f"the rows to write have no column {column!r}, but one that differs in case only: {name!r}. "
                f"Rename it to {field.name!r}."
            )
    return SchemaError(
        f"the rows to write have no column {column!r}, and the table has one, of type {field.type}. "
        f"A row replaces the stored one whole, so its value would be lost: add the column, with "
        f"lit(None).cast(...) if null is what you mean."
    )


def _evolved(stored: pa.DataType, incoming: pa.DataType, column: str, fixed: Collection[str]) -> pa.DataType:
    if stored == incoming:
        return stored
    if types.is_struct(stored) and types.is_struct(incoming):
        return pa.struct(_evolved_fields(stored, incoming, f"{column}.", fixed))
    if types.is_list(stored) and types.is_list(incoming):
        element = stored.value_field
        inner = _evolved(element.type, incoming.value_type, f"{column}.element", fixed)
        return pa.list_(element.with_type(inner))
    if types.is_map(stored) and types.is_map(incoming):
        value = stored.item_field
        inner = _evolved(value.type, incoming.item_type, f"{column}.value", fixed)
        return pa.map_(stored.key_field, value.with_type(inner))
    if column in fixed:
        if types.is_int32(incoming) and types.is_int64(stored):
            return stored
        raise SchemaError(
            f"column {column!r} is {incoming} in the rows to write and {stored} in the table, where it is part of "
            f"how records are placed or ordered. Cast it to {stored} before writing."
        )
    if _may_take(stored, incoming):
        return stored
    if _may_become(stored, incoming):
        if "." not in column:
            return incoming
        raise SchemaError(
            f"{column!r} is {incoming} in the rows to write and {stored} in the table. A column of the table itself "
            f"widens, but what is inside one does not: Hudi on Spark could not read the table afterwards. Cast it to "
            f"{stored} before writing, or write it under another name."
        )
    raise SchemaError(
        f"column {column!r} is {incoming} in the rows to write and {stored} in the table, and neither widens to the "
        f"other. Cast it to {stored} before writing, or write it under another name."
    )


def _may_become(stored: pa.DataType, wider: pa.DataType) -> bool:
    """Say whether every value of `stored` is exactly one of `wider`, and Hudi reads it so."""
    if types.is_int64(wider):
        return bool(types.is_int32(stored))
    if types.is_float64(wider):
        return bool(types.is_int32(stored) or types.is_float32(stored))
    if types.is_decimal(wider) and types.is_decimal(stored):
        more_digits = wider.precision - wider.scale >= stored.precision - stored.scale
        return bool(more_digits and wider.scale >= stored.scale)
    return False


def _may_take(stored: pa.DataType, narrower: pa.DataType) -> bool:
    """Say whether a column takes values of `narrower`; like SQL, one of fractions takes every integer."""
    if types.is_floating(stored) and types.is_integer(narrower):
        return True
    return _may_become(narrower, stored)
