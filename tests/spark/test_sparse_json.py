"""Sparse JSON, most of whose nested columns are null or empty: on every road into a table, and out of it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import reduce
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import bucketlake
from bucketlake import Table, create_table, parquet_files
from bucketlake.config import TableType
from judges.rows import META_COLUMNS, assert_same_rows

pytestmark = [pytest.mark.spark, pytest.mark.shows("S5")]

SCHEMA = """id STRING, ts BIGINT, by_word MAP<STRING, ARRAY<STRING>>, lists ARRAY<ARRAY<STRING>>,
    inside STRUCT<maps: ARRAY<MAP<STRING, DOUBLE>>, flags: MAP<STRING, STRUCT<on: BOOLEAN, since: ARRAY<DATE>>>>,
    never ARRAY<MAP<STRING, ARRAY<BINARY>>>"""
NOTHING: list[dict[str, Any]] = [
    {},
    {"by_word": {}, "lists": [], "inside": {}, "never": []},
    {"inside": {"maps": [], "flags": {}}},
]
LITTLE: list[dict[str, Any]] = [
    {"by_word": {"a": None, "b": []}, "lists": [[]]},
    {"lists": [[], ["x", ""]], "inside": {"maps": [{}], "flags": {"f": None, "g": {"since": []}}}},
]


def frame_of(
    spark: SparkSession, shapes: Sequence[Mapping[str, Any]], version: int, folder: Path
) -> DataFrame:
    rows = [{"id": str(n), "ts": version, **shapes[n % len(shapes)]} for n in range(6)]
    source = folder / f"{version}.json"
    source.write_text("\n".join(map(json.dumps, rows)))
    return spark.read.schema(SCHEMA).json(str(source))


def on_road(frame: DataFrame, road: str) -> DataFrame:
    return frame.withColumn("id", F.concat(F.lit(road), "id"))


def write_on_every_road(spark: SparkSession, frame: DataFrame, table: Table, folder: Path) -> None:
    for road in "bc":
        on_road(frame, road).coalesce(1).write.parquet(str(folder / road))
    on_road(frame, "e").createOrReplaceTempView("sparse_json")
    table.upsert(on_road(frame, "a"))
    table.upsert(spark.read.parquet(str(folder / "b")))
    table.upsert(parquet_files(folder / "c", spark=spark))
    table.upsert(on_road(frame, "d").toArrow())
    bucketlake.sql(spark, f"INSERT INTO bucketlake.`{table.store.uri}` SELECT * FROM sparse_json")
    if table.properties.table_type is TableType.MERGE_ON_READ:
        on_road(frame, "f").write.format("bucketlake").mode("append").save(table.store.uri)
    else:
        table.bulk_insert(on_road(frame, "f"))


@pytest.mark.parametrize("table_type", TableType)
def test_sparse_json_is_read_as_it_was_written(
    table_type: TableType, spark: SparkSession, tmp_path: Path
) -> None:
    table = create_table(
        tmp_path / "t", SCHEMA, key="id", ordering="ts", buckets=2, table_type=table_type, spark=spark
    )
    empty = frame_of(spark, NOTHING, 1, tmp_path)
    write_on_every_road(spark, empty, table, tmp_path)
    little = frame_of(spark, [*NOTHING, *LITTLE], 2, tmp_path)
    table.upsert(reduce(DataFrame.union, [on_road(little, road) for road in "abc"]))
    rows = [
        *(on_road(little, road).toArrow() for road in "abc"),
        *(on_road(empty, road).toArrow() for road in "def"),
    ]
    truth = pa.concat_tables(rows)

    def check() -> None:
        for found in (
            table.read(spark).toArrow(),
            table.to_arrow(),
            table.get(truth["id"].to_pylist()),
            bucketlake.sql(spark, f"SELECT * FROM bucketlake.`{table.store.uri}`").toArrow(),
            spark.read.format("bucketlake").load(table.store.uri).toArrow(),
        ):
            assert_same_rows(found, truth, without=META_COLUMNS)

    check()
    if table_type is TableType.MERGE_ON_READ:
        table.compact(spark=spark)
        check()
