"""Files as rows to be written: the tasks read them, columns all the way.

A frame's rows are rows to Spark, and become columns again on their way to
Python; where nothing happens to them in between, that is a good part of what a
load costs. So whoever has files, and nothing to do to their rows, hands over the
files. Each is cut between its row groups, into parts that a task can read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from os import PathLike, fspath
from typing import ClassVar

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from bucketlake.basefile.footer import open_parquet
from bucketlake.errors import ConfigError, CorruptTableError, SchemaError
from bucketlake.schema import META_COLUMNS, align, storable
from bucketlake.spark.pieces import CHUNK_BYTES, SENT_BYTES, carried, pack_rows
from bucketlake.spark.types import ddl
from bucketlake.spark.worker import settle_worker
from bucketlake.spark.write import SparkRows, cores_of
from bucketlake.storage import Handover, Store, open_store
from bucketlake.write import Cut

PART_BYTES = 128 << 20
"""Most of a file that one task reads, as it is on disk; a row group is never cut."""

Paths = str | PathLike[str] | Sequence[str | PathLike[str]]

Part = Callable[[pa.Schema], Iterator[pa.RecordBatch]]
"""Yields some rows, with the columns of a schema. Travels to an executor."""


@dataclass(frozen=True, slots=True)
class Files:
    """Rows in files, given to `Table.upsert` and its like instead of a frame."""

    spark: SparkSession
    parts: tuple[Part, ...]
    schema: pa.Schema


class FileRows(SparkRows):
    """The rows of files, a task for each part."""

    batch_limits: ClassVar = {
        "spark.sql.execution.arrow.maxBytesPerBatch": str(SENT_BYTES),
        "spark.sql.execution.arrow.maxRecordsPerBatch": str(1 << 16),
    }

    def __init__(self, files: Files, *, progress: bool | None = None) -> None:
        super().__init__(files.spark, files.schema, progress=progress)
        self._parts = files.parts

    def frame(self, columns: Sequence[str]) -> DataFrame:
        schema = self._only(columns)
        read = partial(_read_parts, parts=self._parts, schema=schema)
        return self._numbers.mapInArrow(read, ddl(schema))

    def packed(self, columns: Sequence[str], cut: Cut, handover: Handover | None) -> DataFrame:
        schema = self._only(columns)
        pack = partial(_pack_parts, parts=self._parts, schema=schema, cut=cut, handover=handover)
        return self._numbers.mapInArrow(pack, carried(handover))

    @property
    def _numbers(self) -> DataFrame:
        return self.session.range(0, len(self._parts), 1, max(1, len(self._parts)))

    def _only(self, columns: Sequence[str]) -> pa.Schema:
        return pa.schema([self.schema.field(name) for name in columns])


def _read_parts(
    batches: Iterable[pa.RecordBatch], *, parts: Sequence[Part], schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    settle_worker()
    for batch in batches:
        for number in batch.column(0).to_pylist():
            yield from parts[number](schema)


def _pack_parts(
    batches: Iterable[pa.RecordBatch],
    *,
    parts: Sequence[Part],
    schema: pa.Schema,
    cut: Cut,
    handover: Handover | None,
) -> Iterator[pa.RecordBatch]:
    return pack_rows(_read_parts(batches, parts=parts, schema=schema), cut=cut, handover=handover)


def parquet_files(
    spark: SparkSession, paths: Paths, *, storage_options: Mapping[str, str] | None = None
) -> Files:
    """Take Parquet files for rows to be written: see `bucketlake.parquet_files`."""
    named = [fspath(path) for path in ([paths] if isinstance(paths, str | PathLike) else paths)]
    found = [place for path in named for place in _found(path, storage_options)]
    if not found:
        raise ConfigError(
            f"there are no Parquet files in {', '.join(named) or 'an empty list of paths'}. Name files, or folders of "
            f"files that end in .parquet."
        )
    footers = [read_footer(store, path) for store, path in found]
    return files_of_footers(spark, footers, _common_schema(footers))


@dataclass(frozen=True, slots=True)
class Footer:
    """A Parquet file, by what its footer says."""

    store: Store
    path: str
    metadata: pq.FileMetaData
    schema: pa.Schema

    @property
    def group_bytes(self) -> list[int]:
        groups = [self.metadata.row_group(number) for number in range(self.metadata.num_row_groups)]
        return [
            sum(int(group.column(number).total_compressed_size) for number in range(group.num_columns))
            for group in groups
        ]

    def part(self, row_groups: tuple[int, ...]) -> ParquetPart:
        return ParquetPart(self.store, self.path, row_groups, self._rows_at_once)

    @property
    def _rows_at_once(self) -> int:
        """How many rows a task reads at a time."""
        groups = [self.metadata.row_group(number) for number in range(self.metadata.num_row_groups)]
        row_bytes = sum(int(group.total_byte_size) for group in groups) // max(1, int(self.metadata.num_rows))
        group_rows = max((int(group.num_rows) for group in groups), default=0)
        return rows_at_once(group_rows, wanted=max(1024, CHUNK_BYTES // max(1, row_bytes)))


def rows_at_once(group_rows: int, *, wanted: int) -> int:
    """Choose about as many rows as are packed together, so that they need not be put together.

    To end where a row group ends is cheaper than to go on in the next; small ones are read through.

    >>> rows_at_once(120_000, wanted=140_000), rows_at_once(1_000_000, wanted=140_000)
    (120000, 125000)
    >>> rows_at_once(10_000, wanted=140_000)
    140000
    """
    if 2 * group_rows < wanted:
        return wanted
    return -(-group_rows // -(-group_rows // wanted))


def files_of_footers(spark: SparkSession, footers: Sequence[Footer], schema: pa.Schema) -> Files:
    """Take whole files, which have the columns of `schema`, for rows to be written."""
    parts = cut([footer.group_bytes for footer in footers], tasks=cores_of(spark))
    return Files(spark, tuple(footers[file].part(groups) for file, groups in parts), schema)


def read_footer(store: Store, path: str) -> Footer:
    """Read a file's footer. ConfigError for a file that is none of Parquet's."""
    try:
        with open_parquet(store, path) as file:
            return Footer(store, path, file.metadata, file.schema_arrow)
    except CorruptTableError as error:
        raise ConfigError(
            f"{store.uri}/{path}: found {error.found}, expected a Parquet file. Mend it, or leave it out."
        ) from error


@dataclass(frozen=True, slots=True)
class ParquetPart:
    """Some row groups of a file."""

    store: Store
    path: str
    row_groups: tuple[int, ...]
    rows_at_once: int

    def __call__(self, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        try:
            with open_parquet(self.store, self.path) as file:
                for batch in file.iter_batches(
                    self.rows_at_once, row_groups=self.row_groups, columns=schema.names, use_threads=False
                ):
                    yield align(batch, schema, path=self.path)
        except (FileNotFoundError, CorruptTableError) as error:
            found = error.found if isinstance(error, CorruptTableError) else "no file"
            raise ConfigError(
                f"{self.store.uri}/{self.path}: found {found}, expected the file as it was when the write began. Run "
                f"the write again when nobody changes the file; if that does not help, it is damaged."
            ) from error


def cut(sizes: Sequence[Sequence[int]], *, tasks: int) -> tuple[tuple[int, tuple[int, ...]], ...]:
    """Cut files, of whose row groups these are the bytes, into parts of about equal size between row groups.

    A part is the number of a file and those of its row groups. There are as many as tasks can run at once, or more.

    >>> cut([[10, 10, 10, 10], [5]], tasks=2)
    ((0, (0, 1)), (0, (2, 3)), (1, (0,)))
    >>> [len(groups) for _, groups in cut([[10] * 33], tasks=2)]
    [16, 17]
    """
    part_bytes = max(1, min(PART_BYTES, -(-sum(map(sum, sizes)) // tasks)))
    parts: dict[tuple[int, int], list[int]] = {}
    before = 0
    for file, of_groups in enumerate(sizes):
        for group, size in enumerate(of_groups):
            # A group goes where its middle lies.
            parts.setdefault((file, (before + size // 2) // part_bytes), []).append(group)
            before += size
    return tuple((file, tuple(groups)) for (file, _), groups in parts.items())


def _found(path: str, options: Mapping[str, str] | None) -> list[tuple[Store, str]]:
    folder, _, name = path.rstrip("/").rpartition("/")
    if name.endswith(".parquet"):
        store = open_store(folder or ("/" if path.startswith("/") else "."), options)
        # Spark gives folders such names, too.
        with suppress(FileNotFoundError):
            store.stat(name)
            return [(store, name)]
    store = open_store(path, options)
    return [
        (store, file.path)
        for file in store.list("", recursive=True).files
        if file.path.endswith(".parquet") and not _is_hidden(file.path)
    ]


def _is_hidden(path: str) -> bool:
    return any(name.startswith((".", "_")) for name in path.split("/"))


def _common_schema(footers: Sequence[Footer]) -> pa.Schema:
    first = footers[0]
    schema = _columns(first.schema)
    for other in footers[1:]:
        found = _columns(other.schema)
        strangers = [field.name for field in found if field.name not in schema.names]
        for field in schema:
            if field.name not in found.names or found.field(field.name).type != field.type:
                strangers.append(field.name)
        if strangers:
            name = strangers[0]
            raise SchemaError(
                f"{other.path} has the column {name!r} {_as_what(found, name)}, and {first.path} "
                f"{_as_what(schema, name)}. Write files with different columns one after the other, or read them with "
                f"Spark."
            )
    return schema


def _columns(schema: pa.Schema) -> pa.Schema:
    return storable(pa.schema([field for field in schema if field.name not in META_COLUMNS]))


def _as_what(schema: pa.Schema, name: str) -> str:
    return f"as {schema.field(name).type}" if name in schema.names else "not at all"
