"""Hudi reads our commits by the schema in them: it must be the one Hudi itself would have written."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import fastavro
import pyarrow as pa
import pytest

from bucketlake.errors import ConfigError, UnsupportedError
from bucketlake.schema import META_COLUMNS, arrow_to_avro, avro_to_arrow, storable, with_meta_columns

GOLDEN = Path(__file__).parents[2] / "golden"
TABLES = sorted(
    archive.name.removesuffix(".tar.gz") for archive in GOLDEN.glob("*.tar.gz") if "v6" not in archive.name
)


def schemas_in(folder: Path) -> set[tuple[str, str]]:
    """Return name and schema text of the tables whose commits are in a folder."""
    found = set()
    for path in folder.glob(".hoodie/timeline/*_*commit"):
        with path.open("rb") as file:
            for commit in fastavro.reader(file):
                assert isinstance(commit, dict)
                schema = (commit["extraMetadata"] or {}).get("schema")
                if schema:
                    found.add((json.loads(schema)["name"].removesuffix("_record"), schema))
    return found


@pytest.mark.parametrize("name", TABLES)
def test_every_schema_that_hudi_wrote_comes_out_as_it_went_in(
    name: str, golden_table: Callable[[str], Path]
) -> None:
    for table, schema in schemas_in(golden_table(name)):
        assert json.loads(arrow_to_avro(avro_to_arrow(schema, path=name), table=table)) == json.loads(schema)


def test_the_golden_tables_have_schemas_of_all_types(golden_table: Callable[[str], Path]) -> None:
    ((_, schema),) = schemas_in(golden_table("cow_all_types"))
    for word in ("fixed", "timestamp-micros", "local-timestamp-micros", "date", "array", "map", "record"):
        assert f'"{word}"' in schema


def test_names_inside_a_column_lead_to_it() -> None:
    inner = pa.struct([("price", pa.decimal128(9, 2)), ("maker", pa.struct([("name", pa.string())]))])
    declared = json.loads(arrow_to_avro(pa.schema([("parts", pa.list_(inner))]), table="t"))
    part = declared["fields"][0]["type"][1]["items"][1]
    price, maker = (field["type"][1] for field in part["fields"])
    assert (part["namespace"], part["name"]) == ("hoodie.t.t_record", "parts")
    assert (price["namespace"], price["name"]) == ("hoodie.t.t_record.parts.price", "fixed")
    assert (maker["namespace"], maker["name"]) == ("hoodie.t.t_record.parts", "maker")


# Right column: HoodieSchemaUtils.getRecordQualifiedName of Hudi 1.2.0.
@pytest.mark.parametrize(
    ("table", "name"),
    [
        ("orders", "hoodie.orders.orders_record"),
        ("my-orders.v2", "hoodie.my__orders__v2.my__orders__v2_record"),
        ("2024", "hoodie.__024.__024_record"),
        ("日本", "hoodie.____._____record"),
    ],
)
def test_a_table_name_becomes_an_avro_name(table: str, name: str) -> None:
    declared = json.loads(arrow_to_avro(pa.schema([("id", pa.int32())]), table=table))
    assert f"{declared['namespace']}.{declared['name']}" == name


def test_meta_columns_are_declared_as_hudi_declares_them() -> None:
    declared = json.loads(arrow_to_avro(with_meta_columns(pa.schema([("id", pa.int32())])), table="t"))
    assert declared["fields"][:5] == [
        {"name": name, "type": ["null", "string"], "doc": "", "default": None} for name in META_COLUMNS
    ]


@pytest.mark.parametrize(
    ("given", "stored"),
    [
        (pa.int8(), pa.int32()),
        (pa.int16(), pa.int32()),
        (pa.large_string(), pa.string()),
        (pa.string_view(), pa.string()),
        (pa.large_binary(), pa.binary()),
        (pa.timestamp("ms", tz="Europe/Zurich"), pa.timestamp("us", tz="UTC")),
        (pa.timestamp("s"), pa.timestamp("us")),
        (pa.large_list(pa.int16()), pa.list_(pa.field("element", pa.int32()))),
        (
            pa.map_(pa.large_string(), pa.int8()),
            pa.map_(pa.field("key", pa.string(), nullable=False), pa.field("value", pa.int32())),
        ),
    ],
)
def test_a_type_is_stored_as_the_one_a_table_has_for_it(given: pa.DataType, stored: pa.DataType) -> None:
    assert storable(pa.schema([("c", given)])) == pa.schema([("c", stored)])


@pytest.mark.parametrize(
    "kind",
    [
        pa.null(),
        pa.time64("us"),
        pa.duration("us"),
        pa.date64(),
        pa.uint64(),
        pa.float16(),
        pa.timestamp("ns"),
        pa.decimal256(40, 2),
        pa.decimal128(5, -1),
        pa.dictionary(pa.int32(), pa.string()),
        pa.binary(4),
        pa.struct([]),
        pa.map_(pa.int32(), pa.string()),
        pa.dense_union([pa.field("a", pa.int32())]),
        pa.month_day_nano_interval(),
    ],
    ids=str,
)
def test_a_type_no_table_has_is_refused_by_the_column_s_name(kind: pa.DataType) -> None:
    with pytest.raises(UnsupportedError, match=r"column 'outer\.inner'"):
        arrow_to_avro(pa.schema([("outer", pa.struct([("inner", kind)]))]), table="t")


@pytest.mark.parametrize("name", ["", "order id", "order-id", "1st", "größe", "a.b"])
def test_a_name_avro_can_not_hold_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="Rename the column") as refused:
        arrow_to_avro(pa.schema([(name, pa.int32())]), table="t")
    assert repr(name) in str(refused.value)


def test_two_columns_of_one_name_are_refused() -> None:
    with pytest.raises(ConfigError, match="'a' is there twice"):
        arrow_to_avro(pa.schema([("a", pa.int32()), ("a", pa.int32())]), table="t")
