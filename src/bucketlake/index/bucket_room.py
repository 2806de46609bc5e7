"""Buckets that open as others fill: which of them take keys that are new. Values in, values out.

A bucket belongs to one assigner, which alone puts keys into it: bucket b to assigner b modulo their number. An assigner
fills its buckets in the order of their numbers, each up to its room, and opens another, the lowest number of its own
that no bucket has, only when none has room. So no more buckets are part-filled than there are assigners.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from bucketlake.errors import UnsupportedError

BUCKETS_LIMIT = 65_535
"""As many buckets a partition may have: their numbers take two bytes."""


@dataclass(frozen=True, slots=True)
class Room:
    """A bucket that is there, and how many keys it can still take."""

    number: int
    keys: int


@dataclass(frozen=True, slots=True)
class Assigner:
    """Who puts keys into some of a partition's buckets."""

    number: int
    count: int
    """How many assigners there are."""

    def owns(self, bucket: int) -> bool:
        return bucket % self.count == self.number

    def share_out(
        self, keys: int, rooms: Iterable[Room], *, capacity: int, taken: Collection[int], partition: str = ""
    ) -> list[tuple[int, int]]:
        """Say how many of the next keys each bucket takes, bucket and number, in this order.

        `rooms` are those of its own buckets, `capacity` is what a new bucket takes, and `taken` are the numbers of all
        buckets of the partition. `UnsupportedError` if it would have to open one beyond the limit.

        >>> Assigner(1, 4).share_out(25, [Room(5, 3), Room(1, 2)], capacity=10, taken={1, 5})
        [(1, 2), (5, 3), (9, 10), (13, 10)]
        """
        shares: list[tuple[int, int]] = []
        for room in sorted(rooms, key=lambda room: room.number):
            taking = min(keys, room.keys)
            if taking > 0:
                shares.append((room.number, taking))
                keys -= taking
        bucket = self.number
        while keys > 0:
            while bucket in taken:
                bucket += self.count
            if bucket >= BUCKETS_LIMIT:
                raise _too_many(partition, capacity)
            taking = min(keys, capacity)
            shares.append((bucket, taking))
            keys -= taking
            bucket += self.count
        return shares


def _too_many(partition: str, capacity: int) -> UnsupportedError:
    return UnsupportedError(
        subject=f"the partition {partition!r}",
        found=f"keys for more than {BUCKETS_LIMIT:,} buckets, of {capacity:,} keys each",
        supported=f"{BUCKETS_LIMIT:,} buckets in a partition",
        remedy="Nothing was written. Make a table whose buckets take more keys and bytes, or whose partitions are "
        "finer, and copy the rows.",
    )
