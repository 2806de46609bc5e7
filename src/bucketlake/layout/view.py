"""From the files of a partition and the timeline to the slices a reader may see. Pure: no disk, no clock.

A file group is cut into slices by its base files: a slice is a base file and
the log files that apply over it. What counts is only what is committed:

1. A file counts if the instant in its name is completed, or older than the
   active timeline: archived means committed. Hence a file that a crashed
   write left behind is hidden, until archiving passes its instant.
2. A base file opens the slice of its instant. Of several with one instant,
   attempts of one task, the last by name is taken.
3. A pending compaction of the group opens a slice of its instant, still
   without a base file.
4. A log file belongs (versions 8 and 9) to the newest slice that is not newer
   than its *completion* time, so a write that overlapped the scheduling of a
   compaction is not lost under the new base file. If there is none, it opens
   its own. In version 6 it belongs to the slice its name says.
5. A reader sees the newest slice of a group, or with `as_of` the newest whose
   instant is not later; log files later than `as_of` are left out.
6. If that is the slice of a pending compaction, its logs apply over the slice
   before it.
7. A log that a write put beside a resize has the resize's instant in its
   name, and counts if its own write is committed too.
8. A group that a completed replacecommit replaced is hidden, with `as_of`
   only if the replacecommit is not later.
9. A file that a commit tells of counts as if it were there. If a reader would
   see it and it is not, or has another size, that is an error.
10. What some writes changed is read from the files of those writes alone: of a
    group, their newest base file, and their logs that it does not hold yet. A
    later compaction, pending or not, has no say in that.

Where Hudi's view lets an uncommitted file shift the slices of committed ones
(a failed write's base file that opens a slice, a pending log that names one),
we leave uncommitted files out first.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from bucketlake.layout.file_slice import BaseFile, DataFile, FileSlice, LogFile
from bucketlake.layout.names import split_path
from bucketlake.layout.stated import StatedFiles, check_file, files_stated_by, prove

FileGroupId = tuple[str, str]
"""Partition and file id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineView:
    """All that the timeline has to say about files: a small value that travels to executors."""

    completions: Mapping[str, str]
    """Requested time -> completion time of every completed write on the active timeline."""
    start: str | None
    """The first write on the active timeline, pending or not; what is older is committed. None: no write."""
    holes_end: str | None = None
    """Set when the timeline begins with savepointed writes: archiving may have taken instants between them,
    up to this one. Such an instant is committed if the history has it."""
    pending_compactions: Mapping[FileGroupId, str] = field(default_factory=dict)
    """File group -> the instant of the compaction that is planned or running for it."""
    replaced: Mapping[FileGroupId, str] = field(default_factory=dict)
    """File group -> the requested time of the first replacecommit that hid it."""
    is_cut_by_completion: bool = True
    """Rule 4: true from table version 8 on."""
    history: Mapping[str, str] | None = None
    """Completion times of archived writes; None while nobody needed them."""
    history_since: str = ""
    """The history holds what was requested at this time or later."""
    stated: Sequence[StatedFiles] = ()
    """What the completed writes of the active timeline tell of their files (rule 9)."""
    undone: frozenset[str] = frozenset()
    """Writes that were rolled back, by what is on the active timeline: they never count, whenever they began."""

    def is_committed(self, instant: str) -> bool:
        """Whether files of `instant` count (rule 1)."""
        if instant in self.completions:
            return True
        if instant in self.undone:
            return False
        if self.start is not None and instant < self.start:
            return True
        return self.history is not None and instant in self.history

    def is_told(self, log: LogFile) -> bool:
        """Whether the write of a log that lies beside a resize is committed (rule 7); of others, nothing is asked."""
        return log.written_at == log.instant or self.is_committed(log.written_at)

    def is_replaced(self, partition: str, file_id: str, *, as_of: str | None = None) -> bool:
        """Whether a file group is hidden (rule 8)."""
        by = self.replaced.get((partition, file_id))
        return by is not None and (as_of is None or by <= as_of)

    def of_blocks(self) -> TimelineView:
        """Return the part that tells which log blocks are committed: it travels to executors."""
        return replace(self, replaced={}, pending_compactions={}, stated=())

    def with_history(self, completions: Mapping[str, str], *, since: str) -> TimelineView:
        """Add the completion times of the archived writes requested at `since` or later."""
        return replace(self, history=dict(completions), history_since=since)


def slices_of(
    partition: str, files: Iterable[DataFile], view: TimelineView, *, as_of: str | None = None
) -> tuple[FileSlice, ...]:
    """Return what a reader of `partition` sees: at most one slice per file group, sorted by file id.

    `as_of` is a requested time. The view must have the history if `history_needed` says so.
    """
    listed, stated = {file.path: file for file in files}, stated_in(partition, view)
    return tuple(
        prove(seen, listed, stated) for seen in _visible(partition, {**stated, **listed}, view, as_of)
    )


def file_groups_of(partition: str, files: Iterable[DataFile], view: TimelineView) -> tuple[str, ...]:
    """Return the ids of the file groups that a reader of `partition` sees, whether or not their files can be read."""
    listed, stated = {file.path: file for file in files}, stated_in(partition, view)
    return tuple(seen.file_id for seen in _visible(partition, {**stated, **listed}, view, None))


def all_slices_of(partition: str, files: Iterable[DataFile], view: TimelineView) -> tuple[FileSlice, ...]:
    """Return every committed slice of every group, replaced ones too, oldest first within a group.

    The slice of a pending compaction stands by itself here, without a base file.
    """
    return tuple(
        part
        for file_id, group in _by_file_id(files)
        for part in _cut(partition, file_id, group, view)
        if part.base_file or part.log_files
    )


def read_optimized_slices_of(
    partition: str, files: Iterable[DataFile], view: TimelineView, *, as_of: str | None = None
) -> tuple[FileSlice, ...]:
    """Return what a read-optimized query sees: the base files of `slices_of`, of a group without one nothing.

    A pending compaction changes nothing: rule 6 has put the base file before it into the slice.
    """
    listed, stated = {file.path: file for file in files}, stated_in(partition, view)
    visible = _visible(partition, {**stated, **listed}, view, as_of)
    return tuple(prove(replace(part, log_files=()), listed, stated) for part in visible if part.base_file)


def changed_slices_of(
    partition: str,
    files: Iterable[DataFile],
    completions: Mapping[str, str],
    *,
    replaced: Container[FileGroupId],
    is_cut_by_completion: bool,
) -> tuple[FileSlice, ...]:
    """Return what holds the changes of some writes, whose files these are (rule 10); sorted by file id.

    `completions` are those of the writes, and `replaced` the groups that some of them, or earlier ones, have hidden:
    what is still there of their rows is in other files.
    """
    found: list[FileSlice] = []
    for file_id, (bases, logs) in _by_file_id(files):
        if (partition, file_id) in replaced:
            continue
        base = max(bases, key=lambda base: (base.instant, base.path), default=None)
        over = sorted(
            (log for log in logs if base is None or _is_over(base, log, completions, is_cut_by_completion)),
            key=lambda log: log.order,
        )
        start = over[0].instant if base is None else base.instant
        found.append(FileSlice(partition, file_id, start, base, tuple(over)))
    return tuple(found)


def _is_over(
    base: BaseFile, log: LogFile, completions: Mapping[str, str], is_cut_by_completion: bool
) -> bool:
    """Tell whether a log applies over a base file, or is in it (rule 4)."""
    until = completions.get(log.instant, log.instant) if is_cut_by_completion else log.instant
    if len(until) != len(base.instant):
        until = log.instant
    return until >= base.instant


def stated_in(partition: str, view: TimelineView) -> dict[str, DataFile]:
    """Return the files that commits tell of in a partition, by path (rule 9); a size that tells nothing is 0."""
    return files_stated_by(
        view.stated, partition, completed=view.completions, one_commit_per_log=view.is_cut_by_completion
    )


def check_files(
    paths: Iterable[str], listed: Mapping[str, Iterable[DataFile]], view: TimelineView
) -> frozenset[str]:
    """Check files that a plan names, of the partitions in `listed`; return those that a commit says are whole."""
    wanted = frozenset(paths)
    whole: set[str] = set()
    for partition, files in listed.items():
        there, told = {file.path: file for file in files}, stated_in(partition, view)
        for path in wanted.intersection(told):
            check_file(told[path], there, told)
            if told[path].size_bytes:
                whole.add(path)
    return frozenset(whole)


def history_needed(files: Iterable[DataFile], view: TimelineView) -> str | None:
    """Return the oldest instant whose place only the history knows, or None if the view is enough.

    That is an archived log file with a newer slice in its group, which its completion time may or may not
    reach (rule 4), or a file of an instant in a hole between savepoints. Both are rare.
    """
    if view.start is None:
        return None
    needed: list[str] = []
    slice_starts: dict[FileGroupId, str] = dict(view.pending_compactions)
    archived_logs: list[tuple[FileGroupId, str]] = []
    for file in files:
        is_in_hole = view.holes_end is not None and view.start < file.instant < view.holes_end
        if is_in_hole and file.instant not in view.completions:
            needed.append(file.instant)
        group = (split_path(file.path)[0], file.file_id)
        if isinstance(file, BaseFile):
            if view.is_committed(file.instant):
                slice_starts[group] = max(file.instant, slice_starts.get(group, ""))
        elif file.instant < view.start and file.instant not in view.completions:
            archived_logs.append((group, file.instant))
    if view.is_cut_by_completion:
        needed += [instant for group, instant in archived_logs if slice_starts.get(group, "") > instant]
    oldest = min(needed, default=None)
    has_it = view.history is not None and oldest is not None and view.history_since <= oldest
    return None if has_it else oldest


def _visible(
    partition: str, files: Mapping[str, DataFile], view: TimelineView, as_of: str | None
) -> Iterator[FileSlice]:
    """Yield what a reader sees of each group, sorted by file id (rules 5 to 8)."""
    for file_id, group in _by_file_id(files.values()):
        if view.is_replaced(partition, file_id, as_of=as_of):
            continue
        slices = _cut(partition, file_id, group, view)
        seen = _seen(slices, view.pending_compactions.get((partition, file_id)), as_of)
        if seen is not None:
            yield seen


_Group = tuple[list[BaseFile], list[LogFile]]


def _by_file_id(files: Iterable[DataFile]) -> list[tuple[str, _Group]]:
    groups: dict[str, _Group] = {}
    for file in files:
        bases, logs = groups.setdefault(file.file_id, ([], []))
        if isinstance(file, BaseFile):
            bases.append(file)
        else:
            logs.append(file)
    return sorted(groups.items())


def _cut(partition: str, file_id: str, group: _Group, view: TimelineView) -> list[FileSlice]:
    """Cut the committed files of a group into slices, oldest first (rules 1 to 4)."""
    bases = {base.instant: base for base in sorted(group[0]) if view.is_committed(base.instant)}
    compaction = view.pending_compactions.get((partition, file_id))
    starts = sorted(bases.keys() | ({compaction} if compaction else set()))
    logs: dict[str, list[LogFile]] = {}
    for log in sorted(group[1], key=lambda log: log.order):
        if not view.is_told(log):
            continue
        if view.is_committed(log.instant) or (not view.is_cut_by_completion and log.instant == compaction):
            start = _start_for(log, starts, view)
            if start not in starts:
                starts.insert(bisect_right(starts, start), start)
            logs.setdefault(start, []).append(log)
    return [
        FileSlice(partition, file_id, start, bases.get(start), tuple(logs.get(start, ()))) for start in starts
    ]


def _start_for(log: LogFile, starts: Sequence[str], view: TimelineView) -> str:
    """Choose the slice of a log file (rule 4); `starts` is sorted."""
    if not view.is_cut_by_completion or not starts or starts[-1] <= log.instant:
        # Completion is never before the request: a log later than every slice start belongs to the last.
        return starts[-1] if view.is_cut_by_completion and starts else log.instant
    completed = view.completions.get(log.instant) or (view.history or {}).get(log.instant)
    if completed is None:
        is_known = view.history is not None and view.history_since <= log.instant
        assert is_known, f"{log.path}: ask history_needed before cutting slices"
        # Archived, and lost by the history too: the latest slice, as Hudi has it.
        return starts[-1]
    if len(completed) != len(starts[-1]):
        # Times of 14 digits, from before milliseconds, do not compare with 17: the request stands in.
        completed = log.instant
    position = bisect_right(starts, completed)
    return starts[position - 1] if position else log.instant


def _seen(slices: Sequence[FileSlice], compaction: str | None, as_of: str | None) -> FileSlice | None:
    """Pick what a reader sees of a group's slices (rules 5 and 6)."""
    candidates = [part for part in slices if as_of is None or part.instant <= as_of]
    if not candidates:
        return None
    latest = candidates[-1]
    if latest.instant == compaction and len(candidates) > 1:
        before = candidates[-2]
        logs = sorted(before.log_files + latest.log_files, key=lambda log: log.order)
        latest = replace(before, log_files=tuple(logs))
    if as_of is not None:
        latest = replace(latest, log_files=tuple(log for log in latest.log_files if log.instant <= as_of))
    return latest if latest.base_file or latest.log_files else None
