"""A commit that is cut off anywhere leaves statistics that tell of every file that counts, and tell the truth."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import cache

import pytest

from bucketlake import Table
from bucketlake.commit.recovery import recover
from bucketlake.config import TableType, load_properties
from bucketlake.index import SimpleBuckets
from bucketlake.metadata.column_stats import Kind, ValueType
from bucketlake.metadata.file_ranges import ranges_of
from bucketlake.metadata.places import COLUMN_STATS, PARTITION_STATS
from bucketlake.services import Retention, clean_table, compact_table
from bucketlake.state import files_of, load_state
from bucketlake.storage import Store
from bucketlake.testing.faulty_store import FaultyStore, InjectedError
from bucketlake.write.create import TableSpec, create
from stand_ins.aging import Bucket, age, copy_of
from stand_ins.listed_statistics import META, described, list_statistics
from stand_ins.orders_table import SCHEMA, orders

TEXT, LONG = ValueType(Kind.STRING), ValueType(Kind.LONG)
COLUMNS = {**dict.fromkeys(META, TEXT), "id": LONG, "name": TEXT, "ts": LONG, "dt": TEXT}
STEP = 3
"""Every third moment is taken; each of the cases begins at another."""


def table_of(store: Store) -> Table:
    return Table(store, load_properties(store))


@cache
def written(table_type: TableType) -> Bucket:
    store = Bucket()
    spec = TableSpec(
        name="orders",
        schema=SCHEMA,
        key=("id",),
        partition=("dt",),
        ordering=("ts",),
        index=SimpleBuckets(2),
        table_type=table_type,
    )
    create(store, spec)
    table_of(store).metadata.build()
    list_statistics(store, SCHEMA.names)
    for ts in range(3):
        table_of(store).upsert(orders(range(4 + ts), "a", ts))
    if table_type is TableType.MERGE_ON_READ:
        compact_table(store)
        table_of(store).upsert(orders(range(6), "b", 9))
        table_of(store).delete([3])
    return store


def check(store: Store) -> None:
    """Every file that a reader may see is described as it is, and a partition is no narrower than its files."""
    ranges, partitions = described(store, COLUMN_STATS), described(store, PARTITION_STATS)
    seen = {file.path for files in files_of(load_state(store)).values() for file in files}
    # A clean that is not done yet has deleted files that are listed; nobody reads those.
    there = {file.path for file in store.list("", recursive=True).files}
    for path in seen & there:
        name = path.rpartition("/")[2]
        for said in ranges_of(store, path, COLUMNS):
            assert ranges[name, said.column] == said
            whole = partitions[path.partition("/")[0], said.column]
            if said.least is not None:
                assert whole.least <= said.least <= said.most <= whole.most  # type: ignore[operator]
    assert {name for name, _ in ranges} <= {path.rpartition("/")[2] for path in seen}


def upsert(store: Store) -> None:
    table_of(store).upsert(orders(range(-3, 9), "c", 20))


def clean(store: Store) -> None:
    clean_table(store, retain=Retention(commits=1))


CASES = {
    "upsert into base files": (TableType.COPY_ON_WRITE, upsert),
    "upsert into logs": (TableType.MERGE_ON_READ, upsert),
    "compaction": (TableType.MERGE_ON_READ, compact_table),
    "clean": (TableType.COPY_ON_WRITE, clean),
}


@pytest.mark.shows("M2")
@pytest.mark.parametrize("case", CASES)
def test_statistics_are_whole_wherever_a_commit_is_cut_off(case: str) -> None:
    table_type, act = CASES[case]
    act_on: Callable[[Store], object] = act  # type: ignore[assignment] # what it returns is nobody's business
    counting = FaultyStore(copy_of(written(table_type)))
    act_on(counting)
    check(counting.inner)
    for number in range(1 + list(CASES).index(case) % STEP, len(counting.operations) + 1, STEP):
        store = copy_of(written(table_type))
        with suppress(InjectedError):
            act_on(FaultyStore(store, fails_at=number, took_effect=number % 2 == 0, is_dead=True))
        age(store)
        recover(store, load_properties(store))
        check(store)
        upsert(store)
        check(store)
