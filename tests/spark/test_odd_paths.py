"""A table may lie in a folder of any name, and so may its partitions: no character is a pattern or an escape."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import bucketlake
from bucketlake import Table, create_table, parquet_files
from bucketlake.cli import main
from bucketlake.spark.plain_reads import files_read_by_frame
from bucketlake.spark.read import split_by_reader
from bucketlake.spark.types import path_for_spark

pytestmark = [pytest.mark.spark, pytest.mark.shows("S4", "X3")]

ODD = "a [b]{c,d}*? 100%41+#é日\\'\"&;~`$"
PARTITIONS = ["[d]?", "{b,c}", "*", "100%", "#1", " ", "é日", "a b", "it's"]
SCHEMA = pa.schema([("id", pa.int64()), ("part", pa.string()), ("ts", pa.int64())])
IDS = range(2 * len(PARTITIONS))


def batch(*, ts: int, ids: Any = IDS) -> pa.Table:
    rows = [{"id": number, "part": PARTITIONS[number % len(PARTITIONS)], "ts": ts} for number in ids]
    return pa.Table.from_pylist(rows, SCHEMA)


def held(found: pa.Table) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in found.select(SCHEMA.names).to_pylist())


def expected(*, ts: int, newer: Any = ()) -> list[tuple[Any, ...]]:
    rows = {number: (number, PARTITIONS[number % len(PARTITIONS)], ts) for number in IDS}
    return sorted((rows | {number: (*rows[number][:2], ts + 1) for number in newer}).values())


@pytest.mark.parametrize("kind", ["COPY_ON_WRITE", "MERGE_ON_READ"])
def test_every_road_leads_to_a_table_in_an_odd_folder(
    kind: str, spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = tmp_path / ODD
    path = root / "t [1]"
    incoming = root / "in{coming}"
    incoming.mkdir(parents=True)
    pq.write_table(batch(ts=2), incoming / "1 [x].parquet")
    # What a pattern would find in the folder's place.
    (tmp_path / ODD.replace("[b]", "b")).mkdir()

    shape: dict[str, Any] = {
        "key": "id",
        "partition": "part",
        "ordering": "ts",
        "buckets": 2,
        "table_type": kind,
    }
    table = create_table(path, SCHEMA, **shape, spark=spark)
    table.upsert(spark.createDataFrame(batch(ts=1)).repartition(2))
    plain, merged = split_by_reader(table.plan())
    assert plain and not merged
    assert held(table.read(spark).toArrow()) == held(table.to_arrow()) == expected(ts=1)
    table.upsert(parquet_files(incoming, spark=spark))
    assert held(table.read(spark).toArrow()) == held(table.to_arrow()) == expected(ts=2)

    bare = spark.read.parquet(path_for_spark(incoming / "1 [x].parquet"))
    assert files_read_by_frame(bare) is not None
    table.upsert(bare)
    chosen = table.read(spark, columns=["id"], filters=[("part", "in", ["[d]?", "*"])])
    assert sorted(row["id"] for row in chosen.collect()) == [0, 2, 9, 11]
    assert table.get(3).num_rows == 1

    source = spark.read.format("bucketlake").load(str(path))
    assert held(source.filter("part != '#1'").toArrow()) == [row for row in expected(ts=2) if row[1] != "#1"]
    if kind == "MERGE_ON_READ":
        rows = spark.createDataFrame(batch(ts=3, ids=[1]))
        rows.write.format("bucketlake").mode("append").save(str(path))
    else:
        table.upsert(batch(ts=3, ids=[1]))
    named = f"bucketlake.`{str(path).replace('`', '``')}`"
    bucketlake.sql(
        spark, f"INSERT INTO {named} SELECT id, part, 3 FROM {named} WHERE part = '{{b,c}}' AND id > 1"
    )
    newest = expected(ts=2, newer=[1, 10])
    assert held(bucketlake.sql(spark, f"SELECT * FROM {named}").toArrow()) == newest

    for service in (
        lambda: table.compact(spark=spark) if kind == "MERGE_ON_READ" else None,
        lambda: table.cluster(spark=spark, by="ts"),
        lambda: table.clean(retain_versions=1),
        lambda: table.rollback(table.upsert(batch(ts=9)).instant or ""),
        lambda: table.archive(keep_min=2, keep_max=3),
    ):
        service()
        assert held(table.to_arrow()) == newest
    assert table.fsck(spark=spark).is_sound
    assert held(table.read(spark).toArrow()) == newest
    table.delete_partitions("[d]?")

    capsys.readouterr()
    with pytest.raises(SystemExit, match="0"):
        main(["get", str(path), "1", "--json"])
    assert [row["ts"] for row in json.loads(capsys.readouterr().out)] == [3]


def test_a_warehouse_in_an_odd_folder_has_tables(spark: SparkSession, tmp_path: Path) -> None:
    def run(text: str) -> Any:
        return bucketlake.sql(spark, text, warehouse=tmp_path / ODD)

    run("CREATE TABLE orders (id INT PRIMARY KEY, n INT) USING bucketlake")
    run("INSERT INTO orders VALUES (1, 1)")
    run("CREATE TABLE others (id INT PRIMARY KEY) USING bucketlake LOCATION 'x {y}'")
    assert [row["n"] for row in run("SELECT n FROM orders").collect()] == [1]
    assert Table.open(tmp_path / ODD / "orders").properties.name == "orders"
