"""What a bar must do on every kind of session: count tasks, and never get in the way of the work."""

from __future__ import annotations

import io
import time
from collections.abc import Iterable, Iterator
from contextlib import redirect_stderr
from unittest import mock

import pyarrow as pa
from pyspark.sql import SparkSession
from rich.progress import Progress

from bucketlake.spark import progress

TASKS = 8


def run_slow_tasks(spark: SparkSession) -> int:
    """Run a job of two stages; its second takes long enough to be looked at."""

    def slowly(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        time.sleep(0.4)
        yield from batches

    frame = spark.range(0, 100, 1, 2).repartition(TASKS).mapInArrow(slowly, "id BIGINT")
    return len(frame.collect())


def a_bar_counts_tasks(spark: SparkSession) -> None:
    shown: list[tuple[int, int]] = []

    def update(self: Progress, task: object, *, completed: int, total: int) -> None:
        shown.append((completed, total))

    with (
        mock.patch.object(Progress, "update", update),
        redirect_stderr(io.StringIO()),
        progress.watched(spark, "test", show=True),
    ):
        assert run_slow_tasks(spark) == 100
    assert shown, "nothing was shown"
    assert all(done <= known for done, known in shown)
    assert max(known for _, known in shown) >= TASKS
    assert max(done for done, _ in shown) > min(done for done, _ in shown), "nothing moved"
    with mock.patch.object(Progress, "update", update), progress.watched(spark, "test", show=False):
        shown.clear()
        assert run_slow_tasks(spark) == 100
    assert shown == []


class BrokenStream(io.StringIO):
    """A terminal that was closed."""

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> int:
        raise BrokenPipeError("the terminal is gone")


def a_bar_that_breaks_does_not_break_the_work(spark: SparkSession) -> None:
    with redirect_stderr(BrokenStream()), progress.watched(spark, "test", show=True):
        assert run_slow_tasks(spark) == 100
    for method in ("start", "update", "stop"):
        with (
            mock.patch.object(Progress, method, side_effect=RuntimeError("a display that fails")) as failing,
            redirect_stderr(io.StringIO()),
            progress.watched(spark, "test", show=True),
        ):
            assert run_slow_tasks(spark) == 100
        assert failing.called
