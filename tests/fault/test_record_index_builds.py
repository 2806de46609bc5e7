"""A record-level index is built, cut off at every request, built again: whoever looks finds none, or a right one."""

from __future__ import annotations

import itertools
from contextlib import suppress

import pytest

from bucketlake import RecordIndex, SimpleBuckets
from bucketlake.errors import ConcurrentWriteError, ConflictError
from bucketlake.services.record_index_build import build_record_index, grow_record_index
from bucketlake.state import load_state
from bucketlake.storage import Store
from bucketlake.testing.faulty_store import FaultyStore, InjectedError
from stand_ins.actors import Actor, Task, processes_without_clocks
from stand_ins.aging import Bucket, age, copy_of
from stand_ins.built_index import CountedTasks, check_built, filled, is_index_listed, table_of
from stand_ins.metadata_check import check_metadata
from stand_ins.orders_table import orders

pytestmark = pytest.mark.shows("X8", "X2")

INDEX = RecordIndex(shards=2)


@pytest.fixture(scope="module")
def made() -> Bucket:
    return filled(SimpleBuckets(1))


def changes_of(counting: FaultyStore) -> list[int]:
    return [
        number
        for number, what in enumerate(counting.operations, 1)
        if what.split()[0] not in {"list", "stat", "read"}
    ]


def test_cut_off_at_any_request_the_next_does_only_the_rest(made: Bucket) -> None:
    counting, all_tasks = FaultyStore(copy_of(made)), CountedTasks()
    build_record_index(counting, INDEX, tasks=all_tasks)
    assert len(all_tasks.done) == 2 + 2
    for number, took_effect in itertools.product(changes_of(counting), (False, True)):
        store, first, second = copy_of(made), CountedTasks(), CountedTasks()
        with suppress(InjectedError):  # whoever cannot give the lock back has done his work
            faulty = FaultyStore(store, fails_at=number, took_effect=took_effect, is_dead=True)
            build_record_index(faulty, INDEX, tasks=first)
        age(store)
        is_there = is_index_listed(store)
        assert (build_record_index(store, INDEX, tasks=second) is None) == is_there
        assert not set(first.done) & set(second.done), number
        # What was put, and nobody was told of, need not be done again either.
        assert len({*all_tasks.done} - {*first.done, *second.done}) <= took_effect, number
        assert check_built(store) == 28, number
        table_of(store).upsert(orders([100, 3], "c", 9))
        assert check_built(store) == 30 and check_metadata(store)


def test_cut_off_and_written_to_before_it_goes_on(made: Bucket) -> None:
    counting = FaultyStore(copy_of(made))
    build_record_index(counting, INDEX)
    for number in changes_of(counting)[::2]:
        store = copy_of(made)
        with suppress(InjectedError):
            build_record_index(FaultyStore(store, fails_at=number, is_dead=True), INDEX)
        age(store)
        table_of(store).upsert(orders([100, 3], "c", 9))
        table_of(store).delete([10, 11])
        table_of(store).compact()
        build_record_index(store, INDEX)
        assert check_built(store) == 28, number
        assert check_metadata(store)


def test_a_table_that_needs_it_is_never_written_without(made: Bucket) -> None:
    before = filled(RecordIndex(shards=2))
    table_of(before).metadata.build()
    counting = FaultyStore(copy_of(before))
    grow_record_index(counting, 3)
    for number in changes_of(counting)[::2]:
        store = copy_of(before)
        with suppress(InjectedError):
            grow_record_index(FaultyStore(store, fails_at=number, is_dead=True), 3)
        age(store)
        if is_index_listed(store):
            assert check_built(store) == 28, number
        table_of(store).metadata.build()
        assert check_built(store) == 28, number
        table_of(store).upsert(orders([100, 3], "c", 9))
        assert check_built(store) == 30, number


@pytest.mark.parametrize("other", ["build", "upsert", "rollback", "drop"])
def test_wherever_another_is_in_between_what_is_listed_is_right(made: Bucket, other: str) -> None:
    """One goes on for some requests, then the other does all of its own; both orders."""

    def build(store: Store) -> object:
        return build_record_index(store, INDEX)

    acts = {
        "build": build,
        "upsert": lambda store: table_of(store).upsert(orders([1, 50], "w", 9)),
        "rollback": lambda store: table_of(store).rollback(load_state(store).timeline.writes[-1].requested),
        "drop": lambda store: table_of(store).metadata.drop(record_index=True),
    }
    with processes_without_clocks():
        for first, second in (("build", other), (other, "build")):
            counting = FaultyStore(copy_of(made))
            acts[first](counting)
            for number in range(1, len(counting.operations), 7):
                store = copy_of(made)
                actors = [Actor(store, Task(name, acts[name])) for name in (first, second)]
                actors[0].step(number)
                actors[1].step(3_000)
                if is_index_listed(store):
                    check_built(store)
                actors[0].step(3_000)
                assert all(actor.is_over for actor in actors)
                for actor in actors:
                    assert actor.task.error is None or isinstance(
                        actor.task.error, ConflictError | ConcurrentWriteError
                    ), (first, second, number, actor.task.error)
                table_of(store).upsert(orders([2, 60], "z", 20))
                if is_index_listed(store):
                    check_built(store)
                check_metadata(store)
