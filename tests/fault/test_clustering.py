"""A clustering may be killed at any moment: readers never see a thing, and the next round finishes it or plans anew."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from typing import Any

import pyarrow as pa
import pytest

from bucketlake import Table
from bucketlake.commit.recovery import recover
from bucketlake.config import load_properties
from bucketlake.errors import ConfigError, ConflictError
from bucketlake.services import (
    check_table,
    cluster_table,
    find_sorted,
    load_held,
    plan_clustering,
    rollback_clustering,
    run_clustering,
    schedule_clustering,
)
from bucketlake.state import files_of, load_state
from bucketlake.storage import Store, open_store
from bucketlake.testing.faulty_store import FaultyStore, InjectedError
from bucketlake.timeline import Action
from bucketlake.write import ArrowRows, Operation, run_write
from stand_ins.orders_table import orders, orders_table, rows_of
from stand_ins.transactions import clock

_numbers = itertools.count()
COLUMNS = ["id", "name", "ts", "dt"]


@cache
def contents() -> dict[str, bytes]:
    table = orders_table(f"memory://fault-clustering-{next(_numbers)}", buckets=1)
    table.upsert(orders(range(0, 6, 2), "b", 1))
    table.upsert(orders(range(2, 7, 2), "a", 2))
    return {file.path: table.store.read(file.path) for file in table.store.list("", recursive=True).files}


def fresh() -> tuple[Store, Table]:
    uri = f"memory://fault-clustering-{next(_numbers)}"
    store = open_store(uri)
    for path, data in contents().items():
        store.put(path, data)
    return store, Table.open(uri)


def faults(operations: list[str]) -> Iterator[dict[str, Any]]:
    """Every way to fail at every operation; one that only looks has one way to fail."""
    for number, operation in enumerate(operations, 1):
        changes = operation.split()[0] not in {"list", "stat", "read"}
        for took_effect, is_dead in (
            itertools.product((False, True), repeat=2) if changes else [(False, True)]
        ):
            yield {"fails_at": number, "took_effect": took_effect, "is_dead": is_dead}


def schedule(store: Store) -> str | None:
    state = load_state(store)
    plan = plan_clustering(state, files_of(state), load_held(state), by=["name"], now="")
    return schedule_clustering(store, plan, clock=clock())


def schedule_and_run(store: Store) -> None:
    instant = schedule(store)
    if instant is not None:
        run_clustering(store, instant, clock=clock())


def upsert(store: Store) -> None:
    run_write(ArrowRows(orders((0, 8), "in between", 9)), store, Operation.UPSERT)


def check(store: Store, table: Table, before: pa.Table) -> None:
    """As if nothing had happened, but for the order of rows."""
    recover(store, load_properties(store), clock=clock(later=True))
    cluster_table(store, by=["name"], clock=clock(later=True))
    recover(store, load_properties(store), clock=clock(later=True))
    assert rows_of(table) == before
    report = check_table(store)
    assert report.findings == (), str(report)
    state = load_state(store)
    assert state.timeline.pending() == ()
    remains = [
        f.path
        for folder in (".temp", ".heartbeat")
        for f in store.list(f".hoodie/{folder}", recursive=True).files
    ]
    assert remains == []
    listed = files_of(state)
    sorted_already = find_sorted(state, listed, ["name"])
    plan = plan_clustering(
        state, listed, load_held(state), by=["name"], now="", sorted_already=sorted_already
    )
    assert plan.is_empty, "all is sorted"
    completed = [
        f.path.rpartition("/")[2]
        for f in store.list(".hoodie/timeline").files
        if "_" in f.path.rpartition("/")[2]
    ]
    instants = [name.partition("_")[0] for name in completed]
    assert len(instants) == len(set(instants)), "an instant completes once"


def test_a_clustering_that_is_cut_off_anywhere_is_finished_by_the_next() -> None:
    store, table = fresh()
    counting = FaultyStore(store)
    schedule_and_run(counting)
    before = rows_of(table)
    assert len(counting.operations) > 30
    for fault in faults(counting.operations):
        store, table = fresh()
        with suppress(InjectedError):
            schedule_and_run(FaultyStore(store, **fault))
        assert rows_of(table) == before, "readers never see a thing"
        check(store, table, before)


def halfway() -> tuple[Store, Table, str]:
    store, table = fresh()
    instant = schedule(store)
    assert instant is not None

    def failing(function: Callable[[Any], Any], items: Any) -> Any:
        function(items[0])
        raise InjectedError("an executor died")

    with pytest.raises(InjectedError):
        run_clustering(store, instant, tasks=failing, clock=clock())
    return store, table, instant


def test_a_rollback_of_a_clustering_may_be_cut_off_anywhere() -> None:
    store, table, instant = halfway()
    before = rows_of(table)
    counting = FaultyStore(store)
    rollback_clustering(counting, instant, clock=clock())
    for fault in faults(counting.operations):
        store, table, instant = halfway()
        with suppress(InjectedError):
            rollback_clustering(FaultyStore(store, **fault), instant, clock=clock())
        assert rows_of(table) == before
        recover(store, load_properties(store), clock=clock(later=True))
        assert load_state(store).timeline.pending(Action.ROLLBACK) == ()
        check(store, table, before)


def test_one_that_gives_way_may_be_cut_off_anywhere() -> None:
    def late() -> tuple[Store, Table, str]:
        store, table, instant = halfway()
        table.upsert(orders([0], "faster", 9))
        return store, table, instant

    store, table, instant = late()
    counting = FaultyStore(store)
    with pytest.raises(ConflictError):
        run_clustering(counting, instant, clock=clock())
    before = rows_of(table).select(COLUMNS)
    for fault in faults(counting.operations):
        store, table, instant = late()
        with suppress(InjectedError, ConflictError):
            run_clustering(FaultyStore(store, **fault), instant, clock=clock())
        assert rows_of(table).select(COLUMNS) == before
        check(store, table, rows_of(table))


class Interrupted(FaultyStore):
    """Lets somebody else act before its n-th operation."""

    def __init__(self, inner: Store, *, at: int, act: Callable[[Store], object]) -> None:
        super().__init__(inner)
        self.at = at
        self.act = act

    def _do(self, what: Any, act: Any) -> Any:
        if len(self.operations) == self.at:
            self.act(self.inner)
        return super()._do(what, act)


@pytest.mark.shows("X3")
def test_a_write_between_any_two_operations_of_a_clustering_is_never_lost() -> None:
    """The write comes first: the clustering takes it in, or gives way, or was complete before."""
    store, table = fresh()
    counting = FaultyStore(store)
    schedule_and_run(counting)
    upsert(store)
    expected = rows_of(table).select(COLUMNS)
    outcomes = set()
    for number in range(len(counting.operations)):
        store, table = fresh()
        try:
            schedule_and_run(Interrupted(store, at=number, act=upsert))
            outcomes.add("completed")
        except ConflictError:
            outcomes.add("gave way")
        assert rows_of(table).select(COLUMNS) == expected
        check(store, table, rows_of(table))
    assert outcomes == {"completed", "gave way"}


@pytest.mark.shows("X3")
@pytest.mark.parametrize("act", [schedule, schedule_and_run], ids=["a schedule", "a whole one"])
def test_a_clustering_between_any_two_operations_of_a_write_loses_nothing(
    act: Callable[[Store], object],
) -> None:
    store, table = fresh()
    counting = FaultyStore(store)
    upsert(counting)
    expected = rows_of(table).select(COLUMNS)
    for number in range(len(counting.operations)):
        store, table = fresh()
        upsert(Interrupted(store, at=number, act=act))
        assert rows_of(table).select(COLUMNS) == expected
        check(store, table, rows_of(table))


def test_two_runs_of_one_clustering_interleaved_at_every_operation_agree() -> None:
    store, table = fresh()
    before = rows_of(table)
    instant = schedule(store)
    assert instant is not None
    counting = FaultyStore(store)
    run_clustering(counting, instant, clock=clock())
    for number in range(len(counting.operations)):
        store, table = fresh()
        instant = schedule(store)
        assert instant is not None

        def other(inner: Store, instant: str = instant) -> None:
            run_clustering(inner, instant, clock=clock(later=True))

        with suppress(ConflictError):
            run_clustering(Interrupted(store, at=number, act=other), instant, clock=clock())
        assert rows_of(table) == before
        check(store, table, before)


def test_a_rollback_between_any_two_operations_of_a_run_leaves_nothing_behind() -> None:
    store, table = fresh()
    before = rows_of(table)
    instant = schedule(store)
    assert instant is not None
    counting = FaultyStore(store)
    run_clustering(counting, instant, clock=clock())
    for number in range(len(counting.operations)):
        store, table = fresh()
        instant = schedule(store)
        assert instant is not None

        def other(inner: Store, instant: str = instant) -> None:
            rollback_clustering(inner, instant, clock=clock())

        with suppress(ConflictError, ConfigError):
            run_clustering(Interrupted(store, at=number, act=other), instant, clock=clock())
        assert rows_of(table) == before
        check(store, table, before)


@cache
def rescaled_contents() -> tuple[dict[str, bytes], str]:
    """A table that was given rules after a savepoint."""
    table = orders_table(f"memory://fault-clustering-{next(_numbers)}", buckets=2, table_type="COPY_ON_WRITE")
    table.upsert(orders(range(12), "b", 1))
    savepoint = table.savepoint().instant
    table.buckets.overwrite("p1,1", bucket_number=3)
    table.upsert(orders(range(4, 16), "a", 2))
    files = table.store.list("", recursive=True).files
    return {file.path: table.store.read(file.path) for file in files}, savepoint


@pytest.mark.shows("H2")
@pytest.mark.parametrize("way", ["restore", "overwrite"])
def test_other_rules_between_any_two_operations_of_a_clustering_are_no_damage(way: str) -> None:
    """What a clustering reads may be of two moments then; it gives way, and the table is as sound as before."""
    found, savepoint = rescaled_contents()

    def copy() -> tuple[Store, Table]:
        uri = f"memory://fault-clustering-{next(_numbers)}"
        store = open_store(uri)
        for path, data in found.items():
            store.put(path, data)
        return store, Table.open(uri)

    def change(store: Store) -> None:
        table = Table(store, load_properties(store))
        with suppress(ConflictError, ConfigError):
            if way == "restore":
                table.restore(savepoint)
            else:
                table.buckets.overwrite("p1,4", bucket_number=1)

    counting = FaultyStore(copy()[0])
    cluster_table(counting, by=["name"])
    for number in range(len(counting.operations)):
        store, table = copy()
        with suppress(ConflictError, ConfigError):
            cluster_table(Interrupted(store, at=number, act=change), by=["name"])
        recover(store, load_properties(store), clock=clock(later=True))
        assert not [f for f in check_table(store).findings if not f.kind.is_remains], number
        assert table.to_arrow().num_rows in (12, 16)
