"""Back-pressure: how much is left to compact, in one figure, for writers that may be quicker than the services."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from bucketlake.commit.metadata_table import is_listed
from bucketlake.config import TableType
from bucketlake.layout import FileSlice, slices_of
from bucketlake.layout.names import path_in_partition
from bucketlake.metadata.step import load_metadata_timeline
from bucketlake.services.metadata_compaction import DELTA_COMMITS, commits_since_compaction
from bucketlake.services.upkeep import DEFAULT
from bucketlake.state import files_of, load_state, touched_lately, view_for
from bucketlake.storage import Store


@dataclass(frozen=True, slots=True, order=True)
class Backlog:
    """How far behind compaction is, where it is furthest behind."""

    times: float
    """1: something is due now; 2: it has twice as much in its logs as makes it due."""
    where: str = ""

    def __str__(self) -> str:
        return (
            f"{self.where} has {self.times:.1f} times what makes a compaction due"
            if self.where
            else "nothing"
        )


def backlog(store: Store) -> Backlog:
    """Look at the logs of the file groups that were written to lately, and at those of the metadata table."""
    state = load_state(store)
    found = [Backlog(0.0)]
    if state.properties.table_type is TableType.MERGE_ON_READ:
        files = files_of(state, touched_lately(state))
        view = view_for(state, (file for group in files.values() for file in group))
        for partition, group in files.items():
            found += _of_slices(partition, slices_of(partition, group, view))
    if is_listed(state.properties):
        commits = commits_since_compaction(load_metadata_timeline(store, state.properties))
        found.append(Backlog(commits / DELTA_COMMITS, "the metadata table"))
    return max(found)


def _of_slices(partition: str, slices: tuple[FileSlice, ...]) -> Iterator[Backlog]:
    """Say of each slice how many times the default trigger holds."""
    compact = DEFAULT.compact
    assert compact is not None and compact.delta_commits and compact.base_bytes
    for part in slices:
        writes = len({log.instant for log in part.log_files})
        base_bytes = part.base_file.size_bytes if part.base_file else 0
        made_up = writes * compact.base_bytes + sum(log.size_bytes for log in part.log_files)
        times = min(writes / compact.delta_commits, made_up / base_bytes if base_bytes else float("inf"))
        if writes:
            yield Backlog(times, f"the file group {path_in_partition(partition, part.file_id)}")
