"""`bucketlake cluster`: rows sorted, so that who asks for a range reads little. It says first what it would do."""

from __future__ import annotations

from typing import Annotated

import typer

from bucketlake.arguments import ClusteringArguments
from bucketlake.cli.app import AsJson, Storage, TablePath, app, open_table
from bucketlake.cli.screen import Screen
from bucketlake.cli.services import HINT, OnSpark, Yes, session_if


@app.command(epilog="Example: bucketlake cluster /data/orders --by city,ts --yes")
def cluster(
    table: TablePath,
    by: Annotated[str, typer.Option(metavar="COLUMN,...", help="The columns to sort by.")],
    partition: Annotated[
        list[str] | None, typer.Option(help="Only this partition, by its path; may be repeated.")
    ] = None,
    min_bytes: Annotated[int | None, typer.Option(help="Only file groups of at least so many bytes.")] = None,
    max_bytes: Annotated[int | None, typer.Option(help="Only file groups of at most so many bytes.")] = None,
    hours: Annotated[
        float | None, typer.Option(help="Only what nobody has written to for so many hours.")
    ] = None,
    yes: Yes = False,
    spark: OnSpark = False,
    as_json: AsJson = False,
    storage: Storage = None,
) -> None:
    """Rewrite file groups with their rows sorted. Says what it would do unless --yes.

    File groups that are sorted already, and have no logs, are left alone. Pending clusterings run first.
    """
    found = open_table(table, storage)
    columns = tuple(name.strip() for name in by.split(",") if name.strip())
    which: ClusteringArguments = {
        "min_bytes": min_bytes,
        "max_bytes": max_bytes,
        "hours": hours,
        "partitions": partition or None,
    }
    plan = found.plan_clustering(by=columns, **which)
    done = found.cluster(by=columns, spark=session_if(spark), **which).runs if yes else ()
    facts = {
        "done": [one.instant for one in done],
        "pending": [] if yes else list(plan.pending),
        "file_groups": sum(one.file_groups for one in done) if yes else len(plan.work.slices),
        "log_files": plan.work.log_files,
        "size_bytes": sum(one.size_bytes for one in done) if yes else plan.work.size_bytes,
    }
    lines = [str(one) for one in done] or [str(plan)]
    if not yes and not plan.is_empty:
        lines.append(HINT)
    Screen(as_json).show(facts, "\n".join(lines))
