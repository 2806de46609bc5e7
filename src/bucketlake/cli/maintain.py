"""`bucketlake adopt | metadata drop`: what makes a table of Hudi's ready to be written by us."""

from __future__ import annotations

from typing import Annotated

import typer

from bucketlake.cli.app import AsJson, Storage, TablePath, app, open_table
from bucketlake.cli.progress import progress_bar
from bucketlake.cli.screen import Screen, fact_grid, grid
from bucketlake.state import load_state
from bucketlake.storage import render_bytes
from bucketlake.write.adopt import adopt as adopt_table
from bucketlake.write.metadata_table import plan_drop_metadata_table, run_drop_metadata_table

metadata = typer.Typer(help="Hudi's metadata table.", no_args_is_help=True)
app.add_typer(metadata, name="metadata")


@app.command()
def adopt(
    table: TablePath,
    buckets: Annotated[
        int | None,
        typer.Option(
            help="Buckets per partition, as its writer was told; a table with rules says it itself."
        ),
    ] = None,
    hash_field: Annotated[
        list[str] | None,
        typer.Option(metavar="COLUMN", help="Key column that is hashed, if not all are; may be repeated."),
    ] = None,
    partition_rules: Annotated[
        str | None, typer.Option(metavar="RULES", help="Rules that its writer was told, if it was any.")
    ] = None,
    as_json: AsJson = False,
    storage: Storage = None,
) -> None:
    """Check every key of a table that Hudi made, and keep its bucket count with it."""
    store = open_table(table, storage).store
    with progress_bar("file groups") as on_progress:
        done = adopt_table(
            store,
            buckets=buckets,
            hash_fields=hash_field or None,
            partition_rules=partition_rules,
            on_progress=on_progress,
        )
    facts = {
        "index": str(done.index),
        "key encoding": done.encoding,
        "rows": done.rows,
        "file groups": done.file_groups,
        "partitions": done.partitions,
    }
    Screen(as_json).show(facts, fact_grid(f"adopted {store.uri}", facts))


@metadata.command("drop")
def drop(
    table: TablePath,
    yes: Annotated[bool, typer.Option("--yes", help="Do it; without, only say what would be done.")] = False,
    as_json: AsJson = False,
    storage: Storage = None,
) -> None:
    """Delist and delete the metadata table, which bucketlake does not keep. Says what it would do unless --yes."""
    store = open_table(table, storage).store
    plan = plan_drop_metadata_table(load_state(store))
    if yes and not plan.is_empty:
        run_drop_metadata_table(plan, store)
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
