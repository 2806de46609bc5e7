"""`spark.readStream.format("bucketlake")` in a real session: what Spark asks of the reader, in which order, and again.

What a stream gives is tried without Spark in `tests/unit/datasource`, where `stand_ins.micro_batches` plays its part.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from bucketlake import Table, create_table

pytestmark = pytest.mark.spark

SCHEMA = pa.schema([("id", pa.int64()), ("dt", pa.string()), ("ts", pa.int64())])


def rows(ids: Iterable[int], ts: int) -> pa.Table:
    return pa.Table.from_pylist([{"id": n, "dt": f"d{n % 2}", "ts": ts} for n in ids], SCHEMA)


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return table_at(tmp_path / "orders")


def table_at(path: Path) -> Table:
    return create_table(
        path, SCHEMA, key="id", partition="dt", ordering="ts", buckets=2, table_type="MERGE_ON_READ"
    )


class Job:
    """A query that keeps its batches, and its checkpoint from one start to the next."""

    def __init__(self, spark: SparkSession, table: Table, folder: Path, **options: object) -> None:
        self.spark, self.table, self.checkpoint = spark, table, folder / "checkpoint"
        self.options = {name: str(value) for name, value in options.items()}
        self.schema: str | None = None
        self.batches: dict[int, list[tuple[Any, ...]]] = {}
        self.dies_after: int | None = None
        """A batch that is processed, and not committed."""

    def keep(self, frame: DataFrame, number: int) -> None:
        found = sorted(map(tuple, frame.collect()))
        assert self.batches.setdefault(number, found) == found, "given again, it is the same"
        if number == self.dies_after:
            self.dies_after = None
            raise RuntimeError("died before it was committed")

    def start(self, *, available_now: bool = False) -> StreamingQuery:
        reader = self.spark.readStream.format("bucketlake").options(**self.options)
        stream = (reader.schema(self.schema) if self.schema else reader).load(self.table.store.uri)
        trigger = {"availableNow": True} if available_now else {"processingTime": "50 milliseconds"}
        return (
            stream.writeStream.foreachBatch(self.keep)
            .option("checkpointLocation", str(self.checkpoint))
            .trigger(**trigger)  # type: ignore[arg-type]
            .start()
        )

    def run(self) -> list[list[tuple[Any, ...]]]:
        """Read what one run gives, and return the batches that are new."""
        known = set(self.batches)
        self.start(available_now=True).awaitTermination(60)
        return [batch for number, batch in sorted(self.batches.items()) if number not in known]


@pytest.mark.shows("H3")
def test_a_query_that_is_started_again_gives_each_row_once(
    spark: SparkSession, table: Table, tmp_path: Path
) -> None:
    for n in range(5):
        table.upsert(rows([n], ts=n))
    job = Job(spark, table, tmp_path, start="oldest", max_instants=2, columns="id,ts")
    job.dies_after = 1
    with pytest.raises(StreamingQueryException, match="died before it was committed"):
        job.start().awaitTermination(60)
    first = [[(0, 0), (1, 1)], [(2, 2), (3, 3)]]
    assert list(job.batches.values()) == first
    table.compact(delta_commits=1)
    table.upsert(rows(range(10, 50), ts=6))
    job.options |= {"max_rows": "25"}
    query = job.start()
    query.processAllAvailable()
    assert list(job.batches.values())[:3] == [*first, [(4, 4)]], "the lost batch again, and then what is next"
    parts = list(job.batches.values())[3:]
    assert len(parts) > 1 and sorted(row for part in parts for row in part) == [(n, 6) for n in range(10, 50)]
    table.upsert(rows([5], ts=7))
    query.processAllAvailable()
    query.stop()
    assert list(job.batches.values())[-1] == [(5, 7)]
    for n in range(3):
        table.upsert(rows([n], ts=8 + n))
    assert job.run() == [[(0, 8), (1, 9)]], "availableNow is one batch: with caps, not all there is"


@pytest.mark.shows("H3", "R9")
def test_one_table_feeds_the_next_and_deletes_too(spark: SparkSession, table: Table, tmp_path: Path) -> None:
    copy = table_at(tmp_path / "copy")

    class Feed(Job):
        def keep(self, frame: DataFrame, number: int) -> None:
            writer(frame, number)
            super().keep(frame, number)

    def same() -> bool:
        ours, theirs = (one.to_arrow(columns=["id", "dt", "ts"]) for one in (table, copy))
        extra = duckdb.sql("FROM ours EXCEPT ALL FROM theirs").fetchall()
        return extra == [] and len(ours) == len(theirs)

    feed = Feed(spark, table, tmp_path, op="what", columns="id,dt,ts")
    writer = copy.batch_writer(checkpoint=feed.checkpoint, op="what")
    table.upsert(rows(range(20), ts=1))
    query = feed.start()
    query.processAllAvailable()
    assert same()
    feed.dies_after = 1
    table.delete(rows(range(5), ts=2))
    with pytest.raises(StreamingQueryException, match="died before it was committed"):
        query.awaitTermination(60)
    table.upsert(rows([6, 30], ts=3))
    table.overwrite(rows([40, 42, 8], ts=4))  # all of d0
    query = feed.start()
    query.processAllAvailable()
    assert same() and len(copy.to_arrow()) < 20
    table.delete_partitions(["d1"])
    query.processAllAvailable()
    query.stop()
    assert same()
    told = copy.query_progress()["batch"].to_pylist()
    assert told == sorted(set(told)), "the batch that came again was not written again"


@pytest.mark.shows("H3")
def test_a_new_column_ends_a_stream_of_all_columns_and_no_other(
    spark: SparkSession, table: Table, tmp_path: Path
) -> None:
    table.upsert(rows(range(3), ts=1))
    every, chosen = Job(spark, table, tmp_path), Job(spark, table, tmp_path / "chosen", start="now")
    chosen.schema = "ts BIGINT, id BIGINT"
    queries = [job.start() for job in (every, chosen)]
    for query in queries:
        query.processAllAvailable()
    assert [len(job.batches[0]) for job in (every, chosen)] == [3, 0]
    wider = pa.Table.from_pylist([{"id": 1, "dt": "d1", "ts": 5, "more": "x"}])
    table.upsert(wider, merge_schema=True)
    with pytest.raises(StreamingQueryException, match=r"new column 'more'.*Restart the query"):
        queries[0].awaitTermination(60)
    queries[1].processAllAvailable()
    queries[1].stop()
    assert chosen.batches == {0: [], 1: [(5, 1)]}


@pytest.mark.shows("H3")
def test_a_start_that_was_cleaned_is_refused(spark: SparkSession, table: Table, tmp_path: Path) -> None:
    """apache/hudi#7778: where it fails with a null pointer."""
    first = table.upsert(rows(range(3), ts=1)).completed
    table.upsert(rows(range(3), ts=2))
    table.compact(delta_commits=1)
    table.upsert(rows([1], ts=9))
    table.clean(retain_commits=1)
    job = Job(spark, table, tmp_path, start=first)
    with pytest.raises(StreamingQueryException, match=r"was cleaned\. start='oldest' begins there"):
        job.run()


@pytest.mark.shows("H3")
def test_the_wrapper_of_available_now_is_found_out_before_it_spoils_the_checkpoint(
    spark: SparkSession, table: Table, tmp_path: Path
) -> None:
    """With it, Spark asks how far to go before it says where the query is."""
    for n in range(3):
        table.upsert(rows([n], ts=n))
    spark.conf.set("spark.sql.streaming.triggerAvailableNowWrapper.enabled", "true")
    try:
        job = Job(spark, table, tmp_path, start="oldest", columns="id,ts")
        assert job.run() == [[(n, n) for n in range(3)]]
        job.options |= {"max_instants": "1"}
        table.upsert(rows([5], ts=5))
        with pytest.raises(StreamingQueryException, match="triggerAvailableNowWrapper"):
            job.run()
    finally:
        spark.conf.unset("spark.sql.streaming.triggerAvailableNowWrapper.enabled")
    assert job.run() == [[(5, 5)]]
