"""Indexes that a table lists beside the one that says where rows go: told by every write which keys came and went.

A table names them in its properties, by words that are registered as engines are. A process that does not know one of
them cannot write the table, because the index would no longer be right. Those of the metadata table need not be named:
a table has them that lists their partition there, unless it goes by the index itself.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bucketlake.config import RECORD_LEVEL, TableProperties
from bucketlake.errors import ConfigError, UnsupportedError
from bucketlake.index.keeper import Keeper
from bucketlake.metadata.places import RECORD_INDEX
from bucketlake.state import TableState
from bucketlake.timeline import Timeline

if TYPE_CHECKING:
    from bucketlake.index.recorded import RecordedIndex

LISTED_INDEXES = "bucketlake.listed.indexes"
"""A table property: the words of its listed indexes, with commas between them. Default: none. We set it."""

ENTRIES = pa.schema(
    [
        pa.field("key", pa.string(), nullable=False),
        pa.field("partition", pa.string(), nullable=False),
        pa.field("file_id", pa.string()),
    ]
)
"""What became of keys: the partition that each came to or went from, and the file group, null for one that is gone."""


@dataclass(frozen=True, slots=True, eq=False)
class EntryFile:
    """A file that records what became of keys."""

    data: bytes
    entries: pa.Table
    """What it records, as `ENTRIES`."""


@dataclass(frozen=True, slots=True, eq=False)
class RowsChanged:
    """What a write did to the rows of a file group: which keys came and went, and, if asked for, values."""

    partition: str
    file_id: str
    came: pa.Array
    """Keys that are new in the file group."""
    went: pa.Array
    """Keys that left it."""
    before: pa.Table | None = None
    """`_hoodie_record_key` and the columns that are asked for, of the rows concerned, as a reader found them before."""
    after: pa.Table | None = None
    """The same, as a reader finds them after the write."""


class KeyRecords(Protocol):
    """What is told which keys came and went; cut into shards, each of which one task records."""

    __slots__ = ()

    @property
    def columns(self) -> tuple[str, ...]:
        """The table's columns whose values it has to know, before and after a write."""
        return ()

    @property
    def shards(self) -> int:
        """How many shards there are."""

    @property
    def recorded(self) -> RecordedIndex | None:
        """Itself, if it can be asked where a key lives."""
        return None

    def check_there(self, partitions: Collection[str]) -> None:  # for those who can be lost
        """Raise `CorruptTableError` if what it has recorded of these partitions, which have rows, is gone."""

    @property
    def knows_places(self) -> bool:
        """Whether it records where keys live, and so has to know of rows that only move."""
        return not self.columns

    def told(self, changed: RowsChanged) -> pa.RecordBatch:
        """Return what it is to record of a change, as `ENTRIES`: where each key came to, or that it went."""
        keys = pa.concat_arrays([changed.came, changed.went])
        ids = pa.concat_arrays(
            [
                pa.repeat(pa.scalar(changed.file_id), len(changed.came)),
                pa.nulls(len(changed.went), pa.string()),
            ]
        )
        partitions = pa.repeat(pa.scalar(changed.partition), len(keys))
        return pa.RecordBatch.from_arrays([keys, partitions, ids], schema=ENTRIES)

    def shard_of(self, partitions: Any, record_keys: Any) -> npt.NDArray[np.int64]:
        """Return the shard that has each key, of two columns of texts: pure, and the same for everybody.

        The texts are those of `ENTRIES`.
        """

    def entry_files(self, shard: int, entries: pa.Table, *, instant: str) -> Mapping[str, EntryFile]:
        """Return what records `ENTRIES` of one shard, by path; one file, unless shards share their number.

        A key that went and came is where it came to.
        """

    def check_entries(self, shard: int, entries: pa.Table) -> None:  # for those who cannot have all
        """Raise an error for `ENTRIES` of one shard that it cannot record."""

    def files_of_new_shards(
        self,
        written: Collection[str],  # noqa: ARG002 # for those who have some
        *,
        instant: str,  # noqa: ARG002
    ) -> Mapping[str, bytes]:
        """Return what else must be there when these files, of `instant`, count."""
        return {}

    def overtaken(self, timeline: Timeline, *, instant: str) -> str | None:  # noqa: ARG002 # for those who mind
        """Name a commit that has recorded, since this was resolved, what `instant` must not record beside it."""
        return None


@dataclass(frozen=True, slots=True)
class ListedIndex:
    """How to find out what is recorded of the keys of a table that lists the index of this word."""

    word: str
    resolve: Callable[[TableState], KeyRecords]
    keeper: Keeper


_registered: dict[str, ListedIndex] = {}
_in_metadata: dict[str, ListedIndex] = {}
"""By the partition of the metadata table."""
_by_prefix: dict[str, tuple[Callable[..., KeyRecords], Callable[[str], Keeper]]] = {}
"""By what the names of such partitions begin with."""


def register_listed_index(
    word: str, resolve: Callable[[TableState], KeyRecords], *, keeper: Keeper | None = None
) -> None:
    """Make an index that tables may list known to this process, before such tables are written."""
    name = word.strip().upper()
    if not name or "," in name:
        raise ConfigError(f"an index cannot be listed as {word!r}; expected a word without commas.")
    _registered[name] = ListedIndex(name, resolve, keeper or Keeper())


def register_metadata_index(
    partition: str, resolve: Callable[[TableState], KeyRecords], *, keeper: Keeper
) -> None:
    """Make an index known that lives in a partition of the metadata table."""
    _in_metadata[partition] = ListedIndex(partition, resolve, keeper)


def register_metadata_indexes(
    prefix: str, resolve: Callable[..., KeyRecords], *, keeper: Callable[[str], Keeper]
) -> None:
    """Make indexes known of which a table may have several, each in a partition that begins with `prefix`.

    `resolve` takes a state and the name of the partition.
    """
    _by_prefix[prefix] = resolve, keeper


def resolve_listed(state: TableState) -> tuple[KeyRecords, ...]:
    """Return what is recorded of keys by the indexes that a table lists, as of the table's timeline."""
    return tuple(one.resolve(state) for one in listed_indexes(state.properties))


def listed_indexes(properties: TableProperties) -> tuple[ListedIndex, ...]:
    """Return the indexes that a table lists; `UnsupportedError` names one that is not known here."""
    words = [word.strip().upper() for word in properties.raw.get(LISTED_INDEXES, "").split(",")]
    unknown = [word for word in words if word and word not in _registered]
    if unknown:
        raise UnsupportedError(
            subject=f"{LISTED_INDEXES} of table {properties.name}",
            found=unknown[0],
            supported=f"changing tables that list {', '.join(_registered) or 'none'}",
            remedy="The index would not learn of the change. Register it as whoever listed it did.",
        )
    in_metadata = (
        found
        for name in sorted(properties.metadata_partitions)
        if not (name == RECORD_INDEX and properties.engine in RECORD_LEVEL)
        and (found := _in_partition(name)) is not None
    )
    return (*(_registered[word] for word in words if word), *in_metadata)


def _in_partition(name: str) -> ListedIndex | None:
    for prefix, (resolve, keeper) in _by_prefix.items():
        if name.startswith(prefix):
            return ListedIndex(name, partial(resolve, partition=name), keeper(name))
    return _in_metadata.get(name)
