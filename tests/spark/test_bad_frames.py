"""Frames that cannot be written: the error is ours, not a page of Spark's, and the table is as it was."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from bucketlake import ConfigError, LayoutMismatchError, ProofError, SchemaError, Table, create_table
from bucketlake.spark.write import FrameRows
from bucketlake.write import GroupWritten, KeySum, Operation, WriteState, run_write
from judges.files import unchanged

pytestmark = pytest.mark.spark

DDL = "id STRING, dt STRING, ts BIGINT"


@pytest.fixture
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Table:
    """A table with three rows, copy-on-write unless a test says otherwise."""
    made = create_table(
        tmp_path / "orders",
        DDL,
        key="id",
        partition="dt",
        ordering="ts",
        buckets=2,
        table_type=getattr(request, "param", "COPY_ON_WRITE"),
    )
    made.upsert(pa.table({"id": ["a", "b", "c"], "dt": ["d"] * 3, "ts": [1, 1, 1]}))
    return made


def orders(spark: SparkSession) -> DataFrame:
    return spark.range(6).select(
        F.concat(F.lit("k"), F.col("id")).alias("id"), F.lit("d").alias("dt"), F.col("id").alias("ts")
    )


@pytest.mark.parametrize(
    ("column", "value", "error", "words"),
    [
        ("id", "nullif(id, 'k3')", ConfigError, "'id' is null or empty"),
        ("id", "replace(id, 'k3', '')", ConfigError, "'id' is null or empty"),
        ("dt", "if(id = 'k3', '../out', dt)", ConfigError, "begins with a dot"),
        ("ts", "nullif(ts, 3)", ConfigError, "column 'ts' is null"),
        ("ts", "cast(ts as string)", SchemaError, "column 'ts' is string"),
        ("id", None, SchemaError, "no column 'id'"),
        ("ts", None, SchemaError, "no column 'ts'"),
    ],
)
def test_a_frame_with_a_wrong_row_or_column_is_refused(
    spark: SparkSession, table: Table, column: str, value: str | None, error: type[Exception], words: str
) -> None:
    frame = orders(spark)
    frame = frame.drop(column) if value is None else frame.withColumn(column, F.expr(value))
    with unchanged(table.store, markers=False), pytest.raises(error, match=words):
        table.upsert(frame)


@pytest.mark.shows("X1")
def test_a_frame_for_another_layout_is_refused(spark: SparkSession, table: Table) -> None:
    with (
        unchanged(table.store),
        pytest.raises(LayoutMismatchError, match="has simple buckets: 2 per partition"),
    ):
        Table.open(table.store.uri, buckets=8).upsert(orders(spark))


def changing(spark: SparkSession, counter: Path, *, moves: bool) -> DataFrame:
    """A frame that has other rows each time it is evaluated: fewer keys, or keys of another partition."""
    place = str(counter)

    def evaluate(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            path = Path(place)
            before = int(path.read_text()) if path.exists() else 0
            path.write_text(str(before + 1))
            keys = [f"k{n}" for n in range(6 if moves else 6 - before)]
            days = [f"d{before}" if moves else "d"] * len(keys)
            yield pa.RecordBatch.from_pydict({"id": keys, "dt": days, "ts": [9] * len(keys)})

    return spark.range(0, 1, 1, 1).mapInArrow(evaluate, DDL)


class EvaluatedTwice(FrameRows):
    """A frame whose tasks run again, as after the loss of an executor."""

    def run(self, plan: WriteState) -> tuple[KeySum, tuple[GroupWritten, ...]]:
        super().run(plan)
        return super().run(plan)


@pytest.mark.shows("X2", "X3")
@pytest.mark.parametrize("table", ["COPY_ON_WRITE", "MERGE_ON_READ"], indirect=True)
@pytest.mark.parametrize(
    ("moves", "error", "words"),
    [
        (False, ConfigError, "two attempts at .* had different rows"),
        (True, ProofError, "attempt that failed"),
    ],
)
def test_a_frame_whose_rows_change_between_two_evaluations_is_not_committed(
    spark: SparkSession, table: Table, tmp_path: Path, moves: bool, error: type[Exception], words: str
) -> None:
    frame = changing(spark, tmp_path / "evaluated", moves=moves)
    with unchanged(table.store, markers=False), pytest.raises(error, match=words):
        run_write(EvaluatedTwice(frame), table.store, Operation.UPSERT)
    assert (tmp_path / "evaluated").read_text() == "2"
    run_write(EvaluatedTwice(orders(spark)), table.store, Operation.UPSERT)
    assert table.to_arrow().num_rows == 3 + 6
