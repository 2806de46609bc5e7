"""The kinds of reads beside a snapshot, and what each must and must not open."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from bucketlake import ConfigError, PartitionBuckets, SimpleBuckets, Table
from bucketlake.layout import FileSlice
from bucketlake.read import pack_slices
from bucketlake.schema import META_COLUMNS

Golden = Callable[[str], Path]
COW, MOR = "cow_simple_bucket", "mor_simple_bucket_avro"


def names(rows: pa.Table) -> dict[int, str]:
    return dict(zip(rows.column("id").to_pylist(), rows.column("name").to_pylist(), strict=True))


@pytest.mark.shows("S5")
def test_time_travel_goes_by_requested_time(golden_table: Golden) -> None:
    table = Table.open(golden_table(COW))
    first, second, third = (entry.requested for entry in table.timeline())
    assert names(table.to_arrow(as_of=first)) == {n: f"n{n}" for n in range(12)}
    assert names(table.to_arrow(as_of=second))[1] == "n1-u"
    assert 3 in names(table.to_arrow(as_of=second))
    assert 3 not in names(table.to_arrow(as_of=third))
    assert table.to_arrow(as_of="2020-01-01").num_rows == 0


@pytest.mark.shows("S5")
def test_an_incremental_read_is_open_at_its_begin_and_closed_at_its_end(golden_table: Golden) -> None:
    table = Table.open(golden_table(MOR))
    entries = table.timeline()
    first, second = entries[0].completed, entries[1].completed
    assert names(table.to_arrow(begin="0", end=first)) == {n: f"n{n}" for n in range(12)}
    # The late row of the second commit is a change, though a snapshot never shows it.
    assert set(names(table.to_arrow(begin=first, end=second))) == {1, 2, 20}
    assert table.to_arrow(begin=entries[-1].completed).num_rows == 0


@pytest.mark.shows("S5")
def test_a_read_optimized_read_sees_base_files_only(golden_table: Golden) -> None:
    rows = names(Table.open(golden_table(MOR)).to_arrow(read_optimized=True))
    assert rows == {n: f"n{n}" for n in range(12)}
    log_only = Table.open(golden_table("mor_consistent_0_before"))
    assert log_only.to_arrow(read_optimized=True).num_rows == 0


def test_a_projection_reads_the_columns_in_the_order_asked_for(golden_table: Golden) -> None:
    table = Table.open(golden_table(MOR))
    rows = table.to_arrow(columns=["ts", "_hoodie_record_key"], filters=[("name", "=", "n4-u")])
    assert rows.to_pylist() == [{"ts": 103, "_hoodie_record_key": "4"}]
    assert table.to_arrow(meta_columns=False).schema.names == table.schema.names


@pytest.mark.parametrize("name", [COW, MOR, "mor_v6", "mor_nonpartitioned", "mor_partial_update"])
def test_any_few_columns_are_those_of_the_whole_rows(golden_table: Golden, name: str) -> None:
    """Columns that the path tells are not read, and others only to merge: neither may show."""
    table = Table.open(golden_table(name), buckets=4)
    whole = table.to_arrow()
    keys = whole.column("id").to_pylist()
    for columns in ([], *([column] for column in whole.column_names), ["ts", "name", "id"]):
        few = table.to_arrow(columns=columns)
        assert few.num_rows == whole.num_rows
        assert few.schema.equals(whole.select(columns).schema)
        assert texts(few) == texts(whole.select(columns))
        found = table.get(keys[:2], meta_columns=True)
        assert texts(table.get(keys[:2], columns=columns)) == texts(found.select(columns))


def texts(rows: pa.Table) -> list[str]:
    return sorted(map(repr, rows.to_pylist()))


@pytest.mark.shows("S4")
@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        (COW, {"buckets": 4}),
        (MOR, {"buckets": 4}),
        ("mor_nonpartitioned", {"buckets": 4}),
        ("mor_bulk_insert_bucket", {"buckets": 4}),
        ("cow_complex_single_key", {"buckets": 4}),
        ("mor_v6", {"buckets": 4}),
        ("mor_v8", {"buckets": 4}),
        pytest.param(
            "cow_partition_bucket_df",
            {"index": PartitionBuckets("p1,3", 2)},
            marks=pytest.mark.shows("P10"),
        ),
        pytest.param("mor_partition_bucket", {}, marks=pytest.mark.shows("P4", "P10")),
        pytest.param("mor_consistent_0_before", {}, marks=pytest.mark.shows("C2", "C3")),
        pytest.param("mor_consistent_1_pending_split", {}, marks=pytest.mark.shows("C2", "C3")),
        pytest.param("mor_consistent_2_after_split", {}, marks=pytest.mark.shows("C2", "C3")),
        pytest.param("mor_consistent_3_pending_merge", {}, marks=pytest.mark.shows("C2", "C3")),
        pytest.param("mor_consistent_4_after_merge", {}, marks=pytest.mark.shows("C2", "C3")),
        (COW, {}),
        ("cow_global_rli", {}),
    ],
)
def test_each_key_is_found_and_only_where_it_can_be(
    golden_table: Golden, name: str, arguments: dict[str, Any]
) -> None:
    table = Table.open(golden_table(name), **arguments)
    everything = table.to_arrow()
    for row in everything.to_pylist():
        assert table.get(row["id"], meta_columns=True).to_pylist() == [row]
        plan = table.plan(filters=[("id", "=", row["id"])])
        if arguments or "consistent" in name or "partition_bucket" in name:
            per_partition: dict[str, list[FileSlice]] = {}
            for file_slice in plan.slices:
                per_partition.setdefault(file_slice.partition, []).append(file_slice)
            assert all(len(slices) == 1 for slices in per_partition.values())


def test_keys_of_several_columns_are_found(golden_table: Golden) -> None:
    table = Table.open(golden_table("cow_composite_keys"), index=SimpleBuckets(4, ("k1",)))
    for row in table.to_arrow().to_pylist():
        found = table.get({"k1": row["k1"], "k2": row["k2"]}, meta_columns=True)
        assert found.to_pylist() == [row]
        assert (
            table.get({"k1": row["k1"], "k2": row["k2"]}, partition=row["_hoodie_partition_path"]).num_rows
            == 1
        )


def test_rows_fetched_by_key_have_the_columns_of_the_user_unless_hudis_are_asked_for(
    golden_table: Golden,
) -> None:
    table = Table.open(golden_table(MOR), buckets=4)
    assert table.get(1).schema.names == table.schema.names
    assert table.get(1, meta_columns=True).schema.names == [*META_COLUMNS, *table.schema.names]
    with pytest.raises(ConfigError, match="meta_columns is 'yes'"):
        table.get(1, meta_columns="yes")  # type: ignore[arg-type]


def test_many_keys_come_in_one_call(golden_table: Golden) -> None:
    table = Table.open(golden_table(MOR), buckets=4)
    assert set(names(table.get([1, 4, 3, 77], columns=["id", "name"]))) == {1, 4}
    assert table.get([]).num_rows == 0
    first = table.timeline()[0].requested
    assert names(table.get([1, 3], as_of=first)) == {1: "n1", 3: "n3"}


def test_a_plan_travels_to_executors(golden_table: Golden) -> None:
    plan = Table.open(golden_table(MOR)).plan(filters=[("id", ">", 3)])
    again = pickle.loads(pickle.dumps((plan.slices, plan.context)))
    assert again[0] == plan.slices


def test_slices_are_packed_without_losing_any() -> None:
    slices = [FileSlice("", f"{n}", "1", None, ()) for n in range(100)]
    packs = pack_slices(slices, 10 * 1024 * 1024)
    assert sorted(s.file_id for pack in packs for s in pack) == sorted(s.file_id for s in slices)
    assert len(packs) == 10
    assert pack_slices([], 1) == ()
