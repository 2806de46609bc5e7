"""Every commit of ours describes its files, in a table that has statistics of columns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bucketlake import ConsistentBuckets, ResizeTrigger, Table, create_table
from bucketlake.commit.claims import list_claims
from bucketlake.errors import UnsupportedError
from bucketlake.layout.names import INDEX_DEFINITIONS_PATH
from bucketlake.metadata.column_stats import Kind
from bucketlake.metadata.places import COLUMN_STATS, PARTITION_STATS
from bucketlake.services.metadata_compaction import compact_metadata
from bucketlake.services.resize import look_for_resize, schedule_resize
from stand_ins.listed_statistics import META, described, list_statistics
from stand_ins.orders_table import SCHEMA, orders, orders_table


@pytest.fixture(params=["COPY_ON_WRITE", "MERGE_ON_READ"])
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Table]:
    made = orders_table(tmp_path / "orders", table_type=request.param)
    made.upsert(orders(range(8), "first", 0))
    made.metadata.build()
    list_statistics(made.store, SCHEMA.names)
    yield made
    # Nothing that is written may be without.
    assert {name for name, _ in described(made.store, COLUMN_STATS)} <= files_of(made).keys()


def files_of(table: Table) -> dict[str, str]:
    """Name -> path of the data files that are there."""
    found = table.store.list("", recursive=True).files
    data = (file.path for file in found if not file.path.startswith(".hoodie/"))
    return {path.rpartition("/")[2]: path for path in data if ".parquet" in path or ".log." in path}


@pytest.mark.shows("M2")
def test_every_file_and_partition_of_a_commit_is_described(table: Table) -> None:
    done = table.upsert(orders(range(4, 20), "again", 7))
    files = described(table.store, COLUMN_STATS)
    names = {name for name in files_of(table) if done.instant is not None and done.instant in name}
    assert {name for name, _ in files} == names
    assert {column for _, column in files} == {*META, *SCHEMA.names}
    assert all(said.least is not None and said.nulls == 0 for said in files.values())
    partitions = described(table.store, PARTITION_STATS)
    assert {name for name, _ in partitions} == {"p0", "p1"}
    ids = partitions["p1", "id"]
    assert (ids.most, ids.is_tight, ids.type.kind) == (19, False, Kind.LONG)


def test_a_partition_is_widened_by_each_commit(table: Table) -> None:
    table.upsert(orders([100], "a", 7))
    table.upsert(orders([-100], "b", 8))
    said = described(table.store, PARTITION_STATS)["p0", "id"]
    assert isinstance(said.least, int)
    assert isinstance(said.most, int)
    assert said.least <= -100 < 100 <= said.most


def test_what_is_cleaned_is_described_no_more(table: Table) -> None:
    for ts in range(3):
        table.upsert(orders(range(8), "more", ts + 1))
    if table.properties.table_type == "MERGE_ON_READ":
        table.compact()
        table.upsert(orders(range(8), "more", 9))
        table.compact()
    before = {name for name, _ in described(table.store, COLUMN_STATS)}
    table.clean(retain_versions=1)
    after = {name for name, _ in described(table.store, COLUMN_STATS)}
    assert after < before
    assert after <= files_of(table).keys()


def test_compacted_statistics_say_the_same(table: Table) -> None:
    for ts in range(3):
        table.upsert(orders(range(8 + ts), "more", ts + 1))
    table.clean(retain_versions=1)
    before = [described(table.store, partition) for partition in (COLUMN_STATS, PARTITION_STATS)]
    assert compact_metadata(table.store)
    assert [described(table.store, partition) for partition in (COLUMN_STATS, PARTITION_STATS)] == before
    table.upsert(orders([500], "more", 9))
    assert described(table.store, PARTITION_STATS)["p0", "id"].most == 500


def test_a_log_of_deletes_has_no_values(tmp_path: Path) -> None:
    table = orders_table(tmp_path / "orders")
    table.upsert(orders(range(8), "first", 0))
    table.metadata.build()
    list_statistics(table.store, SCHEMA.names)
    table.delete([3])
    (said,) = (r for (_, column), r in described(table.store, COLUMN_STATS).items() if column == "id")
    assert (said.type.kind, said.values, said.least) == (Kind.NULL, 0, None)
    in_partition = described(table.store, PARTITION_STATS)["p1", "id"]
    assert (in_partition.type.kind, in_partition.values) == (Kind.LONG, 0)


def test_a_column_that_is_added_is_described_before_hudi_names_it(table: Table) -> None:
    more = orders([1], "wide", 7).append_column("added", pa.array([5], pa.int32()))
    table.upsert(more, merge_schema=True)
    said = [r for (_, column), r in described(table.store, COLUMN_STATS).items() if column == "added"]
    assert [r.most for r in said] == [5]


def test_columns_that_were_named_stay_the_only_ones(tmp_path: Path) -> None:
    table = orders_table(tmp_path / "orders")
    table.metadata.build()
    list_statistics(table.store, ["ts"])
    table.upsert(orders(range(8), "first", 0))
    assert {column for _, column in described(table.store, COLUMN_STATS)} == {*META, "ts"}


def test_the_claim_says_what_is_kept(table: Table) -> None:
    table.upsert(orders([1], "a", 7))
    claim = list_claims(table.store).newest
    assert claim is not None
    assert claim.metadata_partitions == (COLUMN_STATS, "files", PARTITION_STATS)
    assert claim.metadata_columns == (*META, *SCHEMA.names)


@pytest.mark.parametrize("fault", ["no definition", "another version", "a field of a struct"])
def test_statistics_that_cannot_be_followed_are_refused_or_delisted(table: Table, fault: str) -> None:
    if fault == "no definition":
        table.store.delete(INDEX_DEFINITIONS_PATH)
    else:
        columns = ["s.x"] if fault == "a field of a struct" else ["id"]
        list_statistics(table.store, columns, version="V1" if fault == "another version" else "V2")
    with pytest.raises(UnsupportedError, match="column_stats, partition_stats"):
        table.upsert(orders([1], "a", 7))
    table.alter(on_unmaintained="delist")
    Table.open(table.store.uri).upsert(orders([1], "a", 7))
    assert Table.open(table.store.uri).properties.metadata_partitions == ("files",)
    list_statistics(table.store, SCHEMA.names)  # for the fixture


VALUES = {
    "n": st.none() | st.integers(-(1 << 31), (1 << 31) - 1),
    "x": st.none() | st.floats(allow_nan=False),
    "name": st.none() | st.text(max_size=5) | st.just("long" * 2_000),
    "price": st.none() | st.decimals(-(10**8), 10**8, places=2),
    "is_on": st.none() | st.booleans(),
    "raw": st.none() | st.binary(max_size=3),
}
TYPES = pa.schema(
    [
        ("id", pa.int64()),
        ("n", pa.int32()),
        ("x", pa.float64()),
        ("name", pa.string()),
        ("price", pa.decimal128(12, 2)),
        ("is_on", pa.bool_()),
        ("raw", pa.binary()),
    ]
)


def as_stored(value: object) -> object:
    if isinstance(value, Decimal):
        number = int(value.scaleb(2))
        return number.to_bytes((number if number >= 0 else ~number).bit_length() // 8 + 1, signed=True)
    return value


@pytest.mark.shows("M2")
@settings(max_examples=15, deadline=None)
@given(
    rows=st.lists(st.fixed_dictionaries(VALUES), min_size=1, max_size=6),
    table_type=st.sampled_from(["COPY_ON_WRITE", "MERGE_ON_READ"]),
    log_format=st.sampled_from(["parquet", "avro"]),
)
def test_ranges_are_those_of_the_rows(
    tmp_path_factory: pytest.TempPathFactory,
    rows: list[Mapping[str, object]],
    table_type: str,
    log_format: str,
) -> None:
    path = tmp_path_factory.mktemp("t") / "t"
    table = create_table(path, TYPES, key="id", buckets=1, table_type=table_type)
    table.metadata.build()
    list_statistics(table.store, TYPES.names)
    batch = pa.Table.from_pylist([{"id": n, **row} for n, row in enumerate(rows)], TYPES)
    table.upsert(batch, log_format=log_format)
    table.upsert(batch, log_format=log_format)
    found = described(table.store, COLUMN_STATS)
    assert len({name for name, _ in found}) == 2
    for (_, column), said in found.items():
        if column not in META:
            ends = pc.min_max(batch[column])
            expected = as_stored(ends["min"].as_py()), as_stored(ends["max"].as_py())
            assert ((said.least, said.most), said.nulls) == (expected, batch[column].null_count)
            assert said.values == len(rows)


def test_a_column_that_widens_makes_statistics_of_partitions_useless(tmp_path: Path) -> None:
    narrow = pa.schema([("id", pa.int64()), ("n", pa.int32()), ("dt", pa.string())])
    wide = narrow.set(1, pa.field("n", pa.int64()))
    table = create_table(tmp_path / "t", narrow, key="id", partition="dt", buckets=1)
    table.metadata.build()
    list_statistics(table.store, narrow.names)
    row = {"id": 1, "n": 2, "dt": "a"}
    table.upsert(pa.Table.from_pylist([row], narrow))
    more = pa.Table.from_pylist([{**row, "n": 1 << 40}], wide)
    with pytest.raises(UnsupportedError, match="ranges of n from before its type changed"):
        table.upsert(more, merge_schema=True)
    table.alter(on_unmaintained="delist")
    table = Table.open(table.store.uri)
    table.upsert(more, merge_schema=True)
    assert Table.open(table.store.uri).properties.metadata_partitions == ("files",)
    assert table.to_arrow()["n"].to_pylist() == [1 << 40]


@pytest.mark.parametrize("virtual_logs", [False, True])
def test_logs_beside_a_resize_are_described_by_the_rows_that_they_stand_for(
    tmp_path: Path, virtual_logs: bool
) -> None:
    index = ConsistentBuckets(2, virtual_logs=virtual_logs)
    table = orders_table(tmp_path / "orders", index=index)
    table.upsert(orders(range(100), "first", 0))
    table.metadata.build()
    list_statistics(table.store, SCHEMA.names)
    trigger = ResizeTrigger(file_bytes=2_000, split_threshold=1.0, merge_threshold=0.1)
    assert schedule_resize(table.store, look_for_resize(table.store, trigger)) is not None
    before = files_of(table).keys()
    table.upsert(orders(range(50), "second", 7))
    names = files_of(table).keys() - before
    found = described(table.store, COLUMN_STATS)
    assert {name for name, _ in found} == names
    assert len(names) > 4, "the old buckets' logs and those of the new ones"
    stamps = {(said.least, said.most) for (_, column), said in found.items() if column == "ts"}
    assert stamps == {(7, 7)}
