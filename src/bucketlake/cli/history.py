"""`bucketlake archive | rollback | savepoint | restore`: what changes the past.

What takes something away says first what it would do.
"""

from __future__ import annotations

from typing import Annotated

import typer

from bucketlake.cli.app import AsJson, Storage, TablePath, app, open_table
from bucketlake.cli.screen import Screen, grid
from bucketlake.services.archive import KEEP_MAX, KEEP_MIN
from bucketlake.storage import render_bytes

Yes = Annotated[bool, typer.Option("--yes", help="Do it; without, only say what would be done.")]
InstantTime = Annotated[str, typer.Argument(metavar="INSTANT", help="The instant, as `timeline` lists it.")]
_HINT = "nothing was done: give --yes to do it"


@app.command(epilog="Example: bucketlake archive /data/orders --keep-min 20 --keep-max 30 --yes")
def archive(
    table: TablePath,
    keep_min: Annotated[int, typer.Option(help="Writes that stay on the timeline.")] = KEEP_MIN,
    keep_max: Annotated[int, typer.Option(help="Archive only beyond so many.")] = KEEP_MAX,
    yes: Yes = False,
    as_json: AsJson = False,
    storage: Storage = None,
) -> None:
    """Move old instants to the history. Says what it would do unless --yes."""
    opened = open_table(table, storage)
    if yes:
        plan = opened.archive(keep_min=keep_min, keep_max=keep_max)
    else:
        plan = opened.plan_archive(keep_min=keep_min, keep_max=keep_max).work
    facts = {
        "done": yes,
        "instants": [i.requested for i in plan.instants],
        "files": sum(len(files) for files in plan.files.values()),
        "size_bytes": plan.size_bytes,
        "orphans": [file.path for file in plan.orphans],
        "stop": None if plan.stop is None else {"before": plan.stop.before, "reason": plan.stop.reason},
    }
    _show(as_json, facts, str(plan), done=yes)


@app.command(epilog="Example: bucketlake rollback /data/orders 20260618120000000 --yes")
def rollback(
    table: TablePath, instant: InstantTime, yes: Yes = False, as_json: AsJson = False, storage: Storage = None
) -> None:
    """Undo an instant: the newest write, or one that was cut off. Says what it would do unless --yes."""
    opened = open_table(table, storage)
    order = opened.rollback(instant) if yes else opened.plan_rollback(instant).work
    facts = {
        "done": yes,
        "instant": order.instant.requested,
        "action": str(order.instant.action),
        "files": [file.path for file in order.files],
        "size_bytes": order.size_bytes,
    }
    _show(as_json, facts, str(order), done=yes)


@app.command(epilog="Example: bucketlake restore /data/orders 20260618120000000 --yes")
def restore(
    table: TablePath, instant: InstantTime, yes: Yes = False, as_json: AsJson = False, storage: Storage = None
) -> None:
    """Go back to a savepoint: roll back every later write. Says what it would do unless --yes."""
    opened = open_table(table, storage)
    order = opened.restore(instant) if yes else opened.plan_restore(instant).work
    facts = {
        "done": yes,
        "savepoint": order.savepoint,
        "instants": [i.requested for i in order.instants],
        "files": len(order.files),
        "size_bytes": order.size_bytes,
    }
    _show(as_json, facts, str(order), done=yes)


@app.command(epilog="Example: bucketlake savepoint /data/orders --comment 'before the backfill'")
def savepoint(
    table: TablePath,
    instant: Annotated[str | None, typer.Argument(metavar="INSTANT", help="A write; the newest.")] = None,
    comment: Annotated[str, typer.Option(help="What for.")] = "",
    as_json: AsJson = False,
    storage: Storage = None,
) -> None:
    """Keep the table as it was after a write: clean and archive leave its files alone."""
    made = open_table(table, storage).savepoint(instant, comment=comment)
    facts = {"instant": made.instant, "files": made.file_count, "comment": comment}
    Screen(as_json).show(facts, f"savepoint {made}")


@app.command(epilog="Example: bucketlake delete-savepoint /data/orders 20260618120000000 --yes")
def delete_savepoint(
    table: TablePath, instant: InstantTime, yes: Yes = False, as_json: AsJson = False, storage: Storage = None
) -> None:
    """Delete a savepoint. Says what it would do unless --yes."""
    opened = open_table(table, storage)
    plan = opened.plan_delete_savepoint(instant)
    if yes:
        opened.run(plan)
    _show(as_json, {"done": yes, "instant": instant}, str(plan), done=yes)


@app.command(epilog="Example: bucketlake savepoints /data/orders")
def savepoints(table: TablePath, as_json: AsJson = False, storage: Storage = None) -> None:
    """List the savepoints of a table."""
    opened = open_table(table, storage)
    found = opened.savepoints()
    drawn = grid(f"savepoints of {opened.store.uri}", "instant", "files", "by", "comment", numbers=("files",))
    for one in found:
        drawn.add_row(one.instant, str(one.file_count), one.metadata.created_by, one.metadata.comment)
    facts = [
        {
            "instant": one.instant,
            "files": one.file_count,
            "by": one.metadata.created_by,
            "comment": one.metadata.comment,
        }
        for one in found
    ]
    Screen(as_json).show(facts, drawn)


def _show(as_json: bool, facts: dict[str, object], plan: str, *, done: bool) -> None:
    size = facts.get("size_bytes")
    shown = f" ({render_bytes(size)})" if isinstance(size, int) else ""
    Screen(as_json).show(facts, plan, f"done{shown}" if done else f"{_HINT}{shown}")
