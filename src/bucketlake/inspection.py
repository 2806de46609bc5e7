"""What a table looks like from outside: values that a command prints and a program can use."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import mean

import pyarrow as pa

from bucketlake.index import Index
from bucketlake.layout import FileSlice, slices_of
from bucketlake.state import TableState, commit_metadata, files_of, table_schema, view_for
from bucketlake.timeline import Action, Instant


@dataclass(frozen=True, slots=True)
class Description:
    """A table in a few lines."""

    path: str
    name: str
    table_type: str
    table_version: int
    record_key: tuple[str, ...]
    partition: tuple[str, ...]
    ordering: tuple[str, ...]
    merge_mode: str
    key_generator: str
    index: str
    metadata_table: tuple[str, ...]
    schema: pa.Schema
    commits: int
    """Completed instants on the active timeline."""
    pending: int
    last_commit: str | None
    """Requested time of the newest completed instant."""


def describe(state: TableState, index: Index) -> Description:
    properties = state.properties
    completed = [i for i in state.timeline.instants if i.is_completed]
    return Description(
        path=state.store.uri,
        name=properties.name,
        table_type=properties.table_type.value,
        table_version=properties.table_version,
        record_key=properties.record_key_fields,
        partition=properties.partition_fields,
        ordering=properties.ordering_fields,
        merge_mode=properties.merge_mode.value,
        key_generator=properties.key_generator.value,
        index=str(index),
        metadata_table=properties.metadata_partitions,
        schema=table_schema(state),
        commits=len(completed),
        pending=len(state.timeline.instants) - len(completed),
        last_commit=max((i.requested for i in completed), default=None),
    )


@dataclass(frozen=True, slots=True)
class PartitionLayout:
    """The file groups of one partition, and how evenly they are filled."""

    partition: str
    slices: tuple[FileSlice, ...]
    buckets: int | None
    """How many buckets the index has here; None if it has none."""

    @property
    def size_bytes(self) -> int:
        return sum(s.size_bytes for s in self.slices)

    @property
    def log_bytes(self) -> int:
        return sum(log.size_bytes for s in self.slices for log in s.log_files)

    @property
    def base_files(self) -> int:
        return sum(s.base_file is not None for s in self.slices)

    @property
    def log_files(self) -> int:
        return sum(len(s.log_files) for s in self.slices)

    @property
    def skew(self) -> float:
        """How much larger the largest file group is than the average one; 1 is even."""
        sizes = [s.size_bytes for s in self.slices]
        average = mean(sizes) if sizes else 0
        return max(sizes) / average if average else 1.0


@dataclass(frozen=True, slots=True)
class Layout:
    partitions: tuple[PartitionLayout, ...]

    @property
    def size_bytes(self) -> int:
        return sum(p.size_bytes for p in self.partitions)

    @property
    def skew(self) -> float:
        """How much larger the largest file group of the table is than the average one."""
        sizes = [s.size_bytes for p in self.partitions for s in p.slices]
        average = mean(sizes) if sizes else 0
        return max(sizes) / average if average else 1.0


def layout(state: TableState, index: Index) -> Layout:
    files = files_of(state)
    view = view_for(state, (file for group in files.values() for file in group))
    return Layout(
        tuple(
            PartitionLayout(
                partition, slices_of(partition, files[partition], view), index.bucket_count(partition)
            )
            for partition in sorted(files)
        )
    )


@dataclass(frozen=True, slots=True)
class TimelineEntry:
    """One instant, as a person reads it."""

    requested: str
    completed: str | None
    action: str
    state: str
    operation: str | None
    """What a completed write did: UPSERT, COMPACT, …"""


def timeline(state: TableState) -> tuple[TimelineEntry, ...]:
    """Return the active timeline, oldest first."""
    return tuple(
        TimelineEntry(
            requested=instant.requested,
            completed=instant.completed,
            action=instant.action.value,
            state=instant.state.value,
            operation=_operation(state, instant),
        )
        for instant in sorted(state.timeline.instants)
    )


_WRITES = frozenset({Action.COMMIT, Action.DELTA_COMMIT, Action.REPLACE_COMMIT})


def _operation(state: TableState, instant: Instant) -> str | None:
    if not instant.is_completed or instant.action not in _WRITES:
        return None
    return commit_metadata(state, instant).operation
