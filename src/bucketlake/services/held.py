"""What others hold on to: file groups that a plan has taken, and files that a plan or a savepoint needs.

A service looks here before it decides anything about a file. It takes no file group that another service has
taken, and deletes no file that somebody will come back for.
"""

from __future__ import annotations

from dataclasses import dataclass

from bucketlake.layout import FileGroupId
from bucketlake.layout.names import path_in_partition, split_path
from bucketlake.state import TableState
from bucketlake.storage import in_parallel
from bucketlake.timeline import (
    Action,
    Instant,
    read_compaction_plan,
    read_requested_replace,
    read_savepoint_metadata,
)


@dataclass(frozen=True, slots=True)
class Held:
    """What the pending plans and the savepoints of a table hold on to."""

    groups: frozenset[FileGroupId] = frozenset()
    """File groups of pending compactions, log compactions and clusterings."""
    files: frozenset[str] = frozenset()
    """Paths of the files that those, and savepoints, name."""

    def __or__(self, other: Held) -> Held:
        return Held(self.groups | other.groups, self.files | other.files)


def load_held(state: TableState) -> Held:
    """Read all pending plans and savepoints."""
    timeline = state.timeline
    instants = [
        *timeline.pending(Action.COMPACTION, Action.LOG_COMPACTION, Action.CLUSTERING, Action.REPLACE_COMMIT),
        *timeline.completed(Action.SAVEPOINT),
    ]
    found = Held()
    for held in in_parallel(lambda instant: _held_by(state, instant), instants, state.store):
        found |= held
    return found


def _held_by(state: TableState, instant: Instant) -> Held:
    try:
        return _read_held(state, instant)
    except FileNotFoundError:
        return Held()  # taken back since the timeline was listed: it holds nothing any more


def _read_held(state: TableState, instant: Instant) -> Held:
    store = state.store
    match instant.action:
        case Action.SAVEPOINT:
            protected = read_savepoint_metadata(store, instant).files
            return Held(
                files=frozenset(path_in_partition(p, n) for p, names in protected.items() for n in names)
            )
        case Action.COMPACTION | Action.LOG_COMPACTION:
            operations = read_compaction_plan(store, instant).operations
            return _taken([(o.partition, o.file_id, o.base_file, o.log_files) for o in operations])
        case _:
            groups = read_requested_replace(store, instant).groups
            slices = [part for group in groups for part in group.slices]
            return _taken([(s.partition, s.file_id, s.base_file, s.log_files) for s in slices])


def _taken(slices: list[tuple[str, str, str | None, tuple[str, ...]]]) -> Held:
    # A plan names files, or gives whole paths: the last part is the name in both.
    return Held(
        frozenset((partition, file_id) for partition, file_id, _, _ in slices),
        frozenset(
            path_in_partition(partition, split_path(file)[1])
            for partition, _, base_file, log_files in slices
            for file in (base_file, *log_files)
            if file
        ),
    )
