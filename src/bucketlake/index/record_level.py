"""The record-level index: a partition of Hudi's metadata table says in which file group every key lives.

It is of the whole table (`GLOBAL_RECORD_LEVEL_INDEX`): a key lives in one partition at a time, and moves; or there are
shards for each partition (`RECORD_LEVEL_INDEX`), and a key is one within its partition.

What a write learns of it is pinned to the table as it was when the write looked: `metadata/record_shards.py`. A write
puts one log file per shard whose keys came or went, before it commits, under a name that every attempt gives it. The
commit tells the metadata table of these files, so that they count when it does.
"""

from __future__ import annotations

import logging
import zlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from bucketlake.config import RECORD_LEVEL, IndexType, TableProperties
from bucketlake.errors import (
    CommitConflictError,
    ConfigError,
    CorruptTableError,
    IndexBeingBuiltError,
    KeyElsewhereError,
    UnsupportedError,
    shown,
)
from bucketlake.index.engines import NewTable
from bucketlake.index.hashing_arrow import shards_of
from bucketlake.index.index import Index, NoIndex, Pieces, Place
from bucketlake.index.index_logs import IndexLogsKeeper, in_unlike_orders, log_path, prove_log
from bucketlake.index.listed import ENTRIES, EntryFile, register_metadata_index
from bucketlake.index.recorded import NewKeys, Probed, RecordedIndex, Reread
from bucketlake.index.room import fill_groups
from bucketlake.index.shard_cache import probe_shard
from bucketlake.layout import FileGroupId, FileSlice
from bucketlake.layout.names import (
    parse_index_base_file_name,
    parse_log_file_name,
    path_in_partition,
    split_path,
)
from bucketlake.metadata.growth import growth_of, kept_partitions, untold
from bucketlake.metadata.index_definitions import is_record_index_partitioned
from bucketlake.metadata.places import INDEX_BUILT, RECORD_INDEX, WANTED, folder_of
from bucketlake.metadata.record_index import Location, Locations
from bucketlake.metadata.record_reads import fault_of
from bucketlake.metadata.record_shard import (
    ShardEntries,
    decode_log,
    encode_entry_log,
    last_said,
    logged_keys,
    look_up_shard,
    read_shard,
    shard_size,
)
from bucketlake.metadata.record_shards import (
    SHARDS_MAX,
    RecordShard,
    abandoned_files,
    parse_shard_file_id,
    pinned_shards,
    refuse_if_built_anew,
    shard_file_id,
)
from bucketlake.metadata.step import Step
from bucketlake.state import TableState
from bucketlake.storage import FileStat, Store, in_parallel, index_cache
from bucketlake.timeline import Timeline, instant_ms

SHARDS_KEY = "bucketlake.record.index.shards"
"""A table property: how many shards the record-level index of the table, or of each new partition, gets. Default: 4, or
1 for each partition."""
KEEPS_PARTITION = "bucketlake.record.index.keeps.partition"
"""A table property: a row whose partition changes stays in its old partition. Default: `false`, so it moves."""
VERIFY_HITS = "bucketlake.record.index.verify.hits"
"""A table property: ask the index itself about every key that is found in the cache. Default: `false`, because two keys
hardly ever share 64 bits of their hashes."""
SHARDS_DEFAULT = 4
KEY_BYTES_MAX = (1 << 15) - 1
"""Hudi keeps the length of a key in 16 bits."""

SHARDS_COUNTED_MAX = 64
"""Of an index with more shards nobody counts entries to describe it: each is a file to be opened."""

_log = logging.getLogger("bucketlake.index")
_VERSION_MIN = 8
"""The table version since which every log of the metadata table is of one commit, and named after it."""
_UNREADABLE = (CommitConflictError, CorruptTableError, UnsupportedError, FileNotFoundError)
"""What may become of an index that is damaged, or that others change while it is looked at."""
_ALL_HASHES = 1 << 40
_NEW = 1 << 31
_NO_SHARD_LIMIT = 1 << 12


@dataclass(frozen=True, slots=True)
class RecordIndex:
    """Hudi's record-level index says where every key lives: `create_table(..., index=RecordIndex())`.

    A key has one row in the whole table, whatever its partition.

    >>> print(RecordIndex())
    record-level index of the table: 4 shards
    """

    per_partition: bool = False
    """Whether a key may have a row in each partition."""
    shards: int | None = None
    """How many files the index has, or that of each partition. None: 4, or 1 for each partition."""
    update_partition: bool = True
    """Whether a row moves when its partition changes. With `False` it stays, as in Hudi by default."""
    verify_hits: bool = False
    """Whether to ask the index itself about every key that is found in the cache, where keys are kept as hashes."""

    @property
    def engine(self) -> str:
        return IndexType.RECORD_LEVEL_INDEX if self.per_partition else IndexType.GLOBAL_RECORD_LEVEL_INDEX

    @property
    def hash_fields(self) -> tuple[str, ...]:
        return ()

    @property
    def shard_count(self) -> int:
        return self.shards or (1 if self.per_partition else SHARDS_DEFAULT)

    def check(self, table: NewTable) -> None:
        check_record_index(self)
        if table.non_blocking:
            raise ConfigError(
                "a non-blocking table fixes the ids of its file groups by their buckets, and a record-level index has "
                "none. Drop non_blocking, or choose buckets."
            )

    def settings(self) -> Mapping[str, str]:
        stays = {} if self.update_partition else {KEEPS_PARTITION: "true"}
        verifies = {VERIFY_HITS: "true"} if self.verify_hits else {}
        return {SHARDS_KEY: str(self.shard_count), **stays, **verifies}

    def first_files(self) -> Mapping[str, bytes]:
        return {}

    def __str__(self) -> str:
        of = "of each partition" if self.per_partition else "of the table"
        shards = f"{self.shard_count} shard{'s' if self.shard_count > 1 else ''}"
        moves = "" if self.update_partition else "; a row stays in its partition"
        return f"record-level index {of}: {shards}{moves}"


def check_record_index(index: RecordIndex) -> None:
    """Raise `ConfigError` if a value says what no index can be."""
    for what in ("per_partition", "update_partition", "verify_hits"):
        flag = getattr(index, what)
        if not isinstance(flag, bool):
            raise ConfigError(f"{what} is {shown(flag)}; expected True or False.")
    count = index.shards
    if count is not None and (isinstance(count, bool) or not isinstance(count, int | np.integer)):
        raise ConfigError(f"shards is {shown(count)}; expected a whole number, such as {SHARDS_DEFAULT}.")
    if count is not None and not 1 <= count <= SHARDS_MAX:
        raise ConfigError(
            f"shards is {count}; expected 1 to {SHARDS_MAX:,}. A shard should hold some million keys."
        )
    if index.per_partition and not index.update_partition:
        raise ConfigError(
            "update_partition=False goes with an index of the whole table: with one for each partition, a key is "
            "another record there. Drop it."
        )


def stored_record_index(properties: TableProperties) -> RecordIndex:
    """Return what a table with a record-level index says of it."""
    shards = properties.raw.get(SHARDS_KEY, "").strip()
    return RecordIndex(
        per_partition=properties.engine == IndexType.RECORD_LEVEL_INDEX,
        shards=int(shards) if shards.isdigit() and int(shards) else None,
        update_partition=properties.raw.get(KEEPS_PARTITION, "").strip().lower() != "true",
        verify_hits=properties.raw.get(VERIFY_HITS, "").strip().lower() == "true",
    )


def check_keys(record_keys: Any) -> None:
    """Raise `ConfigError` for keys that no record-level index can have."""
    lengths = pc.binary_length(record_keys)
    longest = pc.max(lengths).as_py() or 0
    if longest > KEY_BYTES_MAX:
        key = record_keys[pc.index(lengths, longest).as_py()].as_py()
        raise ConfigError(
            f"the key {key[:40]!r}… has {longest:,} bytes, and a record-level index holds keys of at most "
            f"{KEY_BYTES_MAX:,}. Shorten it, or choose buckets."
        )
    mixed = in_unlike_orders(record_keys)
    if mixed is not None:
        one, other = mixed
        raise ConfigError(
            f"the keys {one[:40]!r} and {other[:40]!r} have characters from U+E000 to U+FFFF, and beyond. "
            f"Hudi sorts these in one order and searches in another, and would not find its own keys in an "
            f"index of both. Spell the keys without the one or the other, or choose buckets."
        )


@dataclass(frozen=True, slots=True)
class _Pinned:
    """What there was of an index."""

    step: Step
    shards: tuple[RecordShard, ...]
    by_partition: Mapping[str | None, tuple[int, int]]
    """Where the shards of a partition begin, and how many there are; None is all the table."""


@dataclass(frozen=True, slots=True)
class RecordLevelIndex(RecordedIndex):
    """Pinned to what the table was when it was resolved; what there is of the index is looked at when first asked."""

    store: Store
    properties: TableProperties
    timeline: Timeline
    seen: frozenset[str]
    """The requested times of the writes that its entries are of."""
    new_shards: int
    """How many shards a partition gets that has none."""
    is_global: bool = field()
    keeps_partition: bool = False
    hash_fields: tuple[str, ...] = ()
    _looked_at: list[_Pinned] = field(default_factory=list, compare=False, repr=False)
    """One, once somebody has asked."""

    def __str__(self) -> str:
        return f"record-level index of {'the table' if self.is_global else 'each partition'}"

    def __getstate__(self) -> list[Any]:
        assert self._pinned is not None  # looked at before it travels, so that all who get it see the same
        return [getattr(self, one.name) for one in fields(self)]

    @property
    def _pinned(self) -> _Pinned:
        if not self._looked_at:
            step, shards = pinned_shards(self.store, self.properties, self.timeline)
            shards = _without_leftovers(shards)
            try:
                by_partition = _by_partition(shards, is_global=self.is_global)
            except CorruptTableError:
                refuse_if_built_anew(self.store, self.properties)
                raise
            self._looked_at.append(_Pinned(step, shards, by_partition))
        return self._looked_at[0]

    @property
    def shards(self) -> int:
        # Partitions that are new bring shards of their own, and have room for tasks too.
        return len(self._pinned.shards) if self.is_global else max(len(self._pinned.shards), _NO_SHARD_LIMIT)

    def check_there(self, partitions: Collection[str]) -> None:
        names: Iterable[str | None] = [None] if self.is_global else sorted(partitions)
        lost = [name for name in names if name not in self._pinned.by_partition]
        if lost:
            refuse_if_built_anew(self.store, self.properties)
            raise CorruptTableError(
                path=folder_of(RECORD_INDEX),
                found=f"no shards of {'the table' if lost[0] is None else f'the partition {lost[0]!r}'}",
                expected=f"shards that say where keys live, because the table lists {RECORD_INDEX}",
                remedy=f"Files of the index are lost. Keys that are there would be taken for new ones. Build it anew: "
                f"`bucketlake metadata rebuild {self.store.uri}`, or table.metadata.rebuild().",
            )

    def shard_of(self, partitions: Any, record_keys: Any) -> npt.NDArray[np.int64]:
        return self._places(partitions, record_keys)[0]

    def _places(
        self, partitions: Any, record_keys: Any
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Return the shard of each key, and its number among those of its partition."""
        if self.is_global:
            self.check_there(())
            numbers = shards_of(record_keys, len(self._pinned.shards)).astype(np.int64)
            return numbers, numbers
        hashes = np.abs(shards_of(record_keys, _ALL_HASHES).astype(np.int64))
        if not len(hashes):
            return hashes, hashes
        encoded = _flat(partitions).dictionary_encode()
        codes = encoded.indices.to_numpy(zero_copy_only=False)
        spans = [self._span_of(name) for name in encoded.dictionary.to_pylist()]
        starts, counts = (np.array(column, np.int64)[codes] for column in zip(*spans, strict=True))
        numbers = hashes % counts
        shards: npt.NDArray[np.int64] = starts + numbers
        return shards, numbers

    def _span_of(self, partition: str) -> tuple[int, int]:
        """Return where the shards of a partition begin, and how many there are; of a new one, beyond all others."""
        known = self._pinned.by_partition.get(partition)
        return known or (_NEW + zlib.crc32(partition.encode()) % (_NEW - SHARDS_MAX), self.new_shards)

    def about_how_many(self) -> int | None:
        if not self.is_global:
            return None
        try:
            size = shard_size(self.store, self._pinned.shards[0].slice)
        except (*_UNREADABLE, IndexError):
            return None
        return (size.entries + size.logged) * len(self._pinned.shards)  # keys are spread evenly by a hash

    def shard_name(self, shard: int, partition: str) -> str:
        return str(shard if self.is_global else shard - self._span_of(partition)[0])

    def check_keys(self, record_keys: Any) -> None:
        check_keys(record_keys)

    def look_up(self, shard: int, partitions: Any, record_keys: Any) -> tuple[Any, Any]:  # noqa: ARG002 # the shard tells
        if shard >= len(self._pinned.shards):
            nothing = pa.nulls(len(record_keys), pa.string())
            return nothing, nothing
        found = look_up_shard(self.store, self._pinned.shards[shard].slice, _flat(record_keys))
        return _columns(found)

    def probe(self, shard: int, partitions: Any, record_keys: Any) -> Probed:
        kept = index_cache()
        if kept is None or shard >= len(self._pinned.shards):
            return Probed(*RecordLevelIndex.look_up(self, shard, partitions, record_keys))
        return probe_shard(
            kept,
            self.store,
            self._pinned.shards[shard],
            _flat(record_keys),
            incarnation=self.properties.raw.get(INDEX_BUILT, ""),
            verifies=self.verifies_hits,
        )

    @property
    def verifies_hits(self) -> bool:
        """Whether the index is asked about every key that is found in what a machine keeps of it."""
        return self.properties.raw.get(VERIFY_HITS, "").strip().lower() == "true"

    def where(
        self, record_keys: Any, partitions: Collection[str] | None = None
    ) -> frozenset[FileGroupId] | None:
        """Name the file groups in which the index has these keys; None if a reader cannot rely on it.

        It is never an error: whoever reads can do without.
        """
        try:
            return None if self.fault is not None else self._where(_flat(record_keys), partitions)
        except _UNREADABLE as error:
            _log.warning("read without the %s of %s: %s", self, self.store.uri, error)
            return None

    def _where(self, keys: Any, partitions: Collection[str] | None) -> frozenset[FileGroupId] | None:
        by_partition = self._pinned.by_partition
        names: Iterable[str | None] = [None] if self.is_global else by_partition
        if not self.is_global and partitions is not None:
            if not by_partition.keys() >= set(partitions):
                return None  # of what is there the index says nothing
            names = partitions
        asked: list[tuple[RecordShard, Any]] = []
        for name in names:
            start, count = by_partition[name]
            numbers = shards_of(keys, count)
            for number in np.unique(numbers).tolist():
                mine = keys if count == 1 else keys.filter(pa.array(numbers == number))
                asked.append((self._pinned.shards[start + number], mine))
        found = in_parallel(lambda one: look_up_shard(self.store, one[0].slice, one[1]), asked, self.store)
        return frozenset((place.partition, place.file_id) for part in found for place in part.distinct)

    @property
    def shard_counts(self) -> Mapping[str | None, int]:
        """How many shards each partition has; None is all the table."""
        return {partition: count for partition, (_, count) in self._pinned.by_partition.items()}

    @property
    def fault(self) -> str | None:
        """Say why a reader cannot rely on it, None if he can."""
        if self.properties.table_version < _VERSION_MIN:
            return f"table version {self.properties.table_version} keeps it in another way"
        if RECORD_INDEX not in kept_partitions(self.properties):
            return f"the metadata table does not list {RECORD_INDEX}"
        pinned = self._pinned
        if self.is_global and not pinned.shards:
            return "it has no shards"
        return fault_of(self.store, self.properties, self.timeline, pinned.step, pinned.shards)

    @property
    def shards_there(self) -> int:
        return len(self._pinned.shards)

    @property
    def is_kept(self) -> bool:
        if RECORD_INDEX not in kept_partitions(self.properties) or not self._pinned.step.is_kept:
            return False
        growth = growth_of(self.properties)
        return growth is None or untold(self.store, growth, self.timeline) is None

    @property
    def is_in_step(self) -> bool:
        """Whether it can be relied on by who reads."""
        return self.fault is None

    def entries(self, shard: int) -> pa.Table:
        if shard >= len(self._pinned.shards):
            return ENTRIES.empty_table()
        found = read_shard(self.store, self._pinned.shards[shard].slice)
        where, ids = _columns(found.locations)
        return pa.Table.from_arrays([pc.cast(found.keys, pa.string()), where, ids], schema=ENTRIES)

    def of_partition(self, partition: str) -> pa.Table:
        if self.is_global:
            return RecordedIndex.of_partition(self, partition)
        start, count = self._pinned.by_partition.get(partition, (0, 0))
        parts = in_parallel(
            lambda shard: RecordLevelIndex.entries(self, shard), range(start, start + count), self.store
        )
        return pa.concat_tables([ENTRIES.empty_table(), *parts])

    def assign(
        self,
        new: Sequence[NewKeys],
        groups: Mapping[str, Mapping[str, FileSlice]],
        *,
        instant: str,
        row_bytes: int,
    ) -> Sequence[str]:
        return fill_groups(new, groups, instant=instant, row_bytes=row_bytes)

    @property
    def _is_listed(self) -> bool:
        """Whether it stands beside another index, which says where rows go."""
        return self.properties.engine not in RECORD_LEVEL

    def check_entries(self, shard: int, entries: pa.Table) -> None:
        """Refuse a key that would be in two partitions, where something else places rows: it has one place for it."""
        if not (self._is_listed and self.is_global):
            return
        keys, paths = _flat(entries["key"]), _flat(entries["partition"])
        came = pc.is_valid(_flat(entries["file_id"]))
        where, _ = self.look_up(shard, paths, keys)
        gone = pc.binary_join_element_wise(paths, keys, "\0").filter(pc.invert(came))
        leaves = pc.is_in(pc.binary_join_element_wise(where, keys, "\0"), value_set=gone)
        stays = pc.and_(pc.fill_null(pc.not_equal(where, paths), False), pc.invert(leaves))
        at = pc.index(stays, True).as_py()
        if at >= 0:
            raise _elsewhere(keys[at].as_py(), paths[at].as_py(), where[at].as_py(), self.store.uri)
        arrived = pa.table({"key": keys, "partition": paths}).filter(came)
        counted = arrived.group_by("key").aggregate([("partition", "min"), ("partition", "max")])
        at = pc.index(pc.not_equal(counted["partition_min"], counted["partition_max"]), True).as_py()
        if at >= 0:
            here, there = (counted[f"partition_{end}"][at].as_py() for end in ("min", "max"))
            raise _elsewhere(counted["key"][at].as_py(), here, there, self.store.uri)

    def entry_files(self, shard: int, entries: pa.Table, *, instant: str) -> Mapping[str, EntryFile]:
        """Two partitions that are new may share the number of a shard, and no file."""
        if self.is_global:
            return {log_path(RECORD_INDEX, shard_file_id(shard), instant): self._encoded(entries, instant)}
        _, numbers = self._places(entries["partition"], entries["key"])
        found: dict[str, EntryFile] = {}
        partitions = _flat(entries["partition"]).dictionary_encode()
        codes = partitions.indices.to_numpy()
        for code, partition in enumerate(partitions.dictionary.to_pylist()):
            for number in np.unique(numbers[codes == code]).tolist():
                mine = entries.filter(pa.array((codes == code) & (numbers == number)))
                found[log_path(RECORD_INDEX, shard_file_id(number, partition), instant)] = self._encoded(
                    mine, instant
                )
        return found

    def files_of_new_shards(self, written: Collection[str], *, instant: str) -> Mapping[str, bytes]:
        """Return the files by which shards are there, of new partitions, in which no key came to be.

        Hudi counts shards by listing: those of a partition come at once.
        """
        if self.is_global or self.new_shards == 1:
            return {}
        found: dict[str, bytes] = {}
        empty = self.no_entries(instant=instant)
        for partition in {p for path in written if (p := _partition_of(path)) is not None}:
            if partition not in self._pinned.by_partition:
                for number in range(self.new_shards):
                    path = log_path(RECORD_INDEX, shard_file_id(number, partition), instant)
                    if path not in written:
                        found[path] = empty
        return found

    @property
    def reread(self) -> Reread | None:
        return self

    def no_entries(self, *, instant: str) -> bytes:
        return encode_entry_log(instant, None, None)

    def entries_in(self, path: str, groups: Collection[FileGroupId]) -> pa.Table:
        """A log says where a key has come to, and not what it left: that is looked up."""
        held = decode_log(self.store.read(path), path)
        keys, (where, ids) = pc.cast(held.keys, pa.string()), _columns(held.locations)
        came = pc.is_valid(ids)
        gone = keys.filter(pc.invert(came))
        left, left_ids = self._living(pa.repeat(pa.scalar(_partition_of(path), pa.string()), len(gone)), gone)
        keys = pa.concat_arrays([keys.filter(came), gone])
        where = pa.concat_arrays([where.filter(came), left])
        ids = ids.filter(came)
        about = pc.binary_join_element_wise(where, pa.concat_arrays([ids, left_ids]), "\0")
        wanted = pa.array(["\0".join(group) for group in groups], pa.string())
        said = [keys, where, pa.concat_arrays([ids, pa.nulls(len(gone), pa.string())])]
        chosen = pc.is_in(about, value_set=wanted)
        return pa.Table.from_arrays([column.filter(chosen) for column in said], schema=ENTRIES)

    def _living(self, partitions: pa.Array, keys: pa.Array) -> tuple[pa.Array, pa.Array]:
        """Look keys up, of whatever shards they are: return their partitions and file ids."""
        where, ids = (np.full(len(keys), None, object) for _ in range(2))
        shards = self.shard_of(partitions, keys)
        for shard in np.unique(shards).tolist():
            chosen = np.flatnonzero(shards == shard)
            found = self.look_up(shard, None, keys.take(pa.array(chosen)))
            where[chosen], ids[chosen] = (column.to_numpy(zero_copy_only=False) for column in found)
        return pa.array(where, pa.string()), pa.array(ids, pa.string())

    def _encoded(self, entries: pa.Table, instant: str) -> EntryFile:
        """Encode what became of keys: one that went and came is where it came to."""
        keys, ids = _flat(entries["key"]), _flat(entries["file_id"])
        came = pc.is_valid(ids)
        gone = keys.filter(pc.invert(came))
        arrived = entries.filter(came)
        arrived_keys = _flat(arrived["key"])
        gone = gone.filter(pc.invert(pc.is_in(gone, value_set=arrived_keys)))
        at = pc.binary_join_element_wise(_flat(arrived["partition"]), _flat(arrived["file_id"]), "\0")
        encoded = at.dictionary_encode()
        ms = instant_ms(instant, self.properties.timeline_timezone)
        groups = (text.split("\0") for text in encoded.dictionary.to_pylist())
        distinct = tuple(Location(partition, file_id, ms) for partition, file_id in groups)
        codes = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int32)
        gone = gone.unique()
        data = encode_entry_log(instant, ShardEntries(arrived_keys, Locations(codes, distinct)), gone)
        prove_log(decode_log(data, "a file of entries").keys, pa.concat_arrays([arrived_keys, gone]))
        return EntryFile(data, entries)

    def overtaken(self, timeline: Timeline, *, instant: str) -> str | None:
        """Two that record the same key would both be right, or both wrong: whoever is later looks it up again."""
        others = [
            i.requested for i in timeline.writes if i.requested not in self.seen and i.requested != instant
        ]
        growth = growth_of(self.properties)
        if growth is not None and untold(self.store, growth, timeline) is not None:
            return max(others, default=instant)
        if not others or (self._is_listed and not self.is_global):
            return None  # where something else places rows, one key of a partition has one place
        ours: dict[str, FileStat] = {}
        theirs: dict[str, list[tuple[str, FileStat]]] = {}
        bases = [""]
        for file in self.store.list(folder_of(RECORD_INDEX)).files:
            name = split_path(file.path)[1]
            log, base = parse_log_file_name(name), parse_index_base_file_name(name)
            if base is not None:
                bases.append(base.instant)
            elif log is not None and log.instant == instant:
                ours[log.file_id] = file
            elif log is not None and log.instant in others:
                theirs.setdefault(log.file_id, []).append((log.instant, file))
        if max(bases) > min(others):
            return min(others)  # compacted since, and its logs may be gone
        for file_id, file in ours.items():
            for other, file_of_other in theirs.get(file_id, ()):
                if self._share_a_key(file, file_of_other):
                    return other
        return None

    def left_behind(self) -> Mapping[str, tuple[str, ...]]:
        """Hudi makes shards of a new partition by logs that say nothing, and leaves those when it rolls back."""
        if self.is_global:
            return {}
        found = abandoned_files(self.store, self.properties)
        return {
            partition: tuple(file.path for file in files)
            for partition, files in found.items()
            if not any(len(logged_keys(self.store, file)) for file in files)
        }

    def _share_a_key(self, one: FileStat, other: FileStat) -> bool:
        try:
            mine, theirs = (logged_keys(self.store, file).cast(pa.large_string()) for file in (one, other))
        except FileNotFoundError:
            return True  # gone since it was listed: compacted and cleaned, or we were taken for dead
        return bool(pc.any(pc.is_in(mine, value_set=theirs), min_count=0).as_py())

    def stray(self, partition: str, file_id: str, record_keys: Any) -> str | None:
        keys = _flat(record_keys)
        where = pa.array([partition] * len(keys), pa.string())
        shards = self.shard_of(where, keys)
        for shard in np.unique(shards).tolist():
            mine = keys.filter(pa.array(shards == shard))
            found, ids = self.look_up(shard, None, mine)
            fits = pc.fill_null(pc.and_(pc.equal(found, partition), pc.equal(ids, file_id)), False)
            offender = pc.index(fits, False).as_py()
            if offender >= 0:
                return str(mine[offender].as_py())
        return None

    def explain(self, partition: str, record_key: str, pieces: Pieces) -> Place:  # noqa: ARG002 # the protocol's
        try:
            return self._explained(partition, record_key)
        except _UNREADABLE as error:
            return Place(more={"not relied on": str(error)})

    def _explained(self, partition: str, record_key: str) -> Place:
        fault = self.fault
        doubt = {} if fault is None else {"not relied on": fault}
        if not self._pinned.shards:
            return Place(more=doubt)
        keys, where = pa.array([record_key], pa.string()), pa.array([partition], pa.string())
        shards, numbers = self._places(where, keys)
        if int(shards[0]) >= len(self._pinned.shards):
            nothing = f"none: no key of the partition {partition!r} is recorded"
            return Place(more={"shard": nothing, **doubt}, groups=None if doubt else frozenset())
        shard = self._pinned.shards[int(shards[0])]
        file, found = last_said(self.store, shard.slice, record_key)
        group = None if found is None else (found.partition, found.file_id)
        count = self._pinned.by_partition[shard.partition][1]
        said = "none, it is gone" if found is None and file is not None else "none"
        return Place(
            more={
                "shard": f"{int(numbers[0])} of {count} ({shard.file_id})",
                "entry": said if found is None else path_in_partition(found.partition, found.file_id),
                "index file": "none" if file is None else split_path(file.path)[1],
                **doubt,
            },
            groups=None if doubt else frozenset(() if group is None else [group]),
        )

    def described(self) -> str:
        """Say how many shards and entries there are, and whether they can be relied on."""
        try:
            fault = self.fault
            shards = self._pinned.shards if RECORD_INDEX in kept_partitions(self.properties) else ()
            sizes = [shard_size(self.store, one.slice) for one in shards[:SHARDS_COUNTED_MAX]]
        except _UNREADABLE as error:
            return f"{self}; not relied on: {error}"
        words = [f"{len(shards):,} shard{'' if len(shards) == 1 else 's'}"]
        if sizes and len(sizes) == len(shards):
            bases, logged = [size.entries for size in sizes], sum(size.logged for size in sizes)
            spread = "" if min(bases) == max(bases) else f" ({min(bases):,} to {max(bases):,} in a shard)"
            words.append(f"{sum(bases):,} entries in base files{spread}")
            words.append(f"{logged:,} in logs over them")
        if growth_of(self.properties) is not None:
            words.append("delisted for Hudi while it grows")
        return f"{self}: {', '.join(words)}; {'in step' if fault is None else f'not relied on: {fault}'}"


def resolve_record_index(state: TableState, as_of: str | None = None) -> Index:
    """Return the record-level index of a table; how it was at an earlier time nobody knows."""
    if as_of is not None:
        return NoIndex(reason="its record-level index tells where keys live now, not where they lived")
    raw, word = state.properties.raw, state.properties.engine
    shards = raw.get(SHARDS_KEY, "").strip()
    is_global = word == IndexType.GLOBAL_RECORD_LEVEL_INDEX
    if word not in RECORD_LEVEL:
        is_global = not is_record_index_partitioned(state.store)
    return RecordLevelIndex(
        store=state.store,
        properties=state.properties,
        timeline=state.timeline,
        seen=frozenset(i.requested for i in state.timeline.writes),
        new_shards=int(shards) if shards.isdigit() and int(shards) else 1,
        is_global=is_global,
        keeps_partition=raw.get(KEEPS_PARTITION, "").strip().lower() == "true",
    )


def check_listed(state: TableState) -> None:
    """Refuse to write to a table by an index that is not there: who wrote last may have dropped it."""
    properties, uri = state.properties, state.store.uri
    growth = growth_of(properties)
    who = None if growth is None else untold(state.store, growth, state.timeline)
    if who is not None:
        raise IndexBeingBuiltError(
            f"the record-level index of {uri}, by which the table finds its keys, is delisted while it grows, and "
            f"{who}. Nothing is written until it is listed again. If whoever grows it has died, go on with it: "
            f"`bucketlake metadata build {uri}`."
        )
    if RECORD_INDEX not in kept_partitions(properties):
        if RECORD_INDEX in properties.raw.get(WANTED, "").split(","):
            raise IndexBeingBuiltError(
                f"the record-level index of {uri}, by which the table finds its keys, was delisted to be built anew. "
                f"Nothing is written until it is listed again. If whoever built it has died, go on with it: "
                f"`bucketlake metadata build {uri}`."
            )
        raise UnsupportedError(
            subject=f"the metadata table of {uri}",
            found=f"without {RECORD_INDEX}, by which the table finds its keys: it lists "
            f"{', '.join(properties.metadata_partitions) or 'nothing'}. A Hudi writer that is not told of the index "
            f"drops it",
            supported="writing by an index that is there",
            remedy=f"Build it: `bucketlake metadata rebuild {uri}`, or table.metadata.rebuild(). Give Hudi's writers "
            f"hoodie.metadata.auto.delete.partitions=false.",
        )
    is_partitioned = is_record_index_partitioned(state.store) or False
    is_said = properties.engine == IndexType.RECORD_LEVEL_INDEX
    if is_partitioned != is_said:
        kinds = {True: "one for each partition", False: "one of the whole table"}
        raise CorruptTableError(
            path=folder_of(RECORD_INDEX),
            found=f"a record-level index that is {kinds[is_partitioned]}",
            expected=f"{kinds[is_said]}, as the table says",
            remedy=f"Somebody has made another. Build it anew: `bucketlake metadata rebuild {uri}`.",
        )


def _resolve_listed(state: TableState) -> RecordLevelIndex:
    found = resolve_record_index(state)
    assert isinstance(found, RecordLevelIndex)
    return found


def _elsewhere(key: str, partition: str, other: str, uri: str) -> KeyElsewhereError:
    return KeyElsewhereError(
        f"the key {key!r} is in the partition {other!r} and in {partition!r}, and {uri} lists {RECORD_INDEX} of the "
        f"whole table, which has one place for every key: Hudi would miss the other. Nothing was written. Delete the "
        f"key from one of them first, or in the same write; or let writes delist an index that they cannot keep: "
        f"`bucketlake alter {uri} --on-unmaintained delist`; or make the index anew, as one for each partition, which "
        f"has a key once in each."
    )


register_metadata_index(RECORD_INDEX, _resolve_listed, keeper=IndexLogsKeeper(RECORD_INDEX))


def _without_leftovers(shards: Sequence[RecordShard]) -> tuple[RecordShard, ...]:
    """Leave out partitions that have not all of their shards, and nothing in those.

    A write that was taken back may have left a file there, Hudi's above all. It says nothing, but once the timeline
    begins after its instant, it seems to be of one that was committed.
    """
    by_partition: dict[str | None, list[RecordShard]] = {}
    for shard in shards:
        by_partition.setdefault(shard.partition, []).append(shard)
    left = {
        partition
        for partition, found in by_partition.items()
        if partition is not None
        and [shard.number for shard in found] != list(range(len(found)))
        and not any(shard.slice.base or shard.slice.logs for shard in found)
    }
    return tuple(shard for shard in shards if shard.partition not in left)


def _by_partition(shards: Sequence[RecordShard], *, is_global: bool) -> dict[str | None, tuple[int, int]]:
    """Count shards; refuse an index with a hole, because keys are spread by how many there are."""
    numbers: dict[str | None, list[int]] = {}
    for shard in shards:
        numbers.setdefault(shard.partition, []).append(shard.number)
    found: dict[str | None, tuple[int, int]] = {}
    start = 0
    for partition, of_partition in numbers.items():
        if of_partition != list(range(len(of_partition))) or (partition is None) is not is_global:
            raise CorruptTableError(
                path=folder_of(RECORD_INDEX),
                found=f"the shards {', '.join(map(str, of_partition[:5]))}… of {partition or 'the table'}",
                expected="shards from 0 on, none left out",
                remedy="Files of the index are lost. Build it anew: `bucketlake metadata rebuild`.",
            )
        found[partition] = start, len(of_partition)
        start += len(of_partition)
    return found


def _partition_of(path: str) -> str | None:
    from_name = parse_log_file_name(split_path(path)[1])
    found = None if from_name is None else parse_shard_file_id(from_name.file_id)
    return None if found is None else found[0]


def _columns(found: Locations) -> tuple[pa.Array, pa.Array]:
    codes = pa.array(found.codes, mask=found.codes < 0)
    partitions = pa.array([place.partition for place in found.distinct], pa.string())
    ids = pa.array([place.file_id for place in found.distinct], pa.string())
    return partitions.take(codes), ids.take(codes)


def _flat(column: Any) -> Any:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
