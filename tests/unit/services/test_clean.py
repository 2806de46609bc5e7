"""A clean deletes for good: what it must never touch, and what it must leave nothing of."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import replace

import pytest

from bucketlake import Table
from bucketlake.commit.heartbeat import start_heartbeat
from bucketlake.commit.operation import Operation
from bucketlake.commit.transaction import abort, begin
from bucketlake.config import load_properties
from bucketlake.errors import ConcurrentWriteError, ConfigError, CorruptTableError, InstantError
from bucketlake.index import SimpleBuckets
from bucketlake.services import (
    CleanPlan,
    Retention,
    clean_table,
    compact_table,
    finish_clean,
    load_held,
    plan_clean,
    plan_compaction,
    run_clean,
    run_compaction,
    schedule_compaction,
)
from bucketlake.state import files_of, load_state
from bucketlake.storage import Store
from bucketlake.testing.faulty_store import FaultyStore, InjectedError
from bucketlake.testing.invariants import check_invariants
from bucketlake.timeline import (
    Action,
    CleanerPlan,
    encode_cleaner_plan,
    read_clean_metadata,
    read_cleaner_plan,
    write_requested,
)
from bucketlake.write import TableSpec, create
from stand_ins.aging import Bucket, copy_of
from stand_ins.orders_table import SCHEMA, orders, orders_table, rows_of, written_table

_numbers = itertools.count()


def memory() -> str:
    return f"memory://clean-{next(_numbers)}"


def planned(table: Table, retain: Retention) -> CleanPlan:
    state = load_state(table.store)
    return plan_clean(state, files_of(state), load_held(state), retain=retain, now="20991231000000000")


def paths(table: Table) -> set[str]:
    listed = table.store.list("", recursive=True).files
    return {file.path for file in listed if not file.path.startswith(".hoodie/")}


@pytest.mark.parametrize("table_type", ["COPY_ON_WRITE", "MERGE_ON_READ"])
def test_a_clean_deletes_exactly_its_plan_and_says_so(table_type: str) -> None:
    table = written_table(memory(), table_type=table_type)
    if table_type == "MERGE_ON_READ":
        compact_table(table.store)
        table.upsert(orders([0], "more", 60))
    before, there = rows_of(table), paths(table)
    plan = planned(table, Retention(commits=1))
    assert plan.files
    done = run_clean(plan, table.store)
    assert done is not None
    assert rows_of(table) == before
    assert there - paths(table) == {file.path for file in plan.files}
    (instant,) = load_state(table.store).timeline.completed(Action.CLEAN)
    metadata = read_clean_metadata(table.store, instant)
    assert plan.earliest is not None
    assert metadata.earliest_kept == done.earliest_kept == plan.earliest.requested
    assert metadata.files_deleted == done.files == len(plan.files)
    assert read_cleaner_plan(table.store, instant) == plan.body()
    check_invariants(table)
    assert run_clean(planned(table, Retention(commits=1)), table.store) is None, "there is nothing left to do"
    assert finish_clean(table.store, instant.requested) == done
    with pytest.raises(ConfigError, match="kept files from"):
        table.to_arrow(as_of="20200101000000000")


def old_versions(*, has_metadata_table: bool) -> tuple[Table, str]:
    """A table of two partitions that was written twice, and its first write."""
    table = orders_table(memory(), table_type="COPY_ON_WRITE")
    if has_metadata_table:
        table.metadata.build()
    first = table.upsert(orders([0, 1], "first", 1)).instant
    table.upsert(orders([0, 1], "second", 2))
    return table, first


@pytest.mark.parametrize("has_metadata_table", [False, True])
def test_a_clean_of_versions_that_was_cut_off_never_leaves_half_a_past(has_metadata_table: bool) -> None:
    """Until it is completed, the metadata table lists what it has deleted."""
    outcomes: Counter[str] = Counter()
    for number in itertools.count(1):
        table, first = old_versions(has_metadata_table=has_metadata_table)
        past = rows_of(table, as_of=first)
        try:
            clean_table(FaultyStore(table.store, fails_at=number), retain=Retention(versions=1))
            is_done = True
        except InjectedError:
            is_done = False
        try:
            assert rows_of(table, as_of=first) == past
        except ConfigError as error:
            assert "a clean has deleted p" in str(error)
            with pytest.raises(InstantError, match="cannot be protected any more: a clean has deleted p"):
                table.savepoint(first)
            outcomes["cleaned"] += 1
        else:
            outcomes["there"] += 1
        if is_done:
            break
    assert outcomes["there"] > 1 < outcomes["cleaned"]


@pytest.mark.parametrize("has_metadata_table", [False, True])
def test_a_partition_that_was_cleaned_as_a_whole_is_not_passed_over_in_the_past(
    has_metadata_table: bool,
) -> None:
    table, first = old_versions(has_metadata_table=has_metadata_table)
    second = load_state(table.store).timeline.writes[-1].requested
    table.delete_partitions("p0")
    table.clean(retain_versions=1)
    for instant in (first, second):
        with pytest.raises(ConfigError, match="a clean has deleted p0/"):
            table.to_arrow(as_of=instant, filters=[("dt", "=", "p0")])
        with pytest.raises(ConfigError, match="a clean has deleted p0/"):
            table.get(0, as_of=instant)
        with pytest.raises(InstantError, match="cannot be protected"):
            table.savepoint(instant)
    read = table.to_arrow(as_of=second, filters=[("dt", "=", "p1")])
    assert read["name"].to_pylist() == ["second 1"], "of this partition nothing is gone"


def test_what_was_archived_and_cleaned_is_not_passed_over_in_the_past() -> None:
    table = orders_table(memory())
    table.upsert(orders([0], "first", 1))
    table.upsert(orders([0], "second", 2))
    third = table.upsert(orders([1], "third", 3)).instant
    past = rows_of(table, as_of=third)
    compact_table(table.store)
    table.upsert(orders([1], "fourth", 4))
    table.archive(keep_min=3, keep_max=4)
    assert load_state(table.store).timeline.start == third
    assert rows_of(table, as_of=third) == past
    table.clean(retain_versions=1)
    with pytest.raises(ConfigError, match="a clean has deleted p0/"):
        table.to_arrow(as_of=third)


def test_who_keeps_versions_can_read_as_far_back_as_their_files_are_there() -> None:
    table = orders_table(memory(), table_type="COPY_ON_WRITE")
    writes = [table.upsert(orders([0, 1], f"turn {turn}", turn)).instant for turn in range(4)]
    past = {instant: rows_of(table, as_of=instant) for instant in writes}
    table.clean(retain_versions=3)
    for instant in writes[1:]:
        assert rows_of(table, as_of=instant) == past[instant]
    with pytest.raises(ConfigError, match="a clean has deleted"):
        table.to_arrow(as_of=writes[0])
    table.upsert(orders([0, 1], "turn 4", 4))
    table.clean(retain_commits=4)
    for instant in writes[1:]:
        assert rows_of(table, as_of=instant) == past[instant]


def test_reads_as_of_every_kept_write_are_the_same() -> None:
    table = written_table(memory())
    compact_table(table.store)
    table.upsert(orders([0, 3], "more", 60))
    compact_table(table.store)
    table.upsert(orders([0, 3], "yet more", 70))
    plan = planned(table, Retention(commits=3))
    assert plan.earliest is not None
    assert plan.files
    writes = [i.requested for i in load_state(table.store).timeline.writes]
    kept = [instant for instant in writes if instant >= plan.earliest.requested]
    assert len(kept) == 3
    before = [rows_of(table, as_of=instant) for instant in kept]
    run_clean(plan, table.store)
    assert [rows_of(table, as_of=instant) for instant in kept] == before


def test_what_a_pending_compaction_is_to_merge_stays() -> None:
    table = written_table(memory())
    state = load_state(table.store)
    compaction = plan_compaction(state, files_of(state), load_held(state), now="")
    instant = schedule_compaction(table.store, compaction)
    assert instant is not None
    table.delete_partitions(["p0"])
    for ts in (60, 70):
        table.upsert(orders([1], "more", ts))
    clean_table(table.store, retain=Retention(versions=1))
    before = rows_of(table)
    run_compaction(table.store, instant)
    assert rows_of(table) == before
    check_invariants(table)
    clean_table(table.store, retain=Retention(versions=1))
    assert not any(path.startswith("p0/") for path in paths(table)), "now it can all go"
    assert rows_of(table) == before


def test_what_has_come_to_be_needed_since_the_plan_is_spared() -> None:
    """Such as after a restore, or by a savepoint: here the newest files themselves are on the list."""
    table = written_table(memory())
    before, there = rows_of(table), paths(table)
    everything = {
        partition: tuple(file.path.rpartition("/")[2] for file in files)
        for partition, files in files_of(load_state(table.store)).items()
    }
    requested(
        table,
        CleanerPlan(
            policy="KEEP_LATEST_FILE_VERSIONS",
            earliest_kept=None,
            earliest_action=None,
            last_completed="",
            files=everything,
            partitions=("p0",),
        ),
        "20990101000000000",
    )
    done = finish_clean(table.store, "20990101000000000")
    assert done.files == 0
    assert (rows_of(table), paths(table)) == (before, there)


def requested(table: Table, plan: CleanerPlan, instant: str) -> None:
    state = load_state(table.store)
    body = encode_cleaner_plan(plan, root=table.store.uri)
    write_requested(table.store, state.properties, instant=instant, action=Action.CLEAN, body=body)


def emptied_table() -> Table:
    table = written_table(memory())
    table.delete_partitions(["p0"])
    for ts in (60, 70):
        table.upsert(orders([1], "more", ts))
    return table


def test_an_emptied_partition_ceases_to_be_and_can_be_made_again() -> None:
    table = emptied_table()
    clean_table(table.store, retain=Retention(commits=1))
    assert not any(path.startswith("p0/") for path in paths(table))
    check_invariants(table)
    table.upsert(orders([0, 2], "back", 1))
    assert rows_of(table, filters=[("dt", "=", "p0")]).num_rows == 2
    check_invariants(table)


def test_a_partition_that_somebody_is_about_to_write_to_keeps_its_metadata() -> None:
    """A write that began between plan and deletion has seen the partition, and will not make it again."""
    table = emptied_table()
    plan = planned(table, Retention(commits=1))
    assert plan.partitions == ("p0",)
    transaction, _ = begin(table.store, operation=Operation.UPSERT)
    run_clean(plan, table.store)
    assert {path for path in paths(table) if path.startswith("p0/")} == {"p0/.hoodie_partition_metadata"}
    abort(transaction)
    clean_table(table.store, retain=Retention(commits=1))
    assert not any(path.startswith("p0/") for path in paths(table))


def test_a_clean_that_is_under_way_is_left_to_its_process() -> None:
    table = written_table(memory(), table_type="COPY_ON_WRITE")
    plan = planned(table, Retention(versions=1))
    requested(table, plan.body(), "20990101000000000")
    start_heartbeat(table.store, "20990101000000000")
    with pytest.raises(ConcurrentWriteError, match="under way"):
        clean_table(table.store, retain=Retention(versions=1))


def test_a_plan_that_names_anything_but_data_files_is_refused() -> None:
    table = written_table(memory(), table_type="COPY_ON_WRITE")
    before = paths(table)
    good = planned(table, Retention(versions=1)).body()
    for number, bad in enumerate(
        [
            replace(good, files={".hoodie": ("hoodie.properties",)}),
            replace(good, files={"../other": ("g_1-0-1_001.parquet",)}),
            replace(good, partitions=(".hoodie",)),
        ]
    ):
        instant = f"2099010100000000{number}"
        requested(table, bad, instant)
        with pytest.raises(CorruptTableError):
            finish_clean(table.store, instant)
        table.store.delete(f".hoodie/timeline/{instant}.clean.requested")
    assert paths(table) == before
    with pytest.raises(ConfigError, match="no clean"):
        finish_clean(table.store, "20200101000000000")


@pytest.mark.shows("X2")
def test_a_write_whose_files_a_clean_took_away_is_run_again() -> None:
    origin = Bucket()
    create(
        origin,
        TableSpec(
            name="orders",
            schema=SCHEMA,
            key=("id",),
            partition=("dt",),
            ordering=("ts",),
            index=SimpleBuckets(1),
            table_type="COPY_ON_WRITE",
        ),
    )
    Table(origin, load_properties(origin)).upsert(orders(range(4), "first", 1))
    trial = FaultyStore(copy_of(origin))
    Table(trial, load_properties(trial)).upsert(orders([1], "ours", 9))
    number = next(
        n for n, what in enumerate(trial.operations, 1) if what.startswith(("read p1/", "stat p1/"))
    )

    def others(store: Store) -> None:
        """Overtake the write, and clean away what it is about to read."""
        other = Table(store, load_properties(store))
        other.upsert(orders([3], "theirs", 5))
        other.clean(retain_versions=1)

    store = copy_of(origin)
    held_up = FaultyStore(store, fails_at=number - 1, meanwhile=others)
    Table(held_up, load_properties(held_up)).upsert(orders([1], "ours", 9))
    rows = Table(store, load_properties(store)).to_arrow(columns=["id", "name"]).to_pylist()
    assert {row["id"]: row["name"] for row in rows} == {
        0: "first 0",
        1: "ours 1",
        2: "first 2",
        3: "theirs 3",
    }
