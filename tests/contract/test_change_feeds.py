"""A change feed is upserted batch by batch, and the table is what the source is: every engine, both table types.

Two things went wrong with others: several versions of a key in a batch, a delete among them (delta-io/delta#338), and
deletes and rows that nothing but their place in the batch sets apart (apache/iceberg#10431).
"""

from __future__ import annotations

import itertools
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from bucketlake import (
    ConsistentBuckets,
    DynamicBuckets,
    PartitionBuckets,
    RecordIndex,
    SimpleBuckets,
    Table,
    create_table,
)
from bucketlake.testing.invariants import check_invariants
from bucketlake.write import ChangeFeed, Operation, WriteOptions, run_write
from contract.test_interleaved_keys import Hooked
from judges.rows import META_COLUMNS, assert_same_rows
from plugins.soak import seeds
from stand_ins.feeds import INCOMING, SCHEMA, WORDS, Row, Source, batch
from stand_ins.made_index import check_secondary
from stand_ins.record_index_check import check_record_index

pytestmark = pytest.mark.shows("R9")

ENGINES: dict[str, Any] = {
    "simple": SimpleBuckets(2),
    "partitions": PartitionBuckets("p1,3", default=2),
    "consistent": ConsistentBuckets(2),
    "record index": RecordIndex(shards=2),
    "record index of partitions": RecordIndex(per_partition=True, shards=2),
    "dynamic": DynamicBuckets(assigners=2, keys_per_bucket=2),
}
TYPES = ["COPY_ON_WRITE", "MERGE_ON_READ"]
_names = itertools.count()


def a_table(engine: str, table_type: str, ordering: str | None) -> Table:
    return create_table(
        f"memory://change-feed-{next(_names)}",
        SCHEMA,
        key="id",
        partition="dt",
        ordering=ordering,
        index=ENGINES[engine],
        table_type=table_type,
        maintenance="off",
    )


@pytest.fixture(params=TYPES)
def table_type(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def values(table: Table) -> dict[str, int]:
    rows = table.to_arrow(columns=["id", "n"])
    return dict(zip(rows["id"].to_pylist(), rows["n"].to_pylist(), strict=True))


Told = list[tuple[str, int, int | None]]
"""Word, ordering value, value."""

STORED = {"known": 1, "other": 1}
"""With the ordering value 10."""
CASES: dict[str, tuple[Told, int | None]] = {
    "known, deleted and inserted": ([("d", 11, None), ("c", 12, 2)], 2),
    "known, updated and deleted": ([("u", 11, 2), ("d", 12, None)], None),
    "known, five versions, a delete in the middle": (
        [("u", 11, 2), ("u", 12, 3), ("d", 13, None), ("c", 14, 4), ("u", 15, 5)],
        5,
    ),
    "known, five versions, a delete at the end": (
        [("u", 11, 2), ("u", 12, 3), ("d", 13, None), ("c", 14, 4), ("d", 15, None)],
        None,
    ),
    "known, updated": ([("-U", 11, None), ("+U", 11, 2)], 2),
    "known, its key has changed": ([("-U", 11, None)], None),
    "known, updated, and its key has changed": ([("-U", 11, None), ("+U", 11, 2), ("-U", 12, None)], None),
    "new, inserted and deleted": ([("c", 11, 2), ("d", 12, None)], None),
    "new, deleted and inserted": ([("d", 11, None), ("c", 12, 2)], 2),
    "new, deleted": ([("d", 11, None)], None),
    "new, from a snapshot": ([("r", 11, 2)], 2),
    "new, inserted, and its key has changed": ([("c", 11, 2), ("-U", 12, None)], None),
    "new, its key has changed to this": ([("+U", 11, 2)], 2),
    "new, equals, the delete last": ([("c", 11, 2), ("d", 11, None)], None),
    "new, equals, the delete first": ([("d", 11, None), ("c", 11, 2)], 2),
}


@pytest.mark.parametrize("ordering", [None, "ts"])
def test_of_several_changes_of_a_key_the_last_one_counts(
    engine: str, table_type: str, ordering: str | None
) -> None:
    """Five versions with a delete among them; delete then insert of one key, and the reverse."""
    table = a_table(engine, table_type, ordering)
    first = [{"op": "c", "id": case, "dt": "p0", "ts": 10, "n": 1} for case in [*CASES, "untouched"]]
    first = [row for row in first if not str(row["id"]).startswith("new")]
    table.upsert(batch(first), op="op")
    events = [
        {"op": word, "id": case, "dt": "p0", "ts": ts, "n": n}
        for place in range(5)
        for case, (told, _) in CASES.items()
        for word, ts, n in told[place : place + 1]
    ]
    table.upsert(batch(events), op="op")
    expected = {case: n for case, (_, n) in CASES.items() if n is not None} | {"untouched": 1}
    assert values(table) == expected
    table.upsert(batch([{"op": "d", "id": case, "dt": "p0", "ts": 20} for case in expected]), op="op")
    assert values(table) == {}
    check(table)


LATE: dict[str, tuple[Told, int | None]] = {
    "a late delete": ([("d", 9, None)], 1),
    "a late row before an update": ([("-U", 9, None)], 1),
    "a late update": ([("-U", 8, None), ("+U", 9, 2)], 1),
    "a delete as new as the row": ([("d", 10, None)], None),
    "in another order": ([("u", 14, 5), ("d", 12, None), ("u", 11, 3), ("c", 13, 4)], 5),
    "in another order, deleted": ([("d", 14, None), ("u", 11, 3), ("u", 13, 4)], None),
    "the halves of an update in another order": ([("+U", 11, 2), ("-U", 11, None)], 2),
    "a late delete, and a newer row": ([("u", 12, 2), ("d", 9, None)], 2),
}


def test_ordering_columns_decide_between_changes_of_a_key_and_what_is_stored(
    engine: str, table_type: str
) -> None:
    """Several versions, in whatever order they come; late deletes delete nothing."""
    table = a_table(engine, table_type, "ts")
    table.upsert(
        batch([{"op": "r", "id": case, "dt": "p0", "ts": 10, "n": 1} for case in [*LATE, "z"]]), op="op"
    )
    table.upsert(
        batch(
            [
                {"op": word, "id": case, "dt": "p0", "ts": ts, "n": n}
                for case, (told, _) in LATE.items()
                for word, ts, n in told
            ]
        ),
        op="op",
    )
    assert values(table) == {case: n for case, (_, n) in LATE.items() if n is not None} | {"z": 1}
    check(table)


@pytest.mark.parametrize("ordering", [None, "ts"])
@pytest.mark.parametrize("seed", seeds(default_count=1))
def test_a_table_that_gets_a_feed_is_what_the_source_is(
    engine: str, table_type: str, ordering: str | None, seed: int
) -> None:
    """With keys that change, rows that move, late events, and batches in any order if they have one."""
    chance = Random(f"{seed} {engine} {table_type} {ordering}")
    source = Source(chance, chance.choice(list(WORDS)))
    table = a_table(engine, table_type, ordering)
    told: list[list[Row]] = []
    for size in (12, 1, 8, 20, 3):
        events = source.changes(size)
        if ordering is not None:
            events += source.late(3)
            chance.shuffle(events)
        told.append(events)
        table.upsert(batch(events), op="op")
        try:
            assert_same_rows(table.to_arrow(), source.table(), key=["id"], without=META_COLUMNS)
        except AssertionError as error:
            error.add_note(f"seed {seed}: {told}")
            raise
    check(table)
    if table_type == "MERGE_ON_READ":
        table.compact()
        assert_same_rows(table.to_arrow(), source.table(), key=["id"], without=META_COLUMNS)


@pytest.mark.shows("R11")
@pytest.mark.parametrize("index", ["record index", "simple"])
@pytest.mark.parametrize("ordering", [None, "ts"])
def test_a_secondary_index_learns_what_a_feed_changes(
    index: str, table_type: str, ordering: str | None
) -> None:
    """Where an index is told which values went and came."""
    chance = Random(f"{index} {table_type} {ordering}")
    source = Source(chance, "flink")
    table = a_table(index, table_type, ordering)
    table.upsert(batch(source.changes(12)), op="op")
    table.create_index("by_city", on="city", record_index=index == "simple")
    table = Table.open(table.store.uri)
    for size in (6, 14, 2, 20):
        events = source.changes(size)
        table.upsert(batch(events), op="op")
        assert check_secondary(table) == len(source.rows)
        for city in ("Rome", "Oslo"):
            expected = {key for key, row in source.rows.items() if row["city"] == city}
            assert set(table.get_by("city", city)["id"].to_pylist()) == expected


def check(table: Table) -> None:
    check_invariants(table)
    if "record_index" in table.properties.metadata_partitions:
        check_record_index(table.store)


def test_a_batch_may_be_a_list_of_rows(engine: str) -> None:
    """Each with the columns that it has: a delete names its key, and what places and orders it."""
    table = a_table(engine, "MERGE_ON_READ", "ts")
    table.upsert([{"op": "c", "id": key, "dt": "p0", "ts": 1, "n": 1, "city": None} for key in "ab"], op="op")
    table.upsert([{"op": "d", "id": "a", "dt": "p0", "ts": 2}], op="op")
    assert values(table) == {"b": 1}
    table.upsert(
        [
            {"op": "u", "id": "b", "dt": "p0", "ts": 2, "n": 2, "city": "Rome"},
            {"op": "d", "id": "c", "dt": "p1", "ts": 2},
        ],
        op="op",
    )
    assert values(table) == {"b": 2}
    assert table.upsert(pa.Table.from_pylist([], INCOMING), op="op").instant is None


def test_where_a_key_is_one_of_the_table_a_delete_need_not_say_where_it_is(table_type: str) -> None:
    """And a row that is gone in one partition and there in another has moved."""
    table = a_table("record index", table_type, "ts")
    table.upsert(
        batch([{"op": "c", "id": key, "dt": "p0", "ts": 1, "n": 1} for key in "abcd"]),
        op="op",
    )
    summary = table.upsert(
        batch(
            [
                {"op": "d", "id": "a", "dt": None, "ts": 2},
                {"op": "-U", "id": "b", "dt": "p0", "ts": 2},
                {"op": "+U", "id": "b", "dt": "p1", "ts": 2, "n": 2},
                {"op": "u", "id": "c", "dt": "p1", "ts": 0, "n": 3},
            ]
        ),
        op="op",
    )
    assert (summary.moved, summary.deleted) == (1, 1)
    rows = table.to_arrow(columns=["id", "dt", "n"]).sort_by("id").to_pylist()
    assert [tuple(row.values()) for row in rows] == [("b", "p1", 2), ("c", "p0", 1), ("d", "p0", 1)]
    check(table)


def test_a_feed_that_another_writer_was_faster_than_is_written_again(engine: str, table_type: str) -> None:
    """In the second round of a write the rows that are told again say the same of themselves."""
    table = a_table(engine, table_type, "ts")
    table.upsert(
        batch([{"op": "c", "id": key, "dt": "p0", "ts": 1, "n": 1} for key in "abcdef"]),
        op="op",
    )

    def commit_another() -> None:
        theirs = [("u", "a", 2, 7), ("d", "b", 9, None), ("c", "x", 2, 7), ("u", "f", 9, 7)]
        told = [{"op": op, "id": key, "dt": "p0", "ts": ts, "n": n} for op, key, ts, n in theirs]
        table.upsert(batch(told), op="op")

    ours = [("d", "a", 3, None), ("d", "c", 3, None), ("c", "c", 4, 5), ("c", "x", 3, 5), ("d", "x", 4, None)]
    ours += [("-U", "d", 3, None), ("+U", "e", 3, 5), ("d", "f", 3, None), ("c", "y", 3, 5)]
    told = [{"op": op, "id": key, "dt": "p0", "ts": ts, "n": n} for op, key, ts, n in ours]
    rows = Hooked(batch(told), commit_another)
    run_write(rows, table.store, Operation.UPSERT, WriteOptions(feed=ChangeFeed.of("op")))
    assert values(Table.open(table.store.uri)) == {"c": 5, "e": 5, "f": 7, "y": 5}
    check(table)
