"""Archive, rollback and restore may be killed at any moment: nothing is lost, doubled, or left between.

Every operation on the store is one such moment, before it or after it. `FaultyStore` numbers them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass

import pytest

from bucketlake.commit.operation import Operation
from bucketlake.commit.recovery import recover
from bucketlake.config import load_properties
from bucketlake.services.archive import archive_table
from bucketlake.services.rollback import look_for_rollback, run_rollback
from bucketlake.services.savepoint import (
    create_savepoint,
    delete_savepoint,
    list_savepoints,
    look_for_restore,
    run_restore,
)
from bucketlake.state import files_of, load_state
from bucketlake.storage import MemoryStore, Store
from bucketlake.testing.faulty_store import FaultyStore, InjectedError
from bucketlake.timeline import Action, load_history, load_timeline
from bucketlake.timeline.history import history_files
from stand_ins.transactions import clock, new_table, write


@dataclass(frozen=True)
class Seen:
    """What a reader sees, and what a dead process left."""

    files: frozenset[str]
    commits: tuple[str, ...]
    remains: tuple[str, ...]


def seen(store: Store) -> Seen:
    state = load_state(store)
    present = [file for files in files_of(state).values() for file in files]
    temporary = (".hoodie/.temp/", ".hoodie/.heartbeat/")
    files = [file.path for file in store.list("", recursive=True).files]
    pending = {i.path for i in state.timeline.pending()}
    archived = [a.requested for a in load_history(store, state.properties) if a.action is Action.COMMIT]
    return Seen(
        frozenset(file.path for file in present if state.view.is_committed(file.instant)),
        tuple(sorted({*archived, *(i.requested for i in state.timeline.writes)})),
        tuple(path for path in files if path.startswith(temporary) or path in pending),
    )


def hidden(store: Store) -> list[str]:
    """Data files that no reader sees: they would come to light when archiving passes them."""
    state = load_state(store)
    present = [file for files in files_of(state).values() for file in files]
    return [file.path for file in present if not state.view.is_committed(file.instant)]


def faults(operations: int) -> Iterator[dict[str, object]]:
    for number in range(1, operations + 1):
        for took_effect in (False, True):
            yield {"fails_at": number, "took_effect": took_effect, "is_dead": True}


def table_of(writes: int) -> MemoryStore:
    store = new_table()
    for number in range(writes):
        write(store, ["a", "b"] if number % 2 else ["a"], Operation.UPSERT)
    return store


def cut_off_everywhere(
    make: Callable[[], MemoryStore], act: Callable[[Store], object]
) -> Iterator[MemoryStore]:
    """Run `act` until its n-th operation, for every n, and yield what that leaves."""
    counting = FaultyStore(make())
    act(counting)
    for fault in faults(len(counting.operations)):
        store = make()
        with suppress(InjectedError):
            act(FaultyStore(store, **fault))  # type: ignore[arg-type] # three keywords
        yield store


def recover_later(store: Store) -> None:
    for _ in range(2):
        recover(store, load_properties(store), clock=clock(later=True))


@pytest.mark.shows("X2")
def test_an_archive_that_is_cut_off_anywhere_hides_and_doubles_nothing_and_is_finished_by_the_next() -> None:
    whole = table_of(6)
    before = seen(whole)
    for store in cut_off_everywhere(
        lambda: copy_of(whole), lambda s: archive_table(s, keep_min=2, keep_max=3, clock=clock())
    ):
        assert seen(store) == before
        archive_table(store, keep_min=2, keep_max=3, clock=clock(later=True))
        assert seen(store) == before
        properties = load_properties(store)
        assert [i.requested for i in load_timeline(store, properties).writes] == list(before.commits[-2:])
        archived = [a.requested for a in load_history(store, properties)]
        assert archived == list(before.commits[:-2])
        assert len(history_files(store, properties)) == 1, "written once"


@pytest.mark.shows("X2")
def test_a_merge_of_history_layers_that_is_cut_off_anywhere_loses_no_instant() -> None:
    whole = table_of(3)
    properties = load_properties(whole)
    while len(history_files(whole, properties)) < 9:
        archive_table(whole, keep_min=1, keep_max=2, clock=clock())
        write(whole, ["a"], Operation.UPSERT)
    write(whole, ["a"], Operation.UPSERT)
    before = seen(whole)
    for store in cut_off_everywhere(
        lambda: copy_of(whole), lambda s: archive_table(s, keep_min=1, keep_max=2, clock=clock())
    ):
        assert seen(store) == before
        archive_table(store, keep_min=1, keep_max=2, clock=clock(later=True))
        assert seen(store) == before
        (merged,) = history_files(store, properties)
        assert merged.endswith("_1.parquet")


@pytest.mark.shows("X2")
def test_a_rollback_of_a_commit_that_is_cut_off_anywhere_is_before_or_after() -> None:
    whole = table_of(3)
    before = seen(whole)
    newest = before.commits[-1]

    def act(store: Store) -> None:
        order = look_for_rollback(load_state(store), newest, clock=clock())
        run_rollback(order, store, clock=clock())

    after_store = copy_of(whole)
    act(after_store)
    after = seen(after_store)
    assert after.commits == before.commits[:-1]
    outcomes = set()
    for store in cut_off_everywhere(lambda: copy_of(whole), act):
        recover_later(store)
        now = seen(store)
        assert now in (before, after)
        assert hidden(store) == []
        outcomes.add(now == after)
        write(store, ["a"], Operation.UPSERT)
    assert outcomes == {True, False}


@pytest.mark.shows("X2")
def test_a_restore_that_is_cut_off_anywhere_is_before_or_after() -> None:
    whole = table_of(2)
    kept = create_savepoint(whole, clock=clock()).instant
    for _ in range(2):
        write(whole, ["a", "c"], Operation.UPSERT)
    before = seen(whole)

    def act(store: Store) -> None:
        run_restore(look_for_restore(load_state(store), kept), store, clock=clock())

    after_store = copy_of(whole)
    act(after_store)
    after = seen(after_store)
    assert after.commits == before.commits[:2]
    assert "c/.hoodie_partition_metadata" not in {f.path for f in after_store.list("", recursive=True).files}
    outcomes = set()
    for store in cut_off_everywhere(lambda: copy_of(whole), act):
        recover_later(store)
        now = seen(store)
        assert now in (before, after)
        assert hidden(store) == []
        outcomes.add(now == after)
        write(store, ["a"], Operation.UPSERT)
    assert outcomes == {True, False}


def test_a_savepoint_that_is_cut_off_anywhere_is_there_or_not_and_can_be_made_again() -> None:
    whole = table_of(1)
    (instant,) = seen(whole).commits
    for store in cut_off_everywhere(lambda: copy_of(whole), lambda s: create_savepoint(s, clock=clock())):
        if not list_savepoints(load_state(store)):
            create_savepoint(store, clock=clock(later=True))
        assert [s.instant for s in list_savepoints(load_state(store))] == [instant]

    create_savepoint(whole, clock=clock())
    for store in cut_off_everywhere(
        lambda: copy_of(whole), lambda s: delete_savepoint(s, instant, clock=clock())
    ):
        if list_savepoints(load_state(store)):
            delete_savepoint(store, instant, clock=clock(later=True))
        assert load_state(store).timeline.pending() == ()


def copy_of(store: MemoryStore) -> MemoryStore:
    made = MemoryStore()
    for file in store.list("", recursive=True).files:
        made.put(file.path, store.read(file.path))
    return made
