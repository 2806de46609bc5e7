"""What a build has to know of the index that it builds: its entries, its shards, its files.

    RecordKind       an entry is a record key, and says in which file group it lives
    SecondaryKind    an entry is a value and a record key in one text, and says nothing more

All else is the same for both: runs, rounds, proof, listing. While one is built, each entry has the file group that it
was read from, so whoever finds one twice can say where.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from bucketlake.errors import CorruptTableError, UnsupportedError
from bucketlake.index.hashing_arrow import shards_of
from bucketlake.index.record_level import check_keys
from bucketlake.index.secondary import check_entry_keys, entry_keys_of
from bucketlake.layout.names import INDEX_BUILDS_FOLDER, path_in_partition
from bucketlake.metadata.listing import ShardSlice
from bucketlake.metadata.places import RECORD_INDEX
from bucketlake.metadata.record_index import Location, Locations
from bucketlake.metadata.record_shard import (
    ShardEntries,
    encode_base,
    encode_entry_log,
    logged_keys,
    look_up_shard,
    read_shard,
)
from bucketlake.metadata.record_shards import shard_file_id
from bucketlake.metadata.secondary_index import SecondaryIndexDefinition
from bucketlake.metadata.secondary_keys import prefixes_of_entries
from bucketlake.metadata.secondary_shard import (
    decode_secondary_log,
    encode_secondary_base,
    encode_secondary_log,
    entries_of_values,
    read_entries,
)
from bucketlake.schema import RECORD_KEY_COLUMN
from bucketlake.storage import FileStat, Store

_SOMEWHERE = Location("", "", 0)


class IndexKind(ABC):
    """Which index is built, as tasks need to know it. Frozen and picklable."""

    __slots__ = ()

    @property
    @abstractmethod
    def per_partition(self) -> bool:
        """Whether it has shards for each data partition."""

    @property
    @abstractmethod
    def partition(self) -> str:
        """Its partition of the metadata table."""

    @property
    def folder(self) -> str:
        """Where what there is of a build lies."""
        return f"{INDEX_BUILDS_FOLDER}/{self.partition}"

    @property
    @abstractmethod
    def columns(self) -> tuple[str, ...]:
        """What is read of rows: the record key, then what else an entry is made of."""

    @property
    @abstractmethod
    def bytes_per_entry(self) -> int:
        """What an entry takes in a base file, about."""

    @property
    def knows_places(self) -> bool:
        """Whether its entries say where a key lives."""
        return False

    @abstractmethod
    def keys_of(self, rows: pa.Table) -> Any:
        """Return the keys of the entries that rows have, one for each."""

    @abstractmethod
    def check(self, keys: Any, *, is_needed: bool) -> None:
        """Refuse keys that it cannot have; `is_needed` says that the table is written by it already."""

    @abstractmethod
    def shards_of(self, keys: Any, count: int) -> npt.NDArray[np.int32]:
        """Return the number of the shard that has each entry."""

    @abstractmethod
    def file_id(self, number: int, data_partition: str | None) -> str: ...

    @abstractmethod
    def encode_base(self, entries: ShardEntries) -> bytes:
        """Return the base file of entries that ascend, each once."""

    @abstractmethod
    def encode_log(self, instant: str, came: ShardEntries | None, gone: Any | None) -> bytes:
        """Return the log that tells of these; one that says nothing, if there are none."""

    @abstractmethod
    def read(self, store: Store, shard: ShardSlice) -> ShardEntries:
        """Read all entries of a shard."""

    @abstractmethod
    def logged(self, store: Store, log: FileStat) -> Any:
        """Return the keys of which a log says anything."""

    @abstractmethod
    def look_up(self, store: Store, shard: ShardSlice, keys: Any) -> Locations:
        """Return where a shard has keys; code -1 for those that it does not have."""

    @abstractmethod
    def found_twice(self, store: Store, key: str, one: Location, other: Location) -> Exception:
        """Return the error for an entry that two file groups have."""


@dataclass(frozen=True, slots=True)
class RecordKind(IndexKind):
    """The record-level index."""

    per_partition: bool

    def __str__(self) -> str:
        return "record-level index"

    @property
    def partition(self) -> str:
        return RECORD_INDEX

    @property
    def columns(self) -> tuple[str, ...]:
        return (RECORD_KEY_COLUMN,)

    @property
    def bytes_per_entry(self) -> int:
        return 27

    @property
    def knows_places(self) -> bool:
        return True

    def keys_of(self, rows: pa.Table) -> Any:
        return rows.column(0).combine_chunks()

    def check(self, keys: Any, *, is_needed: bool) -> None:
        # What the table finds its keys by has them, whether or not Hudi would miss some.
        if not is_needed:
            check_keys(keys)

    def shards_of(self, keys: Any, count: int) -> npt.NDArray[np.int32]:
        return shards_of(keys, count)

    def file_id(self, number: int, data_partition: str | None) -> str:
        return shard_file_id(number, data_partition)

    def encode_base(self, entries: ShardEntries) -> bytes:
        return encode_base(entries)

    def encode_log(self, instant: str, came: ShardEntries | None, gone: Any | None) -> bytes:
        return encode_entry_log(instant, came, gone)

    def read(self, store: Store, shard: ShardSlice) -> ShardEntries:
        return read_shard(store, shard)

    def logged(self, store: Store, log: FileStat) -> Any:
        return logged_keys(store, log)

    def look_up(self, store: Store, shard: ShardSlice, keys: Any) -> Locations:
        return look_up_shard(store, shard, keys)

    def found_twice(self, store: Store, key: str, one: Location, other: Location) -> Exception:
        places = [path_in_partition(place.partition, place.file_id) for place in (one, other)]
        if not self.per_partition and one.partition != other.partition:
            return UnsupportedError(
                subject=f"the key {key!r} of {store.uri}",
                found=f"in two partitions: {places[0]} and {places[1]}",
                supported="an index of the whole table where a key lives in one",
                remedy="Nothing was listed. Build one for each partition (per_partition=True), or delete the key from "
                "one of them.",
            )
        return CorruptTableError(
            path=places[0],
            found=f"the key {key!r}, which is in {places[1]} too",
            expected="a key in one file group of its partition",
            remedy="Nothing was listed. Read the partition, and write it anew with overwrite.",
        )


@dataclass(frozen=True, slots=True)
class SecondaryKind(IndexKind):
    """A secondary index."""

    definition: SecondaryIndexDefinition

    def __str__(self) -> str:
        return f"secondary index {self.definition.name} of {self.definition.column}"

    @property
    def per_partition(self) -> bool:
        return False

    @property
    def partition(self) -> str:
        return self.definition.partition

    @property
    def columns(self) -> tuple[str, ...]:
        return (RECORD_KEY_COLUMN, self.definition.column)

    @property
    def bytes_per_entry(self) -> int:
        return 16

    def keys_of(self, rows: pa.Table) -> Any:
        return entry_keys_of(rows, self.definition.column)

    def check(self, keys: Any, *, is_needed: bool) -> None:  # noqa: ARG002 # nobody needs one to write
        check_entry_keys(keys, self.definition)

    def shards_of(self, keys: Any, count: int) -> npt.NDArray[np.int32]:
        return shards_of(prefixes_of_entries(keys), count)

    def file_id(self, number: int, data_partition: str | None) -> str:
        assert data_partition is None, "a secondary index is of the whole table"
        return self.definition.shard_file_id(number)

    def encode_base(self, entries: ShardEntries) -> bytes:
        return encode_secondary_base(entries.keys)

    def encode_log(self, instant: str, came: ShardEntries | None, gone: Any | None) -> bytes:
        nothing = pa.array([], pa.string())
        came_keys = nothing if came is None else came.keys
        return encode_secondary_log(
            instant, self.definition.partition, came_keys, nothing if gone is None else gone
        )

    def read(self, store: Store, shard: ShardSlice) -> ShardEntries:
        keys = read_entries(store, shard)
        return ShardEntries(keys, Locations(np.zeros(len(keys), np.int32), (_SOMEWHERE,)))

    def logged(self, store: Store, log: FileStat) -> Any:
        return decode_secondary_log(store.read(log.path), log.path).keys

    def look_up(self, store: Store, shard: ShardSlice, keys: Any) -> Locations:
        found = entries_of_values(store, shard, prefixes_of_entries(keys).unique())
        is_there = pc.is_in(keys.cast(pa.large_string()), value_set=found.cast(pa.large_string()))
        codes = is_there.to_numpy(zero_copy_only=False).astype(np.int32) - 1
        return Locations(codes, (_SOMEWHERE,))

    def found_twice(self, store: Store, key: str, one: Location, other: Location) -> Exception:
        found = [path_in_partition(p.partition, p.file_id) for p in (one, other) if p != _SOMEWHERE]
        return CorruptTableError(
            path=found[0],
            found=f"the value and record key {key!r}, which are in {(*found, 'another file group')[1]} too",
            expected="a record key in one file group of the table, as the record-level index has it",
            remedy=f"Nothing was listed. Look at it with `bucketlake fsck {store.uri}`, and mend it with `bucketlake "
            f"repair`.",
        )
