"""A rescale of hours that dies near its end must not have been in vain, nor stand in anybody's way."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pytest

from bucketlake import PartitionBuckets, Table, create_table
from bucketlake.commit.heartbeat import list_heartbeats, start_heartbeat
from bucketlake.commit.recovery import RESCALE_KEPT_MS, pending_rescales, recover
from bucketlake.config import TimelineTimezone
from bucketlake.errors import (
    CommitConflictError,
    ConcurrentWriteError,
    ConfigError,
    CorruptTableError,
    InstantError,
)
from bucketlake.index import list_versions
from bucketlake.layout.names import hashing_config_path
from bucketlake.services import (
    Retention,
    archive_table,
    clean_table,
    cluster_table,
    compact_table,
    create_savepoint,
    here,
    look_for_restore,
    look_for_rollback,
    regroup,
    run_restore,
    run_rollback,
    schedule_compaction,
)
from bucketlake.services.compaction import plan_compaction
from bucketlake.services.held import load_held
from bucketlake.services.rescale import PersistedPlan, resume_rescale
from bucketlake.state import files_of, load_state
from bucketlake.storage import Store
from bucketlake.testing.faulty_store import FaultyStore, InjectedError
from bucketlake.testing.invariants import check_invariants
from bucketlake.timeline import Clock, State
from bucketlake.timeline.clock import system_ms
from stand_ins.aging import age
from stand_ins.transactions import clock

SCHEMA = pa.schema([("id", pa.string()), ("dt", pa.string()), ("ts", pa.int64()), ("v", pa.int32())])
TYPES = ["COPY_ON_WRITE", "MERGE_ON_READ"]
A_DAY_LATER = Clock(TimelineTimezone.UTC, now_ms=lambda: system_ms() + RESCALE_KEPT_MS + 60_000)


def rows_of(ids: Sequence[int], ts: int = 1, days: int = 3) -> pa.Table:
    rows = [(f"k{n}", f"d{n % days}", ts, ts) for n in ids]
    return pa.Table.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in rows], SCHEMA)


def a_table(name: str, table_type: str = "COPY_ON_WRITE", **options: Any) -> Table:
    table = create_table(
        f"memory://resumed-{name}-{table_type}",
        SCHEMA,
        key="id",
        partition="dt",
        ordering="ts",
        table_type=table_type,
        **{"index": PartitionBuckets("none,1", default=2), **options},
    )
    table.upsert(rows_of(range(60)))
    table.upsert(rows_of(range(0, 60, 2), ts=2))
    return table


def newest(table: Table) -> dict[str, int]:
    found = table.to_arrow(columns=["id", "ts"]).to_pylist()
    assert len(found) == len({row["id"] for row in found}), "a key is there twice"
    return {row["id"]: row["ts"] for row in found}


def counts(table: Table) -> dict[str, int | None]:
    return {part.partition: part.buckets for part in table.layout().partitions}


def dying(after: int) -> Callable[..., list[Any]]:
    """A map whose process is killed, so to say, after some of its tasks: no error of ours."""

    def run(function: Callable[[Any], Any], items: Sequence[Any], /) -> list[Any]:
        here(function, items[:after])
        raise KeyboardInterrupt

    return run


def cut_off(table: Table, rules: str = "d,4", *, after: int = 4, **options: Any) -> str:
    """Begin a rescale and let it die; return its instant."""
    with pytest.MonkeyPatch.context() as patch, pytest.raises(KeyboardInterrupt) as caught:
        patch.setattr("bucketlake.given.tasks_of", lambda spark, progress: dying(after))
        table.buckets.overwrite(rules, **options)
    (note,) = caught.value.__notes__
    assert "buckets resume" in note
    assert "buckets abort" in note
    (pending,) = pending_rescales(table.store, load_state(table.store).timeline)
    assert pending.requested in note
    return pending.requested


def files_of_rescale(store: Store, instant: str) -> dict[str, str]:
    listed = store.list("", recursive=True).files
    return {f.path: f.version for f in listed if f.path.endswith(f"_{instant}.parquet")}


@pytest.mark.shows("P6", "P14")
@pytest.mark.parametrize("table_type", TYPES)
def test_it_goes_on_where_it_was_cut_off(table_type: str, monkeypatch: pytest.MonkeyPatch) -> None:
    table = a_table("goes-on", table_type)
    before = newest(table)
    instant = cut_off(table, after=4)
    made = files_of_rescale(table.store, instant)
    assert made
    assert newest(table) == before
    held = []
    hold = regroup._hold
    monkeypatch.setattr(regroup, "_hold", lambda task, first: held.append(task) or hold(task, first))
    done = table.buckets.resume()
    assert done.instant == instant
    assert len(held) == 2, "six tasks, and four were done"
    kept = files_of_rescale(table.store, instant)
    assert {path: kept[path] for path in made} == made, "what was whole is not written again"
    assert newest(table) == before
    assert counts(table) == {"d0": 4, "d1": 4, "d2": 4}
    assert not load_state(table.store).timeline.pending()
    table.upsert(rows_of(range(60), ts=7))
    assert set(newest(table).values()) == {7}
    check_invariants(table)


@pytest.mark.shows("P14")
@pytest.mark.parametrize("table_type", TYPES)
def test_writers_work_on_beside_it_and_what_they_wrote_is_taken_in(table_type: str) -> None:
    table = a_table("beside", table_type)
    instant = cut_off(table)
    made = files_of_rescale(table.store, instant)
    table.upsert(rows_of([0, 1], ts=5))
    table.upsert(rows_of(range(100, 104), ts=5, days=2))
    table.delete(rows_of([2]).select(["id", "dt"]))
    assert files_of_rescale(table.store, instant) == made
    expected = newest(table)
    table.buckets.resume()
    assert newest(table) == expected
    assert set(counts(table).values()) == {4}
    check_invariants(table)


@pytest.mark.shows("P7", "P14")
@pytest.mark.parametrize("ends", ["buckets abort", "rollback"])
def test_it_can_be_taken_back(ends: str) -> None:
    table = a_table(f"aborted-{ends[0]}")
    before = newest(table)
    instant = cut_off(table)
    planned = table.buckets.plan_abort()
    assert {file.path for file in planned.work.files} == files_of_rescale(table.store, instant).keys()
    assert pending_rescales(table.store, load_state(table.store).timeline)
    if ends == "rollback":
        run_rollback(look_for_rollback(load_state(table.store), instant), table.store)
    else:
        assert table.buckets.abort().instant == instant
    assert not files_of_rescale(table.store, instant)
    assert not load_state(table.store).timeline.pending()
    assert (newest(table), counts(table)) == (before, {"d0": 2, "d1": 2, "d2": 2})
    for act in (table.buckets.abort, table.buckets.resume):
        with pytest.raises(InstantError, match="no rescale of the table is pending"):
            act()
    table.buckets.overwrite("d,4")
    assert newest(table) == before
    check_invariants(table)


@pytest.mark.shows("P14")
def test_another_rescale_is_refused_while_one_is_pending() -> None:
    table = a_table("second")
    instant = cut_off(table)
    before = [file.path for file in table.store.list("", recursive=True).files]
    for change in (table.buckets.overwrite, table.buckets.add):
        with pytest.raises(ConcurrentWriteError, match=f"{instant} is pending.*resume.*abort"):
            change("d,3")
    assert [file.path for file in table.store.list("", recursive=True).files] == before
    assert table.buckets.plan_overwrite("d,3").work.changes, "a plan is no trouble"


def test_nobody_takes_over_from_the_living() -> None:
    table = a_table("living")
    instant = cut_off(table)
    assert start_heartbeat(table.store, instant)
    with pytest.raises(ConcurrentWriteError, match="under way"):
        table.buckets.resume()
    with pytest.raises(ConcurrentWriteError, match="under way"):
        table.buckets.abort()
    assert instant in list_heartbeats(table.store)
    resume_rescale(table.store, clock=clock(later=True))
    assert instant not in list_heartbeats(table.store)
    assert counts(table) == {"d0": 4, "d1": 4, "d2": 4}


@pytest.mark.shows("P14")
def test_after_a_day_the_next_writer_takes_it_back() -> None:
    table = a_table("day")
    instant = cut_off(table)
    properties = load_state(table.store).properties
    found = recover(table.store, properties, clock=clock(later=True))
    assert [i.requested for i in found.resumable] == [instant]
    assert f"left alone the rescale of {instant}" in str(found)
    found = recover(table.store, properties, clock=A_DAY_LATER)
    assert [done.instant for done in found.rolled_back] == [instant]
    assert not files_of_rescale(table.store, instant)
    check_invariants(table)


def test_one_that_somebody_has_begun_to_take_back_is_not_left_alone() -> None:
    table = a_table("half-aborted")
    instant = cut_off(table)
    order = look_for_rollback(load_state(table.store), instant)
    with pytest.raises(InjectedError):
        run_rollback(order, _DiesAtDelete(table.store))
    assert files_of_rescale(table.store, instant)
    table.upsert(rows_of([0], ts=5))
    assert not files_of_rescale(table.store, instant)
    with pytest.raises(InstantError, match="no rescale"):
        table.buckets.resume()
    check_invariants(table)


class _DiesAtDelete(FaultyStore):
    def delete(self, path: str) -> None:
        if path.endswith(".parquet"):
            raise InjectedError("dead")
        super().delete(path)


@pytest.mark.parametrize("table_type", TYPES)
def test_services_do_not_touch_what_it_has_written(table_type: str) -> None:
    """A clean, an archive, a clustering and a compaction beside it; then it is finished, and nothing is lost."""
    table = a_table("services", table_type)
    instant = cut_off(table)
    made = files_of_rescale(table.store, instant)
    for number in range(8):
        table.upsert(rows_of(range(10), ts=10 + number))
    clean_table(table.store, retain=Retention(commits=1))
    clean_table(table.store, retain=Retention(versions=1))
    archived = archive_table(table.store, keep_min=1, keep_max=2)
    assert all(i.requested < instant for i in archived.instants), "it would count as committed"
    cluster_table(table.store, by=["v"])
    if table_type == "MERGE_ON_READ":
        compact_table(table.store)
    age(table.store)
    recover(table.store, load_state(table.store).properties)
    assert files_of_rescale(table.store, instant) == made
    assert hashing_config_path(instant) not in {f.path for f in table.store.list("", recursive=True).files}
    expected = newest(table)
    table.buckets.resume()
    assert newest(table) == expected
    check_invariants(table)
    for number in range(4):
        table.upsert(rows_of(range(10), ts=30 + number))
        clean_table(table.store, retain=Retention(commits=1))
        archive_table(table.store, keep_min=1, keep_max=2)
        check_invariants(table)
    assert {**expected, **{f"k{n}": 33 for n in range(10)}} == newest(table)
    assert load_state(table.store).timeline.start > instant, "and nothing holds the archive up any more"


def test_what_it_replaced_stays_for_readers_who_were_at_it_when_it_completed() -> None:
    """By the time it began it is old; by the time it completed it is the newest."""
    table = a_table("readers")
    instant = cut_off(table)
    for number in range(4):
        table.upsert(rows_of(range(60), ts=10 + number))
    plan = table.plan()
    table.buckets.resume()
    clean_table(table.store, retain=Retention(commits=3))
    there = {file.path for file in table.store.list("", recursive=True).files}
    needed = {part.base_file.path for part in plan.slices if part.base_file}
    assert needed <= there
    archive_table(table.store, keep_min=1, keep_max=2)
    assert load_state(table.store).timeline.start <= instant
    assert len(newest(table)) == 60
    for number in range(4):
        table.upsert(rows_of(range(60), ts=20 + number))
        clean_table(table.store, retain=Retention(commits=3))
        archive_table(table.store, keep_min=4, keep_max=5)
        assert len(newest(table)) == 60
    there = {file.path for file in table.store.list("", recursive=True).files}
    assert not needed & there
    check_invariants(table)


def test_nothing_is_taken_back_beside_it() -> None:
    table = a_table("taken-back")
    create_savepoint(table.store)
    (savepoint,) = load_state(table.store).timeline.savepoints
    instant = cut_off(table)
    table.upsert(rows_of([0], ts=5))
    last = load_state(table.store).timeline.writes[-1].requested
    with pytest.raises(ConcurrentWriteError, match=f"{instant} was cut off.*resume.*abort"):
        run_rollback(look_for_rollback(load_state(table.store), last), table.store)
    with pytest.raises(ConcurrentWriteError, match=f"{instant} was cut off.*resume.*abort"):
        run_restore(look_for_restore(load_state(table.store), savepoint), table.store)
    assert newest(table)["k0"] == 5
    table.buckets.resume()
    # Begun before the last write, and completed after it: who goes back to that write must not lose its rows.
    with pytest.raises(InstantError, match=f"{instant} was begun before it"):
        create_savepoint(table.store, last)
    table.upsert(rows_of([0], ts=6))
    create_savepoint(table.store)
    table.upsert(rows_of([0], ts=7))
    newest_savepoint = max(load_state(table.store).timeline.savepoints)
    run_restore(look_for_restore(load_state(table.store), newest_savepoint), table.store)
    assert newest(table)["k0"] == 6
    assert counts(table) == {"d0": 4, "d1": 4, "d2": 4}
    check_invariants(table)


def test_a_compaction_that_is_planned_meanwhile_is_to_be_run_first_and_nothing_is_lost() -> None:
    table = a_table("compaction", "MERGE_ON_READ")
    before = newest(table)
    instant = cut_off(table)
    state = load_state(table.store)
    schedule_compaction(table.store, plan_compaction(state, files_of(state), load_held(state), now=""))
    with pytest.raises(ConcurrentWriteError, match="is pending"):
        table.buckets.resume()
    assert pending_rescales(table.store, load_state(table.store).timeline)
    compact_table(table.store)
    assert table.buckets.resume().instant == instant
    assert newest(table) == before
    check_invariants(table)


@pytest.mark.parametrize("state", [State.REQUESTED, State.INFLIGHT])
def test_one_that_died_before_its_first_file_is_resumed_too(state: State) -> None:
    table = a_table(f"early-{state}")
    before = newest(table)
    instant = cut_off(table, after=0)
    if state is State.REQUESTED:
        table.store.delete(f".hoodie/timeline/{instant}.replacecommit.inflight")
    table.buckets.resume()
    assert (newest(table), counts(table)) == (before, {"d0": 4, "d1": 4, "d2": 4})


def test_rules_that_somebody_else_has_changed_meanwhile_are_not_overwritten() -> None:
    table = a_table("rules-changed")
    instant = cut_off(table)
    paths = [f".hoodie/timeline/{instant}.replacecommit.{state}" for state in ("requested", "inflight")]
    bodies = [table.store.read(path) for path in paths]
    for path in paths:  # as if Hudi had changed the rules while ours were pending
        table.store.delete(path)
    table.buckets.overwrite("d,3")
    for path, body in zip(paths, bodies, strict=True):
        table.store.put(path, body)
    before = newest(table)
    with pytest.raises(CommitConflictError, match="change of the bucket rules"):
        table.buckets.resume()
    assert not load_state(table.store).timeline.pending(), "what cannot succeed is taken back"
    assert not files_of_rescale(table.store, instant)
    assert (newest(table), counts(table)) == (before, {"d0": 3, "d1": 3, "d2": 3})
    check_invariants(table)


def test_a_damaged_plan_names_its_file_and_can_be_taken_back() -> None:
    with pytest.raises(CorruptTableError, match=r"x\.requested.*no plan of a rescale.*abort"):
        PersistedPlan.parse('{"rule_type": "regex"}', path="x.requested")


@pytest.mark.parametrize("budget_bytes", [0, -1])
def test_a_budget_of_nothing_is_refused(budget_bytes: int) -> None:
    table = a_table(f"budget-{budget_bytes}")
    with pytest.raises(ConfigError, match="expected 1 at least"):
        table.buckets.overwrite("d,3", budget_bytes=budget_bytes)
    assert not load_state(table.store).timeline.pending()


def test_its_budget_is_that_of_its_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    table = a_table("its-budget")
    cut_off(table, "d,5", after=1, budget_bytes=1)
    passes = []
    hold = regroup._hold
    monkeypatch.setattr(regroup, "_hold", lambda task, first: passes.append(first) or hold(task, first))
    table.buckets.resume()
    assert passes == [0, 1, 2, 3, 4] * 2


def test_a_partition_that_is_gone_when_it_is_resumed_leaves_nothing() -> None:
    table = a_table("gone-partition")
    instant = cut_off(table, after=6)
    table.delete_partitions(["d0"])
    expected = newest(table)
    table.buckets.resume()
    assert newest(table) == expected
    assert not [path for path in files_of_rescale(table.store, instant) if path.startswith("d0/")]
    check_invariants(table)


def test_counts_that_were_recorded_while_it_was_pending_do_not_outlive_it() -> None:
    """The partition came after the rescale began, and was gone before it completed."""
    table = a_table("recorded")
    cut_off(table, "later,5;d,4")
    later = rows_of(range(100, 130)).set_column(1, "dt", pa.array(["later"] * 30))
    table.upsert(later)
    table.delete_partitions(["later"])
    table.buckets.resume()
    table.upsert(later)
    assert counts(table)["later"] == 5
    check_invariants(table)


def test_a_simple_table_is_upgraded_by_one_that_was_resumed() -> None:
    table = create_table(
        "memory://resumed-simple", SCHEMA, key="id", partition="dt", ordering="ts", buckets=2
    )
    table.upsert(rows_of(range(60)))
    cut_off(table, "d0,4", after=1)
    assert not list_versions(table.store).active
    done = table.buckets.resume()
    table = Table.open(table.store.uri)
    assert counts(table) == {"d0": 4, "d1": 2, "d2": 2}
    table.buckets.rollback(done.instant)
    assert counts(Table.open(table.store.uri)) == {"d0": 2, "d1": 2, "d2": 2}
