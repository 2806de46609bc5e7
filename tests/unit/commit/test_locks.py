"""The table lock: two holders at once would let two writers check each other's absence and both commit."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from bucketlake.commit import locks, processes
from bucketlake.commit.locks import DISK_LOCK_PATH, OBJECT_LOCK_PATH, VALID_MS, table_lock
from bucketlake.errors import CommitConflictError, ConflictError
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


def says(store: Store, path: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(store.read(path))
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


def test_those_who_act_while_a_store_is_held_up_wait_for_the_lock_as_another_process_does(
    place: tuple[Store, str],
) -> None:
    store, path = place
    outcomes = []

    def other(inner: Store) -> None:
        with pytest.raises(ConflictError, match="held by bucketlake-"), table_lock(inner, wait_seconds=0):
            raise AssertionError("not ours")
        outcomes.append("waited")

    with table_lock(store):
        FaultyStore(store, fails_at=1, meanwhile=other).stat(path)
        with table_lock(store, wait_seconds=0):
            pass
    assert outcomes == ["waited"]


def test_a_lock_that_somebody_else_holds_is_waited_for(place: tuple[Store, str]) -> None:
    store, path = place
    other = json.dumps({"expired": False, "validUntil": system_ms() + VALID_MS, "owner": "somebody"}).encode()
    store.put(path, other)
    with pytest.raises(ConflictError, match="held by somebody"), table_lock(store, wait_seconds=0.1):
        raise AssertionError("not ours")
    assert store.read(path) == other


def test_how_long_to_wait_is_looked_up_when_somebody_waits(
    place: tuple[Store, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that a test can shorten it for the processes it starts."""
    store, path = place
    store.put(
        path,
        json.dumps({"expired": False, "validUntil": system_ms() + VALID_MS, "owner": "somebody"}).encode(),
    )
    monkeypatch.setattr(locks, "WAIT_SECONDS", 0.0)
    with pytest.raises(ConflictError, match="within 0 s"), table_lock(store):
        raise AssertionError("not ours")


def test_a_lock_whose_time_has_run_out_is_taken_over(place: tuple[Store, str]) -> None:
    store, path = place
    store.put(
        path, json.dumps({"expired": False, "validUntil": system_ms() - 5_000, "owner": "dead"}).encode()
    )
    with table_lock(store, wait_seconds=1):
        assert says(store, path)["owner"] != "dead"


@pytest.mark.shows("X2")
def test_who_slept_until_its_lock_ran_out_changes_nothing_more(place: tuple[Store, str]) -> None:
    """Others may have put files under the same names by then. What it may look at is as it was."""
    store, _ = place
    slept_ms = 0
    with table_lock(store, now_ms=lambda: system_ms() + slept_ms) as held, table_lock(store) as again:
        held.put("a", b"1")
        again.put("b", b"2")
        slept_ms = VALID_MS - 1_000
        assert held.put_new("c", b"3")
        slept_ms = VALID_MS + 1
        version = held.stat("a").version
        for mine in (held, again):
            for change in (
                lambda mine=mine: mine.put("a", b"late"),
                lambda mine=mine: mine.put_new("d", b"late"),
                lambda mine=mine: mine.replace_if("a", b"late", version),
                lambda mine=mine: mine.delete("a"),
            ):
                with pytest.raises(CommitConflictError, match=r"slept until its lock.*Run it again"):
                    change()
        assert (held.uri, held.requests_at_once) == (store.uri, store.requests_at_once)
        assert [file.path for file in held.list("").files if not file.path.startswith(".")] == ["a", "b", "c"]
        assert held.read("a") == b"1"


on_linux = pytest.mark.skipif(sys.platform != "linux", reason="nothing is provable elsewhere")


@pytest.fixture(scope="module")
def left_behind(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """What a process left in the lock file that was killed while it held the lock."""
    folder = tmp_path_factory.mktemp("dead")
    dying = f"""
import os, signal
from bucketlake.commit import locks, processes
from bucketlake.commit.locks import table_lock
from bucketlake.storage import LocalStore
with table_lock(LocalStore({str(folder)!r})):
    os.kill(os.getpid(), signal.SIGKILL)
"""
    assert subprocess.run([sys.executable, "-c", dying], check=False).returncode == -9
    return (folder / DISK_LOCK_PATH).read_bytes()


def our_own(store: Store) -> dict[str, Any]:
    """What a lock of this process says."""
    with table_lock(store):
        return says(store, DISK_LOCK_PATH if isinstance(store, LocalStore) else OBJECT_LOCK_PATH)


@on_linux
@pytest.mark.shows("X2")
def test_the_lock_of_a_process_of_this_host_that_is_dead_is_taken_over_at_once(
    place: tuple[Store, str], left_behind: bytes
) -> None:
    store, path = place
    assert json.loads(left_behind)["validUntil"] > system_ms() + VALID_MS / 2
    store.put(path, left_behind)
    with table_lock(store, wait_seconds=0):
        assert says(store, path)["owner"] != json.loads(left_behind)["owner"]


@on_linux
def test_a_lock_says_four_things_of_its_process(place: tuple[Store, str]) -> None:
    process = our_own(place[0])["process"]
    assert process["pid"] == os.getpid()
    assert process["bootId"] == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert process["pidNamespace"] == Path("/proc/self/ns/pid").stat().st_ino
    assert process["startTime"] == int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])


@on_linux
@pytest.mark.parametrize(
    "change",
    [
        {"bootId": "another host, or this one before it was started again"},
        {"pidNamespace": 1},
        {"bootId": None},
        {"pid": "17"},
        {"pid": 0},
        {"pid": -1},
        {"startTime": None},
    ],
    ids=str,
)
def test_the_lock_of_a_process_that_may_live_elsewhere_is_waited_for(
    place: tuple[Store, str], left_behind: bytes, change: dict[str, object]
) -> None:
    store, path = place
    said = json.loads(left_behind)
    lock = json.dumps({**said, "process": said["process"] | change}).encode()
    store.put(path, lock)
    with pytest.raises(ConflictError, match="held by"), table_lock(store, wait_seconds=0.01):
        raise AssertionError("not ours")
    assert store.read(path) == lock


@on_linux
def test_the_lock_of_a_living_process_is_waited_for(place: tuple[Store, str]) -> None:
    store, path = place
    lock = json.dumps(our_own(store) | {"owner": "another thread"}).encode()
    store.put(path, lock)
    with pytest.raises(ConflictError, match="held by another thread"), table_lock(store, wait_seconds=0.01):
        raise AssertionError("not ours")
    assert store.read(path) == lock


@on_linux
def test_a_process_that_got_the_pid_of_a_dead_one_does_not_keep_its_lock(place: tuple[Store, str]) -> None:
    store, path = place
    said = our_own(store)
    said["process"]["startTime"] -= 1
    store.put(path, json.dumps(said | {"owner": "dead"}).encode())
    with table_lock(store, wait_seconds=0):
        assert says(store, path)["owner"] != "dead"


@on_linux
def test_a_process_that_is_hidden_from_us_is_not_taken_for_dead(
    place: tuple[Store, str], left_behind: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A /proc that hides the processes of other users, and a kernel that knows them."""
    store, path = place
    store.put(path, left_behind)

    def forbidden(pid: int, signal: int) -> None:
        raise PermissionError(pid, signal)

    monkeypatch.setattr(os, "kill", forbidden)
    with pytest.raises(ConflictError, match="held by"), table_lock(store, wait_seconds=0.01):
        raise AssertionError("not ours")


def test_where_nothing_is_provable_a_lock_says_nothing_of_its_process(
    place: tuple[Store, str], left_behind: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, path = place
    monkeypatch.setattr(processes, "_PROC", Path("/nowhere"))
    assert "process" not in our_own(store)
    store.put(path, left_behind)
    with pytest.raises(ConflictError, match="held by"), table_lock(store, wait_seconds=0.01):
        raise AssertionError("not ours")


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
