"""Arrow types in Spark's words.

Spark is told schemas as DDL text, which both classic sessions and Spark
Connect take, so nothing here needs a session.
"""

from __future__ import annotations

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


_PLAIN = {
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


def _spark_type(kind: pa.DataType, column: str) -> str:
    if kind in _PLAIN:
        return _PLAIN[kind]
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
