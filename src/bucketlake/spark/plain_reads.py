"""Frames that read Parquet files and do no more: their rows need not become rows.

`spark.read.parquet(path)`, handed to a write, is by far the most common frame, and to Spark no different from any
other: it makes rows of the files' columns, and columns of the rows again for Python. Here it is found out, so that the
tasks read the files themselves, as they do for `parquet_files`.

Spark is asked and nothing is guessed: the frame's files are those that Spark would read, and the frame means the same
as a bare read of them, by `DataFrame.sameSemantics`. What Spark knows and the files do not say (a cache, a filter, a
folder's values, an old calendar, a column under another name) makes it an ordinary frame, which is never wrong and only
slower. So does a path in another file system, which Spark reaches with credentials of its own, and a session elsewhere,
whose disk is not ours.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from bucketlake.errors import BucketlakeError
from bucketlake.spark.files import Files, Footer, files_of_footers, read_footer
from bucketlake.spark.types import arrow_schema, escaped_for_glob, path_for_spark
from bucketlake.storage import LocalStore

_LENIENT = ("spark.sql.files.ignoreCorruptFiles", "spark.sql.files.ignoreMissingFiles")
_CALENDAR = "spark.sql.parquet.datetimeRebaseModeInRead"
_PADDED = "__CHAR_VARCHAR_TYPE_STRING"
"""Where a schema has this, Spark pads text that it reads."""


def files_read_by_frame(frame: DataFrame) -> Files | None:
    """Return the files whose rows, whole and in their order of columns, are those of a frame; None for other frames."""
    session = frame.sparkSession
    if not _is_here(session):
        return None
    try:
        footers = _footers_behind(frame)
    except (BucketlakeError, OSError, PySparkException):
        return None  # Spark will say in its own words what is wrong with the frame, or with the files.
    return files_of_footers(session, footers, arrow_schema(frame.schema.jsonValue())) if footers else None


def _footers_behind(frame: DataFrame) -> list[Footer]:
    """Return the footers of the files that a frame only reads; none if it does more."""
    if _is_cached(frame) or _is_lenient(frame.sparkSession):
        return []
    paths = _local_paths(frame.inputFiles())
    if not paths or any(path.parent != paths[0].parent for path in paths):
        return []
    first = _footer(paths[0])
    if not _reads_alike(frame, first) or not _only_reads(frame, paths):
        return []
    footers = [first, *map(_footer, paths[1:])]
    return footers if all(_reads_alike(frame, footer) for footer in footers) else []


def _is_here(session: SparkSession) -> bool:
    try:
        return session.sparkContext is not None
    except (PySparkException, AttributeError):  # Spark Connect
        return False


def _is_cached(frame: DataFrame) -> bool:
    """Whether Spark keeps the rows: as they were then, whatever became of the files."""
    level = frame.storageLevel
    return level.useMemory or level.useDisk or level.useOffHeap


def _is_lenient(session: SparkSession) -> bool:
    return any(str(session.conf.get(name)).lower() != "false" for name in _LENIENT)


def _local_paths(uris: Sequence[str]) -> list[Path]:
    """Return the paths of files on this disk, in order; none if some file is not, or may be no Parquet.

    >>> _local_paths(["file:///data/b%20c.parquet", "file:///data/a.parquet"])
    [PosixPath('/data/a.parquet'), PosixPath('/data/b c.parquet')]
    >>> _local_paths(["file:///data/a.parquet", "s3a://lake/b.parquet"])
    []
    """
    parts = [urlsplit(uri) for uri in uris]
    if any(part.scheme != "file" or part.netloc or not part.path.endswith(".parquet") for part in parts):
        return []
    return sorted(Path(unquote(part.path)) for part in parts)


def _footer(path: Path) -> Footer:
    return read_footer(LocalStore(path.parent), path.name)


def _reads_alike(frame: DataFrame, footer: Footer) -> bool:
    """Whether Arrow reads the columns of a file as Spark does: the same names in the same order, of the same types.

    By their order, because to `sameSemantics` the names mean nothing.
    """
    if _PADDED in frame.schema.json():
        return False
    found, wanted = footer.schema, arrow_schema(frame.schema.jsonValue())
    if found.names != wanted.names or found.types != wanted.types:
        return False
    return not any(map(_has_calendar, wanted.types)) or _is_modern(footer, frame.sparkSession)


def _has_calendar(kind: pa.DataType) -> bool:
    inner = [kind.field(number).type for number in range(kind.num_fields)]
    return pa.types.is_temporal(kind) or any(map(_has_calendar, inner))


def _is_modern(footer: Footer, session: SparkSession) -> bool:
    """Whether days long ago are to be read as they stand: Spark 2 counted them by an older calendar."""
    notes = footer.metadata.metadata or {}
    is_old = any(name.startswith(b"org.apache.spark.legacy") for name in notes)
    is_old = is_old or notes.get(b"org.apache.spark.version", b"").startswith((b"1.", b"2."))
    return not is_old and str(session.conf.get(_CALENDAR)).upper() == "CORRECTED"


def _only_reads(frame: DataFrame, paths: Sequence[Path]) -> bool:
    """Whether a frame means the same as a bare read of one file, or of a folder that has these files alone."""
    read = frame.sparkSession.read.schema(frame.schema)
    named = [*(paths if len(paths) == 1 else ()), *([paths[0].parent] if _is_all_there_is(paths) else ())]
    return any(frame.sameSemantics(read.parquet(text)) for path in named for text in _spellings(path))


def _spellings(path: Path) -> Iterator[str]:
    """Yield a path as a user may have written it: to `sameSemantics` that is a part of what it means."""
    yield escaped_for_glob(str(path))
    if path.is_relative_to(Path.cwd()):
        yield escaped_for_glob(str(path.relative_to(Path.cwd())))
    yield path_for_spark(path)


def _is_all_there_is(paths: Sequence[Path]) -> bool:
    """Whether a folder holds nothing else that Spark would list, perhaps for a long time."""
    return {found for found in paths[0].parent.iterdir() if not found.name.startswith((".", "_"))} == set(
        paths
    )
