"""An index that a table cannot have is refused before anything is written, with what can be done instead."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from bucketlake import DynamicBuckets, RecordIndex, SimpleBuckets, Table, create_table
from bucketlake.config import update_properties
from bucketlake.errors import BucketlakeError, ConcurrentWriteError, ConfigError, UnsupportedError
from bucketlake.metadata.secondary_index import SecondaryIndexDefinition
from bucketlake.services.secondary_index_build import build_secondary_index
from stand_ins.built_index import CountedTasks, filled, table_of
from stand_ins.made_index import check_secondary
from stand_ins.orders_table import orders

pytestmark = pytest.mark.shows("R11")

SCHEMA = pa.schema([
    ("id", pa.int64()),
    ("city", pa.string()),
    ("address", pa.struct([("street", pa.string())])),
    ("tags", pa.list_(pa.string())),
    ("is_new", pa.bool_()),
    ("price", pa.decimal128(10, 2)),
    ("raw", pa.binary()),
    ("at", pa.timestamp("us", tz="UTC")),
    ("ts", pa.int64()),
    ("dt", pa.string()),
])  # fmt: skip


@pytest.fixture(scope="module")
def table() -> Table:
    made = create_table("memory://refused", SCHEMA, key="id", partition="dt", ordering="ts", buckets=1)
    made.upsert(
        pa.Table.from_pylist(
            [
                {"id": n, "city": "Oslo", "ts": 1, "dt": "p", "at": datetime(2026, 6, 18, tzinfo=UTC)}
                for n in range(3)
            ],
            SCHEMA,
        )
    )
    made.metadata.build(record_index=True)
    made.create_index("by_city", on="city")
    return made


def files_of(table: Table) -> dict[str, int]:
    return {file.path: file.size_bytes for file in table.store.list("", recursive=True).files}


@pytest.mark.parametrize(
    ("name", "on", "kind", "said"),
    [
        ("x", "town", ConfigError, r"no column 'town' that could be indexed. Its columns are id, city, .*dt\."),
        ("x", "address.street", ConfigError, "no column 'address.street'.*: a field inside of a column cannot be"),
        ("x", "City", ConfigError, "no column 'City'"),
        ("x", "_hoodie_record_key", ConfigError, "no column '_hoodie_record_key'"),
        ("x", "dt", ConfigError, "'dt' is a partition column .*reads only its partitions"),
        ("x", "address", UnsupportedError, "the type struct.*supports text, whole numbers, .*dates and timestamps"),
        ("x", "tags", UnsupportedError, "the type list"),
        ("x", "is_new", UnsupportedError, "the type bool"),
        ("x", "price", UnsupportedError, "the type decimal"),
        ("x", "raw", UnsupportedError, "the type binary"),
        ("", "at", ConfigError, "an index cannot be called ''; expected at most 128 letters"),
        ("a/b", "at", ConfigError, "an index cannot be called 'a/b'"),
        ("a.b", "at", ConfigError, "an index cannot be called 'a.b'"),
        ("a,b", "at", ConfigError, "an index cannot be called 'a,b'"),
        ("-a", "at", ConfigError, "an index cannot be called '-a'"),
        ("ort\N{LATIN SMALL LETTER E WITH ACUTE}", "at", ConfigError, "an index cannot be called"),
        ("a" * 129, "at", ConfigError, "an index cannot be called"),
        ("by_city", "city", ConfigError, "has the index 'by_city' of 'city' already"),
        ("by_city", "at", ConfigError, r"an index 'by_city' of 'city', not of 'at'. .*table.drop_index\('by_city'\)"),
        ("by_town", "city", ConfigError, "has an index of 'city' already, called 'by_city'"),
        (7, "at", ConfigError, "the name of the index is 7"),
        ("x", ["at"], ConfigError, "on, the column to be indexed, is"),
    ],
)  # fmt: skip
def test_what_cannot_be_indexed(
    table: Table, name: Any, on: Any, kind: type[BucketlakeError], said: str
) -> None:
    before = files_of(table)
    for call in (table.plan_create_index, table.create_index):
        with pytest.raises(kind, match=said):
            call(name, on=on)
    assert files_of(table) == before


@pytest.mark.parametrize("shards", [0, -1, 10_001, True, "4", 1.5])
def test_a_number_of_shards_that_is_none(table: Table, shards: Any) -> None:
    before = files_of(table)
    with pytest.raises(ConfigError, match="shards is"):
        table.create_index("x", on="at", shards=shards)
    assert files_of(table) == before


def test_names_as_long_and_odd_as_hudi_takes_them(table: Table) -> None:
    for name, on in (("a" * 128, "at"), ("by-ts_1", "ts")):
        table.create_index(name, on=on, shards=2)
        table.upsert(pa.Table.from_pylist([{"id": 1, "city": "Rome", "ts": 2, "dt": "p"}], SCHEMA))
        check_secondary(table)
        table.drop_index(name)


def test_without_a_record_level_index_it_says_how_to_get_both() -> None:
    table = table_of(filled(SimpleBuckets(2)))
    for _ in range(2):
        with pytest.raises(
            ConfigError, match=r"no record-level index.*create_index\(\.\.\., record_index=True\)"
        ):
            table.create_index("by_name", on="name")
        table.metadata.drop()
    assert table.create_index("by_name", on="name", record_index=True) is not None


@pytest.mark.parametrize(
    ("index", "remedy"),
    [
        (SimpleBuckets(2), r"Drop it with table\.metadata\.drop\(record_index=True\)"),
        (RecordIndex(per_partition=True), r"make another table, with index=RecordIndex\(\)"),
        (DynamicBuckets(), r"make another table, with index=RecordIndex\(\)"),
    ],
    ids=str,
)
def test_beside_a_record_level_index_for_each_partition_there_is_none(index: Any, remedy: str) -> None:
    store = filled(index)
    table = table_of(store)
    table.metadata.build(record_index=True, per_partition=True)
    for record_index in (False, True):
        with pytest.raises(UnsupportedError, match=f"a key may have a row in several.*{remedy}"):
            table.create_index("by_name", on="name", record_index=record_index)


def test_a_non_blocking_table_gets_no_index_that_would_keep_its_writers_out() -> None:
    table = create_table(
        "memory://non-blocking-unindexed",
        SCHEMA,
        key="id",
        ordering="ts",
        buckets=1,
        table_type="MERGE_ON_READ",
        non_blocking=True,
    )
    row = pa.Table.from_pylist([{"id": 1, "city": "Oslo", "ts": 1}], SCHEMA)
    table.upsert(row)
    before = files_of(table)
    for call in (
        lambda: table.create_index("by_city", on="city", record_index=True),
        lambda: table.create_index("by_city", on="city"),
        lambda: table.metadata.build(record_index=True),
        lambda: table.metadata.plan_build(record_index=True, per_partition=True),
    ):
        with pytest.raises(UnsupportedError, match=r"non-blocking: of two writers .*without non_blocking"):
            call()
    assert files_of(table) == before
    assert table.upsert(row).instant is not None


def test_whoever_cannot_write_a_non_blocking_table_is_told_what_to_drop() -> None:
    store = filled(SimpleBuckets(2))
    table = table_of(store)
    table.create_index("by_name", on="name", record_index=True)
    update_properties(store, {"bucketlake.non.blocking": "true"})  # as if Hudi had built them
    said = (
        r"Drop what it lists: table.drop_index\('by_name'\), then table.metadata.drop\(record_index=True\)\."
    )
    with pytest.raises(ConfigError, match=said):
        table_of(store).upsert(orders([1], "x", 9))
    table.drop_index("by_name")
    table.metadata.drop(record_index=True)
    assert table_of(store).upsert(orders([1], "x", 9)).instant is not None


def test_a_key_in_two_partitions_is_refused_with_both_places() -> None:
    store = filled(SimpleBuckets(2))
    table = table_of(store)
    table.upsert(orders([6], "elsewhere", 3).set_column(3, "dt", pa.array(["p1"])))
    with pytest.raises(UnsupportedError, match=r"the key '6' .* in two partitions"):
        table.create_index("by_name", on="name", record_index=True)
    assert not table.indexes()


def test_a_table_whose_keys_are_not_in_its_files() -> None:
    store = filled(SimpleBuckets(2))
    update_properties(store, {"hoodie.populate.meta.fields": "false"})
    with pytest.raises(UnsupportedError, match="not stored in its files"):
        table_of(store).create_index("by_name", on="name", record_index=True)


def test_a_value_that_is_too_long_names_its_column_and_nothing_is_listed() -> None:
    store = filled(SimpleBuckets(2))
    table = table_of(store)
    table.metadata.build(record_index=True)
    table.upsert(orders([1], "x" * 33_000, 9))
    with pytest.raises(ConfigError, match=r"of column 'name' and its record key have 33,00. bytes"):
        table.create_index("by_name", on="name")
    assert not table.indexes()
    table.upsert(orders([1], "short", 10))
    assert table.create_index("by_name", on="name") is not None


def test_another_column_under_the_name_of_a_build_that_was_cut_off() -> None:
    store = filled(SimpleBuckets(2))
    table = table_of(store)
    table.metadata.build(record_index=True)

    class Killed(Exception):
        pass

    def kill(function: str, _: Any) -> None:
        if function == "put_base":
            raise Killed

    with pytest.raises(Killed):
        build_secondary_index(store, SecondaryIndexDefinition("by_name", "name"), tasks=CountedTasks(kill))
    with pytest.raises(ConfigError, match=r"'by_name' of 'name' is being built .*, or its build was cut off"):
        table.create_index("by_name", on="ts")
    with pytest.raises(ConfigError, match=r"being built with 4 shards, .*, and 3 are asked for"):
        table.create_index("by_name", on="name", shards=3)
    assert table.drop_index("by_name").name == "by_name"
    assert not table.indexes()
    assert table.create_index("by_name", on="ts") is not None
    check_secondary(table)


def test_a_record_level_index_that_went_meanwhile_is_an_error_and_the_build_goes_on_once_it_is_back() -> None:
    store = filled(SimpleBuckets(2))
    table = table_of(store)
    table.metadata.build(record_index=True)
    done: list[object] = []

    def drop(function: str, _: Any) -> None:
        if function == "put_base" and not done:
            done.append(table.metadata.drop(record_index=True))

    with pytest.raises(
        ConcurrentWriteError, match="was delisted while the secondary index by_name of name was built"
    ):
        build_secondary_index(store, SecondaryIndexDefinition("by_name", "name"), tasks=CountedTasks(drop))
    assert [one.is_listed for one in table.indexes()] == [False]
    table.metadata.build(record_index=True)
    assert table.create_index("by_name", on="name") is not None
    check_secondary(table)
