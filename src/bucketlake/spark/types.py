"""Arrow types in Spark's words, and Spark's in Arrow's.

Spark is told schemas as DDL text, which both classic sessions and Spark
Connect take, and tells its own as JSON; so nothing here needs a session.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from bucketlake.errors import UnsupportedError


def ddl(schema: pa.Schema) -> str:
    """Spell a schema as Spark DDL.

    >>> ddl(pa.schema([("id", pa.int64()), ("tags", pa.list_(pa.string()))]))
    '`id` BIGINT, `tags` ARRAY<STRING>'
    """
    return ", ".join(f"{quoted(field.name)} {_spark_type(field.type, field.name)}" for field in schema)


def quoted(name: str) -> str:
    """Quote a column name, so that dots and spaces in it mean nothing."""
    return "`" + name.replace("`", "``") + "`"


def path_for_spark(path: Path) -> str:
    """Spell a local path for Spark's readers, which take some characters for a pattern.

    >>> path_for_spark(Path("/data/2024 [old]"))
    'file:///data/2024 \\\\[old\\\\]'
    """
    return f"file://{escaped_for_glob(str(path))}"


def escaped_for_glob(path: str) -> str:
    """Spell a path so that Hadoop takes every character for itself."""
    return _GLOB_CHARACTERS.sub(r"\\\g<0>", path)


_GLOB_CHARACTERS = re.compile(r"[{}\[\]*?\\]")

PLAIN = {
    pa.bool_(): "BOOLEAN",
    pa.int8(): "TINYINT",
    pa.int16(): "SMALLINT",
    pa.int32(): "INT",
    pa.int64(): "BIGINT",
    pa.float32(): "FLOAT",
    pa.float64(): "DOUBLE",
    pa.string(): "STRING",
    pa.binary(): "BINARY",
    pa.date32(): "DATE",
    pa.timestamp("us", tz="UTC"): "TIMESTAMP",
    pa.timestamp("us"): "TIMESTAMP_NTZ",
}
"""Types that are one word to Spark."""


def arrow_schema(fields: Mapping[str, Any]) -> pa.Schema:
    """Return the columns of a frame, given `frame.schema.jsonValue()`.

    >>> arrow_schema({"fields": [{"name": "id", "type": "long", "nullable": False, "metadata": {}}]})
    id: int64 not null
    """
    return pa.schema([_arrow_field(column, column["name"]) for column in fields["fields"]])


_BY_WORD = {
    "boolean": pa.bool_(),
    "byte": pa.int8(),
    "short": pa.int16(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}


def _arrow_field(column: Mapping[str, Any], path: str) -> pa.Field:
    return pa.field(column["name"], _arrow_type(column["type"], path), nullable=column["nullable"])


def _arrow_type(kind: Any, path: str) -> pa.DataType:
    if isinstance(kind, str):
        if kind in _BY_WORD:
            return _BY_WORD[kind]
        if kind.startswith("decimal("):
            precision, scale = kind.removeprefix("decimal(").removesuffix(")").split(",")
            return pa.decimal128(int(precision), int(scale))
        if kind.startswith(("string ", "char(", "varchar(")):
            return pa.string()
    elif kind["type"] == "struct":
        return pa.struct([_arrow_field(inner, f"{path}.{inner['name']}") for inner in kind["fields"]])
    elif kind["type"] == "array":
        element = _arrow_type(kind["elementType"], path)
        return pa.list_(pa.field("element", element, nullable=kind["containsNull"]))
    elif kind["type"] == "map":
        key, value = _arrow_type(kind["keyType"], path), _arrow_type(kind["valueType"], path)
        return pa.map_(key, pa.field("value", value, nullable=kind["valueContainsNull"]))
    raise UnsupportedError(
        subject=f"the type of column {path!r}",
        found=kind if isinstance(kind, str) else str(kind.get("type")),
        supported="the types that a Hudi table has",
        remedy="Cast the column, or leave it out of the frame.",
    )


def _spark_type(kind: pa.DataType, column: str) -> str:
    if kind in PLAIN:
        return PLAIN[kind]
    if pa.types.is_decimal128(kind):
        return f"DECIMAL({kind.precision},{kind.scale})"
    if pa.types.is_list(kind):
        return f"ARRAY<{_spark_type(kind.value_type, column)}>"
    if pa.types.is_map(kind):
        return f"MAP<{_spark_type(kind.key_type, column)}, {_spark_type(kind.item_type, column)}>"
    if pa.types.is_struct(kind):
        return f"STRUCT<{', '.join(f'{quoted(f.name)}: {_spark_type(f.type, column)}' for f in kind)}>"
    raise UnsupportedError(
        subject=f"the type of column {column!r}",
        found=str(kind),
        supported="the types that Spark SQL has",
        remedy="Leave the column out with columns=[...], or read it with Table.to_arrow.",
    )
