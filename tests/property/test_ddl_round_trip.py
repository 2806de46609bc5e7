"""What is spelled as DDL is read back as it was, for every schema a table can have."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given

from bucketlake.spark import ddl, parse_ddl
from bucketlake.testing.tables import schemas


def nullable(kind: pa.DataType) -> pa.DataType:
    """The type without what DDL does not say: which parts of it may not be null."""
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(part.name, nullable(part.type)) for part in kind])
    if pa.types.is_list(kind):
        return pa.list_(pa.field("element", nullable(kind.value_type)))
    if pa.types.is_map(kind):
        return pa.map_(nullable(kind.key_type), nullable(kind.item_type))
    return kind


@given(schemas())
def test_a_schema_survives_being_spelled_as_ddl(schema: pa.Schema) -> None:
    expected = pa.schema([pa.field(column.name, nullable(column.type)) for column in schema])
    assert parse_ddl(ddl(schema)) == expected
