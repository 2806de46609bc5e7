"""How a command ends when something went wrong: in one line on standard error, and a code that says what kind it was.

Never in a traceback, unless `BUCKETLAKE_TRACEBACK` is set.
"""

from __future__ import annotations

import errno
import io
import logging
import os
import re
import sys
import traceback
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import typer

from bucketlake import spark as on_spark
from bucketlake.cli.app import app
from bucketlake.cli.screen import OutputError, give_up_output, nobody_reads, visible
from bucketlake.errors import (
    BucketlakeError,
    ConfigError,
    ConflictError,
    CorruptTableError,
    ProofError,
    SetupError,
    UnsupportedError,
)

EXIT_WRONG_CALL = 2
EXIT_FAILED = 7
EXIT_INTERRUPTED = 130
EXIT_NO_READER = 141

_EXIT_CODES: Sequence[tuple[type[BucketlakeError], int]] = (
    (ConfigError, EXIT_WRONG_CALL),
    (CorruptTableError, 3),
    (UnsupportedError, 4),
    (ConflictError, 5),
    (ProofError, 6),
    (SetupError, EXIT_FAILED),
)
_REMEDIES = {
    errno.ENOSPC: "Make room on the disk, and run the command again.",
    errno.EDQUOT: "Make room on the disk, and run the command again.",
    errno.EACCES: "Check what this user may read and write there.",
    errno.EPERM: "Check what this user may read and write there.",
    errno.EROFS: "Choose a place that can be written to.",
    errno.EMFILE: "Allow this process more open files: ulimit -n.",
}
_WRONG_PATH = frozenset({errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG, errno.ELOOP})
_SHOW_WHERE = "BUCKETLAKE_TRACEBACK"
"""An environment variable: if it is set, a command that fails also prints where in the code. Default: not set, because
the message says what to do."""

# What Spark says of a failure is a page; these lines of it tell what happened.
_PYTHON_FAULT = re.compile(r"^(?:\w+\.)*\w*(?:Error|Exception|Interrupt|Exit)(?:: .*)?$", re.MULTILINE)
_JAVA_FAULT = re.compile(r"^Caused by: (.*)$", re.MULTILINE)
_FAULTS_OF_A_STATEMENT = (
    "AnalysisException",
    "ParseException",
    "IllegalArgumentException",
    "ArithmeticException",
    "UnsupportedOperationException",
    "ArrayIndexOutOfBoundsException",
    "DateTimeException",
    "NumberFormatException",
    "SparkRuntimeException",
    "SparkNoSuchElementException",
    "PySparkValueError",
    "PySparkTypeError",
)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line."""
    for stream in (sys.stdout, sys.stderr):
        # A character that a terminal cannot show is spelled, and no error.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    if logging.lastResort is not None:
        logging.lastResort.setFormatter(_OneLine())
    words = None if arguments is None else list(arguments)
    try:
        code = app(args=words, prog_name="bucketlake", standalone_mode=False) or 0
        if code == EXIT_INTERRUPTED:  # what Typer makes of Ctrl-C
            raise KeyboardInterrupt
    except SystemExit as stop:
        # So Rich and Typer end when nobody reads the help they print.
        code = EXIT_NO_READER if isinstance(stop.__context__, BrokenPipeError) else stop.code
    except BaseException as error:
        code = report(error)
    sys.exit(code)


def report(error: BaseException) -> int:
    """Say in a line what went wrong; return the exit code."""
    if os.environ.get(_SHOW_WHERE):
        traceback.print_exception(error)
    text, code = _ending(error)
    if isinstance(error, OutputError):
        if nobody_reads():  # who pipes into `head` has seen what he wanted
            text, code = "", EXIT_NO_READER
        give_up_output()
    if text:
        mark = typer.style("error:", fg="red", bold=True) if sys.stderr.isatty() else "error:"
        with suppress(OSError):
            sys.stderr.write(f"{mark} {_one_line(text)}\n")
            sys.stderr.flush()
    return code


def _ending(error: BaseException) -> tuple[str, int]:
    error = _own_error(error)
    match error:
        case BucketlakeError():
            return str(error), next(code for kind, code in _EXIT_CODES if isinstance(error, kind))
        case KeyboardInterrupt() | typer.Abort():
            return "interrupted.", EXIT_INTERRUPTED
        case OutputError():
            return f"standard output: {error}.", EXIT_FAILED
        case OSError():
            return _of_system(error), EXIT_WRONG_CALL if error.errno in _WRONG_PATH else EXIT_FAILED
        case MemoryError():
            return f"out of memory. {error}", EXIT_FAILED
    if _is_typers(error):
        return _of_call(error)
    if _is_sparks(error):
        names = {kind.__name__ for kind in type(error).__mro__}
        is_of_statement = not names.isdisjoint(_FAULTS_OF_A_STATEMENT)
        return f"Spark says: {_of_spark(error)}", EXIT_WRONG_CALL if is_of_statement else EXIT_FAILED
    found = f"{type(error).__name__}: {error}".split("\n\n")[0]
    remedy = f"Set {_SHOW_WHERE}=1 to see where it comes from, and report it."
    return f"bucketlake did not expect this: {found}. {remedy}", EXIT_FAILED


def _own_error(error: BaseException) -> BaseException:
    """Return an error of ours that one of Spark's tells of."""
    if not _is_sparks(error):
        return error
    try:
        with on_spark.write.own_errors():
            raise error
    except BaseException as found:
        return found


def _is_sparks(error: BaseException) -> bool:
    # By the names of their modules: a command that needs no Spark should not import it.
    return any(kind.__module__.partition(".")[0] in ("pyspark", "py4j") for kind in type(error).__mro__)


def _of_spark(error: BaseException) -> str:
    text = str(error)
    told = _PYTHON_FAULT.findall(text) or _JAVA_FAULT.findall(text)
    return str(told[-1]) if told else text.strip().split("\n\n")[0]


def _is_typers(error: BaseException) -> bool:
    return hasattr(error, "format_message") and hasattr(error, "exit_code")


def _of_call(error: Any) -> tuple[str, int]:
    """Say what is wrong with the words of a command line."""
    if type(error).__name__ == "NoArgsIsHelpError":  # the help is printed already
        return "", error.exit_code
    context = getattr(error, "ctx", None)
    hint = f" See {context.command_path} --help." if context is not None else ""
    said = error.format_message().rstrip(".")
    return f"{said}{'' if said.endswith('?') else '.'}{hint}", error.exit_code


def _of_system(error: OSError) -> str:
    place = f"{error.filename}: " if error.filename else ""
    found = f"{place}{error.strerror or error}".rstrip(".")
    notes = getattr(error, "__notes__", ())
    return " ".join([f"{found}.", *notes, *filter(None, [_REMEDIES.get(error.errno or 0)])])


def _one_line(text: str) -> str:
    return visible(" ".join(line.strip() for line in text.split("\n") if line.strip()))


class _OneLine(logging.Formatter):
    """For what is logged while nobody has said where to."""

    def format(self, record: logging.LogRecord) -> str:
        return f"{record.levelname.lower()}: {_one_line(record.getMessage())}"
