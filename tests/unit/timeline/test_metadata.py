"""Bodies decide which file groups are hidden: a body misread shows rows twice, or not at all."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fastavro
import pytest

from bucketlake.config import load_properties
from bucketlake.errors import CorruptTableError
from bucketlake.storage import LocalStore, MemoryStore
from bucketlake.timeline import (
    Action,
    Instant,
    State,
    Timeline,
    decode_body,
    decode_commit_metadata,
    load_timeline,
    read_body,
    read_clean_metadata,
    read_commit_metadata,
    read_compaction_plan,
    read_requested_replace,
    read_restore_metadata,
    read_rollback_metadata,
    read_savepoint_metadata,
)

Golden = Callable[[str], Path]


def opened(golden_table: Golden, name: str) -> tuple[LocalStore, Timeline]:
    store = LocalStore(golden_table(name))
    return store, load_timeline(store, load_properties(store))


def test_an_avro_commit_is_read(golden_table: Golden) -> None:
    store, timeline = opened(golden_table, "mor_v8")
    first, second, _ = (read_commit_metadata(store, instant) for instant in timeline.writes)
    assert first.operation == "UPSERT"
    assert first.partitions == {"p0", "p1"}
    assert '"type":"record"' in (first.schema or "").replace(" ", "")
    base = first.write_stats[0]
    assert base.path.startswith(f"{base.partition}/{base.file_id}_")
    assert (base.previous_instant, base.log_files) == (None, ())
    log = second.write_stats[0]
    assert log.path.rpartition("/")[2] in log.log_files
    assert sum(stat.inserted for stat in first.write_stats) == 12


def test_a_json_commit_of_version_6_says_the_same(golden_table: Golden) -> None:
    store, timeline = opened(golden_table, "mor_v6")
    first = read_commit_metadata(store, timeline.writes[0])
    assert first.operation == "UPSERT"
    assert first.schema is not None
    assert sum(stat.inserted for stat in first.write_stats) == 12
    assert all(stat.previous_instant is None for stat in first.write_stats)


def test_a_replacecommit_names_what_it_hides(golden_table: Golden) -> None:
    store, timeline = opened(golden_table, "mor_consistent_2_after_split")
    (instant,) = timeline.completed(Action.REPLACE_COMMIT)
    metadata = read_commit_metadata(store, instant)
    assert metadata.operation == "CLUSTER"
    assert metadata.replaced
    plan = read_requested_replace(store, instant)
    planned = {(s.partition, s.file_id) for group in plan.groups for s in group.slices}
    assert planned == {(p, file_id) for p, ids in metadata.replaced.items() for file_id in ids}
    assert plan.strategy is not None
    assert plan.strategy.endswith("SparkConsistentBucketClusteringExecutionStrategy")
    assert "clustering.group.child.node" in plan.groups[0].extra


def test_a_plan_is_read_while_its_clustering_is_pending(golden_table: Golden) -> None:
    store, timeline = opened(golden_table, "mor_consistent_1_pending_split")
    (instant,) = timeline.pending(Action.CLUSTERING)
    assert read_requested_replace(store, instant).groups


def test_an_insert_overwrite_has_no_clustering_plan(golden_table: Golden) -> None:
    store, timeline = opened(golden_table, "svc_mor")
    (instant,) = timeline.completed(Action.REPLACE_COMMIT)
    plan = read_requested_replace(store, instant)
    assert (plan.groups, plan.strategy) == ((), None)
    assert read_commit_metadata(store, instant).operation == "INSERT_OVERWRITE"


def test_a_compaction_keeps_its_plan_after_it_completed(golden_table: Golden) -> None:
    store, timeline = opened(golden_table, "svc_mor")
    (instant,) = timeline.completed(Action.COMMIT)
    assert read_commit_metadata(store, instant).is_compaction
    (operation,) = read_compaction_plan(store, instant).operations
    assert operation.partition == "p1"
    assert operation.base_file is not None
    assert operation.base_file.startswith(operation.file_id)
    assert len(operation.log_files) == 2


def test_services_are_read(golden_table: Golden) -> None:
    store, timeline = opened(golden_table, "svc_mor")
    clean = read_clean_metadata(store, timeline.completed(Action.CLEAN)[0])
    assert (clean.earliest_kept, clean.files_deleted) == ("20261115234314880", 3)
    assert len(clean.deleted["p1"]) == 3

    store, timeline = opened(golden_table, "svc_mor_b")
    rollback = read_rollback_metadata(store, timeline.completed(Action.ROLLBACK)[0])
    assert (rollback.rolled_back, rollback.files_deleted) == (("20261115234247579",), 1)

    store, timeline = opened(golden_table, "cow_savepoint_restore")
    savepoint = read_savepoint_metadata(store, timeline.completed(Action.SAVEPOINT)[0])
    assert savepoint.created_ms == 1794787162147
    assert set(savepoint.files) == {"p0", "p1"}
    restore = read_restore_metadata(store, timeline.completed(Action.RESTORE)[0])
    assert restore.rolled_back == ("20261115235936915", "20261115235928066")


def test_every_body_that_hudi_wrote_can_be_shown(golden_table: Golden) -> None:
    archives = sorted((Path(__file__).parents[2] / "golden").glob("*.tar.gz"))
    for archive in archives:
        store, timeline = opened(golden_table, archive.name.removesuffix(".tar.gz"))
        for instant in timeline.instants:
            body = read_body(store, instant)
            assert body or not instant.is_completed, instant.path


def avro(*records: dict[str, Any]) -> bytes:
    schema = {"type": "record", "name": "R", "fields": [{"name": "fileId", "type": ["null", "string"]}]}
    out = io.BytesIO()
    fastavro.writer(out, fastavro.parse_schema(schema), list(records))
    return out.getvalue()


@pytest.mark.parametrize(
    "data",
    [
        b"\0" * 64,
        b"Obj\x01",
        b"Obj\x01garbage",
        avro({"fileId": "x"})[:-7],
        avro({"fileId": "x"}, {"fileId": "y"}),
        avro(),
        b"{",
        b"[]",
        b"7",
        b"\xff\xfe",
    ],
)
def test_a_body_that_does_not_decode_is_an_error_that_names_the_file(data: bytes) -> None:
    with pytest.raises(CorruptTableError) as caught:
        decode_body(data, path=".hoodie/timeline/01_02.commit")
    assert caught.value.path == ".hoodie/timeline/01_02.commit"


def test_an_empty_pending_file_is_an_empty_body() -> None:
    assert decode_body(b"", path="p") == {}


@pytest.mark.parametrize(
    "body",
    [
        {"partitionToWriteStats": []},
        {"partitionToWriteStats": {"p": {"fileId": "x"}}},
        {"partitionToWriteStats": {"p": ["x"]}},
        {"partitionToWriteStats": {"p": [{"fileId": 7}]}},
        {"partitionToWriteStats": {"p": [{"numWrites": "many"}]}},
        {"partitionToReplaceFileIds": {"p": "x"}},
        {"operationType": 3},
    ],
)
def test_a_commit_of_the_wrong_shape_is_an_error(body: dict[str, Any]) -> None:
    with pytest.raises(CorruptTableError):
        decode_commit_metadata(json.dumps(body).encode(), path="p")


def test_a_completed_commit_is_never_empty() -> None:
    with pytest.raises(CorruptTableError, match="an empty file"):
        decode_commit_metadata(b"", path="p")


def test_a_compaction_without_its_plan_is_an_error() -> None:
    store = MemoryStore()
    instant = Instant(
        "01", Action.COMPACTION, State.INFLIGHT, None, ".hoodie/timeline/01.compaction.inflight"
    )
    store.put(".hoodie/timeline/01.compaction.requested", b"")
    with pytest.raises(CorruptTableError, match=r"01\.compaction\.requested"):
        read_compaction_plan(store, instant)
