"""A Spark session on this machine, and files as a frame on it: for commands that are given `--spark`."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from bucketlake.spark.types import ddl
from bucketlake.spark.worker import settle_worker


def local_session() -> SparkSession:
    """Return a session that uses every core of this machine, and keeps quiet."""
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.log.level": "ERROR",
    }
    builder = SparkSession.builder.master("local[*]").appName("bucketlake")
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def frame_of_files(
    session: SparkSession, files: Sequence[str], read: Callable[[str], pa.Table], schema: pa.Schema
) -> DataFrame:
    """Return the rows that `read` makes of the files, one task for each file."""
    numbers = session.range(0, len(files), 1, len(files))
    return numbers.mapInArrow(partial(_read_files, files=tuple(files), read=read), ddl(schema))


def _read_files(
    batches: Iterable[pa.RecordBatch], *, files: tuple[str, ...], read: Callable[[str], pa.Table]
) -> Iterator[pa.RecordBatch]:
    settle_worker()
    for batch in batches:
        for number in batch.column(0).to_pylist():
            yield from read(files[number]).to_batches()
