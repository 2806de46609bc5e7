"""Column types must be Spark's own: another type is a cast in every task, or a failed query."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from bucketlake.errors import CorruptTableError, UnsupportedError
from bucketlake.schema import META_COLUMNS, avro_to_arrow, with_meta_columns


def record(**fields: Any) -> str:
    declared = [{"name": name, "type": type_} for name, type_ in fields.items()]
    return json.dumps({"type": "record", "name": "row", "namespace": "hoodie.t", "fields": declared})


DECIMAL = {"logicalType": "decimal", "precision": 10, "scale": 2}


@pytest.mark.parametrize(
    ("declared", "type_"),
    [
        ("boolean", pa.bool_()),
        ("int", pa.int32()),
        ("long", pa.int64()),
        ("float", pa.float32()),
        ("double", pa.float64()),
        ("bytes", pa.binary()),
        ("string", pa.string()),
        ({"type": "string", "avro.java.string": "String"}, pa.string()),
        ({"type": "string", "logicalType": "uuid"}, pa.string()),
        ({"type": "enum", "name": "e", "symbols": ["A", "B"]}, pa.string()),
        ({"type": "fixed", "name": "f", "size": 4}, pa.binary()),
        ({"type": "fixed", "name": "f", "size": 5, **DECIMAL}, pa.decimal128(10, 2)),
        ({"type": "bytes", **DECIMAL}, pa.decimal128(10, 2)),
        ({"type": "int", "logicalType": "date"}, pa.date32()),
        ({"type": "int", "logicalType": "time-millis"}, pa.int32()),
        ({"type": "long", "logicalType": "time-micros"}, pa.int64()),
        ({"type": "long", "logicalType": "timestamp-micros"}, pa.timestamp("us", tz="UTC")),
        ({"type": "long", "logicalType": "timestamp-millis"}, pa.timestamp("us", tz="UTC")),
        ({"type": "long", "logicalType": "local-timestamp-micros"}, pa.timestamp("us")),
        ({"type": "long", "logicalType": "local-timestamp-millis"}, pa.timestamp("us")),
        ({"type": "long", "logicalType": "of-a-later-avro"}, pa.int64()),
        ({"type": {"type": "long"}}, pa.int64()),
        ({"type": "array", "items": "int"}, pa.list_(pa.field("element", pa.int32(), nullable=False))),
        ({"type": "array", "items": ["null", "int"]}, pa.list_(pa.field("element", pa.int32()))),
        ({"type": "map", "values": ["string", "null"]}, pa.map_(pa.string(), pa.field("value", pa.string()))),
        (
            {"type": "record", "name": "r", "fields": [{"name": "x", "type": ["null", "int"]}]},
            pa.struct([pa.field("x", pa.int32())]),
        ),
    ],
)
def test_an_avro_type_becomes_the_type_spark_exchanges(declared: Any, type_: pa.DataType) -> None:
    (field,) = avro_to_arrow(record(c=declared), path="f")
    assert field == pa.field("c", type_, nullable=False)


@pytest.mark.parametrize("union", [["null", "long"], ["long", "null"], [{"type": "null"}, "long"]])
def test_a_union_with_null_is_a_nullable_column(union: Any) -> None:
    assert avro_to_arrow(record(c=union), path="f").field("c") == pa.field("c", pa.int64())


def test_a_type_is_found_by_its_name_in_its_namespace() -> None:
    fixed = {"type": "fixed", "name": "money", "size": 5, **DECIMAL}
    schema = avro_to_arrow(record(a=fixed, b=["null", "money"], c="hoodie.t.money"), path="f")
    assert schema.types == [pa.decimal128(10, 2)] * 3


def test_two_columns_may_each_have_a_fixed_type_of_the_same_short_name() -> None:
    """Hudi names every decimal `fixed`, in a namespace per column."""
    schema = avro_to_arrow(
        record(
            a={"type": "fixed", "name": "fixed", "namespace": "hoodie.t.a", "size": 5, **DECIMAL},
            b={"type": "fixed", "name": "fixed", "namespace": "hoodie.t.b", "size": 2},
        ),
        path="f",
    )
    assert schema.types == [pa.decimal128(10, 2), pa.binary()]


@pytest.mark.parametrize(
    ("declared", "words"),
    [
        (["int", "string"], "union of 2 types"),
        ({"type": "array", "items": ["null", "int", "string"]}, "union of 2 types"),
        ("null", "null only"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 39}, "39 digits"),
        ({"type": "record", "name": "r", "fields": []}, "without fields"),
        ({"type": "record", "name": "r", "fields": [{"name": "x", "type": ["null", "r"]}]}, "inside itself"),
    ],
)
def test_a_type_we_do_not_have_is_an_error_that_names_the_column(declared: Any, words: str) -> None:
    with pytest.raises(UnsupportedError, match="column 'c") as caught:
        avro_to_arrow(record(c=declared), path="some.log")
    assert words in str(caught.value)
    assert "some.log" in str(caught.value)


@pytest.mark.parametrize(
    "declared",
    [
        "money",
        42,
        {"items": "int"},
        ["null"],
        ["null", "null", "int"],
        ["null", ["int"]],
        {"type": "fixed", "name": "f", "size": -1},
        {"type": "enum", "name": "e"},
        {"type": "record", "name": "r"},
        {"type": "bytes", "logicalType": "decimal"},
        {"type": "record", "name": "r", "fields": [{"name": "x", "type": "int"}] * 2},
    ],
)
def test_a_type_that_is_no_avro_is_an_error_that_names_the_column(declared: Any) -> None:
    with pytest.raises(CorruptTableError, match="'c'"):
        avro_to_arrow(record(c=declared), path="some.log")


@pytest.mark.parametrize("text", ["", "{", '"int"', "[" * 100_000, '{"type": "array", "items": "int"}'])
def test_a_schema_that_is_no_record_is_an_error_that_names_the_file(text: str) -> None:
    with pytest.raises(CorruptTableError, match=r"some\.log"):
        avro_to_arrow(text, path="some.log")


def test_meta_columns_stand_in_front_once() -> None:
    schema = with_meta_columns(pa.schema([("id", pa.int64()), ("_hoodie_file_name", pa.string())]))
    assert schema.names == [*META_COLUMNS, "id"]
    assert all(schema.field(name) == pa.field(name, pa.string()) for name in META_COLUMNS)
