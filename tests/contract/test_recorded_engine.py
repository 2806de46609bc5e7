"""Engines that look keys up fit beside those that work places out: if this fails, the next indexes have no home.

The engine is `stand_ins/ledger_engine.py`: what is known of keys is a JSON file per shard and commit.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bucketlake import ConflictError, CorruptTableError, Table
from bucketlake.config import TableType, load_properties
from bucketlake.services import check_table
from bucketlake.services.fsck import Kind
from bucketlake.state import load_state
from bucketlake.storage import MemoryStore, Store
from bucketlake.testing.faulty_store import FaultyStore, InjectedError
from bucketlake.write import ArrowRows, Operation, TableSpec, create, run_write
from stand_ins.aging import Bucket, age, copy_of
from stand_ins.ledger_engine import FOLDER, Ledger, index_of, register

SCHEMA = pa.schema([("id", pa.string()), ("dt", pa.string()), ("ts", pa.int64()), ("v", pa.string())])
TYPES = ["COPY_ON_WRITE", "MERGE_ON_READ"]
Row = tuple[str, str, int, str]


def rows(*values: Row) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(SCHEMA.names, value, strict=True)) for value in values], SCHEMA)


def a_table(
    table_type: str, index: Ledger | None = None, store: Store | None = None, schema: pa.Schema = SCHEMA
) -> Table:
    register()
    store = store or MemoryStore()
    spec = TableSpec(
        name="t",
        schema=schema,
        key=("id",),
        partition=("dt",),
        ordering=("ts",),
        table_type=TableType(table_type),
        index=index or Ledger(),
    )
    return Table(store, create(store, spec))


def contents(table: Table) -> set[Row]:
    found = Table(table.store, load_properties(table.store)).to_arrow(columns=SCHEMA.names).to_pylist()
    values = [tuple(row[name] for name in SCHEMA.names) for row in found]
    assert len({(v[0], v[1]) for v in values}) == len(values), "a key is there twice"
    return set(values)


def entries(table: Table) -> Mapping[str, tuple[str, str]]:
    """What the index says of keys that are there."""
    index = index_of(load_state(table.store), None)
    known: dict[str, Any] = {}
    for shard in range(index.shards):
        known |= index.read(shard)
    return {key: (place[0], place[1]) for key, place in known.items() if place is not None}


def check(table: Table, expected: set[Row]) -> None:
    """Rows are as expected, and the index says of every key where it lies, and of no other."""
    assert contents(table) == expected
    found = table.to_arrow(meta_columns=True).to_pylist()
    is_global = index_of(load_state(table.store), None).is_global
    places = {
        (row["id"] if is_global else f"{row['dt']}/{row['id']}"): (
            row["dt"],
            row["_hoodie_file_name"].partition("_")[0],
        )
        for row in found
    }
    assert entries(table) == places
    report = check_table(table.store)
    assert report.damage == (), str(report)


@pytest.mark.shows("C1", "R1")
@pytest.mark.parametrize("table_type", TYPES)
def test_rows_are_loaded_updated_deleted_and_compacted(table_type: str) -> None:
    table = a_table(table_type)
    table.upsert(rows(*((f"k{n}", f"p{n % 2}", 1, "a") for n in range(20))))
    table.upsert(
        rows(("k1", "p1", 2, "b"), ("k2", "p0", 2, "b"), ("new", "p0", 2, "b"), ("new", "p0", 3, "c"))
    )
    table.delete(pa.table({"id": ["k3", "unknown"], "dt": ["p1", "p1"]}))
    expected = {(f"k{n}", f"p{n % 2}", 1, "a") for n in range(20) if n not in (1, 2, 3)}
    expected |= {("k1", "p1", 2, "b"), ("k2", "p0", 2, "b"), ("new", "p0", 3, "c")}
    check(table, expected)
    if table_type == "MERGE_ON_READ":
        table.compact(delta_commits=1)
        check(table, expected)
    table.upsert(rows(("k3", "p1", 9, "again")))
    check(table, expected | {("k3", "p1", 9, "again")})


@pytest.mark.shows("R1")
@pytest.mark.parametrize("table_type", TYPES)
def test_a_key_that_moves_to_another_partition_is_in_one_of_them(table_type: str) -> None:
    table = a_table(table_type)
    table.upsert(rows(("a", "p0", 1, "x"), ("b", "p0", 1, "x")))
    table.upsert(rows(("a", "p1", 2, "y"), ("c", "p1", 2, "y")))
    check(table, {("a", "p1", 2, "y"), ("b", "p0", 1, "x"), ("c", "p1", 2, "y")})
    table.upsert(rows(("a", "p0", 3, "z")))
    check(table, {("a", "p0", 3, "z"), ("b", "p0", 1, "x"), ("c", "p1", 2, "y")})


@pytest.mark.shows("R2")
@pytest.mark.parametrize("table_type", TYPES)
def test_an_index_for_each_partition_lets_a_key_be_in_several(table_type: str) -> None:
    table = a_table(table_type, Ledger(is_global=False))
    table.upsert(rows(("a", "p0", 1, "x"), ("a", "p1", 1, "x")))
    table.upsert(rows(("a", "p1", 2, "y")))
    check(table, {("a", "p0", 1, "x"), ("a", "p1", 2, "y")})
    table.delete(pa.table({"id": ["a"], "dt": ["p1"]}))
    check(table, {("a", "p0", 1, "x")})


@pytest.mark.shows("R1")
@pytest.mark.parametrize("table_type", TYPES)
def test_a_delete_that_is_older_than_its_row_leaves_the_key_in_the_index(table_type: str) -> None:
    schema = SCHEMA.append(pa.field("_hoodie_is_deleted", pa.bool_()))
    table = a_table(table_type, schema=schema)

    def of(key: str, ts: int, *, is_deleted: bool) -> list[dict[str, Any]]:
        return [{"id": key, "dt": "p0", "ts": ts, "v": "x", "_hoodie_is_deleted": is_deleted}]

    table.upsert(of("a", 5, is_deleted=False) + of("b", 5, is_deleted=False))
    table.upsert(of("a", 3, is_deleted=True) + of("b", 7, is_deleted=True))
    check(table, {("a", "p0", 5, "x")})
    table.upsert(of("a", 6, is_deleted=False))
    check(table, {("a", "p0", 6, "x")})


@pytest.mark.shows("H2")
@pytest.mark.parametrize("table_type", TYPES)
def test_a_write_that_is_taken_back_takes_its_entries_along(table_type: str) -> None:
    table = a_table(table_type)
    table.upsert(rows(("a", "p0", 1, "x")))
    done = table.upsert(rows(("a", "p1", 2, "y"), ("b", "p1", 2, "y")))
    assert done.instant is not None
    table.rollback(done.instant)
    check(table, {("a", "p0", 1, "x")})
    assert not table.store.list(f"{FOLDER}/{done.instant}", recursive=True).files
    table.upsert(rows(("b", "p0", 3, "z")))
    check(table, {("a", "p0", 1, "x"), ("b", "p0", 3, "z")})


@pytest.mark.shows("R1", "X2")
def test_of_two_writers_with_the_same_new_key_one_is_run_again() -> None:
    table = a_table("COPY_ON_WRITE")
    table.upsert(rows(("a", "p0", 1, "x")))

    class Overtaken(ArrowRows):
        is_first = True

        def run(self, plan: Any) -> Any:
            done = super().run(plan)
            if Overtaken.is_first:
                Overtaken.is_first = False
                table.upsert(rows(("new", "p1", 5, "theirs")))
            return done

    run_write(Overtaken(rows(("new", "p0", 6, "ours"))), table.store, Operation.UPSERT)
    check(table, {("a", "p0", 1, "x"), ("new", "p0", 6, "ours")})


def test_an_entry_that_points_nowhere_is_an_error_that_names_the_key() -> None:
    table = a_table("COPY_ON_WRITE", Ledger(shards=1))
    done = table.upsert(rows(("a", "p0", 1, "x")))
    path = f"{FOLDER}/{done.instant}/0.json"
    table.store.put(path, table.store.read(path).replace(b"00000000-", b"99999999-"))
    with pytest.raises(CorruptTableError, match="the index places the key 'a' there"):
        table.upsert(rows(("a", "p0", 2, "y")))
    assert contents(table) == {("a", "p0", 1, "x")}
    assert any("'a'" in finding.text for finding in check_table(table.store).damage)


@pytest.mark.shows("R1")
@pytest.mark.parametrize("is_global", [True, False])
@pytest.mark.parametrize("table_type", TYPES)
def test_an_entry_without_a_row_is_found_by_fsck(table_type: str, is_global: bool) -> None:
    table = a_table(table_type, Ledger(shards=2, is_global=is_global))
    table.upsert(rows(*((f"k{n}", f"p{n % 2}", 1, "x") for n in range(9))))
    done = table.delete(pa.table({"id": ["k3", "k5"], "dt": ["p1", "p1"]}))
    assert check_table(table.store).damage == ()
    place = next(file_id for partition, file_id in entries(table).values() if partition == "p1")
    # The index forgets that two keys are gone.
    for file in table.store.list(f"{FOLDER}/{done.instant}", recursive=True).files:
        table.store.delete(file.path)
    (found,) = check_table(table.store).damage
    assert (found.kind, found.place) == (Kind.STALE_ENTRY, f"p1/{place}")
    assert found.text == "2 keys, such as 'k3'"
    assert check_table(table.store, tasks=pickled).damage == (found,)


def pickled(work: Any, items: Any, /) -> list[Any]:
    """Do what tasks elsewhere do."""
    return [pickle.loads(pickle.dumps(work(item))) for item in pickle.loads(pickle.dumps(items))]


def test_an_entry_of_a_file_group_that_is_gone_is_found_by_fsck() -> None:
    table = a_table("COPY_ON_WRITE", Ledger(shards=1))
    done = table.upsert(rows(("a", "p0", 1, "x")))
    path = f"{FOLDER}/{done.instant}/0.json"
    known = json.loads(table.store.read(path))
    table.store.put(path, json.dumps(known | {"b": ["p7", "nowhere"]}).encode())
    (found,) = check_table(table.store).damage
    assert str(found) == "an entry of the index without a row: p7/nowhere: 1 keys, such as 'b'"
    table.store.put(path, b"{")
    assert {f.kind for f in check_table(table.store).damage} == {Kind.UNREADABLE}


KEYS = st.sampled_from([f"k{n}" for n in range(12)])
WRITES = st.lists(
    st.tuples(
        st.sampled_from(
            [
                "upsert",
                "upsert",
                "delete",
                "compact",
                "rollback",
                "overwrite",
                "overwrite all",
                "drop",
                "cluster",
            ]
        ),
        st.lists(st.tuples(KEYS, st.sampled_from(["p0", "p1", "p2"])), min_size=1, max_size=6),
    ),
    min_size=1,
    max_size=6,
)


@pytest.mark.shows("R1", "H2")
@pytest.mark.parametrize("table_type", TYPES)
@settings(max_examples=15, deadline=None)
@given(writes=WRITES)
def test_a_table_with_a_recorded_index_is_a_dict(
    table_type: str, writes: list[tuple[str, list[tuple[str, str]]]]
) -> None:
    table = a_table(table_type, Ledger(shards=2, room=3))
    model: dict[str, Row] = {}
    before: list[tuple[str, dict[str, Row]]] = []
    for number, (kind, keys) in enumerate(writes):
        if kind == "upsert":
            batch = [
                (key, partition, number * 10 + n, f"{number}") for n, (key, partition) in enumerate(keys)
            ]
            done = table.upsert(rows(*batch))
            before.append((done.instant or "", dict(model)))
            model |= {row[0]: row for row in batch}
        elif kind == "delete":
            done = table.delete(pa.table({"id": [k for k, _ in keys], "dt": [p for _, p in keys]}))
            if done.instant:
                before.append((done.instant, dict(model)))
            for key, _ in keys:
                model.pop(key, None)
        elif kind.startswith("overwrite"):
            batch = [
                (key, partition, number * 10 + n, f"{number}") for n, (key, partition) in enumerate(keys)
            ]
            done = table.overwrite(rows(*batch), whole_table="all" in kind)
            before.append((done.instant or "", dict(model)))
            gone = {row[1] for row in model.values()} if "all" in kind else {p for _, p in keys}
            model = {key: row for key, row in model.items() if row[1] not in gone}
            model |= {row[0]: row for row in batch}
        elif kind == "drop":
            partition = keys[0][1]
            if any(row[1] == partition for row in model.values()):
                done = table.delete_partitions([partition])
                before.append((done.instant or "", dict(model)))
                model = {key: row for key, row in model.items() if row[1] != partition}
        elif kind == "cluster":
            before += [(run.instant, dict(model)) for run in table.cluster(by=["v"]).runs]
        elif kind == "compact" and table_type == "MERGE_ON_READ":
            if table.compact(delta_commits=1).runs:
                before.clear()
        elif kind == "rollback" and before:
            instant, model = before.pop()
            table.rollback(instant)
        check(table, set(model.values()))


@pytest.mark.shows("R1", "X9")
@pytest.mark.thorough
@pytest.mark.parametrize("table_type", TYPES)
def test_a_write_that_is_cut_off_anywhere_is_whole_or_nothing(table_type: str) -> None:
    origin = a_table(table_type, Ledger(shards=2), Bucket())
    origin.upsert(rows(("a", "p0", 1, "x"), ("b", "p1", 1, "x")))
    change = rows(("a", "p1", 2, "y"), ("c", "p0", 2, "y"))
    trial = FaultyStore(copy_of(origin.store))
    Table(trial, load_properties(trial)).upsert(change)
    old = {("a", "p0", 1, "x"), ("b", "p1", 1, "x")}
    new = {("a", "p1", 2, "y"), ("b", "p1", 1, "x"), ("c", "p0", 2, "y")}
    for number in range(1, len(trial.operations) + 1):
        store = copy_of(origin.store)
        faulty = FaultyStore(store, fails_at=number, is_dead=True)
        with suppress(InjectedError, ConflictError):
            Table(faulty, load_properties(faulty)).upsert(change)
        age(store)
        table = Table(store, load_properties(store))
        table.upsert(rows(("z", "p0", 1, "after")))
        assert contents(table) - {("z", "p0", 1, "after")} in (old, new), number
        check(table, contents(table))
