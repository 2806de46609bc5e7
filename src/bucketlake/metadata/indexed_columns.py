"""Which columns Hudi keeps statistics of, as `.hoodie/.index_defs/index.json` says.

    {"indexDefinitions": {"column_stats": {"sourceFields": ["_hoodie_record_key", ..., "id", ...], "version": "V2"}}}

Unless it is told columns by name, Hudi takes the first that have a type with an order, up to a number of them, and adds
those that a schema gains. It does so when it writes next; a file that we write before that must have them already,
for Hudi takes a column that a file has no range of, beside columns that it has, for one of nulls.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from pyarrow import types

from bucketlake.layout.names import INDEX_DEFINITIONS_PATH
from bucketlake.metadata.column_stats import Kind, ValueType
from bucketlake.metadata.places import COLUMN_STATS
from bucketlake.schema import META_COLUMNS, AvroKind, AvroNode
from bucketlake.storage import Store

_VERSION = "V2"
_COLUMNS_MAX = 32
"""What Hudi takes at most, unless it is told otherwise."""


def indexed_columns(store: Store) -> tuple[str, ...] | None:
    """Name the columns that a table has statistics of; None if it is not said, or not in a way that we can follow."""
    try:
        said = json.loads(store.read(INDEX_DEFINITIONS_PATH))["indexDefinitions"][COLUMN_STATS]
        columns, version = said["sourceFields"], said["version"]
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None
    is_readable = isinstance(columns, list) and all(isinstance(name, str) for name in columns)
    if not is_readable or not columns or version != _VERSION or any("." in name for name in columns):
        return None
    return tuple(columns)


def described_columns(indexed: Sequence[str], schema: AvroNode) -> dict[str, ValueType]:
    """Choose the columns that files of a schema get ranges of, with their types."""
    known = {field.name: value_type for field in schema.children if (value_type := value_type_of(field))}
    first = [name for name in known if name not in META_COLUMNS][:_COLUMNS_MAX]
    named = [name for name in indexed if name not in META_COLUMNS]
    own = first if named == first[: len(named)] else [name for name in named if name in known]
    text = ValueType(Kind.STRING)
    return {name: text for name in indexed if name in META_COLUMNS} | {name: known[name] for name in own}


def value_type_of(field: AvroNode) -> ValueType | None:
    """Return how Hudi calls the type of a column; None if it keeps no ranges of such columns."""
    if field.kind in (AvroKind.DECIMAL_BYTES, AvroKind.DECIMAL_FIXED):
        return ValueType(Kind.DECIMAL, f"{field.type.precision},{field.type.scale}")
    if types.is_timestamp(field.type):
        is_millis = field.wire_type.unit == "ms" if types.is_timestamp(field.wire_type) else False
        if field.type.tz is None:
            return ValueType(Kind.LOCAL_TIMESTAMP_MILLIS if is_millis else Kind.LOCAL_TIMESTAMP_MICROS)
        return ValueType(Kind.TIMESTAMP_MILLIS if is_millis else Kind.TIMESTAMP_MICROS)
    if types.is_date32(field.type):
        return ValueType(Kind.DATE)
    if field.kind is AvroKind.BYTES and types.is_string(field.type):
        return ValueType(Kind.STRING)
    kind = _KINDS.get(field.kind)
    return None if kind is None else ValueType(kind)


_KINDS: Mapping[AvroKind, Kind] = {
    AvroKind.BOOLEAN: Kind.BOOLEAN,
    AvroKind.INT: Kind.INT,
    AvroKind.LONG: Kind.LONG,
    AvroKind.FLOAT: Kind.FLOAT,
    AvroKind.DOUBLE: Kind.DOUBLE,
    AvroKind.BYTES: Kind.BYTES,
    AvroKind.FIXED: Kind.FIXED,
}
