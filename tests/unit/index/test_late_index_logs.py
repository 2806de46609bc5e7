"""A task may outlive its driver, and put a file of entries when its write was taken back: nobody is led astray by it.

Shards are counted by listing, and keys are spread by how many there are. What is older than the timeline is taken for
committed, so the file of a shard that the table does not have would make all keys be looked for in the wrong one.
"""

from __future__ import annotations

import pytest

from bucketlake import CorruptTableError, RecordIndex, SimpleBuckets, Table
from bucketlake.commit.metadata_build import build_metadata
from bucketlake.commit.recovery import recover
from bucketlake.commit.transaction import abort, begin
from bucketlake.config import load_properties
from bucketlake.index import IndexValue
from bucketlake.index.index_logs import log_path
from bucketlake.metadata.places import RECORD_INDEX, folder_of
from bucketlake.metadata.record_shard import encode_entry_log
from bucketlake.metadata.record_shards import shard_file_id
from bucketlake.services.metadata_archive import archive_metadata
from bucketlake.services.metadata_compaction import compact_metadata
from bucketlake.storage import Store
from bucketlake.write import ArrowRows, Operation, TableSpec, WriteOptions, create, job
from stand_ins.aging import Bucket, age
from stand_ins.orders_table import SCHEMA, orders
from stand_ins.record_index_check import check_record_index

pytestmark = pytest.mark.shows("R7", "X2")
GLOBAL, PARTITIONED = RecordIndex(shards=2), RecordIndex(per_partition=True, shards=2)


def filled(index: IndexValue) -> tuple[Bucket, Table]:
    store = Bucket()
    create(store, TableSpec(name="orders", schema=SCHEMA, key=("id",), partition=("dt",), index=index))
    build_metadata(store)
    table = Table(store, load_properties(store))
    table.upsert(orders([0, 2, 4], "a", 1))
    if isinstance(index, SimpleBuckets):
        table.metadata.build(record_index=True)
    return store, Table(store, load_properties(store))


def entry_files(store: Store) -> dict[str, bytes]:
    return {file.path: store.read(file.path) for file in store.list(folder_of(RECORD_INDEX)).files}


def taken_back(store: Store) -> dict[str, bytes]:
    """Write into two partitions, one of them new, and take it back; return the files of entries that there were."""
    before = entry_files(store)
    options = WriteOptions()
    transaction, state = begin(store, operation=Operation.UPSERT, index_of=options.index_of)
    job.prepare(ArrowRows(orders(range(6, 12), "b", 2)), transaction, state, options, job._Stopwatch())
    put = {path: data for path, data in entry_files(store).items() if path not in before}
    abort(transaction)
    assert put and entry_files(store) == before
    return put


@pytest.mark.parametrize("index", [GLOBAL, PARTITIONED, SimpleBuckets(1)], ids=str)
def test_what_a_late_task_puts_goes_when_no_task_can_be_alive(index: IndexValue) -> None:
    store, table = filled(index)
    before = entry_files(store)
    for path, data in taken_back(store).items():
        assert store.put_new(path, data)
    assert check_record_index(store) == 3 if index.engine in _RECORDED else table.fsck().is_sound
    age(store)
    recover(store, load_properties(store))
    assert entry_files(store) == before
    table.upsert(orders(range(6, 12), "c", 3))
    assert table.fsck().is_sound


def test_what_a_committed_write_has_recorded_stays_when_its_markers_go() -> None:
    store, table = filled(GLOBAL)
    table.upsert(orders(range(6, 12), "b", 2))
    before = entry_files(store)
    age(store)
    recover(store, load_properties(store))
    assert entry_files(store) == before
    assert check_record_index(store) == 9


def test_a_shard_that_is_left_of_a_partition_that_never_was_is_no_hole_in_the_index() -> None:
    """As Hudi leaves one when it rolls back the first write to a partition; the timeline begins after it."""
    store, table = filled(PARTITIONED)
    for n in range(4):
        table.upsert(orders([0], "b", 2 + n))
    compact_metadata(store)
    for n in range(4):
        table.upsert(orders([0], "b", 6 + n))
    table.archive(keep_min=2, keep_max=3)
    archive_metadata(store, keep_min=2, keep_max=3)
    instant = "20200101000000000"
    left = log_path(RECORD_INDEX, shard_file_id(1, "p1"), instant)
    store.put(left, encode_entry_log(instant, None, None))
    table.upsert(orders([0, 6], "b", 2))
    assert table.fsck().is_sound
    assert "p1" in str(table.plan_repair())
    table.upsert(orders([1, 3, 5, 7, 9], "b", 2))
    assert check_record_index(store) == 9
    table.repair()
    assert check_record_index(store) == 9


def test_a_hole_in_an_index_that_has_entries_is_damage() -> None:
    store, table = filled(PARTITIONED)
    table.upsert(orders(range(20, 60), "b", 2))
    for path in entry_files(store):
        if "-p0-0000-" in path:
            store.delete(path)
    with pytest.raises(CorruptTableError, match="the shards 1… of p0"):
        table.upsert(orders([1], "c", 3))


_RECORDED = {GLOBAL.engine, PARTITIONED.engine}
