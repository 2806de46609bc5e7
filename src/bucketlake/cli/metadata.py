"""`bucketlake metadata status | build | rebuild | grow-record-index | delist | drop`: Hudi's metadata table."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from bucketlake.cli.app import AsJson, Storage, TablePath, app, open_table
from bucketlake.cli.screen import Screen, grid
from bucketlake.cli.services import OnSpark, session_if
from bucketlake.plans import PlannedMetadataBuild
from bucketlake.storage import render_bytes
from bucketlake.table import Table

metadata = typer.Typer(help="Hudi's metadata table: what lists a table's files.", no_args_is_help=True)
app.add_typer(metadata, name="metadata")

Yes = Annotated[bool, typer.Option("--yes", help="Do it; without, only say what would be done.")]
Now = Annotated[bool, typer.Option("--yes/--dry-run", help="Do it, or only say what would be done.")]


@metadata.command("status", epilog="Example: bucketlake metadata status /data/orders")
def status(table: TablePath, as_json: AsJson = False, storage: Storage = None) -> None:
    """Say what the metadata table has, whether it is in step, and when it was last compacted."""
    found = open_table(table, storage).metadata.status()
    Screen(as_json).show(asdict(found), str(found))


@metadata.command("build", epilog="Example: bucketlake metadata build /data/orders --record-index")
def build(
    table: TablePath,
    record_index: Annotated[
        bool, typer.Option("--record-index", help="With a record-level index, of where each key lives.")
    ] = False,
    per_partition: Annotated[
        bool, typer.Option("--per-partition", help="One for each partition: a key may live in several.")
    ] = False,
    shards: Annotated[
        int | None, typer.Option(help="How many files it is cut into; by default, what its rows need.")
    ] = None,
    yes: Now = True,
    spark: OnSpark = False,
    as_json: AsJson = False,
    storage: Storage = None,
) -> None:
    """Build what the metadata table lacks, while writers go on. If it is cut off, run it again to go on."""
    opened = open_table(table, storage)
    plan = opened.metadata.plan_build(record_index=record_index, per_partition=per_partition, shards=shards)
    _build(opened, plan, yes=yes, spark=spark, as_json=as_json)


@metadata.command("rebuild", epilog="Example: bucketlake metadata rebuild /data/orders")
def rebuild(
    table: TablePath,
    yes: Now = True,
    spark: OnSpark = False,
    as_json: AsJson = False,
    storage: Storage = None,
) -> None:
    """Delete what there is of the metadata table, and build it again. Until that is done, the table has none."""
    opened = open_table(table, storage)
    _build(opened, opened.metadata.plan_rebuild(), yes=yes, spark=spark, as_json=as_json)


@metadata.command(
    "grow-record-index",
    epilog="Example: bucketlake metadata grow-record-index /data/orders --shards 64 --yes",
)
def grow_record_index(
    table: TablePath,
    shards: Annotated[int, typer.Option(help="How many, of the table or of each partition.")],
    yes: Yes = False,
    spark: OnSpark = False,
    as_json: AsJson = False,
    storage: Storage = None,
) -> None:
    """Give the record-level index another number of shards. Says what it would do unless --yes.

    The index is delisted for a while. Our writers go on meanwhile. Hudi's do not see the index until it is there again.
    """
    opened = open_table(table, storage)
    plan = opened.metadata.plan_grow_record_index(shards)
    done = opened.run(plan, spark=session_if(spark)) if yes else None
    facts = {"done": done is not None, **asdict(plan.work), "size_bytes": plan.work.size_bytes}
    Screen(as_json).show(facts, str(plan if done is None else done))


def _build(table: Table, plan: PlannedMetadataBuild, *, yes: bool, spark: bool, as_json: bool) -> None:
    done = table.run(plan, spark=session_if(spark)) if yes and not plan.is_empty else None
    facts = {"done": done is not None, **asdict(plan.work)}
    if plan.index is not None:
        facts["record_index"] = {**asdict(plan.index), "size_bytes": plan.index.size_bytes}
    Screen(as_json).show(facts, str(plan if done is None else done))


@metadata.command("delist", epilog="Example: bucketlake metadata delist /data/orders --dry-run")
def delist(table: TablePath, yes: Now = True, as_json: AsJson = False, storage: Storage = None) -> None:
    """Delete the parts of the metadata table that bucketlake does not keep up to date."""
    opened = open_table(table, storage)
    plan = opened.metadata.plan_delist()
    done = opened.run(plan) if yes else None
    facts = {"done": done is not None and not plan.is_empty, "partitions": list(plan.partitions)}
    Screen(as_json).show(facts, str(plan if done is None else done))


@metadata.command("drop", epilog="Example: bucketlake metadata drop /data/orders --yes")
def drop(
    table: TablePath,
    record_index: Annotated[
        bool,
        typer.Option("--record-index", help="Only the record-level index, of a table that does without."),
    ] = False,
    yes: Yes = False,
    as_json: AsJson = False,
    storage: Storage = None,
) -> None:
    """Delete the metadata table. Says what it would do unless --yes."""
    opened = open_table(table, storage)
    planned = opened.metadata.plan_drop(record_index=record_index)
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
