"""Indexes that have written down where keys live: looked up, not worked out.

A recorded index is cut into shards by a hash of its own. A write brings its rows together by shard, looks every key up
in the one shard that can have it, decides where new keys go, and records those. So an index of this kind answers four
things: which shard has a key (pure), where the keys of a shard live (pinned to the moment when it was resolved, so that
every task and every attempt sees the same), where new keys go (once, on the driver), and what is put on disk for keys
that came, went or moved.

Entries count when the instant that wrote them is committed: a file of them is named after it. Who takes an instant
back takes its entries along (`Keeper.after_taking_back`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, Self

import pyarrow as pa
import pyarrow.compute as pc

from bucketlake.index.index import Index, Pieces, Place
from bucketlake.index.listed import ENTRIES, KeyRecords
from bucketlake.layout import FileGroupId, FileSlice
from bucketlake.state import TableState
from bucketlake.timeline import Timeline

LOGS_NEW_KEYS = "bucketlake.log.inserts"
"""A table property: new keys of a merge-on-read table go to logs too, not only to base files. Default: `false`; tables
with dynamic buckets have `true`.

Hudi finds keys in base files when it replaces file groups, and leaves the entries of those that are only in logs: its
next upsert of such a key is lost. So who has Hudi overwrite or delete partitions of such a table compacts it first.
"""


@dataclass(frozen=True, slots=True)
class NewKeys:
    """Keys that the index does not have, and that stay together."""

    partition: str
    count: int


@dataclass(frozen=True, slots=True)
class Fill:
    """How full a bucket is that takes new keys until it has enough."""

    bucket: int
    owner: int
    """The number of the assigner that puts keys into it."""
    keys: int
    is_full: bool


class Probed(NamedTuple):
    """Where keys live, as a write found it; null where one has no place."""

    partitions: Any
    file_ids: Any
    cache_hits: int = 0
    """How many keys were looked up in what this machine has kept of the index, and not in the index itself."""


class Reread(Protocol):
    """What a pending write has recorded, read again, because a part of it is to be recorded anew."""

    __slots__ = ()

    def entries_in(self, path: str, groups: Collection[FileGroupId]) -> pa.Table:
        """Return, as `ENTRIES`, what a file of `entry_files` says of keys that came to these file groups, or went.

        Nobody else has changed what is recorded of these keys since.
        """

    def no_entries(self, *, instant: str) -> bytes:
        """Return what such a file holds if there is nothing to say."""


class RecordedIndex(Index, KeyRecords, Protocol):
    """An index that looks up where a key lives."""

    __slots__ = ()

    @property
    def recorded(self) -> Self:
        return self

    @property
    def is_global(self) -> bool:
        """Whether a key lives in one partition at a time, and not in each once."""

    def look_up(self, shard: int, partitions: Any, record_keys: Any) -> tuple[Any, Any]:
        """Return partition and file id of each key of one shard, as two columns; null where it has none.

        `partitions` are those that the rows are for. A key that lives in another may be found there.
        """

    def probe(self, shard: int, partitions: Any, record_keys: Any) -> Probed:
        """Return the same for a write, which may go by what this machine has kept of the index.

        Who checks the index asks it itself.
        """
        return Probed(*self.look_up(shard, partitions, record_keys))

    def entries(self, shard: int) -> pa.Table:
        """Return where the keys of one shard live, all of them, as `ENTRIES`; in the same order each time."""

    @property
    def keeps_partition(self) -> bool:
        """Whether a row whose partition has changed is written into the one that it was in."""
        return False

    @property
    def shards_there(self) -> int:
        """How many shards have entries, those with the lowest numbers; others may come."""
        return self.shards

    @property
    def is_kept(self) -> bool:
        """Whether it is told of every write."""
        return True

    @property
    def fault(self) -> str | None:
        """Say why it cannot be relied on, None if it can."""
        return None

    def about_how_many(self) -> int | None:
        """Return about how many keys it has, by what is told without reading them; None if it does not tell."""
        return None

    def shard_name(self, shard: int, partition: str) -> str:  # noqa: ARG002 # for some
        """Name a shard among those that have keys of a partition, whatever shards others open meanwhile."""
        return str(shard)

    def check_keys(self, record_keys: Any) -> None:  # for those who cannot have all
        """Raise `ConfigError` for keys that it cannot have."""

    def where(
        self,
        record_keys: Any,  # noqa: ARG002 # for those who tell
        partitions: Collection[str] | None = None,  # noqa: ARG002
    ) -> frozenset[FileGroupId] | None:
        """Name the file groups in which some keys live, by what it has recorded; None if a reader must look himself.

        `partitions` are those in which a caller looks; None: all.
        """
        return None

    def assign(
        self,
        new: Sequence[NewKeys],
        groups: Mapping[str, Mapping[str, FileSlice]],
        *,
        instant: str,
        row_bytes: int,
    ) -> Sequence[str]:
        """Return the file id for each batch of new keys: of a group that is there, or of one that `instant` opens.

        `row_bytes` is about what a row takes in a file.
        """

    def knowing(
        self,
        state: TableState,  # noqa: ARG002 # for those who mind
        groups: Mapping[str, Mapping[str, FileSlice]],  # noqa: ARG002
    ) -> RecordedIndex:
        """Return the index for a write that begins on these file groups, partition -> file id -> slice."""
        return self

    def place_new(
        self,
        partitions: Any,  # noqa: ARG002 # for those who need no driver
        record_keys: Any,  # noqa: ARG002
        groups: Mapping[str, Mapping[str, FileSlice]],  # noqa: ARG002
        *,
        instant: str,  # noqa: ARG002
        row_bytes: int,  # noqa: ARG002
    ) -> Any | None:
        """Return the file id for each new key of one shard, all of which are here; None if `assign` is to say.

        The order in which keys come makes no difference, so that every attempt agrees.
        """
        return None

    def room_in(
        self,
        partition: str,  # noqa: ARG002 # for those with a limit
        part: FileSlice,  # noqa: ARG002
        *,
        row_bytes: int,  # noqa: ARG002
    ) -> int | None:
        """Say how many more keys a file group takes, of a write that has begun; None if it may have any number."""
        return None

    def of_partition(self, partition: str) -> pa.Table:
        """Return where the keys of one data partition live, as `ENTRIES`."""
        parts = [self.entries(shard) for shard in range(self.shards_there)]
        return pa.concat_tables(
            [ENTRIES.empty_table(), *(part.filter(pc.equal(part["partition"], partition)) for part in parts)]
        )

    def fills(
        self,
        state: TableState,  # noqa: ARG002 # for those who know
        groups: Mapping[str, Mapping[str, FileSlice]],  # noqa: ARG002
    ) -> Mapping[FileGroupId, Fill]:
        """Say how full file groups are, partition -> file id -> slice, of those that take new keys."""
        return {}

    def heir_slot(self, partition: str, file_id: str) -> str | None:  # noqa: ARG002 # for those who keep groups apart
        """Return what the id of the file group begins with that alone may take this one's place; None: any may."""
        return None

    def overtaken(self, timeline: Timeline, *, instant: str) -> str | None:
        """Name a commit that has recorded keys, since this index was resolved, in a shard that `instant` records in."""

    @property
    def reread(self) -> Reread | None:
        """What reads again what a pending write has recorded; None if a write that was overtaken is run again whole."""
        return None

    def left_behind(self) -> Mapping[str, tuple[str, ...]]:
        """Return, by partition, the files of shards that a write has begun which was taken back since."""
        return {}

    def slot_of_file(self, partition: str, file_id: str) -> str | None:  # noqa: ARG002 # the protocol's
        return file_id

    def explain(self, partition: str, record_key: str, pieces: Pieces) -> Place:  # noqa: ARG002 # the protocol's
        shard = int(self.shard_of(pa.array([partition]), pa.array([record_key]))[0])
        return Place(more={"shard": f"{shard} of {self.shards}"})
