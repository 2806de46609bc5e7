"""How many requests a table sends to its store. On an object store each takes 10 to 50 ms, and lists cost most."""

from __future__ import annotations

from collections import Counter

import pytest

from bucketlake import RecordIndex, Table
from bucketlake.commit.metadata_build import build_metadata
from bucketlake.config import load_properties
from bucketlake.index import ConsistentBuckets, IndexValue, PartitionBuckets, SimpleBuckets
from bucketlake.storage import Store
from bucketlake.testing.faulty_store import FaultyStore
from bucketlake.write import TableSpec, create
from stand_ins.aging import Bucket
from stand_ins.orders_table import SCHEMA, orders

ENGINES: dict[str, IndexValue] = {
    "simple": SimpleBuckets(2),
    "rules": PartitionBuckets("p0,3", default=2),
    "ring": ConsistentBuckets(2),
    "record": RecordIndex(),
}
MOST = {"simple": (43, 14), "rules": (46, 15), "ring": (43, 13), "record": (60, 20)}
"""Requests of a one-row upsert, and lists among them, as docs/reliability.md has them."""


def a_table(engine: str = "simple", table_type: str = "MERGE_ON_READ") -> Store:
    store = Bucket()
    spec = {"index": ENGINES[engine], "table_type": table_type}
    create(
        store,
        TableSpec(name="orders", schema=SCHEMA, key=("id",), partition=("dt",), ordering=("ts",), **spec),
    )
    if engine == "record":
        build_metadata(store)
    table = Table(store, load_properties(store))
    for n in range(5):
        table.upsert(orders(range(40), f"load {n}", n))
    return store


def counted(store: Store) -> tuple[Table, FaultyStore]:
    counting = FaultyStore(store)
    table = Table(counting, load_properties(counting))
    counting.operations.clear()
    return table, counting


@pytest.mark.parametrize("table_type", ["COPY_ON_WRITE", "MERGE_ON_READ"])
@pytest.mark.parametrize("engine", ENGINES)
def test_a_small_upsert_sends_no_more_requests_than_it_needs(engine: str, table_type: str) -> None:
    table, counting = counted(a_table(engine, table_type))
    table.upsert(orders([1], "one", 9))
    kinds = Counter(what.partition(" ")[0] for what in counting.operations)
    requests, lists = MOST[engine]
    assert len(counting.operations) <= requests, "\n".join(counting.operations)
    assert kinds["list"] <= lists, "\n".join(counting.operations)
    timelines = [what for what in counting.operations if what == "list .hoodie/timeline"]
    assert len(timelines) == 3, "before it is announced, after, and to commit"


@pytest.mark.parametrize("act", ["upsert", "delete", "overwrite", "delete_partitions", "read", "get"])
def test_who_names_partitions_has_no_others_listed(act: str) -> None:
    table, counting = counted(a_table())
    match act:
        case "upsert":
            table.upsert(orders([1], "one", 9))
        case "delete":
            table.delete(orders([1], "one", 9).select(["id", "dt"]))
        case "overwrite":
            table.overwrite(orders([1], "one", 9))
        case "delete_partitions":
            table.delete_partitions(["p1"])
        case "read":
            assert table.to_arrow(filters=[("dt", "=", "p1")]).num_rows == 20
        case "get":
            assert table.get(1, partition="p1").num_rows == 1
    listed = {what for what in counting.operations if what.startswith("list") and ".hoodie" not in what}
    assert listed == {"list p1"}
