"""Change feeds that Spark's tasks write, where keys are looked up, and where Spark carries the rows.

What sessions of every kind do with a feed is among the scenarios (`write_scenarios.py`).
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from bucketlake import DynamicBuckets, RecordIndex, create_table, parquet_files
from bucketlake.spark.exchange import ByShuffle, Shuffled
from bucketlake.spark.pieces import carry
from bucketlake.write import Coded, Piece
from judges.rows import META_COLUMNS, assert_same_rows
from servers.s3 import S3Server
from spark.orders import Place
from spark.write_scenarios import a_change_feed
from stand_ins import feeds
from stand_ins.feeds import Source

pytestmark = [pytest.mark.spark, pytest.mark.shows("R9")]


def test_keys_of_a_feed_are_looked_up_by_tasks(spark: SparkSession, tmp_path: Path) -> None:
    """Several versions of a key, of which the one that comes last counts."""
    a_change_feed(Place(spark, str(tmp_path)), RecordIndex(shards=2))


@pytest.mark.s3
def test_a_feed_is_in_its_order_where_spark_carries_the_rows(
    spark: SparkSession, s3_server: S3Server
) -> None:
    """The last version of a key counts there too."""
    place = Place(spark, f"s3://{s3_server.bucket}/feeds", s3_server.options)
    a_change_feed(place, DynamicBuckets(assigners=1))


def test_pieces_of_a_code_that_spark_carries_arrive_in_their_order(spark: SparkSession) -> None:
    """They may be fetched in any order, and the later row counts."""
    numbers = np.arange(6)
    stages = [
        Coded(
            pa.RecordBatch.from_pydict({"number": [number]}), np.array([3]), np.zeros(1, np.uint64), {3: None}
        )
        for number in numbers.tolist()
    ]
    lines = pa.Table.from_batches(carry(stages, None))
    fetched = spark.createDataFrame(lines.take([4, 0, 5, 2, 1, 3])).coalesce(1)

    def say(pieces: Iterator[Piece]) -> Iterator[str]:
        for piece in pieces:
            yield str(piece.rows.column("number")[0])

    with closing(ByShuffle(spark, packed=lambda *_: fetched)) as exchange:
        said = exchange.finish(Shuffled(fetched), say, tasks=1)
    assert said == tuple(map(str, numbers.tolist()))


def test_a_feed_in_files_is_read_by_tasks_in_its_order(spark: SparkSession, tmp_path: Path) -> None:
    """A frame that only reads files is written from the files too."""
    source = Source(random.Random(3), "debezium")
    table = create_table(tmp_path / "orders", feeds.SCHEMA, key="id", partition="dt", buckets=1)
    for number in range(2):
        (tmp_path / str(number)).mkdir()
        for part in range(2):
            rows = feeds.batch(source.changes(15))
            pq.write_table(rows, tmp_path / str(number) / f"{part}.parquet", row_group_size=5)
        path = str(tmp_path / str(number))
        table.upsert(parquet_files(path, spark=spark) if number else spark.read.parquet(path), op="op")
        assert_same_rows(table.to_arrow(), source.table(), key=["id"], without=META_COLUMNS)
