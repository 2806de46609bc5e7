"""`bucketlake compact | clean`: what keeps a table quick and small. Each says first what it would do."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.text import Text

from bucketlake.cli.app import AsJson, Screen, Storage, TablePath, app, open_table
from bucketlake.services.clean import Retention, clean_table, plan_clean
from bucketlake.services.compaction import CompactionTrigger, compact_table, plan_compaction
from bucketlake.services.held import load_held
from bucketlake.state import files_of, load_state
from bucketlake.timeline import Action, process_clock
from bucketlake.write.writable import check_writable

Yes = Annotated[bool, typer.Option("--yes", help="Do it; without, only say what would be done.")]
_HINT = "nothing was done: give --yes to do it"


@app.command()
def compact(
    table: TablePath,
    delta_commits: Annotated[
        int | None, typer.Option(help="Only file groups with so many writes in their logs.")
    ] = None,
    log_ratio: Annotated[
        float | None, typer.Option(help="Or whose logs have so many times the bytes of the base file.")
    ] = None,
    older_than: Annotated[
        float | None, typer.Option(metavar="HOURS", help="Or whose oldest log is so old.")
    ] = None,
    yes: Yes = False,
    as_json: AsJson = False,
    storage: Storage = None,
) -> None:
    """Merge logs into new base files. Says what it would do unless --yes.

    Without an option, every file group that has logs is compacted. Compactions that are pending are run first.
    """
    store = open_table(table, storage).store
    trigger = CompactionTrigger(delta_commits=delta_commits, log_ratio=log_ratio, hours=older_than)
    state = load_state(store)
    check_writable(state)
    now = process_clock(state.properties.timeline_timezone).next_instant()
    plan = plan_compaction(state, files_of(state), load_held(state), trigger=trigger, now=now)
    pending = [instant.requested for instant in state.timeline.pending(Action.COMPACTION)]
    done = compact_table(store, trigger=trigger) if yes else ()
    facts = {
        "done": [one.instant for one in done],
        "pending": [] if yes else pending,
        "file_groups": sum(one.file_groups for one in done) if yes else len(plan.slices),
        "log_files": sum(one.log_files for one in done) if yes else plan.log_files,
        "size_bytes": sum(one.size_bytes for one in done) if yes else plan.size_bytes,
    }
    lines = [str(one) for one in done] if yes else [f"run the pending compaction {p}" for p in pending]
    if not yes or not done:
        lines.append(str(plan))
    if not yes and (pending or plan.slices):
        lines.append(_HINT)
    Screen(as_json).show(facts, Text("\n".join(lines)))


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
    as_json: AsJson = False,
    storage: Storage = None,
) -> None:
    """Delete files that nobody needs any more. Says what it would do unless --yes.

    Cleans that were cut off are finished first.
    """
    store = open_table(table, storage).store
    retain = Retention(commits=retain_commits, hours=retain_hours, versions=retain_versions)
    state = load_state(store)
    check_writable(state)
    now = process_clock(state.properties.timeline_timezone).next_instant()
    plan = plan_clean(state, files_of(state), load_held(state), retain=retain, now=now)
    pending = [instant.requested for instant in state.timeline.pending(Action.CLEAN)]
    done = clean_table(store, retain=retain) if yes else ()
    facts = {
        "done": [one.instant for one in done],
        "pending": [] if yes else pending,
        "earliest_kept": plan.earliest.requested if plan.earliest else None,
        "files": sum(one.files for one in done) if yes else len(plan.files),
        "size_bytes": plan.size_bytes,
        "partitions": list(plan.partitions),
    }
    lines = [str(one) for one in done] if yes else [f"finish the clean {p}" for p in pending]
    if not yes or not done:
        lines.append(str(plan))
    if not yes and not (plan.is_empty and not pending):
        lines.append(_HINT)
    Screen(as_json).show(facts, Text("\n".join(lines)))
