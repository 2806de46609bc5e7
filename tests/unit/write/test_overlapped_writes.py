"""On an object store the file groups of a write are written together. It is the same table as on a disk."""

from __future__ import annotations

from pathlib import Path
from threading import current_thread
from time import sleep

import pytest

from bucketlake import ConsistentBuckets, DynamicBuckets, RecordIndex, SimpleBuckets, Table
from bucketlake.commit.metadata_build import build_metadata
from bucketlake.config import load_properties
from bucketlake.index import IndexValue
from bucketlake.storage import MemoryStore
from bucketlake.testing.invariants import check_invariants
from bucketlake.write import TableSpec, create
from stand_ins.orders_table import SCHEMA, orders

ENGINES: dict[str, IndexValue] = {
    "simple": SimpleBuckets(4),
    "ring": ConsistentBuckets(4),
    "record": RecordIndex(),
    "dynamic": DynamicBuckets(assigners=2, keys_per_bucket=20),
}


class FarStore(MemoryStore):
    """A store that pays to ask many things at once."""

    def __init__(self) -> None:
        super().__init__()
        self.writers: set[str] = set()
        """Threads that put data files."""

    @property
    def requests_at_once(self) -> int:
        return 8

    def put_new(self, path: str, data: bytes | Path) -> bool:
        if not path.startswith(".hoodie"):
            self.writers.add(current_thread().name)
            sleep(0.001)
        return super().put_new(path, data)


def written(store: MemoryStore, engine: str, table_type: str) -> Table:
    spec = {"index": ENGINES[engine], "table_type": table_type}
    create(
        store,
        TableSpec(name="orders", schema=SCHEMA, key=("id",), partition=("dt",), ordering=("ts",), **spec),
    )
    if engine in ("record", "dynamic"):
        build_metadata(store)
    table = Table(store, load_properties(store))
    for turn in range(3):
        table.upsert(orders(range(turn * 50, turn * 50 + 100), f"turn {turn}", turn), maintenance="off")
    table.delete(orders(range(20, 40), "gone", 9))
    return table


@pytest.mark.parametrize("table_type", ["COPY_ON_WRITE", "MERGE_ON_READ"])
@pytest.mark.parametrize("engine", ENGINES)
def test_groups_that_are_written_together_are_the_same_table(engine: str, table_type: str) -> None:
    far, near = FarStore(), MemoryStore()
    tables = [written(store, engine, table_type) for store in (far, near)]
    rows = [table.to_arrow(columns=["id", "dt", "ts", "name"]).sort_by("id") for table in tables]
    assert rows[0] == rows[1]
    assert rows[0].num_rows == 180
    check_invariants(tables[0])
    assert len(far.writers) > 1
