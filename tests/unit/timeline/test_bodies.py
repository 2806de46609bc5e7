"""What we write on the timeline Hudi must read: field for field what it would have written itself."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import fastavro
import pytest

from bucketlake.config import load_properties
from bucketlake.storage import LocalStore, MemoryStore
from bucketlake.timeline import (
    Action,
    CommitMetadata,
    Instant,
    RollbackMetadata,
    RollbackPlan,
    State,
    WriteStat,
    decode_body,
    decode_commit_metadata,
    encode_clustering_plan,
    encode_commit_metadata,
    encode_requested_replace,
    encode_rollback_metadata,
    encode_rollback_plan,
    load_timeline,
    read_body,
    read_commit_metadata,
    read_plan,
    read_requested_replace,
    read_rollback_metadata,
    read_rollback_plan,
)

Golden = Callable[[str], Path]

TABLES = [
    "cow_simple_bucket",
    "cow_composite_keys",
    "mor_simple_bucket_avro",
    "mor_simple_bucket_parquet_log",
    "mor_nonpartitioned",
    "mor_bulk_insert_bucket",
    "mor_partition_bucket",
    "mor_v8",
]

# What Hudi measures of itself, and we do not keep.
MEASURED = {"runtimeStats"}


def schema_of(data: bytes) -> Any:
    return fastavro.reader(io.BytesIO(data)).writer_schema


def plain(schema: Any) -> Any:
    """A schema without what is optional in one: how Java reads strings, and the defaults inside unions."""
    if isinstance(schema, list):
        return [plain(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    kept = {key: plain(value) for key, value in schema.items() if key in KEPT}
    if kept.get("type") == "string" and set(kept) == {"type"}:
        return "string"
    if "name" in kept:
        kept["name"] = kept["name"].rpartition(".")[2]
    return kept


KEPT = {"type", "name", "fields", "items", "values", "symbols"}


@pytest.mark.parametrize("name", TABLES)
def test_a_commit_of_hudi_written_again_has_the_same_fields(golden_table: Golden, name: str) -> None:
    store = LocalStore(golden_table(name))
    for instant in load_timeline(store, load_properties(store)).writes:
        theirs = read_body(store, instant)
        metadata = read_commit_metadata(store, instant)
        written = encode_commit_metadata(metadata, action=instant.action)
        ours = decode_body(written, path="x")
        assert list(ours) == list(theirs)
        assert without_stats(ours) == without_stats(theirs)
        assert stats_of(ours) == stats_of(theirs)
        assert decode_commit_metadata(written, path="x") == metadata


def without_stats(body: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in body.items() if key != "partitionToWriteStats"}


def stats_of(body: Mapping[str, Any]) -> dict[str, list[dict[str, Any]]]:
    by_partition = body["partitionToWriteStats"]
    return {
        partition: [{key: value for key, value in stat.items() if key not in MEASURED} for stat in stats]
        for partition, stats in by_partition.items()
    }


def test_our_schemas_are_hudis(golden_table: Golden) -> None:
    store = LocalStore(golden_table("mor_partition_bucket"))
    for instant in load_timeline(store, load_properties(store)).writes:
        written = encode_commit_metadata(read_commit_metadata(store, instant), action=instant.action)
        assert plain(schema_of(written)) == plain(schema_of(store.read(instant.path)))
    requested = next((store.root / ".hoodie/timeline").glob("*.replacecommit.requested")).read_bytes()
    assert plain(schema_of(encode_requested_replace())) == plain(schema_of(requested))
    assert decode_body(encode_requested_replace(), path="x") == decode_body(requested, path="x")


def test_a_rollback_of_hudi_written_again_has_the_same_fields(golden_table: Golden) -> None:
    store = LocalStore(golden_table("svc_mor_b"))
    (instant,) = load_timeline(store, load_properties(store)).completed(Action.ROLLBACK)
    root = "/tables/made-by-hudi/svc_mor"
    plan = read_rollback_plan(store, instant)
    data = encode_rollback_plan(plan, root=root)
    assert decode_body(data, path="x") == read_plan(store, instant)
    requested = store.read(f".hoodie/timeline/{instant.requested}.rollback.requested")
    assert plain(schema_of(data)) == plain(schema_of(requested))
    theirs = read_body(store, instant)
    metadata = read_rollback_metadata(store, instant)
    names = {
        partition: tuple(file.rpartition("/")[2] for file in files)
        for partition, files in metadata.deleted.items()
    }
    data = encode_rollback_metadata(
        RollbackMetadata(
            rolled_back=metadata.rolled_back, files_deleted=metadata.files_deleted, deleted=names
        ),
        action=plan.action,
        started=instant.requested,
        taken_ms=theirs["timeTakenInMillis"],
        root=root,
    )
    assert decode_body(data, path="x") == theirs
    assert plain(schema_of(data)) == plain(schema_of(store.read(instant.path)))


def test_a_replacecommit_keeps_what_it_hides() -> None:
    metadata = CommitMetadata(
        operation="INSERT_OVERWRITE", write_stats=(), replaced={"p": ("a", "b"), "": ("c",)}
    )
    data = encode_commit_metadata(metadata, action=Action.REPLACE_COMMIT)
    assert decode_commit_metadata(data, path="x") == metadata


def test_a_stat_of_each_kind_is_read_back() -> None:
    base = WriteStat(
        partition="",
        file_id="f",
        path="f_1-0-1_2.parquet",
        previous_instant=None,
        written=3,
        inserted=1,
        updated=2,
        deleted=1,
        errors=0,
        written_bytes=10,
        size_bytes=10,
        previous_base_file="f_1-0-1_1.parquet",
    )
    log = WriteStat(
        partition="ü=1/b",
        file_id="g",
        path="ü=1/b/.g_2.log.3_1-0-1",
        previous_instant="2",
        written=3,
        inserted=0,
        updated=3,
        deleted=0,
        errors=0,
        written_bytes=1 << 40,
        size_bytes=1 << 40,
        log_files=(".g_2.log.3_1-0-1",),
        log_version=3,
    )
    metadata = CommitMetadata(operation="UPSERT", write_stats=(base, log), extra={"schema": "{}", "é": "ü"})
    data = encode_commit_metadata(metadata, action=Action.DELTA_COMMIT)
    assert decode_commit_metadata(data, path="x") == metadata
    body = decode_body(data, path="x")["partitionToWriteStats"]
    assert body[""][0]["prevCommit"] == "null"
    assert (body["ü=1/b"][0]["logOffset"], body["ü=1/b"][0]["baseFile"]) == (0, "")


def test_the_same_value_gives_the_same_bytes() -> None:
    metadata = CommitMetadata(operation="UPSERT", write_stats=())
    first, second = (encode_commit_metadata(metadata, action=Action.COMMIT) for _ in range(2))
    assert first == second


def test_a_rollback_plan_is_read_back() -> None:
    store = MemoryStore()
    plan = RollbackPlan(target="1", action=Action.COMMIT, files={"": ("a.parquet",), "p/q": ("b", "c")})
    path = "t/2.rollback.requested"
    store.put(path, encode_rollback_plan(plan, root="s3://b/t"))
    assert read_rollback_plan(store, Instant("2", Action.ROLLBACK, State.REQUESTED, None, path)) == plan
    assert b"s3://b/t/p/q/b" in store.read(path)


@pytest.mark.parametrize("name", ["mor_consistent_1_pending_split", "mor_consistent_3_pending_merge"])
def test_a_clustering_plan_of_hudi_written_again_has_the_same_fields(golden_table: Golden, name: str) -> None:
    store = LocalStore(golden_table(name))
    (pending,) = load_timeline(store, load_properties(store)).pending(Action.CLUSTERING)
    plan = read_requested_replace(store, pending)
    root = "file:/tables/made-by-hudi/mor_consistent"
    names = replace(
        plan,
        groups=tuple(
            replace(
                group,
                slices=tuple(
                    replace(
                        part,
                        base_file=part.base_file and part.base_file.rpartition("/")[2],
                        log_files=tuple(log.rpartition("/")[2] for log in part.log_files),
                    )
                    for part in group.slices
                ),
            )
            for group in plan.groups
        ),
    )
    theirs = store.read(pending.path)
    ours = encode_clustering_plan(names, root=root)
    assert plain(schema_of(ours)) == plain(schema_of(theirs))
    expected = dict(decode_body(theirs, path="x"))
    # Only a resize, which we do not plan yet, names the partitions that it left for another time.
    expected["clusteringPlan"] = {**expected["clusteringPlan"], "missingSchedulePartitions": []}
    assert decode_body(ours, path="x") == expected
    assert encode_clustering_plan(names, root=root) == ours, "the same bytes every time"
