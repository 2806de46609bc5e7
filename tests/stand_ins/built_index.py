"""Tables that get a record-level index, and what must hold of it, whatever places their rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from bucketlake import Table
from bucketlake.commit.metadata_build import build_metadata
from bucketlake.config import RECORD_LEVEL, load_properties
from bucketlake.index.record_level import RecordLevelIndex, resolve_record_index
from bucketlake.index.told import IndexValue
from bucketlake.metadata.places import RECORD_INDEX
from bucketlake.state import load_state
from bucketlake.storage import Store
from bucketlake.write import TableSpec, create
from bucketlake.write.metadata_drop import plan_drop_metadata_table, run_drop_metadata_table
from stand_ins.aging import Bucket
from stand_ins.orders_table import SCHEMA, orders
from stand_ins.record_index_check import places_of


def table_of(store: Store) -> Table:
    return Table(store, load_properties(store))


def filled(index: IndexValue, table_type: str = "MERGE_ON_READ") -> Bucket:
    """A table with base files, updates over them, and deletes; one that needs its index has none any more."""
    store = Bucket()
    create(store, TableSpec(
        name="orders", schema=SCHEMA, key=("id",), partition=("dt",), ordering=("ts",), index=index,
        table_type=table_type,
    ))  # fmt: skip
    build_metadata(store)
    table = table_of(store)
    table.upsert(orders(range(20), "first", 1))
    table.upsert(orders(range(10, 30), "second", 2))
    table.delete([3, 4])
    if index.engine in RECORD_LEVEL:
        run_drop_metadata_table(plan_drop_metadata_table(load_state(store)), store)
    return store


def is_index_listed(store: Store) -> bool:
    return RECORD_INDEX in load_properties(store).metadata_partitions


def check_built(store: Store) -> int:
    """Compare all entries with all rows; return how many keys there are."""
    index = resolve_record_index(load_state(store))
    assert isinstance(index, RecordLevelIndex)
    assert index.fault is None
    found = {}
    for shard in range(len(index._pinned.shards)):
        entries = index.entries(shard)
        shards = index.shard_of(entries["partition"].combine_chunks(), entries["key"].combine_chunks())
        assert set(shards.tolist()) <= {shard}, "a key in a shard that is not its own"
        for entry in entries.to_pylist():
            found[entry["key"], "" if index.is_global else entry["partition"]] = (
                entry["partition"],
                entry["file_id"],
            )
    assert found == places_of(store, is_global=index.is_global)
    return len(found)


class CountedTasks:
    """Runs tasks here, and remembers which were done; `before` is called before each."""

    def __init__(self, before: Callable[[str, Any], object] | None = None) -> None:
        self.done: list[tuple[str, str]] = []
        self._before = before

    def __call__(self, function: Callable[[Any], Any], items: Sequence[Any], /) -> list[Any]:
        results = []
        for item in items:
            if self._before is not None:
                self._before(function.__name__, item)
            results.append(function(item))
            what = getattr(item, "name", None) or f"{item.file_id} {item.round}"
            self.done.append((function.__name__, what))
        return results

    def names(self, function: str) -> list[str]:
        return [what for name, what in self.done if name == function]
