"""The metadata table's part in a commit, and in taking one back.

    follow       before T is published: what T changes, into the metadata table; T_C.deltacommit there
    take_back    after T was unpublished: its logs away, T off the metadata table's timeline, R.rollback there
    delist       from here on nobody looks at the metadata table

Who reads between the two steps of a commit finds T pending in the table, and passes over what the metadata table has of
it. All of it may be done twice, or by two at once.

What a base file of the metadata table tells cannot be taken out of it again: what was there when it was built, or what
a compaction has taken in. Nor can what other instants have told of files that go with a resize, or grow when its rows
are put back. Then the metadata table is delisted before anything is undone, and built anew when all is done.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from enum import StrEnum

from bucketlake.commit.locks import table_lock
from bucketlake.config import TableProperties, load_properties, update_properties
from bucketlake.errors import CorruptTableError, UnsupportedError
from bucketlake.layout.names import (
    INDEX_DEFINITIONS_PATH,
    METADATA_TABLE_FOLDER,
    parse_log_file_name,
    split_path,
)
from bucketlake.metadata.change import change_of
from bucketlake.metadata.delta import delta_commit
from bucketlake.metadata.growth import kept_partitions
from bucketlake.metadata.indexed_columns import indexed_columns
from bucketlake.metadata.places import (
    COLUMN_STATS,
    FILES,
    GROWING,
    MAINTAINED,
    PARTITION_STATS,
    RECORD_INDEX,
    STATISTICS,
    WANTED,
    folder_of,
    is_own_instant,
    timeline_properties,
)
from bucketlake.metadata.secondary_index import refuse_dropped, secondary_indexes
from bucketlake.metadata.stats_change import changed_types, stats_of
from bucketlake.metadata.step import Step, load_metadata_timeline, look_at_step
from bucketlake.storage import Store, in_parallel
from bucketlake.timeline import (
    Action,
    InstantName,
    RollbackMetadata,
    RollbackPlan,
    State,
    Timeline,
    decode_commit_metadata,
    delete_pending,
    encode_rollback_metadata,
    encode_rollback_plan,
    instant_path,
    publish,
    write_inflight,
    write_requested,
)

LISTED = "hoodie.table.metadata.partitions"
LISTED_INFLIGHT = "hoodie.table.metadata.partitions.inflight"
UNMAINTAINED = "bucketlake.metadata.unmaintained"
"""A table property: what a write does about parts of the metadata table that we do not keep in step: `refuse` or
`delist`. Default: `refuse`, because Hudi may need them."""
DELISTINGS = "bucketlake.metadata.delistings"
"""A table property: how often that was done. Default: 0. We set it."""


class OnUnmaintained(StrEnum):
    """What a write does on a table whose metadata table has parts that it would not keep in step."""

    REFUSE = "refuse"
    DELIST = "delist"


def delistings(properties: TableProperties) -> int:
    """Return how often parts of the metadata table were delisted; what is no number counts as never."""
    text = properties.raw.get(DELISTINGS, "").strip()
    return int(text) if text.isascii() and text.isdigit() else 0


def is_listed(properties: TableProperties) -> bool:
    """Tell whether a table has a metadata table, as far as anybody may look at it."""
    return FILES in properties.metadata_partitions


def wanted_partitions(properties: TableProperties) -> tuple[str, ...]:
    """Name the partitions of the metadata table that are to be built anew."""
    return tuple(name for word in properties.raw.get(WANTED, "").split(",") if (name := word.strip()))


def unmaintained(store: Store, properties: TableProperties) -> tuple[str, ...]:
    """Name the partitions of the metadata table that would not follow what we write."""
    listed = set(properties.metadata_partitions)
    kept = MAINTAINED
    if not listed.isdisjoint(STATISTICS) and (COLUMN_STATS not in listed or indexed_columns(store) is None):
        kept -= STATISTICS
    if RECORD_INDEX in kept_partitions(properties):
        kept |= secondary_indexes(store, properties).keys()
    return tuple(sorted(listed - kept))


def refuse_indexer(store: Store, properties: TableProperties) -> None:
    """Refuse a table of which Hudi is building a part of the metadata table: it would not learn of what we do."""
    inflight = properties.raw.get(LISTED_INFLIGHT, "").strip()
    if inflight:
        raise UnsupportedError(
            subject=f"{LISTED_INFLIGHT} of {store.uri}",
            found=inflight,
            supported="changing tables while nobody builds a part of the metadata table",
            remedy="Wait until Hudi's indexer is done. If it died, drop that index with Hudi, or the metadata table: "
            f"`bucketlake metadata drop {store.uri}`.",
        )


def check_maintained(store: Store, properties: TableProperties) -> None:
    """Refuse a table whose metadata table has parts that would not follow what we write, and are not to be delisted."""
    refuse_indexer(store, properties)
    others = unmaintained(store, properties)
    if others and properties.raw.get(UNMAINTAINED) != OnUnmaintained.DELIST:
        refuse_dropped(store, others)
        raise UnsupportedError(
            subject=f"{LISTED} of {store.uri}",
            found=",".join(properties.metadata_partitions),
            supported=f"writing where {FILES} is all, or has beside it statistics of columns that "
            f"{INDEX_DEFINITIONS_PATH} names, in version V2: Hudi reads by {', '.join(others)} too, and would miss our "
            f"rows",
            remedy=f"{_without_record_index(store, properties, others)}Delist the others with `bucketlake metadata "
            f"delist {store.uri}`, or let every write do so: `bucketlake alter {store.uri} "
            f"--on-unmaintained delist`. Hudi's writers make them again unless they are told not to: see "
            f"docs/metadata-table.md.",
        )


def _without_record_index(store: Store, properties: TableProperties, others: Collection[str]) -> str:
    """Say how secondary indexes are mended from under which the record-level index was taken, as Hudi does."""
    if RECORD_INDEX in properties.metadata_partitions:
        return ""
    if not any(name in secondary_indexes(store, properties) for name in others):
        return ""
    return (
        f"Somebody has dropped the record-level index, which secondary indexes need. Build both again: "
        f"`bucketlake metadata build {store.uri} --record-index --yes`. Or without them: "
    )


@dataclass(frozen=True, slots=True)
class Delisted:
    """What was delisted, and deleted; prints as a line."""

    table: str
    partitions: tuple[str, ...]

    def __str__(self) -> str:
        named = ", ".join(self.partitions)
        return (
            f"{self.table} lists no more: {named}"
            if named
            else f"{self.table} lists nothing that is not kept"
        )


def delist_unmaintained(store: Store, *, also: Collection[str] = ()) -> Delisted:
    """Let nobody look at what we would not keep in step, and delete it; `also` what a commit finds that it cannot."""
    with table_lock(store) as held:
        properties = load_properties(store)
        doubtful = set(properties.metadata_partitions).intersection(also)
        others = tuple(sorted(doubtful.union(unmaintained(store, properties))))
        if others:
            count = delistings(properties) + 1
            kept = sorted(set(properties.metadata_partitions) - set(others))
            update_properties(held, {LISTED: ",".join(kept), DELISTINGS: str(count)})
        for partition in others:
            files = store.list(folder_of(partition), recursive=True).files
            in_parallel(held.delete, [file.path for file in files], store)
    return Delisted(store.uri, others)


def checked_step(store: Store, properties: TableProperties, timeline: Timeline | None = None) -> Step:
    """Refuse a table whose metadata table is not in step; say how it is.

    What is not kept in step is delisted first, if the table says that it may be.
    """
    check_maintained(store, properties)
    if unmaintained(store, properties):
        delist_unmaintained(store)
    step = look_at_step(store, properties, timeline)
    if not step.is_kept:
        raise CorruptTableError(
            path=METADATA_TABLE_FOLDER,
            found=f"a metadata table that is {step}",
            expected="every completed instant of the table in both timelines",
            remedy=f"Hudi reads by it, and misses rows. Build it anew: `bucketlake metadata rebuild {store.uri}`.",
        )
    return step


def check_types(store: Store, properties: TableProperties, step: Step, *, body: bytes, path: str) -> None:
    """Refuse a commit whose columns have other types than the ranges of partitions, or delist those, if it may be."""
    columns, schema = indexed_columns(store), decode_commit_metadata(body, path=path).schema
    if PARTITION_STATS not in properties.metadata_partitions or columns is None or schema is None:
        return
    changed = changed_types(store, step, columns=columns, avro_schema=schema, path=path)
    if not changed:
        return
    if properties.raw.get(UNMAINTAINED) != OnUnmaintained.DELIST:
        raise UnsupportedError(
            subject=f"{PARTITION_STATS} of {store.uri}",
            found=f"ranges of {', '.join(changed)} from before its type changed",
            supported="widening a range by one of the same type: Hudi's readers fail on two",
            remedy=f"Let every write delist such statistics: `bucketlake alter {store.uri} --on-unmaintained delist`. "
            f"Hudi's writers make them again.",
        )
    delist_unmaintained(store, also=STATISTICS)


def follow(
    store: Store,
    properties: TableProperties,
    *,
    instant: str,
    action: Action,
    completed: str,
    body: bytes,
    partitions: Collection[str],
    columns: Sequence[str],
    is_void: Callable[[], bool],
) -> None:
    """Put what an instant changes into those partitions of the metadata table. `is_void` is asked before it counts
    there."""
    path = instant_path(properties, InstantName(instant, action, State.INFLIGHT))
    change = change_of(action, body, path=path)
    schema = None if action is Action.CLEAN else decode_commit_metadata(body, path=path).schema
    stats = stats_of(store, change, partitions=partitions, columns=columns, avro_schema=schema, path=path)
    delta = delta_commit(instant, change, stats)
    for file, content in delta.files.items():
        store.put_new(file, content)
    put_instant(
        store, properties, instant, Action.DELTA_COMMIT, completed=completed, body=delta.body, is_void=is_void
    )


def put_instant(
    store: Store,
    properties: TableProperties,
    instant: str,
    action: Action,
    *,
    completed: str,
    body: bytes,
    plan: bytes = b"",
    is_void: Callable[[], bool] = lambda: False,
) -> None:
    """Put an instant on the metadata table's timeline, from beginning to end."""
    begin_instant(store, properties, instant, action, plan=plan, body=body)
    if not is_void():
        end_instant(store, properties, instant, action, completed=completed, body=body)


def begin_instant(
    store: Store,
    properties: TableProperties,
    instant: str,
    action: Action,
    *,
    plan: bytes = b"",
    body: bytes = b"",
) -> None:
    """Put an instant on the metadata table's timeline that is not done yet."""
    own = timeline_properties(properties)
    write_requested(store, own, instant=instant, action=action, body=plan)
    write_inflight(store, own, instant=instant, action=action, body=body)


def end_instant(
    store: Store, properties: TableProperties, instant: str, action: Action, *, completed: str, body: bytes
) -> None:
    """Complete an instant of the metadata table."""
    own = timeline_properties(properties)
    publish(store, own, instant=instant, action=action, completed=completed, body=body)


def is_taken_in(store: Store, properties: TableProperties, instant: str) -> bool:
    """Tell whether a base file of the metadata table tells, or will tell, of a published instant.

    It does if a compaction, run or planned, came after the instant, or a partition was built; and of one that the
    metadata table does not have, because it was built later, or has archived it.
    """
    timeline = load_metadata_timeline(store, properties)
    found = next((i for i in timeline.writes if i.requested == instant), None)
    taken = [
        i.requested
        for i in timeline.instants
        if i.action is Action.COMPACTION or (i.is_completed and i.action is Action.COMMIT)
    ]
    taken += [i.completed or "" for i in timeline.writes if is_own_instant(i.requested)]
    return found is None or max(taken, default="") > (found.completed or "")


def take_back(
    store: Store,
    properties: TableProperties,
    *,
    instant: str,
    rollback: str,
    completed: str,
) -> None:
    """Take an instant that is no longer published out of the metadata table, if it is there."""
    own = timeline_properties(properties)
    timeline = load_metadata_timeline(store, properties)
    logs = _logs_of(store, instant)
    is_there = any(i.requested == instant and i.action is Action.DELTA_COMMIT for i in timeline.instants)
    is_begun = any(i.requested == rollback for i in timeline.pending(Action.ROLLBACK))
    if not (is_there or is_begun or logs):
        return
    root = f"{store.uri}/{METADATA_TABLE_FOLDER}"
    names = {partition: tuple(split_path(path)[1] for path in paths) for partition, paths in logs.items()}
    plan = RollbackPlan(target=instant, action=Action.DELTA_COMMIT, files=names)
    write_requested(
        store, own, instant=rollback, action=Action.ROLLBACK, body=encode_rollback_plan(plan, root=root)
    )
    write_inflight(store, own, instant=rollback, action=Action.ROLLBACK)
    for paths in logs.values():
        for path in paths:
            store.delete(path)
    for found in timeline.completed(Action.DELTA_COMMIT):
        if found.requested == instant:
            store.delete(found.path)
    delete_pending(store, own, instant=instant, action=Action.DELTA_COMMIT)
    done = RollbackMetadata(
        rolled_back=(instant,), files_deleted=sum(map(len, names.values())), deleted=names
    )
    body = encode_rollback_metadata(done, action=Action.DELTA_COMMIT, started=rollback, taken_ms=0, root=root)
    publish(store, own, instant=rollback, action=Action.ROLLBACK, completed=completed, body=body)


def delist(store: Store) -> TableProperties:
    """Let nobody look at the metadata table any more, and remember what there was, to build it anew."""
    properties = load_properties(store)
    if not properties.metadata_partitions:
        return properties
    wanted = ",".join(sorted({FILES, *_indexes(store, properties), *wanted_partitions(properties)}))
    return update_properties(store, {LISTED: None, LISTED_INFLIGHT: None, WANTED: wanted, GROWING: None})


def _indexes(store: Store, properties: TableProperties) -> frozenset[str]:
    """Name the indexes that a table lists, and that can be built again."""
    secondary = secondary_indexes(store, properties).keys()
    return frozenset({RECORD_INDEX}.intersection(properties.metadata_partitions) | secondary)


def delist_index(store: Store) -> TableProperties:
    """Let nobody look at the record-level index any more, and remember that there was one.

    Nor at secondary indexes: Hudi's readers fail on one that leads to record keys which they cannot look up.
    """
    properties = load_properties(store)
    if RECORD_INDEX not in properties.metadata_partitions:
        return properties
    return update_properties(store, _without_indexes(store, properties))


def _without_indexes(store: Store, properties: TableProperties) -> dict[str, str | None]:
    found = _indexes(store, properties)
    return {
        LISTED: ",".join(sorted(set(properties.metadata_partitions) - found)),
        WANTED: ",".join(sorted({RECORD_INDEX, *found, *wanted_partitions(properties)})),
    }


def delist_stranded(store: Store) -> TableProperties:
    """Let nobody look at secondary indexes that somebody has left without a record-level index, and remember them.

    They may have missed what was written since.
    """
    properties = load_properties(store)
    stranded = secondary_indexes(store, properties).keys()
    if not stranded or RECORD_INDEX in properties.metadata_partitions:
        return properties
    kept, again = set(properties.metadata_partitions) - stranded, {*stranded, *wanted_partitions(properties)}
    return update_properties(store, {LISTED: ",".join(sorted(kept)), WANTED: ",".join(sorted(again))})


def begin_growth(store: Store, *, first: str, since: str) -> TableProperties:
    """Delist the record-level index for Hudi, while ours go by it: files of the number `first`, and of later ones, do
    not count (`metadata/growth.py`)."""
    properties = load_properties(store)
    return update_properties(store, {**_without_indexes(store, properties), GROWING: f"{first}_{since}"})


def end_growth(store: Store) -> TableProperties:
    """List the index again, by the shards that count."""
    properties = load_properties(store)
    listed = sorted({*properties.metadata_partitions, RECORD_INDEX})
    rest = ",".join(sorted(set(wanted_partitions(properties)) - {RECORD_INDEX})) or None
    return update_properties(store, {LISTED: ",".join(listed), WANTED: rest, GROWING: None})


def latest_metadata_time(timeline: Timeline) -> str:
    """Return the latest time that the metadata table has used."""
    return max((time for i in timeline.instants for time in (i.requested, i.completed) if time), default="")


def _logs_of(store: Store, instant: str) -> dict[str, tuple[str, ...]]:
    """Find the logs of an instant, by listing: what a commit tells of may not be all."""
    found: dict[str, tuple[str, ...]] = {}
    for folder in store.list(METADATA_TABLE_FOLDER).folders:
        partition = split_path(folder)[1]
        if partition.startswith("."):
            continue
        logs = [
            file.path
            for file in store.list(folder).files
            if (log := parse_log_file_name(split_path(file.path)[1])) and log.instant == instant
        ]
        if logs:
            found[partition] = tuple(logs)
    return found
