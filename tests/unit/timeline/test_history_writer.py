"""The history is all that is left of old commits: what it loses is lost."""

from __future__ import annotations

import io
import json

import pyarrow.parquet as pq
import pytest

from bucketlake.config import TableProperties, load_properties
from bucketlake.errors import ConflictError
from bucketlake.storage import MemoryStore
from bucketlake.timeline import (
    Action,
    Instant,
    State,
    load_history,
    read_archived_body,
    read_archived_plan,
)
from bucketlake.timeline.history import Manifest, current_manifest, history_files
from bucketlake.timeline.history_writer import (
    FILES_MERGED,
    HistoryRow,
    forget_old,
    merge_layers,
    settle,
    write_rows,
)
from stand_ins.transactions import new_table

FOLDER = ".hoodie/timeline/history"


def row(number: int, plan: bytes = b"") -> HistoryRow:
    requested = f"202601010000{number:05d}"
    instant = Instant(requested, Action.COMMIT, State.COMPLETED, requested[:-1] + "9", "")
    return HistoryRow(instant, f"body {number}".encode(), plan)


@pytest.fixture
def store() -> MemoryStore:
    return new_table()


@pytest.fixture
def properties(store: MemoryStore) -> TableProperties:
    return load_properties(store)


def test_rows_come_back_as_they_were_in_files_as_hudi_writes_them(
    store: MemoryStore, properties: TableProperties
) -> None:
    write_rows(store, properties, [row(2, b"plan"), row(1)], Manifest(0, {}))
    first, second = load_history(store, properties)
    assert (first.requested, second.requested) == (row(1).instant.requested, row(2).instant.requested)
    assert first.completed == row(1).instant.completed
    assert (read_archived_body(store, second), read_archived_plan(store, second)) == (b"body 2", b"plan")
    assert read_archived_plan(store, first) == b""
    (path,) = history_files(store, properties)
    assert path == f"{FOLDER}/20260101000000001_20260101000000002_0.parquet"
    file = pq.ParquetFile(io.BytesIO(store.read(path)))
    assert "required int32 field_id=-1 version" in str(file.schema)
    assert b"HoodieLSMTimelineInstant" in file.metadata.metadata[b"parquet.avro.schema"]
    assert store.read(f"{FOLDER}/_version_") == b"1"
    (entry,) = json.loads(store.read(f"{FOLDER}/manifest_1"))["files"]
    assert entry == {"fileName": path.rpartition("/")[2], "fileLen": len(store.read(path))}


def test_ten_files_of_a_layer_become_one_of_the_next_and_readers_keep_their_manifest(
    store: MemoryStore, properties: TableProperties
) -> None:
    manifest = Manifest(0, {})
    for number in range(FILES_MERGED):
        assert merge_layers(store, properties, manifest) == manifest, "not yet"
        manifest = write_rows(store, properties, [row(number + 1)], manifest)
    before = load_history(store, properties)
    merged = merge_layers(store, properties, manifest)
    assert list(merged.sizes) == ["20260101000000001_20260101000000010_1.parquet"]
    assert [a.requested for a in load_history(store, properties)] == [a.requested for a in before]
    forget_old(store, properties, merged)
    names = {file.path.rpartition("/")[2] for file in store.list(FOLDER).files}
    assert {name for name in names if name.startswith("manifest")} == {
        "manifest_9",
        "manifest_10",
        "manifest_11",
    }
    assert len([name for name in names if name.endswith("_0.parquet")]) == FILES_MERGED


def test_a_manifest_that_nobody_stated_counts_after_settling(
    store: MemoryStore, properties: TableProperties
) -> None:
    first = write_rows(store, properties, [row(1)], Manifest(0, {}))
    second = write_rows(store, properties, [row(2)], first)
    store.put(f"{FOLDER}/_version_", b"1")  # cut off before it said 2
    assert current_manifest(store, properties) == first
    assert settle(store, properties) == second
    assert current_manifest(store, properties) == second


@pytest.mark.parametrize("left", [b"", b'{"files": [{"fileName": "1_2_0.parquet", "fileLen": 7}]}'])
def test_a_manifest_that_is_broken_or_names_what_is_not_there_does_not_count(
    store: MemoryStore, properties: TableProperties, left: bytes
) -> None:
    first = write_rows(store, properties, [row(1)], Manifest(0, {}))
    store.put(f"{FOLDER}/manifest_2", left)
    assert settle(store, properties) == first


def test_a_broken_manifest_is_written_over(store: MemoryStore, properties: TableProperties) -> None:
    first = write_rows(store, properties, [row(1)], Manifest(0, {}))
    store.put(f"{FOLDER}/manifest_2", b"")
    write_rows(store, properties, [row(2)], settle(store, properties))
    assert len(load_history(store, properties)) == 2
    assert first.version == 1


def test_two_that_archive_at_once_do_not_undo_each_other(
    store: MemoryStore, properties: TableProperties
) -> None:
    first = write_rows(store, properties, [row(1)], Manifest(0, {}))
    write_rows(store, properties, [row(2)], first)
    with pytest.raises(ConflictError, match="while we archived"):
        write_rows(store, properties, [row(3)], first)
    assert len(load_history(store, properties)) == 2
