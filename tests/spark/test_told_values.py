"""What became of values reaches an index through Spark's tasks, by files and by shuffle."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from bucketlake import RecordIndex, create_table
from bucketlake.spark import write
from stand_ins.kept_values import SecondaryIndexes

SCHEMA = pa.schema([("id", pa.string()), ("dt", pa.string()), ("ts", pa.int64()), ("city", pa.string())])

KEPT = SecondaryIndexes()

pytestmark = [pytest.mark.spark, pytest.mark.shows("R11")]


@pytest.mark.parametrize(
    ("way", "table_type"),
    [("files", "MERGE_ON_READ"), ("shuffle", "COPY_ON_WRITE"), ("shuffle", "MERGE_ON_READ")],
)
def test_writes_on_spark_keep_an_index_of_values_right(
    spark: SparkSession, tmp_path: Path, way: str, table_type: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if way == "shuffle":
        monkeypatch.setattr(write, "handover_in", lambda *_: None)
    table = create_table(
        str(tmp_path / "t"),
        SCHEMA,
        key="id",
        partition="dt",
        ordering="ts",
        index=RecordIndex(shards=2),
        table_type=table_type,
        maintenance="off",
    )
    table = KEPT.of(table, "city")
    before = [(f"k{n}", f"p{n % 2}", 5, "Rome" if n % 3 else None) for n in range(20)]
    table.upsert(spark.createDataFrame(before, SCHEMA.names))
    KEPT.check(table.store, "city")
    # Another value, a late one, null, one that moves, one that is new.
    changed = [
        ("k1", "p1", 6, "Oslo"),
        ("k2", "p0", 4, "Kiel"),
        ("k4", "p0", 6, None),
        ("k5", "p0", 6, "Rome"),
    ]
    table.upsert(spark.createDataFrame([*changed, ("n", "p0", 1, "Bonn")], SCHEMA.names))
    KEPT.check(table.store, "city")
    table.overwrite(spark.createDataFrame([("k1", "p0", 7, "Oslo"), ("k4", "p0", 7, "Rome")], SCHEMA.names))
    KEPT.check(table.store, "city")
    assert table.fsck().damage == ()
