"""Hudi's writer on the JVM and ours, on one table at the same time: they share Hudi's lock, and neither loses a row."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import sleep

import pyarrow as pa
import pytest

from bucketlake import Table
from bucketlake.commit.locks import DISK_LOCK_PATH, table_lock
from bucketlake.errors import ConflictError
from bucketlake.testing.invariants import check_invariants
from judges.hudi_jvm import HudiJvm, JudgeError, options_for
from judges.hudi_rs import read_snapshot
from stand_ins.orders_table import SCHEMA, orders, orders_table

pytestmark = pytest.mark.interop

ROUNDS = 2
"""Of Hudi; ours are faster, and go on until Hudi is done."""


def options(table_type: str, **more: str) -> dict[str, str]:
    client = "org.apache.hudi.client.transaction"
    concurrent = {
        "hoodie.write.concurrency.mode": "OPTIMISTIC_CONCURRENCY_CONTROL",
        "hoodie.write.lock.provider": f"{client}.lock.FileSystemBasedLockProvider",
        "hoodie.write.lock.conflict.resolution.strategy": (
            f"{client}.BucketIndexConcurrentFileWritesConflictResolutionStrategy"
        ),
        "hoodie.clean.failed.writes.policy": "LAZY",
        "hoodie.write.lock.wait_time_ms": "20000",
        "hoodie.write.lock.num_retries": "60",
        "hoodie.write.lock.wait_time_ms_between_retry": "200",
        "hoodie.write.lock.client.num_retries": "3",
        "hoodie.write.lock.client.wait_time_ms_between_retry": "200",
    }
    dotted = {key.replace("__", "."): value for key, value in more.items()}
    return options_for("orders", table_type=table_type, buckets=2, more={**concurrent, **dotted})


def hudi_upserts(hudi: HudiJvm, path: Path, rows: pa.Table, table_type: str) -> int:
    """Write until it is written; return how often that was refused."""
    for refused in range(20):
        try:
            hudi.write(path, rows, options(table_type))
        except JudgeError as error:
            if "Conflict" not in str(error):
                raise
        else:
            return refused
    raise AssertionError("Hudi was refused twenty times")


@pytest.mark.shows("X2")
@pytest.mark.parametrize(
    ("table_type", "keys"),
    [
        ("COPY_ON_WRITE", "the same buckets"),
        ("MERGE_ON_READ", "the same buckets"),
        ("MERGE_ON_READ", "other buckets"),
    ],
)
def test_both_write_in_turn_and_at_once_and_all_rows_are_there(
    hudi: HudiJvm, tmp_path: Path, table_type: str, keys: str
) -> None:
    path = tmp_path / "orders"
    table = orders_table(path, table_type=table_type)
    table.upsert(orders(range(40), "start", 0))
    are_same = keys == "the same buckets"
    # A partition is of even keys, the other of odd ones: so are the buckets that a batch touches.
    theirs = range(20) if are_same else range(0, 20, 2)
    ours = range(10, 30) if are_same else range(11, 30, 2)
    expected = {n: (f"start {n}", 0) for n in range(40)}

    def told(rows: pa.Table) -> None:
        for row in rows.to_pylist():
            if expected[row["id"]][1] <= row["ts"]:
                expected[row["id"]] = (row["name"], row["ts"])

    rows = orders(theirs, "turn of hudi", 10)
    assert hudi_upserts(hudi, path, rows, table_type) == 0
    told(rows)
    rows = orders(ours, "turn of ours", 11)
    table.upsert(rows)
    told(rows)

    is_over = threading.Event()

    def write_ours() -> list[pa.Table]:
        done, number = [], 0
        while not is_over.is_set():
            rows = orders(ours, f"ours {number}", 101 + 2 * number)
            try:
                table.upsert(rows)
                done.append(rows)
            except ConflictError:
                pass  # six times overtaken: nothing of it is there
            number += 1
            # Hudi's writes take a second, ours a tenth of it: if we never paused for long, Hudi would never get in.
            is_over.wait(0.3 if number % 3 else 2.5)
        return done

    with ThreadPoolExecutor(1) as pool:
        working = pool.submit(write_ours)
        refused = 0
        try:
            for number in range(ROUNDS):
                rows = orders(theirs, f"hudi {number}", 100 + 40 * number)
                refused += hudi_upserts(hudi, path, rows, table_type)
                told(rows)
        finally:
            is_over.set()
        done = working.result()
    for rows in done:
        told(rows)
    print(f"{table_type}, {keys}: ours {len(done)}, Hudi's {ROUNDS}, refused {refused} times")
    assert done
    check_rows(hudi, path, expected)
    table.upsert(orders(theirs, "last", 10_000))
    hudi.write(path, orders(ours, "last of hudi", 10_001), options(table_type))
    expected |= {n: (f"last {n}", 10_000) for n in theirs}
    expected |= {n: (f"last of hudi {n}", 10_001) for n in ours}
    check_rows(hudi, path, expected)


def check_rows(hudi: HudiJvm, path: Path, expected: dict[int, tuple[str, int]]) -> None:
    table = Table.open(path)
    check_invariants(table)
    for rows in (table.to_arrow(columns=SCHEMA.names), hudi.read(path), read_snapshot(path)):
        found = rows.select(["id", "name", "ts"]).to_pylist()
        assert len(found) == len(expected)
        assert {row["id"]: (row["name"], row["ts"]) for row in found} == expected


@pytest.mark.shows("X2")
@pytest.mark.parametrize("table_type", ["COPY_ON_WRITE", "MERGE_ON_READ"])
def test_a_write_that_begins_while_hudi_draws_its_time_does_not_hide_hudis_rows(
    hudi: HudiJvm, tmp_path: Path, table_type: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hudi holds the lock for 200 ms while it draws a time: what begins then has a later one, and commits first."""
    monkeypatch.setattr("bucketlake.commit.locks.sleep", lambda seconds: sleep(0.001))
    path = tmp_path / "orders"
    table = orders_table(path, table_type=table_type)
    table.upsert(orders(range(20), "start", 0))
    is_over = threading.Event()

    def write_when_hudi_draws() -> bool:
        while not is_over.wait(0.001):
            if (path / DISK_LOCK_PATH).exists():
                sleep(0.1)  # by now the time is drawn, and Hudi holds the lock for as long again
                table.upsert(orders(range(10), "ours", 1))
                return True
        return False

    with ThreadPoolExecutor(1) as pool:
        working = pool.submit(write_when_hudi_draws)
        try:
            hudi_upserts(hudi, path, orders(range(5, 15), "hudi", 2), table_type)
        finally:
            is_over.set()
        assert working.result()
    expected = {n: (f"start {n}", 0) for n in range(20)}
    expected |= {n: (f"ours {n}", 1) for n in range(10)}
    expected |= {n: (f"hudi {n}", 2) for n in range(5, 15)}
    check_rows(hudi, path, expected)


def test_while_we_hold_the_lock_hudi_does_not_commit(hudi: HudiJvm, tmp_path: Path) -> None:
    path = tmp_path / "orders"
    table = orders_table(path, table_type="COPY_ON_WRITE")
    table.upsert(orders(range(4), "start", 0))
    impatient = options(
        "COPY_ON_WRITE",
        hoodie__write__lock__num_retries="2",
        hoodie__write__lock__client__num_retries="1",
        hoodie__write__lock__wait_time_ms="500",
    )
    before = table.timeline()
    with table_lock(table.store), pytest.raises(JudgeError, match=r"(?i)lock"):
        hudi.write(path, orders(range(4), "hudi", 1), impatient)
    assert [e for e in table.timeline() if e.state == "completed"] == [
        e for e in before if e.state == "completed"
    ]
    hudi.write(path, orders(range(4), "hudi", 2), options("COPY_ON_WRITE"))
    check_rows(hudi, path, {n: (f"hudi {n}", 2) for n in range(4)})


def test_while_hudi_holds_the_lock_we_do_not_commit(
    hudi: HudiJvm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "orders"
    table = orders_table(path, table_type="COPY_ON_WRITE")
    table.upsert(orders(range(4), "start", 0))
    monkeypatch.setattr("bucketlake.commit.locks.WAIT_SECONDS", 0.3)
    # Hudi's lock is this file, with nothing in it; a Hudi that died leaves it behind.
    table.store.put(DISK_LOCK_PATH, b"")
    with pytest.raises(ConflictError, match=r"left no name in \.hoodie/lock.*if dead, delete the file"):
        table.upsert(orders(range(4), "ours", 1))
    check_rows_without_hudi(table, {n: (f"start {n}", 0) for n in range(4)})
    (path / DISK_LOCK_PATH).unlink()
    table.upsert(orders(range(4), "ours", 2))
    check_rows(hudi, path, {n: (f"ours {n}", 2) for n in range(4)})


def check_rows_without_hudi(table: Table, expected: dict[int, tuple[str, int]]) -> None:
    check_invariants(table)
    rows = table.to_arrow(columns=SCHEMA.names).to_pylist()
    assert {row["id"]: (row["name"], row["ts"]) for row in rows} == expected
