"""The checkpoint says which stream a batch is of, so it must be that of the query."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from bucketlake import Table, create_table

pytestmark = pytest.mark.spark

COLUMNS = "id STRING, ts BIGINT"


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return create_table(tmp_path / "clicks", COLUMNS, key="id", ordering="ts", buckets=1)


def arriving(spark: SparkSession, folder: Path, *keys: str) -> DataFrame:
    folder.mkdir(exist_ok=True)
    rows = pa.table({"id": keys, "ts": pa.array(range(len(keys)), pa.int64())})
    pq.write_table(rows, folder / f"{'-'.join(keys)}.parquet")
    return spark.readStream.schema(COLUMNS).parquet(str(folder))


@pytest.mark.shows("R9")
def test_the_checkpoint_of_another_query_passes_no_batch_over(
    spark: SparkSession, table: Table, tmp_path: Path
) -> None:
    first = arriving(spark, tmp_path / "first", "a")
    table.upsert_stream(first, checkpoint=str(tmp_path / "ck"), trigger="available now").awaitTermination(60)
    second = arriving(spark, tmp_path / "second", "b").writeStream.trigger(availableNow=True)
    second = second.option("checkpointLocation", str(tmp_path / "ck of second"))
    wrong = second.foreachBatch(table.batch_writer(checkpoint=tmp_path / "ck")).start()
    with pytest.raises(StreamingQueryException, match="this batch is one of the query"):
        wrong.awaitTermination(60)
    second.foreachBatch(table.batch_writer(checkpoint=tmp_path / "ck of second")).start().awaitTermination(60)
    assert sorted(table.to_arrow()["id"].to_pylist()) == ["a", "b"]


@pytest.mark.shows("R9")
def test_a_relative_checkpoint_is_where_spark_has_it(
    spark: SparkSession, table: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark's working directory stays the one that the session began in."""
    assert spark._jvm is not None
    began_in = spark._jvm.java.lang.System.getProperty("user.dir")
    checkpoint = os.path.relpath(tmp_path / "ck", began_in)
    monkeypatch.chdir(tmp_path)
    rows = arriving(spark, tmp_path / "arriving", "a")
    table.upsert_stream(rows, checkpoint=checkpoint, trigger="available now").awaitTermination(60)
    assert (tmp_path / "ck" / "metadata").exists()
    assert table.to_arrow()["id"].to_pylist() == ["a"]
