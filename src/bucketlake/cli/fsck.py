"""`bucketlake fsck`: check a table against itself."""

from __future__ import annotations

import typer

from bucketlake.cli.app import AsJson, Storage, TablePath, app, open_table
from bucketlake.cli.progress import progress_bar
from bucketlake.cli.screen import Screen, grid
from bucketlake.cli.services import OnSpark, session_if
from bucketlake.services.fsck import check_table

EXIT_FINDINGS = 3
"""As for any table that is broken."""


@app.command()
def fsck(table: TablePath, spark: OnSpark = False, as_json: AsJson = False, storage: Storage = None) -> None:
    """Check every key, file and sum of a table; exits with 3 if anything is wrong. Changes nothing."""
    opened = open_table(table, storage)
    store = opened.store
    if spark:
        report = opened.fsck(session_if(spark))
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
        "findings": [{"kind": f.kind.name, "place": f.place, "text": f.text} for f in report.findings],
    }
    drawn = grid(f"fsck of {store.uri}", "finding", "where", "what")
    for finding in report.findings:
        drawn.add_row(str(finding.kind), finding.place or "the table", finding.text)
    drawn.caption = (
        f"{'sound' if report.is_sound else f'{len(report.findings)} findings'}: {report.rows:,} rows in "
        f"{report.file_groups:,} file groups, {report.files:,} files, {report.commits:,} commits"
    )
    Screen(as_json).show(facts, drawn)
    if not report.is_sound:
        raise typer.Exit(EXIT_FINDINGS)
