"""Frames whose columns are not the table's, on every road from Spark into one."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from bucketlake import ConfigError, SchemaError, Table, create_table, sql
from judges.files import unchanged

pytestmark = pytest.mark.spark


def columns(table: Table) -> dict[str, bool]:
    return {field.name: field.nullable for field in table.schema}


@pytest.mark.shows("S5")
def test_a_frame_changes_the_columns_of_a_table_only_when_asked(spark: SparkSession, tmp_path: Path) -> None:
    first = spark.range(6).select("id", F.lit("d").alias("dt"), F.lit(1).alias("n"))
    assert not first.schema["n"].nullable, "Spark knows that a literal is no null"
    table = create_table(
        tmp_path / "t", first, key="id", partition="dt", ordering="n", table_type="MERGE_ON_READ", spark=spark
    )
    assert columns(table) == {"id": True, "dt": True, "n": True}
    table.upsert(first)
    more = first.withColumn("x", F.lit("x"))
    with unchanged(table.store), pytest.raises(SchemaError, match=r"have 'x'.*merge_schema=True"):
        table.upsert(more)
    by_name = more.write.format("bucketlake").mode("append")
    with unchanged(table.store), pytest.raises(PySparkException, match="merge_schema"):
        by_name.save(table.store.uri)
    by_name.option("mergeSchema", "true").save(table.store.uri)
    assert columns(table)["x"], "whatever the frame says, it is null in the rows there are"
    with unchanged(table.store), pytest.raises(SchemaError, match="no column 'x'"):
        table.upsert(first)
    table.alter(allow_missing_columns=True)
    table.upsert(first.filter("id < 3"))
    assert {row.id: row.x for row in table.read(spark).collect()} == {
        n: None if n < 3 else "x" for n in range(6)
    }


@pytest.mark.shows("S5")
def test_sql_adds_columns_only_when_asked(spark: SparkSession, tmp_path: Path) -> None:
    def run(text: str) -> object:
        return sql(spark, text, warehouse=tmp_path)

    made = (
        "CREATE TABLE {} (id INT, n INT) USING bucketlake TBLPROPERTIES (primaryKey = 'id', mergeSchema = {})"
    )
    run(made.format("strict", "'false'"))
    run(made.format("loose", "'true'"))
    query = "BY NAME SELECT 1 AS id, 2 AS n, 'x' AS more"
    with pytest.raises(ConfigError, match="WITH SCHEMA EVOLUTION"):
        run(f"INSERT INTO strict {query}")
    run(f"INSERT WITH SCHEMA EVOLUTION INTO strict {query}")
    run(f"INSERT INTO loose {query}")
    for name in ("strict", "loose"):
        rows = sql(spark, f"SELECT id, n, more FROM {name}", warehouse=tmp_path).collect()
        assert [tuple(row) for row in rows] == [(1, 2, "x")]
