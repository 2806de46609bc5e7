"""A shard of the record-level index in ranges of keys: each some blocks of its base file, and what logs say of them.

A range is read without the others. Keys ascend in a base file, so keys that are written together are often in few
ranges, where a hash would spread them over all.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bucketlake.hfile import UNCERTAIN
from bucketlake.metadata.listing import ShardSlice
from bucketlake.metadata.record_shard import (
    ShardEntries,
    logged_keys,
    open_base,
    read_blocks,
    read_logs,
    read_shard,
    some_entries,
)
from bucketlake.storage import Store

NO_RANGE = -1


@dataclass(frozen=True, slots=True)
class ShardRanges:
    """A shard that is cut where blocks of its base file begin; one without a base file is not cut."""

    store: Store
    shard: ShardSlice
    count: int
    blocks: int
    """How many there are."""
    entries: int
    """Of the base file."""
    _told: dict[int, tuple[ShardEntries, npt.NDArray[np.int64]]] = field(
        default_factory=dict, compare=False, repr=False
    )
    """What the logs after so many say, and of which ranges, once it was asked."""

    @classmethod
    def of(cls, store: Store, shard: ShardSlice, *, keys: int, most: int) -> ShardRanges:
        """Cut a shard into ranges of about so many keys, and not into more than so many ranges."""
        if shard.base is None:
            return cls(store, shard, 1, 0, 0)
        base = open_base(store, shard.base)
        count = max(1, min(-(-base.entries // max(1, keys)), most, base.blocks))
        return cls(store, shard, count, base.blocks, base.entries)

    def numbers_of(self, keys: pa.Array) -> npt.NDArray[np.int64]:
        """Return the number of the range that each key belongs to, whether it is there or not.

        It is `NO_RANGE` where that depends on who has written the base file, by Java's order of text or by its bytes.
        """
        if self.count == 1:
            return np.zeros(len(keys), np.int64)
        assert self.shard.base is not None
        blocks = open_base(self.store, self.shard.base).blocks_of(keys)
        numbers: npt.NDArray[np.int64] = np.where(
            blocks == UNCERTAIN, NO_RANGE, ((blocks + 1) * self.count - 1) // max(1, self.blocks)
        )
        return numbers

    def blocks_in(self, number: int) -> range:
        return range(number * self.blocks // self.count, (number + 1) * self.blocks // self.count)

    def read(self, number: int) -> ShardEntries:
        """Return all entries of a range."""
        if self.count == 1:
            return read_shard(self.store, self.shard)
        assert self.shard.base is not None
        told = self.read_logs(number)
        return read_blocks(self.store, self.shard.base, self.blocks_in(number), told)

    def read_logs(self, number: int, after: int = 0) -> ShardEntries:
        """Return what the logs after the first ones say last of each key of a range."""
        if after not in self._told:
            told = read_logs(self.store, self.shard.logs[after:])
            self._told[after] = told, self.numbers_of(told.keys)
        told, numbers = self._told[after]
        return told if self.count == 1 else some_entries(told, numbers == number)

    def logged(self, after: int) -> int:
        """Count the keys of which the logs after the first ones say anything, each log for itself."""
        return sum(len(logged_keys(self.store, log)) for log in self.shard.logs[after:])
