"""Frames by secondary indexes: `Table.read(filters=…)` and SQL open the file groups that an index names."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import bucketlake
from bucketlake import RecordIndex, Table, create_table

pytestmark = [pytest.mark.spark, pytest.mark.shows("R11")]


def made(folder: Path) -> Table:
    numbers = range(40)
    rows = pa.table(
        {
            "id": list(numbers),
            "dt": [f"p{n % 4}" for n in numbers],
            "city": [("Oslo" if n % 10 == 0 else None if n == 7 else f"c{n}") for n in numbers],
        }
    )
    table = create_table(
        folder,
        rows.schema,
        key="id",
        partition="dt",
        index=RecordIndex(shards=2),
        table_type="MERGE_ON_READ",
        maintenance="off",
    )
    table.upsert(rows)
    table.create_index("by_city", on="city")
    table.upsert(pa.table({"id": [20, 2], "dt": ["p0", "p2"], "city": ["Rome", "Oslo"]}))
    return table


def test_a_frame_and_a_statement_are_read_by_a_secondary_index(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = made(tmp_path / "orders")
    planned: list[bucketlake.table.ReadPlan] = []
    plan = Table.plan
    monkeypatch.setattr(
        Table, "plan", lambda *args, **query: planned.append(plan(*args, **query)) or planned[-1]
    )
    questions: list[tuple[list[tuple[object, ...]], str, list[int], list[str]]] = [
        ([("city", "=", "Oslo")], "city = 'Oslo'", [0, 2, 10, 30], ["p0", "p2"]),
        ([("city", "is null")], "city IS NULL", [7], ["p3"]),
        ([("city", "=", "Oslo"), ("dt", "=", "p2")], "city = 'Oslo' AND dt = 'p2'", [2, 10, 30], ["p2"]),
    ]
    for filters, where, ids, partitions in questions:
        by_filters = table.read(spark, filters=filters)  # type: ignore[arg-type] # of any length
        by_statement = bucketlake.sql(spark, f"SELECT * FROM bucketlake.`{tmp_path}/orders` WHERE {where}")
        for frame in (by_filters, by_statement):
            assert sorted(row.id for row in frame.collect()) == ids
        for one in planned:
            assert sorted({part.partition for part in one.slices}) == partitions
            assert one.asked[0].keys is not None
        assert len(planned) == 2
        planned.clear()
    by_source = spark.read.format("bucketlake").load(str(tmp_path / "orders")).where("city = 'Oslo'")
    assert sorted(row.id for row in by_source.collect()) == [0, 2, 10, 30], "reads all, and Spark filters"
    explained = bucketlake.sql(spark, f"CALL explain(table => '{tmp_path}/orders', key => 20)")
    assert any("by_city: city = 'Rome'" in row.plan for row in explained.collect())
