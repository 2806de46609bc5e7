"""The shards of the record-level index: what they are called, which a table has, and what each is made of.

    record-index-0003-0                     shard 3 of an index of the whole table
    record-index-<partition>-0000-0         shard 0 of one data partition, of an index that has some for each

In the name of a shard a partition's path is escaped, `-` and `_` too: Hudi cuts the name at dashes. How many shards
there are is written nowhere; it is as many as there are file ids in the folder.

What a shard is made of is pinned to what a caller knows of the table: entries of a commit that completed after that do
not count for him, or he would look for file groups that he has not seen.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from bucketlake.config import TableProperties, load_properties
from bucketlake.errors import CommitConflictError, ConfigError
from bucketlake.layout.names import (
    BaseFileName,
    LogFileName,
    parse_index_base_file_name,
    parse_log_file_name,
    split_path,
)
from bucketlake.metadata.growth import growth_of
from bucketlake.metadata.listing import ShardSlice
from bucketlake.metadata.places import GROWING, INDEX_BUILT, RECORD_INDEX, folder_of, is_own_instant
from bucketlake.metadata.shards import Shards, list_shards
from bucketlake.metadata.step import Step, load_metadata_timeline, log_compactions, look_at_step
from bucketlake.storage import FileStat, Store
from bucketlake.timeline import Action, Timeline, load_history, load_timeline

SHARDS_MAX = 10_000
"""As many as Hudi gives an index at most; four digits name them."""

_ESCAPED = frozenset(map(chr, range(32))) | frozenset("\"#%'*/:=?\\\x7f{[]^-_")
_NAME = re.compile(r"record-index-(?:(?P<partition>[^-]*)-)?(?P<number>\d{4,})-0")


@dataclass(frozen=True, slots=True)
class RecordShard:
    """One shard, and what it is made of."""

    partition: str | None
    """The data partition that it is for; None: for all."""
    number: int
    slice: ShardSlice

    @property
    def file_id(self) -> str:
        return shard_file_id(self.number, self.partition)


def shard_file_id(number: int, partition: str | None = None) -> str:
    """Return the file id of a shard, of the whole table or of a data partition.

    >>> shard_file_id(3), shard_file_id(0, "dt=2026-06-18/eu")
    ('record-index-0003-0', 'record-index-dt%3D2026%2D06%2D18%2Feu-0000-0')
    """
    if partition is None:
        return f"record-index-{number:04d}-0"
    escaped = "".join(f"%{ord(c):02X}" if c in _ESCAPED else c for c in partition)
    if "." in escaped:
        raise ConfigError(
            f"the partition {partition!r} has a dot in its path, and a record-level index that has shards for each "
            f"partition names files after it, which Hudi cuts at dots. Choose other partition values, or an index of "
            f"the whole table."
        )
    return f"record-index-{escaped}-{number:04d}-0"


def parse_shard_file_id(file_id: str) -> tuple[str | None, int] | None:
    """Return the data partition, if it has one, and the number of a shard; None if it is no shard of this index.

    >>> parse_shard_file_id("record-index-dt%3D2026%2D06%2D18-0002-0")
    ('dt=2026-06-18', 2)
    """
    found = _NAME.fullmatch(file_id)
    if found is None:
        return None
    partition = found["partition"]
    if partition is not None:
        partition = re.sub("%([0-9A-F]{2})", lambda code: chr(int(code[1], 16)), partition)
    return partition, int(found["number"])


def pinned_shards(
    store: Store, properties: TableProperties, table: Timeline
) -> tuple[Step, tuple[RecordShard, ...]]:
    """Find the shards as they were when the table's timeline was this one; and how the two timelines compare.

    Sorted by partition and number. `CommitConflictError` if what they were then cannot be told any more.
    """
    step, slices = pinned_slices(store, properties, table, RECORD_INDEX)
    found = [
        RecordShard(*parsed, part)
        for file_id, part in slices.items()
        if (parsed := parse_shard_file_id(file_id)) is not None
    ]
    return step, tuple(sorted(found, key=lambda one: (one.partition or "", one.number)))


def pinned_slices(
    store: Store, properties: TableProperties, table: Timeline, partition: str
) -> tuple[Step, dict[str, ShardSlice]]:
    """Find what the shards of an index, a partition of the metadata table, were made of at that time, by file id."""
    step = look_at_step(store, properties, table)
    shards = list_shards(store, step, properties, [partition])
    if partition == RECORD_INDEX:
        _refuse_other_set(store, properties, shards)
    known = _known_until(table)
    kept = {shard: tuple(_of_then(files, known)) for shard, files in shards.files.items()}
    _refuse_later_compactions(store, properties, step, kept, table)
    pinned = Shards(step, kept)
    return step, {shard[1]: pinned.slice_of(shard) for shard, files in kept.items() if _counts(files, step)}


def _refuse_other_set(store: Store, properties: TableProperties, shards: Shards) -> None:
    """Refuse what was listed while others began to grow the index, or went over to the new set: some of each is there.

    Files of a number that no instant has may be such; of long ago, if that is archived.
    """
    done = {i.requested for i in shards.step.metadata.writes}
    instants = {parsed.instant for files in shards.files.values() for f in files if (parsed := _named(f))}
    is_doubtful = any(is_own_instant(instant) and instant not in done for instant in instants)
    if growth_of(properties) is None and not is_doubtful:
        return
    refuse_if_built_anew(store, properties)


def refuse_if_built_anew(store: Store, properties: TableProperties) -> None:
    """Raise `CommitConflictError` if an index has got other shards, or is getting them, since these properties were
    read. Of what was listed meanwhile, files that seem to be lost are not."""
    now = load_properties(store)
    is_other = any(now.raw.get(key) != properties.raw.get(key) for key in (GROWING, INDEX_BUILT))
    if is_other or now.metadata_partitions != properties.metadata_partitions:
        raise CommitConflictError(
            f"the record-level index of {store.uri} was delisted, or has got other shards, since this call looked at "
            f"the table. Nothing was committed. Run it again."
        )


def _known_until(table: Timeline) -> str:
    return max((time for i in table.instants for time in (i.requested, i.completed or "")), default="")


def _of_then(files: Iterable[FileStat], known: str) -> Iterable[FileStat]:
    for file in files:
        log = parse_log_file_name(split_path(file.path)[1])
        if log is None or is_own_instant(log.instant) or log.instant <= known:
            yield file


def _counts(files: Iterable[FileStat], step: Step) -> bool:
    """Tell whether a shard is there for anybody: a file of it is of a completed instant, or of one long archived."""
    completions = {i.requested for i in step.metadata.writes}
    pending = {i.requested for i in step.table.pending()}
    oldest = min(completions, default="")
    for file in files:
        name = split_path(file.path)[1]
        parsed = parse_index_base_file_name(name) or parse_log_file_name(name)
        if parsed is None or parsed.instant in pending:
            continue
        if parsed.instant in completions or parsed.instant < oldest:
            return True
    return False


def abandoned_files(store: Store, properties: TableProperties) -> dict[str, tuple[FileStat, ...]]:
    """Return the files of partitions' shards that are of instants which the table does not have, nor ever had.

    Only of partitions of which no completed instant says anything. A write that is under way is on the timeline before
    it puts any file, so the files are listed first.
    """
    by_partition: dict[str, dict[FileStat, str]] = {}
    for file in store.list(folder_of(RECORD_INDEX)).files:
        parsed = _named(file)
        shard = None if parsed is None else parse_shard_file_id(parsed.file_id)
        if parsed is not None and shard is not None and shard[0] is not None:
            by_partition.setdefault(shard[0], {})[file] = parsed.instant
    table, metadata = load_timeline(store, properties), load_metadata_timeline(store, properties)
    both = (*table.instants, *metadata.instants)
    done = {i.requested for i in both if i.is_completed}
    known = {i.requested for i in both}

    def without(instants: Collection[str]) -> dict[str, dict[FileStat, str]]:
        return {
            partition: files
            for partition, files in by_partition.items()
            if not any(instant in instants or is_own_instant(instant) for instant in files.values())
            and not known.issuperset(files.values())
        }

    if not without(done):
        return {}
    done |= {instant.requested for instant in load_history(store, properties)}
    return {
        partition: tuple(file for file, instant in files.items() if instant not in known)
        for partition, files in sorted(without(done).items())
    }


def _named(file: FileStat) -> BaseFileName | LogFileName | None:
    name = split_path(file.path)[1]
    return parse_index_base_file_name(name) or parse_log_file_name(name)


def _refuse_later_compactions(
    store: Store,
    properties: TableProperties,
    step: Step,
    files: Mapping[tuple[str, str], Iterable[FileStat]],
    table: Timeline,
) -> None:
    """Refuse base files that tell of commits which the caller has not seen."""
    known = {i.requested for i in table.instants}
    until = _known_until(table)
    unseen = {
        i.requested: i.completed or ""
        for i in step.metadata.completed(Action.DELTA_COMMIT)  # a compaction tells of nothing new
        if i.requested > until and i.requested not in known and not is_own_instant(i.requested)
    }
    if unseen:
        for joined in log_compactions(store, properties):
            unseen.pop(joined, None)
    if not unseen:
        return
    first = min(unseen.values())
    for of_shard in files.values():
        for file in of_shard:
            base = parse_index_base_file_name(split_path(file.path)[1])
            if base is not None and base.instant > first:
                raise CommitConflictError(
                    f"others have committed to {store.uri}, and compacted its metadata table, since this call "
                    f"looked at it. Nothing was written. Run it again."
                )
