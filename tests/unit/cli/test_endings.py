"""Whatever goes wrong, a command ends in one line and a code that says what kind of thing it was."""

from __future__ import annotations

import errno
import logging
import os
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TextIO

import pyarrow as pa
import pytest
from py4j.protocol import Py4JNetworkError
from pyspark.errors import AnalysisException, PySparkRuntimeError, PythonException

from bucketlake import Table
from bucketlake.cli.ending import _EXIT_CODES
from bucketlake.errors import BucketlakeError

Run = Callable[..., tuple[int, str, str]]

TASK = """
  An exception was thrown from the Python worker. Please see the stack trace below.
Traceback (most recent call last):
  File "/job.py", line 42, in write
{}

\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handlePythonException(PythonRunner.scala:581)
"""
LOST = "bucketlake.errors.CorruptTableError: a.parquet: found nothing, expected a file. Restore it."


@pytest.mark.parametrize(
    ("fault", "code", "text"),
    [
        (
            PermissionError(errno.EACCES, "Permission denied", "/data/t"),
            7,
            "/data/t: Permission denied. Check",
        ),
        (OSError(errno.ENOSPC, "No space left on device"), 7, "No space left on device. Make room"),
        (NotADirectoryError(errno.ENOTDIR, "Not a directory", "/a/b"), 2, "/a/b: Not a directory."),
        (BrokenPipeError(errno.EPIPE, "Broken pipe"), 141, ""),
        (pa.ArrowMemoryError("malloc of size 8 failed"), 7, "out of memory"),
        (KeyboardInterrupt(), 130, "interrupted."),
        (PySparkRuntimeError("Java gateway process exited"), 7, "Spark says: Java gateway process exited"),
        (Py4JNetworkError("Answer from Java side is empty"), 7, "Spark says: Answer from Java side"),
        (AnalysisException("[NO] such column.\n\n== SQL ==\nselect"), 2, "Spark says: [NO] such column."),
        (
            PythonException(TASK.format("OSError: [Errno 28] No space")),
            7,
            "says: OSError: [Errno 28] No space",
        ),
        (PythonException(TASK.format(LOST)), 3, "error: a.parquet: found nothing, expected a file."),
        (ValueError("one\ntwo\x1b[31m"), 7, r"did not expect this: ValueError: one two\x1b[31m."),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else "",
)
def test_a_fault_is_one_line_and_a_code(
    run: Run, monkeypatch: pytest.MonkeyPatch, fault: BaseException, code: int, text: str
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise fault

    monkeypatch.setattr(Table, "open", fail)
    found, out, err = run("describe", "t")
    assert (found, out) == (code, "")
    assert text in err
    assert err.count("\n") == (1 if text else 0)


def test_every_error_of_ours_has_a_code() -> None:
    kinds = {kind for kind, _ in _EXIT_CODES}
    assert set(BucketlakeError.__subclasses__()) <= kinds


def test_where_it_went_wrong_is_told_who_asks(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BUCKETLAKE_TRACEBACK", "1")
    code, _, err = run("describe", "/nowhere/table")
    assert code == 2
    assert "Traceback" in err


def test_what_is_logged_is_a_line_too(run: Run) -> None:
    run("describe", "/nowhere/table")
    assert logging.lastResort is not None
    record = logging.LogRecord("x", logging.WARNING, "x.py", 1, "a\nb\x1b[31m", (), None)
    assert logging.lastResort.format(record) == r"warning: a b\x1b[31m"


@pytest.fixture
def output(monkeypatch: pytest.MonkeyPatch) -> Callable[[TextIO], None]:
    return partial(monkeypatch.setattr, sys, "stdout")


def test_a_pipe_that_nobody_reads_ends_a_command_without_a_word(
    run: Run, golden_table: Callable[[str], Path], output: Callable[[TextIO], None]
) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as pipe:
        output(pipe)
        code, _, err = run("read", golden_table("mor_simple_bucket_avro"))
    assert (code, err) == (141, "")


def test_a_full_disk_under_the_output_is_an_error(
    run: Run, golden_table: Callable[[str], Path], output: Callable[[TextIO], None]
) -> None:
    with Path("/dev/full").open("w") as full:
        output(full)
        code, _, err = run("read", golden_table("mor_simple_bucket_avro"))
    assert (code, err) == (7, "error: standard output: No space left on device.\n")


def test_without_java_spark_is_said_not_to_start(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", "from bucketlake.cli import main; main()", "sql", "SELECT 1"],
        capture_output=True,
        text=True,
        env={**os.environ, "JAVA_HOME": str(tmp_path)},
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (7, "", 1)
    assert f"{tmp_path}/bin/java: No such file or directory. It needs Java 17 or later" in done.stderr
