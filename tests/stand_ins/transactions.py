"""Writes without rows: all that a transaction sees of a write, and files that hold nothing."""

from __future__ import annotations

from functools import cache

from bucketlake.commit.operation import Operation
from bucketlake.commit.transaction import Transaction, abort, begin, commit
from bucketlake.config import TimelineTimezone, create_properties
from bucketlake.layout.names import (
    WRITE_TOKEN,
    BaseFileName,
    marker_path,
    new_file_id,
    partition_metadata_path,
    path_in_partition,
    render_base_file_name,
)
from bucketlake.layout.partition_metadata import partition_depth, render_partition_metadata
from bucketlake.state import files_of
from bucketlake.storage import MemoryStore, Store
from bucketlake.timeline import Clock, CommitMetadata, WriteStat
from bucketlake.timeline.clock import system_ms

WORDS = {
    "hoodie.table.name": "orders",
    "hoodie.table.type": "COPY_ON_WRITE",
    "hoodie.table.version": "9",
    "hoodie.timeline.layout.version": "2",
    "hoodie.table.recordkey.fields": "id",
    "hoodie.table.partition.fields": "dt",
    "hoodie.record.merge.mode": "COMMIT_TIME_ORDERING",
    "hoodie.table.timeline.timezone": "UTC",
}

LATER_MS = 20 * 60 * 1000
"""By then a writer that does not beat is dead, and so are its tasks."""


@cache
def clock(*, later: bool = False) -> Clock:
    """The clock of this process, or one that is ahead."""
    return Clock(TimelineTimezone.UTC, now_ms=lambda: system_ms() + (LATER_MS if later else 0))


def new_table() -> MemoryStore:
    store = MemoryStore()
    create_properties(store, WORDS)
    return store


def table_with_rows() -> MemoryStore:
    store = new_table()
    write(store, ["a"], Operation.UPSERT)
    return store


def write_file(transaction: Transaction, partition: str, bucket: int) -> WriteStat:
    """What a task does: marker, partition metadata, data."""
    store, instant = transaction.store, transaction.instant
    file_id = new_file_id(f"{bucket:08d}", partition=partition, instant=instant)
    path = path_in_partition(partition, render_base_file_name(BaseFileName(file_id, WRITE_TOKEN, instant)))
    store.put(marker_path(instant, path, "CREATE"), b"")
    metadata = render_partition_metadata(instant, partition_depth(partition))
    store.put_new(partition_metadata_path(partition), metadata)
    store.put_new(path, b"rows")
    return WriteStat(
        partition=partition,
        file_id=file_id,
        path=path,
        previous_instant=None,
        written=1,
        inserted=1,
        updated=0,
        deleted=0,
        errors=0,
        written_bytes=4,
        size_bytes=4,
    )


def write(store: Store, partitions: list[str], operation: Operation, *, fails: bool = False) -> str | None:
    """A write of one file to each partition, as a driver does it: aborted if it fails."""
    transaction, state = begin(store, operation=operation, clock=clock())
    try:
        stats = tuple(write_file(transaction, partition, 0) for partition in partitions)
        if fails:
            raise RuntimeError("a task failed")
        replaced = {}
        if operation.replaces:
            old = files_of(state)
            replaced = {p: tuple(file.file_id for file in old.get(p, ())) for p in partitions}
        metadata = CommitMetadata(operation=operation, write_stats=stats, replaced=replaced)
        return commit(transaction, metadata, clock=clock()).completed
    except BaseException:
        abort(transaction)
        raise
