"""Names that are two to us and one to Spark: a column that differs from another in case only cannot be read there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pyarrow as pa
from pyarrow import types

from bucketlake.errors import SchemaError
from bucketlake.schema.meta import META_COLUMNS

RESERVED: Mapping[str, str] = {name: name for name in (*META_COLUMNS, "_hoodie_operation")}
"""Lower case -> name: what no column of a table itself may be called, in whatever case."""


def check_names(
    fields: Iterable[pa.Field], *, parent: str = "", taken: Mapping[str, str] | None = None
) -> None:
    """Refuse fields of which two, or one and one of those that are `taken`, differ in case only; inside of them too.

    >>> check_names(pa.schema([("id", pa.int64()), ("place", pa.struct([("x", pa.int64()), ("X", pa.int64())]))]))
    Traceback (most recent call last):
    bucketlake.errors.SchemaError: column 'place.X' differs from 'place.x' in case only, ...
    """
    known = dict(taken or {})
    for field in fields:
        column = f"{parent}{field.name}"
        other = known.setdefault(field.name.lower(), field.name)
        if other != field.name:
            raise SchemaError(
                f"column {column!r} differs from {parent + other!r} in case only, and Spark takes the two for one: it "
                f"could not read the table. Rename or drop one of them."
            )
        check_names_inside(field.type, column)


def check_names_inside(kind: pa.DataType, column: str) -> None:
    """Refuse such fields inside a column."""
    if types.is_struct(kind):
        check_names(kind, parent=f"{column}.")
    elif types.is_list(kind) or types.is_large_list(kind):
        check_names_inside(kind.value_type, f"{column}.element")
    elif types.is_map(kind):
        check_names_inside(kind.item_type, f"{column}.value")
