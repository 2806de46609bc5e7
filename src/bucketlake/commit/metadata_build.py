"""Build a table's metadata table, while writers go on.

    look     what there is, by folders and timeline; what lies there of an older metadata table goes
    list     under the lock: what others have committed since, the first commit of `files`, and the table lists it

Writers commit under the same lock, and look then whether there is a metadata table to keep: one that began before
follows in it all the same. Hudi's look when they begin, so while one of them is at work nothing is listed.

Cut off, it leaves files that nobody looks at, and the next build removes them.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from bucketlake.commit.claims import Claims, latest_time
from bucketlake.commit.locks import table_lock
from bucketlake.commit.metadata_table import (
    LISTED,
    LISTED_INFLIGHT,
    delist,
    is_listed,
    put_instant,
    refuse_indexer,
    wanted_partitions,
)
from bucketlake.commit.operation import TRANSACTIONS
from bucketlake.commit.publishing import settle
from bucketlake.commit.writable import WRITABLE_VERSION
from bucketlake.config import (
    RECORD_LEVEL,
    TableProperties,
    load_properties,
    rendered,
    table_checksum,
    update_properties,
)
from bucketlake.errors import ConcurrentWriteError, ConflictError, UnsupportedError
from bucketlake.index.record_level import stored_record_index
from bucketlake.layout import BaseFile, DataFile, TimelineView, stated_in
from bucketlake.layout.names import (
    HEARTBEAT_FOLDER,
    INDEX_DEFINITIONS_PATH,
    METADATA_PROPERTIES_PATH,
    METADATA_TABLE_FOLDER,
    parse_index_base_file_name,
    partition_metadata_path,
    split_path,
    token_of_build,
)
from bucketlake.layout.partition_metadata import render_partition_metadata
from bucketlake.metadata.change import change_of, tells_of
from bucketlake.metadata.delta import first_commit, first_record_commit
from bucketlake.metadata.index_definitions import DEFINITIONS_KEY, define, record_index_definition
from bucketlake.metadata.places import (
    FILES,
    FIRST_INSTANT,
    GROWING,
    INDEX_BUILT,
    RECORD_INDEX,
    WANTED,
    folder_of,
    is_own_instant,
)
from bucketlake.metadata.record_shards import shard_file_id
from bucketlake.metadata.step import load_metadata_timeline
from bucketlake.state import TableState, list_folders, load_state, view_for
from bucketlake.storage import Store, in_parallel
from bucketlake.timeline import (
    Action,
    Clock,
    Instant,
    Timeline,
    load_timeline,
    process_clock,
)

_ROUNDS = 5
_log = logging.getLogger("bucketlake.commit")

Files = Mapping[str, Mapping[str, int]]
"""Partition -> file name -> size in bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltMetadata:
    """A metadata table that was built; prints as a line."""

    table: str
    partitions: int
    files: int
    completed: str
    shards: int = 0
    """Of a record-level index that was built with it."""
    entries: int = 0
    """Its keys."""
    secondary: tuple[str, ...] = ()
    """The secondary indexes that were built again with it."""

    def __str__(self) -> str:
        index = f"a record-level index of {self.entries:,} keys in {self.shards:,} shards"
        indexes = [index] if self.shards else []
        indexes += [f"the secondary index {name}" for name in self.secondary]
        if indexes and not self.files:
            return f"{self.table} has {' and '.join(indexes)} now"
        files = f"{self.files:,} files in {self.partitions:,} partitions"
        return f"{self.table} has a metadata table now: {'; and '.join([files, *indexes])}"


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataBuild:
    """What building a metadata table means; prints as a few lines."""

    table: str
    partitions: int = 0
    files: int = 0
    size_bytes: int = 0
    listed: tuple[str, ...] = ()
    """What is listed now, and would be delisted first."""
    is_needed: bool = True

    def __str__(self) -> str:
        if not self.is_needed:
            return f"{self.table} has a metadata table: {', '.join(self.listed)}"
        lines = [f"delist {', '.join(self.listed)} of {self.table}"] if self.listed else []
        lines.append(
            f"list {self.files:,} files ({self.size_bytes:,} bytes) in {self.partitions:,} partitions of {self.table}"
        )
        return "\n".join(lines)


def plan_build(state: TableState, *, anew: bool = False) -> MetadataBuild:
    """Say what a build would list; `anew` also where there is a metadata table."""
    listed = state.properties.metadata_partitions
    if FILES in listed and not anew:
        return MetadataBuild(table=state.store.uri, listed=listed, is_needed=False)
    check_buildable(state)
    files = committed_files(state)
    return MetadataBuild(
        table=state.store.uri,
        partitions=len(files),
        files=sum(map(len, files.values())),
        size_bytes=sum(sum(names.values()) for names in files.values()),
        listed=listed,
    )


def check_buildable(state: TableState) -> None:
    """Refuse a table of an older version, whose metadata table would have to be of that version too; or Hudi's turn."""
    refuse_indexer(state.store, state.properties)
    version = state.properties.table_version
    if version != WRITABLE_VERSION:
        raise UnsupportedError(
            subject=f"the table version of {state.store.uri}",
            found=str(version),
            supported=f"metadata tables of version {WRITABLE_VERSION}",
            remedy="Upgrade the table with Hudi first.",
        )


def rebuild_metadata(store: Store, *, clock: Clock | None = None) -> BuiltMetadata | None:
    """Build the metadata table anew. Until that is done, the table has none, for anybody."""
    check_buildable(load_state(store))
    with table_lock(store) as held:
        delist(held)
    return build_metadata(store, clock=clock)


def build_if_wanted(store: Store, properties: TableProperties, *, clock: Clock | None = None) -> bool:
    """Build the metadata table that was delisted so that a commit could be taken back, unless others are at it.

    A record-level index is left to services, see `services/record_index_build.py`.
    """
    if WANTED not in properties.raw or is_listed(properties):
        return False
    if load_timeline(store, properties).pending(Action.ROLLBACK, Action.RESTORE):
        return False  # whoever ends the last of them does it
    try:
        return build_metadata(store, clock=clock) is not None
    except ConflictError as conflict:
        _log.info("%s: its metadata table is built later: %s", store.uri, conflict)
        return False


def build_metadata(store: Store, *, clock: Clock | None = None) -> BuiltMetadata | None:
    """Build `files` and list it; None if it is listed already."""
    properties = load_properties(store)
    clock = clock or process_clock(properties.timeline_timezone)
    if is_listed(properties):
        return None
    check_buildable(load_state(store))
    for _ in range(_ROUNDS):
        state = load_state(store)
        files = committed_files(state)
        with table_lock(store) as held:
            if is_listed(load_properties(store)):
                return None  # another was faster, and what lies there is what everybody reads by
            remove_leftovers(held)
            claims, timeline = settle(store, properties)
            refuse_hudi(store, timeline)
            caught_up = _caught_up(store, files, state.timeline, timeline)
            if caught_up is not None:
                completed = clock.next_instant(after=latest_time(timeline, claims))
                index_completed = clock.next_instant(after=completed)
                try:
                    _put(held, properties, caught_up, completed)
                    listed = _begin_index(held, properties, caught_up, index_completed)
                except ConflictError:
                    _take_away(store, properties, {completed, index_completed})
                    raise
                is_late = is_listed(load_properties(store))
                if is_late or is_overtaken(store, properties, claims, timeline):
                    _take_away(store, properties, {completed, index_completed})
                    continue
                update_properties(held, {LISTED_INFLIGHT: "", GROWING: None, **listed})
                if is_overtaken(store, properties, claims, timeline):
                    delist(store)  # nobody told it of what was committed while it was not listed
                    continue
                count = sum(map(len, caught_up.values()))
                return BuiltMetadata(
                    table=store.uri, partitions=len(caught_up), files=count, completed=completed
                )
    raise ConcurrentWriteError(
        f"the metadata table of {store.uri} was not built: others went on or took commits back, {_ROUNDS} times. "
        f"Nothing was listed. Try again when they are done."
    )


def remove_leftovers(store: Store) -> None:
    """Delete what lies there of a metadata table that nobody lists.

    Not what the next one has too: who deletes it late, because it slept, would delete it from that.
    """
    files = store.list(METADATA_TABLE_FOLDER, recursive=True).files
    kept = {METADATA_PROPERTIES_PATH, partition_metadata_path(folder_of(FILES))}
    in_parallel(store.delete, [file.path for file in files if file.path not in kept], store)


def _take_away(store: Store, properties: TableProperties, completed: Collection[str]) -> None:
    """Delete what a build has put that slept through another: what has a name of its own, and nothing else."""
    files = store.list(folder_of(FILES)).files
    bases = {file.path: parse_index_base_file_name(split_path(file.path)[1]) for file in files}
    tokens = set(map(token_of_build, completed))
    mine = [path for path, base in bases.items() if base is not None and base.write_token in tokens]
    own = load_metadata_timeline(store, properties)
    mine += [i.path for i in own.instants if is_own_instant(i.requested) and i.completed in completed]
    in_parallel(store.delete, mine, store)


def committed_files(state: TableState) -> dict[str, dict[str, int]]:
    """Find every data file that committed instants have written and that is there, by looking into the folders.

    What dead writers left is not among them, nor what living ones have not committed.
    """
    found: dict[str, dict[str, int]] = {}
    moving = frozenset(i.requested for i in state.timeline.pending(Action.CLUSTERING))
    for partition, files in list_folders(state).files.items():
        view = view_for(state, files)
        stated = stated_in(partition, view)
        found[partition] = {
            split_path(file.path)[1]: file.size_bytes
            for file in files
            if file.path in stated or _counts(file, view, moving)
        }
    return found


def _counts(file: DataFile, view: TimelineView, moving: frozenset[str]) -> bool:
    """Tell whether a committed write wrote a file; beside a resize, its log bears the time of the resize."""
    if isinstance(file, BaseFile):
        return view.is_committed(file.instant)
    return (file.instant in moving or view.is_committed(file.instant)) and view.is_committed(file.written_at)


def _caught_up(store: Store, files: Files, seen: Timeline, now: Timeline) -> dict[str, dict[str, int]] | None:
    """Add what was committed since the files were looked at; None if something was taken back meanwhile."""
    before = {(i.requested, i.action) for i in seen.completed()}
    since = [i for i in now.completed() if (i.requested, i.action) not in before]
    if any(i.action in (Action.ROLLBACK, Action.RESTORE) for i in since):
        return None
    if now.pending(Action.ROLLBACK, Action.RESTORE):
        return None
    found = {partition: dict(names) for partition, names in files.items()}
    for instant in sorted((i for i in since if tells_of(i.action)), key=_completion):
        change = change_of(instant.action, store.read(instant.path), path=instant.path)
        for partition, added in change.added.items():
            found.setdefault(partition, {}).update(added)
        for partition, removed in change.removed.items():
            for name in removed:
                found.get(partition, {}).pop(name, None)
        for partition in change.dropped:
            found.pop(partition, None)
    return found


def _completion(instant: Instant) -> str:
    return instant.completed or ""


def _put(store: Store, properties: TableProperties, files: Files, completed: str) -> None:
    store.put(METADATA_PROPERTIES_PATH, rendered(_own_properties(properties)))
    marker = partition_metadata_path(folder_of(FILES))
    store.put(marker, render_partition_metadata(FIRST_INSTANT, 1))
    first = first_commit(FIRST_INSTANT, files, completed=completed)
    for path, content in first.files.items():
        store.put(path, content)
    put_instant(store, properties, FIRST_INSTANT, Action.DELTA_COMMIT, completed=completed, body=first.body)


def _begin_index(
    store: Store, properties: TableProperties, files: Files, completed: str
) -> dict[str, str | None]:
    """Begin the record-level index of a table that has one and no rows yet; return what the table is to list.

    Of a table that has rows, services build it: what it is to be built of is read by tasks.
    """
    is_engine = properties.engine in RECORD_LEVEL
    wanted = set(wanted_partitions(load_properties(store))) - {FILES}
    if not is_engine or any(files.values()):
        again = wanted | {RECORD_INDEX} if is_engine else wanted
        return {LISTED: FILES, WANTED: ",".join(sorted(again)) or None}
    value = stored_record_index(properties)
    instant = f"{1:0{len(FIRST_INSTANT)}d}"
    # Shards of a partition come with its first commit.
    shards = [] if value.per_partition else [shard_file_id(number) for number in range(value.shard_count)]
    store.put(partition_metadata_path(folder_of(RECORD_INDEX)), render_partition_metadata(instant, 1))
    first = first_record_commit(instant, shards)
    for path, content in first.files.items():
        store.put(path, content)
    put_instant(store, properties, instant, Action.DELTA_COMMIT, completed=completed, body=first.body)
    define(store, RECORD_INDEX, record_index_definition(is_partitioned=value.per_partition))
    return {
        LISTED: f"{FILES},{RECORD_INDEX}",
        WANTED: ",".join(sorted(wanted - {RECORD_INDEX})) or None,
        DEFINITIONS_KEY: INDEX_DEFINITIONS_PATH,
        INDEX_BUILT: f"{instant}_{completed}",
    }


def is_overtaken(store: Store, properties: TableProperties, claims: Claims, timeline: Timeline) -> bool:
    """Tell whether others have gone on, because whoever builds slept until its lock ran out."""
    now_claims, now = settle(store, properties)
    return now_claims.numbers != claims.numbers or now.completed() != timeline.completed()


def _own_properties(properties: TableProperties) -> dict[str, str]:
    name = f"{properties.name}_metadata"
    version = str(properties.table_version)
    return {
        "hoodie.table.name": name,
        "hoodie.table.type": "MERGE_ON_READ",
        "hoodie.table.version": version,
        "hoodie.table.initial.version": version,
        "hoodie.table.base.file.format": "HFILE",
        "hoodie.table.recordkey.fields": "key",
        "hoodie.populate.meta.fields": "false",
        "hoodie.table.keygenerator.type": "HOODIE_TABLE_METADATA",
        "hoodie.compaction.payload.class": "org.apache.hudi.metadata.HoodieMetadataPayload",
        "hoodie.record.merge.mode": "CUSTOM",
        "hoodie.record.merge.strategy.id": "00000000-0000-0000-0000-000000000000",
        "hoodie.timeline.layout.version": "2",
        "hoodie.timeline.path": "timeline",
        "hoodie.timeline.history.path": "history",
        "hoodie.archivelog.folder": "history",
        "hoodie.datasource.write.drop.partition.columns": "false",
        "hoodie.table.checksum": str(table_checksum(database=None, name=name)),
    }


def refuse_hudi(store: Store, timeline: Timeline) -> None:
    """Refuse while a write of Hudi's is pending: it would complete without telling the metadata table."""
    for pending in hudis_writes(store, timeline):
        raise ConcurrentWriteError(
            f"the metadata table of {store.uri} is not built while the {pending.action} of {pending.requested} is "
            f"pending: it is not ours, and would complete without telling it. Try again when it is done; if its "
            f"writer died, the next write of ours or of Hudi's rolls it back."
        )


def hudis_writes(store: Store, timeline: Timeline) -> tuple[Instant, ...]:
    """Return the pending writes that are not ours: our heartbeats have something in them."""
    ours = {split_path(f.path)[1] for f in store.list(HEARTBEAT_FOLDER).files if f.size_bytes}
    return tuple(i for i in timeline.pending(*TRANSACTIONS) if i.requested not in ours)
