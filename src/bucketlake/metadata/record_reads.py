"""May a reader go by the shards of an index? Whatever is not certain is a no: he then reads everything.

A reader who is told of too few file groups misses rows, and nobody notices. So three things must hold:

    in step    the metadata table has all commits of the table, and no others
    of then    nothing in the shards is of a commit that the reader does not see: it may have moved keys to file groups
               that he does not see either
    complete   every file is there that the commits of the metadata table tell of
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from bucketlake.config import TableProperties
from bucketlake.layout.names import parse_index_base_file_name, parse_log_file_name, split_path
from bucketlake.metadata.growth import Growth, growth_of, kept_partitions, untold
from bucketlake.metadata.listing import ShardSlice
from bucketlake.metadata.places import INDEX_BUILT, RECORD_INDEX, is_index, is_own_instant
from bucketlake.metadata.secondary_index import builds_of
from bucketlake.metadata.step import Step
from bucketlake.storage import FileCache, FileStat, Store, in_parallel
from bucketlake.timeline import Action, Instant, Timeline, load_timeline, read_commit_metadata


class IndexShard(Protocol):
    """A shard of an index, and what it is made of."""

    @property
    def file_id(self) -> str: ...

    @property
    def slice(self) -> ShardSlice: ...


def fault_of(
    store: Store,
    properties: TableProperties,
    table: Timeline,
    step: Step,
    shards: Sequence[IndexShard],
    *,
    partition: str = RECORD_INDEX,
) -> str | None:
    """Say why who knows the table by this timeline must not go by these shards; None if he may.

    `partition` is that of the metadata table in which they are.
    """
    if partition not in kept_partitions(properties):
        return f"the metadata table does not list {partition}"
    growth = growth_of(properties) if partition == RECORD_INDEX else None
    if not step.is_kept:
        return f"the metadata table is {step}"
    told_by_all = None if growth is None else untold(store, growth, table)
    return (
        told_by_all
        or _later(store, properties, table, step, shards)
        or _lost(store, properties, table, step, shards, growth, partition)
    )


def _later(
    store: Store, properties: TableProperties, table: Timeline, step: Step, shards: Sequence[IndexShard]
) -> str | None:
    """Look for what is of commits that were completed since the timeline was listed."""
    unseen = {i.requested: i.completed or "" for i in step.metadata.completed(Action.DELTA_COMMIT)}
    for known in (i.requested for i in table.completed()):
        unseen.pop(known, None)
    unseen = {
        instant: completed
        for instant, completed in unseen.items()
        if not is_own_instant(instant) and not _is_archived(instant, table)
    }
    first = min(unseen.values(), default=None)
    built = {i.requested: i.completed or "" for i in step.metadata.writes if is_own_instant(i.requested)}
    until = max((time for i in table.instants for time in (i.requested, i.completed or "")), default="")
    is_young = False
    for shard in shards:
        for file in _files_of(shard):
            instant = _instant_of(file)
            is_base = file is shard.slice.base
            if instant in unseen or (is_base and first is not None and instant > first):
                return f"it is ahead: {split_path(file.path)[1]} tells of a commit that is not seen yet"
            is_young |= max(instant if is_base else "", built.get(instant, "")) > until
    # Built or compacted since anything happened that is known: it may be of commits that came after that.
    if is_young and _done(load_timeline(store, properties)) != _done(table):
        return "it is ahead: others have committed meanwhile"
    return None


def _lost(
    store: Store,
    properties: TableProperties,
    table: Timeline,
    step: Step,
    shards: Sequence[IndexShard],
    growth: Growth | None,
    partition: str,
) -> str | None:
    """Look for files that commits of the metadata table tell of, and that are not there as they tell."""
    there = {_name(file): file.size_bytes for shard in shards for file in _files_of(shard)}
    bases = {
        shard.file_id: "" if (base := shard.slice.base) is None else _instant_of(base) for shard in shards
    }
    writes = [
        i for i in step.metadata.writes if growth is None or growth.counts(i.requested, i.completed or "")
    ]
    told = in_parallel(lambda instant: (instant, _told_by(instant, store, partition)), writes, store)
    done = {requested for requested, _ in _done(table)}
    # What was told before the index was built is of another one. The instant that built it may be archived, while
    # instants of greater numbers that completed before it are not: then the properties say when that was.
    built = max(
        (i.completed or "" for i, files in told if files and is_own_instant(i.requested)),
        default=_listed_at(properties, partition),
    )
    for instant, files in told:
        is_own = is_own_instant(instant.requested)
        is_seen = is_own or instant.requested in done or _is_archived(instant.requested, table)
        for file in files:
            is_newer = (instant.completed or "") >= built and (
                (instant.completed or "") > bases.get(file.file_id, "")
                if file.is_log
                else instant.requested >= bases.get(file.file_id, "")
            )
            counts = is_newer and (is_seen or not file.is_log)
            if counts and there.get(file.name) != file.size_bytes:
                return f"{file.name} is gone or damaged"
    return None


def _listed_at(properties: TableProperties, partition: str) -> str:
    """Return when an index that we built was listed; empty if that is not known."""
    if partition == RECORD_INDEX:
        return properties.raw.get(INDEX_BUILT, "").partition("_")[2]
    build = builds_of(properties).get(partition)
    return "" if build is None else build.completed


@dataclass(frozen=True, slots=True)
class _Told:
    """A file of an index, as a commit tells of it."""

    partition: str
    file_id: str
    name: str
    size_bytes: int
    is_log: bool


_TOLD: FileCache[tuple[_Told, ...]] = FileCache("index commits")
_TOLD_BYTES = 400


def _told_by(instant: Instant, store: Store, partition: str) -> tuple[_Told, ...]:
    """Read what a commit of the metadata table tells of an index. Each is read once by a process."""
    stat = FileStat(instant.path, 0, 0, instant.version)
    known = _TOLD.get(store, stat)
    if known is None:
        try:
            stats = read_commit_metadata(store, instant).write_stats
        except FileNotFoundError:
            return ()  # archived since it was listed
        named = ((split_path(s.path)[1], s) for s in stats if is_index(s.partition) and s.path)
        known = tuple(
            _Told(s.partition, s.file_id, name, s.size_bytes, parse_log_file_name(name) is not None)
            for name, s in named
        )
        _TOLD.put(store, stat, known, _TOLD_BYTES * len(known))
    return tuple(file for file in known if file.partition == partition)


def _done(table: Timeline) -> set[tuple[str, Action]]:
    return {(i.requested, i.action) for i in table.completed()}


def _is_archived(instant: str, table: Timeline) -> bool:
    return table.start is not None and instant < table.start


def _files_of(shard: IndexShard) -> Iterable[FileStat]:
    return (file for file in (shard.slice.base, *shard.slice.logs) if file is not None)


def _name(file: FileStat) -> str:
    return split_path(file.path)[1]


def _instant_of(file: FileStat) -> str:
    name = _name(file)
    parsed = parse_index_base_file_name(name) or parse_log_file_name(name)
    assert parsed is not None, "a shard is made of base files and logs"
    return parsed.instant
