"""Bodies as bytes: the mirror of `metadata`, for writers.

A body is an Avro container with one record and no compression. Field names, order and types are Hudi's; a field
that Hudi leaves null is null here, a counter it leaves zero is zero. `version` is null in commits, as Hudi
writes it, and 1 in rollbacks.

The same value gives the same bytes, every time: the container's sync marker, which others draw at random, is a
constant.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import Any

import fastavro

from bucketlake.timeline.instant import Action
from bucketlake.timeline.metadata import CommitMetadata, RollbackMetadata, RollbackPlan, WriteStat

_NAMESPACE = "org.apache.hudi.avro.model"
_SYNC_MARKER = b"bucketlake/body/"
# Hudi writes the absence of a previous commit as this word (HoodieWriteStat.NULL_COMMIT).
_NO_COMMIT = "null"


def encode_commit_metadata(metadata: CommitMetadata, *, action: Action) -> bytes:
    """Write the body of a completed commit; `action` is what its requested file names.

    A replacecommit has one field more than the others. A reader of the timeline picks the record by the action,
    so the two must not be mixed up.
    """
    is_replace = action.when_completed is Action.REPLACE_COMMIT
    assert is_replace or not metadata.replaced, f"a {action} hides no file groups"
    by_partition: dict[str, list[dict[str, object]]] = {}
    for stat in metadata.write_stats:
        by_partition.setdefault(stat.partition, []).append(_write_stat(stat))
    record: dict[str, object] = {
        "partitionToWriteStats": by_partition,
        "compacted": metadata.is_compaction,
        "extraMetadata": dict(metadata.extra),
        "version": None,
        "operationType": metadata.operation,
    }
    if not is_replace:
        return _container(_COMMIT, record)
    replaced = {partition: list(file_ids) for partition, file_ids in metadata.replaced.items()}
    return _container(_REPLACE_COMMIT, record | {"partitionToReplaceFileIds": replaced})


def encode_requested_replace() -> bytes:
    """Write the requested body of a replacecommit that is no clustering: a record that says nothing."""
    nothing = dict.fromkeys(("operationType", "clusteringPlan", "extraMetadata", "version"))
    return _container(_REQUESTED_REPLACE, nothing)


def encode_rollback_plan(plan: RollbackPlan, *, root: str) -> bytes:
    """Write the requested body of a rollback. Hudi wants whole paths: `root` is the table's uri."""
    requests = [
        {
            "partitionPath": partition,
            "fileId": "",
            "latestBaseInstant": "",
            "filesToBeDeleted": _whole_paths(root, partition, names),
            "logBlocksToBeDeleted": {},
        }
        for partition, names in plan.files.items()
    ]
    target = {"commitTime": plan.target, "action": str(plan.action)}
    return _container(
        _ROLLBACK_PLAN, {"instantToRollback": target, "RollbackRequests": requests, "version": 1}
    )


def encode_rollback_metadata(
    metadata: RollbackMetadata, *, action: Action, started: str, taken_ms: int, root: str
) -> bytes:
    """Write the body of a completed rollback of one instant of `action`; `root` is the table's uri."""
    partitions = {
        partition: {
            "partitionPath": partition,
            "successDeleteFiles": _whole_paths(root, partition, names),
            "failedDeleteFiles": [],
            "rollbackLogFiles": {},
            "logFilesFromFailedCommit": {},
        }
        for partition, names in metadata.deleted.items()
    }
    return _container(
        _ROLLBACK,
        {
            "startRollbackTime": started,
            "timeTakenInMillis": taken_ms,
            "totalFilesDeleted": metadata.files_deleted,
            "commitsRollback": list(metadata.rolled_back),
            "partitionMetadata": partitions,
            "version": 1,
            "instantsRollback": [
                {"commitTime": instant, "action": str(action)} for instant in metadata.rolled_back
            ],
        },
    )


def _write_stat(stat: WriteStat) -> dict[str, object]:
    is_log = bool(stat.log_files)
    return {
        "fileId": stat.file_id,
        "path": stat.path,
        "prevCommit": stat.previous_instant or _NO_COMMIT,
        "numWrites": stat.written,
        "numDeletes": stat.deleted,
        "numUpdateWrites": stat.updated,
        "totalWriteBytes": stat.written_bytes,
        "totalWriteErrors": stat.errors,
        "partitionPath": stat.partition,
        "totalLogRecords": 0,
        "totalLogFiles": None,
        "totalUpdatedRecordsCompacted": 0,
        "numInserts": stat.inserted,
        "totalLogBlocks": 0,
        "totalCorruptLogBlock": 0,
        "totalRollbackBlocks": 0,
        "fileSizeInBytes": stat.size_bytes,
        "logVersion": stat.log_version if is_log else None,
        "logOffset": 0 if is_log else None,
        "baseFile": "" if is_log else None,
        "logFiles": list(stat.log_files) if is_log else None,
        "cdcStats": None,
        "prevBaseFile": stat.previous_base_file,
        "minEventTime": None,
        "maxEventTime": None,
        "runtimeStats": None,
        "totalLogFilesCompacted": 0,
        "totalLogReadTimeMs": 0,
        "totalLogSizeCompacted": 0,
        "tempPath": None,
        "numUpdates": 0,
    }


def _whole_paths(root: str, partition: str, names: Sequence[str]) -> list[str]:
    folder = f"{root}/{partition}" if partition else root
    return [f"{folder}/{name}" for name in names]


def _container(schema: Any, record: Mapping[str, object]) -> bytes:
    buffer = io.BytesIO()
    fastavro.writer(buffer, schema, [record], codec="null", sync_marker=_SYNC_MARKER, strict=True)
    return buffer.getvalue()


def _optional(name: str, kind: object) -> dict[str, object]:
    return {"name": name, "type": ["null", kind], "default": None}


def _required(name: str, kind: object) -> dict[str, object]:
    return {"name": name, "type": kind}


def _version() -> dict[str, object]:
    return {"name": "version", "type": ["int", "null"], "default": 1}


def _record(name: str, *fields: dict[str, object]) -> dict[str, object]:
    return {"type": "record", "name": name, "namespace": _NAMESPACE, "fields": list(fields)}


def _array(items: object) -> dict[str, object]:
    return {"type": "array", "items": items}


def _map(values: object) -> dict[str, object]:
    return {"type": "map", "values": values}


_RUNTIME_STATS = _record(
    "HoodieRuntimeStats",
    *(_optional(name, "long") for name in ("totalScanTime", "totalCreateTime", "totalUpsertTime")),
)
_STAT_TYPES: Mapping[str, object] = {
    "fileId": "string",
    "path": "string",
    "prevCommit": "string",
    "numWrites": "long",
    "numDeletes": "long",
    "numUpdateWrites": "long",
    "totalWriteBytes": "long",
    "totalWriteErrors": "long",
    "partitionPath": "string",
    "totalLogRecords": "long",
    "totalLogFiles": "long",
    "totalUpdatedRecordsCompacted": "long",
    "numInserts": "long",
    "totalLogBlocks": "long",
    "totalCorruptLogBlock": "long",
    "totalRollbackBlocks": "long",
    "fileSizeInBytes": "long",
    "logVersion": "int",
    "logOffset": "long",
    "baseFile": "string",
    "logFiles": _array("string"),
    "cdcStats": _map("long"),
    "prevBaseFile": "string",
    "minEventTime": "long",
    "maxEventTime": "long",
    "runtimeStats": _RUNTIME_STATS,
    "totalLogFilesCompacted": "long",
    "totalLogReadTimeMs": "long",
    "totalLogSizeCompacted": "long",
    "tempPath": "string",
    "numUpdates": "long",
}
_COMMIT_FIELDS = (
    _optional(
        "partitionToWriteStats",
        _map(
            _array(_record("HoodieWriteStat", *(_optional(name, kind) for name, kind in _STAT_TYPES.items())))
        ),
    ),
    _optional("compacted", "boolean"),
    _optional("extraMetadata", _map("string")),
    _version(),
    _optional("operationType", "string"),
)
_INSTANT_INFO = _record("HoodieInstantInfo", _required("commitTime", "string"), _required("action", "string"))
_SLICE_INFO = _record(
    "HoodieSliceInfo",
    _optional("dataFilePath", "string"),
    _optional("deltaFilePaths", _array("string")),
    _required("fileId", ["null", "string"]),
    _optional("partitionPath", "string"),
    _optional("bootstrapFilePath", "string"),
    _version(),
)
_CLUSTERING_GROUP = _record(
    "HoodieClusteringGroup",
    _optional("slices", _array(_SLICE_INFO)),
    _optional("metrics", _map("double")),
    {"name": "numOutputFileGroups", "type": ["int", "null"], "default": 1},
    _optional("extraMetadata", _map("string")),
    _version(),
)
_CLUSTERING_STRATEGY = _record(
    "HoodieClusteringStrategy",
    _optional("strategyClassName", "string"),
    _optional("strategyParams", _map("string")),
    _version(),
)
_CLUSTERING_PLAN = _record(
    "HoodieClusteringPlan",
    _optional("inputGroups", _array(_CLUSTERING_GROUP)),
    _optional("strategy", _CLUSTERING_STRATEGY),
    _optional("extraMetadata", _map("string")),
    _version(),
    _optional("preserveHoodieMetadata", "boolean"),
    _optional("missingSchedulePartitions", _array("string")),
)
_ROLLBACK_REQUEST = _record(
    "HoodieRollbackRequest",
    _required("partitionPath", "string"),
    _optional("fileId", "string"),
    _optional("latestBaseInstant", "string"),
    {"name": "filesToBeDeleted", "type": _array("string"), "default": []},
    _optional("logBlocksToBeDeleted", _map("long")),
)
_ROLLBACK_PARTITION = _record(
    "HoodieRollbackPartitionMetadata",
    _required("partitionPath", "string"),
    _required("successDeleteFiles", _array("string")),
    _required("failedDeleteFiles", _array("string")),
    _optional("rollbackLogFiles", _map("long")),
    _optional("logFilesFromFailedCommit", _map("long")),
)

# Parsed once: fastavro takes longer to understand a schema than to write a small record by it.
_COMMIT = fastavro.parse_schema(_record("HoodieCommitMetadata", *_COMMIT_FIELDS))
_REPLACE_COMMIT = fastavro.parse_schema(
    _record(
        "HoodieReplaceCommitMetadata",
        *_COMMIT_FIELDS,
        _optional("partitionToReplaceFileIds", _map(_array("string"))),
    )
)
_REQUESTED_REPLACE = fastavro.parse_schema(
    _record(
        "HoodieRequestedReplaceMetadata",
        _optional("operationType", "string"),
        _optional("clusteringPlan", _CLUSTERING_PLAN),
        _optional("extraMetadata", _map("string")),
        _version(),
    )
)
_ROLLBACK_PLAN = fastavro.parse_schema(
    _record(
        "HoodieRollbackPlan",
        _optional("instantToRollback", _INSTANT_INFO),
        _optional("RollbackRequests", _array(_ROLLBACK_REQUEST)),
        _version(),
    )
)
_ROLLBACK = fastavro.parse_schema(
    _record(
        "HoodieRollbackMetadata",
        _required("startRollbackTime", "string"),
        _required("timeTakenInMillis", "long"),
        _required("totalFilesDeleted", "int"),
        _required("commitsRollback", _array("string")),
        _required("partitionMetadata", _map(_ROLLBACK_PARTITION)),
        _version(),
        {"name": "instantsRollback", "type": _array(_INSTANT_INFO), "default": []},
    )
)
