"""Keys of what an overwrite replaces reach the index through Spark's tasks, by files and by shuffle."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from bucketlake import RecordIndex, create_table
from bucketlake.spark import write
from stand_ins.record_index_check import check_record_index

SCHEMA = pa.schema([("id", pa.string()), ("dt", pa.string()), ("ts", pa.int64())])

pytestmark = [pytest.mark.spark, pytest.mark.shows("R1", "R7")]


@pytest.mark.parametrize("way", ["files", "shuffle"])
def test_an_overwrite_on_spark_keeps_the_index_right(
    spark: SparkSession, tmp_path: Path, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if way == "shuffle":
        monkeypatch.setattr(write, "handover_in", lambda *_: None)
    table = create_table(
        str(tmp_path / "t"),
        SCHEMA,
        key="id",
        partition="dt",
        ordering="ts",
        index=RecordIndex(shards=3),
        table_type="MERGE_ON_READ",
        maintenance="off",
    )
    before = [(f"k{n}", f"p{n % 2}", 1) for n in range(40)]
    table.upsert(pa.Table.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in before], SCHEMA))
    table.delete(pa.table({"id": ["k0"], "dt": ["p0"]}))
    # k1 moves, k2 is written again, the other keys of p0 are gone.
    table.overwrite(spark.createDataFrame([("k1", "p0", 2), ("k2", "p0", 2), ("n", "p0", 2)], SCHEMA.names))
    expected = {row for row in before if row[1] == "p1" and row[0] != "k1"}
    expected |= {("k1", "p0", 2), ("k2", "p0", 2), ("n", "p0", 2)}
    assert {tuple(row.values()) for row in table.to_arrow(columns=SCHEMA.names).to_pylist()} == expected
    assert check_record_index(table.store) == len(expected)
    table.cluster(by=["ts"], spark=spark)
    assert check_record_index(table.store) == len(expected)
    assert table.fsck().damage == ()
