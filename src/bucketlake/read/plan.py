"""From a query to the file slices that answer it.

`plan_read` lists the partitions that survive pruning and decides, file group
by file group, what a task has to read. A plan is a value: it travels to
executors, and it says how much was pruned.

Indexes that have recorded which keys have a value, and where keys live, are asked first. They tell of now: only the
newest snapshot is read by them. Read-optimized reads are not: a base file may show a key that logs have deleted, or
moved to another file group.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Protocol, TypeVar

import pyarrow as pa

from bucketlake.errors import ConfigError
from bucketlake.index import Index, Pieces, RecordedIndex, hash_pieces, recorded_of_table
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
from bucketlake.read.by_values import AskedIndex, keys_by_values, questions_of
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
    cleaned_after,
    cleaned_file,
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
    record_keys: pa.Array | None = None
    """If secondary indexes name few: no other row of the slices is wanted."""
    asked: tuple[AskedIndex, ...] = ()
    """The secondary indexes that were asked."""

    def __str__(self) -> str:
        there = len(self.slices) + len(self.left_out)
        seen = f"{self.partitions_seen:,} partition{'' if self.partitions_seen == 1 else 's'}"
        kept = f"{len(self.slices):,} of {there:,} file group{'' if there == 1 else 's'}, {seen} listed"
        return "\n".join([kept, *map(str, self.asked)])


def plan_read(
    state: TableState,
    query: Query,
    index: Index,
    *,
    partition: str | None = None,
    trusts_listing: bool = False,
) -> ReadPlan:
    """Decide which slices a query reads, in one partition or in all. Lists folders; opens no data file.

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
    if partition is not None:
        named = frozenset([partition])
    asked: tuple[AskedIndex, ...] = ()
    if index.is_known and not trusts_listing:
        record_keys = pinned_record_keys(query.filters, keys=keys, schema=query.table_schema)
        planned, asked = _plan_by_values(state, query, index, keys, record_keys, named)
        if planned is None and index.recorded is not None:
            planned = _plan_recorded(state, query, index.recorded, keys, record_keys, named)
        if planned is not None:
            return replace(planned, asked=asked)
    listed = list_folders(state).files if trusts_listing else files_of(state, named)
    cleaned = _cleaned_after(state, query, named)
    listed = {**dict.fromkeys(cleaned, ()), **listed}
    kept = prune_partitions(tuple(listed), query.filters, keys=keys, schema=query.table_schema)
    files = {partition: listed[partition] for partition in kept}
    found = _Found(len(listed), files, query.as_of, is_checked=trusts_listing, cleaned=cleaned)
    return replace(_plan(state, query, index, keys, found, pieces), asked=asked)


def _plan_by_values(
    state: TableState,
    query: Query,
    index: Index,
    keys: KeyGenerator,
    pinned: pa.Array | None,
    named: frozenset[str] | None,
) -> tuple[ReadPlan | None, tuple[AskedIndex, ...]]:
    """Plan by the keys that secondary indexes name, and say what was asked; no plan if they do not tell.

    They know rows by their keys alone. So what has recorded where keys live must be of the whole table.
    """
    if not _is_of_now(state, query):
        return None, ()
    questions = questions_of(state, query.filters, generator=keys, schema=query.table_schema)
    recorded = recorded_of_table(state, index) if questions else None
    if recorded is None:
        return None, ()
    found = keys_by_values(questions, recorded, schema=query.table_schema, pinned=pinned)
    planned = _plan_recorded(state, query, recorded, keys, found.keys, named)
    if planned is None or found.keys is None:
        return None, tuple(one.in_vain("the record-level index does not tell") for one in found.asked)
    if len(found.keys) <= KEYS_READ_BY_MAX:
        planned = replace(planned, record_keys=found.keys)
    return planned, found.asked


KEYS_READ_BY_MAX = 16
"""For more keys it is cheaper to filter all rows of a file group than to look the keys up in its files."""
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
    cleaned = _cleaned_after(state, query, named)
    files = {**dict.fromkeys(cleaned, ()), **files_of(state, named)}
    found = _Found(len(files), files, query.as_of, cleaned=cleaned)
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
    if record_keys is None or not _is_of_now(state, query):
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


def _is_of_now(state: TableState, query: Query) -> bool:
    """Whether a query is one that indexes of keys can answer."""
    is_snapshot = query.as_of is None and query.begin is None and not query.read_optimized
    return is_snapshot and state.properties.has_meta_columns


@dataclass(frozen=True, slots=True)
class _Found:
    """The files a plan chooses from."""

    partitions_seen: int
    files: FilesByPartition
    as_of: str | None
    is_checked: bool = False
    """Whether nothing needs to be held against what commits tell."""
    cleaned: FilesByPartition = field(default_factory=dict)
    """What cleans have deleted since `as_of`, or are deleting."""


def _cleaned_after(state: TableState, query: Query, named: frozenset[str] | None) -> FilesByPartition:
    """Return what cleans have deleted of the past that is asked for; in partitions that are no more, too."""
    if query.as_of is None:
        return {}
    check_as_of(state, query.as_of)
    cleaned = cleaned_after(state, query.as_of)
    return {partition: files for partition, files in cleaned.items() if named is None or partition in named}


def _plan(
    state: TableState,
    query: Query,
    index: Index,
    keys: KeyGenerator,
    found: _Found,
    pieces: frozenset[Pieces] | None,
) -> ReadPlan:
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
    cut = partial(read_optimized_slices_of if query.read_optimized else slices_of, as_of=found.as_of)
    gone = cleaned_file(state, found.cleaned, found.files, view, cut)
    if gone is not None:
        raise ConfigError(
            f"the table cannot be read as of {found.as_of}: a clean has deleted {gone}, which was seen then. Ask for "
            f"a later time, or have the cleaner keep more from now on."
        )
    return view, {partition: cut(partition, files, view) for partition, files in found.files.items()}


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
        context=context_for(
            state,
            query,
            keys,
            commit_times=None,
            up_to=found.as_of,
            blocks_of=blocks_for(state, slices, view),
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
        context=context_for(
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


def context_for(
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


def blocks_for(state: TableState, slices: Sequence[FileSlice], view: TimelineView) -> TimelineView | None:
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


class Sized(Protocol):
    """What is read as a whole, by one task."""

    @property
    def size_bytes(self) -> int: ...


SizedT = TypeVar("SizedT", bound=Sized)


def pack_slices(slices: Sequence[SizedT], target_bytes: int) -> tuple[tuple[SizedT, ...], ...]:
    """Share slices, or what is made of slices, out to tasks of about `target_bytes`, the largest first."""
    packs: list[list[SizedT]] = []
    room = 0
    for file_slice in sorted(slices, key=lambda s: s.size_bytes, reverse=True):
        cost = file_slice.size_bytes + OPEN_COST_BYTES
        if not packs or cost > room:
            packs.append([])
            room = target_bytes
        packs[-1].append(file_slice)
        room -= cost
    return tuple(tuple(pack) for pack in packs)
