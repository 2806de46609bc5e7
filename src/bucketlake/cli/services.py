"""`bucketlake compact | clean`: what keeps a table quick and small. Each says first what it would do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from bucketlake import spark as on_spark
from bucketlake.arguments import CompactionArguments, RetentionArguments
from bucketlake.cli.app import AsJson, Storage, TablePath, app, open_table
from bucketlake.cli.screen import Screen
from bucketlake.plans import Plan

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OnSpark = Annotated[bool, typer.Option("--spark", help="Run the tasks on a local Spark session.")]
Yes = Annotated[bool, typer.Option("--yes", help="Do it; without, only say what would be done.")]
HINT = "nothing was done: give --yes to do it"


def session_if(on_local_spark: bool) -> SparkSession | None:
    return on_spark.local.local_session() if on_local_spark else None


@app.command(epilog="Example: bucketlake compact /data/orders --delta-commits 5 --yes")
def compact(
    table: TablePath,
    delta_commits: Annotated[
        int | None, typer.Option(help="Only file groups with so many writes in their logs.")
    ] = None,
    log_bytes: Annotated[int | None, typer.Option(help="Or whose logs have so many bytes.")] = None,
    log_ratio: Annotated[
        float | None, typer.Option(help="Or whose logs have so many times the bytes of the base file.")
    ] = None,
    hours: Annotated[float | None, typer.Option(help="Or whose oldest log is so many hours old.")] = None,
    yes: Yes = False,
    spark: OnSpark = False,
    as_json: AsJson = False,
    storage: Storage = None,
) -> None:
    """Merge logs into new base files. Says what it would do unless --yes.

    Without an option, it compacts every file group that has logs. Pending compactions run first.
    """
    opened = open_table(table, storage)
    when: CompactionArguments = {
        "delta_commits": delta_commits,
        "log_bytes": log_bytes,
        "log_ratio": log_ratio,
        "hours": hours,
    }
    plan = opened.plan_compaction(**when)
    done = opened.compact(spark=session_if(spark), **when).runs if yes else ()
    work = plan.work
    facts = {
        "done": [one.instant for one in done],
        "pending": [] if yes else plan.pending,
        "file_groups": sum(one.file_groups for one in done) if yes else len(work.slices),
        "log_files": sum(one.log_files for one in done) if yes else work.log_files,
        "size_bytes": sum(one.size_bytes for one in done) if yes else work.size_bytes,
    }
    _show(as_json, facts, plan, str(work), done, yes=yes)


@app.command(epilog="Example: bucketlake clean /data/orders --retain-commits 30 --yes")
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
    plan = opened.plan_clean(**retain)
    done = opened.clean(spark=session_if(spark), **retain).runs if yes else ()
    work = plan.work
    facts = {
        "done": [one.instant for one in done],
        "pending": [] if yes else plan.pending,
        "earliest_kept": work.earliest.requested if work.earliest else None,
        "files": sum(one.files for one in done) if yes else len(work.files),
        "size_bytes": work.size_bytes,
        "partitions": list(work.partitions),
    }
    _show(as_json, facts, plan, str(work), done, yes=yes)


def _show(
    as_json: bool,
    facts: Mapping[str, object],
    plan: Plan[object],
    work: str,
    done: Sequence[object],
    *,
    yes: bool,
) -> None:
    """Print what was done, or what would be."""
    lines = [str(one) for one in done] or [work if yes else str(plan)]
    if not yes and not plan.is_empty:
        lines.append(HINT)
    Screen(as_json).show(facts, "\n".join(lines))
