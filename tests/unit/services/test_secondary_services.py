"""Services on tables with secondary indexes: what moves rows or takes them back leaves the indexes as the rows are."""

from __future__ import annotations

import itertools
from typing import Any

import pyarrow as pa
import pytest

from bucketlake import ConsistentBuckets, PartitionBuckets, RecordIndex, SimpleBuckets, Table, create_table
from bucketlake.config import load_properties
from bucketlake.errors import UnsupportedError
from bucketlake.index import IndexValue
from bucketlake.metadata.places import RECORD_INDEX, folder_of, is_own_instant
from bucketlake.services import check_table, compact_metadata
from bucketlake.services.metadata_archive import archive_metadata
from bucketlake.services.metadata_clean import clean_metadata
from bucketlake.state import load_state
from bucketlake.write import WriteOptions, begin_append
from stand_ins.kept_values import SecondaryIndexes

pytestmark = pytest.mark.shows("R11")

SCHEMA = pa.schema(
    [("id", pa.string()), ("dt", pa.string()), ("ts", pa.int64()), ("city", pa.string()), ("n", pa.int32())]
)
KEPT = SecondaryIndexes()
_names = itertools.count()
CITIES = ("Rome", "Oslo", None, "")


def rows(keys: range, ts: int, *, turned: int = 0) -> pa.Table:
    found = [
        {"id": f"k{n}", "dt": f"p{n % 3}", "ts": ts, "city": CITIES[(n + turned) % 4], "n": n % 2}
        for n in keys
    ]
    return pa.Table.from_pylist(found, SCHEMA)


def a_table(index: IndexValue, table_type: str) -> Table:
    made = create_table(
        f"memory://secondary-services-{next(_names)}",
        SCHEMA,
        key="id",
        partition="dt",
        ordering="ts",
        index=index,
        table_type=table_type,
        maintenance="off",
    )
    made.upsert(rows(range(30), 1))
    return KEPT.of(made, "city", "n")


def check(table: Table) -> None:
    KEPT.check(table.store, "city", "n")
    report = check_table(table.store)
    assert report.damage == (), str(report)


@pytest.fixture(params=["COPY_ON_WRITE", "MERGE_ON_READ"])
def table_type(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_indexes_follow_a_rescale_and_one_that_is_taken_back(table_type: str) -> None:
    table = a_table(PartitionBuckets("p0,3", 1), table_type)
    table.upsert(rows(range(5), 2, turned=1))
    assert table.buckets.overwrite("p1,4", bucket_number=2) is not None
    check(table)
    table.upsert(rows(range(3, 40), 3, turned=2))
    check(table)
    done = table.buckets.overwrite("p1,2", bucket_number=1)
    assert done is not None
    table.buckets.rollback(done.instant)
    KEPT.check(table.store, "city", "n")
    Table(table.store, load_properties(table.store)).upsert(rows(range(2), 4))
    check(table)


def test_indexes_follow_a_resize(table_type: str) -> None:
    table = a_table(ConsistentBuckets(2), table_type)
    table.upsert(rows(range(5), 2, turned=1))
    sizes: dict[str, Any] = {"file_bytes": 1000, "split_threshold": 1.0, "merge_threshold": 0.1}
    assert table.buckets.resize(max_buckets=4, **sizes).runs
    check(table)
    table.upsert(rows(range(3, 40), 3, turned=2))
    table.delete(pa.table({"id": ["k0"], "dt": ["p0"]}))
    check(table)


def test_shards_are_compacted_and_cleaned(table_type: str) -> None:
    table = a_table(RecordIndex(shards=2), table_type)
    folder = folder_of("secondary_index_by_city")
    counts = []
    for ts in range(2, 16):
        table.upsert(rows(range(30), ts, turned=ts))
        if ts % 3 == 0:
            compact_metadata(table.store)
            clean_metadata(table.store, keep_commits=2)
        counts.append(len(table.store.list(folder).files))
        check(table)
    assert max(counts) < 30, f"files pile up: {counts}"
    assert any(file.path.endswith(".hfile") for file in table.store.list(folder).files)


def test_what_is_taken_back_behind_a_compaction_of_the_metadata_table_leaves_no_index_that_lies(
    table_type: str,
) -> None:
    table = a_table(RecordIndex(shards=2), table_type)
    done = table.upsert(rows(range(5), 2, turned=1))
    compact_metadata(table.store)
    assert done.instant is not None
    table.rollback(done.instant)
    table = Table(table.store, load_properties(table.store))
    if RECORD_INDEX not in table.properties.metadata_partitions:
        table.metadata.build()
    table.upsert(rows(range(5), 3, turned=2))
    KEPT.check(table.store)
    assert check_table(table.store).damage == ()


def test_nobody_appends_by_name() -> None:
    """Tasks that do not know whether a key is new cannot tell which value it had."""
    table = a_table(RecordIndex(), "MERGE_ON_READ")
    before = load_state(table.store).timeline.instants
    with pytest.raises(UnsupportedError, match="lists the index"):
        begin_append(table.store, SCHEMA, WriteOptions())
    assert load_state(table.store).timeline.instants == before


@pytest.mark.parametrize("index", [SimpleBuckets(2), RecordIndex(shards=2)], ids=str)
def test_an_index_that_was_made_again_is_relied_on_when_the_instant_that_made_it_is_archived(
    index: IndexValue,
) -> None:
    """Commits before it tell of logs of the index that it follows; these are gone, and are not missed."""
    made = create_table(
        f"memory://secondary-services-{next(_names)}",
        SCHEMA,
        key="id",
        partition="dt",
        ordering="ts",
        index=index,
        maintenance="off",
    )
    made.create_index("by_city", on="city", record_index=True)
    for ts in range(4):
        made.upsert(rows(range(6), ts, turned=ts))
    made.metadata.grow_record_index(1)  # makes both again
    compact_metadata(made.store)
    archived = archive_metadata(made.store, keep_min=4, keep_max=4).instants
    assert archived
    assert all(is_own_instant(instant.requested) for instant in archived)
    table = Table(made.store, load_properties(made.store))
    assert "in step" in str(*table.indexes())
    assert "not relied on" not in table.describe().index
    assert check_table(table.store).damage == ()
