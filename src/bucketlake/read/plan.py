"""From a query to the file slices that answer it.

`plan_read` lists the partitions that survive pruning and decides, file group
by file group, what a task has to read. A plan is a value: it travels to
executors, and it says how much was pruned.

An index that has recorded where keys live is asked first, and tells of now: only the newest snapshot is read by it.
Read-optimized reads are not: a base file may show a key that logs have deleted, or moved to another file group.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from bucketlake.errors import ConfigError
from bucketlake.index import Index, Pieces, RecordedIndex, hash_pieces
from bucketlake.keygen import KeyGenerator
from bucketlake.layout import (
    DataFile,
    FileGroupId,
    FileSlice,
    TimelineView,
    changed_slices_of,
    list_files,
    parse_data_file,
    prove,
    read_optimized_slices_of,
    slices_of,
    stated_in,
)
from bucketlake.merge import MergeRules
from bucketlake.read.path_columns import path_columns_of
from bucketlake.read.prune import (
    hashed_pieces,
    named_partitions,
    pinned_record_keys,
    prune_file_groups,
    prune_partitions,
)
from bucketlake.read.query import Query
from bucketlake.read.task import ReadContext
from bucketlake.state import (
    TableState,
    check_as_of,
    files_of,
    instants_between,
    is_completed_by,
    list_folders,
    view_for,
)
from bucketlake.storage import check_path

FilesByPartition = Mapping[str, Sequence[DataFile]]


@dataclass(frozen=True, slots=True)
class ReadPlan:
    """The slices that answer a query, and what they are read with."""

    slices: tuple[FileSlice, ...]
    context: ReadContext
    partitions_seen: int
    """That were listed: all, unless the filters or the index name them."""
    left_out: tuple[FileSlice, ...]
    """In the partitions that were not pruned: slices that cannot hold a wanted key."""


def plan_read(state: TableState, query: Query, index: Index, *, trusts_listing: bool = False) -> ReadPlan:
    """Decide which slices a query reads. Lists folders; opens no data file.

    A file that a commit tells of and that is not there as it tells is an error, unless the listing is to be trusted.
    """
    keys = KeyGenerator.from_properties(state.properties)
    pieces = None
    if index.placed is not None:
        pieces = hashed_pieces(
            query.filters, keys=keys, hash_fields=index.hash_fields, schema=query.table_schema
        )
    if query.begin is not None:
        return _plan_changes(state, query, index, keys, pieces, begin=query.begin)
    named = named_partitions(query.filters, keys=keys, schema=query.table_schema)
    if index.recorded is not None and not trusts_listing:
        record_keys = pinned_record_keys(query.filters, keys=keys, schema=query.table_schema)
        planned = _plan_recorded(state, query, index.recorded, keys, record_keys, named)
        if planned is not None:
            return planned
    listed = list_folders(state).files if trusts_listing else files_of(state, named)
    kept = prune_partitions(tuple(listed), query.filters, keys=keys, schema=query.table_schema)
    files = {partition: listed[partition] for partition in kept}
    found = _Found(len(listed), files, query.as_of, is_checked=trusts_listing)
    return _plan(state, query, index, keys, found, pieces)


KEYS_PRUNED_BY_MAX = 10_000
"""More keys are in every bucket, of nearly every table; to find out costs more than it spares."""
KEYS_LOOKED_UP_MAX = 100_000
"""More keys are not looked up in an index that has recorded them: they are in most file groups of most tables."""


def plan_lookup(
    state: TableState, query: Query, index: Index, record_keys: pa.Array, *, partition: str | None
) -> ReadPlan:
    """Decide which slices can hold these record keys, in one partition or in all."""
    keys = KeyGenerator.from_properties(state.properties)
    named = None if partition is None else frozenset([partition])
    if index.recorded is not None and len(record_keys) <= KEYS_LOOKED_UP_MAX:
        planned = _plan_recorded(state, query, index.recorded, keys, record_keys, named)
        if planned is not None:
            return planned
    files = files_of(state, named)
    found = _Found(len(files), files, query.as_of)
    pieces = None
    if index.placed is not None and len(record_keys) <= KEYS_PRUNED_BY_MAX:
        pieces = frozenset(hash_pieces(key, index.hash_fields) for key in record_keys.to_pylist())
    return _plan(state, query, index, keys, found, pieces)


def _plan_recorded(
    state: TableState,
    query: Query,
    index: RecordedIndex,
    keys: KeyGenerator,
    record_keys: pa.Array | None,
    named: frozenset[str] | None,
) -> ReadPlan | None:
    """Plan by where an index has recorded keys, in the partitions that are named; None if it does not tell.

    It tells nothing either if it names a file group that is not there: what else it has may be wrong too.
    """
    is_of_now = query.as_of is None and query.begin is None and not query.read_optimized
    if record_keys is None or not is_of_now or not state.properties.has_meta_columns:
        return None
    groups = index.where(record_keys) if index.is_global else None
    if groups is None and index.is_global:
        return None
    listed = files_of(state, named if groups is None else frozenset(partition for partition, _ in groups))
    kept = prune_partitions(tuple(listed), query.filters, keys=keys, schema=query.table_schema)
    wanted = frozenset(partition for partition in kept if named is None or partition in named)
    looked_at = wanted if groups is None else listed
    found = _Found(len(listed), {partition: listed[partition] for partition in looked_at}, None)
    view, visible = _visible(state, query, found)
    if groups is None:
        groups = index.where(record_keys, [partition for partition, parts in visible.items() if parts])
    there = {(partition, part.file_id) for partition, parts in visible.items() for part in parts}
    if groups is None or not groups <= there:
        return None
    slices: list[FileSlice] = []
    left_out: list[FileSlice] = []
    for part in (part for partition in kept if partition in wanted for part in visible[partition]):
        (slices if (part.partition, part.file_id) in groups else left_out).append(part)
    return _planned(state, query, keys, found, view, slices, left_out)


@dataclass(frozen=True, slots=True)
class _Found:
    """The files a plan chooses from."""

    partitions_seen: int
    files: FilesByPartition
    as_of: str | None
    is_checked: bool = False
    """Whether nothing needs to be held against what commits tell."""


def _plan(
    state: TableState,
    query: Query,
    index: Index,
    keys: KeyGenerator,
    found: _Found,
    pieces: frozenset[Pieces] | None,
) -> ReadPlan:
    if query.as_of is not None:
        check_as_of(state, query.as_of)
    view, visible = _visible(state, query, found)
    slices: list[FileSlice] = []
    left_out: list[FileSlice] = []
    if pieces is not None:
        index.foresee(found.files)
    for partition, parts in visible.items():
        wanted = prune_file_groups(partition, (s.file_id for s in parts), pieces, index=index)
        for file_slice in parts:
            (slices if file_slice.file_id in wanted else left_out).append(file_slice)
    return _planned(state, query, keys, found, view, slices, left_out)


def _visible(
    state: TableState, query: Query, found: _Found
) -> tuple[TimelineView, dict[str, Sequence[FileSlice]]]:
    """Cut files into the slices that a query sees."""
    every = (file for files in found.files.values() for file in files)
    view = view_for(state, every, trusts_listing=found.is_checked)
    cut = read_optimized_slices_of if query.read_optimized else slices_of
    return view, {
        partition: cut(partition, files, view, as_of=found.as_of) for partition, files in found.files.items()
    }


def _planned(
    state: TableState,
    query: Query,
    keys: KeyGenerator,
    found: _Found,
    view: TimelineView,
    slices: Sequence[FileSlice],
    left_out: Sequence[FileSlice],
) -> ReadPlan:
    return ReadPlan(
        slices=tuple(slices),
        context=_context(
            state,
            query,
            keys,
            commit_times=None,
            up_to=found.as_of,
            blocks_of=_blocks_of(state, slices, view),
        ),
        partitions_seen=found.partitions_seen,
        left_out=tuple(left_out),
    )


def _plan_changes(
    state: TableState,
    query: Query,
    index: Index,
    keys: KeyGenerator,
    pieces: frozenset[Pieces] | None,
    *,
    begin: str,
) -> ReadPlan:
    """Decide which slices hold the changes of an interval. It is as if nobody had completed anything after it."""
    written = _written_between(state, begin, query.end)
    kept = prune_partitions(tuple(written.files), query.filters, keys=keys, schema=query.table_schema)
    if not _is_laid_out_as_now(state, query.end):
        pieces = None
    if pieces is not None:
        index.foresee({partition: written.files[partition] for partition in kept})
    slices: list[FileSlice] = []
    left_out: list[FileSlice] = []
    for partition in kept:
        changed = changed_slices_of(
            partition,
            written.files[partition],
            written.completions,
            replaced=written.replaced,
            is_cut_by_completion=state.view.is_cut_by_completion,
        )
        wanted = prune_file_groups(partition, (s.file_id for s in changed), pieces, index=index)
        for file_slice in changed:
            (slices if file_slice.file_id in wanted else left_out).append(file_slice)
    return ReadPlan(
        slices=_checked(state, slices),
        context=_context(
            state, query, keys, commit_times=frozenset(written.completions), up_to=None, blocks_of=None
        ),
        partitions_seen=len(written.files),
        left_out=tuple(left_out),
    )


@dataclass(frozen=True, slots=True)
class _Written:
    """What an interval of the timeline wrote."""

    completions: Mapping[str, str]
    """Requested time -> completion time of its writes."""
    files: FilesByPartition
    replaced: frozenset[FileGroupId]
    """File groups that were replaced by its end."""


def _written_between(state: TableState, begin: str, end: str | None) -> _Written:
    """Collect what the instants that completed in (begin, end] wrote."""
    found = instants_between(state, begin, end)
    completions = {instant.requested: instant.completed or "" for instant, _ in found}
    replaced = {
        group for group, by in state.view.replaced.items() if is_completed_by(state, by, end, completions)
    }
    files: dict[str, dict[str, DataFile]] = {}
    for instant, metadata in found:
        replaced |= {(partition, file_id) for partition, ids in metadata.replaced.items() for file_id in ids}
        for stat in metadata.write_stats:
            if stat.path:  # a commit that only removes names file groups without a file
                check_path(stat.path)
                file = parse_data_file(stat.path, size_bytes=stat.size_bytes)
                is_beside = state.view.is_cut_by_completion and file.instant != instant.requested
                if is_beside and not is_completed_by(state, file.instant, end, completions):
                    continue  # beside a resize that was completed later, or never: the old file group has the rows
                # In table version 6 several commits append to one log file.
                files.setdefault(stat.partition, {})[file.path] = file
    return _Written(
        completions,
        {partition: tuple(group.values()) for partition, group in files.items()},
        frozenset(replaced),
    )


def _is_laid_out_as_now(state: TableState, end: str | None) -> bool:
    """Tell whether the index of now says where the keys of an interval are.

    A rescale or a resize that completed after it has put them elsewhere.
    """
    return end is None or all((write.completed or "") <= end for write in state.timeline.writes)


def _checked(state: TableState, slices: Sequence[FileSlice]) -> tuple[FileSlice, ...]:
    """Refuse an incremental read of files that are gone or damaged: rows would be missing silently."""
    view = view_for(state, ())
    listed = list_files(state.store, sorted({part.partition for part in slices}))
    there = {partition: {file.path: file for file in files} for partition, files in listed.items()}
    told = {partition: stated_in(partition, view) for partition in listed}
    for part in slices:
        for file in (*((part.base_file,) if part.base_file else ()), *part.log_files):
            if file.path not in there[part.partition]:
                raise ConfigError(
                    f"the incremental read needs {file.path}, which is gone: a clean has removed it, unless it was "
                    f"lost. Begin later, read a snapshot instead, or have the cleaner keep more commits from now on."
                )
    return tuple(prove(part, there[part.partition], told[part.partition]) for part in slices)


def _context(
    state: TableState,
    query: Query,
    keys: KeyGenerator,
    *,
    commit_times: frozenset[str] | None,
    up_to: str | None,
    blocks_of: TimelineView | None,
) -> ReadContext:
    properties = state.properties
    return ReadContext(
        store=state.store,
        table_schema=query.table_schema,
        columns=query.columns,
        filters=query.filters,
        rules=MergeRules(
            mode=properties.merge_mode,
            ordering_fields=properties.ordering_fields,
            delete_field=properties.delete_field,
            delete_marker=properties.delete_marker,
        ),
        keys=keys,
        path_columns=path_columns_of(keys, query.table_schema),
        path_columns_are_dropped=properties.drop_partition_columns,
        up_to=up_to,
        commit_times=commit_times,
        blocks_of=blocks_of,
    )


def _blocks_of(state: TableState, slices: Sequence[FileSlice], view: TimelineView) -> TimelineView | None:
    """Return what tells which log blocks are committed, where the name of their file does not.

    That is so in table version 6; and where a write went to a bucket that was being resized, its log has the instant
    of the resize, as the base file over which it lies.
    """
    if state.properties.table_version >= 8 and not any(
        log.instant == part.instant for part in slices for log in part.log_files
    ):
        return None
    return view.of_blocks()


OPEN_COST_BYTES = 1024 * 1024
"""What opening a slice costs, in bytes read: so that a task does not get thousands of tiny ones."""


def pack_slices(slices: Sequence[FileSlice], target_bytes: int) -> tuple[tuple[FileSlice, ...], ...]:
    """Share slices out to tasks of about `target_bytes`, the largest first."""
    packs: list[list[FileSlice]] = []
    room = 0
    for file_slice in sorted(slices, key=lambda s: s.size_bytes, reverse=True):
        cost = file_slice.size_bytes + OPEN_COST_BYTES
        if not packs or cost > room:
            packs.append([])
            room = target_bytes
        packs[-1].append(file_slice)
        room -= cost
    return tuple(tuple(pack) for pack in packs)
