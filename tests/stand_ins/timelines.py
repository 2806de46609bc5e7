"""Tables of which there is only a timeline: for what decides by names and never opens a file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from bucketlake.config import TableProperties
from bucketlake.state import TableState, view_of
from bucketlake.storage import FileStat, MemoryStore
from bucketlake.timeline import CompactionOperation, CompactionPlan, timeline_of

WORDS = {
    "hoodie.table.name": "orders",
    "hoodie.table.type": "MERGE_ON_READ",
    "hoodie.table.version": "9",
    "hoodie.timeline.layout.version": "2",
    "hoodie.table.recordkey.fields": "id",
    "hoodie.table.partition.fields": "dt",
    "hoodie.record.merge.mode": "COMMIT_TIME_ORDERING",
    "hoodie.table.timeline.timezone": "UTC",
}


def state_of(
    names: Sequence[str],
    *,
    replaced: Mapping[str, Mapping[str, Sequence[str]]] | None = None,
    compactions: Mapping[str, Sequence[tuple[str, str]]] | None = None,
) -> TableState:
    """Return the state of a table whose timeline has files of these names.

    `replaced` says what replacecommits replaced: instant -> partition -> file ids; `compactions` what pending ones
    compact: instant -> partition and file id of each group.
    """
    properties = TableProperties.parse(WORDS, path="hoodie.properties")
    files = [FileStat(f"{properties.timeline_folder}/{name}", 1, 0, "") for name in names]
    timeline = timeline_of(files, layout=2)
    gone = {
        instant: {partition: tuple(ids) for partition, ids in by_partition.items()}
        for instant, by_partition in (replaced or {}).items()
    }
    plans = {
        instant: CompactionPlan(
            operations=tuple(
                CompactionOperation(
                    partition=partition, file_id=file_id, base_instant=None, base_file=None, log_files=()
                )
                for partition, file_id in groups
            )
        )
        for instant, groups in (compactions or {}).items()
    }
    return TableState(
        MemoryStore(),
        properties,
        timeline,
        view_of(properties, timeline, gone, plans),
    )
