"""`bucketlake fsck`: check a table against itself, and mend what says what the table is."""

from __future__ import annotations

from typing import Annotated

import typer

from bucketlake import spark as on_spark
from bucketlake.cli.app import AsJson, Storage, TablePath, app, pairs
from bucketlake.cli.progress import progress_bar
from bucketlake.cli.screen import Screen, grid
from bucketlake.cli.services import HINT, OnSpark, Yes, session_if
from bucketlake.config import plan_mend, run_mend
from bucketlake.services.fsck import check_table
from bucketlake.storage import Store, open_store

EXIT_FINDINGS = 3
"""As for any table that is broken."""


@app.command(epilog="Example: bucketlake fsck /data/orders --spark")
def fsck(
    table: TablePath,
    repair: Annotated[
        bool, typer.Option("--repair", help="Mend hoodie.properties from its copy instead of checking.")
    ] = False,
    yes: Yes = False,
    spark: OnSpark = False,
    as_json: AsJson = False,
    storage: Storage = None,
) -> None:
    """Read and check every file, key and sum of a table; exits with 3 if anything is wrong.

    With --repair and --yes it mends hoodie.properties. Otherwise it changes nothing. What dead writers left is fine.
    """
    store = open_store(table, pairs(storage or ()))
    if repair:
        _repair(store, yes=yes, as_json=as_json)
        return
    if spark:
        session = session_if(spark)
        assert session is not None
        report = check_table(store, tasks=on_spark.services.SessionTasks(session))
    else:
        with progress_bar("file groups") as on_progress:
            report = check_table(store, on_progress=on_progress)
    facts = {
        "sound": report.is_sound,
        "rows": report.rows,
        "file_groups": report.file_groups,
        "files": report.files,
        "commits": report.commits,
        "index": report.index,
        "findings": [{"kind": f.kind.name, "place": f.place, "text": f.text} for f in report.damage],
        "notes": [{"kind": f.kind.name, "place": f.place, "text": f.text} for f in report.notes],
    }
    drawn = grid(f"fsck of {store.uri}", "finding", "where", "what")
    for finding in report.damage:
        drawn.add_row(str(finding.kind), finding.place or "the table", finding.text)
    for note in report.notes:
        drawn.add_row(f"note: {note.kind}", note.place or "the table", note.text)
    drawn.caption = (
        f"{'sound' if report.is_sound else f'{len(report.damage)} findings'}: {report.rows:,} rows in "
        f"{report.file_groups:,} file groups, {report.files:,} files, {report.commits:,} commits"
    )
    Screen(as_json).show(facts, drawn)
    if not report.is_sound:
        raise typer.Exit(EXIT_FINDINGS)


def _repair(store: Store, *, yes: bool, as_json: bool) -> None:
    mend = plan_mend(store)
    if mend is not None and yes:
        run_mend(store, mend)
    facts = {
        "done": mend is not None and yes,
        "restored": {key: mend.mended[key] for key in mend.restored} if mend else {},
    }
    lines = [str(mend) if mend else "hoodie.properties is as it should be"]
    if mend is not None and not yes:
        lines.append(HINT)
    Screen(as_json).show(facts, "\n".join(lines))
