"""`bucketlake adopt | metadata drop`: what makes a table of Hudi's ready to be written by us."""

from __future__ import annotations

from typing import Annotated

import typer

from bucketlake.cli.app import (
    AsJson,
    Buckets,
    Index,
    Storage,
    TablePath,
    app,
    index_value,
    open_table,
)
from bucketlake.cli.progress import progress_bar
from bucketlake.cli.screen import Screen, fact_grid, grid
from bucketlake.plans import plan_adoption
from bucketlake.storage import render_bytes

metadata = typer.Typer(help="Hudi's metadata table.", no_args_is_help=True)
app.add_typer(metadata, name="metadata")


@app.command()
def adopt(
    table: TablePath,
    index: Index = None,
    buckets: Buckets = None,
    yes: Annotated[bool, typer.Option("--yes/--dry-run", help="Keep it, or only check every key.")] = True,
    as_json: AsJson = False,
    storage: Storage = None,
) -> None:
    """Check every key of a table that Hudi made, and keep with it where keys live, as its writer was told it."""
    opened = open_table(table, storage)
    with progress_bar("file groups") as on_progress:
        plan = plan_adoption(opened.store, index_value(index, buckets), on_progress=on_progress)
    if yes:
        opened.run(plan)
    done = plan.work
    facts = {
        "done": yes,
        "index": str(done.index),
        "key encoding": done.encoding,
        "rows": done.rows,
        "file groups": done.file_groups,
        "partitions": done.partitions,
    }
    Screen(as_json).show(facts, fact_grid(f"{'adopted' if yes else 'to adopt'} {opened.store.uri}", facts))


@metadata.command("drop")
def drop(
    table: TablePath,
    yes: Annotated[bool, typer.Option("--yes", help="Do it; without, only say what would be done.")] = False,
    as_json: AsJson = False,
    storage: Storage = None,
) -> None:
    """Delist and delete the metadata table, which bucketlake does not keep. Says what it would do unless --yes."""
    opened = open_table(table, storage)
    planned = opened.plan_drop_metadata_table()
    plan, store = planned.work, opened.store
    if yes:
        opened.run(planned)
    facts = {
        "done": yes and not plan.is_empty,
        "partitions": list(plan.partitions),
        "properties": list(plan.properties),
        "files": len(plan.files),
        "size_bytes": plan.size_bytes,
    }
    drawn = grid(f"metadata table of {store.uri}", "partition", "files", "size", numbers=("files", "size"))
    for partition in plan.partitions:
        inside = [file for file in plan.files if f"/metadata/{partition}/" in f"/{file.path}"]
        drawn.add_row(partition, str(len(inside)), render_bytes(sum(file.size_bytes for file in inside)))
    drawn.caption = (
        "there is none"
        if plan.is_empty
        else f"{len(plan.files)} files, {render_bytes(plan.size_bytes)} "
        + ("delisted and deleted" if yes else "would be delisted and deleted: give --yes to do it")
    )
    Screen(as_json).show(facts, drawn)
