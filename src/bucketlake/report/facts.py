"""What a report says of a table: its partitions and buckets, its commits, its indexes, and what to do next."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from statistics import mean, median
from typing import Any

from bucketlake import inspection
from bucketlake.config import MaintenanceMode, TableType, maintenance_mode
from bucketlake.index import Index
from bucketlake.index.ring import RANGE
from bucketlake.inspection import Description, Layout, PartitionLayout
from bucketlake.services import MetadataStatus, metadata_status
from bucketlake.services.secondary_index_status import IndexStatus, list_indexes
from bucketlake.state import TableState, commit_metadata
from bucketlake.storage import render_bytes
from bucketlake.timeline import Instant
from bucketlake.timeline.clock import system_ms

LOGS_MAX = 25
"""A reader of a file group merges about so many small logs as cheaply as one base file."""
SKEW_MAX = 4.0
LARGE_BYTES = 256 << 20
SMALL_BYTES = 1 << 20
SMALL_GROUPS_MIN = 64
COMMITS_SHOWN = 200


@dataclass(frozen=True, slots=True)
class Advice:
    """Something to do, why, and the command for it."""

    what: str
    why: str
    command: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitCost:
    """What one write of the active timeline wrote."""

    requested: str
    completed: str
    operation: str
    seconds: float
    inserted: int
    updated: int
    deleted: int
    files: int
    size_bytes: int
    is_service: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class TableFacts:
    """All that a report shows."""

    made: str
    description: Description
    layout: Layout
    rings: Mapping[str, tuple[tuple[float, str], ...]]
    """Of partitions with rings: where each bucket's range ends, as a share of the ring, and how its file ids begin."""
    timeline: tuple[inspection.TimelineEntry, ...]
    commits: tuple[CommitCost, ...]
    """The newest ones, oldest first."""
    metadata: MetadataStatus
    indexes: tuple[IndexStatus, ...]
    advice: tuple[Advice, ...]

    def as_json(self) -> dict[str, Any]:
        """Return the same in lists and texts, short where there may be thousands."""
        told = self.description
        return {
            "made": self.made,
            "facts": {
                "path": told.path,
                "type": told.table_type,
                "key": ", ".join(told.record_key),
                "partitioned by": ", ".join(told.partition) or "nothing",
                "ordering": ", ".join(told.ordering) or "none: the later write wins",
                "index": self.layout.index,
                "partitions": len(self.layout.partitions),
                "file groups": sum(len(part.slices) for part in self.layout.partitions),
                "bytes": self.layout.size_bytes,
                "commits on the timeline": told.commits,
                "newest commit": told.last_commit or "none",
            },
            "name": told.name,
            "columns": [[field.name, str(field.type)] for field in told.schema],
            "advice": [[one.what, one.why, one.command] for one in self.advice],
            "partitions": [self._partition(part) for part in self.layout.partitions],
            "timeline": [
                [e.requested, e.completed or "", e.action, e.state, e.operation or ""] for e in self.timeline
            ],
            "commits": [
                [
                    one.completed,
                    one.operation,
                    round(one.seconds, 3),
                    one.inserted,
                    one.updated,
                    one.deleted,
                    one.files,
                    one.size_bytes,
                    one.is_service,
                ]
                for one in self.commits
            ],
            "health": [list(pair) for pair in self._health()],
        }

    def _partition(self, part: PartitionLayout) -> dict[str, Any]:
        groups = [
            [
                one.file_id[:8],
                one.base_file.size_bytes if one.base_file is not None else 0,
                sum(log.size_bytes for log in one.log_files),
                len(one.log_files),
            ]
            for one in part.slices
        ]
        found: dict[str, Any] = {"path": part.partition, "buckets": part.buckets, "groups": groups}
        if part.partition in self.rings:
            found["ring"] = [[round(end, 6), prefix[:8]] for end, prefix in self.rings[part.partition]]
        if part.fills:
            found["full"] = sum(fill.is_full for fill in part.fills.values())
        return found

    def _health(self) -> Iterator[tuple[str, str, bool]]:
        yield "metadata table", str(self.metadata), self.metadata.is_in_step or not self.metadata.partitions
        for one in self.indexes:
            yield f"secondary index {one.name}", str(one), one.is_in_step


def look_for_report(state: TableState, index: Index, *, changes_until: str | None) -> TableFacts:
    """Look at a table: its files, the commits of its active timeline, its metadata table. Reads no row."""
    layout = inspection.layout(state, index)
    metadata = metadata_status(state.store)
    indexes = list_indexes(state)
    return TableFacts(
        made=datetime.fromtimestamp(system_ms() / 1000, UTC).strftime("%Y-%m-%d %H:%M UTC"),
        description=inspection.describe(state, index, changes_until=changes_until),
        layout=layout,
        rings=_rings(index, layout),
        timeline=inspection.timeline(state),
        commits=tuple(_costs(state)),
        metadata=metadata,
        indexes=indexes,
        advice=tuple(_advice(state, index, layout, metadata, indexes)),
    )


def _rings(index: Index, layout: Layout) -> dict[str, tuple[tuple[float, str], ...]]:
    if index.resizable is None:
        return {}
    found = {part.partition: index.resizable.ring(part.partition) for part in layout.partitions}
    return {
        partition: tuple(((node.value + 1) / RANGE, node.file_id_prefix) for node in ring.nodes)
        for partition, ring in found.items()
        if ring is not None
    }


_SERVICES = frozenset({"COMPACT", "CLUSTER", "LOG_COMPACT"})


def _costs(state: TableState) -> Iterator[CommitCost]:
    for instant in sorted(state.timeline.writes, key=lambda one: one.completed or "")[-COMMITS_SHOWN:]:
        body = commit_metadata(state, instant)
        stats = body.write_stats
        yield CommitCost(
            requested=instant.requested,
            completed=instant.completed or "",
            operation=body.operation or instant.action.value,
            seconds=_seconds(instant),
            inserted=sum(one.inserted for one in stats),
            updated=sum(one.updated for one in stats),
            deleted=sum(one.deleted for one in stats),
            files=len(stats),
            size_bytes=sum(one.written_bytes for one in stats),
            is_service=body.is_compaction or (body.operation or "").upper() in _SERVICES,
        )


def _seconds(instant: Instant) -> float:
    ends = [datetime.strptime(text.ljust(17, "0")[:17], "%Y%m%d%H%M%S%f") for text in _times(instant)]
    return max(0.0, (ends[-1] - ends[0]).total_seconds())


def _times(instant: Instant) -> list[str]:
    return [instant.requested, instant.completed or instant.requested]


def _advice(
    state: TableState,
    index: Index,
    layout: Layout,
    metadata: MetadataStatus,
    indexes: tuple[IndexStatus, ...],
) -> Iterator[Advice]:
    table = shlex.quote(state.store.uri.removeprefix("file://"))
    if metadata.partitions and not metadata.is_in_step:
        yield Advice(
            "Build the metadata table anew",
            f"It is not trusted: {metadata.step}.",
            f"bucketlake metadata rebuild {table}",
        )
    for one in indexes:
        if not one.is_in_step:
            yield Advice(
                f"Build the index {one.name} anew",
                f"Readers do not go by it: {one.state}.",
                f"bucketlake index create {table} {shlex.quote(one.name)} --on {shlex.quote(one.column or 'COLUMN')}",
            )
    pending = [i for i in state.timeline.instants if not i.is_completed]
    if pending:
        yield Advice(
            f"Look at {len(pending)} pending instant{'s' if len(pending) > 1 else ''}",
            "Writers under way look so, and so does what was cut off. The next write tidies up what is dead.",
            f"bucketlake timeline {table}",
        )
    slices = [part for partition in layout.partitions for part in partition.slices]
    logged = [part for part in slices if len(part.log_files) > LOGS_MAX]
    mode = maintenance_mode(state.properties)
    if logged and state.properties.table_type is TableType.MERGE_ON_READ:
        yield Advice(
            f"Compact {len(logged):,} file groups",
            f"They have more than {LOGS_MAX} logs each, which every reader merges.",
            f"bucketlake compact {table} --yes",
        )
    if mode is MaintenanceMode.OFF and len(state.timeline.writes) > 60:
        yield Advice(
            "Let writers look after the table",
            f"Nobody does, and {len(state.timeline.writes)} writes are on the timeline.",
            f"bucketlake alter {table} --maintenance inline",
        )
    yield from _advice_on_buckets(index, layout, table)


def _advice_on_buckets(index: Index, layout: Layout, table: str) -> Iterator[Advice]:
    sizes = sorted(part.size_bytes for partition in layout.partitions for part in partition.slices)
    if not sizes or index.recorded is not None:
        return
    typical, largest = median(sizes), sizes[-1]
    if largest > LARGE_BYTES and largest > SKEW_MAX * typical:
        skewed = max(layout.partitions, key=lambda part: max((s.size_bytes for s in part.slices), default=0))
        command = (
            f"bucketlake buckets resize {table}"
            if index.resizable is not None
            else f"bucketlake buckets overwrite {table} '^{skewed.partition}$,N'"
        )
        yield Advice(
            f"Give {skewed.partition or 'the table'} more buckets",
            f"Its largest file group has {render_bytes(largest)}, half of all have less than "
            f"{render_bytes(int(typical))}.",
            command,
        )
    has_one_each = all(len(partition.slices) <= 1 for partition in layout.partitions)
    if len(sizes) >= SMALL_GROUPS_MIN and mean(sizes) < SMALL_BYTES and not has_one_each:
        yield Advice(
            "Take fewer buckets",
            f"{len(sizes):,} file groups have {render_bytes(int(mean(sizes)))} on average, and a write pays for each "
            f"that it touches.",
            f"bucketlake buckets resize {table}"
            if index.resizable is not None
            else f"bucketlake buckets overwrite {table} '.*,1'",
        )
