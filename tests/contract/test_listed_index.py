"""Whatever engine places the rows, an index that a table lists learns of every key that comes or goes."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bucketlake import ConfigError, ConsistentBuckets, PartitionBuckets, SimpleBuckets, Table, create_table
from bucketlake.config import update_properties
from bucketlake.errors import ProofError, UnsupportedError
from bucketlake.index import IndexValue
from bucketlake.index.listed import LISTED_INDEXES, register_listed_index
from bucketlake.services import plan_compaction, run_compaction, schedule_compaction
from bucketlake.services.held import load_held
from bucketlake.state import files_of, load_state
from bucketlake.testing.faulty_store import FaultyStore
from bucketlake.write import ArrowRows, Operation, WriteOptions, begin_append, run_write
from stand_ins.key_list import FOLDER, KeyList, listing, told
from stand_ins.ledger_engine import Ledger, register

pytestmark = pytest.mark.shows("R1")

SCHEMA = pa.schema(
    [("id", pa.string()), ("dt", pa.string()), ("ts", pa.int64()), ("_hoodie_is_deleted", pa.bool_())]
)
TYPES = ["COPY_ON_WRITE", "MERGE_ON_READ"]
Row = tuple[str, str, int, bool]
_numbers = itertools.count()


def rows(*values: Row) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(SCHEMA.names, value, strict=True)) for value in values], SCHEMA)


def a_table(
    table_type: str, index: IndexValue | None = None, *, ordering: str | None = "ts", **more: Any
) -> Table:
    made = create_table(
        f"memory://listed-{next(_numbers)}",
        SCHEMA,
        key="id",
        partition="dt",
        ordering=ordering,
        index=index or SimpleBuckets(2),
        table_type=table_type,
        maintenance="off",
        **more,
    )
    return listing(made)


def places(table: Table) -> dict[tuple[str, str], str]:
    """Read where every key is: (key, partition) -> file id."""
    found = table.to_arrow(meta_columns=True).to_pylist()
    by_key = {(row["id"], row["dt"]): row["_hoodie_file_name"].partition("_")[0] for row in found}
    assert len(by_key) == len(found), "a key is there twice"
    return by_key


KEYS = st.tuples(st.sampled_from([f"k{n}" for n in range(8)]), st.sampled_from(["p0", "p1"]))
ROWS = st.lists(
    st.tuples(KEYS, st.integers(1, 5), st.booleans()).map(lambda row: (*row[0], *row[1:])),
    min_size=1,
    max_size=8,
)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["upsert", "upsert avro", "delete", "bulk_insert"]), ROWS),
        st.tuples(st.sampled_from(["overwrite", "overwrite all"]), ROWS),
        st.tuples(st.sampled_from(["compact", "rollback", "drop"]), st.just([])),
    ),
    min_size=1,
    max_size=7,
)


@pytest.mark.parametrize("table_type", TYPES)
@pytest.mark.parametrize(
    ("index", "ordering"),
    [
        (SimpleBuckets(2), "ts"),
        (SimpleBuckets(2), None),
        (PartitionBuckets("p0,3", 1), "ts"),
        (ConsistentBuckets(2), "ts"),
    ],
    ids=["simple", "simple, the later wins", "partition", "consistent"],
)
@settings(max_examples=10, deadline=None)
@given(steps=STEPS)
def test_what_is_told_is_what_a_reader_finds_changed(
    table_type: str, index: IndexValue, ordering: str | None, steps: list[tuple[str, list[Row]]]
) -> None:
    table = a_table(table_type, index, ordering=ordering)
    before = places(table)
    undoable: list[tuple[str, dict[tuple[str, str], str]]] = []
    for kind, batch in steps:
        if kind == "compact":
            if table_type == "MERGE_ON_READ" and table.compact(delta_commits=1).runs:
                undoable.clear()
            assert places(table) == before
            continue
        if kind == "rollback":
            if undoable:
                instant, before = undoable.pop()
                table.rollback(instant)
                assert told(table.store, instant) == []
            assert places(table) == before
            continue
        if kind == "drop":
            if not any(partition == "p0" for _, partition in before):
                continue
            done = table.delete_partitions(["p0"])
        elif kind == "delete":
            done = table.delete(rows(*batch).select(["id", "dt"]))
        elif kind.startswith("overwrite"):
            done = table.overwrite(rows(*batch), whole_table="all" in kind)
        elif kind == "bulk_insert":
            done = table.bulk_insert(rows(*batch))
        else:
            done = table.upsert(rows(*batch), log_format="avro" if "avro" in kind else "parquet")
        after = places(table)
        # What is replaced has gone, and come again.
        came = [
            (key, dt, file_id) for (key, dt), file_id in after.items() if before.get((key, dt)) != file_id
        ]
        went = [(key, dt, None) for (key, dt), file_id in before.items() if after.get((key, dt)) != file_id]
        found = told(table.store, done.instant) if done.instant else []
        assert sorted(found, key=str) == sorted([*came, *went], key=str)
        if done.instant:
            undoable.append((done.instant, before))
        before = after


@pytest.mark.parametrize("table_type", TYPES)
def test_an_old_delete_and_a_row_older_than_a_delete_change_nothing(table_type: str) -> None:
    table = a_table(table_type)
    table.upsert(rows(("a", "p0", 5, False), ("b", "p0", 5, False)))
    done = table.upsert(rows(("a", "p0", 3, True)))
    assert not (done.instant and told(table.store, done.instant))
    table.upsert(rows(("b", "p0", 8, True)))
    done = table.upsert(rows(("b", "p0", 7, False)))
    is_back = ("b", "p0") in places(table)
    assert is_back is bool(done.instant and told(table.store, done.instant))


def test_a_table_that_lists_nothing_reads_nothing_and_leaves_nothing() -> None:
    table = a_table("MERGE_ON_READ")
    table.upsert(rows(("a", "p0", 1, False)))
    properties = update_properties(table.store, {LISTED_INDEXES: None})
    counted = FaultyStore(table.store)
    done = Table(counted, properties).upsert(rows(("a", "p0", 2, False), ("b", "p0", 2, False)))
    assert done.instant is not None
    assert told(table.store, done.instant) == []
    assert not [text for text in counted.operations if text.startswith("read p0/0")], (
        "plain buckets pay nothing"
    )


@pytest.mark.parametrize("table_type", TYPES)
def test_an_index_that_records_keys_and_one_that_is_listed_are_told_the_same(table_type: str) -> None:
    register()
    table = a_table(table_type, Ledger(shards=2))
    table.upsert(rows(("a", "p0", 1, False), ("b", "p0", 1, False)))
    done = table.upsert(rows(("c", "p1", 2, False), ("b", "p0", 2, True)))
    assert done.instant is not None
    assert sorted(told(table.store, done.instant), key=str) == [
        ("b", "p0", None),
        ("c", "p1", places(table)["c", "p1"]),
    ]
    assert table.fsck().is_sound


def test_changes_that_are_lost_on_their_way_fail_the_write() -> None:
    table = a_table("COPY_ON_WRITE")

    class Losing(ArrowRows):
        def run(self, plan: Any) -> Any:
            return super().run(replace(plan, told_of_keys=(Forgetful(),)))

    class Forgetful(KeyList):
        def shard_of(self, partitions: Any, record_keys: Any) -> Any:
            shards = super().shard_of(partitions, record_keys)
            return shards - (4 << 48)  # codes below zero go nowhere

    with pytest.raises(ProofError, match="changes of keys"):
        run_write(Losing(rows(("a", "p0", 1, False))), table.store, Operation.UPSERT)
    assert places(table) == {}


def test_what_cannot_be_told_is_refused_before_anything_is_written() -> None:
    table = a_table("MERGE_ON_READ")
    table.upsert(rows(("a", "p0", 1, False)))
    before = table.timeline()
    with pytest.raises(UnsupportedError, match="lists the index KEY_LIST"):
        begin_append(table.store, SCHEMA, WriteOptions())
    blocked = a_table("MERGE_ON_READ", non_blocking=True)
    with pytest.raises(ConfigError, match="is non-blocking: of two writers that bring a key, none knows"):
        blocked.upsert(rows(("a", "p0", 1, False)))
    assert table.timeline() == before


def test_a_process_that_does_not_know_a_listed_index_can_read_and_not_write() -> None:
    table = a_table("MERGE_ON_READ")
    table.upsert(rows(("a", "p0", 1, False)))
    table = Table(table.store, update_properties(table.store, {LISTED_INDEXES: "KEY_LIST, STRANGE"}))
    assert table.get("a").num_rows == 1
    with pytest.raises(UnsupportedError, match=r"listed.indexes of table .*STRANGE.*Register it"):
        table.upsert(rows(("a", "p0", 2, False)))
    with pytest.raises(ConfigError, match="expected a word without commas"):
        register_listed_index("a,b", lambda _: KeyList())
    assert FOLDER in next(f.path for f in table.store.list(FOLDER, recursive=True).files)


def test_a_row_older_than_a_delete_does_not_come_back_with_a_compaction_that_was_pending() -> None:
    """A compaction drops the delete, and what a log has beside it counts again: so it must not be there."""
    table = a_table("MERGE_ON_READ", SimpleBuckets(1))
    table.upsert(rows(("a", "p0", 1, False), ("b", "p0", 1, False)))
    table.upsert(rows(("a", "p0", 5, True)))
    state = load_state(table.store)
    plan = plan_compaction(state, files_of(state), load_held(state), now="")
    instant = schedule_compaction(table.store, plan)
    assert instant is not None
    alone = table.upsert(rows(("a", "p0", 3, False)))
    assert (alone.instant, alone.outdated) == (None, 1)
    beside = table.upsert(rows(("a", "p0", 3, False), ("b", "p0", 3, False)))
    assert (beside.rows, beside.outdated, beside.logged) == (2, 1, 1)
    before = places(table)
    run_compaction(table.store, instant)
    assert places(table).keys() == before.keys() == {("b", "p0")}
