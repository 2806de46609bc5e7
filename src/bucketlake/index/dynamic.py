"""Dynamic buckets: they open as others fill, and a key that has one never moves to another.

A record-level index of each partition says in which bucket a key lives. What is special is where new keys go: to the
buckets of the key's *assigner*, which follows from the shard of the index that has it. So one task alone decides about
the buckets of an assigner, whatever the parallelism of a run, and nobody has to be asked (`index/bucket_room.py`).

A bucket is full by its keys, or by the size of its base file. How many keys it has is told by the footer of the base
file, and by the commits of the logs over it: each says by how many keys its log makes a bucket grow.

File groups whose ids have no number are those of other writers. They are read and updated, and get no new keys.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bucketlake.basefile import read_footer
from bucketlake.config import BucketEngine, IndexType, TableProperties, TableType
from bucketlake.errors import ConfigError, CorruptTableError, shown
from bucketlake.index.bucket_numbers import BUCKET_ENGINE, bucket_of_file, bucket_prefix
from bucketlake.index.bucket_room import BUCKETS_LIMIT, Assigner, Room
from bucketlake.index.engines import NewTable
from bucketlake.index.index import Index, Pieces, Place
from bucketlake.index.listed import ENTRIES
from bucketlake.index.record_level import SHARDS_KEY, RecordLevelIndex, resolve_record_index
from bucketlake.index.recorded import LOGS_NEW_KEYS, Fill, Probed
from bucketlake.layout import FileGroupId, FileSlice
from bucketlake.layout.names import new_file_id
from bucketlake.metadata.record_shards import SHARDS_MAX
from bucketlake.schema import key_hashes
from bucketlake.state import TableState, logged_keys
from bucketlake.storage import in_parallel, render_bytes

ASSIGNERS_KEY = "bucketlake.dynamic.assigners"
"""A table property: how many buckets of a partition take new keys at the same time. Default: 8, so that a few cores can
write one partition."""
KEYS_KEY = "bucketlake.dynamic.keys.per.bucket"
"""A table property: a bucket with so many keys is full. Default: 2,000,000."""
BYTES_KEY = "bucketlake.dynamic.bytes.per.bucket"
"""A table property: a bucket with a base file of so many bytes is full. Default: 134,217,728, which is 128 MiB."""
VERIFY_KEY = "bucketlake.dynamic.verify.hits"
"""A table property: as `bucketlake.record.index.verify.hits`, for dynamic buckets. Default: `false`."""

ASSIGNERS_DEFAULT = 8
KEYS_DEFAULT = 2_000_000
BYTES_DEFAULT = 128 << 20
_KEYS_MAX = 1_000_000_000
_BYTES_MAX = 1 << 40


@dataclass(frozen=True, slots=True)
class DynamicBuckets:
    """New buckets open as others fill: `create_table(..., index=DynamicBuckets())`. No key ever moves.

    A partition fills as many buckets at the same time as it has `assigners`. A record-level index of each partition
    says where keys live.

    >>> print(DynamicBuckets(assigners=4))
    dynamic buckets: 4 assigners, 2,000,000 keys or 128.0 MiB in a bucket
    """

    assigners: int = ASSIGNERS_DEFAULT
    """How many buckets of a partition take new keys at the same time."""
    keys_per_bucket: int = KEYS_DEFAULT
    """A bucket with so many keys is full."""
    bytes_per_bucket: int = BYTES_DEFAULT
    """A bucket with a base file of so many bytes is full."""
    verify_hits: bool = False
    """Whether to ask the index itself about every key that is found in the cache, where keys are kept as hashes."""

    @property
    def engine(self) -> str:
        """Its keys are found by this engine; that new ones go to such buckets is said beside it."""
        return IndexType.RECORD_LEVEL_INDEX

    @property
    def hash_fields(self) -> tuple[str, ...]:
        return ()

    def check(self, table: NewTable) -> None:
        check_dynamic(self)
        if table.non_blocking:
            raise ConfigError(
                "a non-blocking table fixes the ids of its file groups by their buckets, and of dynamic ones two "
                "writers may give a key different ones. Drop non_blocking, or choose SimpleBuckets."
            )

    def settings(self) -> Mapping[str, str]:
        return {
            BUCKET_ENGINE: BucketEngine.DYNAMIC,
            ASSIGNERS_KEY: str(self.assigners),
            KEYS_KEY: str(self.keys_per_bucket),
            BYTES_KEY: str(self.bytes_per_bucket),
            SHARDS_KEY: str(self.assigners),
            LOGS_NEW_KEYS: "true",
            **({VERIFY_KEY: "true"} if self.verify_hits else {}),
        }

    def first_files(self) -> Mapping[str, bytes]:
        return {}

    def __str__(self) -> str:
        return (
            f"dynamic buckets: {self.assigners} assigner{'' if self.assigners == 1 else 's'}, "
            f"{self.keys_per_bucket:,} keys or {render_bytes(self.bytes_per_bucket)} in a bucket"
        )


def check_dynamic(value: DynamicBuckets) -> DynamicBuckets:
    """Return a value in plain numbers; `ConfigError` if it says what no table can have."""
    limits = {
        "assigners": (SHARDS_MAX, "As many tasks can take new keys of a partition at once"),
        "keys_per_bucket": (_KEYS_MAX, "Some million are usual"),
        "bytes_per_bucket": (_BYTES_MAX, "A base file should have some hundred MB"),
    }
    found: dict[str, int] = {}
    for name, (most, advice) in limits.items():
        number = getattr(value, name)
        if isinstance(number, bool) or not isinstance(number, int | np.integer):
            raise ConfigError(f"{name} is {shown(number)}; expected a whole number. {advice}.")
        if not 1 <= number <= most:
            raise ConfigError(f"{name} is {number}; expected 1 to {most:,}. {advice}.")
        found[name] = int(number)
    if not isinstance(value.verify_hits, bool):
        raise ConfigError(f"verify_hits is {shown(value.verify_hits)}; expected True or False.")
    return DynamicBuckets(**found, verify_hits=value.verify_hits)


def has_dynamic_buckets(properties: TableProperties) -> bool:
    """Tell whether a table's new keys go to buckets that open as others fill."""
    return (
        properties.index_type == IndexType.RECORD_LEVEL_INDEX
        and properties.bucket_engine == BucketEngine.DYNAMIC
    )


def stored_dynamic(properties: TableProperties) -> DynamicBuckets:
    """Return what a table says of its dynamic buckets."""
    values = []
    for key in (ASSIGNERS_KEY, KEYS_KEY, BYTES_KEY):
        text = properties.raw.get(key, "").strip()
        if not (text.isascii() and text.isdigit() and int(text)):
            raise CorruptTableError(
                path="hoodie.properties",
                found=f"{key}={text!r}",
                expected="a number from 1 on, as a table with dynamic buckets has it",
                remedy="By another number keys would go to buckets of others. Put back what there was: `bucketlake "
                "fsck --repair` has a copy.",
            )
        values.append(int(text))
    assigners, keys, size = values
    verifies = properties.raw.get(VERIFY_KEY, "").strip().lower() == "true"
    return DynamicBuckets(assigners, keys, size, verifies)


@dataclass(frozen=True, slots=True)
class DynamicIndex(RecordLevelIndex):
    """A record-level index of each partition whose new keys go to numbered buckets."""

    dynamic: DynamicBuckets = field(default_factory=DynamicBuckets)
    grown: Mapping[FileGroupId, int] = field(default_factory=dict)
    """By how many keys the logs of a file group make it grow; of a write that has begun."""

    def __str__(self) -> str:
        return str(self.dynamic)

    def __getstate__(self) -> list[Any]:
        return RecordLevelIndex.__getstate__(self)

    # ------------------------------------------------------------------------------------------------ shards of owners
    #
    # Where a partition's index has more shards than assigners, those of one assigner are taken for one: it must see
    # all its new keys at once.

    def shard_of(self, partitions: Any, record_keys: Any) -> npt.NDArray[np.int64]:
        shards, numbers = self._places(partitions, record_keys)
        first: npt.NDArray[np.int64] = shards - numbers + numbers % self.dynamic.assigners
        return first

    def look_up(self, shard: int, partitions: Any, record_keys: Any) -> tuple[Any, Any]:
        def look_up(member: int, keys: Any) -> Probed:
            return Probed(*RecordLevelIndex.look_up(self, member, partitions, keys))

        return self._of_members(shard, record_keys, look_up)[:2]

    def probe(self, shard: int, partitions: Any, record_keys: Any) -> Probed:
        def probe(member: int, keys: Any) -> Probed:
            return RecordLevelIndex.probe(self, member, partitions, keys)

        return self._of_members(shard, record_keys, probe)

    @property
    def verifies_hits(self) -> bool:
        return self.dynamic.verify_hits

    def _of_members(self, shard: int, record_keys: Any, probe: Callable[[int, Any], Probed]) -> Probed:
        """Ask every shard that is taken for this one about its own keys."""
        members = list(self._members(shard))
        if len(members) <= 1:
            return probe(shard, record_keys)
        name = self._pinned.shards[shard].partition
        own, _ = self._places(pa.array([name] * len(record_keys), pa.string()), record_keys)
        order = np.argsort(own, kind="stable")
        runs = [(member, order[own[order] == member]) for member in members]
        parts = [probe(member, record_keys.take(pa.array(run))) for member, run in runs if len(run)]
        back = pa.array(np.argsort(order, kind="stable"))
        where, ids = (
            pa.chunked_array([part[half] for part in parts]).combine_chunks().take(back) for half in (0, 1)
        )
        return Probed(where, ids, sum(part.cache_hits for part in parts))

    def entries(self, shard: int) -> pa.Table:
        parts = [RecordLevelIndex.entries(self, member) for member in self._members(shard)]
        return pa.concat_tables(parts) if parts else ENTRIES.empty_table()

    def _members(self, shard: int) -> Iterator[int]:
        """Name the shards that are taken for this one; none if it is one of another's."""
        if shard >= len(self._pinned.shards):
            yield shard
            return
        start, count = self._pinned.by_partition[self._pinned.shards[shard].partition]
        if shard - start < self.dynamic.assigners:
            yield from range(shard, start + count, self.dynamic.assigners)

    @property
    def reread(self) -> None:
        """A second round would open buckets of its own beside those that others have opened: it is run again whole."""
        return

    # ------------------------------------------------------------------------------------------------------- new keys

    def knowing(self, state: TableState, groups: Mapping[str, Mapping[str, FileSlice]]) -> DynamicIndex:
        with_logs = [
            (partition, part)
            for partition, of_partition in groups.items()
            for part in of_partition.values()
            if part.log_files
        ]
        told = logged_keys(state, {log.instant for _, part in with_logs for log in part.log_files})
        grown = {
            (partition, part.file_id): sum(
                told.get(log.instant, {}).get(partition, {}).get(part.file_id, 0) for log in part.log_files
            )
            for partition, part in with_logs
        }
        return replace(self, grown=grown)

    def place_new(
        self,
        partitions: Any,
        record_keys: Any,
        groups: Mapping[str, Mapping[str, FileSlice]],
        *,
        instant: str,
        row_bytes: int,
    ) -> pa.Array:
        """Keys that go to several buckets are cut by their hashes."""
        encoded = partitions.dictionary_encode()
        codes = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
        _, numbers = self._places(partitions, record_keys)
        count = self.dynamic.assigners
        lots = codes * count + numbers % count
        names: list[str] = []
        chosen = np.zeros(len(lots), np.int32)
        for lot in np.unique(lots).tolist():
            mine = np.flatnonzero(lots == lot)
            partition = encoded.dictionary[lot // count].as_py()
            there = self._numbered(partition, groups.get(partition, {}))
            shares = self._share_out(partition, len(mine), lot % count, there, row_bytes=row_bytes)
            if len(shares) > 1:
                mine = mine[np.argsort(key_hashes(record_keys.take(pa.array(mine))), kind="stable")]
            sizes = [keys for _, keys in shares]
            chosen[mine] = np.repeat(np.arange(len(names), len(names) + len(shares), dtype=np.int32), sizes)
            names += [self._file_id(partition, bucket, there, instant) for bucket, _ in shares]
        return pa.array(names, pa.string()).take(pa.array(chosen))

    def _share_out(
        self, partition: str, keys: int, assigner: int, there: Mapping[int, FileSlice], *, row_bytes: int
    ) -> list[tuple[int, int]]:
        owner = Assigner(assigner, self.dynamic.assigners)
        rooms = [
            Room(bucket, self.room_in(partition, part, row_bytes=row_bytes))
            for bucket, part in there.items()
            if owner.owns(bucket)
        ]
        capacity = max(1, min(self.dynamic.keys_per_bucket, self.dynamic.bytes_per_bucket // row_bytes))
        return owner.share_out(keys, rooms, capacity=capacity, taken=there.keys(), partition=partition)

    def _numbered(self, partition: str, groups: Mapping[str, FileSlice]) -> dict[int, FileSlice]:
        numbers = ((self.heir_slot(partition, file_id), part) for file_id, part in groups.items())
        return {int(slot): part for slot, part in numbers if slot is not None}

    def room_in(self, partition: str, part: FileSlice, *, row_bytes: int) -> int:
        """Say how many more keys a bucket takes: by what it may have, and by what its base file may become.

        What its logs have brought will be in the base file too, once they are compacted.
        """
        is_logged = self.properties.table_type is TableType.MERGE_ON_READ
        if (
            is_logged
            and part.log_files
            and self.properties.raw.get(LOGS_NEW_KEYS, "").strip().lower() != "true"
        ):
            return 0  # it would have to be rewritten, with what is in its logs
        size = 0 if part.base_file is None else part.base_file.size_bytes
        logged = max(0, self.grown.get((partition, part.file_id), 0))
        by_bytes = (self.dynamic.bytes_per_bucket - size) // row_bytes - logged
        if by_bytes <= 0:
            return 0
        return max(0, min(by_bytes, self.dynamic.keys_per_bucket - self.keys_in(partition, part)))

    def keys_in(self, partition: str, part: FileSlice) -> int:
        """Say how many keys a file group has, by its base file and the commits of its logs."""
        stored = 0 if part.base_file is None else read_footer(self.store, part.base_file.path).row_count
        return stored + self.grown.get((partition, part.file_id), 0)

    def _file_id(self, partition: str, bucket: int, there: Mapping[int, FileSlice], instant: str) -> str:
        if bucket in there:
            return there[bucket].file_id
        return new_file_id(bucket_prefix(bucket), partition=partition, instant=instant)

    # ----------------------------------------------------------------------------------------------------- file groups

    def fills(
        self, state: TableState, groups: Mapping[str, Mapping[str, FileSlice]]
    ) -> Mapping[FileGroupId, Fill]:
        knowing = self.knowing(state, groups)
        numbered = [
            (partition, bucket, part)
            for partition, of_partition in groups.items()
            for bucket, part in self._numbered(partition, of_partition).items()
        ]

        def fill_of(one: tuple[str, int, FileSlice]) -> Fill:
            partition, bucket, part = one
            keys = knowing.keys_in(partition, part)
            size = 0 if part.base_file is None else part.base_file.size_bytes
            is_full = keys >= self.dynamic.keys_per_bucket or size >= self.dynamic.bytes_per_bucket
            return Fill(bucket, bucket % self.dynamic.assigners, keys, is_full)

        found = in_parallel(fill_of, numbered, self.store)
        return {(p, part.file_id): fill for (p, _, part), fill in zip(numbered, found, strict=True)}

    def explain(self, partition: str, record_key: str, pieces: Pieces) -> Place:
        """Say who owns the key too, and in which bucket it is."""
        found = RecordLevelIndex.explain(self, partition, record_key, pieces)
        if "not relied on" in found.more:
            return found
        _, numbers = self._places(pa.array([partition], pa.string()), pa.array([record_key], pa.string()))
        more = {"assigner": f"{int(numbers[0]) % self.dynamic.assigners} of {self.dynamic.assigners}"}
        for where, file_id in found.groups or ():
            slot = self.heir_slot(where, file_id)
            more["bucket"] = "none: a file group of another writer" if slot is None else str(int(slot))
        return replace(found, more={**more, **found.more})

    def slot_of_file(self, partition: str, file_id: str) -> str | None:
        return self.heir_slot(partition, file_id) or file_id

    def heir_slot(self, partition: str, file_id: str) -> str | None:  # noqa: ARG002 # the protocol's
        return bucket_of_file(file_id, BUCKETS_LIMIT)


def resolve_dynamic_index(state: TableState, as_of: str | None = None) -> Index:
    """Return the index of a table with dynamic buckets; how it was at an earlier time nobody knows."""
    found = resolve_record_index(state, as_of)
    if not isinstance(found, RecordLevelIndex):
        return found
    value = stored_dynamic(state.properties)
    return DynamicIndex(
        store=found.store,
        properties=found.properties,
        timeline=found.timeline,
        seen=found.seen,
        new_shards=value.assigners,
        is_global=found.is_global,
        dynamic=value,
    )
