"""`df.write.format("bucketlake")`: what it can do is right, and what it cannot it refuses, and names the road."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from bucketlake import Table, create_table
from judges.files import listing
from judges.hudi_rs import read_snapshot

pytestmark = pytest.mark.spark

SCHEMA = "id STRING, day DATE, ts TIMESTAMP, amount DECIMAL(10,2), tags ARRAY<STRING>"


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return create_table(
        tmp_path / "orders",
        SCHEMA,
        key="id",
        partition="day",
        ordering="ts",
        buckets=2,
        table_type="MERGE_ON_READ",
    )


def orders(spark: SparkSession, keys: range, *, minute: int, tasks: int = 3) -> DataFrame:
    """Orders spread over tasks without regard to their keys."""
    return spark.range(keys.start, keys.stop, keys.step, tasks).select(
        F.concat(F.lit("o-"), F.col("id") % 50).alias("id"),
        F.lit("2026-06-18").cast("date").alias("day"),
        F.to_timestamp(F.lit(f"2026-06-18 12:{minute:02d}:00")).alias("ts"),
        F.col("id").cast("decimal(10,2)").alias("amount"),
        F.array(F.lit("x")).alias("tags"),
    )


def amounts(table: Table) -> dict[str, int]:
    """What the table holds; hudi-rs must agree."""
    found = table.to_arrow(columns=["id", "amount"]).to_pylist()
    judged = read_snapshot(Path(table.store.uri.removeprefix("file://"))).select(["id", "amount"]).to_pylist()
    assert sorted(map(str, found)) == sorted(map(str, judged))
    return {row["id"]: int(row["amount"]) for row in found}


def append(frame: DataFrame, table: Table, **options: str) -> None:
    frame.write.format("bucketlake").mode("append").options(**options).save(table.store.uri)


@pytest.mark.shows("S5")
def test_appending_upserts_into_a_merge_on_read_table(spark: SparkSession, table: Table) -> None:
    append(orders(spark, range(50), minute=0), table)
    assert amounts(table) == {f"o-{n}": n for n in range(50)}
    append(orders(spark, range(100, 120), minute=1), table)
    append(orders(spark, range(200, 240), minute=0).filter("amount >= 230"), table)  # late for half of them
    late_or_not = {f"o-{n}": 200 + n for n in range(30, 40)}
    assert amounts(table) == {f"o-{n}": 100 + n if n < 20 else n for n in range(50)} | late_or_not
    table.upsert(orders(spark, range(300, 305), minute=2))
    assert amounts(table)["o-4"] == 304
    assert [entry.operation for entry in table.timeline()] == ["UPSERT"] * 4


def test_versions_of_a_key_in_several_tasks_are_one_row(spark: SparkSession, table: Table) -> None:
    early, late = orders(spark, range(1_000), minute=0), orders(spark, range(2_000, 2_050), minute=1)
    append(late.unionByName(early), table)
    assert amounts(table) == {f"o-{n}": 2_000 + n for n in range(50)}


def test_a_table_written_in_a_session_of_another_zone_is_the_same(spark: SparkSession, table: Table) -> None:
    frame = orders(spark, range(3), minute=0)  # analyzed here, in UTC
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        append(frame, table, log_format="avro")
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    stored = table.to_arrow(columns=["ts"]).column("ts")
    assert stored.type == pa.timestamp("us", tz="UTC")
    assert {str(value) for value in stored.to_pylist()} == {"2026-06-18 12:00:00+00:00"}


def test_a_task_that_fails_takes_everything_back(spark: SparkSession, table: Table) -> None:
    append(orders(spark, range(50), minute=0), table)
    before = listing(table.store, markers=False)
    broken = orders(spark, range(100), minute=1).withColumn("id", F.when(F.col("amount") != 77, F.col("id")))
    with pytest.raises(PySparkException, match="null or empty"):
        append(broken, table)
    assert listing(table.store, markers=False) == before
    append(orders(spark, range(50), minute=2), table)


@pytest.mark.parametrize(
    ("definition", "mode", "options", "words"),
    [
        ({"table_type": "COPY_ON_WRITE"}, "append", {}, r"copy-on-write table[\s\S]*\.upsert\(df\)"),
        ({"ordering": ()}, "append", {}, r"without ordering columns[\s\S]*\.upsert\(df\)"),
        ({}, "overwrite", {}, r"\.overwrite\(df\)"),
        ({}, "error", {}, "Append"),
        ({}, "ignore", {}, "Append"),
        ({}, "append", {"as_of": "2026"}, "unknown option 'as_of'"),
        ({}, "append", {"buckets": "7"}, "has simple buckets: 2 per partition"),
        ({}, "append", {"log_format": "orc"}, "expected one of parquet, avro"),
    ],
)
def test_what_it_cannot_do_is_refused_and_nothing_is_written(
    spark: SparkSession,
    tmp_path: Path,
    definition: dict[str, object],
    mode: str,
    options: dict[str, str],
    words: str,
) -> None:
    shape = {"key": "id", "partition": "day", "ordering": "ts", "buckets": 2, "table_type": "MERGE_ON_READ"}
    table = create_table(tmp_path / "orders", SCHEMA, **(shape | definition))  # type: ignore[arg-type] # cases
    before = listing(table.store, markers=False)
    with pytest.raises(PySparkException, match=words):
        orders(spark, range(3), minute=0).write.format("bucketlake").mode(mode).options(**options).save(
            table.store.uri
        )
    assert listing(table.store, markers=False) == before


@pytest.mark.shows("P2")
@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("hoodie.bucket.index.num.buckets", "8", "has '2' .*this write says '8'"),
        ("hoodie.bucket.index.partition.expressions", "2026-.*,8", "this write says '2026-"),
        ("hoodie.index.bucket.engine", "CONSISTENT_HASHING", "has 'SIMPLE' .*this write says 'CONSISTENT"),
        ("index", "ConsistentBuckets(2)", "has simple buckets: 2 per partition.*says consistent hashing: 2"),
        ("buckets", "8", "has simple buckets: 2 per partition.*says simple buckets: 8"),
    ],
)
def test_options_that_differ_from_the_table_are_refused_with_both_values(
    spark: SparkSession, table: Table, name: str, value: str, words: str
) -> None:
    with pytest.raises(Exception, match=words):
        append(orders(spark, range(4), minute=0), table, **{name: value})
    assert table.timeline() == ()


def test_options_that_repeat_what_the_table_has_are_taken(spark: SparkSession, table: Table) -> None:
    same = {"hoodie.bucket.index.num.buckets": "2", "index": "SimpleBuckets(2)"}
    append(orders(spark, range(4), minute=0), table, **same)
    assert len(amounts(table)) == 4
