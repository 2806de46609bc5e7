"""`bucketlake compact | clean`: what keeps a table quick and small. Each says first what it would do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from bucketlake import spark as on_spark
from bucketlake.cli.app import AsJson, Storage, TablePath, app, open_table
from bucketlake.cli.screen import Screen
from bucketlake.services.due import Due, Plan
from bucketlake.table import CompactionArguments, RetentionArguments

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OnSpark = Annotated[bool, typer.Option("--spark", help="Run the tasks on a local Spark session.")]
Yes = Annotated[bool, typer.Option("--yes", help="Do it; without, only say what would be done.")]
HINT = "nothing was done: give --yes to do it"


def session_if(on_local_spark: bool) -> SparkSession | None:
    return on_spark.local.local_session() if on_local_spark else None


@app.command()
def compact(
    table: TablePath,
    delta_commits: Annotated[
        int | None, typer.Option(help="Only file groups with so many writes in their logs.")
    ] = None,
    log_bytes: Annotated[int | None, typer.Option(help="Or whose logs have so many bytes.")] = None,
    log_ratio: Annotated[
        float | None, typer.Option(help="Or whose logs have so many times the bytes of the base file.")
    ] = None,
    older_than: Annotated[
        float | None, typer.Option(metavar="HOURS", help="Or whose oldest log is so old.")
    ] = None,
    yes: Yes = False,
    spark: OnSpark = False,
    as_json: AsJson = False,
    storage: Storage = None,
) -> None:
    """Merge logs into new base files. Says what it would do unless --yes.

    Without an option, every file group that has logs is compacted. Compactions that are pending are run first.
    """
    opened = open_table(table, storage)
    when: CompactionArguments = {
        "delta_commits": delta_commits,
        "log_bytes": log_bytes,
        "log_ratio": log_ratio,
        "hours": older_than,
    }
    due = opened.compact(dry_run=True, **when)
    done = opened.compact(session_if(spark), **when).runs if yes else ()
    plan = due.plan
    facts = {
        "done": [one.instant for one in done],
        "pending": [] if yes else due.pending,
        "file_groups": sum(one.file_groups for one in done) if yes else len(plan.slices),
        "log_files": sum(one.log_files for one in done) if yes else plan.log_files,
        "size_bytes": sum(one.size_bytes for one in done) if yes else plan.size_bytes,
    }
    _show(as_json, facts, due, done, yes=yes)


@app.command()
def clean(
    table: TablePath,
    retain_commits: Annotated[
        int | None, typer.Option(help="Keep what readers of the last so many writes see.")
    ] = None,
    retain_hours: Annotated[
        float | None, typer.Option(help="Keep what readers of the last so many hours see.")
    ] = None,
    retain_versions: Annotated[
        int | None, typer.Option(help="Keep so many versions of every file group.")
    ] = None,
    yes: Yes = False,
    spark: OnSpark = False,
    as_json: AsJson = False,
    storage: Storage = None,
) -> None:
    """Delete files that nobody needs any more. Says what it would do unless --yes.

    Cleans that were cut off are finished first.
    """
    opened = open_table(table, storage)
    retain: RetentionArguments = {
        "retain_commits": retain_commits,
        "retain_hours": retain_hours,
        "retain_versions": retain_versions,
    }
    due = opened.clean(dry_run=True, **retain)
    done = opened.clean(session_if(spark), **retain).runs if yes else ()
    plan = due.plan
    facts = {
        "done": [one.instant for one in done],
        "pending": [] if yes else due.pending,
        "earliest_kept": plan.earliest.requested if plan.earliest else None,
        "files": sum(one.files for one in done) if yes else len(plan.files),
        "size_bytes": plan.size_bytes,
        "partitions": list(plan.partitions),
    }
    _show(as_json, facts, due, done, yes=yes)


def _show(
    as_json: bool, facts: Mapping[str, object], due: Due[Plan], done: Sequence[object], *, yes: bool
) -> None:
    """Print what was done, or what would be."""
    lines = [str(one) for one in done] or [str(due.plan if yes else due)]
    if not yes and not due.is_empty:
        lines.append(HINT)
    Screen(as_json).show(facts, "\n".join(lines))
