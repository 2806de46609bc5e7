"""What a table's schema becomes when rows with another schema are written.

    the rows have               the table
    -----------------------------------------------------------------------------------------------------------------
    a column more               gets it, nullable, after its own                                         if `merge`
    a wider type                widens: int -> long, int or float -> double, decimal -> wider decimal    if `merge`
    nulls where it has none     may have them from now on                                                if `merge`
    a narrower type             stays; the rows are widened (also long -> double, int or long -> float)
    a nullable column less      stays; the rows have nulls there                                         if `fill`
    anything else               refuses, before anything is written

Without `merge` a null where there may be none is found with the rows. A column that another writer does not know of
locks it out unless the table fills in, so neither is done unasked.

A struct, wherever it is, gets new fields as a table gets columns. But what is inside a column never widens: Hudi on
Spark cannot read such a table, its own neither, unless it is told not to read in batches ("Nested types with type
changes cannot be read in vectorized mode"). Hudi's writer also goes further than the list: it turns a number column
to text when rows bring text, and rounds a stored long to a double. Neither can be undone, so here both are refused.

Columns in `fixed` place a record (record key, partition, hash) or order its
versions. Their text is in files and folder names already: 1 must not become 1.0. No row is without them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import pyarrow as pa
from pyarrow import types

from bucketlake.errors import CorruptTableError, SchemaError
from bucketlake.schema.align import align
from bucketlake.schema.avro_writer import storable
from bucketlake.schema.names import RESERVED, check_names
from bucketlake.schema.nulls import find_null

Batch = TypeVar("Batch", pa.RecordBatch, pa.Table)


def evolve(
    stored: pa.Schema, incoming: pa.Schema, *, fixed: Collection[str], merge: bool = False, fill: bool = False
) -> pa.Schema:
    """Return the table's schema after a write of rows with schema `incoming`.

    Both are without meta columns. What does not fit, or was not asked for, raises `SchemaError`: it names the column.

    >>> old = pa.schema([("id", pa.string()), ("n", pa.int32())])
    >>> new = pa.schema([("n", pa.int64()), ("id", pa.string()), ("note", pa.string())])
    >>> evolve(old, new, fixed=["id"], merge=True)
    id: string
    n: int64
    note: string
    """
    return pa.schema(_Rules(frozenset(fixed), merge, fill).fields(stored, storable(incoming), ""))


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


@dataclass(frozen=True, slots=True)
class _Rules:
    """What rows may do to a table's columns."""

    fixed: frozenset[str]
    merge: bool
    fill: bool

    def fields(self, stored: Iterable[pa.Field], incoming: Iterable[pa.Field], parent: str) -> list[pa.Field]:
        known = {field.name: field for field in stored}
        arriving = {field.name: field for field in incoming}
        evolved = []
        for field in known.values():
            column = f"{parent}{field.name}"
            if field.name in arriving:
                evolved.append(self.field(field, arriving[field.name], column))
            else:
                self._check_missing(column, field, arriving)
                evolved.append(field)
        more = [field for name, field in arriving.items() if name not in known]
        self._check_more(more, known, parent)
        # They are null in all rows there are, whatever the frame says of them.
        return evolved + [field.with_nullable(True) for field in more]

    def field(self, stored: pa.Field, incoming: pa.Field, column: str) -> pa.Field:
        is_relaxed = self.merge and incoming.nullable and not self._is_fixed(column)
        evolved = stored.with_type(self._type(stored.type, incoming.type, column))
        return evolved.with_nullable(stored.nullable or is_relaxed)

    def _is_fixed(self, column: str) -> bool:
        """Whether it is, or holds, a column that must be there as it is."""
        return any(name == column or name.startswith(f"{column}.") for name in self.fixed)

    def _check_more(self, more: Sequence[pa.Field], known: Collection[str], parent: str) -> None:
        reserved = {} if parent else RESERVED
        check_names(more, parent=parent, taken={**reserved, **{name.lower(): name for name in known}})
        if more and not self.merge:
            names = ", ".join(repr(parent + field.name) for field in more)
            raise SchemaError(
                f"the rows to write have {names}, and the table has not: it has "
                f"{', '.join(parent + name for name in known)}. Drop what is too much, or write with "
                f"merge_schema=True (--merge-schema): that adds it to the table."
            )

    def _check_missing(self, column: str, field: pa.Field, arriving: Collection[str]) -> None:
        for name in arriving:
            if name.lower() == field.name.lower():
                raise SchemaError(
                    f"the rows to write have no column {column!r}, but one that differs in case only: {name!r}. "
                    f"Rename it to {field.name!r}."
                )
        found = f"the rows to write have no column {column!r}, and the table has one, of type {field.type}"
        if self._is_fixed(column):
            raise SchemaError(f"{found}, by which records are placed or ordered. Add the column.")
        if not field.nullable:
            raise SchemaError(
                f"{found}, which may not be null. Add the column; if it may be null after all, write rows in which it "
                f"is nullable once with merge_schema=True (--merge-schema)."
            )
        if not self.fill:
            raise SchemaError(
                f"{found}. A row replaces the stored one whole, so its value would be lost: add the column, with "
                f"lit(None).cast(...) if null is what you mean. If it is what every such row means, say so once: "
                f"table.alter(allow_missing_columns=True), or bucketlake alter --allow-missing-columns."
            )

    def _type(self, stored: pa.DataType, incoming: pa.DataType, column: str) -> pa.DataType:
        if stored == incoming:
            return stored
        if types.is_struct(stored) and types.is_struct(incoming):
            return pa.struct(self.fields(stored, incoming, f"{column}."))
        if types.is_list(stored) and types.is_list(incoming):
            return pa.list_(self.field(stored.value_field, incoming.value_field, f"{column}.element"))
        if types.is_map(stored) and types.is_map(incoming):
            return pa.map_(
                stored.key_field, self.field(stored.item_field, incoming.item_field, f"{column}.value")
            )
        if column in self.fixed:
            if types.is_int32(incoming) and types.is_int64(stored):
                return stored
            raise SchemaError(
                f"column {column!r} is {incoming} in the rows to write and {stored} in the table, where it is part of "
                f"how records are placed or ordered. Cast it to {stored} before writing."
            )
        if _may_take(stored, incoming):
            return stored
        found = f"{column!r} is {incoming} in the rows to write and {stored} in the table"
        if not _may_become(stored, incoming):
            raise SchemaError(
                f"column {found}, and neither widens to the other. Cast it to {stored} before writing, or write it "
                f"under another name."
            )
        if "." in column:
            raise SchemaError(
                f"{found}. A column of the table itself widens, but what is inside one does not: Hudi on Spark could "
                f"not read the table afterwards. Cast it to {stored} before writing, or write it under another name."
            )
        if not self.merge:
            raise SchemaError(
                f"column {found}. Cast it to {stored} before writing, or write with merge_schema=True "
                f"(--merge-schema): that widens the table's column."
            )
        return incoming


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
