"""What a user does to a table, step by step, and every row verified after every step.

One list of scenarios for every kind of session and store: a session of its own process, executors that are processes
of their own, Spark Connect, an object store.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial, reduce

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from bucketlake import CompactionTrigger, Maintenance, Retention, SimpleBuckets, create_table
from bucketlake.errors import ConfigError
from bucketlake.index import IndexValue
from judges.files import unchanged
from judges.rows import META_COLUMNS, assert_same_rows
from spark.orders import (
    BUCKETS,
    DAYS,
    Place,
    Truth,
    check_files,
    check_nothing_is_left,
    check_rows,
    frame_of,
    orders,
)
from stand_ins import feeds
from stand_ins.feeds import Source


def every_kind_of_write(place: Place, table_type: str) -> None:
    spark, truth = place.spark, Truth()
    table = place.new_table(f"history-{table_type}", table_type)
    check_rows(table, truth)

    first = orders(range(200), version=10)
    summary = table.bulk_insert(place.rows(first))
    truth.upsert(first)
    assert (summary.rows, summary.inserted) == (200, 200)
    assert len(table.plan().slices) == len(DAYS) * BUCKETS
    check_rows(table, truth)

    batch = [
        *orders(range(60), version=20),
        *orders(range(30, 90), version=5),  # late: the table has a newer version, or the batch does
        *orders(range(40, 50), version=15),
        *orders(range(90, 100), version=10),  # as new as what the table has: the later write wins
        *orders(range(100, 120), version=11, deleted=True),
        *orders(range(110, 115), version=12),  # cancelled, and then not
        *orders(range(200, 260), version=20),
        *orders(range(260, 265), version=20, deleted=True),  # never heard of
        *orders(range(400, 420), version=20, days=["2026-06-20"]),
    ]
    summary = table.upsert(place.rows(batch))
    truth.upsert(batch)
    assert summary.rows == len(batch)
    check_rows(table, truth, spark)
    check_files(table)

    gone = orders([*range(20), 5_000], version=0)
    table.delete(place.rows(gone, ["day", "id"]))
    truth.delete(gone)
    table.delete([200, 201])
    truth.delete(orders([200, 201], version=0))
    anywhere = orders([*range(202, 212), 5_000], version=0)  # as keys, so rows need not say where they are
    assert table.delete(place.rows(anywhere, ["note", "id"])).rows == 10
    truth.delete(anywhere)
    check_rows(table, truth)

    anew = orders(range(1_000, 1_030), version=1, days=[DAYS[0]])
    summary = table.overwrite(place.rows(anew))
    truth.clear([DAYS[0]])
    truth.upsert(anew)
    assert summary.replaced == BUCKETS
    table.delete_partitions([DAYS[1]])
    truth.clear([DAYS[1]])
    check_rows(table, truth)
    again = [
        *orders(range(1_000, 1_010), version=2, days=[DAYS[0]]),
        *orders(range(1, 40, 3), version=3),  # to the day that was emptied
        *orders(range(2, 20, 3), version=30),  # deleted before
    ]
    table.upsert(place.rows(again))
    truth.upsert(again)
    check_rows(table, truth)

    last = orders(range(2_000, 2_010), version=1)
    table.overwrite(place.rows(last), whole_table=True)
    truth = Truth()
    truth.upsert(last)
    check_rows(table, truth, spark)
    check_files(table)
    check_nothing_is_left(table.store)


def rows_that_cannot_be_written(place: Place, table_type: str) -> None:
    """An error of a task arrives as ours, and nothing of the write is left."""
    table, truth = place.loaded_table(f"bad-rows-{table_type}", table_type)
    while_tagging = orders(range(50), version=2)
    while_tagging[30]["id"] = None
    with unchanged(table.store, markers=False), pytest.raises(ConfigError, match="'id' is null or empty"):
        table.upsert(place.rows(while_tagging))
    # Of one file group, so that no other task is still at work when the write is taken back.
    while_writing = [row for version in range(2, 9) for row in orders([30], version=version)]
    while_writing[3]["items"] = ["nut", None]
    with (
        unchanged(table.store, markers=False),
        pytest.raises(ConfigError, match="'items' has an array with a null"),
    ):
        table.upsert(place.rows(while_writing))
    check_rows(table, truth)


def no_rows_at_all(place: Place, table_type: str) -> None:
    """A frame that turns out to be empty commits nothing, be it empty from the start or after a filter."""
    table, truth = place.loaded_table(f"no-rows-{table_type}", table_type)
    frame = frame_of(place.spark, orders(range(9), version=2))
    known_empty = frame.limit(0)  # Spark itself sees that, and plans no task
    with unchanged(table.store):
        assert table.upsert(known_empty).instant is None
        assert table.delete(frame.where("id < 0")).instant is None
        assert table.overwrite(known_empty).instant is None
    check_rows(table, truth)


def services_after_writes(place: Place) -> None:
    """The session that writes runs the services too, after each commit and when asked to."""
    table, truth = place.loaded_table("services", "MERGE_ON_READ")
    maintenance = Maintenance(compact=CompactionTrigger(delta_commits=2), clean=Retention(versions=1))
    for version in (2, 3):
        batch = orders(range(version, 90), version=version)
        summary = table.upsert(frame_of(place.spark, batch), maintenance=maintenance)
        truth.upsert(batch)
    assert [line.partition(":")[0] for line in summary.services] == ["compaction", "clean"]
    check_rows(table, truth)
    gone = orders(range(5), version=0)
    table.delete(frame_of(place.spark, gone))
    truth.delete(gone)
    assert table.compact(spark=place.spark).runs
    assert table.clean(spark=place.spark, retain_versions=1).runs
    check_rows(table, truth)
    report = table.fsck(spark=place.spark)
    assert report == table.fsck()
    assert report.is_sound, report
    check_nothing_is_left(table.store)


def merges_and_updates(place: Place) -> None:
    """The session that reads the table is the one that writes it."""
    table = create_table(
        f"{place.root}/merged",
        "id STRING, n INT, tags ARRAY<STRING>, s STRUCT<a: INT>",
        key="id",
        buckets=2,
        table_type="MERGE_ON_READ",
        storage_options=place.options,
    )
    kept = {"tags": ["x", "y"], "s": {"a": 1}}
    table.upsert([{"id": key, "n": n, **kept} for n, key in enumerate("abcd")])
    source = pa.Table.from_pylist([{"id": key, "n": 10, **kept} for key in "bcz"], table.schema)
    merge = table.merge(source, spark=place.spark).when_matched_delete(F.expr("target.n") == 2)
    done = merge.when_matched_update({"n": "target.n + source.n"}).when_not_matched_insert_all().execute()
    assert (done.rows, done.deleted) == (3, 1), done
    table.update({"n": F.col("n") * 2}, where=F.col("id").isin("a", "b"), spark=place.spark)
    table.delete_where("n = 3 AND s.a = 1", spark=place.spark)
    with pytest.raises(ConfigError, match="column n is int, and cannot hold the value many"):
        table.update({"n": "'many'"}, spark=place.spark)
    found = sorted(table.to_arrow(meta_columns=False).to_pylist(), key=lambda row: row["id"])
    assert found == [{"id": key, "n": n, **kept} for key, n in (("a", 0), ("b", 22), ("z", 10))]
    check_nothing_is_left(table.store)


def a_change_feed(place: Place, index: IndexValue) -> None:
    """Several tasks read the batch, and of several rows of a key the last one counts."""
    source = Source(random.Random(7), "flink")
    table = create_table(
        f"{place.root}/feed",
        feeds.SCHEMA,
        key="id",
        partition="dt",
        index=index,
        table_type="MERGE_ON_READ",
        storage_options=place.options,
    )
    for count in (30, 50):
        events = source.changes(count)
        parts = [feeds.batch(events[start : start + 20]) for start in range(0, len(events), 20)]
        whole = reduce(DataFrame.union, [place.spark.createDataFrame(part).coalesce(1) for part in parts])
        if count == 50:
            strange = whole.replace({"-D": "gone"}, subset=["op"])
            told = pytest.raises(ConfigError, match="nobody has explained, such as 'gone'")
            with unchanged(table.store, markers=False), told:
                table.upsert(strange, op="op")
        table.upsert(whole, op="op")
        assert_same_rows(table.to_arrow(), source.table(), key=["id"], without=META_COLUMNS)


SCENARIO_CASES: dict[str, Callable[[Place], None]] = {
    # What is refused, or nothing, does not depend on the table's type.
    "every kind of write to a copy-on-write table": partial(every_kind_of_write, table_type="COPY_ON_WRITE"),
    "every kind of write to a merge-on-read table": partial(every_kind_of_write, table_type="MERGE_ON_READ"),
    "rows that cannot be written": partial(rows_that_cannot_be_written, table_type="COPY_ON_WRITE"),
    "no rows at all": partial(no_rows_at_all, table_type="MERGE_ON_READ"),
    "services after writes": services_after_writes,
    "merges and updates": merges_and_updates,
    "a change feed": partial(a_change_feed, index=SimpleBuckets(1)),
}
