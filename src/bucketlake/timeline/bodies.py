"""Bodies as bytes: the mirror of `metadata`, for writers.

A body is an Avro container with one record and no compression. Field names, order and types are Hudi's; a field
that Hudi leaves null is null here, a counter it leaves zero is zero. `version` is null in commits, as Hudi
writes it, and 1 in rollbacks.

The same value gives the same bytes, every time: the container's sync marker, which others draw at random, is a
constant.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import fastavro

from bucketlake.timeline.instant import Action
from bucketlake.timeline.metadata import (
    NO_CHECKSUM,
    CleanerPlan,
    CommitMetadata,
    CompactionPlan,
    RequestedReplace,
    RestorePlan,
    RollbackMetadata,
    RollbackPlan,
    SavepointMetadata,
    WriteStat,
    decode_body,
    with_checksum,
)

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


def encode_requested_replace(extra: Mapping[str, str] | None = None) -> bytes:
    """Write the requested body of a replacecommit that is no clustering: it says nothing to Hudi.

    `extra` is for who goes on with it.
    """
    nothing = dict.fromkeys(("operationType", "clusteringPlan", "extraMetadata", "version"))
    return _container(_REQUESTED_REPLACE, nothing | {"extraMetadata": dict(extra) if extra else None})


def encode_clustering_plan(plan: RequestedReplace, *, root: str) -> bytes:
    """Write the requested body of a clustering. Hudi wants whole paths: `root` is the table's uri."""
    groups = [
        {
            "slices": [
                {
                    "dataFilePath": _whole_path(root, part.partition, part.base_file),
                    "deltaFilePaths": _whole_paths(root, part.partition, part.log_files),
                    "fileId": part.file_id,
                    "partitionPath": part.partition,
                    "bootstrapFilePath": "",
                    "version": 1,
                }
                for part in group.slices
            ],
            "metrics": dict(group.metrics),
            "numOutputFileGroups": group.outputs,
            "extraMetadata": dict(group.extra) or None,
            "version": 1,
        }
        for group in plan.groups
    ]
    clustering = {
        "inputGroups": groups,
        "strategy": {
            "strategyClassName": plan.strategy,
            "strategyParams": dict(plan.parameters),
            "version": 1,
        },
        "extraMetadata": {},
        "version": 1,
        "preserveHoodieMetadata": True,
        "missingSchedulePartitions": [],
    }
    return _container(
        _REQUESTED_REPLACE,
        {
            "operationType": plan.operation,
            "clusteringPlan": clustering,
            "extraMetadata": dict(plan.extra),
            "version": 1,
        },
    )


def encode_compaction_plan(plan: CompactionPlan) -> bytes:
    """Write the requested body of a compaction, in version 2: names, no paths."""
    operations = [
        {
            "baseInstantTime": operation.base_instant,
            "deltaFilePaths": list(operation.log_files),
            "dataFilePath": operation.base_file,
            "fileId": operation.file_id,
            "partitionPath": operation.partition,
            "metrics": dict(operation.metrics),
            "bootstrapFilePath": None,
        }
        for operation in plan.operations
    ]
    return _container(
        _COMPACTION_PLAN,
        {
            "operations": operations,
            "extraMetadata": dict(plan.extra),
            "version": 2,
            "strategy": None,
            "preserveHoodieMetadata": False,
            "missingSchedulePartitions": [],
        },
    )


def encode_cleaner_plan(plan: CleanerPlan, *, root: str) -> bytes:
    """Write the requested body of a clean. Hudi wants whole paths: `root` is the table's uri."""
    earliest = None
    if plan.earliest_kept is not None:
        assert plan.earliest_action is not None
        earliest = {
            "timestamp": plan.earliest_kept,
            "action": str(plan.earliest_action),
            "state": "COMPLETED",
        }
    return _container(
        _CLEANER_PLAN,
        {
            "earliestInstantToRetain": earliest,
            "lastCompletedCommitTimestamp": plan.last_completed,
            "policy": plan.policy,
            "filesToBeDeletedPerPartition": {},
            "version": 2,
            "filePathsToBeDeletedPerPartition": {
                partition: [
                    {"filePath": path, "isBootstrapBaseFile": False}
                    for path in _whole_paths(root, partition, names)
                ]
                for partition, names in plan.files.items()
            },
            "partitionsToBeDeleted": list(plan.partitions),
            "extraMetadata": dict(plan.extra),
        },
    )


def encode_clean_metadata(
    plan: CleanerPlan, *, started: str, taken_ms: int, spared: Mapping[str, Sequence[str]]
) -> bytes:
    """Write the body of a completed clean: all of `plan` is done, but for the `spared` names by partition."""
    partitions: dict[str, dict[str, object]] = {}
    deleted = 0
    for partition, names in plan.files.items():
        kept = set(spared.get(partition, ())).intersection(names)
        deleted += len(names) - len(kept)
        partitions[partition] = {
            "partitionPath": partition,
            "policy": plan.policy,
            "deletePathPatterns": list(names),
            "successDeleteFiles": [name for name in names if name not in kept],
            "failedDeleteFiles": [name for name in names if name in kept],
            "isPartitionDeleted": partition in plan.partitions,
        }
    return _container(
        _CLEAN,
        {
            "startCleanTime": started,
            "timeTakenInMillis": taken_ms,
            "totalFilesDeleted": deleted,
            "earliestCommitToRetain": plan.earliest_kept or "",
            "lastCompletedCommitTimestamp": plan.last_completed,
            "partitionMetadata": partitions,
            "version": 2,
            "bootstrapPartitionMetadata": {},
            "extraMetadata": dict(plan.extra),
        },
    )


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


def encode_savepoint(metadata: SavepointMetadata) -> bytes:
    """Write the body of a completed savepoint."""
    partitions = {
        partition: {"partitionPath": partition, "savepointDataFile": list(names)}
        for partition, names in metadata.files.items()
    }
    return _container(
        _SAVEPOINT,
        {
            "savepointedBy": metadata.created_by,
            "savepointedAt": metadata.created_ms,
            "comments": metadata.comment,
            "partitionMetadata": partitions,
            "version": 1,
        },
    )


def encode_restore_plan(plan: RestorePlan) -> bytes:
    """Write the requested body of a restore."""
    return _container(
        _RESTORE_PLAN,
        {
            "instantsToRollback": _instant_infos(plan.instants),
            "version": 2,
            "savepointToRestoreTimestamp": plan.savepoint,
        },
    )


def encode_restore_metadata(
    plan: RestorePlan, *, rollbacks: Mapping[str, bytes], started: str, taken_ms: int
) -> bytes:
    """Write the body of a completed restore; `rollbacks` are the bodies of what it rolled back, by instant."""
    return _container(
        _RESTORE,
        {
            "startRestoreTime": started,
            "timeTakenInMillis": taken_ms,
            "instantsToRollback": [instant for instant, _ in plan.instants],
            "hoodieRestoreMetadata": {
                instant: [decode_body(body, path=instant)] for instant, body in rollbacks.items()
            },
            "version": 1,
            "restoreInstantInfo": _instant_infos(plan.instants),
        },
    )


def _instant_infos(instants: Iterable[tuple[str, Action]]) -> list[dict[str, str]]:
    return [{"commitTime": instant, "action": str(action)} for instant, action in instants]


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
        "totalLogFilesCompacted": stat.compacted_log_files,
        "totalLogReadTimeMs": 0,
        "totalLogSizeCompacted": 0,
        "tempPath": None,
        "numUpdates": 0,
    }


def _whole_path(root: str, partition: str, name: str | None) -> str:
    """Hudi writes the absence of a file here as an empty path."""
    return "" if name is None else _whole_paths(root, partition, [name])[0]


def _whole_paths(root: str, partition: str, names: Sequence[str]) -> list[str]:
    folder = f"{root}/{partition}" if partition else root
    return [f"{folder}/{name}" for name in names]


def _container(schema: Any, record: Mapping[str, object]) -> bytes:
    buffer = io.BytesIO()
    fastavro.writer(
        buffer, schema, [record], codec="null", sync_marker=_SYNC_MARKER, strict=True, metadata=NO_CHECKSUM
    )
    return with_checksum(buffer.getvalue())


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

_COMPACTION_OPERATION = _record(
    "HoodieCompactionOperation",
    _required("baseInstantTime", ["null", "string"]),
    _optional("deltaFilePaths", _array("string")),
    _optional("dataFilePath", "string"),
    _required("fileId", ["null", "string"]),
    _optional("partitionPath", "string"),
    _optional("metrics", _map("double")),
    _optional("bootstrapFilePath", "string"),
)
_COMPACTION_STRATEGY = _record(
    "HoodieCompactionStrategy",
    _optional("compactorClassName", "string"),
    _optional("strategyParams", _map("string")),
    _version(),
)
_CLEAN_FILE = _record(
    "HoodieCleanFileInfo", _optional("filePath", "string"), _optional("isBootstrapBaseFile", "boolean")
)
_CLEAN_PARTITION = _record(
    "HoodieCleanPartitionMetadata",
    _required("partitionPath", "string"),
    _required("policy", "string"),
    *(
        _required(name, _array("string"))
        for name in ("deletePathPatterns", "successDeleteFiles", "failedDeleteFiles")
    ),
    _optional("isPartitionDeleted", "boolean"),
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
_ROLLBACK_RECORD = _record(
    "HoodieRollbackMetadata",
    _required("startRollbackTime", "string"),
    _required("timeTakenInMillis", "long"),
    _required("totalFilesDeleted", "int"),
    _required("commitsRollback", _array("string")),
    _required("partitionMetadata", _map(_ROLLBACK_PARTITION)),
    _version(),
    {"name": "instantsRollback", "type": _array(_INSTANT_INFO), "default": []},
)
_ROLLBACK = fastavro.parse_schema(_ROLLBACK_RECORD)
_SAVEPOINT = fastavro.parse_schema(
    _record(
        "HoodieSavepointMetadata",
        _required("savepointedBy", "string"),
        _required("savepointedAt", "long"),
        _required("comments", "string"),
        _required(
            "partitionMetadata",
            _map(
                _record(
                    "HoodieSavepointPartitionMetadata",
                    _required("partitionPath", "string"),
                    _required("savepointDataFile", _array("string")),
                )
            ),
        ),
        _version(),
    )
)
_RESTORE_PLAN = fastavro.parse_schema(
    _record(
        "HoodieRestorePlan",
        {"name": "instantsToRollback", "type": _array(_INSTANT_INFO), "default": []},
        {"name": "version", "type": ["int", "null"], "default": 2},
        _optional("savepointToRestoreTimestamp", "string"),
    )
)
_RESTORE = fastavro.parse_schema(
    _record(
        "HoodieRestoreMetadata",
        _required("startRestoreTime", "string"),
        _required("timeTakenInMillis", "long"),
        _required("instantsToRollback", _array("string")),
        _required("hoodieRestoreMetadata", _map(_array(["null", _ROLLBACK_RECORD]))),
        _version(),
        # A record that a schema has defined once is called by its name after that.
        {
            "name": "restoreInstantInfo",
            "type": _array(f"{_NAMESPACE}.HoodieInstantInfo"),
            "default": [],
        },
    )
)
_COMPACTION_PLAN = fastavro.parse_schema(
    _record(
        "HoodieCompactionPlan",
        _optional("operations", _array(_COMPACTION_OPERATION)),
        _optional("extraMetadata", _map("string")),
        _version(),
        _optional("strategy", _COMPACTION_STRATEGY),
        {"name": "preserveHoodieMetadata", "type": ["boolean", "null"], "default": False},
        _optional("missingSchedulePartitions", _array("string")),
    )
)
_CLEANER_PLAN = fastavro.parse_schema(
    _record(
        "HoodieCleanerPlan",
        _optional(
            "earliestInstantToRetain",
            _record(
                "HoodieActionInstant",
                _required("timestamp", "string"),
                _required("action", "string"),
                _required("state", "string"),
            ),
        ),
        {"name": "lastCompletedCommitTimestamp", "type": "string", "default": ""},
        _required("policy", "string"),
        _optional("filesToBeDeletedPerPartition", _map(_array("string"))),
        _version(),
        _optional("filePathsToBeDeletedPerPartition", _map(_array(_CLEAN_FILE))),
        _optional("partitionsToBeDeleted", _array("string")),
        _optional("extraMetadata", _map("string")),
    )
)
_CLEAN = fastavro.parse_schema(
    _record(
        "HoodieCleanMetadata",
        _required("startCleanTime", "string"),
        _required("timeTakenInMillis", "long"),
        _required("totalFilesDeleted", "int"),
        _required("earliestCommitToRetain", "string"),
        {"name": "lastCompletedCommitTimestamp", "type": "string", "default": ""},
        _required("partitionMetadata", _map(_CLEAN_PARTITION)),
        _version(),
        _optional("bootstrapPartitionMetadata", _map("HoodieCleanPartitionMetadata")),
        _optional("extraMetadata", _map("string")),
    )
)
