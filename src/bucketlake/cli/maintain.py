"""`bucketlake adopt`: what makes a table of Hudi's ready to be written by us."""

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
from bucketlake.cli.screen import Screen, fact_grid
from bucketlake.plans import plan_adoption


@app.command(epilog="Example: bucketlake adopt /data/orders --buckets 16 --dry-run")
def adopt(
    table: TablePath,
    index: Index = None,
    buckets: Buckets = None,
    yes: Annotated[bool, typer.Option("--yes/--dry-run", help="Keep it, or only check every key.")] = True,
    as_json: AsJson = False,
    storage: Storage = None,
) -> None:
    """Check every key of a table that Hudi made, and store with the table where keys live."""
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
