"""What an instant's file says inside: bodies, as values.

In layout 2 a body is an Avro container with one record. Table version 6
writes commits as JSON and everything else as Avro; an upgraded table can
hold both, so the bytes decide which it is. A requested or inflight file may
be empty.

An Avro container begins with pairs of which a reader takes what it knows. Ours
have one more, `bucketlake.crc32`: eight hexadecimal digits, the CRC-32 of all
bytes of the file but these eight.

`read_body` gives any of them as a mapping, for display. The typed readers
below give what reading and describing a table need, by our own names.
"""

from __future__ import annotations

import io
import json
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import fastavro

from bucketlake.errors import CorruptTableError
from bucketlake.storage.store import Store
from bucketlake.timeline.instant import Action, Instant, InstantName, State, render_instant_name

_AVRO_MAGIC = b"Obj\x01"
_CHECKSUM = "bucketlake.crc32"
_CHECKSUM_DIGITS = 8
NO_CHECKSUM = {_CHECKSUM: "0" * _CHECKSUM_DIGITS}
"""A pair for the head of a container, to be filled by `with_checksum`."""
SCHEMA_KEY = "schema"
"""Where a commit's extra metadata keeps the table's Avro schema, without meta columns."""
SORT_STRATEGY = "org.apache.hudi.client.clustering.run.strategy.SparkSortAndSizeExecutionStrategy"
"""What a clustering that only sorts is called in its plan."""
RESIZE_STRATEGY = (
    "org.apache.hudi.client.clustering.run.strategy.SparkConsistentBucketClusteringExecutionStrategy"
)
"""And one that splits and merges hash ranges; in its groups' extra metadata:"""
RESIZED_PARTITION = "clustering.group.partition"
RESIZED_NODES = "clustering.group.child.node"
RESIZED_SEQUENCE = "clustering.group.sequence.no"


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteStat:
    """What a commit did to one file group."""

    partition: str
    file_id: str
    path: str
    """The file it wrote, relative to the table's root."""
    previous_instant: str | None
    """The base instant it built on; None for a new file group. Hudi gives a log file its own instant."""
    written: int
    """Records in the file: for a base file all of them, for a log file those of this commit."""
    inserted: int
    updated: int
    deleted: int
    errors: int
    written_bytes: int
    size_bytes: int
    log_files: tuple[str, ...] = ()
    """Names, not paths; empty for a base file."""
    log_version: int = 1
    """The number in the log file's name; of no meaning for a base file."""
    previous_base_file: str | None = None
    """The name of the base file that this one was merged from."""
    compacted_log_files: int = 0
    """How many logs a compaction merged into the file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitMetadata:
    """The body of a completed commit, deltacommit or replacecommit."""

    operation: str | None
    """UPSERT, BULK_INSERT, COMPACT, CLUSTER, INSERT_OVERWRITE..."""
    write_stats: tuple[WriteStat, ...]
    replaced: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Partition -> file ids that this commit hides."""
    extra: Mapping[str, str] = field(default_factory=dict)
    """`extraMetadata`: the schema, and what a writer adds."""
    is_compaction: bool = False

    @property
    def schema(self) -> str | None:
        """The table's Avro schema as of this commit, if it carries one."""
        return self.extra.get(SCHEMA_KEY) or None

    @property
    def partitions(self) -> frozenset[str]:
        """Every partition this commit wrote or replaced something in."""
        return frozenset(stat.partition for stat in self.write_stats) | frozenset(self.replaced)


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionOperation:
    partition: str
    file_id: str
    base_instant: str | None
    base_file: str | None
    """A name (plan version 2) or a path (1); None for a group that has only logs."""
    log_files: tuple[str, ...]
    metrics: Mapping[str, float] = field(default_factory=dict)
    """What the planner weighed: counts and sizes, by Hudi's names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionPlan:
    """What a compaction, or a log compaction, is to do."""

    operations: tuple[CompactionOperation, ...]
    extra: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusteringSlice:
    partition: str
    file_id: str
    base_file: str | None
    log_files: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusteringGroup:
    slices: tuple[ClusteringSlice, ...]
    outputs: int = 1
    """How many file groups are to take their place."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    """What the planner weighed: counts and sizes, by Hudi's names."""
    extra: Mapping[str, str] = field(default_factory=dict)
    """For a resize of consistent buckets: partition, sequence number and child nodes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestedReplace:
    """The body of a requested clustering or replacecommit; no groups unless it is a clustering."""

    operation: str | None
    strategy: str | None
    """The class that Hudi runs it with; ours is the one that its name stands for."""
    groups: tuple[ClusteringGroup, ...]
    parameters: Mapping[str, str] = field(default_factory=dict)
    """What the strategy is told, by Hudi's names."""
    extra: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_sort(self) -> bool:
        """Whether it is a clustering that sorts rows and moves no key to another bucket."""
        return self.strategy == SORT_STRATEGY

    @property
    def is_resize(self) -> bool:
        """Whether it is a clustering that splits and merges hash ranges, whichever of Hudi's classes runs it."""
        return bool(self.groups) and all(RESIZED_NODES in group.extra for group in self.groups)


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanerPlan:
    """What a clean is to delete."""

    policy: str
    """KEEP_LATEST_COMMITS, KEEP_LATEST_BY_HOURS or KEEP_LATEST_FILE_VERSIONS."""
    earliest_kept: str | None
    """The requested time of the oldest write whose readers lose nothing; None when the policy counts versions."""
    earliest_action: Action | None
    """Its action, as its completed file names it."""
    last_completed: str
    """The requested time of the newest completed write when it was planned; empty if there was none."""
    files: Mapping[str, tuple[str, ...]]
    """Partition -> names of the data files to delete."""
    partitions: tuple[str, ...] = ()
    """Partitions that are empty then, and cease to be."""
    extra: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanMetadata:
    earliest_kept: str | None
    """The oldest instant whose files are all still there; None when the policy counts versions instead."""
    files_deleted: int
    deleted: Mapping[str, tuple[str, ...]]
    """Partition -> file names."""
    partitions: tuple[str, ...] = ()
    """Partitions that ceased to be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RollbackPlan:
    """What a rollback is to take back."""

    target: str
    """The requested time of the instant to roll back."""
    action: Action
    """Its action, as its requested file names it."""
    files: Mapping[str, tuple[str, ...]]
    """Partition -> names of the data files to delete."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RollbackMetadata:
    rolled_back: tuple[str, ...]
    files_deleted: int
    deleted: Mapping[str, tuple[str, ...]]
    actions: Mapping[str, str] = field(default_factory=dict)
    """Of what was rolled back, by requested time, in the words of whoever did it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RestorePlan:
    """What a restore is to take back."""

    savepoint: str
    """The requested time of the write to go back to."""
    instants: tuple[tuple[str, Action], ...]
    """Requested time and action of each instant to roll back, in this order: the newest first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreMetadata:
    rolled_back: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SavepointMetadata:
    created_by: str
    created_ms: int
    comment: str
    files: Mapping[str, tuple[str, ...]]
    """Partition -> names of the protected files."""


def read_body(store: Store, instant: Instant) -> Mapping[str, Any]:
    """Read the file of `instant`'s state; an empty file is an empty mapping."""
    return decode_body(store.read(instant.path), path=instant.path)


def read_plan(store: Store, instant: Instant, *, action: Action | None = None) -> Mapping[str, Any]:
    """Read the requested file of `instant`, which is where plans are.

    `action` names the plan of a completed instant: COMPACTION for a commit, CLUSTERING for a replacecommit.
    """
    path = requested_path(instant, action=action)
    return decode_body(store.read(path), path=path)


def requested_path(instant: Instant, *, action: Action | None = None) -> str:
    """Return where the requested file of `instant` is, beside the file of its present state."""
    name = render_instant_name(InstantName(instant.requested, action or instant.action, State.REQUESTED))
    return instant.path.rpartition("/")[0] + "/" + name


def decode_body(data: bytes, *, path: str) -> Mapping[str, Any]:
    """Decode a body, Avro or JSON; `path` is for the error when it is neither."""
    if not data:
        return {}
    try:
        if data.startswith(_AVRO_MAGIC):
            reader = fastavro.reader(io.BytesIO(data))
            _check_sum(data, reader.metadata, path)
            records = list(reader)
        else:
            records = [json.loads(data)]
    except CorruptTableError:
        raise
    except Exception as fault:  # fastavro raises whatever its decoder stumbles on
        raise _corrupt(path, f"bytes that do not decode ({type(fault).__name__}: {fault})") from fault
    if len(records) != 1 or not isinstance(records[0], dict):
        raise _corrupt(path, f"{len(records)} records" if len(records) != 1 else type(records[0]).__name__)
    return records[0]


def with_checksum(data: bytes) -> bytes:
    """Fill the checksum of a container that has room for one."""
    place = _checksum_place(data)
    return data[:place] + _checksum_of(data, place) + data[place + _CHECKSUM_DIGITS :]


def _check_sum(data: bytes, head: Iterable[str], path: str) -> None:
    """Compare a container of ours with its checksum. A pair whose name is nearly the checksum's was one."""
    names = list(head)
    if _CHECKSUM in names:
        place = _checksum_place(data)
        is_sound = data[place : place + _CHECKSUM_DIGITS] == _checksum_of(data, place)
    else:
        is_sound = not any(map(_is_nearly_ours, names))
    if not is_sound:
        raise _corrupt(path, "bytes that are not those its checksum was made of")


def _is_nearly_ours(name: str) -> bool:
    return len(name) == len(_CHECKSUM) and sum(a != b for a, b in zip(name, _CHECKSUM, strict=True)) == 1


def _checksum_place(data: bytes) -> int:
    """Find the digits in a container that has them; its head comes before all else."""
    return data.index(_CHECKSUM.encode()) + len(_CHECKSUM) + 1  # the length of the digits, a byte


def _checksum_of(data: bytes, place: int) -> bytes:
    view = memoryview(data)
    value = zlib.crc32(view[place + _CHECKSUM_DIGITS :], zlib.crc32(view[:place]))
    return f"{value:0{_CHECKSUM_DIGITS}x}".encode()


def read_commit_metadata(store: Store, instant: Instant) -> CommitMetadata:
    """Read the body of a completed commit, deltacommit or replacecommit."""
    assert instant.is_completed, "only a completed commit has its stats"
    return decode_commit_metadata(store.read(instant.path), path=instant.path)


def decode_commit_metadata(data: bytes, *, path: str) -> CommitMetadata:
    """Decode a completed commit, from the timeline or from the history."""
    if not data:
        raise _corrupt(path, "an empty file")
    body = _Body(decode_body(data, path=path), path)
    stats = tuple(
        _write_stat(stat, partition)
        for partition, group in body.mapping("partitionToWriteStats").items()
        for stat in body.records_in(group, f"partitionToWriteStats[{partition!r}]")
    )
    return CommitMetadata(
        operation=body.text("operationType"),
        write_stats=stats,
        replaced=body.lists("partitionToReplaceFileIds"),
        extra=body.texts("extraMetadata"),
        is_compaction=bool(body.fields.get("compacted")) or body.text("operationType") == "COMPACT",
    )


def read_compaction_plan(store: Store, instant: Instant) -> CompactionPlan:
    """Read what a compaction or log compaction, pending or completed, was planned to do."""
    match instant.action:
        case Action.COMMIT:
            action = Action.COMPACTION
        case Action.DELTA_COMMIT:
            action = Action.LOG_COMPACTION
        case _:
            action = instant.action
    path = requested_path(instant, action=action)
    body = _Body(_not_empty(store.read(path), path), path)
    return CompactionPlan(
        operations=tuple(
            CompactionOperation(
                partition=operation.text("partitionPath") or "",
                file_id=operation.required("fileId"),
                base_instant=operation.text("baseInstantTime"),
                base_file=operation.text("dataFilePath"),
                log_files=operation.list("deltaFilePaths"),
                metrics={name: float(value) for name, value in operation.mapping("metrics").items()},
            )
            for operation in body.records("operations")
        ),
        extra=body.texts("extraMetadata"),
    )


def read_requested_replace(store: Store, instant: Instant) -> RequestedReplace:
    """Read the plan of a clustering or replacecommit, pending or completed.

    A completed one does not tell which of the two it was, so both names are tried.
    """
    body = _Body({}, "")
    for action in (Action.CLUSTERING, Action.REPLACE_COMMIT):
        path = requested_path(instant, action=action)
        try:
            body = _Body(decode_body(store.read(path), path=path), path)
            break
        except FileNotFoundError:
            if action is Action.REPLACE_COMMIT:
                raise
    plan = body.record("clusteringPlan")
    return RequestedReplace(
        operation=body.text("operationType"),
        strategy=plan.record("strategy").text("strategyClassName"),
        groups=tuple(_clustering_group(group) for group in plan.records("inputGroups")),
        parameters=plan.record("strategy").texts("strategyParams"),
        extra=body.texts("extraMetadata"),
    )


def read_cleaner_plan(store: Store, instant: Instant) -> CleanerPlan:
    """Read what a clean, pending or completed, was planned to do. Paths are cut down to names."""
    path = requested_path(instant)
    body = _Body(_not_empty(store.read(path), path), path)
    earliest = body.record("earliestInstantToRetain")
    action = earliest.text("action")
    listed = body.mapping("filePathsToBeDeletedPerPartition")
    return CleanerPlan(
        policy=body.required("policy"),
        earliest_kept=earliest.text("timestamp"),
        earliest_action=Action(action) if action in frozenset(Action) else None,
        last_completed=body.text("lastCompletedCommitTimestamp") or "",
        files={
            partition: tuple(
                file.required("filePath").rpartition("/")[2] for file in body.records_in(files, partition)
            )
            for partition, files in listed.items()
        },
        partitions=body.list("partitionsToBeDeleted"),
        extra=body.texts("extraMetadata"),
    )


def read_clean_metadata(store: Store, instant: Instant) -> CleanMetadata:
    return _clean_metadata(_Body(read_body(store, instant), instant.path))


def decode_clean_metadata(data: bytes, *, path: str) -> CleanMetadata:
    """Decode a completed clean."""
    return _clean_metadata(_Body(_not_empty(data, path), path))


def _clean_metadata(body: _Body) -> CleanMetadata:
    partitions = body.mapping("partitionMetadata")
    return CleanMetadata(
        earliest_kept=body.text("earliestCommitToRetain"),
        files_deleted=body.number("totalFilesDeleted"),
        deleted=_per_partition(body, "successDeleteFiles"),
        partitions=tuple(p for p, told in partitions.items() if _is_set(told, "isPartitionDeleted")),
    )


def _is_set(record: object, key: str) -> bool:
    return isinstance(record, Mapping) and bool(record.get(key))


def read_rollback_plan(store: Store, instant: Instant) -> RollbackPlan:
    """Read what a rollback, pending or completed, was planned to do. Paths are cut down to names."""
    path = requested_path(instant)
    body = _Body(_not_empty(store.read(path), path), path)
    target = body.record("instantToRollback")
    files: dict[str, tuple[str, ...]] = {}
    for request in body.records("RollbackRequests"):
        partition = request.text("partitionPath") or ""
        names = tuple(file.rpartition("/")[2] for file in request.list("filesToBeDeleted"))
        files[partition] = files.get(partition, ()) + names
    action = target.required("action")
    if action not in frozenset(Action):
        raise _corrupt(path, f"a rollback of the action {action!r}")
    return RollbackPlan(target=target.required("commitTime"), action=Action(action), files=files)


def read_rollback_metadata(store: Store, instant: Instant) -> RollbackMetadata:
    body = _Body(read_body(store, instant), instant.path)
    return RollbackMetadata(
        rolled_back=body.list("commitsRollback"),
        files_deleted=body.number("totalFilesDeleted"),
        deleted=_per_partition(body, "successDeleteFiles"),
        actions={
            info.required("commitTime"): info.required("action") for info in body.records("instantsRollback")
        },
    )


def read_restore_plan(store: Store, instant: Instant) -> RestorePlan:
    """Read what a restore, pending or completed, was planned to do."""
    path = requested_path(instant)
    body = _Body(_not_empty(store.read(path), path), path)
    instants = []
    for info in body.records("instantsToRollback"):
        action = info.required("action")
        if action not in frozenset(Action):
            raise _corrupt(path, f"a rollback of the action {action!r}")
        instants.append((info.required("commitTime"), Action(action)))
    return RestorePlan(savepoint=body.required("savepointToRestoreTimestamp"), instants=tuple(instants))


def read_restore_metadata(store: Store, instant: Instant) -> RestoreMetadata:
    body = _Body(read_body(store, instant), instant.path)
    return RestoreMetadata(rolled_back=body.list("instantsToRollback"))


def read_savepoint_metadata(store: Store, instant: Instant) -> SavepointMetadata:
    body = _Body(read_body(store, instant), instant.path)
    return SavepointMetadata(
        created_by=body.text("savepointedBy") or "",
        created_ms=body.number("savepointedAt"),
        comment=body.text("comments") or "",
        files=_per_partition(body, "savepointDataFile"),
    )


@dataclass(frozen=True, slots=True)
class _Body:
    """A decoded body, asked for by type: JSON promises nothing, so every answer is checked."""

    fields: Mapping[str, Any]
    path: str

    def text(self, key: str) -> str | None:
        """A text; Hudi writes none as null, as "" and, for previous commits, as "null"."""
        value = self._typed(key, str)
        return None if value in (None, "", "null") else str(value)

    def required(self, key: str) -> str:
        value = self.text(key)
        if value is None:
            raise _corrupt(self.path, f"a record without {key}")
        return value

    def number(self, key: str) -> int:
        return int(self._typed(key, int) or 0)

    def mapping(self, key: str) -> Mapping[str, Any]:
        return self._typed(key, dict) or {}

    def list(self, key: str) -> tuple[str, ...]:
        return tuple(str(item) for item in self._typed(key, list) or [])

    def lists(self, key: str) -> dict[str, tuple[str, ...]]:
        inner = _Body(self.mapping(key), self.path)
        return {name: inner.list(name) for name in inner.fields}

    def texts(self, key: str) -> dict[str, str]:
        return {name: str(value) for name, value in self.mapping(key).items() if value is not None}

    def record(self, key: str) -> _Body:
        return _Body(self.mapping(key), self.path)

    def records(self, key: str) -> tuple[_Body, ...]:
        return self.records_in(self._typed(key, list) or [], key)

    def records_in(self, items: object, name: str) -> tuple[_Body, ...]:
        if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
            raise _corrupt(self.path, f"{name} that is no list of records")
        return tuple(_Body(item, self.path) for item in items)

    def _typed(self, key: str, kind: type) -> Any:
        value = self.fields.get(key)
        if value is not None and not isinstance(value, kind):
            raise _corrupt(self.path, f"{key} of type {type(value).__name__}")
        return value


def _write_stat(stat: _Body, partition: str) -> WriteStat:
    return WriteStat(
        partition=partition,
        file_id=stat.text("fileId") or "",
        path=stat.text("path") or "",
        previous_instant=stat.text("prevCommit"),
        written=stat.number("numWrites"),
        inserted=stat.number("numInserts"),
        updated=stat.number("numUpdateWrites"),
        deleted=stat.number("numDeletes"),
        errors=stat.number("totalWriteErrors"),
        written_bytes=stat.number("totalWriteBytes"),
        size_bytes=stat.number("fileSizeInBytes"),
        log_files=stat.list("logFiles"),
        log_version=stat.number("logVersion") or 1,
        previous_base_file=stat.text("prevBaseFile"),
        compacted_log_files=stat.number("totalLogFilesCompacted"),
    )


def _clustering_group(group: _Body) -> ClusteringGroup:
    return ClusteringGroup(
        slices=tuple(
            ClusteringSlice(
                partition=part.text("partitionPath") or "",
                file_id=part.required("fileId"),
                base_file=part.text("dataFilePath"),
                log_files=part.list("deltaFilePaths"),
            )
            for part in group.records("slices")
        ),
        outputs=group.number("numOutputFileGroups") or 1,
        metrics={name: float(value) for name, value in group.mapping("metrics").items()},
        extra=group.texts("extraMetadata"),
    )


def _per_partition(body: _Body, key: str) -> dict[str, tuple[str, ...]]:
    partitions = body.mapping("partitionMetadata")
    found: Iterable[_Body] = body.records_in(list(partitions.values()), "partitionMetadata")
    return {name: part.list(key) for name, part in zip(partitions, found, strict=True)}


def _not_empty(data: bytes, path: str) -> Mapping[str, Any]:
    if not data:
        raise _corrupt(path, "an empty file")
    return decode_body(data, path=path)


def _corrupt(path: str, found: str) -> CorruptTableError:
    return CorruptTableError(
        path=path,
        found=found,
        expected="an instant's body: an Avro container, or JSON, with one record",
        remedy="Restore the file from a copy, or roll the instant back with the engine that wrote it.",
    )
