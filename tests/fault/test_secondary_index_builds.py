"""A secondary index is built or dropped, cut off at every request, built again: whoever looks finds none, or a right
one; and whoever writes meanwhile is told to it."""

from __future__ import annotations

import itertools
from contextlib import suppress

import pytest

from bucketlake import SimpleBuckets
from bucketlake.config import load_properties
from bucketlake.errors import ConcurrentWriteError, ConfigError, ConflictError
from bucketlake.metadata.secondary_index import SecondaryIndexDefinition
from bucketlake.services.secondary_index_build import build_secondary_index
from bucketlake.state import load_state
from bucketlake.storage import Store
from bucketlake.testing.faulty_store import FaultyStore, InjectedError
from stand_ins.actors import Actor, Task, processes_without_clocks
from stand_ins.aging import Bucket, age, copy_of
from stand_ins.built_index import CountedTasks, filled, table_of
from stand_ins.made_index import check_secondary
from stand_ins.metadata_check import check_metadata
from stand_ins.orders_table import orders

pytestmark = pytest.mark.shows("R11", "X2")

BY_NAME = SecondaryIndexDefinition("by_name", "name")


@pytest.fixture(scope="module")
def made() -> Bucket:
    store = filled(SimpleBuckets(1))
    table_of(store).metadata.build(record_index=True)
    return store


def changes_of(counting: FaultyStore) -> list[int]:
    return [
        number
        for number, what in enumerate(counting.operations, 1)
        if what.split()[0] not in {"list", "stat", "read"}
    ]


def build(store: Store, tasks: CountedTasks | None = None) -> object:
    return build_secondary_index(store, BY_NAME, 2, tasks=tasks or CountedTasks())


def drop(store: Store) -> object:
    return table_of(store).drop_index("by_name")


def is_listed(store: Store) -> bool:
    return BY_NAME.partition in load_properties(store).metadata_partitions


def check(store: Store, at: object) -> None:
    assert is_listed(store), at
    check_secondary(table_of(store))
    assert check_metadata(store), at


def test_cut_off_at_any_request_the_next_does_only_the_rest(made: Bucket) -> None:
    counting, all_tasks = FaultyStore(copy_of(made)), CountedTasks()
    build(counting, all_tasks)
    assert len(all_tasks.done) == 2 + 2
    for number, took_effect in itertools.product(changes_of(counting), (False, True)):
        store, first, second = copy_of(made), CountedTasks(), CountedTasks()
        with suppress(InjectedError):  # whoever cannot give the lock back has done his work
            build(FaultyStore(store, fails_at=number, took_effect=took_effect, is_dead=True), first)
        age(store)
        if not is_listed(store):
            table_of(store).upsert(orders([100, 3], "b", 9)) if number % 3 == 0 else None
            assert build(store, second) is not None
            if number % 3:
                assert not set(first.done) & set(second.done), number
                # What was put, and nobody was told of, need not be done again either.
                assert len({*all_tasks.done} - {*first.done, *second.done}) <= took_effect, number
        check(store, number)
        table_of(store).upsert(orders([101, 4], "c", 10))
        table_of(store).delete([5])
        check(store, number)


def test_dropped_and_cut_off_at_any_request_it_is_there_or_can_be_dropped_or_built_again(
    made: Bucket,
) -> None:
    before = copy_of(made)
    build(before)
    counting = FaultyStore(copy_of(before))
    drop(counting)
    for number, took_effect in itertools.product(changes_of(counting), (False, True)):
        store = copy_of(before)
        with suppress(InjectedError):
            drop(FaultyStore(store, fails_at=number, took_effect=took_effect, is_dead=True))
        age(store)
        if is_listed(store):
            check(store, number)
        table_of(store).upsert(orders([100, 3], "c", 9))
        if number % 2:
            with suppress(ConfigError):  # it is gone whole
                drop(store)
            assert not table_of(store).indexes(), number
        if not is_listed(store):
            build(store)
        check(store, number)


@pytest.mark.parametrize("other", ["build", "upsert", "rollback", "drop", "grow"])
def test_wherever_another_is_in_between_what_is_listed_is_right(made: Bucket, other: str) -> None:
    """One goes on for some requests, then the other does all of its own; both orders."""
    acts = {
        "mine": build,
        "build": build,
        "upsert": lambda store: table_of(store).upsert(orders([1, 50], "w", 9)),
        "rollback": lambda store: table_of(store).rollback(load_state(store).timeline.writes[-1].requested),
        "drop": drop,
        "grow": lambda store: table_of(store).metadata.grow_record_index(3),
    }
    expected = ConflictError | ConcurrentWriteError | ConfigError
    with processes_without_clocks():
        for first, second in (("mine", other), (other, "mine")):
            counting = FaultyStore(copy_of(made))
            with suppress(ConfigError):
                acts[first](counting)
            for number in range(1, len(counting.operations), 11):
                store = copy_of(made)
                actors = [Actor(store, Task(name, acts[name])) for name in (first, second)]
                actors[0].step(number)
                actors[1].step(5_000)
                if is_listed(store):
                    check_secondary(table_of(store))
                actors[0].step(5_000)
                assert all(actor.is_over for actor in actors)
                for actor in actors:
                    error = actor.task.error
                    assert error is None or isinstance(error, expected), (first, second, number, error)
                table_of(store).upsert(orders([2, 60], "z", 20))
                if not is_listed(store):
                    table_of(store).metadata.build(record_index=True)
                if not is_listed(store):
                    build(store)
                check(store, (first, second, number))
