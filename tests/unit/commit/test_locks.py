"""The table lock: two holders at once would let two writers check each other's absence and both commit."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

import pytest

from bucketlake.commit.locks import DISK_LOCK_PATH, OBJECT_LOCK_PATH, VALID_MS, table_lock
from bucketlake.errors import ConflictError
from bucketlake.storage import LocalStore, MemoryStore, Store
from bucketlake.testing.faulty_store import FaultyStore, InjectedError
from bucketlake.timeline.clock import system_ms


class Bucket(MemoryStore):
    """A store in memory that says it is an object store."""

    @property
    def uri(self) -> str:
        return "s3://bucket/table"


@pytest.fixture(params=["disk", "objects"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Store, str]:
    if request.param == "disk":
        return LocalStore(tmp_path), DISK_LOCK_PATH
    return Bucket(), OBJECT_LOCK_PATH


def says(store: Store, path: str) -> dict[str, object]:
    found: dict[str, object] = json.loads(store.read(path))
    return found


def test_the_file_is_there_while_the_lock_is_held(place: tuple[Store, str]) -> None:
    store, path = place
    with table_lock(store):
        held = says(store, path)
        assert held["expired"] is False
        assert str(held["owner"]).startswith("bucketlake-")
        assert isinstance(held["validUntil"], int)
        assert held["validUntil"] > system_ms()
    if path == DISK_LOCK_PATH:
        with pytest.raises(FileNotFoundError):
            store.stat(path)
    else:
        assert says(store, path)["expired"] is True
    with table_lock(store):
        assert says(store, path)["owner"] != held["owner"]


def test_threads_take_turns(place: tuple[Store, str]) -> None:
    store, _ = place
    inside: list[int] = []

    def work(number: int) -> None:
        for _ in range(5):
            with table_lock(store):
                inside.append(number)
                assert inside == [number]
                inside.pop()

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))


def test_a_thread_that_holds_the_lock_enters_again_without_asking_the_store(place: tuple[Store, str]) -> None:
    """And leaves it held: what the outer block still has to do is done under the lock."""
    store, path = place
    counted = FaultyStore(store)
    with table_lock(counted):
        held, asked = says(store, path), len(counted.operations)
        with table_lock(counted, wait_seconds=0), table_lock(counted, wait_seconds=0):
            pass
        assert len(counted.operations) == asked
        assert says(store, path) == held
        with ThreadPoolExecutor(1) as pool, pytest.raises(ConflictError, match="another thread"):
            pool.submit(lambda: table_lock(store, wait_seconds=0).__enter__()).result()
    with table_lock(store, wait_seconds=0):
        assert says(store, path)["owner"] != held["owner"]


def test_a_block_that_fails_inside_another_leaves_the_lock_held(place: tuple[Store, str]) -> None:
    store, path = place
    with table_lock(store):
        with pytest.raises(ValueError, match="inner"), table_lock(store):
            raise ValueError("inner")
        assert says(store, path)["expired"] is False
    with table_lock(store, wait_seconds=0):
        pass


def test_a_lock_that_somebody_else_holds_is_waited_for(place: tuple[Store, str]) -> None:
    store, path = place
    other = json.dumps({"expired": False, "validUntil": system_ms() + VALID_MS, "owner": "somebody"}).encode()
    store.put(path, other)
    with pytest.raises(ConflictError, match="held by somebody"), table_lock(store, wait_seconds=0.1):
        raise AssertionError("not ours")
    assert store.read(path) == other


def test_a_lock_whose_time_has_run_out_is_taken_over(place: tuple[Store, str]) -> None:
    store, path = place
    store.put(
        path, json.dumps({"expired": False, "validUntil": system_ms() - 5_000, "owner": "dead"}).encode()
    )
    with table_lock(store, wait_seconds=1):
        assert says(store, path)["owner"] != "dead"


def test_a_lock_that_was_taken_from_us_is_not_released(place: tuple[Store, str]) -> None:
    store, path = place
    other = json.dumps({"expired": False, "validUntil": system_ms() + VALID_MS, "owner": "thief"}).encode()
    with table_lock(store):
        store.put(path, other)
    assert store.read(path) == other


def test_an_object_lock_that_was_released_is_free(place: tuple[Store, str]) -> None:
    store, path = place
    store.put(
        path, json.dumps({"expired": True, "validUntil": system_ms() + VALID_MS, "owner": "hudi"}).encode()
    )
    with table_lock(store, wait_seconds=1):
        pass


def test_a_nameless_lock_as_hudi_leaves_it_on_disk_is_respected_and_reported(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    store.put(DISK_LOCK_PATH, b"")
    with (
        pytest.raises(ConflictError, match=r"left no name in \.hoodie/lock"),
        table_lock(store, wait_seconds=0.05),
    ):
        raise AssertionError("not ours")
    released = Event()

    def work() -> None:
        with table_lock(store, wait_seconds=10):
            assert released.is_set()

    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(work)
        released.set()
        store.delete(DISK_LOCK_PATH)
        waiting.result()


def test_a_lock_whose_answer_was_lost_is_given_back(place: tuple[Store, str]) -> None:
    """Or everybody, the writer itself included, would wait until it runs out."""
    store, _ = place
    with (
        pytest.raises(InjectedError),
        table_lock(FaultyStore(store, fails_at=1, took_effect=True)),
    ):
        raise AssertionError("not ours")
    with table_lock(store, wait_seconds=0):
        pass
