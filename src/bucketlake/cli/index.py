"""`bucketlake index create | drop | list`: secondary indexes, of the values of a column."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from bucketlake.cli.app import AsJson, Storage, TablePath, app, open_table
from bucketlake.cli.screen import Screen, grid
from bucketlake.cli.services import HINT, OnSpark, Yes, session_if
from bucketlake.storage import render_bytes

index = typer.Typer(help="Secondary indexes, of the values of a column.", no_args_is_help=True)
app.add_typer(index, name="index")

Name = Annotated[str, typer.Argument(metavar="NAME", help="What the index is called.")]


@index.command(
    "create", epilog="Example: bucketlake index create /data/orders by_city --on city --record-index"
)
def create(
    table: TablePath,
    name: Name,
    on: Annotated[str, typer.Option(metavar="COLUMN", help="The column that is indexed.")],
    shards: Annotated[
        int | None, typer.Option(help="How many files it is cut into; by default, what its rows need.")
    ] = None,
    record_index: Annotated[
        bool,
        typer.Option("--record-index", help="Build the record-level index first, if the table has none."),
    ] = False,
    yes: Yes = False,
    spark: OnSpark = False,
    as_json: AsJson = False,
    storage: Storage = None,
) -> None:
    """Build an index of a column, while writers go on. Says what it would do unless --yes.

    If it is cut off, run it again to go on.
    """
    opened = open_table(table, storage)
    plan = opened.plan_create_index(name, on=on, shards=shards, record_index=record_index)
    done = opened.run(plan, spark=session_if(spark)) if yes else None
    facts = {"done": done is not None, **asdict(plan.work), "size_bytes": plan.work.size_bytes}
    if done is not None:
        facts |= {"shards": done.shards, "entries": done.entries, "size_bytes": done.size_bytes}
    said = str(plan) if done is None else str(done)
    Screen(as_json).show(facts, said if yes else f"{said}\n{HINT}")


@index.command("drop", epilog="Example: bucketlake index drop /data/orders by_city --yes")
def drop(
    table: TablePath, name: Name, yes: Yes = False, as_json: AsJson = False, storage: Storage = None
) -> None:
    """Delete an index. Says what it would do unless --yes."""
    opened = open_table(table, storage)
    work = opened.drop_index(name) if yes else opened.plan_drop_index(name).work
    facts = {"done": yes, "name": name, "files": len(work.files), "size_bytes": work.size_bytes}
    Screen(as_json).show(facts, str(work) if yes else f"{work}\n{HINT}")


@index.command("list", epilog="Example: bucketlake index list /data/orders")
def list_(table: TablePath, as_json: AsJson = False, storage: Storage = None) -> None:
    """List the indexes: column, shards, entries, bytes, and whether readers use it."""
    opened = open_table(table, storage)
    found = opened.indexes()
    numbers = ("shards", "entries", "size")
    drawn = grid(
        f"secondary indexes of {opened.store.uri}", "name", "column", *numbers, "state", numbers=numbers
    )
    for one in found:
        drawn.add_row(
            one.name,
            one.column or "-",
            f"{one.shards:,}",
            f"{one.entries:,}",
            render_bytes(one.size_bytes),
            one.state,
        )
    drawn.caption = "" if found else "there are none"
    Screen(as_json).show({"indexes": [asdict(one) for one in found]}, drawn)
