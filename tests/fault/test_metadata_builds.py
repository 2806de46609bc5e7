"""A metadata table is built while others write, build and take back; whoever looks finds none, or one that is right."""

from __future__ import annotations

import itertools
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial

import pytest

from bucketlake import SimpleBuckets, Table
from bucketlake.commit import locks
from bucketlake.commit.metadata_build import BuiltMetadata, build_metadata
from bucketlake.commit.metadata_table import delist, is_listed
from bucketlake.config import load_properties
from bucketlake.errors import ConcurrentWriteError, ConflictError
from bucketlake.services.metadata_compaction import compact_metadata
from bucketlake.state import load_state
from bucketlake.storage import Store
from bucketlake.testing.faulty_store import FaultyStore, InjectedError
from bucketlake.timeline.clock import system_ms
from bucketlake.write import TableSpec, create
from stand_ins.actors import Actor, Task, processes_without_clocks
from stand_ins.aging import Bucket, age, copy_of
from stand_ins.metadata_check import check_metadata
from stand_ins.orders_table import SCHEMA, orders

pytestmark = pytest.mark.shows("M2", "X2")


def table_of(store: Store) -> Table:
    return Table(store, load_properties(store))


@pytest.fixture(scope="module")
def made() -> Bucket:
    store = Bucket()
    create(store, TableSpec(
        name="orders", schema=SCHEMA, key=("id",), partition=("dt",), ordering=("ts",), index=SimpleBuckets(2),
        table_type="MERGE_ON_READ",
    ))  # fmt: skip
    table_of(store).upsert(orders(range(6), "a", 1))
    table_of(store).upsert(orders(range(3, 9), "b", 2))
    return store


def test_cut_off_at_any_request_it_can_be_read_and_written_and_built_again(made: Bucket) -> None:
    counting = FaultyStore(copy_of(made))
    build_metadata(counting)
    changes = [
        number
        for number, what in enumerate(counting.operations, 1)
        if what.split()[0] not in {"list", "stat", "read"}
    ]
    for number, took_effect in itertools.product(changes, (False, True)):
        store = copy_of(made)
        with suppress(InjectedError):  # whoever cannot give the lock back has done his work
            build_metadata(FaultyStore(store, fails_at=number, took_effect=took_effect, is_dead=True))
        age(store)
        is_there = check_metadata(store)
        table_of(store).upsert(orders([100], "c", 3))
        assert table_of(store).to_arrow().num_rows == 10
        assert check_metadata(store) == is_there
        assert (build_metadata(store) is None) == is_there
        assert check_metadata(store)


@pytest.mark.thorough
@pytest.mark.parametrize("other", ["build", "upsert", "rollback"])
def test_wherever_another_is_in_between_what_is_listed_is_right(made: Bucket, other: str) -> None:
    """One goes on for some requests, then the other does all of its own; both orders."""
    acts = {
        "build": build_metadata,
        "upsert": lambda store: table_of(store).upsert(orders([1, 50], "w", 9)),
        "rollback": lambda store: table_of(store).rollback(load_state(store).timeline.writes[-1].requested),
    }
    with processes_without_clocks():
        for first, second in (("build", other), (other, "build")):
            counting = FaultyStore(copy_of(made))
            acts[first](counting)
            for number in range(1, len(counting.operations), 2):
                store = copy_of(made)
                actors = [Actor(store, Task(name, acts[name])) for name in (first, second)]
                actors[0].step(number)
                actors[1].step(3_000)
                check_metadata(store)
                actors[0].step(3_000)
                assert all(actor.is_over for actor in actors)
                for actor in actors:
                    assert actor.task.error is None or isinstance(
                        actor.task.error, ConflictError | ConcurrentWriteError
                    ), (first, second, number)
                check_metadata(store)
                table_of(store).upsert(orders([2, 60], "z", 20))
                check_metadata(store)


def test_one_that_is_built_while_another_is_dropped_keeps_all_of_its_files(made: Bucket) -> None:
    before = copy_of(made)
    build_metadata(before)
    counting = FaultyStore(copy_of(before))
    table_of(counting).metadata.drop()
    with processes_without_clocks():
        for number in range(1, len(counting.operations)):
            store = copy_of(before)
            dropping = Actor(store, Task("drop", lambda store: table_of(store).metadata.drop()))
            building = Actor(store, Task("build", build_metadata))
            dropping.step(number)
            building.step(3_000)
            check_metadata(store)
            dropping.step(3_000)
            building.step(3_000)
            assert dropping.is_over and building.is_over
            check_metadata(store)
            table_of(store).upsert(orders([2, 60], "z", 20))
            check_metadata(store)


def test_writers_and_builders_at_once_end_in_one_that_has_everything(made: Bucket) -> None:
    store = copy_of(made)

    def write(number: int) -> None:
        for attempt in range(4):
            table_of(store).upsert(orders([1_000 + 2 * number + attempt * 100], f"w{number}", 3))

    with ThreadPoolExecutor(4) as threads:
        writing = [threads.submit(write, number) for number in range(2)]
        building = [threads.submit(partial(build_metadata, store)) for _ in range(2)]
    for done in writing:
        done.result()
    built = [done.result() for done in building]
    assert sum(isinstance(one, BuiltMetadata) for one in built) == 1
    assert is_listed(load_properties(store))
    assert check_metadata(store)
    assert table_of(store).to_arrow().num_rows == 9 + 8


@pytest.mark.parametrize("other", ["build", "build and write"])
def test_one_that_slept_until_its_lock_ran_out_changes_nothing_of_what_others_have_built(
    made: Bucket, other: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept_ms = 0
    monkeypatch.setitem(locks.table_lock.__wrapped__.__kwdefaults__, "now_ms", lambda: system_ms() + slept_ms)
    cut_off = copy_of(made)
    build_metadata(cut_off)
    delist(cut_off)  # what lies there goes first
    counting = FaultyStore(copy_of(cut_off))
    build_metadata(counting)

    def meanwhile(store: Store) -> None:
        nonlocal slept_ms
        slept_ms += locks.VALID_MS + 1_000
        build_metadata(store)
        if other == "build and write":
            table_of(store).upsert(orders([1, 50], "w", 9))

    stopped = 0
    for number, what in enumerate(counting.operations, 1):
        if what.split()[0] in {"list", "stat", "read"}:
            continue
        store = copy_of(cut_off)
        try:
            build_metadata(FaultyStore(store, fails_at=number, meanwhile=meanwhile))
        except ConflictError:
            stopped += 1
        assert check_metadata(store), f"{number}: {what}"
        compact_metadata(store)
        assert check_metadata(store), f"{number}: {what}, compacted"
    assert stopped >= 10
