"""`bucketlake metadata status | build | rebuild | delist | drop`: Hudi's metadata table of a table."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from bucketlake.cli.app import AsJson, Storage, TablePath, app, open_table
from bucketlake.cli.screen import Screen, grid
from bucketlake.plans import PlannedMetadataBuild
from bucketlake.storage import render_bytes
from bucketlake.table import Table

metadata = typer.Typer(help="Hudi's metadata table: what lists a table's files.", no_args_is_help=True)
app.add_typer(metadata, name="metadata")

Yes = Annotated[bool, typer.Option("--yes", help="Do it; without, only say what would be done.")]
Now = Annotated[bool, typer.Option("--yes/--dry-run", help="Do it, or only say what would be done.")]


@metadata.command("status")
def status(table: TablePath, as_json: AsJson = False, storage: Storage = None) -> None:
    """Say what the metadata table has, whether it is in step, and when it was last compacted."""
    found = open_table(table, storage).metadata.status()
    Screen(as_json).show(asdict(found), str(found))


@metadata.command("build")
def build(table: TablePath, yes: Now = True, as_json: AsJson = False, storage: Storage = None) -> None:
    """Build the metadata table, while writers go on."""
    opened = open_table(table, storage)
    _build(opened, opened.metadata.plan_build(), yes=yes, as_json=as_json)


@metadata.command("rebuild")
def rebuild(table: TablePath, yes: Now = True, as_json: AsJson = False, storage: Storage = None) -> None:
    """Build the metadata table anew, whatever there is of one. Until that is done, the table has none."""
    opened = open_table(table, storage)
    _build(opened, opened.metadata.plan_rebuild(), yes=yes, as_json=as_json)


def _build(table: Table, plan: PlannedMetadataBuild, *, yes: bool, as_json: bool) -> None:
    done = table.run(plan) if yes and not plan.is_empty else None
    facts = {"done": done is not None, **asdict(plan.work)}
    Screen(as_json).show(facts, str(plan if done is None else done))


@metadata.command("delist")
def delist(table: TablePath, yes: Now = True, as_json: AsJson = False, storage: Storage = None) -> None:
    """Delist and delete those parts of the metadata table that bucketlake does not keep in step."""
    opened = open_table(table, storage)
    plan = opened.metadata.plan_delist()
    done = opened.run(plan) if yes else None
    facts = {"done": done is not None and not plan.is_empty, "partitions": list(plan.partitions)}
    Screen(as_json).show(facts, str(plan if done is None else done))


@metadata.command("drop")
def drop(
    table: TablePath,
    yes: Yes = False,
    as_json: AsJson = False,
    storage: Storage = None,
) -> None:
    """Delist and delete the metadata table. Says what it would do unless --yes."""
    opened = open_table(table, storage)
    planned = opened.metadata.plan_drop()
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
