"""Dynamic buckets through Spark's tasks, by files and by shuffle, and as SQL has them."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import bucketlake
from bucketlake import Table
from bucketlake.spark import write
from stand_ins.dynamic_check import check_buckets
from stand_ins.record_index_check import check_record_index

pytestmark = [pytest.mark.spark, pytest.mark.shows("D1", "D2", "D8")]


@pytest.mark.parametrize(("table_type", "way"), [("cow", "files"), ("mor", "shuffle")])
def test_buckets_fill_one_after_the_other_on_spark_too(
    spark: SparkSession, tmp_path: Path, table_type: str, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if way == "shuffle":
        monkeypatch.setattr(write, "handover_in", lambda *_: None)
    place = tmp_path / "events"
    bucketlake.sql(
        spark,
        f"CREATE TABLE events_{way} (id STRING PRIMARY KEY, dt STRING, ts BIGINT) USING bucketlake PARTITIONED BY (dt) "
        f"LOCATION '{place}' TBLPROPERTIES (type = '{table_type}', orderingFields = 'ts', maintenance = 'off', "
        f"hoodie.index.bucket.engine = 'DYNAMIC', assigners = '3', keysPerBucket = '20')",
    )
    table = Table.open(place)
    for number in range(2):
        values = [(f"k{n}", f"p{n % 2}", number) for n in range(60 * number, 60 * number + 90)]
        done = table.upsert(spark.createDataFrame(values, ["id", "dt", "ts"]).repartition(5))
        assert (done.looked_up, done.cache_hits) == (90, 0)
        filled = check_buckets(table.store)
        for partition in ("p0", "p1"):
            part_filled = [keys for (where, _), keys in filled.items() if where == partition and keys < 20]
            assert len(part_filled) <= 3, filled
    assert check_record_index(table.store) == 150
    assert table.fsck(spark=spark).damage == ()
    expected = table.locations("p1").sort_by("key")
    assert expected.num_rows == 75
    for frame in (
        table.locations("p1", spark=spark),
        bucketlake.sql(spark, f"CALL locations(table => '{table.store.uri}', partition => 'p1')"),
    ):
        assert frame.toArrow().sort_by("key").to_pylist() == expected.to_pylist()
