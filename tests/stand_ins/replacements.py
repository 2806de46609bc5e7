"""Clusterings, rescales and resizes, and what others do between their request and their completion."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pyarrow as pa

from bucketlake import ConsistentBuckets, PartitionBuckets, ResizeTrigger, SimpleBuckets, Table, create_table
from bucketlake.index import declare_rules
from bucketlake.index.told import IndexValue
from bucketlake.services import (
    here,
    load_held,
    look_for_resize,
    plan_clustering,
    run_clustering,
    run_resize,
    schedule_clustering,
    schedule_resize,
)
from bucketlake.services.clustering import ClusteringTrigger
from bucketlake.services.rescale import rescale_table
from bucketlake.state import files_of, load_state

SCHEMA = pa.schema([("id", pa.int64()), ("dt", pa.string()), ("ts", pa.int64())])
TYPES = ("COPY_ON_WRITE", "MERGE_ON_READ")
KINDS = ("clustering", "rescale", "resize", "resize with virtual logs")

_SPLIT = ResizeTrigger(file_bytes=1, split_threshold=1.0, merge_threshold=0.1, max_buckets=4)
_MERGE = ResizeTrigger()
_numbers = itertools.count()

Meanwhile = Callable[[], object]


def table_for(kind: str, table_type: str) -> Table:
    """Make an empty table, in memory, in which such a replacement may be done: of partitions d0 and d1."""
    index: IndexValue = SimpleBuckets(2)
    if kind.startswith("resize"):
        is_virtual = kind == "resize with virtual logs" and table_type == "MERGE_ON_READ"
        index = ConsistentBuckets(2, virtual_logs=is_virtual)
    elif kind == "rescale":
        index = PartitionBuckets("none,1", default=2)
    return create_table(
        f"memory://replacements-{next(_numbers)}",
        SCHEMA,
        key="id",
        partition="dt",
        ordering="ts",
        index=index,
        table_type=table_type,
    )


def rows_of(ids: Iterable[int], ts: int) -> pa.Table:
    return pa.Table.from_pylist([{"id": n, "dt": f"d{n % 2}", "ts": ts} for n in ids], SCHEMA)


def replace_while(table: Table, kind: str, meanwhile: Meanwhile) -> str | None:
    """Replace file groups of d0, or of all partitions; `meanwhile` happens between request and completion.

    Returns the requested time; None if there was nothing to replace. While a clustering is pending, its file groups
    may not be written to: write to d1.
    """
    match kind:
        case "clustering":
            return _cluster(table, meanwhile)
        case "rescale":
            return _rescale(table, meanwhile)
        case _:
            return _resize(table, meanwhile)


def _cluster(table: Table, meanwhile: Meanwhile) -> str | None:
    state = load_state(table.store)
    plan = plan_clustering(
        state,
        files_of(state),
        load_held(state),
        by=["id"],
        trigger=ClusteringTrigger(partitions=("d0",)),
        now="",
    )
    instant = schedule_clustering(table.store, plan)
    meanwhile()
    if instant is not None:
        run_clustering(table.store, instant)
    return instant


def _rescale(table: Table, meanwhile: Meanwhile) -> str | None:
    is_pending = True

    def tasks(function: Callable[[Any], Any], items: Sequence[Any], /) -> list[Any]:
        nonlocal is_pending
        done = here(function, items)
        if is_pending:
            is_pending = False
            meanwhile()
        return done

    counts = {part.buckets for part in Table.open(table.store.uri).layout().partitions}
    rules = declare_rules(f"d,{5 if 3 in counts else 3}", 2)
    done = rescale_table(table.store, rules, tasks=tasks)
    if is_pending:
        meanwhile()
    return done.instant


def _resize(table: Table, meanwhile: Meanwhile) -> str | None:
    instant = schedule_resize(table.store, look_for_resize(table.store, _SPLIT))
    instant = instant or schedule_resize(table.store, look_for_resize(table.store, _MERGE))
    meanwhile()
    if instant is not None:
        run_resize(table.store, instant)
    return instant
