"""A table without meta fields stores no record keys.

If we made them wrongly, updates would show up as second rows, and deleted rows would be back.
"""

from __future__ import annotations

import datetime
import shutil
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest

from bucketlake import Table
from bucketlake.config import KeyGeneratorType
from bucketlake.errors import ConfigError, UnsupportedError
from bucketlake.keygen import KeyGenerator
from judges.rows import assert_same_rows, json_rows, load_json_rows

Golden = Callable[[str], Path]

GOLDEN = Path(__file__).parents[2] / "golden"
NAMES = ["cow_virtual_keys", "mor_virtual_keys"]
MOR = "mor_virtual_keys"
COLUMNS = ["id", "name", "ts", "dt"]


@pytest.mark.shows("S5")
@pytest.mark.parametrize("name", NAMES)
def test_a_table_without_meta_fields_is_read_without_meta_columns_as_hudi_reads_it(
    golden_table: Golden, name: str
) -> None:
    rows = Table.open(golden_table(name)).to_arrow()
    assert rows.column_names == COLUMNS
    assert_same_rows(json_rows(rows), load_json_rows(GOLDEN / f"{name}.expected.jsonl"))


@pytest.mark.parametrize("columns", [["name"], ["dt"], ["dt", "id"], ["ts", "name"]])
@pytest.mark.parametrize("name", NAMES)
def test_columns_that_make_the_key_need_not_be_asked_for(
    golden_table: Golden, name: str, columns: list[str]
) -> None:
    table = Table.open(golden_table(name))
    rows = table.to_arrow(columns=columns)
    assert rows.column_names == columns
    assert sorted(map(str, rows.to_pylist())) == sorted(
        map(str, table.to_arrow().select(columns).to_pylist())
    )


@pytest.mark.shows("S4")
@pytest.mark.parametrize("name", NAMES)
def test_filters_are_answered_and_prune_by_key_and_partition(golden_table: Golden, name: str) -> None:
    table = Table.open(golden_table(name), buckets=4)
    assert names(table.to_arrow(filters=[("id", "=", 1)])) == ["n1-u"]
    assert len(table.plan(filters=[("id", "=", 1), ("dt", "=", "p1")]).slices) == 1
    assert names(table.to_arrow(filters=[("dt", "=", "p0"), ("ts", ">", 100)])) == ["n20"]
    assert names(table.to_arrow(filters=[("id", "=", 3)])) == [], "it was deleted"


@pytest.mark.parametrize("buckets", [None, 4])
@pytest.mark.parametrize("name", NAMES)
def test_keys_are_found_in_base_files_and_in_logs(
    golden_table: Golden, name: str, buckets: int | None
) -> None:
    table = Table.open(golden_table(name), buckets=buckets)
    assert names(table.get([0, 1, 2, 3, 20])) == ["n0", "n1-u", "n2", "n20"]
    assert table.get(1, columns="dt").to_pylist() == [{"dt": "p1"}]
    assert table.get(1, partition="p0").num_rows == 0


@pytest.mark.parametrize("name", NAMES)
def test_a_wrong_count_of_buckets_is_told_by_keys_made_of_columns(golden_table: Golden, name: str) -> None:
    for look in (lambda table: table.get(1), lambda table: table.to_arrow(filters=[("id", "=", 1)])):
        with pytest.raises(ConfigError, match=r"the record key '\d+' of partition .* where it would not be"):
            look(Table.open(golden_table(name), buckets=7))


def test_the_past_is_read_and_base_files_alone(golden_table: Golden) -> None:
    table = Table.open(golden_table(MOR))
    first, second, _ = (entry.requested for entry in table.timeline())
    assert names(table.to_arrow(as_of=first)) == sorted(f"n{n}" for n in range(12))
    assert "n3" in names(table.to_arrow(as_of=second)) and "n1-u" in names(table.to_arrow(as_of=second))
    assert names(table.to_arrow(read_optimized=True)) == sorted(f"n{n}" for n in range(12))


def test_an_incremental_read_is_refused_as_hudi_refuses_it(golden_table: Golden) -> None:
    table = Table.open(golden_table(MOR))
    with pytest.raises(UnsupportedError, match=r"do not say which commit wrote them.* as_of="):
        table.to_arrow(begin="0")


def test_a_meta_column_that_is_asked_for_is_said_not_to_be_there(golden_table: Golden) -> None:
    with pytest.raises(
        ConfigError, match=r"no column '_hoodie_record_key'.* \(hoodie.populate.meta.fields=false\)"
    ):
        Table.open(golden_table(MOR)).to_arrow(columns=["_hoodie_record_key"])


@pytest.mark.shows("S5")
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "write",
    [
        lambda table: table.upsert(table.to_arrow()),
        lambda table: table.bulk_insert(table.to_arrow()),
        lambda table: table.overwrite(table.to_arrow()),
        lambda table: table.delete(1),
        lambda table: table.delete(pa.table({"id": pa.array([1], pa.int32())})),
        lambda table: table.delete_partitions("p0"),
        lambda table: table.compact(),
        lambda table: table.clean(retain_commits=1),
        lambda table: table.savepoint(),
        lambda table: table.plan_adopt(buckets=4),
    ],
)
def test_a_table_without_meta_fields_is_not_written_and_the_way_on_named(
    golden_table: Golden, tmp_path: Path, name: str, write: Callable[[Table], object]
) -> None:
    table = Table.open(shutil.copytree(golden_table(name), tmp_path / name))
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    with pytest.raises(
        UnsupportedError,
        match=r"hoodie.populate.meta.fields of .* is false.* Copy its rows into a table of ours",
    ):
        write(table)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_fsck_says_that_it_cannot_look_for_keys_that_are_not_stored(golden_table: Golden) -> None:
    with pytest.raises(UnsupportedError, match=r"hoodie\.populate\.meta\.fields.*do not say which keys"):
        Table.open(golden_table(MOR)).fsck()


def test_virtual_keys_are_spelled_as_hudis_reader_spells_them() -> None:
    rows = pa.table(
        {
            "text": ["a"],
            "day": pa.array([datetime.date(2024, 1, 2)]),
            "at": pa.array([datetime.datetime(2024, 1, 2, tzinfo=datetime.UTC)], pa.timestamp("us", "UTC")),
            "price": pa.array([Decimal("1.50")], pa.decimal128(10, 2)),
        }
    )

    def keys(*fields: str, kind: KeyGeneratorType = KeyGeneratorType.COMPLEX) -> tuple[str, str]:
        generator = KeyGenerator(
            kind=kind, record_key_fields=fields, encodes_field_names=True, logical_timestamps=True
        )
        return generator.virtual_keys(rows)[0].as_py(), generator.record_keys(rows)[0].as_py()

    assert keys("text") == ("a", "text:a")
    assert keys("day") == ("19724", "day:2024-01-02")
    assert keys("at")[0] == "1704153600000000"
    assert keys("price")[0] == "1.50"
    assert keys("text", "day") == ("text:a,day:19724", "text:a,day:2024-01-02")


def test_virtual_keys_need_no_key_generator_of_ours() -> None:
    generator = KeyGenerator(
        kind=KeyGeneratorType.USER_PROVIDED, record_key_fields=("id",), encodes_field_names=False
    )
    rows = pa.table({"id": [1, 2]})
    assert generator.virtual_keys(rows).to_pylist() == ["1", "2"]
    with pytest.raises(UnsupportedError):
        generator.record_keys(rows)


def names(rows: pa.Table) -> list[str]:
    return sorted(rows.column("name").to_pylist())
