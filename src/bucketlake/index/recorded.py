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
from typing import Any, Protocol, Self

import pyarrow as pa

from bucketlake.index.index import Index, Pieces, Place
from bucketlake.index.listed import KeyRecords
from bucketlake.layout import FileGroupId, FileSlice
from bucketlake.timeline import Timeline


@dataclass(frozen=True, slots=True)
class NewKeys:
    """Keys that the index does not have, and that stay together."""

    partition: str
    count: int


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

    def overtaken(self, timeline: Timeline, *, instant: str) -> str | None:
        """Name a commit that has recorded keys, since this index was resolved, in a shard that `instant` records in."""

    def left_behind(self) -> Mapping[str, tuple[str, ...]]:
        """Return, by partition, the files of shards that a write has begun which was taken back since."""
        return {}

    def slot_of_file(self, partition: str, file_id: str) -> str | None:  # noqa: ARG002 # the protocol's
        return file_id

    def explain(self, partition: str, record_key: str, pieces: Pieces) -> Place:  # noqa: ARG002 # the protocol's
        shard = int(self.shard_of(pa.array([partition]), pa.array([record_key]))[0])
        return Place(more={"shard": f"{shard} of {self.shards}"})
