"""A service may be killed at any moment: the rows are the same at every moment, and the next run finishes it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache

import pyarrow as pa
import pytest

from bucketlake import Table
from bucketlake.commit.recovery import recover
from bucketlake.config import load_properties
from bucketlake.errors import ConflictError
from bucketlake.services import (
    Retention,
    clean_table,
    compact_table,
    load_held,
    plan_compaction,
    rollback_compaction,
    run_compaction,
    schedule_compaction,
)
from bucketlake.state import files_of, load_state
from bucketlake.storage import Store, open_store
from bucketlake.testing.faulty_store import FaultyStore, InjectedError
from bucketlake.testing.invariants import check_invariants
from bucketlake.timeline import Action
from bucketlake.write import ArrowRows, Operation, run_write
from stand_ins.orders_table import orders, orders_table, rows_of
from stand_ins.transactions import clock

_numbers = itertools.count()


@cache
def contents() -> dict[str, bytes]:
    """A table with something to compact, to clean, and a partition to end."""
    table = orders_table(f"memory://fault-services-{next(_numbers)}", buckets=1)
    table.upsert(orders(range(4), "a", 1))
    table.upsert(orders(range(1, 5), "b", 2))
    compact_table(table.store)
    table.delete_partitions(["p1"])
    table.delete([2])
    table.upsert(orders([0, 4, 6], "c", 3))
    return {file.path: table.store.read(file.path) for file in table.store.list("", recursive=True).files}


def fresh() -> tuple[Store, Table]:
    uri = f"memory://fault-services-{next(_numbers)}"
    store = open_store(uri)
    for path, data in contents().items():
        store.put(path, data)
    return store, Table.open(uri)


def faults(operations: list[str]) -> Iterator[dict[str, object]]:
    """Every way to fail at every operation; one that only looks has one way to fail."""
    for number, operation in enumerate(operations, 1):
        changes = operation.split()[0] not in {"list", "stat", "read"}
        for took_effect, is_dead in (
            itertools.product((False, True), repeat=2) if changes else [(False, True)]
        ):
            yield {"fails_at": number, "took_effect": took_effect, "is_dead": is_dead}


def schedule(store: Store) -> str | None:
    state = load_state(store)
    plan = plan_compaction(state, files_of(state), load_held(state), now="")
    return schedule_compaction(store, plan, clock=clock())


def schedule_and_run(store: Store) -> None:
    instant = schedule(store)
    if instant is not None:
        run_compaction(store, instant, clock=clock())


def clean_up(store: Store) -> None:
    clean_table(store, retain=Retention(commits=1), clock=clock())


def finish(store: Store) -> None:
    """What the next service process does, later."""
    compact_table(store, clock=clock(later=True))
    clean_table(store, retain=Retention(commits=1), clock=clock(later=True))


def check(store: Store, table: Table, before: pa.Table) -> None:
    assert rows_of(table) == before
    check_invariants(table)
    timeline = load_state(store).timeline
    assert timeline.pending() == ()
    remains = [
        f.path
        for folder in (".temp", ".heartbeat")
        for f in store.list(f".hoodie/{folder}", recursive=True).files
    ]
    assert remains == []
    assert all(not part.log_files for p in table.layout().partitions for part in p.slices), "compacted"
    assert not store.list("p1").files, "cleaned"
    completed = [
        f.path.rpartition("/")[2]
        for f in store.list(".hoodie/timeline").files
        if "_" in f.path.rpartition("/")[2]
    ]
    instants = [name.partition("_")[0] for name in completed]
    assert len(instants) == len(set(instants)), "an instant completes once"


@pytest.mark.parametrize("service", [schedule_and_run, clean_up], ids=["compaction", "clean"])
def test_a_service_that_is_cut_off_anywhere_is_finished_by_the_next(service: Callable[[Store], None]) -> None:
    store, table = fresh()
    counting = FaultyStore(store)
    service(counting)
    before = rows_of(table)
    assert len(counting.operations) > 20
    for fault in faults(counting.operations):
        store, table = fresh()
        with suppress(InjectedError):
            service(FaultyStore(store, **fault))  # type: ignore[arg-type] # three keywords
        assert rows_of(table) == before, "readers never see a thing"
        recover(store, load_properties(store), clock=clock(later=True))
        finish(store)
        recover(store, load_properties(store), clock=clock(later=True))
        check(store, table, before)


def test_a_rollback_of_a_compaction_that_is_cut_off_anywhere_is_finished_by_the_next_recovery() -> None:
    def halfway() -> tuple[Store, Table, str]:
        store, table = fresh()
        instant = schedule(store)
        assert instant is not None

        def failing(function, items):  # type: ignore[no-untyped-def] # a parallel map
            function(items[0])
            raise InjectedError("an executor died")

        with pytest.raises(InjectedError):
            run_compaction(store, instant, tasks=failing, clock=clock())
        return store, table, instant

    store, table, instant = halfway()
    before = rows_of(table)
    counting = FaultyStore(store)
    rollback_compaction(counting, instant, clock=clock())
    for fault in faults(counting.operations):
        store, table, instant = halfway()
        with suppress(InjectedError):
            faulty = FaultyStore(store, **fault)  # type: ignore[arg-type] # three keywords
            rollback_compaction(faulty, instant, clock=clock())
        recover(store, load_properties(store), clock=clock(later=True))
        timeline = load_state(store).timeline
        assert timeline.pending(Action.ROLLBACK) == ()
        assert [i.requested for i in timeline.pending()] == [instant], "the plan stands"
        assert rows_of(table) == before
        finish(store)
        recover(store, load_properties(store), clock=clock(later=True))
        check(store, table, before)


class Interrupted(FaultyStore):
    """Lets somebody else act before its n-th operation."""

    def __init__(self, inner: Store, *, at: int, act: Callable[[Store], object]) -> None:
        super().__init__(inner)
        self.at = at
        self.act = act

    def _do(self, what, act):  # type: ignore[no-untyped-def] # as its parent
        if len(self.operations) == self.at:
            self.act(self.inner)
        return super()._do(what, act)


def test_a_write_between_any_two_operations_of_a_compaction_is_never_lost() -> None:
    """Neither under the new base file, nor twice."""

    def write(store: Store) -> None:
        Table.open(store.uri).upsert(orders([0, 8], "in between", 9))

    store, table = fresh()
    counting = FaultyStore(store)
    schedule_and_run(counting)
    write(store)
    expected = rows_of(table).select(["id", "name", "ts", "dt"])
    for number in range(len(counting.operations)):
        store, table = fresh()
        schedule_and_run(Interrupted(store, at=number, act=write))
        assert rows_of(table).select(["id", "name", "ts", "dt"]) == expected
        check_invariants(table)


def test_a_compaction_between_any_two_operations_of_a_write_loses_nothing() -> None:
    """A schedule, or a whole one. The write may be refused; then nothing of it is there."""
    for act in (schedule, schedule_and_run):
        store, table = fresh()
        counting = FaultyStore(store)
        upsert_through(counting)
        number_of_operations = len(counting.operations)
        expected = rows_of(table).select(["id", "name", "ts", "dt"])
        without = rows_of(fresh()[1]).select(["id", "name", "ts", "dt"])
        outcomes = set()
        for number in range(number_of_operations):
            store, table = fresh()
            try:
                upsert_through(Interrupted(store, at=number, act=act))
                is_written = True
            except ConflictError:
                is_written = False
            found = rows_of(table).select(["id", "name", "ts", "dt"])
            assert found == (expected if is_written else without)
            check_invariants(table)
            compact_table(store, clock=clock(later=True))
            assert rows_of(table).select(["id", "name", "ts", "dt"]) == found
            outcomes.add(is_written)
        assert True in outcomes


def upsert_through(store: Store, keys: tuple[int, ...] = (0, 8)) -> None:
    run_write(ArrowRows(orders(keys, "in between", 9)), store, Operation.UPSERT)


def test_a_clean_and_a_write_between_any_two_operations_of_each_other_get_along() -> None:
    """The write goes to the partition that the clean is about to end."""
    into_p1 = (1, 3)
    for first, second in (
        (clean_up, lambda store: upsert_through(store, into_p1)),
        (lambda store: upsert_through(store, into_p1), clean_up),
    ):
        store, _ = fresh()
        counting = FaultyStore(store)
        first(counting)
        second(store)
        for number in range(len(counting.operations)):
            store, table = fresh()
            first(Interrupted(store, at=number, act=second))
            found = rows_of(table)
            assert {1, 3} <= set(found.column("id").to_pylist())
            check_invariants(table)
            clean_up(store)
            assert rows_of(table) == found


def test_two_runs_of_one_compaction_interleaved_at_every_operation_agree() -> None:
    store, table = fresh()
    before = rows_of(table)
    instant = schedule(store)
    assert instant is not None
    counting = FaultyStore(store)
    run_compaction(counting, instant, clock=clock())
    for number in range(len(counting.operations)):
        store, table = fresh()
        instant = schedule(store)
        assert instant is not None

        def other(inner: Store, instant: str = instant) -> None:
            run_compaction(inner, instant, clock=clock(later=True))

        with suppress(ConflictError):
            run_compaction(Interrupted(store, at=number, act=other), instant, clock=clock())
        assert rows_of(table) == before
        recover(store, load_properties(store), clock=clock(later=True))
        finish(store)
        recover(store, load_properties(store), clock=clock(later=True))
        check(store, table, before)
