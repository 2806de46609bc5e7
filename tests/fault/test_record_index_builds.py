"""A record-level index is built, cut off at every request, built again: whoever looks finds none, or a right one."""

from __future__ import annotations

import itertools
from contextlib import suppress
from typing import Any

import pytest

from bucketlake import RecordIndex, SimpleBuckets
from bucketlake.commit.locks import OBJECT_LOCK_PATH
from bucketlake.errors import ConcurrentWriteError, ConflictError
from bucketlake.layout.names import split_path
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


@pytest.mark.parametrize("index", [RecordIndex(shards=2), RecordIndex(per_partition=True)], ids=str)
def test_cut_off_while_it_grows_the_old_shards_count_or_the_new_ones(index: RecordIndex) -> None:
    before = filled(index)
    table_of(before).metadata.build()
    counting = FaultyStore(copy_of(before))
    grow_record_index(counting, 3)
    ways_on = itertools.cycle([
        lambda store: table_of(store).metadata.build(),
        lambda store: table_of(store).metadata.grow_record_index(3),
        lambda store: table_of(store).metadata.grow_record_index(index.shard_count),
    ])  # fmt: skip
    for number, took_effect in itertools.product(changes_of(counting), (False, True)):
        store = copy_of(before)
        with suppress(InjectedError):
            faulty = FaultyStore(store, fails_at=number, took_effect=took_effect, is_dead=True)
            grow_record_index(faulty, 3)
        age(store)
        assert check_built(store) == 28, number
        table_of(store).upsert(orders([100, 3], "c", 9))
        table_of(store).delete([10])
        assert check_built(store) == 29, number
        next(ways_on)(store)
        assert is_index_listed(store) and check_built(store) == 29, number
        table_of(store).upsert(orders([101, 10, 12], "d", 9))
        assert check_built(store) == 31 and check_metadata(store), number


@pytest.mark.parametrize("shards", [5, 1])
def test_a_writer_commits_between_any_two_requests_of_a_growth(shards: int) -> None:
    before = filled(RecordIndex(shards=2))
    table_of(before).metadata.build()
    counting = FaultyStore(copy_of(before))
    grow_record_index(counting, shards)

    def write(store: Store) -> None:
        table_of(store).upsert(orders([100, 3, 12], "c", 9))

    with processes_without_clocks():
        for number in range(1, len(counting.operations), 3):
            store = copy_of(before)
            grower = Actor(store, Task("grow", lambda store: grow_record_index(store, shards)))
            grower.step(number)
            is_locked = _is_locked(store)
            writer = Actor(store, Task("write", write))
            writer.step(3_000)
            if not is_locked:
                assert writer.task.error is None, (number, writer.task.error)
            grower.step(3_000)
            assert grower.is_over and grower.task.error is None, (number, grower.task.error)
            if writer.task.error is not None:
                assert isinstance(writer.task.error, ConflictError | ConcurrentWriteError), number
                write(store)
            assert is_index_listed(store) and check_built(store) == 30, number
            check_metadata(store)


@pytest.mark.parametrize("asked", [5, 2], ids=["another growth", "giving it up"])
def test_a_writer_is_overtaken_by_a_growth_between_any_two_of_its_requests(asked: int) -> None:
    before = filled(RecordIndex(shards=2))
    table_of(before).metadata.build()

    def write(store: Store) -> None:
        table_of(store).upsert(orders([100, 3, 12], "c", 9))
        table_of(store).delete([12])

    counting = FaultyStore(copy_of(before))
    write(counting)
    with processes_without_clocks():
        for number in range(1, len(counting.operations), 4):
            store = copy_of(before)
            cut = 0 if number % 8 == 1 else 1  # begun while the index is listed, or while it grows already
            if cut:
                _grown_half(store, 4)
            writer = Actor(store, Task("write", write))
            writer.step(number)
            grower = Actor(store, Task("grow", lambda store: grow_record_index(store, asked)))
            grower.step(5_000)
            writer.step(5_000)
            assert writer.is_over and grower.is_over
            for actor in (writer, grower):
                error = actor.task.error
                assert error is None or isinstance(error, ConflictError | ConcurrentWriteError), (
                    number,
                    error,
                )
            grow_record_index(store, 6)
            write(store)
            assert check_built(store) == 29, number
            check_metadata(store)


def _is_locked(store: Store) -> bool:
    return any(file.path == OBJECT_LOCK_PATH for file in store.list(split_path(OBJECT_LOCK_PATH)[0]).files)


class _Killed(Exception):
    pass


def _grown_half(store: Store, shards: int) -> None:
    """Grow until some of the new shards are there."""

    def kill(function: str, item: Any) -> None:
        if function == "put_base" and item.shard == shards // 2:
            raise _Killed

    with suppress(_Killed):
        grow_record_index(store, shards, tasks=CountedTasks(kill))


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
