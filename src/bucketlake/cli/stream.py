"""`bucketlake stream status | progress | metrics`: streams into a table, as its commits tell of them."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from bucketlake.cli.app import AsJson, Storage, TablePath, app, open_table
from bucketlake.cli.rows import Unlimited, show_rows
from bucketlake.cli.screen import Screen, grid

stream = typer.Typer(help="Streams into a table.", no_args_is_help=True)
app.add_typer(stream, name="stream")


@stream.command("status", epilog="Example: bucketlake stream status /data/orders")
def status(table: TablePath, as_json: AsJson = False, storage: Storage = None) -> None:
    """Show how far each stream is, how fast it is, and how far compaction is behind."""
    opened = open_table(table, storage)
    found = opened.stream_status()
    numbers = ("batch", "batches", "rows", "rows/s", "p50 s", "p95 s", "behind")
    drawn = grid(
        f"streams into {opened.store.uri}", "name", "stream", "last commit", *numbers, numbers=numbers
    )
    for one in found:
        drawn.add_row(
            one.name or "-",
            one.stream,
            one.completed,
            f"{one.batch:,}",
            f"{one.batches:,}",
            f"{one.rows:,}",
            f"{one.rows_per_second:,.0f}",
            f"{one.p50_seconds:.2f}",
            f"{one.p95_seconds:.2f}",
            f"{one.behind_times:.1f}",
        )
    drawn.caption = "" if found else "none has a commit on the active timeline"
    Screen(as_json).show({"streams": [asdict(one) for one in found]}, drawn)


@stream.command("progress", epilog="Example: bucketlake stream progress /data/orders --limit 5")
def progress(
    table: TablePath,
    limit: Annotated[int, typer.Option(min=0, help="Batches to print at most, the newest.")] = 20,
    every: Unlimited = False,
    as_json: AsJson = False,
    storage: Storage = None,
) -> None:
    """Print a row for each batch: rows, inserts, updates, deletes, files, bytes, seconds by stage."""
    found = open_table(table, storage).query_progress()
    show_rows(found if every else found.slice(max(0, found.num_rows - limit)), Screen(as_json))


@stream.command("metrics", epilog="Example: bucketlake stream metrics /data/orders")
def metrics(table: TablePath, as_json: AsJson = False, storage: Storage = None) -> None:
    """Print figures of the newest batch of each stream in Prometheus's text format."""
    text = open_table(table, storage).stream_metrics()
    Screen(as_json).show({"metrics": text}, text.rstrip("\n"))
