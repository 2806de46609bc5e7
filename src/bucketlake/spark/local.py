"""A Spark session on this machine, and files that its tasks read: for commands that are given `--spark`."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from tempfile import TemporaryFile
from typing import IO, Any

import pyarrow as pa
from pyspark.errors import PySparkRuntimeError
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from bucketlake.errors import SetupError
from bucketlake.spark.files import Files
from bucketlake.spark.settings import DAEMON, SPARK_SETTINGS


def local_session() -> SparkSession:
    """Return a session that uses every core of this machine, and keeps quiet. SetupError if there is no Java for it."""
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    settings: dict[str, Any] = {
        **SPARK_SETTINGS,
        **DAEMON,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.log.level": "ERROR",
    }
    for name in _CHATTY:
        PySparkLogger.getLogger(name).setLevel(logging.CRITICAL + 1)
    builder = SparkSession.builder.master("local[*]").appName("bucketlake").config(map=settings)
    with _stderr_of_children() as said:
        try:
            return builder.getOrCreate()
        except PySparkRuntimeError as error:
            why = said() or str(error)
    raise SetupError(f"Spark did not start: {why}. It needs Java 17 or later: install it, and set JAVA_HOME.")


_CHATTY = ("py4j", "SQLQueryContextLogger", "DataFrameQueryContextLogger")
"""They log, page by page, what is raised as an error too."""


@contextmanager
def _stderr_of_children() -> Iterator[Callable[[], str]]:
    """Keep what processes that are started in the block write to standard error, for as long as they live.

    Java says there how it starts, and tells of every failure at length; those come back as errors too. Yields what
    tells the first line that is no warning.
    """
    with TemporaryFile() as file:
        ours = os.dup(2)
        os.dup2(file.fileno(), 2)
        try:
            yield lambda: _first_line(file)
        finally:
            os.dup2(ours, 2)
            os.close(ours)


def _first_line(file: IO[bytes]) -> str:
    file.seek(0)
    lines = [line.strip() for line in file.read().decode(errors="replace").splitlines()]
    return next((line.rstrip(".") for line in lines if line and not line.startswith("WARN")), "")


def files_read_by(
    session: SparkSession, files: Sequence[str], read: Callable[[str], pa.Table], schema: pa.Schema
) -> Files:
    """Return the rows that `read` makes of the files, one task for each file."""
    return Files(session, tuple(partial(_rows_of, read, file) for file in files), schema)


def _rows_of(read: Callable[[str], pa.Table], file: str, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    return iter(read(file).select(schema.names).to_batches())


def active_session() -> SparkSession | None:
    """Return the session that is active in this thread, if there is one."""
    return SparkSession.getActiveSession()
