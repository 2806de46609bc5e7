"""`bucketlake buckets show | overwrite | add | resume | rollback`: how many buckets partitions have.

What changes something says first what it would do.
"""

from __future__ import annotations

from typing import Annotated

import typer

from bucketlake.cli.app import AsJson, Storage, TablePath, app, open_table
from bucketlake.cli.screen import Screen
from bucketlake.cli.services import HINT, OnSpark, Yes, session_if
from bucketlake.services.rescale import BUDGET_BYTES, Rescale
from bucketlake.services.rollback import RollbackOrder

buckets = typer.Typer(help="Bucket counts by partition.", no_args_is_help=True)
app.add_typer(buckets, name="buckets")

RulesText = Annotated[str, typer.Argument(metavar="RULES", help='Such as "2026-1[12]-,32;^2026-,16".')]
Default = Annotated[
    int | None,
    typer.Option("--bucket-number", help="For partitions that no rule catches; keeps the present one."),
]
Budget = Annotated[
    int, typer.Option("--budget", min=1, help="Megabytes of rows that a task holds at a time.")
]


@buckets.command()
def show(table: TablePath, as_json: AsJson = False, storage: Storage = None) -> None:
    """Show the versions of a table's bucket rules, oldest first; the last one counts."""
    versions = open_table(table, storage).buckets.show_config()
    facts = [
        {"instant": v.instant, "rules": v.expressions, "default": v.default_count, "type": v.rule_type}
        for v in versions
    ]
    lines = [f"{v.instant}: {v.expressions}; otherwise {v.default_count}" for v in versions]
    Screen(as_json).show({"versions": facts}, "\n".join(lines) or "the table has no bucket rules")


@buckets.command()
def overwrite(
    table: TablePath,
    rules: RulesText,
    bucket_number: Default = None,
    budget: Budget = BUDGET_BYTES >> 20,
    yes: Yes = False,
    spark: OnSpark = False,
    as_json: AsJson = False,
    storage: Storage = None,
) -> None:
    """Give a table other bucket rules. Says what it would do unless --yes."""
    found = open_table(table, storage).buckets
    _show(found.overwrite(rules, bucket_number=bucket_number), as_json=as_json, yes=yes)
    if yes:
        _show(
            found.overwrite(
                rules,
                spark=session_if(spark),
                bucket_number=bucket_number,
                dry_run=False,
                budget_bytes=budget << 20,
            ),
            as_json=as_json,
        )


@buckets.command()
def add(
    table: TablePath,
    rules: RulesText,
    bucket_number: Default = None,
    budget: Budget = BUDGET_BYTES >> 20,
    yes: Yes = False,
    spark: OnSpark = False,
    as_json: AsJson = False,
    storage: Storage = None,
) -> None:
    """Put bucket rules before those that a table has. Says what it would do unless --yes."""
    found = open_table(table, storage).buckets
    _show(found.add(rules, bucket_number=bucket_number), as_json=as_json, yes=yes)
    if yes:
        _show(
            found.add(
                rules,
                spark=session_if(spark),
                bucket_number=bucket_number,
                dry_run=False,
                budget_bytes=budget << 20,
            ),
            as_json=as_json,
        )


@buckets.command()
def resume(
    table: TablePath, spark: OnSpark = False, as_json: AsJson = False, storage: Storage = None
) -> None:
    """Go on with a rescale that was cut off."""
    _show(open_table(table, storage).buckets.resume(spark=session_if(spark)), as_json=as_json)


@buckets.command()
def rollback(
    table: TablePath,
    instant: Annotated[str, typer.Argument(help="Of the rescale, as `buckets show` tells it.")],
    with_newer: Annotated[
        bool, typer.Option("--with-newer", help="Take back those that came after it first.")
    ] = False,
    yes: Yes = False,
    as_json: AsJson = False,
    storage: Storage = None,
) -> None:
    """Take a rescale back, data and rules together. Says what it would do unless --yes."""
    found = open_table(table, storage).buckets.rollback(instant, dry_run=not yes, with_newer=with_newer)
    facts = {"instant": instant, "done": yes, "instants": list(found.instants), "files": list(found.files)}
    Screen(as_json).show(facts, "\n".join([str(found), *([] if yes else [HINT])]))


def show_order(order: RollbackOrder, *, as_json: bool, yes: bool) -> None:
    lines = [str(order), *([] if yes else [HINT])]
    instant = order.instant.requested
    facts = {"instant": instant, "done": yes, "files": [file.path for file in order.files]}
    Screen(as_json).show(facts, "\n".join(lines))


def _show(found: object, *, as_json: bool, yes: bool = True) -> None:
    if isinstance(found, Rescale):
        if yes:
            return  # what was done is said when it is done
        facts: dict[str, object] = {
            "done": None,
            "partitions": [
                {
                    "partition": change.partition,
                    "before": change.before,
                    "after": change.after,
                    "reason": change.reason,
                    "base_rows": change.base_rows,
                    "log_files": change.log_files,
                    "files": change.files,
                    "size_bytes": change.size_bytes,
                }
                for change in found.changes
            ],
            "unchanged": found.unchanged,
            "base_rows": found.base_rows,
            "size_bytes": found.size_bytes,
        }
        Screen(as_json).show(facts, f"{found}\n{HINT}")
        return
    instant = getattr(found, "instant", None)
    Screen(as_json).show({"done": instant, "partitions": list(getattr(found, "partitions", ()))}, str(found))
