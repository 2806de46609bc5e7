"""Resizes that are under way, as a writer must know them.

While a bucket is being split, or merged with its neighbours, a merge-on-read write to it goes to the old file group
and to those that take its place (`Offspring`): what it adds to the latter is hidden until the resize completes, and
then lies over what the resize has moved there. The file's name has the instant of the resize, its blocks that of the
write.

So a write must have known of every resize of its buckets when it commits, and the resize must still be there; else it
is run again. On copy-on-write tables it is the resize that follows the writers.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

from bucketlake.config import TableProperties, TableType
from bucketlake.errors import ConcurrentWriteError
from bucketlake.index.consistent import decode_children
from bucketlake.index.index import Index, PlacedIndex
from bucketlake.index.keeper import Join
from bucketlake.index.rings import after_resize
from bucketlake.layout import FileGroupId, TimelineView, list_files
from bucketlake.layout.file_slice import LogFile
from bucketlake.layout.names import (
    LogFileName,
    parse_log_file_name,
    path_in_partition,
    shadow_token,
    split_path,
)
from bucketlake.logfile import BlockType, HeaderKey, decode_blocks, decode_reference
from bucketlake.state import TableState, view_for
from bucketlake.storage import Store, in_parallel
from bucketlake.timeline import (
    RESIZED_NODES,
    RESIZED_PARTITION,
    Action,
    CommitMetadata,
    Instant,
    InstantName,
    RequestedReplace,
    State,
    Timeline,
    elapsed_ms,
    instant_path,
    read_requested_replace,
)

_VERSION_MAX = (1 << 31) - 1


@dataclass(frozen=True, slots=True)
class Offspring:
    """What a bucket is turning into."""

    instant: str
    """Of the resize."""
    index: PlacedIndex
    """Says which of the new file groups a key belongs to."""
    number: int
    """Of the bucket among those of the resize: two that become one must not write the same file."""

    def log_name(self, file_id: str, *, instant: str, task: int) -> LogFileName:
        """Name the log that the write of `instant` adds to a new file group.

        Its version is the time since the resize: later writes come later in the group.
        """
        token = shadow_token(bucket=self.number, task=task)
        return LogFileName(file_id, self.instant, elapsed_ms(self.instant, instant), token)


def pending_resizes(store: Store, timeline: Timeline) -> dict[str, RequestedReplace]:
    """Read the plans of all resizes under way, by instant."""
    found: dict[str, RequestedReplace] = {}
    for pending in timeline.pending(Action.CLUSTERING):
        plan = _plan_of(store, pending)
        if plan is not None and plan.is_resize:
            found[pending.requested] = plan
    return found


def offspring_of(state: TableState, index: Index, *, instant: str) -> dict[FileGroupId, Offspring]:
    """Find what becomes of every file group that is being resized, for a write of `instant`."""
    found: dict[FileGroupId, Offspring] = {}
    rings = index.resizable
    if rings is None or state.properties.table_type is TableType.COPY_ON_WRITE:
        return found
    for resize, plan in pending_resizes(state.store, state.timeline).items():
        if elapsed_ms(resize, instant) > _VERSION_MAX:
            raise ConcurrentWriteError(
                f"the resize of {resize} is pending for more than {_VERSION_MAX // 86_400_000} days, and nothing more "
                f"can be written beside it. Complete it or take it back: `bucketlake buckets resize`."
            )
        number = 0
        afterwards: dict[str, PlacedIndex] = {}
        children: dict[str, list[str]] = {}
        for group in plan.groups:
            children.setdefault(group.extra[RESIZED_PARTITION], []).append(group.extra[RESIZED_NODES])
        for partition, texts in children.items():
            afterwards[partition] = after_resize(rings, partition, texts, path=f"the resize of {resize}")
        for group in plan.groups:
            for part in group.slices:
                found[part.partition, part.file_id] = Offspring(resize, afterwards[part.partition], number)
                number += 1
    return found


def find_unknown_resize(
    store: Store,
    timeline: Timeline,
    metadata: CommitMetadata,
    *,
    known: Collection[str],
    is_given_up: Callable[[str], bool],
    is_copy_on_write: bool,
) -> str | None:
    """Name a resize that keeps a write from being committed: one that it did not know of, or wrote to and is gone.

    `is_given_up` tells whether it was decided to take a resize back.
    """
    if is_copy_on_write:
        return None
    pending = pending_resizes(store, timeline)
    touched = {(stat.partition, stat.file_id) for stat in metadata.write_stats}
    for instant, plan in pending.items():
        groups = {(part.partition, part.file_id) for group in plan.groups for part in group.slices}
        if instant not in known and groups & touched:
            return instant
    written = shadowed(stat.path for stat in metadata.write_stats) & frozenset(known)
    return min((i for i in written if i not in pending or is_given_up(i)), default=None)


def families_of(plan: RequestedReplace, *, path: str) -> dict[FileGroupId, frozenset[FileGroupId]]:
    """Return, of every file group that a resize replaces, those that take its place.

    `path` says where the plan is, for the error if it makes no sense.
    """
    families: dict[FileGroupId, frozenset[FileGroupId]] = {}
    for group in plan.groups:
        nodes = decode_children(group.extra[RESIZED_NODES], path=path)
        come = frozenset(
            (group.extra[RESIZED_PARTITION], f"{node.file_id_prefix}-0")
            for node in nodes
            if node.file_id_prefix
        )
        families.update({(part.partition, part.file_id): come for part in group.slices})
    return families


def shadow_logs(store: Store, instant: str, plan: RequestedReplace) -> list[LogFile]:
    """Find the logs that writers, ours or Hudi's, have put beside a resize."""
    children = frozenset[FileGroupId]().union(*families_of(plan, path=instant).values())
    listed = list_files(store, sorted({partition for partition, _ in children}))
    return [
        file
        for partition, files in listed.items()
        for file in files
        if isinstance(file, LogFile) and file.instant == instant and (partition, file.file_id) in children
    ]


def references(store: Store, plan: RequestedReplace, *, view: TimelineView) -> tuple[Join, ...]:
    """Say how the old file groups of a resize get the rows that committed writes have left only a reference to.

    A log is a run of blocks, and those of the files that a reference names are what it stands for.
    """
    planned = {(part.partition, part.file_id) for group in plan.groups for part in group.slices}
    logs = [
        (partition, file)
        for partition, files in list_files(store, sorted({partition for partition, _ in planned})).items()
        for file in files
        if isinstance(file, LogFile)
        and (partition, file.file_id) in planned
        and view.is_committed(file.instant)
    ]
    found = in_parallel(lambda log: _reference(store, *log), logs, store)
    return tuple(join for join in found if join is not None)


def _reference(store: Store, partition: str, log: LogFile) -> Join | None:
    version = store.stat(log.path).version
    blocks = list(decode_blocks(store.read(log.path), path=log.path))
    if all(block.type is not BlockType.REFERENCE for block in blocks):
        return None
    names = [name for block in blocks for name in decode_reference(block, path=log.path)]
    return Join(log.path, tuple(path_in_partition(partition, name) for name in names), version)


def unfinished_logs(state: TableState, instant: str, plan: RequestedReplace) -> tuple[str, ...]:
    """Name what writes that are not completed have put beside a resize that is about to be.

    Hudi would see it then; for us it is hidden anyway. Who is still at it finds its file groups replaced, and is run
    again. That the resize completes is decided: nobody commits in between whose logs were still needed.
    """
    store = state.store
    logs = shadow_logs(store, instant, plan)
    view = view_for(state, logs)
    contents = in_parallel(store.read, [log.path for log in logs], store)
    unfinished = []
    for log, data in zip(logs, contents, strict=True):
        instants = {
            block.header.get(HeaderKey.INSTANT_TIME, "")
            for block in decode_blocks(data, path=log.path)
            if block.type is not BlockType.CORRUPT
        }
        if not all(map(view.is_committed, instants)):
            unfinished.append(log.path)
    return tuple(unfinished)


def plan_of_resize(store: Store, properties: TableProperties, instant: str) -> RequestedReplace | None:
    """Read the plan of a resize, pending or completed; None if the instant is none."""
    path = instant_path(properties, InstantName(instant, Action.CLUSTERING, State.REQUESTED))
    plan = _plan_of(store, Instant(instant, Action.CLUSTERING, State.REQUESTED, None, path))
    return plan if plan is not None and plan.is_resize else None


def shadowed(paths: Iterable[str]) -> frozenset[str]:
    """Return the instants in the names of these log files."""
    names = (parse_log_file_name(split_path(path)[1]) for path in paths)
    return frozenset(name.instant for name in names if name is not None)


def _plan_of(store: Store, pending: Instant) -> RequestedReplace | None:
    try:
        return read_requested_replace(store, pending)
    except FileNotFoundError:
        return None  # taken back since the timeline was listed
