"""The table lock on a real S3 server: one holder at a time, and one that lost it cannot commit."""

from __future__ import annotations

import json
import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest

from bucketlake import Table, create_table
from bucketlake.commit import heartbeat, locks, recovery
from bucketlake.commit.locks import OBJECT_LOCK_PATH
from bucketlake.errors import ConflictError
from bucketlake.storage import Store, open_store
from bucketlake.testing import store_contract
from bucketlake.testing.faulty_store import FaultyStore
from bucketlake.testing.invariants import check_invariants
from bucketlake.timeline.clock import system_ms
from bucketlake.write import ArrowRows, Operation, run_write
from fault.lock_holders import count_up, take_and_die
from servers.s3 import S3Server
from stand_ins.orders_table import SCHEMA, orders

pytestmark = pytest.mark.s3


@pytest.fixture
def uri(s3_server: S3Server, tmp_path: Path) -> str:
    return f"s3://{s3_server.bucket}/{tmp_path.name}"


def made(uri: str, s3_server: S3Server) -> Table:
    table = create_table(
        uri,
        SCHEMA,
        key="id",
        partition="dt",
        ordering="ts",
        buckets=2,
        storage_options=s3_server.options,
    )
    table.upsert(orders(range(4), "first", 1))
    return table


def names(table: Table) -> set[str]:
    return set(table.to_arrow(columns=["name"])["name"].to_pylist())


def test_of_four_processes_one_is_inside_at_a_time(uri: str, s3_server: S3Server) -> None:
    store = open_store(uri, s3_server.options)
    store.put("number", b"0")
    processes = multiprocessing.get_context("forkserver")  # as in `StoreContract`: none shares our client
    processes.set_forkserver_preload([store_contract.__name__])
    with ProcessPoolExecutor(4, mp_context=processes) as pool:
        working = [pool.submit(count_up, uri, dict(s3_server.options), 12) for _ in range(4)]
        meetings = [work.result() for work in working]
    assert meetings == [0, 0, 0, 0]
    assert store.read("number") == b"48"


def test_the_lock_of_a_dead_host_is_told_while_it_holds_and_taken_over_after(
    uri: str, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = made(uri, s3_server)
    table.store.delete(OBJECT_LOCK_PATH)
    take_and_die(uri, dict(s3_server.options))
    monkeypatch.setattr(locks, "WAIT_SECONDS", 0.2)
    with pytest.raises(ConflictError, match=r"held by a host that is gone, renewed .* s ago"):
        table.upsert(orders(range(4), "too early", 2))
    assert names(table) == {f"first {n}" for n in range(4)}
    monkeypatch.setattr(locks, "WAIT_SECONDS", 20.0)
    table.upsert(orders(range(4), "after", 3))
    assert names(table) == {f"after {n}" for n in range(4)}
    check_invariants(table)


def test_a_holder_that_lost_its_lock_cannot_commit_over_who_took_it(
    uri: str, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It sleeps with the lock in its hand, at every operation until its commit; another one takes over and commits."""
    table = made(uri, s3_server)
    monkeypatch.setattr(locks, "RENEW_SECONDS", 1e6)

    def overtake(store: Store) -> None:
        lock = json.loads(store.read(OBJECT_LOCK_PATH))
        assert lock["expired"] is False, "held"
        store.put(OBJECT_LOCK_PATH, json.dumps({**lock, "validUntil": system_ms() - 60_000}).encode())
        with monkeypatch.context() as patch:
            patch.setattr(heartbeat, "DEAD_AFTER_MS", -1)
            patch.setattr(recovery, "KEPT_MS", 0)
            Table.open(uri, storage_options=s3_server.options).upsert(
                orders(range(4), f"other {moments}", 1_000 * moments)
            )

    counting = FaultyStore(table.store)
    run_write(ArrowRows(orders([1], "counted", 2)), counting, Operation.UPSERT)
    claimed = next(
        n for n, what in enumerate(counting.operations, 1) if "put_new .hoodie/.bucketlake/commits" in what
    )
    locked = next(n for n, what in enumerate(counting.operations, 1) if what == f"put_new {OBJECT_LOCK_PATH}")
    moments = 0
    for number in range(locked + 4, claimed + 1, 2):
        moments += 1
        sleeping = FaultyStore(table.store, fails_at=number, meanwhile=overtake)
        # It finds out, and starts again on what the other wrote, where its row is older.
        run_write(ArrowRows(orders([1], "overtaken", 1_000 * moments - 500)), sleeping, Operation.UPSERT)
        assert names(table) == {f"other {moments} {n}" for n in range(4)}
        check_invariants(table)
    assert moments >= 3
