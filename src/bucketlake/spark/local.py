"""A Spark session on this machine, and files that its tasks read: for commands that are given `--spark`."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import pyarrow as pa
from pyspark.sql import SparkSession

from bucketlake.spark.files import Files
from bucketlake.spark.settings import SPARK_SETTINGS


def local_session() -> SparkSession:
    """Return a session that uses every core of this machine, and keeps quiet."""
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    settings = {
        **SPARK_SETTINGS,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.log.level": "ERROR",
    }
    return SparkSession.builder.master("local[*]").appName("bucketlake").config(map=settings).getOrCreate()


def files_read_by(
    session: SparkSession, files: Sequence[str], read: Callable[[str], pa.Table], schema: pa.Schema
) -> Files:
    """Return the rows that `read` makes of the files, one task for each file."""
    return Files(session, tuple(partial(_rows_of, read, file) for file in files), schema)


def _rows_of(read: Callable[[str], pa.Table], file: str, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    return iter(read(file).select(schema.names).to_batches())
