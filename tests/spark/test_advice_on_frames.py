"""A frame gives the advice that its rows give, and a large one is sampled by Spark."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import bucketlake

pytestmark = [pytest.mark.spark, pytest.mark.shows("X5")]


def test_a_frame_gives_the_advice_of_its_rows(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = pa.table({"id": np.arange(20_000), "day": ["a", "b"] * 10_000})
    frame = spark.createDataFrame(rows)
    whole = bucketlake.advise(rows, key="id", partition="day")
    found = bucketlake.advise(frame, key="id", partition="day")
    assert found.chosen.index == whole.chosen.index
    assert (found.rows, found.every, found.columns) == (20_000, 1, "id BIGINT, day STRING")
    monkeypatch.setattr("bucketlake.advice.rows.ROWS_MAX", 5_000)
    part = bucketlake.advise(frame, key="id", partition="day")
    assert part.every == 4
    assert part.rows == pytest.approx(20_000, rel=0.1)
