"""`bucketlake report`: a table on one page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bucketlake.cli.app import AsJson, Buckets, Index, Storage, TablePath, app, open_table
from bucketlake.cli.screen import Screen


@app.command(epilog="Example: bucketlake report /data/orders -o report.html")
def report(
    table: TablePath,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Write the page here; else say what to do."),
    ] = None,
    as_json: AsJson = False,
    storage: Storage = None,
    index: Index = None,
    buckets: Buckets = None,
) -> None:
    """Show buckets, skew, commits, indexes and what to do next, on a page that works offline."""
    found = open_table(table, storage, index=index, buckets=buckets).report()
    lines = [str(found)]
    if output is not None:
        lines.append(f"the page is in {found.save(output)}")
    Screen(as_json).show(found.facts.as_json(), "\n".join(lines))
