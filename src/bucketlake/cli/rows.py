"""`bucketlake read | get`: rows, without a cluster."""

from __future__ import annotations

from typing import Annotated, Any

import pyarrow as pa
import typer

from bucketlake.cli.app import (
    EXIT_NOTHING_FOUND,
    AsJson,
    Buckets,
    Screen,
    Storage,
    TablePath,
    app,
    grid,
    open_table,
)
from bucketlake.cli.values import json_row, parse_filter, parse_key
from bucketlake.read import read_all

Columns = Annotated[str | None, typer.Option(metavar="A,B", help="Columns to show, separated by commas.")]
AsOf = Annotated[
    str | None,
    typer.Option(
        "--as-of",
        help="See the table as of this instant, or time; without an offset, in this machine's zone.",
    ),
]


@app.command()
def read(
    table: TablePath,
    columns: Columns = None,
    where: Annotated[
        list[str] | None,
        typer.Option(metavar="FILTER", help='Such as "amount >= 10"; may be repeated, meaning and.'),
    ] = None,
    limit: Annotated[int, typer.Option(help="Rows to print at most; 0 for all.")] = 20,
    as_of: AsOf = None,
    begin: Annotated[
        str | None,
        typer.Option(help="Only rows of commits completed after this time, written like that of --as-of."),
    ] = None,
    end: Annotated[str | None, typer.Option(help="And not after this one.")] = None,
    read_optimized: Annotated[bool, typer.Option("--read-optimized", help="Base files only.")] = False,
    meta: Annotated[bool, typer.Option("--meta", help="Show Hudi's meta columns too.")] = False,
    as_json: AsJson = False,
    storage: Storage = None,
    buckets: Buckets = None,
) -> None:
    """Print rows."""
    opened = open_table(table, storage, buckets=buckets)
    everything = opened.query(as_of=as_of).table_schema
    plan = opened.plan(
        columns=_names(columns),
        filters=[parse_filter(text, everything) for text in where or ()],
        meta_columns=meta,
        as_of=as_of,
        begin=begin,
        end=end,
        read_optimized=read_optimized,
    )
    rows: list[dict[str, Any]] = []
    for batch in read_all(plan):
        rows += batch.slice(0, limit - len(rows) if limit else None).to_pylist()
        if limit and len(rows) >= limit:
            break
    show_rows(rows, plan.context.schema, Screen(as_json))


@app.command()
def get(
    table: TablePath,
    keys: Annotated[
        list[str], typer.Argument(metavar="KEY...", help="Keys; as JSON objects if of several columns.")
    ],
    partition: Annotated[str | None, typer.Option(help="Path of the partition the keys are in.")] = None,
    columns: Columns = None,
    as_of: AsOf = None,
    as_json: AsJson = False,
    storage: Storage = None,
    buckets: Buckets = None,
) -> None:
    """Fetch rows by key."""
    opened = open_table(table, storage, buckets=buckets)
    fields = opened.properties.record_key_fields
    schema = opened.query(as_of=as_of).table_schema
    found = opened.get(
        [parse_key(text, schema, fields) for text in keys],
        partition=partition,
        columns=_names(columns),
        as_of=as_of,
    )
    show_rows(found.to_pylist(), found.schema, Screen(as_json))
    if not found.num_rows:
        raise typer.Exit(EXIT_NOTHING_FOUND)


def _names(columns: str | None) -> list[str] | None:
    return [name.strip() for name in columns.split(",")] if columns else None


def show_rows(rows: list[dict[str, Any]], schema: pa.Schema, screen: Screen) -> None:
    """Print rows as a table or as JSON."""
    printable = [json_row(row) for row in rows]
    drawn = grid("", *schema.names, numbers=[f.name for f in schema if pa.types.is_primitive(f.type)])
    for row in printable:
        drawn.add_row(*("-" if row[name] is None else str(row[name]) for name in schema.names))
    drawn.caption = f"{len(rows)} row{'' if len(rows) == 1 else 's'}"
    screen.show(printable, drawn)
