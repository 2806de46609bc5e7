"""The record-level index of a table that has rows: built while writers go on (`index_build.py`), grown, dropped.

A table that finds its keys by the index takes no writes until it is listed. Only one that grows does: its writers go by
the old shards, and from one moment on by the new ones (`metadata/growth.py`).

    begin      delisted, for Hudi
    list       the new shards count; what is left of the old ones goes; and the table lists it
    give up    before the new ones count: what there is of them goes, and the table lists the old ones

Secondary indexes lead to record keys, which nobody finds without it: they are delisted with it, and built again after.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from bucketlake.commit.claims import latest_time
from bucketlake.commit.locks import table_lock
from bucketlake.commit.metadata_build import check_buildable
from bucketlake.commit.metadata_table import (
    LISTED,
    begin_growth,
    delist_index,
    delist_stranded,
    end_growth,
    is_listed,
    latest_metadata_time,
    wanted_partitions,
)
from bucketlake.commit.publishing import settle
from bucketlake.config import RECORD_LEVEL, IndexType, TableProperties, load_properties, update_properties
from bucketlake.errors import BucketlakeError, ConcurrentWriteError, ConfigError
from bucketlake.index.record_level import (
    SHARDS_DEFAULT,
    SHARDS_KEY,
    RecordIndex,
    check_record_index,
    stored_record_index,
)
from bucketlake.layout.names import (
    INDEX_DEFINITIONS_PATH,
    parse_index_base_file_name,
    parse_log_file_name,
    split_path,
)
from bucketlake.metadata.growth import Growth, growth_of, untold
from bucketlake.metadata.index_definitions import (
    DEFINITIONS_KEY,
    definitions,
    forget_definition,
    is_record_index_partitioned,
    record_index_definition,
)
from bucketlake.metadata.places import GROWING, INDEX_BUILT, RECORD_INDEX, SECONDARY_PREFIX, WANTED, folder_of
from bucketlake.metadata.secondary_index import defined_indexes
from bucketlake.metadata.step import load_metadata_timeline
from bucketlake.services.index_build import (
    BuiltIndex,
    IndexBuild,
    Listing,
    build_by,
    look_at_slices,
    plan_slices,
    refuse_keyless,
    refuse_non_blocking,
    refuse_others,
    rows_by_partition,
    runs_of,
    shards_for,
    take_off,
    work_of,
)
from bucketlake.services.index_draft import Draft, begin_draft, check_draft, end_draft, load_draft
from bucketlake.services.index_kind import RecordKind
from bucketlake.services.tasks import Tasks, here
from bucketlake.state import TableState, load_state
from bucketlake.storage import FileStat, Store, in_parallel
from bucketlake.timeline import Clock, load_timeline, process_clock

_log = logging.getLogger("bucketlake.services")


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordIndexBuild(IndexBuild):
    """What building a record-level index means; prints as a few lines."""

    bytes_per_key = RecordKind(per_partition=False).bytes_per_entry
    per_partition: bool
    delists: bool = False
    """Whether the table has one, which gives way."""
    is_needed: bool = False
    """Whether the table finds its keys by it, and goes by the old one meanwhile."""
    gives_up: bool = False
    """Whether it grows, and is to be left as it was."""

    def __str__(self) -> str:
        if self.gives_up:
            return f"give up growing the record-level index of {self.table}, and list its old shards again"
        of = "for each partition" if self.per_partition else "of the whole table"
        meanwhile = " for Hudi, while ours go by the shards that there are" if self.is_needed else ""
        lines = [f"delist {RECORD_INDEX} of {self.table}{meanwhile}"] if self.delists else []
        lines += [f"build a record-level index of {self.table}, {of}:", *self.lines(of="the keys of ")]
        return "\n".join(lines)


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltRecordIndex(BuiltIndex):
    """A record-level index that was built; prints as a line."""

    per_partition: bool

    def __str__(self) -> str:
        of = "for each partition" if self.per_partition else "of the whole table"
        return f"{self.table} has a record-level index now, {of}: {self.counted('keys')}"


def wanted_index(store: Store, properties: TableProperties) -> RecordIndex | None:
    """Return the index that a table has, or is to have again; None if it wants none."""
    if properties.engine in RECORD_LEVEL:
        return stored_record_index(properties)
    if RECORD_INDEX not in (*properties.metadata_partitions, *wanted_partitions(properties)):
        return None
    said = properties.raw.get(SHARDS_KEY, "").strip()
    return RecordIndex(
        per_partition=bool(is_record_index_partitioned(store)),
        shards=int(said) if said.isdigit() and int(said) else None,
    )


def is_index_wanted(properties: TableProperties) -> bool:
    """Tell whether a table is to have an index, and does not list it; one that grows, once only the listing is left."""
    growth = growth_of(properties)
    if RECORD_INDEX in properties.metadata_partitions or (growth is not None and not growth.is_outgrown):
        return False
    return properties.engine in RECORD_LEVEL or RECORD_INDEX in wanted_partitions(properties)


def check_index(state: TableState, index: RecordIndex) -> None:
    """Refuse an index that a table cannot have."""
    check_buildable(state)
    check_record_index(index)
    refuse_keyless(state, "record-level")
    refuse_non_blocking(state, "record-level")
    properties, uri = state.properties, state.store.uri
    if properties.engine in RECORD_LEVEL:
        is_said = properties.engine == IndexType.RECORD_LEVEL_INDEX
        if index.per_partition != is_said:
            raise ConfigError(
                f"{uri} finds its keys by a record-level index {'for each partition' if is_said else 'of the table'}; "
                f"leave per_partition out, or say {is_said}."
            )


def refuse_other_index(state: TableState, asked: RecordIndex) -> None:
    """Refuse to build an index where there is another."""
    has = wanted_index(state.store, state.properties)
    if has is not None and (
        has.per_partition != asked.per_partition or asked.shards not in (None, has.shards)
    ):
        raise ConfigError(
            f"{state.store.uri} has a record-level index, and not the one that is asked for: {has}. For more shards: "
            f"table.metadata.grow_record_index(shards=N); else drop it first: table.metadata.drop(record_index=True)."
        )


def plan_record_index(state: TableState, index: RecordIndex, *, delists: bool = False) -> RecordIndexBuild:
    """Say what a build would read and make. Reads the footers of all base files."""
    check_index(state, index)
    kind = RecordKind(index.per_partition)
    plan = plan_slices(state, kind)
    rows = rows_by_partition(state.store, plan.slices)
    shards, sized = _sizes(index, rows)
    draft = Draft(instant="", kind=kind, shards=shards, sized=sized)
    in_all = sum(draft.shards_of(partition) for partition in rows) if index.per_partition else shards
    return RecordIndexBuild(
        table=state.store.uri,
        per_partition=index.per_partition,
        shards=in_all,
        rows=sum(rows.values()),
        delists=delists,
        is_needed=state.properties.engine in RECORD_LEVEL,
        **work_of(state, plan, draft),
    )


def build_record_index(
    store: Store, asked: RecordIndex | None = None, *, tasks: Tasks = here, clock: Clock | None = None
) -> BuiltRecordIndex | None:
    """Build the index and list it; None if one is listed already. Goes on with a build that was cut off.

    `asked` is what a caller wants; None: what is being built, or what the table says. `files` is listed before.
    """
    state = load_state(store)
    properties = state.properties
    if RECORD_INDEX in properties.metadata_partitions:
        left = load_draft(store, RECORD_INDEX).draft
        if left is not None and _is_spent(left, properties):
            end_draft(store, left)
        return None
    if _end_outgrown(store):
        return None
    if any(name.startswith(SECONDARY_PREFIX) for name in properties.metadata_partitions):
        with table_lock(store) as held:
            delist_stranded(held)
    draft = _begun(state, asked)
    clock = clock or process_clock(properties.timeline_timezone)
    built = build_by(store, draft, _RecordListing(), tasks=tasks, clock=clock)
    if built is None:
        return None
    return BuiltRecordIndex(per_partition=draft.kind.per_partition, **asdict(built))


@dataclass(frozen=True, slots=True)
class _RecordListing(Listing):
    """How a record-level index comes to be listed: at once, or in place of the shards by which it grows."""

    def is_over(self, properties: TableProperties) -> bool:
        return RECORD_INDEX in properties.metadata_partitions or _is_outgrown(properties)

    def is_spent(self, draft: Draft, properties: TableProperties) -> bool:
        return _is_spent(draft, properties)

    def shares_folder(self, properties: TableProperties) -> bool:
        return growth_of(properties) is not None

    def definition(self, draft: Draft) -> dict[str, Any]:
        return record_index_definition(is_partitioned=draft.kind.per_partition)

    def changes(self, now: TableProperties, draft: Draft, completed: str) -> dict[str, str | None]:
        rest = set(wanted_partitions(now)) - {RECORD_INDEX}
        listed = {
            LISTED: ",".join(sorted({*now.metadata_partitions, RECORD_INDEX})),
            WANTED: ",".join(sorted(rest)) or None,
        }
        return {
            **({} if growth_of(now) is not None else listed),
            SHARDS_KEY: str(draft.shards),
            INDEX_BUILT: f"{draft.instant}_{completed}",
        }

    def after(self, store: Store, properties: TableProperties) -> None:
        growth = growth_of(properties)
        if growth is not None:
            _take_old_away(store, properties, growth)
            end_growth(store)

    def give_up(self, store: Store) -> None:
        give_up_growth(store)


def grow_record_index(
    store: Store, shards: int, *, tasks: Tasks = here, clock: Clock | None = None
) -> BuiltRecordIndex | None:
    """Build the index that a table has anew, with another number of shards.

    The keys are read, and cut, while the old index is listed. Then it is delisted until the new one is: Hudi counts
    shards by listing one folder. Writers of ours go on meanwhile: by the old shards where the table finds its keys by
    them. While it grows to another number, the number that it has means to leave it as it is.
    """
    state = load_state(store)
    index = grown_index(state, shards)
    if gives_up(state, shards):
        give_up_growth(store)
        return None
    if RECORD_INDEX in state.properties.metadata_partitions:
        # A draft of the same kind is gone on with: its runs are cut as these are to be.
        draft = _begun(state, index)
        if not draft.rounds:
            runs_of(store, draft, look_at_slices(store, draft.kind), tasks)
        with table_lock(store):
            check_draft(store, draft)
            if state.properties.engine in RECORD_LEVEL:
                _begin_growth(store, draft, clock or process_clock(state.properties.timeline_timezone))
            else:
                delist_index(store)
    return build_record_index(store, index, tasks=tasks, clock=clock)


def gives_up(state: TableState, shards: int) -> bool:
    """Tell whether asking for so many shards means to give a growth up: it is to others, and the table has as many."""
    growth, has = growth_of(state.properties), stored_record_index(state.properties)
    if growth is None or growth.is_outgrown or shards != has.shard_count:
        return False
    draft = load_draft(state.store, RECORD_INDEX).draft
    return draft is None or draft.shards != shards


def give_up_growth(store: Store) -> None:
    """List the old shards again, if an index grows and the new ones do not count yet."""
    with table_lock(store):
        properties = load_properties(store)
        growth = growth_of(properties)
        if growth is None or growth.is_outgrown:
            return
        _, timeline = settle(store, properties)
        refuse_others(store, properties, timeline, _kind_of(properties))
        who = untold(store, growth, timeline)
        if who is not None:
            raise ConcurrentWriteError(
                f"the old shards of the record-level index of {store.uri} cannot be listed again: {who}. Go on with "
                f"the growth: table.metadata.build(), or build the index anew: table.metadata.rebuild()."
            )
        files = store.list(folder_of(RECORD_INDEX)).files
        new = [
            file.path for file in files if (instant := _instant_of(file)) and not growth.counts(instant, "")
        ]
        in_parallel(store.delete, new, store)
        own = load_metadata_timeline(store, properties)
        for instant in {i.requested for i in own.instants if not growth.counts(i.requested, "")}:
            take_off(store, properties, own, instant)
        end_growth(store)
        draft = load_draft(store, RECORD_INDEX).draft
        if draft is not None:
            end_draft(store, draft)


def _begin_growth(store: Store, draft: Draft, clock: Clock) -> None:
    """Delist the index for Hudi, for who holds the lock. Hudi's writers who began before would not tell of keys."""
    properties = load_properties(store)
    if RECORD_INDEX not in properties.metadata_partitions:
        return  # another was faster
    claims, timeline = settle(store, properties)
    refuse_others(store, properties, timeline, _kind_of(properties))
    own = load_metadata_timeline(store, properties)
    since = clock.next_instant(after=max(latest_time(timeline, claims), latest_metadata_time(own)))
    begin_growth(store, first=draft.instant, since=since)


def _kind_of(properties: TableProperties) -> RecordKind:
    return RecordKind(per_partition=properties.engine == IndexType.RECORD_LEVEL_INDEX)


def _is_outgrown(properties: TableProperties) -> bool:
    growth = growth_of(properties)
    return growth is not None and growth.is_outgrown


def _end_outgrown(store: Store) -> bool:
    """List an index whose new shards count already, because whoever grew it was cut off; tell whether it was that."""
    if not _is_outgrown(load_properties(store)):
        return False
    with table_lock(store):
        properties = load_properties(store)
        growth = growth_of(properties)
        if growth is None or not growth.is_outgrown:
            return RECORD_INDEX in properties.metadata_partitions
        _, timeline = settle(store, properties)
        refuse_others(store, properties, timeline, _kind_of(properties))
        if untold(store, growth, timeline) is not None:
            update_properties(store, {GROWING: None})  # neither set has all keys: writers wait
            return False
        _take_old_away(store, properties, growth)
        end_growth(store)
    left = load_draft(store, RECORD_INDEX).draft
    if left is not None and _is_spent(left, load_properties(store)):
        end_draft(store, left)
    return True


def _take_old_away(store: Store, properties: TableProperties, growth: Growth) -> None:
    """Delete what does not count, but for what writers have put who are still at it: they take it away themselves."""
    files = store.list(folder_of(RECORD_INDEX)).files  # before the timeline: who puts any is on that
    pending = {i.requested for i in load_timeline(store, properties).pending()}
    own = load_metadata_timeline(store, properties)
    counting = set(growth.counting(files, {i.requested: i.completed or "" for i in own.writes}))
    old = [f.path for f in files if f not in counting and (at := _instant_of(f)) and at not in pending]
    in_parallel(store.delete, old, store)


def _instant_of(file: FileStat) -> str | None:
    name = split_path(file.path)[1]
    parsed = parse_index_base_file_name(name) or parse_log_file_name(name)
    return None if parsed is None else parsed.instant


def grown_index(state: TableState, shards: int) -> RecordIndex:
    """Return the index that a table has, with another number of shards; `ConfigError` if it has none."""
    has = wanted_index(state.store, state.properties)
    if has is None:
        raise ConfigError(
            f"{state.store.uri} has no record-level index that could get more shards. Build one: "
            f"table.metadata.build(record_index=True, shards={shards})."
        )
    index = RecordIndex(per_partition=has.per_partition, shards=shards)
    check_index(state, index)
    return index


def drop_record_index(store: Store) -> tuple[str, ...]:
    """Delist the index of a table that does without, and delete it; return what was deleted."""
    with table_lock(store):
        properties = load_properties(store)
        refuse_drop(store, properties)
        refuse_under_secondary(store, properties)
        found = load_draft(store, RECORD_INDEX).draft
        if found is not None:
            end_draft(store, found)
        delist_index(store)
        files = store.list(folder_of(RECORD_INDEX), recursive=True).files
        in_parallel(store.delete, [file.path for file in files], store)
        forget_definition(store, RECORD_INDEX)
        rest = set(wanted_partitions(load_properties(store))) - {RECORD_INDEX}
        changes = {WANTED: ",".join(sorted(rest)) or None, SHARDS_KEY: None, INDEX_BUILT: None}
        if not definitions(store):
            changes[DEFINITIONS_KEY] = None
            store.delete(INDEX_DEFINITIONS_PATH)
        update_properties(store, changes)
    return tuple(file.path for file in files)


def refuse_drop(store: Store, properties: TableProperties) -> None:
    """Refuse to drop an index by which a table finds its keys."""
    if properties.engine in RECORD_LEVEL:
        raise ConfigError(
            f"{store.uri} finds its keys by its record-level index, and could not be written without. To make it anew: "
            f"table.metadata.rebuild()."
        )


def refuse_under_secondary(store: Store, properties: TableProperties) -> None:
    """Refuse to drop an index alone that secondary indexes need."""
    there = {*properties.metadata_partitions, *wanted_partitions(properties)}
    names = [one.name for partition, one in defined_indexes(store).items() if partition in there]
    if names:
        drops = "; ".join(f"table.drop_index({name!r})" for name in names)
        raise ConfigError(
            f"{store.uri} has secondary indexes that lead nowhere without a record-level index of the whole table: "
            f"{', '.join(names)}. Drop them first: {drops}."
        )


def build_wanted_index(
    store: Store, *, tasks: Tasks = here, clock: Clock | None = None
) -> BuiltRecordIndex | None:
    """Build the index that a table has lost to a rollback or restore, or whose build was cut off, if that is possible.

    It fails nobody: what the caller was about is done, and who needs the index is told that it is not there.
    """
    properties = load_properties(store)
    if not is_listed(properties) or not is_index_wanted(properties):
        return None
    try:
        return build_record_index(store, tasks=tasks, clock=clock)
    except BucketlakeError as fault:
        _log.warning("%s: its record-level index was not built: %s", store.uri, fault)
        return None


def _begun(state: TableState, asked: RecordIndex | None) -> Draft:
    """Return the draft to go on with, or a new one."""
    store, properties = state.store, state.properties
    index = asked or wanted_index(store, properties)
    if index is None:
        raise ConfigError(f"{store.uri} wants no record-level index. Ask for one.")
    check_index(state, index)
    draft = load_draft(store, RECORD_INDEX).draft
    if draft is not None and not _is_spent(draft, properties):
        is_that = draft.kind.per_partition == index.per_partition
        if is_that and (asked is None or asked.shards in (None, draft.shards)):
            return draft
    kind = RecordKind(index.per_partition)
    rows: Mapping[str, int] = {}
    if index.shards is None:
        rows = rows_by_partition(store, plan_slices(state, kind).slices)
    shards, sized = _sizes(index, rows)
    return begin_draft(store, properties, kind, shards=shards, sized=sized)


def _is_spent(draft: Draft, properties: TableProperties) -> bool:
    """Tell whether an index was listed by this draft already, and who did so was cut off after that."""
    return properties.raw.get(INDEX_BUILT, "").startswith(f"{draft.instant}_")


def _sizes(index: RecordIndex, rows: Mapping[str, int]) -> tuple[int, dict[str, int]]:
    """Return how many shards there are to be, and which partitions get another number."""
    if index.shards is not None:
        return index.shards, {}

    if index.per_partition:
        return 1, {p: n for p, count in rows.items() if (n := shards_for(count)) > 1}
    return max(SHARDS_DEFAULT, shards_for(sum(rows.values()))), {}
