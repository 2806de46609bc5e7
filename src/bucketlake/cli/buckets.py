"""`bucketlake buckets show-config | overwrite | add | resume | rollback`: how many buckets partitions have.

What changes something says first what it would do.
"""

from __future__ import annotations

from typing import Annotated

import typer

from bucketlake.arguments import RulesArguments
from bucketlake.cli.app import AsJson, Storage, TablePath, app, open_table
from bucketlake.cli.screen import Screen
from bucketlake.cli.services import HINT, OnSpark, Yes, session_if
from bucketlake.index import RULE_TYPE
from bucketlake.services.rescale import BUDGET_BYTES, Rescale, Rescaled

buckets = typer.Typer(help="Bucket counts by partition.", no_args_is_help=True)
app.add_typer(buckets, name="buckets")

RulesText = Annotated[str, typer.Argument(metavar="RULES", help='Such as "2026-1[12]-,32;^2026-,16".')]
Default = Annotated[
    int | None,
    typer.Option(help="For partitions that no rule catches; keeps the present one."),
]
Budget = Annotated[int, typer.Option(min=1, help="Bytes of rows that a task holds at a time.")]
RuleType = Annotated[str, typer.Option(help="The type of the rules, as the table has it.")]


@buckets.command("show-config", epilog="Example: bucketlake buckets show-config /data/orders")
def show_config(table: TablePath, as_json: AsJson = False, storage: Storage = None) -> None:
    """Show the versions of a table's bucket rules, oldest first. The last one counts."""
    versions = open_table(table, storage).buckets.show_config()
    facts = [
        {"instant": v.instant, "rules": v.expressions, "default": v.default_count, "type": v.rule_type}
        for v in versions
    ]
    lines = [f"{v.instant}: {v.expressions}; otherwise {v.default_count}" for v in versions]
    Screen(as_json).show({"versions": facts}, "\n".join(lines) or "the table has no bucket rules")


@buckets.command(
    epilog="Example: bucketlake buckets overwrite /data/orders '^2026-,16' --bucket-number 4 --yes"
)
def overwrite(
    table: TablePath,
    rules: RulesText,
    bucket_number: Default = None,
    rule_type: RuleType = RULE_TYPE,
    budget_bytes: Budget = BUDGET_BYTES,
    yes: Yes = False,
    spark: OnSpark = False,
    as_json: AsJson = False,
    storage: Storage = None,
) -> None:
    """Give a table other bucket rules. Says what it would do unless --yes."""
    found = open_table(table, storage).buckets
    how: RulesArguments = {
        "bucket_number": bucket_number,
        "rule_type": rule_type,
        "budget_bytes": budget_bytes,
    }
    if yes:
        _show_done(found.overwrite(rules, spark=session_if(spark), **how), as_json=as_json)
    else:
        _show_plan(found.plan_overwrite(rules, **how).work, as_json=as_json)


@buckets.command(epilog="Example: bucketlake buckets add /data/orders '^2026-12-,32' --yes")
def add(
    table: TablePath,
    rules: RulesText,
    bucket_number: Default = None,
    rule_type: RuleType = RULE_TYPE,
    budget_bytes: Budget = BUDGET_BYTES,
    yes: Yes = False,
    spark: OnSpark = False,
    as_json: AsJson = False,
    storage: Storage = None,
) -> None:
    """Put bucket rules before those that a table has. Says what it would do unless --yes."""
    found = open_table(table, storage).buckets
    how: RulesArguments = {
        "bucket_number": bucket_number,
        "rule_type": rule_type,
        "budget_bytes": budget_bytes,
    }
    if yes:
        _show_done(found.add(rules, spark=session_if(spark), **how), as_json=as_json)
    else:
        _show_plan(found.plan_add(rules, **how).work, as_json=as_json)


@buckets.command(epilog="Example: bucketlake buckets resume /data/orders --spark")
def resume(
    table: TablePath, spark: OnSpark = False, as_json: AsJson = False, storage: Storage = None
) -> None:
    """Go on with a rescale that was cut off."""
    _show_done(open_table(table, storage).buckets.resume(spark=session_if(spark)), as_json=as_json)


@buckets.command(epilog="Example: bucketlake buckets rollback /data/orders 20260618120000000 --yes")
def rollback(
    table: TablePath,
    instant: Annotated[str, typer.Argument(help="Of the rescale, as `buckets show-config` tells it.")],
    with_newer: Annotated[
        bool, typer.Option("--with-newer", help="Take back those that came after it first.")
    ] = False,
    yes: Yes = False,
    as_json: AsJson = False,
    storage: Storage = None,
) -> None:
    """Undo a rescale, data and rules together. Says what it would do unless --yes."""
    opened = open_table(table, storage).buckets
    if yes:
        found = opened.rollback(instant, with_newer=with_newer)
    else:
        found = opened.plan_rollback(instant, with_newer=with_newer).work
    facts = {"instant": instant, "done": yes, "instants": list(found.instants), "files": list(found.files)}
    Screen(as_json).show(facts, "\n".join([str(found), *([] if yes else [HINT])]))


def _show_plan(plan: Rescale, *, as_json: bool) -> None:
    facts = {
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
            for change in plan.changes
        ],
        "unchanged": plan.unchanged,
        "base_rows": plan.base_rows,
        "size_bytes": plan.size_bytes,
    }
    Screen(as_json).show(facts, f"{plan}\n{HINT}")


def _show_done(done: Rescaled, *, as_json: bool) -> None:
    Screen(as_json).show({"done": done.instant, "partitions": list(done.partitions)}, str(done))
