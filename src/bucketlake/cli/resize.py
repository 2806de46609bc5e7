"""`bucketlake buckets resize | double | undo-double | abort`: buckets split and merged, and that taken back."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from bucketlake.arguments import ResizeArguments
from bucketlake.cli.app import AsJson, Storage, TablePath, open_table
from bucketlake.cli.buckets import buckets
from bucketlake.cli.screen import Screen
from bucketlake.cli.services import HINT, OnSpark, Yes, session_if
from bucketlake.services.doubling import Doubled
from bucketlake.services.resize import ROUNDS_MAX
from bucketlake.services.resize_plan import (
    FILE_BYTES,
    MERGE_THRESHOLD,
    PARTITIONS_AT_ONCE,
    ROUND_BYTES,
    SPLIT_THRESHOLD,
)


class PolicyWord(StrEnum):
    MIDDLE = "middle"
    EVEN = "even"


@buckets.command(epilog="Example: bucketlake buckets resize /data/orders --file-bytes 134217728 --yes")
def resize(
    table: TablePath,
    file_bytes: Annotated[int, typer.Option(help="How large a base file should become.")] = FILE_BYTES,
    split_threshold: Annotated[
        float, typer.Option(metavar="X", help="Split buckets of more than X times that.")
    ] = SPLIT_THRESHOLD,
    merge_threshold: Annotated[
        float, typer.Option(metavar="X", help="Merge neighbours of together at most X times that.")
    ] = MERGE_THRESHOLD,
    min_buckets: Annotated[int, typer.Option(help="Per partition, at least.")] = 1,
    max_buckets: Annotated[int | None, typer.Option(help="Per partition, at most.")] = None,
    partition: Annotated[
        list[str] | None, typer.Option(help="Only this partition, by its path; may be repeated.")
    ] = None,
    policy: Annotated[
        PolicyWord,
        typer.Option(help="Split in the middle of the range, or where half of the keys are on each side."),
    ] = PolicyWord.MIDDLE,
    partitions_at_once: Annotated[
        int, typer.Option(help="In how many partitions a round may change something.")
    ] = PARTITIONS_AT_ONCE,
    bytes_at_once: Annotated[int, typer.Option(help="What a round may rewrite.")] = ROUND_BYTES,
    rounds: Annotated[int, typer.Option(help="At most so many, one after the other.")] = ROUNDS_MAX,
    yes: Yes = False,
    spark: OnSpark = False,
    as_json: AsJson = False,
    storage: Storage = None,
) -> None:
    """Split large buckets and merge small neighbours. Draws the rings before and after unless --yes.

    For tables with consistent or extendible hashing. Writers and readers go on. Pending resizes are completed first.
    """
    found = open_table(table, storage).buckets
    which: ResizeArguments = {
        "file_bytes": file_bytes,
        "split_threshold": split_threshold,
        "merge_threshold": merge_threshold,
        "min_buckets": min_buckets,
        "partitions": partition or None,
        "policy": policy.value,
        "partitions_at_once": partitions_at_once,
        "bytes_at_once": bytes_at_once,
    }
    if max_buckets is not None:
        which["max_buckets"] = max_buckets
    if not yes:
        plan = found.plan_resize(spark=session_if(spark), **which)
        facts: dict[str, object] = {
            "done": [],
            "pending": list(plan.pending),
            "partitions": [
                {
                    "partition": one.partition,
                    "before": len(one.ring.nodes),
                    "after": len(one.after.nodes),
                    "size_bytes": one.size_bytes,
                }
                for one in plan.work.partitions
            ],
            "left_alone": list(plan.work.left_alone),
            "size_bytes": plan.work.size_bytes,
        }
        lines = [str(plan), *([] if plan.is_empty else [HINT])]
        Screen(as_json).show(facts, "\n".join(lines))
        return
    done = found.resize(spark=session_if(spark), rounds=rounds, **which)
    facts = {
        "done": [one.instant for one in done.runs],
        "replaced": sum(one.replaced for one in done.runs),
        "file_groups": sum(one.file_groups for one in done.runs),
        "size_bytes": sum(one.size_bytes for one in done.runs),
    }
    Screen(as_json).show(facts, str(done))


@buckets.command(epilog="Example: bucketlake buckets double /data/orders --yes")
def double(
    table: TablePath,
    rounds: Annotated[
        int | None, typer.Option(help="At most so many, of one bucket each; the next call goes on.")
    ] = None,
    yes: Yes = False,
    spark: OnSpark = False,
    as_json: AsJson = False,
    storage: Storage = None,
) -> None:
    """Give a table of simple buckets twice as many, one after the other. Says what is to be done unless --yes.

    Writers and readers go on. Until it is finished, Hudi reads the table and cannot write to it.
    """
    found = open_table(table, storage).buckets
    if yes:
        _show(found.double(spark=session_if(spark), rounds=rounds), as_json)
        return
    plan = found.plan_double()
    facts = {
        "done": [],
        "before": plan.work.before,
        "after": plan.work.after,
        "left": [{"partition": one.partition, "bucket": one.number} for one in plan.work.left],
        "size_bytes": plan.work.size_bytes,
    }
    Screen(as_json).show(facts, f"{plan}\n{HINT}")


@buckets.command(epilog="Example: bucketlake buckets undo-double /data/orders")
def undo_double(
    table: TablePath,
    spark: OnSpark = False,
    as_json: AsJson = False,
    storage: Storage = None,
) -> None:
    """Take back a doubling that is not finished: merge what was split. What was written meanwhile stays."""
    _show(open_table(table, storage).buckets.undo_double(spark=session_if(spark)), as_json)


def _show(done: Doubled, as_json: bool) -> None:
    facts = {
        "done": [one.instant for one in done.runs],
        "buckets": done.buckets,
        "is_finished": done.is_finished,
        "size_bytes": sum(one.size_bytes for one in done.runs),
    }
    Screen(as_json).show(facts, str(done))


@buckets.command(epilog="Example: bucketlake buckets abort /data/orders --yes")
def abort(
    table: TablePath,
    instant: Annotated[
        str | None,
        typer.Argument(help="Of a resize, as `resize` tells it. Without: the rescale."),
    ] = None,
    yes: Yes = False,
    as_json: AsJson = False,
    storage: Storage = None,
) -> None:
    """Undo a rescale that was cut off, or a pending resize. Rows that were written meanwhile stay."""
    opened = open_table(table, storage)
    plan = opened.buckets.plan_abort(instant)
    done = opened.run(plan) if yes else None
    facts = {
        "instant": plan.instant,
        "done": done is not None,
        "files": [file.path for file in plan.work.files] if plan.work is not None else [],
    }
    lines = [str(plan), *([] if yes or plan.is_empty else [HINT])]
    Screen(as_json).show(facts, "\n".join(lines))
