"""Two sessions write at once: a frame that was overtaken is evaluated again for what is stale, and for nothing else."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from bucketlake import create_table
from bucketlake.spark.write import FrameRows
from bucketlake.testing.invariants import check_invariants
from bucketlake.write import ArrowRows, KeySum, Operation, WriteState, run_write
from bucketlake.write.task import GroupWritten

pytestmark = [pytest.mark.spark, pytest.mark.shows("X2")]

SCHEMA = pa.schema([("id", pa.string()), ("dt", pa.string()), ("ts", pa.int64()), ("v", pa.int32())])


class Earlier(ArrowRows):
    """Rows that are written, and wait before they are committed."""

    def __init__(self, rows: pa.Table) -> None:
        super().__init__(rows)
        self.has_begun, self.may_end = Event(), Event()

    def run(self, plan: WriteState) -> tuple[KeySum, tuple[GroupWritten, ...]]:
        done = super().run(plan)
        self.has_begun.set()
        assert self.may_end.wait(60)
        return done


class Overtaken(FrameRows):
    """A frame that lets another write pass when its tasks are done."""

    def __init__(self, frame: DataFrame, let_pass: Callable[[], object]) -> None:
        super().__init__(frame)
        self.plans: list[WriteState] = []
        self._let_pass = let_pass

    def run(self, plan: WriteState) -> tuple[KeySum, tuple[GroupWritten, ...]]:
        done = super().run(plan)
        self.plans.append(plan)
        if len(self.plans) == 1:
            self._let_pass()
        return done


def test_a_frame_that_was_overtaken_in_a_partition_keeps_its_files_in_the_others(
    spark: SparkSession, tmp_path: Path
) -> None:
    def rows_of(*rows: tuple[str, str, int, int]) -> pa.Table:
        return pa.Table.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in rows], SCHEMA)

    table = create_table(tmp_path / "t", SCHEMA, key="id", partition="dt", ordering="ts", buckets=1)
    table.upsert(rows_of(("a", "x", 1, 0), ("a", "y", 1, 0), ("b", "x", 1, 0)))
    earlier = Earlier(rows_of(("a", "x", 5, 5), ("c", "x", 5, 5)))
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(run_write, earlier, table.store, Operation.UPSERT)
        assert earlier.has_begun.wait(60)

        def let_pass() -> None:
            earlier.may_end.set()
            first.result(60)

        frame = spark.createDataFrame(
            [("a", "x", 2, 2), ("a", "y", 2, 2), ("b", "x", 2, 2)], "id STRING, dt STRING, ts BIGINT, v INT"
        )
        rows = Overtaken(frame, let_pass)
        summary = run_write(rows, table.store, Operation.UPSERT)
    first_only, again_only = (plan.only for plan in rows.plans)
    assert first_only is None
    assert [(partition, file_id[:8]) for partition, file_id in again_only or ()] == [("x", "00000000")]
    assert {plan.instant for plan in rows.plans} == {summary.instant}
    found = sorted(tuple(row.values()) for row in table.to_arrow(meta_columns=False).to_pylist())
    assert found == [("a", "x", 5, 5), ("a", "y", 2, 2), ("b", "x", 2, 2), ("c", "x", 5, 5)]
    check_invariants(table)


def test_a_write_leaves_the_settings_of_its_session_as_they_were(spark: SparkSession, tmp_path: Path) -> None:
    name = "spark.sql.execution.arrow.maxRecordsPerBatch"
    before = spark.conf.get(name)
    table = create_table(tmp_path / "t", "id STRING", key="id", buckets=1, spark=spark)
    try:
        spark.conf.set(name, "77")
        table.upsert(spark.createDataFrame([("a",), ("b",)], "id STRING"))
        assert spark.conf.get(name) == "77"
        with pytest.raises(Exception, match="null or empty"):
            table.upsert(spark.createDataFrame([("",)], "id STRING"))
        assert spark.conf.get(name) == "77"
    finally:
        spark.conf.set(name, before)
