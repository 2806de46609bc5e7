"""Rows as a caller has them, made into what is replayed: only key and partition columns, and a few whole rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike, fspath
from typing import Any

import pyarrow as pa

from bucketlake import given
from bucketlake.advice.job import Source, check_columns
from bucketlake.advice.keys import ROWS_MAX
from bucketlake.advice.sizes import SAMPLE_ROWS
from bucketlake.errors import ConfigError, SchemaError
from bucketlake.spark.types import quoted


def source_of(rows: Any, *, key: Sequence[str], partition: Sequence[str]) -> Source:
    """Take what `upsert` takes; of a Spark frame with very many rows, Spark chooses the sample."""
    if given.is_files(rows):
        raise ConfigError(
            "the rows are parquet_files(...), which only writes take. Give spark.read.parquet(path), or on the command "
            "line: bucketlake advise FILES --key COLUMN."
        )
    if isinstance(rows, str | PathLike):
        raise ConfigError(
            f"the rows are a path, {fspath(rows)!r}. For a table: Table.open(path).advise(). For files: "
            f"pyarrow.parquet.read_table(path), or on the command line: bucketlake advise FILES --key COLUMN."
        )
    if given.is_frame(rows):
        return _of_frame(rows, key=key, partition=partition)
    if isinstance(rows, list | tuple) and rows and all(isinstance(row, Mapping) for row in rows):
        names = dict.fromkeys(name for row in rows for name in row)
        try:
            table = pa.table({name: [row.get(name) for row in rows] for name in names})
        except pa.ArrowException as error:
            raise SchemaError(
                f"the rows are no columns: {error}. Give values of one type in a column."
            ) from error
    else:
        table = given.rows_of(rows, lambda: given.schema_of(rows) if given.is_rows(rows) else pa.schema([]))
    check_columns(table.schema, key, partition)
    return Source(
        tables=[table.select([*dict.fromkeys([*key, *partition])])], rows=table.num_rows, head=table
    )


def _of_frame(frame: Any, *, key: Sequence[str], partition: Sequence[str]) -> Source:
    head = frame.limit(SAMPLE_ROWS).toArrow()
    check_columns(head.schema, key, partition)
    names = [quoted(name) for name in dict.fromkeys([*key, *partition])]
    wanted, count = frame.select(*names), frame.count()
    every = -(-count // ROWS_MAX)
    if every > 1:
        hashed = ", ".join(quoted(name) for name in key)
        wanted = wanted.where(f"pmod(xxhash64({hashed}), {every}) = 0")
    return Source(tables=[wanted.toArrow()], rows=count, head=head, every=every if every > 1 else None)
