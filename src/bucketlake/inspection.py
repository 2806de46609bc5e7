"""What a table looks like from outside: values that a command prints and a program can use."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from statistics import mean

import pyarrow as pa

from bucketlake import notebook
from bucketlake.config import BucketEngine, TableProperties, TableType
from bucketlake.errors import CommitConflictError, ConfigError, UnsupportedError
from bucketlake.index import RULE_TYPE, EntryPlace, Fill, Index, hash_pieces, secondary_indexes_for_reads
from bucketlake.index.engines import registered_engine
from bucketlake.index.listed import resolve_listed
from bucketlake.index.rings import VIRTUAL_LOGS
from bucketlake.layout import FileGroupId, FileSlice, slices_of
from bucketlake.metadata.change import logged_keys_of
from bucketlake.metadata.secondary_index import secondary_indexes
from bucketlake.read import is_service
from bucketlake.state import TableState, commit_metadata, files_of, table_schema, view_for
from bucketlake.timeline import Action, Instant
from bucketlake.write.state import NULL_ELEMENTS_ALLOWED, is_set


@dataclass(frozen=True, slots=True)
class Description:
    """A table in a few lines."""

    path: str
    name: str
    table_type: str
    table_version: int
    record_key: tuple[str, ...]
    partition: tuple[str, ...]
    ordering: tuple[str, ...]
    merge_mode: str
    key_generator: str
    index: str
    metadata_table: tuple[str, ...]
    secondary_indexes: tuple[str, ...]
    """As `name of column`."""
    schema: pa.Schema
    commits: int
    """Completed instants on the active timeline."""
    pending: int
    last_commit: str | None
    """Requested time of the newest completed instant."""
    changes_until: str | None
    """The completion time up to which an incremental read finds all changes."""
    beside_hudi: tuple[str, ...]
    """What Hudi cannot do with this table, a sentence each; empty if it can read and write it."""


def describe(state: TableState, index: Index, *, changes_until: str | None) -> Description:
    properties = state.properties
    completed = [i for i in state.timeline.instants if i.is_completed]
    return Description(
        path=state.store.uri,
        name=properties.name,
        table_type=properties.table_type.value,
        table_version=properties.table_version,
        record_key=properties.record_key_fields,
        partition=properties.partition_fields,
        ordering=properties.ordering_fields,
        merge_mode=properties.merge_mode.value,
        key_generator=properties.key_generator.value,
        index=index.described(),
        metadata_table=properties.metadata_partitions,
        secondary_indexes=tuple(
            f"{one.name} of {one.column}" for one in secondary_indexes(state.store, properties).values()
        ),
        schema=table_schema(state),
        commits=len(completed),
        pending=len(state.timeline.instants) - len(completed),
        last_commit=max((i.requested for i in completed), default=None),
        changes_until=changes_until,
        beside_hudi=beside_hudi(properties, index),
    )


def beside_hudi(properties: TableProperties, index: Index) -> tuple[str, ...]:
    """Say what Hudi 1.2 cannot do with a table, or must be told first. The page docs/beside-hudi.md has it all."""
    said = []
    engine = properties.engine
    is_copy_on_write = properties.table_type is TableType.COPY_ON_WRITE
    if engine == BucketEngine.CONSISTENT_HASHING and is_copy_on_write:
        said.append(
            "Hudi reads it and cannot write it: it writes no copy-on-write table with consistent hashing."
        )
    elif engine == BucketEngine.CONSISTENT_HASHING:
        said.append(
            "UPDATE and DELETE of Hudi's SQL lose rows in it: give Hudi hoodie.spark.sql.optimized.writes.enable=false."
        )
    elif engine == BucketEngine.EXTENDIBLE_HASHING:
        said.append("Hudi reads it and cannot write it: it does not know extendible hashing.")
    if is_set(properties, VIRTUAL_LOGS):
        said.append(
            "While a resize is pending, Hudi cannot read the buckets that are resized: they have virtual logs."
        )
    rules = index.rescalable.rules if index.rescalable is not None else None
    if rules is not None and rules.rule_type != RULE_TYPE:
        said.append(
            f"Hudi reads it and cannot write it: it knows no bucket rules of type {rules.rule_type!r}."
        )
    if engine is not None and registered_engine(engine) is not None:
        said.append(f"Hudi reads it and cannot write it: it does not know the engine {engine}.")
    if is_set(properties, NULL_ELEMENTS_ALLOWED):
        said.append("Hudi cannot write a row that has a null in an array.")
    return tuple(said)


def described_html(found: Description) -> str:
    """Show a table in a notebook."""
    facts = notebook.facts_html(
        found.name,
        {
            "path": found.path,
            "type": found.table_type,
            "record key": found.record_key,
            "partition": found.partition,
            "ordering": found.ordering,
            "index": found.index,
            "secondary indexes": found.secondary_indexes,
            "commits": found.commits,
            "pending": found.pending or None,
            "last commit": found.last_commit,
            "beside Hudi": " ".join(found.beside_hudi),
        },
    )
    columns = [(field.name, str(field.type)) for field in found.schema]
    return facts + notebook.grid_html(("column", "type"), columns)


@dataclass(frozen=True, slots=True)
class Growth:
    """By how many keys a write made a bucket grow."""

    completed: str
    keys: int


@dataclass(frozen=True, slots=True)
class PartitionLayout:
    """The file groups of one partition, and how evenly they are filled."""

    partition: str
    slices: tuple[FileSlice, ...]
    buckets: int | None
    """How many buckets the index has here; None if it has none."""
    fills: Mapping[str, Fill] = field(default_factory=dict)
    """By file id, how full buckets are that open as others fill."""
    growth: Mapping[str, tuple[Growth, ...]] = field(default_factory=dict)
    """By file id, how such buckets have grown: a step for each write on the timeline that changed it."""

    @property
    def size_bytes(self) -> int:
        return sum(s.size_bytes for s in self.slices)

    @property
    def log_bytes(self) -> int:
        return sum(log.size_bytes for s in self.slices for log in s.log_files)

    @property
    def base_files(self) -> int:
        return sum(s.base_file is not None for s in self.slices)

    @property
    def log_files(self) -> int:
        return sum(len(s.log_files) for s in self.slices)

    @property
    def skew(self) -> float:
        """How much larger the largest file group is than the average one; 1 is even."""
        sizes = [s.size_bytes for s in self.slices]
        average = mean(sizes) if sizes else 0
        return max(sizes) / average if average else 1.0


@dataclass(frozen=True, slots=True)
class Layout:
    partitions: tuple[PartitionLayout, ...]
    index: str = ""
    """What says where keys live, and how much there is of it."""

    @property
    def size_bytes(self) -> int:
        return sum(p.size_bytes for p in self.partitions)

    @property
    def skew(self) -> float:
        """How much larger the largest file group of the table is than the average one."""
        sizes = [s.size_bytes for p in self.partitions for s in p.slices]
        average = mean(sizes) if sizes else 0
        return max(sizes) / average if average else 1.0


def layout(state: TableState, index: Index) -> Layout:
    files = files_of(state)
    view = view_for(state, (file for group in files.values() for file in group))
    index.foresee(files)
    slices = {partition: slices_of(partition, files[partition], view) for partition in sorted(files)}
    fills: Mapping[FileGroupId, Fill] = {}
    growth: Mapping[FileGroupId, tuple[Growth, ...]] = {}
    if index.recorded is not None:
        groups = {partition: {part.file_id: part for part in parts} for partition, parts in slices.items()}
        fills = index.recorded.fills(state, groups)
        growth = _growth(state, fills) if fills else {}
    return Layout(
        tuple(
            PartitionLayout(
                partition,
                parts,
                index.bucket_count(partition),
                {p.file_id: fills[partition, p.file_id] for p in parts if (partition, p.file_id) in fills},
                {p.file_id: growth[partition, p.file_id] for p in parts if (partition, p.file_id) in growth},
            )
            for partition, parts in slices.items()
        ),
        index.described(),
    )


def _growth(state: TableState, file_groups: Collection[FileGroupId]) -> dict[FileGroupId, tuple[Growth, ...]]:
    """Find which writes of the active timeline brought how many keys to some file groups, or took some away."""
    found: dict[FileGroupId, list[Growth]] = {}
    for instant in sorted(state.timeline.writes, key=lambda one: one.completed or one.requested):
        commit = commit_metadata(state, instant)
        grown: Counter[FileGroupId] = Counter()
        for stat in () if is_service(commit) else commit.write_stats:
            if not stat.log_files:
                grown[stat.partition, stat.file_id] += stat.inserted - stat.deleted
        for partition, by_id in logged_keys_of(commit).items():
            grown.update({(partition, file_id): keys for file_id, keys in by_id.items()})
        for group, keys in grown.items():
            if keys and group in file_groups:
                found.setdefault(group, []).append(Growth(instant.completed or instant.requested, keys))
    return {group: tuple(steps) for group, steps in found.items()}


LOCATIONS = pa.schema(
    [
        pa.field("key", pa.string(), nullable=False),
        pa.field("file_id", pa.string(), nullable=False),
        pa.field("bucket", pa.int32()),
    ]
)
"""What `locations` returns: record keys, as the table spells them, and where they are."""


def locations(state: TableState, index: Index, partition: str) -> pa.Table:
    """Return where the keys of a partition live, as an index has recorded it; no row is read."""
    listed = () if index.recorded is not None else resolve_listed(state)
    recorded = index.recorded or next((one.recorded for one in listed if one.recorded is not None), None)
    if recorded is None:
        raise UnsupportedError(
            subject=f"the index of {state.store.uri}",
            found=f"{index}, which works out where keys live",
            supported="locations that are recorded",
            remedy="Have them recorded too: table.metadata.build(record_index=True). Or ask for one key: "
            "table.explain(key).",
        )
    fault = recorded.fault
    if fault is not None:
        raise CommitConflictError(
            f"the {recorded} of {state.store.uri} cannot be relied on: {fault}. Try again, if somebody writes to the "
            f"table now; else build it anew: table.metadata.rebuild()."
        )
    found = recorded.of_partition(partition)
    if not found.num_rows and not files_of(state, [partition]).get(partition):
        raise ConfigError(
            f"{state.store.uri} has no partition {partition!r}. Name it by its path, as `bucketlake layout` shows it."
        )
    ids = found["file_id"].combine_chunks().dictionary_encode()
    slots = [recorded.heir_slot(partition, file_id) for file_id in ids.dictionary.to_pylist()]
    numbers = pa.array([None if slot is None else int(slot) for slot in slots], pa.int32())
    return pa.Table.from_arrays([found["key"], found["file_id"], numbers.take(ids.indices)], schema=LOCATIONS)


@dataclass(frozen=True, slots=True)
class TimelineEntry:
    """One instant, as a person reads it."""

    requested: str
    completed: str | None
    action: str
    state: str
    operation: str | None
    """What a completed write did: UPSERT, COMPACT, …"""


def timeline(state: TableState) -> tuple[TimelineEntry, ...]:
    """Return the active timeline, oldest first."""
    return tuple(
        TimelineEntry(
            requested=instant.requested,
            completed=instant.completed,
            action=instant.action.value,
            state=instant.state.value,
            operation=_operation(state, instant),
        )
        for instant in sorted(state.timeline.instants)
    )


_WRITES = frozenset({Action.COMMIT, Action.DELTA_COMMIT, Action.REPLACE_COMMIT})


def _operation(state: TableState, instant: Instant) -> str | None:
    if not instant.is_completed or instant.action not in _WRITES:
        return None
    return commit_metadata(state, instant).operation


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """One commit, and what it did to the rows."""

    instant: str
    completed: str | None
    operation: str | None
    inserted: int
    updated: int
    """With rows in logs, of which nobody knows yet whether their keys were new."""
    deleted: int
    partitions: int
    files: int
    size_bytes: int


def history(state: TableState, *, limit: int | None = None) -> tuple[HistoryEntry, ...]:
    """Return the commits on the active timeline, newest first."""
    commits = sorted(state.timeline.completed(*_WRITES), key=lambda i: i.completed or "", reverse=True)
    return tuple(_entry(state, instant) for instant in commits[:limit])


def _entry(state: TableState, instant: Instant) -> HistoryEntry:
    metadata = commit_metadata(state, instant)
    stats = metadata.write_stats
    return HistoryEntry(
        instant=instant.requested,
        completed=instant.completed,
        operation=metadata.operation,
        inserted=sum(stat.inserted for stat in stats),
        updated=sum(stat.updated for stat in stats),
        deleted=sum(stat.deleted for stat in stats),
        partitions=len(metadata.partitions),
        files=len(stats),
        size_bytes=sum(stat.size_bytes for stat in stats),
    )


COMMITS_SHOWN = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """Where a key lives, and why; prints as a few lines. None or empty where the index does not say."""

    record_key: str
    """As the table spells it."""
    partition: str | None
    """None if the index knows of none, and nobody has named one."""
    index: str
    pieces: tuple[str | None, ...] = ()
    """What of the key is hashed."""
    hash: int | None = None
    rule: str | None = None
    """What decides the partition's bucket count."""
    rules_version: str | None = None
    """The instant of the rules."""
    count: int | None = None
    bucket: int | None = None
    slot: str | None = None
    """How the ids of its file groups begin."""
    more: Mapping[str, str] = field(default_factory=dict)
    """What else the engine says of it."""
    file_groups: tuple[str, ...] = ()
    """Those that may hold the key, and are there."""
    commits: tuple[TimelineEntry, ...] = ()
    """The last ones on the active timeline that wrote to these, newest first."""
    entries: tuple[EntryPlace, ...] = ()
    """Where secondary indexes have its row, if it has one."""

    def __str__(self) -> str:
        where = "no partition" if self.partition is None else f"partition {self.partition!r}"
        lines = [
            f"key          {self.record_key!r} in {where}",
            f"index        {self.index}",
        ]
        if self.pieces:
            lines.append(f"hashed       {', '.join(map(repr, self.pieces))} -> {self.hash}")
        if self.rule is not None:
            lines.append(f"rule         {self.rule}; rules of {self.rules_version or 'the caller'}")
        if self.bucket is not None:
            lines.append(f"bucket       {self.hash} mod {self.count} = {self.bucket}")
        if self.slot is not None:
            lines.append(f"file ids     {self.slot}-...")
        lines += [f"{word:<12} {text}" for word, text in self.more.items()]
        lines.append(f"file groups  {', '.join(self.file_groups) or 'none yet'}")
        lines += [
            f"written by   {c.action} of {c.requested}, {c.operation}, completed {c.completed}"
            for c in self.commits
        ]
        lines += [f"secondary    {entry}" for entry in self.entries]
        return "\n".join(lines)


def explain(
    state: TableState,
    index: Index,
    record_key: str,
    *,
    partition: str | None,
    row: pa.Table | None = None,
) -> Explanation:
    """Follow a key to its file group; ConfigError if it may be in several partitions and none is named.

    `row` is what the table has of the key, with the columns that have secondary indexes: one row, or none.
    """
    knows_partition = index.recorded is not None and index.recorded.is_global
    if partition is None and not state.properties.partition_fields:
        partition = ""
    if partition is None and not knows_partition:
        raise ConfigError(
            "the table has partitions, and a key lives in one of them: name it by its path, as `bucketlake "
            "layout` shows it."
        )
    pieces = hash_pieces(record_key, index.hash_fields) if index.placed is not None else ()
    place = index.explain(partition or "", record_key, pieces)
    recorded = next(iter(place.groups), None) if place.groups else None
    where = partition if recorded is None else recorded[0]
    files = () if where is None else files_of(state, [where]).get(where, ())
    visible = [part.file_id for part in slices_of(where or "", files, view_for(state, files))]
    if place.groups is None:
        wanted = index.file_groups(where or "", visible, [pieces])
    else:
        wanted = frozenset(visible).intersection(file_id for _, file_id in place.groups)
    return Explanation(
        record_key=record_key,
        partition=where,
        index=str(index),
        pieces=pieces,
        hash=place.hash,
        rule=place.rule,
        rules_version=place.rules_version,
        count=None if where is None else index.bucket_count(where),
        bucket=place.bucket,
        slot=place.slot,
        more=place.more
        if recorded is None
        else {**place.more, **_grown(state, index, recorded), "live": _life_of(recorded, wanted, state)},
        file_groups=tuple(sorted(wanted)),
        commits=_written_by(state, where or "", wanted),
        entries=() if row is None else _entries_of(state, row, record_key),
    )


def _entries_of(state: TableState, row: pa.Table, record_key: str) -> tuple[EntryPlace, ...]:
    """Say where secondary indexes have the entries of a row."""
    if not row.num_rows:
        return ()
    return tuple(
        one.place_of(row.column(one.definition.column).combine_chunks()[:1], record_key)
        for one in secondary_indexes_for_reads(state)
        if one.definition.column in row.column_names
    )


def _grown(state: TableState, index: Index, group: FileGroupId) -> dict[str, str]:
    """Say how the bucket of a key has grown, if it is one that opened as others filled."""
    if index.recorded is None or index.recorded.heir_slot(*group) is None:
        return {}
    steps = _growth(state, {group}).get(group, ())
    shown = ", ".join(f"{step.keys:+,} at {step.completed}" for step in steps[-COMMITS_SHOWN:])
    return {"growth": shown} if shown else {}


def _life_of(group: FileGroupId, visible: frozenset[str], state: TableState) -> str:
    """Say whether the file group of an entry is one that readers see."""
    if group[1] in visible:
        return "yes"
    by = state.view.replaced.get(group)
    return "no: there is no such file group" if by is None else f"no: the file group was replaced by {by}"


def _written_by(state: TableState, partition: str, file_ids: frozenset[str]) -> tuple[TimelineEntry, ...]:
    """Find the newest commits that wrote to some file groups, by reading one after the other from the end."""
    found: list[TimelineEntry] = []
    for instant in sorted(state.timeline.writes, key=lambda i: i.completed or i.requested, reverse=True):
        if len(found) == COMMITS_SHOWN or not file_ids:
            break
        metadata = commit_metadata(state, instant)
        if any(stat.partition == partition and stat.file_id in file_ids for stat in metadata.write_stats):
            found.append(
                TimelineEntry(
                    requested=instant.requested,
                    completed=instant.completed,
                    action=instant.action.value,
                    state=instant.state.value,
                    operation=metadata.operation,
                )
            )
    return tuple(found)
