"""What a table is at one moment: its properties, its timeline, and what the timeline says about files.

`load_state` reads all of it once, on the driver. A state is a value: it does
not follow the table, and two questions to it have one answer.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from bucketlake.basefile import read_footer
from bucketlake.config import TableProperties, load_properties
from bucketlake.errors import ConfigError, CorruptTableError, UnsupportedError
from bucketlake.layout import (
    DataFile,
    FileGroupId,
    FileSlice,
    Listed,
    StatedFiles,
    TimelineView,
    all_slices_of,
    find_data_file,
    history_needed,
    list_files,
    list_partitions,
    list_table,
    stated_files,
    stated_in,
)
from bucketlake.layout.names import path_in_partition, split_path
from bucketlake.metadata.change import logged_keys_of, logs_may_delete
from bucketlake.metadata.listing import list_by_metadata
from bucketlake.schema import META_COLUMNS, avro_to_arrow
from bucketlake.storage import FileCache, FileStat, Store, in_parallel
from bucketlake.timeline import (
    WRITE_ACTIONS,
    Action,
    ArchivedInstant,
    CommitMetadata,
    CompactionPlan,
    Instant,
    Timeline,
    load_history,
    load_timeline,
    read_archived_commit,
    read_clean_metadata,
    read_cleaner_plan,
    read_commit_metadata,
    read_compaction_plan,
    read_rollback_metadata,
    shift_instant,
)

_LOAD_ATTEMPTS = 8
"""Each is at another moment. A restore takes the rollbacks that it is made of off the timeline one by one."""
_ONE_DAY_MS = 24 * 60 * 60 * 1000


@dataclass(frozen=True, slots=True)
class TableState:
    """A table as it was when it was loaded."""

    store: Store
    properties: TableProperties
    timeline: Timeline
    view: TimelineView


def load_state(store: Store) -> TableState:
    """Read properties, timeline, and the bodies that decide which files count.

    Those are the completed replacecommits, which hide file groups, and the plans of pending compactions.
    """
    properties = load_properties(store)
    for attempt in range(_LOAD_ATTEMPTS):
        timeline = load_timeline(store, properties)
        if not timeline.instants:
            load_properties(store)  # a table that is being deleted is no empty one
        try:
            view = _load_view(store, properties, timeline)
        except FileNotFoundError:
            # Archived or rolled back between our listing and our reading: the timeline has moved on.
            if attempt + 1 == _LOAD_ATTEMPTS:
                raise
            continue
        return TableState(store, properties, timeline, view)
    raise AssertionError("the last attempt returns or raises")


def list_folders(state: TableState) -> Listed:
    """List the data files that lie in the table's folders, whatever commits tell of them.

    For who looks for what others have left: a rollback, a restore, an archive, a check.
    """
    return list_table(state.store, is_partitioned=bool(state.properties.partition_fields))


def look_at_files(state: TableState, partitions: Collection[str] | None = None) -> Listed:
    """List the data files of all partitions, or of those named, for reads and for planning writes.

    By the metadata table, where it is in step; else by folders, and then partitions are among them that are gone
    although commits tell of rows in them.
    """
    told = list_by_metadata(state.store, state.properties, state.timeline, partitions)
    if told is not None:
        return Listed(told, frozenset())
    if partitions is None or not state.properties.partition_fields:
        listed = list_folders(state)
    else:
        listed = list_partitions(state.store, partitions)
    gone = {
        (partition, file.file_id)
        for commit in _stated(state)
        for partition, files in commit.files.items()
        if partition not in listed.files and (partitions is None or partition in partitions)
        for file in files
    }
    gone -= state.view.replaced.keys()
    gone -= _replaced_before(state, gone).keys()
    files = listed.files | {partition: () for partition, _ in gone}
    return Listed(dict(sorted(files.items())), listed.unmarked)


def files_of(state: TableState, partitions: Collection[str] | None = None) -> dict[str, tuple[DataFile, ...]]:
    """List the data files of all partitions, or of those named, for reads and for planning writes."""
    return look_at_files(state, partitions).files


def everywhere(state: TableState) -> Collection[str] | None:  # noqa: ARG001 # as `touched_lately`
    """Say that all partitions are to be listed."""
    return None


def touched_lately(state: TableState) -> frozenset[str]:
    """Name the partitions that the writes of the active timeline have written to, or replaced file groups in."""
    told = in_parallel(
        lambda instant: _partitions_told_by(instant, state.store), state.timeline.writes, state.store
    )
    return frozenset[str]().union(*told)


def view_of(
    properties: TableProperties,
    timeline: Timeline,
    replacements: Mapping[str, Mapping[str, tuple[str, ...]]],
    compactions: Mapping[str, CompactionPlan],
) -> TimelineView:
    """Say what a timeline means for files; what was replaced, and the plans, are keyed by requested time."""
    replaced: dict[FileGroupId, str] = {}
    for requested, groups in sorted(replacements.items()):
        for partition, file_ids in groups.items():
            for file_id in file_ids:
                # A group replaced twice (by writers that raced) is gone since the first time.
                replaced.setdefault((partition, file_id), requested)
    pending: dict[FileGroupId, str] = {}
    for requested, plan in sorted(compactions.items()):
        for operation in plan.operations:
            group = (operation.partition, operation.file_id)
            if group in pending:
                raise CorruptTableError(
                    path=f"{properties.timeline_folder}/{requested}.compaction.requested",
                    found=f"file group {operation.file_id} of partition {operation.partition!r}",
                    expected=f"a group that no other plan holds; the one of {pending[group]} does",
                    remedy="Roll one of the two compactions back with Hudi.",
                )
            pending[group] = requested
    return TimelineView(
        completions={i.requested: i.completed for i in timeline.writes if i.completed is not None},
        start=timeline.start,
        holes_end=_holes_end(timeline),
        pending_compactions=pending,
        replaced=replaced,
        is_cut_by_completion=properties.table_version >= 8,
    )


def view_for(state: TableState, files: Iterable[DataFile], *, trusts_listing: bool = False) -> TimelineView:
    """Return the view to cut `files` into slices with: `state.view`, and what commits tell of their files.

    Where the place of an archived log file depends on when it completed, the history is read, from the oldest such
    instant on. Who trusts what was listed is told nothing of files that are lost or damaged.
    """
    files = list(files)
    view = state.view if trusts_listing else replace(state.view, stated=_stated(state))
    gone = _groups_gone(files, view)
    if gone:
        view = replace(view, replaced={**_replaced_before(state, gone), **view.replaced})
    return _with_history(state, files, view)


def _with_history(state: TableState, files: Collection[DataFile], view: TimelineView) -> TimelineView:
    since = history_needed(files, view)
    if since is None:
        return view
    archived = load_history(state.store, state.properties, since=since)
    completions = {a.requested: a.completed for a in archived if a.action in WRITE_ACTIONS}
    return view.with_history(completions, since=since)


def commit_metadata(state: TableState, instant: Instant | ArchivedInstant) -> CommitMetadata:
    """Read what a completed write wrote, from the timeline or from the history."""
    if isinstance(instant, ArchivedInstant):
        return read_archived_commit(state.store, instant)
    return read_commit_metadata(state.store, instant)


def table_schema(state: TableState, *, as_of: str | None = None) -> pa.Schema:
    """Return the table's columns, without meta columns, as of a requested time or now.

    The newest commit that carries a schema says it; else the properties do; else a base file. A time before
    the active timeline gets the newest schema, as for Hudi. Partition columns that the files lack
    (`drop_partition_columns`) come last, as text.
    """
    fields = list(_stored_schema(state, as_of))
    names = {column.name for column in fields}
    if state.properties.drop_partition_columns:
        partition_columns = (name.partition(":")[0] for name in state.properties.partition_fields)
        fields += [pa.field(name, pa.string()) for name in partition_columns if name not in names]
    return pa.schema(fields)


def instants_between(
    state: TableState, begin: str | None, end: str | None
) -> tuple[tuple[Instant, CommitMetadata], ...]:
    """Return the writes completed in (begin, end], in order of completion; None is no bound.

    An archived one has the history file for its `path`. Table version 6 wrote no completion times down;
    there, as for Hudi, the requested times stand in for them.

    Raises `UnsupportedError` where the answer would be incomplete: in version 6 when archived instants may be
    among them, or when one is pending that will appear in the range later.
    """
    if state.properties.table_version < 8:
        return _requested_between(state, begin, end)
    return _with_metadata(
        state,
        [
            (write.instant if isinstance(write, ArchivedInstant) else write, write)
            for write in writes_between(state, begin, end)
        ],
    )


def writes_between(
    state: TableState, begin: str | None, end: str | None
) -> tuple[Instant | ArchivedInstant, ...]:
    """Return the writes completed in (begin, end], in order of completion, and read no body; None is no bound."""
    active = [i for i in state.timeline.writes if _in_range(i.completed, begin, end)]
    archived = [a for a in _archived_writes(state, begin) if _in_range(a.completed, begin, end)]
    # An instant that is being archived right now is on both; the active file is the one to read.
    known = {instant.requested for instant in active}
    found: list[Instant | ArchivedInstant] = [*active, *(a for a in archived if a.requested not in known)]
    return tuple(sorted(found, key=lambda write: (write.completed or "", write.requested)))


def is_completed_by(
    state: TableState, requested: str, end: str | None, known: Mapping[str, str] | None = None
) -> bool:
    """Tell whether a write was completed at `end` or before; None is now.

    `known` are completion times that the caller has read. Table version 6 goes by requested times.
    """
    if state.properties.table_version < 8:
        return requested in state.view.completions and (end is None or requested <= end)
    completed = (known or {}).get(requested) or state.view.completions.get(requested)
    if completed is None and state.timeline.start is not None and requested < state.timeline.start:
        archived = load_history(state.store, state.properties, since=requested)
        completed = next(
            (a.completed for a in archived if a.requested == requested and a.action in WRITE_ACTIONS), None
        )
    return completed is not None and (end is None or completed <= end)


def check_as_of(state: TableState, as_of: str) -> None:
    """Refuse a time travel to before the last clean: the files it would read may be gone.

    Without this check rows would be missing silently (Hudi: TimelineUtils.validateTimestampAsOf).
    """
    earliest = cleaned_before(state)
    if earliest is not None and as_of < earliest:
        raise ConfigError(
            f"the table cannot be read as of {as_of}: the last clean kept files from {earliest} on. Ask for {earliest} "
            f"or later, or have the cleaner keep more commits from now on."
        )


def cleaned_before(state: TableState) -> str | None:
    """Return the requested time of the oldest write that the last clean has kept; None if there was no clean."""
    cleans = [i for i in state.timeline.instants if i.action is Action.CLEAN]
    if not cleans:
        return None
    # One that was cut off may have deleted all that it names.
    read = read_clean_metadata if cleans[-1].is_completed else read_cleaner_plan
    earliest = read(state.store, cleans[-1]).earliest_kept
    # A clean that keeps a number of versions names no instant; the active timeline is then what is safe.
    return earliest or next((i.requested for i in state.timeline.writes), None)


def cleaned_after(state: TableState, as_of: str) -> dict[str, tuple[DataFile, ...]]:
    """Return the files that readers as of a time may have seen and later cleans have deleted, or are deleting.

    Their sizes are not known. A clean that has kept what `as_of` sees is passed over. Who counts versions keeps
    nothing for those who look back, so only the files tell.
    """
    found: dict[str, list[DataFile]] = {}
    for clean in state.timeline.instants:
        if clean.action is not Action.CLEAN or clean.requested <= as_of:
            continue  # an earlier clean has deleted what others had taken the place of by then
        if clean.is_completed:
            done = read_clean_metadata(state.store, clean)
            earliest, deleted = done.earliest_kept, done.deleted
        else:
            plan = read_cleaner_plan(state.store, clean)
            earliest, deleted = plan.earliest_kept, plan.files
        if earliest is not None and earliest <= as_of:
            continue
        for partition, names in deleted.items():
            paths = (path_in_partition(partition, name) for name in names)
            files = (find_data_file(path, size_bytes=0) for path in paths)
            found.setdefault(partition, []).extend(file for file in files if file is not None)
    return {partition: tuple(files) for partition, files in found.items()}


def cleaned_file(
    state: TableState,
    cleaned: Mapping[str, Sequence[DataFile]],
    listed: Mapping[str, Sequence[DataFile]],
    view: TimelineView,
    cut: Callable[[str, Iterable[DataFile], TimelineView], Sequence[FileSlice]],
) -> str | None:
    """Return a file that is gone, and that `cut` would see if no clean had deleted it; None if there is none."""
    for partition in sorted(cleaned.keys() & listed.keys()):
        there = {file.path: file for file in listed[partition]}
        groups = {file.file_id for file in there.values()}
        stated = stated_in(partition, view)
        put_back = {
            file.path: stated.get(file.path, file)
            for file in cleaned[partition]
            # A group that is gone as a whole was replaced: if not by the timeline, then before it, and nobody saw it.
            if file.file_id in groups or (partition, file.file_id) in state.view.replaced
        }
        files = {**put_back, **there}.values()
        seen: set[str] = set()
        for part in cut(partition, files, _with_history(state, files, view)):
            seen.update(log.path for log in part.log_files)
            seen.update([part.base_file.path] if part.base_file is not None else [])
        seen &= put_back.keys()
        if seen:
            # The metadata table still lists what a clean has deleted that is not completed.
            found = {file.path for file in list_files(state.store, [partition])[partition]}
            gone = seen - (found & there.keys())
            if gone:
                return min(gone)
    return None


def _stated(state: TableState) -> tuple[StatedFiles, ...]:
    """Return what the writes of the active timeline tell of their files. Each is read once by a process."""
    found = in_parallel(lambda instant: _stated_by(instant, state.store), state.timeline.writes, state.store)
    return tuple(stated for stated in found if stated is not None)


def _groups_gone(files: Iterable[DataFile], view: TimelineView) -> frozenset[FileGroupId]:
    """Find the file groups that commits tell of and that have no file left, in the partitions of `files`."""
    there = {(split_path(file.path)[0], file.file_id) for file in files}
    partitions = {partition for partition, _ in there}
    told = {
        (partition, file.file_id)
        for commit in view.stated
        for partition in partitions.intersection(commit.files)
        for file in commit.files[partition]
    }
    return frozenset(told - there - view.replaced.keys())


def _replaced_before(state: TableState, groups: Collection[FileGroupId]) -> dict[FileGroupId, str]:
    """Return which of `groups` an archived replacecommit has hidden, and its requested time.

    A replacecommit that took long is archived before writes that were begun after it and completed before it.
    """
    if not groups:
        return {}
    try:
        archived = load_history(state.store, state.properties)
    except UnsupportedError:
        # Table version 6 cannot be asked. Rather miss a loss than refuse a table that is sound.
        return dict.fromkeys(groups, "")
    found: dict[FileGroupId, str] = {}
    for instant in archived:
        is_late = state.timeline.start is not None and instant.completed > state.timeline.start
        if instant.action is Action.REPLACE_COMMIT and is_late:
            hidden = read_archived_commit(state.store, instant).replaced
            found |= {
                (p, file_id): instant.requested for p, file_ids in hidden.items() for file_id in file_ids
            }
    return {group: found[group] for group in groups if group in found}


@dataclass(frozen=True, slots=True)
class _Told:
    """What of a commit is asked for again and again."""

    files: StatedFiles
    schema: str | None
    replaced: Mapping[str, tuple[str, ...]]
    logged_keys: Mapping[str, Mapping[str, int]]
    may_delete: bool
    """Whether its logs may hold deletes."""


_TOLD: FileCache[_Told] = FileCache("commits")
_TOLD_FILE_BYTES = 600


def _told_by(instant: Instant, store: Store) -> _Told:
    """Read what a commit tells. Each is read once by a process."""
    file = FileStat(instant.path, 0, 0, instant.version)
    known = _TOLD.get(store, file)
    if known is None:
        commit = read_commit_metadata(store, instant)
        stated = stated_files(
            instant.requested, ((stat.partition, stat.path, stat.size_bytes) for stat in commit.write_stats)
        )
        known = _Told(stated, commit.schema, commit.replaced, logged_keys_of(commit), logs_may_delete(commit))
        count = len(commit.write_stats) + sum(map(len, commit.replaced.values()))
        _TOLD.put(store, file, known, _TOLD_FILE_BYTES * count + len(commit.schema or "") + 1_000)
    return known


def _stated_by(instant: Instant, store: Store) -> StatedFiles | None:
    try:
        return _told_by(instant, store).files
    except FileNotFoundError:
        return None  # archived or rolled back since the timeline was listed


def _partitions_told_by(instant: Instant, store: Store) -> frozenset[str]:
    try:
        told = _told_by(instant, store)
    except FileNotFoundError:
        return frozenset()  # archived or rolled back since the timeline was listed
    return frozenset(told.files.files) | frozenset(told.replaced)


def logged_keys(
    state: TableState, instants: Collection[str]
) -> Mapping[str, Mapping[str, Mapping[str, int]]]:
    """Return by how many keys logs have made file groups grow, as their commits tell: instant -> partition -> file id.

    `instants` are requested times of completed writes, of the active timeline or of the history.
    """
    active = [write for write in state.timeline.writes if write.requested in instants]
    found = {write.requested: _told_by(write, state.store).logged_keys for write in active}
    missing = set(instants) - found.keys()
    if missing and state.properties.timeline_layout > 1:
        for archived in load_history(state.store, state.properties, since=min(missing)):
            if archived.requested in missing and archived.action in WRITE_ACTIONS:
                found[archived.requested] = logged_keys_of(read_archived_commit(state.store, archived))
    return found


def may_hold_deletes(state: TableState, instants: Collection[str]) -> frozenset[str]:
    """Return those of some writes whose logs may hold deletes; what is archived is not looked at."""
    known = {write.requested: write for write in state.timeline.writes}
    return frozenset(i for i in instants if i not in known or _told_by(known[i], state.store).may_delete)


def _load_view(store: Store, properties: TableProperties, timeline: Timeline) -> TimelineView:
    view = _view_of_writes(store, properties, timeline)
    rollbacks = timeline.completed(Action.ROLLBACK)
    undone = in_parallel(lambda rollback: _undone_by(rollback, store), rollbacks, store)
    return replace(view, undone=frozenset[str]().union(*undone)) if rollbacks else view


_UNDONE: FileCache[frozenset[str]] = FileCache("rollbacks")


def _undone_by(rollback: Instant, store: Store) -> frozenset[str]:
    """Return the writes that a rollback took back; a compaction or clustering may have been run again since."""
    file = FileStat(rollback.path, 0, 0, rollback.version)
    known = _UNDONE.get(store, file)
    if known is None:
        actions = read_rollback_metadata(store, rollback).actions
        known = frozenset(i for i, action in actions.items() if action in _NEVER_AGAIN)
        _UNDONE.put(store, file, known, 100 * len(known) + 100)
    return known


_NEVER_AGAIN = frozenset({Action.COMMIT, Action.DELTA_COMMIT, Action.REPLACE_COMMIT})


def _view_of_writes(store: Store, properties: TableProperties, timeline: Timeline) -> TimelineView:
    replacements = timeline.completed(Action.REPLACE_COMMIT)
    compactions = timeline.pending(Action.COMPACTION)
    commits = in_parallel(lambda instant: _told_by(instant, store).replaced, replacements, store)
    plans = in_parallel(lambda instant: read_compaction_plan(store, instant), compactions, store)
    return view_of(
        properties,
        timeline,
        {i.requested: body for i, body in zip(replacements, commits, strict=True)},
        {i.requested: body for i, body in zip(compactions, plans, strict=True)},
    )


def _holes_end(timeline: Timeline) -> str | None:
    """With archiving beyond savepoints, where the savepointed front of the timeline ends; else None."""
    writes = [instant.requested for instant in timeline.instants if instant.is_write]
    if not writes or writes[0] not in timeline.savepoints:
        return None
    return next((requested for requested in writes if requested not in timeline.savepoints), writes[-1])


def _stored_schema(state: TableState, as_of: str | None) -> pa.Schema:
    newest_first = state.timeline.writes[::-1]
    until_then = [i for i in newest_first if as_of is None or i.requested <= as_of]
    for instant in until_then or newest_first:
        schema = _schema_written_by(instant, state.store)
        if schema is not None:
            return schema
    if state.properties.create_schema is not None:
        return avro_to_arrow(state.properties.create_schema, path=".hoodie/hoodie.properties")
    return _schema_of_a_base_file(state)


_SCHEMAS: FileCache[tuple[pa.Schema | None]] = FileCache("schemas")
_SCHEMA_BYTES_PER_LETTER = 5
"""How much more a schema takes than its Avro text; measured on 5 to 200 columns."""


def _schema_written_by(instant: Instant, store: Store) -> pa.Schema | None:
    stat = FileStat(instant.path, 0, 0, instant.version)
    known = _SCHEMAS.get(store, stat)
    if known is None:
        text = _told_by(instant, store).schema
        known = (None if text is None else avro_to_arrow(text, path=instant.path),)
        _SCHEMAS.put(store, stat, known, _SCHEMA_BYTES_PER_LETTER * len(text or "") + 1_000)
    return known[0]


def _schema_of_a_base_file(state: TableState) -> pa.Schema:
    bases = [
        file_slice.base_file
        for partition, files in files_of(state).items()
        for file_slice in all_slices_of(partition, files, view_for(state, files))
        if file_slice.base_file
    ]
    if not bases and not state.timeline.writes:
        return pa.schema([])  # nobody has written to it yet, or nobody succeeded
    if not bases:
        raise CorruptTableError(
            path=state.properties.timeline_folder,
            found="no schema in any commit, nor in the properties, nor a base file to take it from",
            expected="a completed commit whose extra metadata has the key 'schema'",
            remedy="If the table is empty, write to it once; else write to it once with Hudi.",
        )
    newest = max(bases, key=lambda base: base.instant)
    schema = read_footer(state.store, newest.path).arrow_schema
    return pa.schema([column for column in schema if column.name not in META_COLUMNS])


def _archived_writes(state: TableState, begin: str | None) -> tuple[ArchivedInstant, ...]:
    """The archived writes that can have completed after `begin`.

    A write is taken to last at most a day, as Hudi does (CompletionTimeQueryView): what was requested longer
    before `begin` completed before it.
    """
    since = None if begin is None else shift_instant(begin, -_ONE_DAY_MS)
    start = next((instant.requested for instant in state.timeline.instants), None)
    if since is not None and start is not None and since >= start:
        return ()
    archived = load_history(state.store, state.properties, since=since)
    return tuple(a for a in archived if a.action in WRITE_ACTIONS)


def _requested_between(
    state: TableState, begin: str | None, end: str | None
) -> tuple[tuple[Instant, CommitMetadata], ...]:
    start = state.timeline.start
    is_before_start = start is None or begin is None or begin < start
    if is_before_start and state.store.list(state.properties.history_folder).files:
        raise UnsupportedError(
            subject=f"an incremental read that begins at {begin or 'the first instant'}",
            found="before the active timeline of a version 6 table that has archived instants",
            supported="reading within the active timeline",
            remedy=f"Begin at {start} or later, read a snapshot, or upgrade the table with Hudi.",
        )
    found = [i for i in state.timeline.writes if _in_range(i.requested, begin, end)]
    last = found[-1].requested if found else ""
    for pending in state.timeline.pending(Action.COMMIT, Action.DELTA_COMMIT, Action.REPLACE_COMMIT):
        if _in_range(pending.requested, begin, end) and pending.requested < last:
            raise UnsupportedError(
                subject=f"an incremental read of a version 6 table up to {end or 'now'}",
                found=f"one that would step over {pending.requested}, which is still pending",
                supported="ranges in which every write is completed",
                remedy="End the range before it, or wait for it to complete.",
            )
    return _with_metadata(state, [(instant, instant) for instant in found])


def _in_range(time: str | None, begin: str | None, end: str | None) -> bool:
    return time is not None and (begin is None or begin < time) and (end is None or time <= end)


def _with_metadata(
    state: TableState, found: Sequence[tuple[Instant, Instant | ArchivedInstant]]
) -> tuple[tuple[Instant, CommitMetadata], ...]:
    bodies = in_parallel(lambda pair: commit_metadata(state, pair[1]), found, state.store)
    return tuple((instant, body) for (instant, _), body in zip(found, bodies, strict=True))
