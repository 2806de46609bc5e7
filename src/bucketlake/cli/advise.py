"""`bucketlake advise`: the user's own keys through every index."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Annotated

import pyarrow as pa
import pyarrow.parquet as pq
import typer

from bucketlake.advice import GROWTH, SAMPLE_ROWS, Source, advise_on_rows, check_columns
from bucketlake.advice.page import TEXTS
from bucketlake.cli.app import AsJson, Storage, app, pairs
from bucketlake.cli.files import FileFormat, column_names, format_of, read_columns, read_schema
from bucketlake.cli.screen import Grid, Screen, grid
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
    tables = [_drawn(*table) for table in (found.overview, found.growth) if table[1]]
    drawings = (drawing for table in tables for drawing in (table, ""))
    Screen(as_json).show(found.as_json(), *found.facts, "", *drawings, *found.ending)


def _drawn(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> Grid:
    drawn = grid("", *headings, numbers=[name for name in headings if name not in TEXTS])
    for row in rows:
        drawn.add_row(*row)
    return drawn


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
    _refuse_other_types(files, wanted, format_)
    read = {
        file: read_columns(file, schema, given=format_)
        for file in files
        if format_of(file, format_) is not FileFormat.PARQUET
    }
    return Source(
        tables=(
            table
            for file in files
            for table in ([read[file].select(wanted.names)] if file in read else _key_columns(file, wanted))
        ),
        rows=sum(len(read[file]) if file in read else int(pq.read_metadata(file).num_rows) for file in files),
        head=next(
            (head for file in files if len(head := read[file] if file in read else _head(file, schema))),
            schema.empty_table(),
        ),
    )


def _refuse_other_types(files: Sequence[str], wanted: pa.Schema, format_: FileFormat | None) -> None:
    for file in files:
        if format_of(file, format_) is FileFormat.PARQUET:
            found = read_schema(file, format_)
            for field in wanted:
                if found.field(field.name).type != field.type:
                    raise SchemaError(
                        f"{file}: column {field.name!r} is {found.field(field.name).type}, and {field.type} in "
                        f"{files[0]}. Give files of one table."
                    )


def _schema(file: str, format_: FileFormat | None) -> pa.Schema:
    """Return the columns of a file; what looks like a time in JSON is text there, and stays text."""
    schema = read_schema(file, format_)
    if format_of(file, format_) is not FileFormat.JSON:
        return schema
    return pa.schema([f.with_type(pa.string()) if pa.types.is_timestamp(f.type) else f for f in schema])


def _key_columns(file: str, wanted: pa.Schema) -> Iterator[pa.Table]:
    with pq.ParquetFile(file) as opened:
        for batch in opened.iter_batches(_BATCH_ROWS, columns=wanted.names):
            yield pa.Table.from_batches([batch])


def _head(file: str, schema: pa.Schema) -> pa.Table:
    """Return the first rows of a Parquet file."""
    with pq.ParquetFile(file) as opened:
        batches = list(islice(opened.iter_batches(SAMPLE_ROWS, columns=schema.names), 1))
    return pa.Table.from_batches(batches) if batches else schema.empty_table()
