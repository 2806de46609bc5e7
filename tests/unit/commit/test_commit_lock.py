"""Nothing is completed while Hudi, with an earlier time, is about to look at the table."""

from __future__ import annotations

from collections.abc import Callable
from threading import Thread

import pytest

from bucketlake.commit import commit_lock
from bucketlake.commit.heartbeat import start_heartbeat
from bucketlake.commit.locks import table_lock
from bucketlake.commit.operation import Operation
from bucketlake.commit.transaction import Transaction, begin, commit
from bucketlake.config import load_properties
from bucketlake.layout.names import heartbeat_path
from bucketlake.storage import Store
from bucketlake.timeline import (
    Action,
    CommitMetadata,
    delete_pending,
    load_timeline,
    shift_instant,
    write_inflight,
    write_requested,
)
from stand_ins.transactions import clock, new_table

pytestmark = pytest.mark.shows("X2")
NOTHING = CommitMetadata(operation="UPSERT", write_stats=())


def begun(store: Store) -> Transaction:
    return begin(store, operation=Operation.UPSERT, clock=clock())[0]


def request(store: Store, instant: str, *, heartbeat: bytes | None = b"") -> None:
    """What a Hudi does that has drawn a time; a heartbeat with something in it is one of ours."""
    if heartbeat is not None:
        store.put(heartbeat_path(instant), heartbeat)
    write_requested(store, load_properties(store), instant=instant, action=Action.COMMIT, body=b"")


class Pauses:
    """Stands in for the pause between two looks: counts, and does what others do meanwhile."""

    def __init__(self, then: Callable[[], object] = lambda: None) -> None:
        self.count = 0
        self._then = then

    def __call__(self, seconds: float) -> None:
        self.count += 1
        if self.count == 3:
            self._then()


def instants(store: Store) -> list[tuple[str, bool]]:
    timeline = load_timeline(store, load_properties(store))
    return [(i.requested, i.is_completed) for i in timeline.instants]


@pytest.mark.parametrize(
    ("act", "is_left"),
    [
        pytest.param(write_inflight, True, id="inflight"),
        pytest.param(delete_pending, False, id="given up"),
    ],
)
def test_a_write_waits_until_hudi_has_looked_or_is_gone(
    act: Callable[..., None], is_left: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = new_table()
    transaction = begun(store)
    earlier = shift_instant(transaction.instant, -10)
    request(store, earlier)
    pauses = Pauses(lambda: act(store, load_properties(store), instant=earlier, action=Action.COMMIT))
    monkeypatch.setattr(commit_lock, "sleep", pauses)
    commit(transaction, NOTHING, clock=clock())
    assert pauses.count == 3
    left = [(earlier, False)] if is_left else []
    assert instants(store) == [*left, (transaction.instant, True)]


def test_the_lock_is_free_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    store = new_table()
    transaction = begun(store)
    earlier = shift_instant(transaction.instant, -10)
    request(store, earlier)

    def go_inflight_under_the_lock() -> None:
        with table_lock(store, wait_seconds=5):
            write_inflight(store, load_properties(store), instant=earlier, action=Action.COMMIT)

    def in_another_thread() -> None:
        thread = Thread(target=go_inflight_under_the_lock)
        thread.start()
        thread.join()

    monkeypatch.setattr(commit_lock, "sleep", Pauses(in_another_thread))
    commit(transaction, NOTHING, clock=clock())
    assert instants(store) == [(earlier, False), (transaction.instant, True)]


def test_it_does_not_wait_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    store = new_table()
    transaction = begun(store)
    request(store, shift_instant(transaction.instant, -10))
    monkeypatch.setattr(commit_lock, "LOOKS_WITHIN_SECONDS", 0.1)
    commit(transaction, NOTHING, clock=clock())
    assert (transaction.instant, True) in instants(store)


@pytest.mark.parametrize(
    ("shift_ms", "heartbeat"),
    [
        pytest.param(10, b"", id="later than ours"),
        pytest.param(-60_000, b"", id="a minute ago: it has looked"),
        pytest.param(-10, None, id="without a heartbeat"),
        pytest.param(-10, b"bucketlake", id="one of ours"),
    ],
)
def test_nobody_waits_for_a_request(
    shift_ms: int, heartbeat: bytes | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = new_table()
    transaction = begun(store)
    request(store, shift_instant(transaction.instant, shift_ms), heartbeat=heartbeat)
    pauses = Pauses()
    monkeypatch.setattr(commit_lock, "sleep", pauses)
    commit(transaction, NOTHING, clock=clock())
    assert pauses.count == 0


def test_our_heartbeats_are_told_from_hudis() -> None:
    store = new_table()
    start_heartbeat(store, "20260101000000001")
    assert store.stat(heartbeat_path("20260101000000001")).size_bytes > 0
