"""A writer may be killed at any moment: afterwards the table is as before, or as after, and never between.

Every operation on the store is one such moment, before it or after it. `FaultyStore` numbers them.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace

import pytest

from bucketlake import Table
from bucketlake.commit.operation import Operation
from bucketlake.commit.recovery import recover
from bucketlake.commit.transaction import Transaction, abort, begin
from bucketlake.config import TableProperties, load_properties
from bucketlake.errors import ConflictError
from bucketlake.layout.names import CLAIM_FOLDER
from bucketlake.state import files_of, load_state
from bucketlake.storage import MemoryStore, Store
from bucketlake.testing.faulty_store import FaultyStore, InjectedError
from bucketlake.timeline import Action, load_timeline, read_commit_metadata
from stand_ins.orders_table import orders, orders_table
from stand_ins.transactions import clock, table_with_rows, write, write_file

_names = itertools.count()


@dataclass(frozen=True)
class Contents:
    """What a table holds: for readers, and left behind."""

    data: dict[str, bytes]
    """Data files and partition metadata."""
    commits: tuple[tuple[str, str], ...]
    """The action of every completed write, with the bodies of its stats."""
    remains: tuple[str, ...]
    """Markers, heartbeats, pending instants, backups: nothing of it should be."""


def contents(store: Store) -> Contents:
    properties = load_properties(store)
    timeline = load_timeline(store, properties)
    files = [file.path for file in store.list("", recursive=True).files]
    pending = {instant.path for instant in timeline.pending()}
    commits = tuple(
        (
            instant.action,
            ",".join(sorted(stat.path for stat in read_commit_metadata(store, instant).write_stats)),
        )
        for instant in timeline.writes
    )
    temporary = (".hoodie/.temp/", ".hoodie/.heartbeat/")
    return Contents(
        data={path: store.read(path) for path in files if not path.startswith(".hoodie/")},
        commits=commits,
        remains=tuple(path for path in files if path.startswith(temporary) or path in pending),
    )


def check_whole(store: Store, before: Contents) -> bool:
    """The table is exactly as before, or has exactly one whole commit more; return whether it has."""
    now = contents(store)
    assert now.remains == ()
    named = {path for _, paths in now.commits for path in paths.split(",") if path}
    data = {path for path in now.data if path.endswith(".parquet")}
    assert data == named, "every data file is of a commit, and every one a commit names is there"
    if now.commits == before.commits:
        assert now.data == before.data
        return False
    assert now.commits[:-1] == before.commits
    assert len(now.commits[-1][1].split(",")) == 2
    return True


def recover_later(store: Store) -> None:
    """Let the next two writers clean up: the second finds the markers that the first one's rollback left."""
    for _ in range(2):
        recover(store, load_properties(store), clock=clock(later=True))


def faults(operations: int) -> Iterator[dict[str, object]]:
    for number in range(1, operations + 1):
        for took_effect in (False, True):
            for is_dead in (False, True):
                yield {"fails_at": number, "took_effect": took_effect, "is_dead": is_dead}


OPERATIONS = [Operation.UPSERT, Operation.INSERT_OVERWRITE]


@pytest.mark.shows("X2")
@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_write_that_is_cut_off_anywhere_is_whole_or_gone(operation: Operation) -> None:
    counting = FaultyStore(table_with_rows())
    write(counting, ["a", "b"], operation)
    outcomes = set()
    for fault in faults(len(counting.operations)):
        store = table_with_rows()
        before = contents(store)
        failed = False
        try:
            write(FaultyStore(store, **fault), ["a", "b"], operation)  # type: ignore[arg-type] # three keywords
        except InjectedError:
            failed = True
        recover_later(store)
        is_committed = check_whole(store, before)
        assert failed or is_committed, "a write that reports success is there"
        outcomes.add((failed, is_committed))
        assert str(recover(store, load_properties(store), clock=clock(later=True))) == "nothing to recover"
        recovered = contents(store)
        write(store, ["a", "b"], operation)
        assert check_whole(store, recovered), "and the table can be written as ever"
    assert outcomes >= {(True, False), (True, True)}


@pytest.mark.shows("X2")
def test_an_abort_that_is_cut_off_anywhere_leaves_nothing_after_recovery() -> None:
    def failing() -> tuple[MemoryStore, Contents, Transaction]:
        store = table_with_rows()
        before = contents(store)
        transaction, _ = begin(store, operation=Operation.UPSERT, clock=clock())
        write_file(transaction, "a", 1)
        write_file(transaction, "b", 1)
        return store, before, transaction

    store, before, transaction = failing()
    counting = FaultyStore(store)
    abort(_on(transaction, counting))
    assert replace(contents(store), remains=()) == before
    for fault in faults(len(counting.operations)):
        store, before, transaction = failing()
        with suppress(InjectedError):
            abort(_on(transaction, FaultyStore(store, **fault)))  # type: ignore[arg-type] # three keywords
        recover_later(store)
        assert contents(store) == before


def _on(transaction: Transaction, store: Store) -> Transaction:
    return replace(transaction, store=store)


def _dead_writer(store: Store, *, claimed: bool) -> None:
    """A writer that was killed in the middle of its files, or between claim and publication."""
    if not claimed:
        transaction, _ = begin(store, operation=Operation.INSERT_OVERWRITE, clock=clock())
        write_file(transaction, "a", 1)
        write_file(transaction, "b", 1)
        return
    dying = _DiesAfterClaim(store)
    with pytest.raises(InjectedError):
        write(dying, ["a", "b"], Operation.UPSERT)


class _DiesAfterClaim(FaultyStore):
    def put_new(self, path: str, data: object) -> bool:
        done = super().put_new(path, data)  # type: ignore[arg-type] # passed on
        if path.startswith(CLAIM_FOLDER):
            self._fails_at = len(self.operations) + 1
            self._is_dead = True
        return done


@pytest.mark.shows("X2")
@pytest.mark.parametrize("claimed", [False, True])
def test_a_recovery_that_is_cut_off_anywhere_is_finished_by_the_next(claimed: bool) -> None:
    store = table_with_rows()
    _dead_writer(store, claimed=claimed)
    counting = FaultyStore(store)
    recover(counting, load_properties(store), clock=clock(later=True))
    for fault in faults(len(counting.operations)):
        store = table_with_rows()
        before = contents(store)
        _dead_writer(store, claimed=claimed)
        with suppress(InjectedError):
            recover(
                FaultyStore(store, **fault),  # type: ignore[arg-type] # three keywords
                load_properties(store),
                clock=clock(later=True),
            )
        recover_later(store)
        assert check_whole(store, before) is claimed
        timeline = load_timeline(store, load_properties(store))
        assert len(timeline.completed(Action.ROLLBACK)) == (0 if claimed else 1)


def test_two_recoveries_interleaved_at_every_operation_agree() -> None:
    """One is stopped after its n-th operation, another runs through, then the first goes on."""

    class Interrupted(FaultyStore):
        def __init__(self, inner: Store, *, at: int, properties: TableProperties) -> None:
            super().__init__(inner)
            self.at = at
            self.properties = properties

        def _do(self, what, act):  # type: ignore[no-untyped-def] # as its parent
            if len(self.operations) == self.at:
                recover(self.inner, self.properties, clock=clock(later=True))
            return super()._do(what, act)

    store = table_with_rows()
    _dead_writer(store, claimed=False)
    counting = FaultyStore(store)
    recover(counting, load_properties(store), clock=clock(later=True))
    for number in range(len(counting.operations)):
        store = table_with_rows()
        before = contents(store)
        _dead_writer(store, claimed=False)
        properties = load_properties(store)
        recover(Interrupted(store, at=number, properties=properties), properties, clock=clock(later=True))
        recover_later(store)
        assert check_whole(store, before) is False
        timeline = load_timeline(store, properties)
        assert (
            len(
                [
                    i
                    for i in store.list(properties.timeline_folder).files
                    if "_" in i.path and "rollback" in i.path
                ]
            )
            == 1
        )
        assert len(timeline.completed(Action.ROLLBACK)) == 1


def test_a_writer_taken_for_dead_at_any_moment_of_its_commit_loses_or_wins_but_never_half() -> None:
    """Its clock stood still; a recoverer comes between any two of its operations."""

    class Overtaken(FaultyStore):
        def __init__(self, inner: Store, *, at: int) -> None:
            super().__init__(inner)
            self.at = at

        def _do(self, what, act):  # type: ignore[no-untyped-def] # as its parent
            if len(self.operations) == self.at:
                recover(self.inner, load_properties(self.inner), clock=clock(later=True))
            return super()._do(what, act)

    counting = FaultyStore(table_with_rows())
    write(counting, ["a", "b"], Operation.UPSERT)
    outcomes = set()
    for number in range(len(counting.operations)):
        store = table_with_rows()
        before = contents(store)
        try:
            write(Overtaken(store, at=number), ["a", "b"], Operation.UPSERT)
            committed = True
        except ConflictError:
            committed = False
        recover_later(store)
        assert check_whole(store, before) is committed
        outcomes.add(committed)
    assert outcomes == {True, False}


def test_a_loaded_state_sees_only_whole_commits_at_every_operation_of_a_write() -> None:
    """A reader between any two operations sees the table as before, or as after."""

    class Watched(FaultyStore):
        def _do(self, what, act):  # type: ignore[no-untyped-def] # as its parent
            state = load_state(self.inner)
            view = {
                f.path for fs in files_of(state).values() for f in fs if state.view.is_committed(f.instant)
            }
            seen.append(frozenset(view))
            return super()._do(what, act)

    seen: list[frozenset[str]] = []
    store = table_with_rows()
    write(Watched(store), ["a", "b"], Operation.UPSERT)
    assert len(set(seen)) == 2
    assert {len(view) for view in seen} == {1, 3}


@pytest.mark.shows("X2")
@pytest.mark.parametrize("table_type", ["COPY_ON_WRITE", "MERGE_ON_READ"])
def test_a_write_is_not_hidden_by_one_that_drew_its_time_later_and_was_faster(table_type: str) -> None:
    """Readers go by the times in file names: who builds on a file of a later time must draw another for itself."""

    def fresh() -> Table:
        table = orders_table(f"memory://faster-{table_type}-{next(_names)}", table_type=table_type, buckets=1)
        table.upsert(orders(range(0, 6, 2), "first", 1))
        return table

    counting = FaultyStore(fresh().store)
    Table(counting, load_properties(counting)).upsert(orders([0, 2], "ours", 3))
    begun = next(n for n, what in enumerate(counting.operations, 1) if ".marker." in what)
    for number in range(1, begun):
        table = fresh()

        def other(store: Store) -> None:
            Table(store, load_properties(store)).upsert(orders([4], "other", 9))

        held_up = FaultyStore(table.store, fails_at=number, meanwhile=other)
        Table(held_up, load_properties(table.store)).upsert(orders([0, 2], "ours", 3))
        names = {row["id"]: row["name"] for row in table.to_arrow().to_pylist()}
        assert names == {0: "ours 0", 2: "ours 2", 4: "other 4"}, counting.operations[number - 1]
