"""`bucketlake advise`: the user's own keys through every index."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Annotated

import pyarrow as pa
import pyarrow.parquet as pq
import typer

from bucketlake.advice import GROWTH, SAMPLE_ROWS, Source, advise_on_rows, check_columns
from bucketlake.cli.app import AsJson, Storage, app, pairs
from bucketlake.cli.files import FileFormat, column_names, format_of, read_columns, read_schema
from bucketlake.cli.screen import Screen
from bucketlake.errors import ConfigError, NotATableError, SchemaError
from bucketlake.schema import META_COLUMNS
from bucketlake.table import Table

_BATCH_ROWS = 1 << 20


@app.command(
    epilog="Examples: bucketlake advise orders.parquet --key id --partition day; bucketlake advise /data/orders",
)
def advise(
    files_or_table: Annotated[
        list[str], typer.Argument(metavar="FILE...|TABLE", help="Parquet, CSV or JSON lines; or one table.")
    ],
    key: Annotated[
        list[str] | None,
        typer.Option(metavar="COLUMN", help="Key column; may be repeated. A table says it itself."),
    ] = None,
    partition: Annotated[
        list[str] | None, typer.Option(metavar="COLUMN", help="Partition column; may be repeated.")
    ] = None,
    batch_rows: Annotated[
        int | None,
        typer.Option(
            metavar="N", help="Rows of a typical batch; by default a twentieth of all, at most 100,000."
        ),
    ] = None,
    growth: Annotated[
        list[float] | None,
        typer.Option(
            metavar="TIMES", help="Also with so many times the rows; may be repeated. By default 2 and 10."
        ),
    ] = None,
    format_: Annotated[
        FileFormat | None, typer.Option("--format", help="Format of the files, if their names do not say.")
    ] = None,
    as_json: AsJson = False,
    storage: Storage = None,
) -> None:
    """Say which index suits your keys: file sizes, memory, what a batch and a read cost, now and grown."""
    factors = tuple(growth) if growth else GROWTH
    table = _table(files_or_table, format_, storage)
    if table is not None:
        if key or partition:
            raise ConfigError(
                f"{files_or_table[0]} is a table, and says itself that its key is "
                f"{', '.join(table.properties.record_key_fields)}. Leave out --key and --partition."
            )
        found = table.advise(batch_rows=batch_rows, growth=factors)
    else:
        keys, parts = tuple(key or ()), tuple(partition or ())
        source = _source(files_or_table, keys, parts, format_)
        found = advise_on_rows(source, key=keys, partition=parts, batch_rows=batch_rows, growth=factors)
    Screen(as_json).show(found.as_json(), str(found))


def _table(paths: Sequence[str], format_: FileFormat | None, storage: Sequence[str] | None) -> Table | None:
    """Open the table, if it is one; a name with the suffix of a file is none."""
    if len(paths) > 1 or format_ is not None:
        return None
    try:
        format_of(paths[0])
    except ConfigError:
        pass
    else:
        return None
    try:
        return Table.open(paths[0], storage_options=pairs(storage or ()))
    except NotATableError as error:
        raise ConfigError(
            f"{paths[0]} is no table, and its name is not that of a Parquet, CSV or JSON file. Give files, or the path "
            f"of a table; or say with --format what the file is."
        ) from error


def _source(
    files: Sequence[str], key: Sequence[str], partition: Sequence[str], format_: FileFormat | None
) -> Source:
    """Look at all files, and read only what makes keys and partitions."""
    columns = column_names(files[0], format_)
    for file in files:
        found = column_names(file, format_)
        if sorted(set(found) - set(META_COLUMNS)) != sorted(set(columns) - set(META_COLUMNS)):
            odd = sorted(set(found) ^ set(columns))
            raise SchemaError(
                f"{file} and {files[0]} have different columns: {', '.join(odd)} stand in one of them only. Give files "
                f"of one table."
            )
    if not columns:
        raise ConfigError(
            f"{files[0]}: there are no rows, so there are no keys to replay. Give files that have some."
        )
    check_columns(
        pa.schema([pa.field(name, pa.null()) for name in columns if name not in META_COLUMNS]), key, partition
    )
    schema = _schema(files[0], format_)
    wanted = pa.schema([schema.field(name) for name in dict.fromkeys([*key, *partition])])
    return Source(
        tables=(table for file in files for table in _columns_of(file, wanted, format_)),
        rows=sum(_count(file, wanted, format_) for file in files),
        head=_head(files, schema, format_),
    )


def _schema(file: str, format_: FileFormat | None) -> pa.Schema:
    """Return the columns of a file; what looks like a time in JSON is text there, and stays text."""
    schema = read_schema(file, format_)
    if format_of(file, format_) is not FileFormat.JSON:
        return schema
    return pa.schema([f.with_type(pa.string()) if pa.types.is_timestamp(f.type) else f for f in schema])


def _columns_of(file: str, wanted: pa.Schema, format_: FileFormat | None) -> Iterator[pa.Table]:
    if format_of(file, format_) is not FileFormat.PARQUET:
        yield read_columns(file, wanted, given=format_)
        return
    with pq.ParquetFile(file) as opened:
        for batch in opened.iter_batches(_BATCH_ROWS, columns=wanted.names):
            yield pa.Table.from_batches([batch])


def _count(file: str, wanted: pa.Schema, format_: FileFormat | None) -> int:
    if format_of(file, format_) is FileFormat.PARQUET:
        return int(pq.read_metadata(file).num_rows)
    return len(read_columns(file, wanted, given=format_))


def _head(files: Sequence[str], schema: pa.Schema, format_: FileFormat | None) -> pa.Table:
    """Return rows of the first file that has some."""
    for file in files:
        if format_of(file, format_) is FileFormat.PARQUET:
            with pq.ParquetFile(file) as opened:
                batches = list(islice(opened.iter_batches(SAMPLE_ROWS, columns=schema.names), 1))
            head = pa.Table.from_batches(batches, schema if not batches else None)
        else:
            head = read_columns(file, schema, given=format_)
        if head.num_rows:
            return head
    return schema.empty_table()
