"""Arrow schemas as the Avro schemas that Hudi keeps: the mirror of `avro`.

A table's types are the ones `avro` reads. `storable` says which of them a
column becomes, and `arrow_to_avro` declares the result as Hudi's Spark writer
would, names included:

    the record                  <table>_record       in  hoodie.<table>
    the struct of a column      <column>             in  hoodie.<table>.<table>_record
    the decimal of a column     fixed                in  hoodie.<table>.<table>_record.<column>
    a field that may be null    ["null", T], default null

Structs inside structs go on in the same way. An array or map has the name of
its column for what is inside it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

import pyarrow as pa
from pyarrow import types

from bucketlake.errors import ConfigError, UnsupportedError
from bucketlake.schema.meta import META_COLUMNS

_DECIMAL_DIGITS_MAX = 38
_AVRO_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_FRACTIONS = {"s": 0, "ms": 3, "us": 6}


def arrow_to_avro(schema: pa.Schema, *, table: str) -> str:
    """Return the Avro schema, as JSON, of the rows of a table named `table`.

    A column that can't be stored raises `UnsupportedError`, and a name that Avro does not allow `ConfigError`;
    both name the column.

    >>> arrow_to_avro(pa.schema([pa.field("id", pa.int64(), nullable=False)]), table="t")
    '{"type":"record","name":"t_record","namespace":"hoodie.t","fields":[{"name":"id","type":"long"}]}'
    """
    name = _sanitized(table)
    declared = _record(f"{name}_record", f"hoodie.{name}", storable(schema))
    for field in declared["fields"]:
        if field["name"] in META_COLUMNS:
            field["doc"] = ""  # as Hudi has it; some of its comparisons are of text
    return json.dumps(declared, separators=(",", ":"))


def storable(schema: pa.Schema) -> pa.Schema:
    """Return `schema` with the types a table keeps: no small integers, no large text, UTC microseconds.

    >>> storable(pa.schema([("n", pa.int8()), ("words", pa.list_(pa.large_string()))]))
    n: int32
    words: list<element: string>
      child 0, element: string
    """
    return pa.schema(_storable_fields(schema, ""))


def _storable_fields(fields: Iterable[pa.Field], parent: str) -> list[pa.Field]:
    stored = []
    names: set[str] = set()
    for field in fields:
        column = f"{parent}.{field.name}" if parent else field.name
        if not _AVRO_NAME.fullmatch(field.name):
            raise ConfigError(
                f"column {column!r} has a name that Hudi's tables can't hold: found {field.name!r}, expected a "
                f"letter or _, then letters, digits and _. Rename the column, for example to "
                f"{_sanitized(field.name or '_')!r}."
            )
        if field.name in names:
            raise ConfigError(f"column {column!r} is there twice. Rename or drop one of the two.")
        names.add(field.name)
        stored.append(pa.field(field.name, _storable(field.type, column), nullable=field.nullable))
    return stored


_SAME = {
    pa.bool_(): pa.bool_(),
    pa.int8(): pa.int32(),
    pa.int16(): pa.int32(),
    pa.int32(): pa.int32(),
    pa.int64(): pa.int64(),
    pa.float32(): pa.float32(),
    pa.float64(): pa.float64(),
    pa.string(): pa.string(),
    pa.large_string(): pa.string(),
    pa.string_view(): pa.string(),
    pa.binary(): pa.binary(),
    pa.large_binary(): pa.binary(),
    pa.binary_view(): pa.binary(),
    pa.date32(): pa.date32(),
}


def _storable(kind: pa.DataType, column: str) -> pa.DataType:
    if kind in _SAME:
        return _SAME[kind]
    if types.is_decimal(kind) and 0 <= kind.scale <= kind.precision <= _DECIMAL_DIGITS_MAX:
        return pa.decimal128(kind.precision, kind.scale)
    if types.is_timestamp(kind) and kind.unit in _FRACTIONS:
        return pa.timestamp("us", tz="UTC" if kind.tz else None)
    if types.is_list(kind) or types.is_large_list(kind):
        element = _storable(kind.value_type, f"{column}.element")
        return pa.list_(pa.field("element", element, nullable=kind.value_field.nullable))
    if types.is_map(kind):
        if _SAME.get(kind.key_type) != pa.string():
            raise _unsupported(column, f"a map with keys of type {kind.key_type}", "Make the keys text.")
        value = pa.field(
            "value", _storable(kind.item_type, f"{column}.value"), nullable=kind.item_field.nullable
        )
        return pa.map_(pa.field("key", pa.string(), nullable=False), value)
    if types.is_struct(kind) and kind.num_fields:
        return pa.struct(_storable_fields(kind, column))
    remedy = "Cast it to one of them before writing."
    if types.is_timestamp(kind):
        remedy = "Cast it to microseconds; what is finer than that would be lost."
    raise _unsupported(column, f"of type {kind}", remedy)


def _record(name: str, namespace: str, fields: Iterable[pa.Field]) -> dict[str, Any]:
    inner = f"{namespace}.{name}"
    return {
        "type": "record",
        "name": name,
        "namespace": namespace,
        "fields": [_field(field, inner) for field in fields],
    }


def _field(field: pa.Field, namespace: str) -> dict[str, Any]:
    declared = {"name": field.name, "type": _declared(field, field.name, namespace)}
    if field.nullable:
        declared["default"] = None
    return declared


_DECLARED: dict[pa.DataType, Any] = {
    pa.bool_(): "boolean",
    pa.int32(): "int",
    pa.int64(): "long",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.string(): "string",
    pa.binary(): "bytes",
    pa.date32(): {"type": "int", "logicalType": "date"},
    pa.timestamp("us", tz="UTC"): {"type": "long", "logicalType": "timestamp-micros"},
    pa.timestamp("us"): {"type": "long", "logicalType": "local-timestamp-micros"},
}


def _declared(field: pa.Field, name: str, namespace: str) -> Any:
    """Declare a field's type; `name` and `namespace` are those of the column around it."""
    kind = field.type
    declared: Any
    if types.is_decimal(kind):
        declared = {
            "type": "fixed",
            "name": "fixed",
            "namespace": f"{namespace}.{name}",
            "size": decimal_bytes(kind.precision),
            "logicalType": "decimal",
            "precision": kind.precision,
            "scale": kind.scale,
        }
    elif types.is_list(kind):
        declared = {"type": "array", "items": _declared(kind.value_field, name, namespace)}
    elif types.is_map(kind):
        declared = {"type": "map", "values": _declared(kind.item_field, name, namespace)}
    elif types.is_struct(kind):
        declared = _record(name, namespace, kind)
    else:
        declared = _DECLARED[kind]
    return ["null", declared] if field.nullable else declared


def decimal_bytes(precision: int) -> int:
    """Return how many bytes hold every decimal of `precision` digits, and its sign.

    >>> [decimal_bytes(digits) for digits in (1, 2, 3, 10, 38)]
    [1, 1, 2, 5, 16]
    """
    return int((10**precision - 1).bit_length()) // 8 + 1


def _sanitized(name: str) -> str:
    """Make a name one that Avro allows, as Hudi does (`HoodieSchemaUtils.sanitizeName`).

    >>> [_sanitized(name) for name in ("orders", "my-orders", "2orders")]
    ['orders', 'my__orders', '__orders']
    """
    return re.sub(r"^[^A-Za-z_]|[^A-Za-z0-9_]", "__", name)


def _unsupported(column: str, found: str, remedy: str) -> UnsupportedError:
    return UnsupportedError(
        subject=f"column {column!r}",
        found=found,
        supported="boolean, signed integers, float, double, decimals of up to 38 digits, text, binary, date, "
        "timestamps down to microseconds, and arrays, maps and structs of these",
        remedy=remedy,
    )
