"""Avro schemas: a tree of nodes, and the Arrow type each one becomes.

The Arrow types are the ones Spark exchanges with Python, so a column never
needs a second conversion on its way to a DataFrame:

    boolean int long float double      bool int32 int64 float32 float64
    bytes, fixed                       binary
    string, enum, uuid                 string
    decimal (bytes or fixed)           decimal128(precision, scale)
    date                               date32
    timestamp-millis, -micros          timestamp[us, UTC]
    local-timestamp-millis, -micros    timestamp[us]
    time-millis, time-micros           int32, int64       (Spark shows Hudi's times as numbers)
    array, map, record                 list, map, struct
    ["null", T], [T, "null"]           T, nullable

A logical type that is not in the list is ignored, as Avro prescribes: the
column has the type beneath it. Defaults are not read: Hudi fills an added
column with nulls.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import IntEnum
from functools import lru_cache
from typing import Any

import pyarrow as pa

from bucketlake.errors import BucketlakeError, CorruptTableError, UnsupportedError

_DECIMAL_DIGITS_MAX = 38
_UTC_MICROS = pa.timestamp("us", tz="UTC")
_LOCAL_MICROS = pa.timestamp("us")


class AvroKind(IntEnum):
    """How a value is encoded. The numbers are opcodes of the column decoder."""

    BOOLEAN = 0
    INT = 1
    LONG = 2
    FLOAT = 3
    DOUBLE = 4
    BYTES = 5
    FIXED = 6
    ENUM = 7
    DECIMAL_BYTES = 8
    DECIMAL_FIXED = 9
    RECORD = 10
    ARRAY = 11
    MAP = 12
    UNION = 13


@dataclass(frozen=True, slots=True)
class AvroNode:
    """One place in a schema where a value stands."""

    name: str
    """The field's name; `element`, `key`, `value` or `member<n>` inside a container."""
    kind: AvroKind
    type: pa.DataType
    """What the values are for the rest of the program."""
    wire_type: pa.DataType
    """What the encoded values are, where that differs: milliseconds, or the index of a symbol."""
    nullable: bool
    branches: int = 0
    """Number of branches of the union around the value; 0 if there is none."""
    null_branch: int = -1
    """Which of them is null; -1 if none is."""
    size: int = 0
    """Bytes of a FIXED or DECIMAL_FIXED; number of symbols of an ENUM."""
    symbols: tuple[str, ...] = ()
    children: tuple[AvroNode, ...] = ()
    """Fields of a RECORD, the element of an ARRAY, key and value of a MAP, non-null members of a UNION."""

    @property
    def field(self) -> pa.Field:
        return pa.field(self.name, self.type, nullable=self.nullable)


def parse_avro(schema_json: str, *, path: str) -> AvroNode:
    """Read the schema of a record into a tree.

    A union of several types becomes a UNION node, a struct with one nullable field per type; everything
    else has its place in the table above. `path` names the file in errors.
    """
    try:
        return _parse(schema_json)
    except _SchemaError as fault:
        raise fault.in_file(path) from fault


class _SchemaError(Exception):
    """What is wrong with a schema, before it is said in which file.

    Files of a table share a few schemas, which are therefore parsed without knowing the file.
    """

    def __init__(self, in_file: Callable[[str], BucketlakeError]) -> None:
        self.in_file = in_file
        super().__init__()


@lru_cache(maxsize=256)
def _parse(schema_json: str) -> AvroNode:
    try:
        declared = json.loads(schema_json)
        root = _Parser().node("", declared, namespace="", column="")
    except (ValueError, RecursionError) as error:
        raise _corrupt("", f"a schema that does not parse ({error})") from error
    if root.kind is not AvroKind.RECORD or root.branches:
        raise _corrupt("", f"a schema of type {declared!r:.80} instead of a record")
    return root


def avro_to_arrow(schema_json: str, *, path: str) -> pa.Schema:
    """Return the Arrow schema of an Avro record; an error names the column at fault.

    >>> row = '{"type": "record", "name": "row", "fields": [{"name": "id", "type": ["null", "long"]}]}'
    >>> avro_to_arrow(row, path="a log file")
    id: int64
    """
    root = parse_avro(schema_json, path=path)
    for child in root.children:
        _refuse_unions(child, child.name, path)
    return pa.schema([child.field for child in root.children])


def _refuse_unions(node: AvroNode, column: str, path: str) -> None:
    if node.kind is AvroKind.UNION:
        raise UnsupportedError(
            subject=f"column {column!r} in {path}",
            found=f"a union of {len(node.children)} types",
            supported="a type, or a type and null",
            remedy="Rewrite the column with one type.",
        )
    for child in node.children:
        _refuse_unions(child, f"{column}.{child.name}", path)


_PRIMITIVES: dict[str, tuple[AvroKind, pa.DataType]] = {
    "boolean": (AvroKind.BOOLEAN, pa.bool_()),
    "int": (AvroKind.INT, pa.int32()),
    "long": (AvroKind.LONG, pa.int64()),
    "float": (AvroKind.FLOAT, pa.float32()),
    "double": (AvroKind.DOUBLE, pa.float64()),
    "bytes": (AvroKind.BYTES, pa.binary()),
    "string": (AvroKind.BYTES, pa.string()),
}

# (type, logical type) -> (Arrow type, Arrow type of the encoded numbers)
_LOGICAL: dict[tuple[str, str], tuple[pa.DataType, pa.DataType]] = {
    ("int", "date"): (pa.date32(), pa.date32()),
    ("long", "timestamp-micros"): (_UTC_MICROS, _UTC_MICROS),
    ("long", "timestamp-millis"): (_UTC_MICROS, pa.timestamp("ms", tz="UTC")),
    ("long", "local-timestamp-micros"): (_LOCAL_MICROS, _LOCAL_MICROS),
    ("long", "local-timestamp-millis"): (_LOCAL_MICROS, pa.timestamp("ms")),
}


class _Parser:
    """Turns declarations into nodes, remembering the types that were given a name."""

    def __init__(self) -> None:
        self._named: dict[str, AvroNode | None] = {}
        """By full name; None while the type is being read, so that a type inside itself is noticed."""

    def node(self, name: str, declared: Any, *, namespace: str, column: str) -> AvroNode:
        if isinstance(declared, list):
            return self._union(name, declared, namespace=namespace, column=column)
        if isinstance(declared, str):
            if declared in _PRIMITIVES:
                kind, arrow = _PRIMITIVES[declared]
                return _leaf(name, kind, arrow)
            return self._reference(name, declared, namespace=namespace, column=column)
        if not isinstance(declared, dict):
            raise _corrupt(column, f"the declaration {declared!r:.80}")
        match declared.get("type"):
            case "record" | "error":
                return self._record(name, declared, namespace=namespace, column=column)
            case "array":
                element = self.node(
                    "element", declared.get("items"), namespace=namespace, column=f"{column}.element"
                )
                arrow = pa.list_(element.field)
                return AvroNode(name, AvroKind.ARRAY, arrow, arrow, False, children=(element,))
            case "map":
                key = _leaf("key", AvroKind.BYTES, pa.string())
                value = self.node(
                    "value", declared.get("values"), namespace=namespace, column=f"{column}.value"
                )
                arrow = pa.map_(key.field, value.field)
                return AvroNode(name, AvroKind.MAP, arrow, arrow, False, children=(key, value))
            case "enum":
                return self._enum(name, declared, namespace=namespace, column=column)
            case "fixed":
                return self._fixed(name, declared, namespace=namespace, column=column)
            case str(primitive) if primitive in _PRIMITIVES:
                return self._primitive(name, primitive, declared, column=column)
            case inner:
                # {"type": <a whole declaration>}: one wrapping too many, which Avro allows.
                return self.node(name, inner, namespace=namespace, column=column)

    def _primitive(self, name: str, primitive: str, declared: dict[str, Any], *, column: str) -> AvroNode:
        logical = declared.get("logicalType")
        if primitive == "bytes" and logical == "decimal":
            return _leaf(name, AvroKind.DECIMAL_BYTES, self._decimal(declared, column))
        kind, arrow = _PRIMITIVES[primitive]
        arrow, wire = _LOGICAL.get((primitive, str(logical)), (arrow, arrow))
        return replace(_leaf(name, kind, arrow), wire_type=wire)

    def _decimal(self, declared: dict[str, Any], column: str) -> pa.DataType:
        precision, scale = declared.get("precision"), declared.get("scale", 0)
        if not isinstance(precision, int) or not isinstance(scale, int) or not 0 <= scale <= precision:
            raise _corrupt(column, f"a decimal of precision {precision!r} and scale {scale!r}")
        if not 0 < precision <= _DECIMAL_DIGITS_MAX:
            raise _unsupported(
                column, f"a decimal of {precision} digits", f"decimals of up to {_DECIMAL_DIGITS_MAX} digits"
            )
        return pa.decimal128(precision, scale)

    def _record(self, name: str, declared: dict[str, Any], *, namespace: str, column: str) -> AvroNode:
        full_name, inner_namespace = _full_name(declared, namespace)
        fields = declared.get("fields")
        if not isinstance(fields, list) or not all(
            isinstance(field, dict) and isinstance(field.get("name"), str) for field in fields
        ):
            raise _corrupt(column, "a record without a list of named fields")
        if not fields and column:
            raise _unsupported(column, "a record without fields", "records with fields")
        self._named[full_name] = None
        children = tuple(
            self.node(
                field["name"],
                field.get("type"),
                namespace=inner_namespace,
                column=f"{column}.{field['name']}" if column else field["name"],
            )
            for field in fields
        )
        names = [child.name for child in children]
        if len(set(names)) != len(names):
            raise _corrupt(column, f"a record that names a field twice: {names}")
        arrow = pa.struct([child.field for child in children])
        node = AvroNode(name, AvroKind.RECORD, arrow, arrow, False, children=children)
        self._named[full_name] = node
        return node

    def _enum(self, name: str, declared: dict[str, Any], *, namespace: str, column: str) -> AvroNode:
        symbols = declared.get("symbols")
        if not isinstance(symbols, list) or not all(isinstance(symbol, str) for symbol in symbols):
            raise _corrupt(column, "an enum without a list of symbols")
        node = AvroNode(
            name,
            AvroKind.ENUM,
            pa.string(),
            pa.int32(),
            False,
            size=len(symbols),
            symbols=tuple(symbols),
        )
        self._named[_full_name(declared, namespace)[0]] = node
        return node

    def _fixed(self, name: str, declared: dict[str, Any], *, namespace: str, column: str) -> AvroNode:
        size = declared.get("size")
        if not isinstance(size, int) or size <= 0:
            raise _corrupt(column, f"a fixed of {size!r} bytes")
        if declared.get("logicalType") == "decimal":
            node = _leaf(name, AvroKind.DECIMAL_FIXED, self._decimal(declared, column))
        else:
            node = _leaf(name, AvroKind.FIXED, pa.binary())
        node = replace(node, size=size)
        self._named[_full_name(declared, namespace)[0]] = node
        return node

    def _reference(self, name: str, declared: str, *, namespace: str, column: str) -> AvroNode:
        full_name = declared if "." in declared or not namespace else f"{namespace}.{declared}"
        found = full_name if full_name in self._named else declared
        if found not in self._named:
            if declared == "null":
                raise _unsupported(column, "of type null only", "columns with values")
            raise _corrupt(column, f"the unknown type {declared!r}")
        node = self._named[found]
        if node is None:
            raise _unsupported(column, "a record inside itself", "records of finite depth")
        return replace(node, name=name)

    def _union(self, name: str, declared: list[Any], *, namespace: str, column: str) -> AvroNode:
        null_branches = [
            index for index, branch in enumerate(declared) if branch in ("null", {"type": "null"})
        ]
        members = [branch for index, branch in enumerate(declared) if index not in null_branches]
        if len(null_branches) > 1 or not members:
            raise _corrupt(column, f"the union {declared!r:.80}")
        null_branch = null_branches[0] if null_branches else -1
        if len(members) == 1:
            inner = self.node(name, members[0], namespace=namespace, column=column)
            if inner.branches:
                raise _corrupt(column, "a union right inside a union")
            return _in_union(inner, len(declared), null_branch)
        children = tuple(
            replace(
                self.node(f"member{index}", member, namespace=namespace, column=f"{column}.member{index}"),
                nullable=True,
            )
            for index, member in enumerate(members)
        )
        arrow = pa.struct([child.field for child in children])
        union = AvroNode(name, AvroKind.UNION, arrow, arrow, False, children=children)
        return _in_union(union, len(declared), null_branch)


def _corrupt(column: str, found: str) -> _SchemaError:
    where = f" for column {column!r}" if column else ""
    return _SchemaError(
        lambda path: CorruptTableError(
            path=path,
            found=f"{found}{where}",
            expected="an Avro schema",
            remedy="Restore the file from a copy.",
        )
    )


def _unsupported(column: str, found: str, supported: str) -> _SchemaError:
    return _SchemaError(
        lambda path: UnsupportedError(
            subject=f"column {column!r} in {path}",
            found=found,
            supported=supported,
            remedy="Rewrite the column with another type.",
        )
    )


def _leaf(name: str, kind: AvroKind, arrow: pa.DataType) -> AvroNode:
    return AvroNode(name, kind, arrow, arrow, False)


def _in_union(node: AvroNode, branches: int, null_branch: int) -> AvroNode:
    return replace(node, branches=branches, null_branch=null_branch, nullable=null_branch >= 0)


def _full_name(declared: dict[str, Any], namespace: str) -> tuple[str, str]:
    """Return the full name of a named type, and the namespace its own fields are read in."""
    name = str(declared.get("name", ""))
    if "." in name:
        return name, name.rpartition(".")[0]
    own = str(declared.get("namespace", namespace))
    return (f"{own}.{name}" if own else name), own
