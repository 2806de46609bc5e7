"""What an index has wrong of keys, and keys with several rows: found, shown, mended by one commit, and taken back."""

from __future__ import annotations

import itertools
import pickle
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from typer.testing import CliRunner

from bucketlake import PartitionBuckets, RecordIndex, SimpleBuckets, Table, create_table
from bucketlake.cli import app
from bucketlake.commit.metadata_table import LISTED
from bucketlake.config import load_properties, update_properties
from bucketlake.errors import (
    CommitConflictError,
    ConcurrentWriteError,
    ConfigError,
    ConflictError,
    CorruptTableError,
    UnsupportedError,
)
from bucketlake.index import record_level
from bucketlake.index.room import fill_groups
from bucketlake.layout.names import LogFileName, render_log_file_name
from bucketlake.metadata.delta import encode_nothing
from bucketlake.metadata.places import RECORD_INDEX, folder_of
from bucketlake.metadata.record_index import Locations
from bucketlake.metadata.record_shard import ShardEntries
from bucketlake.metadata.record_shards import shard_file_id
from bucketlake.services import check_table, compact_metadata, repair, rescale
from bucketlake.services.clustering import plan_clustering, schedule_clustering
from bucketlake.services.held import load_held
from bucketlake.services.key_faults import Fault, KeyFault
from bucketlake.sql.frames import table_of
from bucketlake.state import files_of, load_state
from bucketlake.storage import Store
from bucketlake.testing.faulty_store import FaultyStore, InjectedError
from bucketlake.timeline import Action, write_requested
from bucketlake.write import job
from stand_ins.aging import age, copy_of
from stand_ins.record_index_check import check_record_index

pytestmark = pytest.mark.shows("X7")

SCHEMA = pa.schema([("id", pa.string()), ("dt", pa.string()), ("ts", pa.int64()), ("v", pa.string())])
TYPES = ["COPY_ON_WRITE", "MERGE_ON_READ"]
KINDS = [RecordIndex(shards=3), RecordIndex(per_partition=True, shards=2)]
Row = tuple[str, str, int, str]
_names = itertools.count()


def rows(*values: Row) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(SCHEMA.names, value, strict=True)) for value in values], SCHEMA)


def a_table(table_type: str, index: Any, **more: Any) -> Table:
    return create_table(
        f"memory://repair-{next(_names)}",
        SCHEMA,
        key="id",
        index=index,
        table_type=table_type,
        maintenance="off",
        **({"ordering": "ts", "partition": "dt"} | more),
    )


def contents(table: Table) -> list[Row]:
    found = Table(table.store, load_properties(table.store)).to_arrow(columns=SCHEMA.names).to_pylist()
    return sorted((row["id"], row["dt"], row["ts"], row["v"]) for row in found)


def files_in(store: Store) -> dict[str, bytes]:
    return {file.path: store.read(file.path) for file in store.list("", recursive=True).files}


def check(table: Table, expected: list[Row]) -> None:
    assert contents(table) == sorted(expected)
    assert check_record_index(table.store) == len(expected)
    report = check_table(table.store)
    assert report.damage == (), str(report)
    assert table.plan_repair().is_empty


@pytest.fixture(params=KINDS, ids=["global", "per partition"])
def index(request: pytest.FixtureRequest) -> RecordIndex:
    found: RecordIndex = request.param
    return found


@pytest.fixture(params=TYPES)
def table_type(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@contextmanager
def recorded_as(change: Callable[[str], Any]) -> Iterator[None]:
    """Let index logs say something else of keys: `change` returns a location, "lost", or None to leave it."""
    whole = record_level.encode_entry_log

    def lying(instant: str, came: Any, gone: Any) -> bytes:
        if came is not None:
            places = [came.locations.distinct[code] for code in came.locations.codes]
            pairs = [
                (key, change(key) or place) for key, place in zip(came.keys.to_pylist(), places, strict=True)
            ]
            pairs = [pair for pair in pairs if pair[1] != "lost"]
            kept = tuple(dict.fromkeys(place for _, place in pairs))
            codes = np.array([kept.index(place) for _, place in pairs], np.int32)
            keys = pa.array([key for key, _ in pairs], pa.string())
            came = ShardEntries(keys, Locations(codes, kept))
        if gone is not None:
            gone = gone.filter(pa.array([change(key) != "lost" for key in gone.to_pylist()], pa.bool_()))
        return whole(instant, came, gone)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(record_level, "encode_entry_log", lying)
        patch.setattr(record_level, "prove_log", lambda held, keys: None)
        yield


@contextmanager
def into_new_groups() -> Iterator[None]:
    """Let new keys open file groups of their own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(record_level, "fill_groups", lambda new, groups, **more: fill_groups(new, {}, **more))
        yield


def lose(*keys: str) -> Any:
    return recorded_as(lambda key: "lost" if key in keys else None)


FIRST: list[Row] = [(f"k{n}", f"p{n % 3}", 5, "a") for n in range(12)]


def filled(table_type: str, index: Any, **more: Any) -> Table:
    table = a_table(table_type, index, **more)
    table.upsert(rows(*FIRST))
    return table


def by_kind(table: Table) -> dict[Fault, set[str]]:
    found: dict[Fault, set[str]] = {}
    for fault in table.plan_repair().work.mends:
        found.setdefault(fault.kind, set()).add(fault.key)
    return found


def faulty(table_type: str, index: RecordIndex) -> tuple[Table, list[Row], dict[Fault, set[str]]]:
    """A table with each kind of fault."""
    table = filled(table_type, index)
    with lose("m0", "m1"):
        table.upsert(rows(("m0", "p0", 1, "m"), ("m1", "p1", 1, "m"), ("ok", "p0", 1, "m")))
    with into_new_groups(), recorded_as(lambda key: elsewhere(table, key) if key == "w0" else None):
        table.upsert(rows(("w0", "p0", 1, "w"), ("ok2", "p0", 1, "m")))
    with lose("k4"):
        table.delete(pa.table({"id": ["k4", "k5"], "dt": ["p1", "p2"]}))
    # A key that the index has lost is inserted again.
    with lose("d0", "d1"):
        table.upsert(rows(("d0", "p0", 7, "new"), ("d1", "p1", 3, "old")))
    moved = "p0" if index.per_partition else "p2"
    with into_new_groups():
        table.upsert(rows(("d0", moved, 3, "old"), ("d1", "p1", 7, "new")))
    rest = [row for row in FIRST if row[0] not in ("k4", "k5")]
    rest += [("m0", "p0", 1, "m"), ("m1", "p1", 1, "m"), ("ok", "p0", 1, "m"), ("w0", "p0", 1, "w")]
    rest += [("ok2", "p0", 1, "m"), ("d0", "p0", 7, "new"), ("d1", "p1", 7, "new")]
    return (
        table,
        rest,
        {
            Fault.MISSING: {"m0", "m1"},
            Fault.WRONG: {"w0"},
            Fault.SURPLUS: {"k4"},
            Fault.DUPLICATE: {"d0", "d1"},
        },
    )


def elsewhere(table: Table, key: str) -> Any:
    """A location of a file group that is there, and has not the key."""
    other = record_level.resolve_record_index(load_state(table.store))
    assert isinstance(other, record_level.RecordLevelIndex)
    shard = next(s for s in range(other.shards_there) if "p0" in other.entries(s)["partition"].to_pylist())
    entry = next(e for e in other.entries(shard).to_pylist() if e["partition"] == "p0")
    return record_level.Location("p0", entry["file_id"], 0)


def test_every_fault_is_found_mended_and_brought_back_by_a_rollback(
    table_type: str, index: RecordIndex
) -> None:
    table, expected, faults = faulty(table_type, index)
    before = files_in(table.store)
    damaged = contents(table)
    plan = table.plan_repair()
    assert by_kind(table) == faults
    assert files_in(table.store) == before, "a plan changes nothing"
    done = table.run(plan)
    assert done.counts == {kind: len(keys) for kind, keys in faults.items()}
    assert done.instant is not None and done.passed_over == 0
    check(table, expected)
    table.rollback(done.instant)
    assert contents(table) == damaged
    assert table.plan_repair() == plan
    table.repair()
    check(table, expected)
    table.upsert(rows(("d0", "p0", 9, "again"), ("m0", "p0", 9, "again"), ("k4", "p1", 9, "again")))
    changed = {"d0", "m0"}
    again = [("d0", "p0", 9, "again"), ("m0", "p0", 9, "again"), ("k4", "p1", 9, "again")]
    check(table, [row for row in expected if row[0] not in changed] + again)


def test_a_plan_says_what_it_would_do(index: RecordIndex) -> None:
    table, _, _ = faulty("COPY_ON_WRITE", index)
    plan = table.plan_repair()
    text = str(plan)
    for words in (
        "2 keys without an entry: record it",
        "'m0' is in p0/",
        "1 key whose entry names another place",
        "1 key with an entry and no row: remove it",
        "2 keys with more than one row: delete the others",
        "'d0' stays in p0/",
        "the one stays with the greatest ts; of equals of the newest commit; then the one that the index names",
        "one commit, with one index log per shard, and rows of 2 file groups deleted",
    ):
        assert words in text, text
    assert not plan.is_empty
    lines = table_of(plan, of="plan_repair").column("plan").to_pylist()
    assert lines == text.splitlines()
    done = table.run(plan)
    assert "2 keys with more than one row" in str(done)
    (row,) = table_of(done, of="repair").to_pylist()
    counts = {"missing": 2, "wrong": 1, "surplus": 1, "duplicate": 2}
    counts |= {"values_missing": 0, "values_surplus": 0}
    assert row == {"instant": done.instant, **counts, "passed_over": 0, "removed": []}
    assert str(table.plan_repair()).startswith("nothing to repair in the record-level index of ")


def test_a_repair_of_entries_changes_no_data_file(table_type: str, index: RecordIndex) -> None:
    table = filled(table_type, index)
    with lose("m0", "m1"):
        table.upsert(rows(("m0", "p0", 1, "m"), ("m1", "p1", 1, "m")))
    before = {path for path in files_in(table.store) if not path.startswith(".hoodie")}
    done = table.repair()
    assert {path for path in files_in(table.store) if not path.startswith(".hoodie")} == before
    newest = table.timeline()[-1]
    assert newest.requested == done.instant
    check(table, [*FIRST, ("m0", "p0", 1, "m"), ("m1", "p1", 1, "m")])
    # It outlives a compaction of the metadata table, and is taken back by building the index anew then.
    compact_metadata(table.store)
    check(table, [*FIRST, ("m0", "p0", 1, "m"), ("m1", "p1", 1, "m")])
    assert done.instant is not None
    table.rollback(done.instant)
    check(table, [*FIRST, ("m0", "p0", 1, "m"), ("m1", "p1", 1, "m")])


@pytest.mark.parametrize("ordering", ["ts", None])
def test_of_several_rows_the_ordering_chooses_then_the_newest_commit(table_type: str, ordering: str) -> None:
    table = filled(table_type, RecordIndex(shards=2), ordering=ordering)
    with lose("a", "b"):
        table.upsert(rows(("a", "p0", 9, "first"), ("b", "p0", 5, "first")))
    with lose("a"):
        table.upsert(rows(("a", "p1", 5, "second"), ("b", "p1", 5, "second")))
    table.upsert(rows(("a", "p2", 7, "third")))
    (a, b) = table.plan_repair().work.mends
    assert (a.key, len(a.goes), b.key, len(b.goes)) == ("a", 2, "b", 1)
    table.repair()
    winner = ("a", "p0", 9, "first") if ordering else ("a", "p2", 7, "third")
    check(table, [*FIRST, winner, ("b", "p1", 5, "second")])


def test_rows_of_one_commit_stay_where_the_index_names_them(table_type: str) -> None:
    table = filled(table_type, RecordIndex(per_partition=True))
    with lose("a"):
        table.upsert(rows(("a", "p0", 5, "x")))
    with into_new_groups():
        table.upsert(rows(("a", "p0", 5, "y")))
    (fault,) = table.plan_repair().work.mends
    assert fault.stays == fault.entry
    table.repair()
    check(table, [*FIRST, ("a", "p0", 5, "y")])


# ------------------------------------------------------------------------------------------------ others meanwhile


def test_what_others_have_changed_since_the_plan_is_passed_over(table_type: str, index: RecordIndex) -> None:
    table, expected, _ = faulty(table_type, index)
    plan = table.plan_repair()
    # Deleted by who finds it, and inserted by who does not.
    table.upsert(rows(("k4", "p1", 9, "back")))
    table.delete(pa.table({"id": ["w0"], "dt": ["p0"]}))
    done = table.run(plan)
    assert done.passed_over >= 1
    assert "passed over" in str(done)
    assert "k4" not in {fault.key for fault in done.mends}
    table.repair()
    left = [row for row in contents(table) if row[0] == "w0"]
    check(table, [row for row in expected if row[0] != "w0"] + [("k4", "p1", 9, "back"), *left])


def test_a_plan_of_which_nothing_is_left_is_refused(table_type: str, index: RecordIndex) -> None:
    table = filled(table_type, index)
    with lose("m0"):
        table.upsert(rows(("m0", "p0", 1, "m")))
    plan = table.plan_repair()
    table.repair()
    before = len(table.timeline())
    with pytest.raises(CommitConflictError, match="moved on since this was planned"):
        table.run(plan)
    assert len(table.timeline()) == before
    check(table, [*FIRST, ("m0", "p0", 1, "m")])


def test_a_writer_between_look_and_commit_makes_it_look_again(
    table_type: str, index: RecordIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, expected, _ = faulty(table_type, index)
    plan = table.plan_repair()
    whole, looks = repair.faults_of, []

    def meanwhile(*given: Any, **more: Any) -> tuple[KeyFault, ...]:
        found = whole(*given, **more)
        looks.append(len(found))
        if len(looks) == 1:
            table.upsert(rows(("k4", "p1", 9, "back"), ("m0", "p0", 9, "changed")))
        return found

    monkeypatch.setattr(repair, "faults_of", meanwhile)
    monkeypatch.setattr(repair, "sleep", lambda seconds: None)
    done = table.run(plan)
    assert len(looks) == 2
    assert "k4" not in {fault.key for fault in done.mends}
    monkeypatch.undo()
    table.repair()
    others = [row for row in expected if row[0] != "m0"]
    check(table, [*others, ("k4", "p1", 9, "back"), ("m0", "p0", 9, "changed")])


def test_a_writer_that_began_before_a_repair_is_run_again(table_type: str, index: RecordIndex) -> None:
    """It has gone by entries that are no more: rows of k4 and w0 would go where the index said."""
    table, expected, _ = faulty(table_type, index)
    plan = table.plan_repair()
    whole, begun = job.finish, []

    def meanwhile(prepared: Any, **how: Any) -> Any:
        begun.append(prepared.transaction.instant)
        if len(begun) == 1:
            table.run(plan)
        return whole(prepared, **how)

    late = [("w0", "p0", 9, "late"), ("d1", "p1", 9, "late"), ("k4", "p1", 9, "late")]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(job, "finish", meanwhile)
        patch.setattr(job, "sleep", lambda seconds: None)
        done = table.upsert(rows(*late))
    assert len(begun) == 2 and done.instant == begun[1]
    check(table, [row for row in expected if row[0] not in ("w0", "d1")] + late)


@pytest.mark.parametrize("key", ["w0", "k4", "m0"])
def test_a_writer_of_any_one_of_the_keys_is_run_again(table_type: str, key: str) -> None:
    table, expected, _ = faulty(table_type, KINDS[0])
    whole, begun = job.finish, []

    def meanwhile(prepared: Any, **how: Any) -> Any:
        begun.append(prepared.transaction.instant)
        if len(begun) == 1:
            table.repair()
        return whole(prepared, **how)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(job, "finish", meanwhile)
        patch.setattr(job, "sleep", lambda seconds: None)
        table.upsert(rows((key, "p1", 9, "late")))
    assert len(begun) == 2
    check(table, [row for row in expected if row[0] != key] + [(key, "p1", 9, "late")])


def test_nothing_is_repaired_beside_a_write_of_hudi(table_type: str) -> None:
    table, _, _ = faulty(table_type, KINDS[0])
    plan, before = table.plan_repair(), contents(table)
    later = "29990101000000000"
    action = Action.COMMIT if table_type == "COPY_ON_WRITE" else Action.DELTA_COMMIT
    whole = repair.faults_of

    def meanwhile(*given: Any, **more: Any) -> tuple[KeyFault, ...]:
        write_requested(table.store, table.properties, instant=later, action=action)
        return whole(*given, **more)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(repair, "faults_of", meanwhile)
        with pytest.raises(ConcurrentWriteError, match="it is not ours"):
            table.run(plan)
    assert contents(table) == before


def test_nothing_is_repaired_beside_a_pending_clustering(table_type: str, index: RecordIndex) -> None:
    table, _, _ = faulty(table_type, index)
    state = load_state(table.store)
    schedule_clustering(
        table.store, plan_clustering(state, files_of(state), load_held(state), by=("v",), now="")
    )
    with pytest.raises(ConcurrentWriteError, match="is pending, and would record keys"):
        table.repair()


def test_a_repair_that_is_cut_off_anywhere_is_whole_or_nothing(table_type: str) -> None:
    table, expected, _ = faulty(table_type, KINDS[0])
    damaged, origin = contents(table), copy_of(table.store)
    plan = repair.plan_repair(origin)
    trial = FaultyStore(copy_of(origin))
    repair.run_repair(plan, trial)
    first = next(n for n, text in enumerate(trial.operations) if "put_new" in text)
    ends = set()
    for number in range(first, len(trial.operations) + 1, 13):
        store = copy_of(origin)
        with suppress(InjectedError, ConflictError):
            repair.run_repair(plan, FaultyStore(store, fails_at=number, is_dead=True))
        age(store)
        after = Table(store, load_properties(store))
        after.upsert(rows(("other", "p0", 1, "o")))
        found = [row for row in contents(after) if row[0] != "other"]
        assert found in (damaged, sorted(expected))
        ends.add(found == damaged)
        repair.run_repair(repair.plan_repair(store), store)
        check(after, [*expected, ("other", "p0", 1, "o")])
    assert ends == {True, False}


# ---------------------------------------------------------------------------------------------- beside buckets


def listed(table_type: str, index: RecordIndex) -> Table:
    table = a_table(table_type, SimpleBuckets(2), metadata=True)
    table.upsert(rows(*FIRST))
    table.metadata.build(record_index=True, per_partition=index.per_partition, shards=2)
    return table


def test_an_index_beside_buckets_is_repaired(table_type: str, index: RecordIndex) -> None:
    table = listed(table_type, index)
    with lose("m0", "k4"):
        table.upsert(rows(("m0", "p0", 1, "m")))
        table.delete(pa.table({"id": ["k4"], "dt": ["p1"]}))
    assert by_kind(table) == {Fault.MISSING: {"m0"}, Fault.SURPLUS: {"k4"}}
    done = table.repair()
    assert table.plan_repair().is_empty
    assert check_table(table.store).damage == ()
    assert done.instant is not None
    table.rollback(done.instant)
    assert by_kind(table) == {Fault.MISSING: {"m0"}, Fault.SURPLUS: {"k4"}}


def test_a_writer_to_buckets_between_look_and_commit_makes_it_look_again(
    table_type: str, index: RecordIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = listed(table_type, index)
    with lose("m0", "m1", "k4"):
        table.upsert(rows(("m0", "p0", 1, "m"), ("m1", "p1", 1, "m")))
        table.delete(pa.table({"id": ["k4"], "dt": ["p1"]}))
    plan = table.plan_repair()
    whole, looks = repair.faults_of, []

    def meanwhile(*given: Any, **more: Any) -> tuple[KeyFault, ...]:
        found = whole(*given, **more)
        looks.append(len(found))
        if len(looks) == 1:
            table.delete(pa.table({"id": ["m0"], "dt": ["p0"]}))
            table.upsert(rows(("k4", "p1", 9, "back")))
        return found

    monkeypatch.setattr(repair, "faults_of", meanwhile)
    monkeypatch.setattr(repair, "sleep", lambda seconds: None)
    done = table.run(plan)
    assert {fault.key for fault in done.mends} == {"m1"}
    assert table.plan_repair().is_empty
    assert check_table(table.store).damage == ()


def test_of_a_rescale_and_a_repair_one_gives_way(table_type: str, index: RecordIndex) -> None:
    """It would record its keys under an older time, and those of the repair point to what is gone."""
    table = a_table(table_type, PartitionBuckets("p9,4", default=2), metadata=True)
    table.upsert(rows(*FIRST))
    table.metadata.build(record_index=True, per_partition=index.per_partition, shards=2)
    with lose("m0"):
        table.upsert(rows(("m0", "p0", 1, "m")))
    plan = table.plan_repair()
    whole, repaired = rescale.catch_up, []

    def meanwhile(*given: Any, **more: Any) -> Any:
        done = whole(*given, **more)
        with suppress(CommitConflictError):
            repaired.append(table.run(plan).instant)
        return done

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rescale, "catch_up", meanwhile)
        patch.setattr(repair, "sleep", lambda seconds: None)
        if index.per_partition:  # the repair gives way
            table.buckets.overwrite("p0,3")
        else:
            with pytest.raises(CommitConflictError, match="has brought keys to file groups that it replaces"):
                table.buckets.overwrite("p0,3")
    assert len(repaired) == (not index.per_partition)
    assert table.plan_repair().is_empty
    assert check_table(table.store).damage == ()


def test_keys_in_two_partitions_of_buckets_are_left_alone(table_type: str) -> None:
    table = listed(table_type, KINDS[0])
    with lose("k1"), pytest.MonkeyPatch.context() as patch:
        patch.setattr(record_level.RecordLevelIndex, "check_entries", lambda self, shard, entries: None)
        table.upsert(rows(("k1", "p0", 1, "m")))
    plan = table.plan_repair()
    assert plan.is_empty
    assert [fault.key for fault in plan.work.left] == ["k1"]
    assert "1 key with several rows are left alone: buckets place them" in str(plan)
    before = contents(table)
    assert str(table.run(plan)) == f"nothing to repair in {table.store.uri}"
    assert contents(table) == before


# ---------------------------------------------------------------------------------------------------- what is left


def plant_debris(table: Table, partition: str, instant: str) -> str:
    """Put what Hudi's rollback leaves of the first commit to a partition."""
    name = render_log_file_name(LogFileName(shard_file_id(0, partition), instant, 1, "0-0-0"))
    path = f"{folder_of(RECORD_INDEX)}/{name}"
    table.store.put(path, encode_nothing(instant))
    return path


def test_shards_that_a_rollback_of_hudi_left_are_removed(table_type: str) -> None:
    table = filled(table_type, RecordIndex(per_partition=True))
    first = table.timeline()[0].requested
    paths = {plant_debris(table, "p9", first[:-3] + "999"), plant_debris(table, "p/8", "20010101000000000")}
    plant_debris(table, "p0", "20010101000000000")  # of a partition with rows
    plan = table.plan_repair()
    assert {path for files in plan.work.debris.values() for path in files} == paths
    assert "remove 1 empty files of shards of the partition 'p9', which a rollback left" in str(plan)
    done = table.run(plan)
    assert set(done.removed) == paths and done.instant is None
    assert not paths & files_in(table.store).keys()
    check(table, FIRST)
    table.upsert(rows(("n", "p9", 1, "n")))
    check(table, [*FIRST, ("n", "p9", 1, "n")])


def test_shards_of_a_write_that_is_under_way_or_of_rows_are_left(table_type: str) -> None:
    table = filled(table_type, RecordIndex(per_partition=True, shards=2))
    plant_debris(table, "p0", "20010101000000000")
    whole, plans = record_level.RecordLevelIndex.overtaken, []

    def meanwhile(self: Any, timeline: Any, *, instant: str) -> Any:
        plans.append(table.plan_repair())
        return whole(self, timeline, instant=instant)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(record_level.RecordLevelIndex, "overtaken", meanwhile)
        table.upsert(rows(("n", "p9", 1, "n")))
    assert plans and all(plan.is_empty for plan in plans)
    assert table.plan_repair().is_empty
    table.archive(keep_min=1, keep_max=2)
    assert table.plan_repair().is_empty


def test_an_entry_that_names_what_is_not_there_is_corrected(table_type: str, index: RecordIndex) -> None:
    table = filled(table_type, index)
    gone = record_level.Location("p0" if index.per_partition else "nowhere", "no-group-0", 0)
    with recorded_as(lambda key: gone if key in ("w0", "w1") else None):
        table.upsert(rows(("w0", "p0", 1, "w"), ("w1", "p0", 1, "w")))
    table.upsert(rows(("z", "p0", 1, "z")))
    assert by_kind(table) == {Fault.WRONG: {"w0", "w1"}}
    with pytest.raises(CorruptTableError, match="no such file group"):
        table.upsert(rows(("w0", "p0", 2, "w")))
    table.repair()
    check(table, [*FIRST, ("w0", "p0", 1, "w"), ("w1", "p0", 1, "w"), ("z", "p0", 1, "z")])


def test_a_table_without_partitions_is_repaired(table_type: str, index: RecordIndex) -> None:
    table = filled(table_type, index, partition=None)
    with lose("m0"):
        table.upsert(rows(("m0", "", 1, "m")))
    with into_new_groups():
        table.upsert(rows(("m0", "", 2, "n")))
    with lose("k4"):
        table.delete(["k4"])
    assert by_kind(table) == {Fault.DUPLICATE: {"m0"}, Fault.SURPLUS: {"k4"}}
    table.repair()
    check(table, [*(row for row in FIRST if row[0] != "k4"), ("m0", "", 2, "n")])


def test_tasks_may_run_in_other_processes(table_type: str, index: RecordIndex) -> None:
    def elsewhere_run(function: Any, items: Any) -> Any:
        again = pickle.loads(pickle.dumps(list(items)))
        return pickle.loads(pickle.dumps([function(item) for item in again]))

    table, expected, _ = faulty(table_type, index)
    plan = repair.plan_repair(table.store, tasks=elsewhere_run)
    repair.run_repair(plan, table.store, tasks=elsewhere_run)
    check(table, expected)


def test_a_table_without_an_index_or_with_one_beyond_repair_is_told_what_helps(table_type: str) -> None:
    with pytest.raises(ConfigError, match="no index that records keys"):
        a_table(table_type, SimpleBuckets(2)).plan_repair()
    table = filled(table_type, KINDS[0])
    lost = next(path for path in files_in(table.store) if "/record_index/.record-index-0001" in path)
    data = table.store.read(lost)
    for path in [path for path in files_in(table.store) if "/record_index/.record-index-0001" in path]:
        table.store.delete(path)
    with pytest.raises(CorruptTableError, match="metadata rebuild"):
        table.plan_repair()
    table.store.put(lost, data)
    update_properties(
        table.store, {LISTED: "files"}
    )  # as a writer of Hudi's does that is not told of the index
    with pytest.raises(UnsupportedError, match="metadata rebuild"):
        table.plan_repair()


def test_the_command_shows_a_plan_and_with_yes_does_it(tmp_path: Any) -> None:
    table = create_table(
        tmp_path / "t", SCHEMA, key="id", partition="dt", ordering="ts", index=KINDS[0], maintenance="off"
    )
    with lose("m0"):
        table.upsert(rows(*FIRST, ("m0", "p0", 1, "m")))
    runner = CliRunner()
    shown = runner.invoke(app, ["repair", str(tmp_path / "t")])
    assert shown.exit_code == 0 and "1 key without an entry" in shown.output
    assert "give --yes" in shown.output
    done = runner.invoke(app, ["repair", str(tmp_path / "t"), "--yes", "--json"])
    assert done.exit_code == 0 and '"missing": 1' in done.output
    check(table, [*FIRST, ("m0", "p0", 1, "m")])
    assert "nothing to repair" in runner.invoke(app, ["repair", str(tmp_path / "t"), "--yes"]).output
