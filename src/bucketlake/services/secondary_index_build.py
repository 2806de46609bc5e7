"""Secondary indexes of a table that has rows: built while writers go on (`index_build.py`), dropped, built again.

One leads from the values of a column to record keys, and the record-level index of the table from there to file groups:
so that has to be listed, and be of the whole table. Where it is delisted, by a rollback for one, its secondary indexes
go with it, and are built again after it.
"""

from __future__ import annotations

import logging
import re
from dataclasses import asdict, dataclass
from typing import Any

from bucketlake.commit.locks import table_lock
from bucketlake.commit.metadata_build import check_buildable
from bucketlake.commit.metadata_table import LISTED, is_listed, wanted_partitions
from bucketlake.config import RECORD_LEVEL, TableProperties, load_properties, update_properties
from bucketlake.errors import BucketlakeError, ConcurrentWriteError, ConfigError, UnsupportedError
from bucketlake.index.record_level import SHARDS_DEFAULT
from bucketlake.index.secondary import is_indexable
from bucketlake.keygen import KeyGenerator
from bucketlake.metadata.growth import growth_of
from bucketlake.metadata.index_definitions import forget_definition
from bucketlake.metadata.places import (
    PARTITION_STATS,
    RECORD_INDEX,
    SECONDARY_BUILT,
    SECONDARY_PREFIX,
    WANTED,
    folder_of,
)
from bucketlake.metadata.record_shards import SHARDS_MAX
from bucketlake.metadata.secondary_index import (
    SecondaryBuild,
    SecondaryIndexDefinition,
    builds_of,
    defined_indexes,
    render_builds,
)
from bucketlake.schema import META_COLUMNS
from bucketlake.services.index_build import (
    BuiltIndex,
    IndexBuild,
    Listing,
    build_by,
    plan_slices,
    refuse_keyless,
    refuse_non_blocking,
    rows_by_partition,
    shards_for,
    throw_away,
    work_of,
)
from bucketlake.services.index_draft import Draft, begin_draft, load_draft
from bucketlake.services.index_kind import SecondaryKind
from bucketlake.services.record_index_build import wanted_index
from bucketlake.services.tasks import Tasks, here
from bucketlake.state import TableState, load_state, table_schema
from bucketlake.storage import FileStat, Store, in_parallel
from bucketlake.timeline import Clock, process_clock

NAME_LENGTH_MAX = 128

_BESIDE_STATISTICS = (
    "Hudi 1.2.0 fails to write to a table that has a secondary index beside partition_stats, as this one has. If Hudi "
    'writes to it, see "Beside Hudi" in docs/secondary-index.md'
)

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]*")
_log = logging.getLogger("bucketlake.services")


@dataclass(frozen=True, slots=True, kw_only=True)
class SecondaryIndexBuild(IndexBuild):
    """What building a secondary index means; prints as a few lines."""

    bytes_per_key = SecondaryKind(SecondaryIndexDefinition("", "")).bytes_per_entry
    name: str
    column: str
    beside_statistics: bool = False
    """Whether Hudi keeps statistics of partitions."""

    def __str__(self) -> str:
        lines = self.lines(per_key="bytes per row, more where values are long")
        lines += [f"  {_BESIDE_STATISTICS}"] if self.beside_statistics else []
        return "\n".join(
            [f"build the secondary index {self.name} of {self.column} for {self.table}:", *lines]
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltSecondaryIndex(BuiltIndex):
    """A secondary index that was built; prints as a line."""

    name: str
    column: str

    def __str__(self) -> str:
        return f"{self.table} has the secondary index {self.name} of {self.column} now: {self.counted('entries')}"


@dataclass(frozen=True, slots=True, kw_only=True)
class DroppedIndex:
    """What dropping a secondary index means, or what was dropped; prints as a line."""

    table: str
    name: str
    files: tuple[FileStat, ...]

    @property
    def size_bytes(self) -> int:
        return sum(file.size_bytes for file in self.files)

    def __str__(self) -> str:
        return (
            f"drop the secondary index {self.name} of {self.table}: {len(self.files):,} files, "
            f"{self.size_bytes:,} bytes"
        )


# ---------------------------------------------------------------------------------------------------------- refuse


def checked_definition(
    state: TableState, name: str, column: str, *, gets_record_index: bool
) -> SecondaryIndexDefinition:
    """Refuse a new index that a table cannot have; `gets_record_index` says that it gets a record-level one first."""
    _check_name(name)
    definition = SecondaryIndexDefinition(name, column)
    _check(state, definition, gets_record_index=gets_record_index)
    return definition


def _check(state: TableState, definition: SecondaryIndexDefinition, *, gets_record_index: bool) -> None:
    check_buildable(state)
    refuse_non_blocking(state, "secondary")
    _check_column(state, definition.column)
    refuse_partitioned(state.store, state.properties)
    _refuse_other(state.store, state.properties, definition)
    if not gets_record_index:
        _check_record_index(state)


def why_not_buildable(state: TableState, column: str) -> str | None:
    """Say why an index that somebody has made of this column cannot be built again; None if it can."""
    try:
        _check_column(state, column)
    except (ConfigError, UnsupportedError) as fault:
        return str(fault)
    return None


def check_shards(shards: int | None) -> None:
    if shards is not None and not 1 <= shards <= SHARDS_MAX:
        raise ConfigError(
            f"shards is {shards}; expected a number from 1 to {SHARDS_MAX:,}, or None for as many as the rows need."
        )


def _check_name(name: str) -> None:
    if not _NAME.fullmatch(name) or len(name) > NAME_LENGTH_MAX:
        raise ConfigError(
            f"an index cannot be called {name!r}; expected at most {NAME_LENGTH_MAX} letters, digits, underscores "
            f"and hyphens, and no hyphen first: files are named after it."
        )


def _check_column(state: TableState, column: str) -> None:
    refuse_keyless(state, "secondary")
    properties, uri, schema = state.properties, state.store.uri, table_schema(state)
    columns = [name for name in schema.names if name not in META_COLUMNS]
    first = column.partition(".")[0]
    if column not in columns:
        is_nested = first in columns and first != column
        raise ConfigError(
            f"{uri} has no column {column!r} that could be indexed"
            + (": a field inside of a column cannot be" if is_nested else "")
            + f". Its columns are {', '.join(columns)}."
        )
    partition_columns = [field.name for field in KeyGenerator.from_properties(properties).partition_fields]
    if column in partition_columns:
        raise ConfigError(
            f"{column!r} is a partition column of {uri}, and needs no index: who filters by it reads only its "
            f"partitions. Index another column."
        )
    kind = schema.field(column).type
    if not is_indexable(kind):
        raise UnsupportedError(
            subject=f"an index of column {column!r} of {uri}",
            found=f"the type {kind}",
            supported="text, whole numbers, floating-point numbers, dates and timestamps with a time zone, as in Hudi",
            remedy="Index another column, or add one with a value that can be indexed, such as its text.",
        )


def _check_record_index(state: TableState) -> None:
    properties, uri = state.properties, state.store.uri
    if growth_of(properties) is not None:
        raise ConcurrentWriteError(
            f"the record-level index of {uri} grows, and leads nowhere until that is done. Nothing was begun. Let it "
            f"finish: table.metadata.build()."
        )
    if RECORD_INDEX not in properties.metadata_partitions:
        raise ConfigError(
            f"{uri} has no record-level index, and a secondary index finds record keys, which only that leads to their "
            f"rows. Build both: create_index(..., record_index=True); or build that one first: "
            f"table.metadata.build(record_index=True). No key may be in two partitions then."
        )


def refuse_partitioned(store: Store, properties: TableProperties) -> None:
    """Refuse a record-level index with which no secondary index can be."""
    has = wanted_index(store, properties)
    if has is not None and has.per_partition:
        raise UnsupportedError(
            subject=f"the record-level index of {store.uri}",
            found="one for each partition, where a key may have a row in several",
            supported="secondary indexes beside a record-level index of the whole table: an entry names a key, and no "
            "partition",
            remedy="The table finds its keys by it, and keeps it. Read with filters, or make another table, with "
            "index=RecordIndex()."
            if properties.engine in RECORD_LEVEL
            else "Drop it with table.metadata.drop(record_index=True), and build one of the whole table: "
            "table.metadata.build(record_index=True).",
        )


def _refuse_other(store: Store, properties: TableProperties, asked: SecondaryIndexDefinition) -> None:
    listed, wanted = properties.metadata_partitions, wanted_partitions(properties)
    defined = defined_indexes(store)
    known = defined.get(asked.partition)
    drops = f"Drop it first: table.drop_index({asked.name!r})."
    if asked.partition in listed:
        if known is not None and known.column == asked.column:
            if RECORD_INDEX not in listed:
                raise ConfigError(
                    f"{store.uri} has the index {asked.name!r} of {asked.column!r}, and nobody goes by it: the "
                    f"record-level index, which leads from keys to rows, was dropped. Build both again: "
                    f"table.metadata.build(record_index=True)."
                )
            raise ConfigError(f"{store.uri} has the index {asked.name!r} of {asked.column!r} already.")
        of = f"of {known.column!r}" if known is not None else "that cannot be kept"
        raise ConfigError(f"{store.uri} has an index {asked.name!r} {of}, not of {asked.column!r}. {drops}")
    if asked.partition in wanted and known is not None and known.column != asked.column:
        raise ConfigError(
            f"{store.uri} is to get its index {asked.name!r} of {known.column!r} again: table.metadata.build(). {drops}"
        )
    draft = load_draft(store, asked.partition).draft
    if draft is not None and isinstance(draft.kind, SecondaryKind) and draft.kind.definition != asked:
        raise ConfigError(
            f"an index {asked.name!r} of {draft.kind.definition.column!r} is being built for {store.uri}, or its build "
            f"was cut off. Build that one to the end, or drop what there is of it: table.drop_index({asked.name!r})."
        )
    for partition, other in defined.items() if asked.partition not in wanted else ():
        if partition in {*listed, *wanted} and other.column == asked.column and other.name != asked.name:
            raise ConfigError(
                f"{store.uri} has an index of {asked.column!r} already, called {other.name!r}; a second one would cost "
                f"writers as much again, and help nobody."
            )


# ----------------------------------------------------------------------------------------------------------- build


def plan_secondary_index(
    state: TableState, definition: SecondaryIndexDefinition, shards: int | None
) -> SecondaryIndexBuild:
    """Say what a build would read and make. Reads the footers of all base files."""
    check_shards(shards)
    kind = SecondaryKind(definition)
    plan = plan_slices(state, kind)
    rows = sum(rows_by_partition(state.store, plan.slices).values())
    draft = _draft_to_go_on_with(state, kind, shards)
    if draft is None:
        draft = Draft(instant="", kind=kind, shards=_shards(state.properties, kind, shards, rows))
    return SecondaryIndexBuild(
        table=state.store.uri,
        name=definition.name,
        column=definition.column,
        beside_statistics=PARTITION_STATS in state.properties.metadata_partitions,
        shards=draft.shards,
        rows=rows,
        **work_of(state, plan, draft),
    )


def build_secondary_index(
    store: Store,
    definition: SecondaryIndexDefinition,
    shards: int | None = None,
    *,
    tasks: Tasks = here,
    clock: Clock | None = None,
) -> BuiltSecondaryIndex | None:
    """Build an index and list it; None if another call was faster. Goes on with a build that was cut off."""
    check_shards(shards)
    state = load_state(store)
    kind = SecondaryKind(definition)
    if defined_indexes(store).get(kind.partition) == definition and kind.partition in set(
        state.properties.metadata_partitions
    ):
        return None
    _check(state, definition, gets_record_index=False)
    draft = _draft_to_go_on_with(state, kind, shards) or _begun(state, kind, shards)
    if PARTITION_STATS in state.properties.metadata_partitions:
        _log.warning("%s: %s", store.uri, _BESIDE_STATISTICS)
    clock = clock or process_clock(state.properties.timeline_timezone)
    built = build_by(store, draft, _SecondaryListing(kind), tasks=tasks, clock=clock)
    if built is None:
        return None
    return BuiltSecondaryIndex(name=definition.name, column=definition.column, **asdict(built))


def _draft_to_go_on_with(state: TableState, kind: SecondaryKind, shards: int | None) -> Draft | None:
    draft = load_draft(state.store, kind.partition).draft
    if draft is None or draft.kind != kind or _is_spent(draft, state.properties):
        return None
    if shards not in (None, draft.shards):
        # Whoever is at it may still put shards that nobody else would have: shards are counted by listing.
        raise ConfigError(
            f"the {kind} of {state.store.uri} is being built with {draft.shards} shards, or its build was cut off, and "
            f"{shards} are asked for. Leave shards out to go on with it, or give it up: "
            f"table.drop_index({kind.definition.name!r})."
        )
    return draft


def _begun(state: TableState, kind: SecondaryKind, shards: int | None) -> Draft:
    rows = 0
    if shards is None and kind.partition not in builds_of(state.properties):
        rows = sum(rows_by_partition(state.store, plan_slices(state, kind).slices).values())
    cut = _shards(state.properties, kind, shards, rows)
    return begin_draft(state.store, state.properties, kind, shards=cut, sized={})


def _shards(properties: TableProperties, kind: SecondaryKind, asked: int | None, rows: int) -> int:
    """Return how many shards there are to be: as asked, as there were, or as the rows need."""
    before = builds_of(properties).get(kind.partition)
    if asked is not None:
        return asked
    return before.shards if before is not None else max(SHARDS_DEFAULT, shards_for(rows))


def _is_spent(draft: Draft, properties: TableProperties) -> bool:
    built = builds_of(properties).get(draft.kind.partition)
    return built is not None and built.instant == draft.instant


@dataclass(frozen=True, slots=True)
class _SecondaryListing(Listing):
    """How a secondary index comes to be listed: beside a record-level index of the whole table."""

    kind: SecondaryKind

    def is_over(self, properties: TableProperties) -> bool:
        return self.kind.partition in properties.metadata_partitions

    def is_spent(self, draft: Draft, properties: TableProperties) -> bool:
        return _is_spent(draft, properties)

    def refuse(self, store: Store, properties: TableProperties) -> None:
        if RECORD_INDEX not in properties.metadata_partitions:
            raise ConcurrentWriteError(
                f"the record-level index of {store.uri} was delisted while the {self.kind} was built. That was not "
                f"listed. Build the other again: table.metadata.build(record_index=True); then this one, which goes on."
            )
        refuse_partitioned(store, properties)
        _refuse_other(store, properties, self.kind.definition)

    def definition(self, draft: Draft) -> dict[str, Any]:  # noqa: ARG002 # it says nothing of shards
        return self.kind.definition.as_json()

    def changes(self, now: TableProperties, draft: Draft, completed: str) -> dict[str, str | None]:
        mine = SecondaryBuild(draft.instant, completed, draft.shards)
        rest = set(wanted_partitions(now)) - {self.kind.partition}
        return {
            LISTED: ",".join(sorted({*now.metadata_partitions, self.kind.partition})),
            WANTED: ",".join(sorted(rest)) or None,
            SECONDARY_BUILT: render_builds(builds_of(now) | {self.kind.partition: mine}),
        }


def wanted_secondary(state: TableState) -> tuple[SecondaryIndexDefinition, ...]:
    """Return the indexes that a table is to have again, and does not list; not those that it could not have."""
    properties = state.properties
    wanted = [
        name
        for name in wanted_partitions(properties)
        if name.startswith(SECONDARY_PREFIX) and name not in properties.metadata_partitions
    ]
    if not wanted:
        return ()
    known = defined_indexes(state.store)
    found = (known[name] for name in sorted(wanted) if name in known)
    return tuple(one for one in found if why_not_buildable(state, one.column) is None)


def build_all_wanted(
    store: Store, *, tasks: Tasks = here, clock: Clock | None = None
) -> tuple[BuiltSecondaryIndex, ...]:
    """Build the indexes that a table is to have again."""
    found = wanted_secondary(load_state(store))
    built = (build_secondary_index(store, one, tasks=tasks, clock=clock) for one in found)
    return tuple(one for one in built if one is not None)


def build_wanted_secondary(
    store: Store, *, tasks: Tasks = here, clock: Clock | None = None
) -> tuple[BuiltSecondaryIndex, ...]:
    """Build the indexes that a table has lost to a rollback or restore, as far as that is possible; it fails nobody."""
    properties = load_properties(store)
    is_possible = is_listed(properties) and RECORD_INDEX in properties.metadata_partitions
    if not is_possible or not any(
        name.startswith(SECONDARY_PREFIX) for name in wanted_partitions(properties)
    ):
        return ()
    found = []
    for one in wanted_secondary(load_state(store)):
        try:
            built = build_secondary_index(store, one, tasks=tasks, clock=clock)
        except BucketlakeError as fault:
            _log.warning("%s: its secondary index %s was not built: %s", store.uri, one.name, fault)
        else:
            found += [] if built is None else [built]
    return tuple(found)


# ------------------------------------------------------------------------------------------------------------ drop


def plan_drop_index(store: Store, properties: TableProperties, name: str) -> DroppedIndex:
    """Say what dropping an index would delete; `ConfigError` if there is nothing of it."""
    partition = f"{SECONDARY_PREFIX}{name}"
    there = {*properties.metadata_partitions, *wanted_partitions(properties), *defined_indexes(store)}
    is_begun = _NAME.fullmatch(name) is not None and load_draft(store, partition).draft is not None
    if partition not in there and not is_begun:
        known = sorted(
            one.removeprefix(SECONDARY_PREFIX) for one in there if one.startswith(SECONDARY_PREFIX)
        )
        raise ConfigError(f"{store.uri} has no index {name!r}; it has {', '.join(known) or 'none'}.")
    files = store.list(folder_of(partition), recursive=True).files
    return DroppedIndex(table=store.uri, name=name, files=files)


def drop_secondary_index(store: Store, name: str) -> DroppedIndex:
    """Delist an index, and delete it and what there is of a build."""
    plan_drop_index(store, load_properties(store), name)
    partition = f"{SECONDARY_PREFIX}{name}"
    draft = load_draft(store, partition).draft
    if draft is not None and isinstance(draft.kind, SecondaryKind):
        throw_away(store, draft, _SecondaryListing(draft.kind))
    with table_lock(store) as held:
        properties = load_properties(store)
        builds = {other: one for other, one in builds_of(properties).items() if other != partition}
        rest = set(wanted_partitions(properties)) - {partition}
        changes = {
            LISTED: ",".join(sorted(set(properties.metadata_partitions) - {partition})) or None,
            WANTED: ",".join(sorted(rest)) or None,
            SECONDARY_BUILT: render_builds(builds) or None,
        }
        update_properties(held, changes)
        files = store.list(folder_of(partition), recursive=True).files
        in_parallel(held.delete, [file.path for file in files], store)
        forget_definition(held, partition)
    return DroppedIndex(table=store.uri, name=name, files=files)
