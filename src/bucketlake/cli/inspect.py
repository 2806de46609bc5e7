"""`bucketlake describe | timeline | history | layout | locations | explain`: what a table is, without reading a row.

`describe --process` says what the process remembers of files.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated

import typer

from bucketlake.cli.app import EXIT_NOTHING_FOUND, AsJson, Buckets, Index, Storage, TablePath, app, open_table
from bucketlake.cli.rows import Unlimited, show_rows
from bucketlake.cli.screen import Grid, Screen, fact_grid, grid
from bucketlake.cli.values import parse_key
from bucketlake.errors import ConfigError
from bucketlake.inspection import Description, PartitionLayout
from bucketlake.storage import memory_in_use, render_bytes
from bucketlake.table import Table

GROWTH_SHOWN = 5
"""Writes of a partition, the newest."""


@app.command(epilog="Example: bucketlake describe /data/orders")
def describe(
    table: Annotated[str | None, typer.Argument(metavar="TABLE", help="Path or URI of the table.")] = None,
    process: Annotated[
        bool, typer.Option("--process", help="Say what this process remembers of files, and its budget.")
    ] = False,
    as_json: AsJson = False,
    storage: Storage = None,
    index: Index = None,
    buckets: Buckets = None,
) -> None:
    """Say what a table is: type, keys, index, schema, newest commit."""
    if table is None and not process:
        raise ConfigError("describe needs the path of a TABLE, or --process.")
    shown = [] if table is None else [_described(open_table(table, storage, index=index, buckets=buckets))]
    shown += [_memory()] if process else []
    value = {name: fact for facts, _ in shown for name, fact in facts.items()}
    Screen(as_json).show(value, *(drawing for _, drawings in shown for drawing in drawings))


_Shown = tuple[dict[str, object], Sequence[Grid | str]]
"""What there is to say, for JSON and drawn."""


def _memory() -> _Shown:
    memory = memory_in_use()
    facts = {"size_bytes": memory.size_bytes, **asdict(memory)}
    return {"memory": facts}, (str(memory),)


def _described(table: Table) -> _Shown:
    found = table.describe()
    facts: dict[str, object] = {
        "path": found.path,
        "name": found.name,
        "type": found.table_type,
        "version": found.table_version,
        "record key": list(found.record_key),
        "partition": list(found.partition),
        "ordering": list(found.ordering),
        "merge mode": found.merge_mode,
        "key generator": found.key_generator,
        "index": found.index,
        "metadata table": list(found.metadata_table),
        "secondary indexes": list(found.secondary_indexes),
        "commits": found.commits,
        "pending": found.pending,
        "last commit": found.last_commit,
        "changes until": found.changes_until,
    }
    columns = grid("columns", "name", "type", "nullable")
    for field in found.schema:
        columns.add_row(field.name, str(field.type), "yes" if field.nullable else "no")
    schema = [{"name": f.name, "type": str(f.type), "nullable": f.nullable} for f in found.schema]
    drawn: list[Grid | str] = [fact_grid("", facts), *notes_beside_hudi(found), "", columns]
    return {**facts, "beside hudi": list(found.beside_hudi), "schema": schema}, drawn


def notes_beside_hudi(found: Description) -> list[str]:
    """Return a line for each thing that Hudi cannot do with a table."""
    return [f"note: {line}" for line in found.beside_hudi]


@app.command(epilog="Example: bucketlake timeline /data/orders --json")
def timeline(table: TablePath, as_json: AsJson = False, storage: Storage = None) -> None:
    """List the instants of the active timeline, oldest first."""
    entries = open_table(table, storage).timeline()
    drawn = grid("timeline", "requested", "completed", "action", "state", "operation")
    for entry in entries:
        drawn.add_row(
            entry.requested, entry.completed or "-", entry.action, entry.state, entry.operation or "-"
        )
    Screen(as_json).show([asdict(entry) for entry in entries], drawn)


@app.command(epilog="Example: bucketlake history /data/orders --limit 5")
def history(
    table: TablePath,
    limit: Annotated[int | None, typer.Option(min=1, help="Commits to list at most.")] = None,
    as_json: AsJson = False,
    storage: Storage = None,
) -> None:
    """List the commits on the active timeline and what each did to rows, newest first."""
    entries = open_table(table, storage).history(limit=limit)
    numbers = ("inserted", "updated", "deleted", "partitions", "files", "size")
    drawn = grid("history", "instant", "completed", "operation", *numbers, numbers=numbers)
    for one in entries:
        counts = (one.inserted, one.updated, one.deleted, one.partitions, one.files)
        words = (one.instant, one.completed or "-", one.operation or "-")
        drawn.add_row(*words, *(f"{count:,}" for count in counts), render_bytes(one.size_bytes))
    Screen(as_json).show([asdict(entry) for entry in entries], drawn)


@app.command(epilog="Example: bucketlake changes-until /data/orders")
def changes_until(table: TablePath, as_json: AsJson = False, storage: Storage = None) -> None:
    """Print the completion time up to which all changes can be read: the --end of `read`, and the next --begin."""
    until = open_table(table, storage).changes_until()
    Screen(as_json).show({"changes_until": until}, until or "the table has no changes")
    if until is None:
        raise typer.Exit(EXIT_NOTHING_FOUND)


@app.command(epilog="Example: bucketlake layout /data/orders")
def layout(
    table: TablePath,
    as_json: AsJson = False,
    storage: Storage = None,
    index: Index = None,
    buckets: Buckets = None,
) -> None:
    """Show partitions, buckets, file sizes and how evenly they are filled."""
    found = open_table(table, storage, index=index, buckets=buckets).layout()
    numbers: tuple[str, ...] = ("buckets", "groups", "bases", "logs", "size", "in logs", "largest", "skew")
    if any(part.fills for part in found.partitions):
        numbers = (*numbers, "keys", "full", "growth")
    drawn = grid("layout", "partition", *numbers, numbers=numbers)
    rows = []
    for part in found.partitions:
        largest = max((s.size_bytes for s in part.slices), default=0)
        drawn.add_row(
            part.partition or "(not partitioned)",
            "-" if part.buckets is None else str(part.buckets),
            str(len(part.slices)),
            str(part.base_files),
            str(part.log_files),
            render_bytes(part.size_bytes),
            render_bytes(part.log_bytes),
            render_bytes(largest),
            f"{part.skew:.2f}",
            *_filled(part, is_shown="full" in numbers),
        )
        rows.append(
            {
                "partition": part.partition,
                "buckets": part.buckets,
                "size_bytes": part.size_bytes,
                "log_bytes": part.log_bytes,
                "skew": round(part.skew, 4),
                "file_groups": [
                    {
                        "file_id": s.file_id,
                        "size_bytes": s.size_bytes,
                        "base_file": s.base_file.path if s.base_file else None,
                        "log_files": [log.path for log in s.log_files],
                        **(asdict(part.fills[s.file_id]) if s.file_id in part.fills else {}),
                        **(
                            {"growth": [asdict(step) for step in part.growth[s.file_id]]}
                            if s.file_id in part.growth
                            else {}
                        ),
                    }
                    for s in part.slices
                ],
            }
        )
    drawn.caption = (
        f"{render_bytes(found.size_bytes)} in all; the largest file group is {found.skew:.2f} × the average"
    )
    facts = {"size_bytes": found.size_bytes, "skew": round(found.skew, 4), "index": found.index}
    Screen(as_json).show({**facts, "partitions": rows}, drawn, f"index: {found.index}")


def _filled(part: PartitionLayout, *, is_shown: bool) -> tuple[str, ...]:
    """Say how many keys the buckets of a partition have that open as others fill, how many of them are full, and by
    how many keys the newest writes made them grow."""
    if not is_shown:
        return ()
    fills = part.fills.values()
    steps: Counter[str] = Counter()
    for bucket in part.growth.values():
        steps.update({step.completed: step.keys for step in bucket})
    newest = " ".join(f"{keys:+,}" for _, keys in sorted(steps.items())[-GROWTH_SHOWN:])
    full = f"{sum(fill.is_full for fill in fills)} of {len(fills)}"
    return f"{sum(fill.keys for fill in fills):,}", full, newest or "-"


@app.command(epilog="Example: bucketlake locations /data/orders --partition 2026-06-18")
def locations(
    table: TablePath,
    partition: Annotated[str, typer.Option(help="Path of the partition; none in a table without them.")] = "",
    limit: Annotated[int, typer.Option(min=0, help="Keys to print at most.")] = 20,
    every: Unlimited = False,
    as_json: AsJson = False,
    storage: Storage = None,
) -> None:
    """Print where the keys of a partition live, as the record-level index has it."""
    found = open_table(table, storage).locations(partition)
    show_rows(found if every else found.slice(0, limit), Screen(as_json))


@app.command(epilog="Example: bucketlake explain /data/orders o-1 --partition 2026-06-18")
def explain(
    table: TablePath,
    key: Annotated[str, typer.Argument(metavar="KEY", help="The key, as JSON if of several columns.")],
    partition: Annotated[str | None, typer.Option(help="Path of the partition the key is in.")] = None,
    as_json: AsJson = False,
    storage: Storage = None,
    index: Index = None,
    buckets: Buckets = None,
) -> None:
    """Say where a key lives and why: hash, rule, bucket or entry, file group, and the last commits that wrote to it."""
    opened = open_table(table, storage, index=index, buckets=buckets)
    fields = opened.properties.record_key_fields
    found = opened.explain(parse_key(key, opened.schema, fields), partition=partition)
    Screen(as_json).show(asdict(found), str(found))
