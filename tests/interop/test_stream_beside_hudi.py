"""A stream of ours beside a writer of Hudi's, on one table at the same time: every batch counts once, no row is lost.

On a bucket table they write the same keys. On one with a record-level index each brings keys of its own: Hudi looks for
conflicts by file groups only, so of a new key that both bring, neither would know.
"""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest

from bucketlake import RecordIndex, SimpleBuckets, Table
from bucketlake.errors import ConflictError
from bucketlake.index import IndexValue
from bucketlake.streaming import stream as of_streams
from bucketlake.streaming.stream import Stream
from bucketlake.testing.invariants import check_invariants
from judges.hudi_jvm import HudiJvm, JudgeError, options_for
from judges.hudi_rs import read_snapshot
from stand_ins.orders_table import orders, orders_table

pytestmark = [pytest.mark.interop, pytest.mark.shows("R9")]

ROUNDS = 2
"""Of Hudi; ours are faster, and go on until Hudi is done."""
_CLIENT = "org.apache.hudi.client.transaction"
CONCURRENT = {
    "hoodie.write.concurrency.mode": "OPTIMISTIC_CONCURRENCY_CONTROL",
    "hoodie.write.lock.provider": f"{_CLIENT}.lock.FileSystemBasedLockProvider",
    "hoodie.clean.failed.writes.policy": "LAZY",
    "hoodie.write.lock.wait_time_ms": "20000",
    "hoodie.write.lock.num_retries": "60",
    "hoodie.write.lock.wait_time_ms_between_retry": "200",
    "hoodie.write.lock.client.num_retries": "3",
    "hoodie.write.lock.client.wait_time_ms_between_retry": "200",
}


@dataclass(frozen=True)
class Case:
    table_type: str
    index: IndexValue
    ours: range
    theirs: range

    @property
    def options(self) -> dict[str, str]:
        if isinstance(self.index, SimpleBuckets):
            strategy = f"{_CLIENT}.BucketIndexConcurrentFileWritesConflictResolutionStrategy"
            more = {"hoodie.write.lock.conflict.resolution.strategy": strategy}
            return options_for("orders", table_type=self.table_type, buckets=2, more={**CONCURRENT, **more})
        more = {
            "hoodie.metadata.enable": "true",
            "hoodie.metadata.global.record.level.index.enable": "true",
            "hoodie.metadata.auto.delete.partitions": "false",
            "hoodie.record.index.update.partition.path": "true",
            "hoodie.metadata.index.column.stats.enable": "false",
            "hoodie.metadata.index.partition.stats.enable": "false",
        }
        return options_for(
            "orders", table_type=self.table_type, index=self.index.engine, more={**CONCURRENT, **more}
        )


CASES = {
    "buckets, the same keys": Case("MERGE_ON_READ", SimpleBuckets(2), range(10, 30), range(20)),
    "record index, keys of their own": Case(
        "COPY_ON_WRITE", RecordIndex(shards=2), range(100, 120), range(20)
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_every_batch_counts_once_beside_hudi(
    hudi: HudiJvm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(of_streams, "PAUSES", ())
    case, path = CASES[name], tmp_path / "orders"
    table = orders_table(path, table_type=case.table_type, index=case.index)
    table.upsert(orders(case.theirs, "start", 0))
    expected = {key: (f"start {key}", 0) for key in case.theirs}
    is_over = threading.Event()

    def stream_ours() -> dict[int, int]:
        """Send batches until Hudi is done; one that was refused comes again, and so does every third that was not."""
        stream, number, versions = Stream(store=table.store, id="beside"), 0, {}
        while not is_over.is_set() or not versions:
            ts = 101 + 2 * number
            try:
                done = stream.upsert(orders(case.ours, f"batch {number}", ts), number)
            except ConflictError:
                continue
            assert done is not None
            if number % 3 == 0:
                assert stream.upsert(orders(case.ours, "sent again", 10_000), number) is None
            versions[number] = ts
            number += 1
            is_over.wait(0.3 if number % 3 else 2.5)  # Hudi's writes take a second, ours a tenth of it
        return versions

    with ThreadPoolExecutor(1) as pool:
        working = pool.submit(stream_ours)
        refused = 0
        try:
            for number in range(ROUNDS):
                rows = orders(case.theirs, f"hudi {number}", 100 + 40 * number)
                refused += _hudi_upserts(hudi, path, rows, case.options)
                _tell(expected, rows)
        finally:
            is_over.set()
        batches = working.result()
    for number, ts in batches.items():
        _tell(expected, orders(case.ours, f"batch {number}", ts))
    print(f"{name}: {len(batches)} batches, Hudi's {ROUNDS}, refused {refused} times")
    told = [row["batch"] for row in table.query_progress().to_pylist()]
    assert told and told == list(batches)[-len(told) :], "the first may be archived"
    check_invariants(Table.open(path))
    read_with = {"hoodie.metadata.enable": "true"} if table.metadata.status() else {}
    for rows in (table.to_arrow(), hudi.read(path, read_with), read_snapshot(path)):
        found = {row["id"]: (row["name"], row["ts"]) for row in rows.to_pylist()}
        assert len(rows) == len(found)
        assert found == expected


def _tell(expected: dict[int, tuple[str, int]], rows: pa.Table) -> None:
    for row in rows.to_pylist():
        if expected.get(row["id"], ("", -1))[1] <= row["ts"]:
            expected[row["id"]] = (row["name"], row["ts"])


def _hudi_upserts(hudi: HudiJvm, path: Path, rows: pa.Table, options: dict[str, str]) -> int:
    """Write until it is written; return how often that was refused."""
    for refused in range(20):
        try:
            hudi.write(path, rows, options)
        except JudgeError as error:
            if "Conflict" not in str(error):
                raise
        else:
            return refused
    raise AssertionError("Hudi was refused twenty times")
