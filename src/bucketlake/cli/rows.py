"""`bucketlake read | get | get-by`: rows, without a cluster."""

from __future__ import annotations

from typing import Annotated

import pyarrow as pa
import typer

from bucketlake.cli.app import EXIT_NOTHING_FOUND, AsJson, Buckets, Index, Storage, TablePath, app, open_table
from bucketlake.cli.screen import Screen, grid
from bucketlake.cli.values import json_values, parse_filter, parse_key, parse_value, shown
from bucketlake.errors import ConfigError
from bucketlake.read import read_all

Columns = Annotated[str | None, typer.Option(metavar="A,B", help="Columns to show, separated by commas.")]
Limit = Annotated[int, typer.Option(min=0, help="Rows to print at most; no more are read than that takes.")]
Unlimited = Annotated[bool, typer.Option("--all", help="Print all rows, whatever the limit.")]
MetaColumns = Annotated[bool, typer.Option("--meta-columns", "--meta", help="Show Hudi's meta columns too.")]
AsOf = Annotated[
    str | None,
    typer.Option(
        "--as-of",
        help="See the table as of this instant, or time; without an offset, in this machine's zone.",
    ),
]


@app.command(
    epilog="Example: bucketlake read /data/orders --where 'amount >= 10' --columns id,amount --limit 5"
)
def read(
    table: TablePath,
    columns: Columns = None,
    where: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FILTER", help='Such as "amount >= 10" or "city = \'Ulm\'"; may be repeated, meaning and.'
        ),
    ] = None,
    limit: Limit = 20,
    every: Unlimited = False,
    as_of: AsOf = None,
    begin: Annotated[
        str | None,
        typer.Option(help="Only rows of commits completed after this time, written like that of --as-of."),
    ] = None,
    end: Annotated[str | None, typer.Option(help="And not after this one.")] = None,
    read_optimized: Annotated[bool, typer.Option("--read-optimized", help="Base files only.")] = False,
    meta_columns: MetaColumns = False,
    as_json: AsJson = False,
    storage: Storage = None,
    index: Index = None,
    buckets: Buckets = None,
) -> None:
    """Print rows.

    A null is drawn as `-`, a control character as `\\x1b`.
    With --json, floats that are no numbers are the texts "NaN", "Infinity"
    and "-Infinity", binary is base64, a decimal text, a time ISO 8601, and
    a map a list of pairs.
    """
    opened = open_table(table, storage, index=index, buckets=buckets)
    everything = opened.query(as_of=as_of).table_schema
    plan = opened.plan(
        columns=_names(columns),
        filters=[parse_filter(text, everything) for text in where or ()],
        meta_columns=meta_columns,
        as_of=as_of,
        begin=begin,
        end=end,
        read_optimized=read_optimized,
    )
    found = read_all(plan, limit=None if every else limit)
    show_rows(pa.Table.from_batches(found, plan.context.schema), Screen(as_json))


@app.command(epilog="Example: bucketlake get /data/orders o-1 o-2")
def get(
    table: TablePath,
    keys: Annotated[
        list[str], typer.Argument(metavar="KEY...", help="Keys; as JSON objects if of several columns.")
    ],
    partition: Annotated[str | None, typer.Option(help="Path of the partition the keys are in.")] = None,
    columns: Columns = None,
    meta_columns: MetaColumns = False,
    as_of: AsOf = None,
    as_json: AsJson = False,
    storage: Storage = None,
    index: Index = None,
    buckets: Buckets = None,
) -> None:
    """Fetch rows by key."""
    opened = open_table(table, storage, index=index, buckets=buckets)
    fields = opened.properties.record_key_fields
    schema = opened.query(as_of=as_of).table_schema
    found = opened.get(
        [parse_key(text, schema, fields) for text in keys],
        partition=partition,
        columns=_names(columns),
        meta_columns=meta_columns,
        as_of=as_of,
    )
    show_rows(found, Screen(as_json))
    if not found.num_rows:
        raise typer.Exit(EXIT_NOTHING_FOUND)


@app.command(epilog="Example: bucketlake get-by /data/orders city Ulm")
def get_by(
    table: TablePath,
    column: Annotated[str, typer.Argument(metavar="COLUMN", help="A column with a secondary index.")],
    values: Annotated[list[str], typer.Argument(metavar="VALUE...", help="Values of the column.")],
    partition: Annotated[str | None, typer.Option(help="Path of the partition to look into.")] = None,
    columns: Columns = None,
    meta_columns: MetaColumns = False,
    as_json: AsJson = False,
    storage: Storage = None,
    index: Index = None,
    buckets: Buckets = None,
) -> None:
    """Fetch rows by the values of a column with a secondary index. For nulls: read --where "city is null"."""
    opened = open_table(table, storage, index=index, buckets=buckets)
    schema = opened.query().table_schema
    known = column in schema.names
    wanted = [parse_value(text, schema.field(column).type, column) if known else text for text in values]
    found = opened.get_by(
        column, wanted, partition=partition, columns=_names(columns), meta_columns=meta_columns
    )
    show_rows(found, Screen(as_json))
    if not found.num_rows:
        raise typer.Exit(EXIT_NOTHING_FOUND)


def _names(columns: str | None) -> list[str] | None:
    return [name.strip() for name in columns.split(",")] if columns else None


def show_rows(rows: pa.Table, screen: Screen) -> None:
    """Print rows as a table or as JSON."""
    names = rows.column_names
    columns = [json_values(column) for column in rows.columns]
    if screen.as_json:
        twice = [name for name in names if names.count(name) > 1]
        if twice:
            raise ConfigError(
                f"two columns are called {twice[0]!r}, and JSON has room for one. Name one of them anew."
            )
        screen.show([dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)])
        return
    numbers = [f.name for f in rows.schema if pa.types.is_primitive(f.type)]
    drawn = grid("", *names, numbers=numbers)
    drawn.rows = list(zip(*([shown(value) for value in column] for column in columns), strict=True))
    drawn.caption = f"{rows.num_rows} row{'' if rows.num_rows == 1 else 's'}"
    screen.show(None, drawn)
