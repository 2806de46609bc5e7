"""The directory of one partition: extendible hashing, as a ring whose places are the bits of a hash.

A key's bucket is a remainder of its hash, as in simple buckets. One that is too large splits by the next bit: bucket 3
of 4 holds the hashes that are 3 modulo 4, its halves those that are 3 and 7 modulo 8, and theirs 3, 11, 7 and 15 modulo
16. So the bucket of number `n` and depth `d` holds what is `n` modulo `base * 2^d`, where `base` is odd, and a
partition whose buckets all have depth `d` is one of `base * 2^d` simple buckets. 12 buckets have base 3 and depth 2.

Turned around, the bits make a line on which every bucket is one piece:

    position(hash) = (hash % base) * 2^bits + reversed(hash // base)

A bucket of depth `d` is `2^(bits - d)` positions, and begins at a multiple of that. Buddies are neighbours. So a
directory is a `Ring`, with two rules of its own: it is cut only where bits part, and only buddies become one.

Keys are not looked for on the line. Buckets of all depths up to the deepest make a table of `base * 2^depth` entries,
and a key's is `hash % (base * 2^depth)`: one remainder and one look.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from bucketlake.compiled import compiled
from bucketlake.index.ring import Node, Ring, Tag, middle_between

DEPTH_MAX = 24
_HASH_BITS = 31
_ENTRIES_MAX = 1 << 20
"""More than so many make a table that no longer fits the processor's cache; then keys are looked for on the line."""


@dataclass(frozen=True, slots=True)
class Bucket:
    """A bucket: it holds the hashes that are `number` modulo the base count times `2^depth`."""

    number: int
    depth: int
    file_id_prefix: str
    """Eight digits, the number's, if whoever opens its file group names it; else the whole id but for its end."""


def base_of(count: int) -> tuple[int, int]:
    """Return the base of so many simple buckets, and their depth.

    >>> base_of(12), base_of(4)
    ((3, 2), (1, 2))
    """
    depth = (count & -count).bit_length() - 1
    return count >> depth, depth


def bits_of(base: int) -> int:
    """Return how deep a bucket can be at most: how many bits of a hash are left beside `base` buckets.

    >>> bits_of(1), bits_of(999)
    (24, 21)
    """
    return min(DEPTH_MAX, _HASH_BITS - (base - 1).bit_length())


@dataclass(frozen=True)
class Directory(Ring):
    """The buckets of one partition, in the order of their positions."""

    base: int

    @property
    def bits(self) -> int:
        return bits_of(self.base)

    @property
    def span(self) -> int:
        return self.base << self.bits

    @cached_property
    def depth(self) -> int:
        """How deep the deepest bucket is."""
        return max(self.depth_of(place) for place in range(len(self.nodes)))

    @classmethod
    def of(cls, base: int, buckets: Sequence[Bucket]) -> Directory:
        """Make one of its buckets; ValueError says what is wrong if some hash has none of them, or two."""
        bits = bits_of(base)
        nodes = []
        for one in buckets:
            if not 0 <= one.depth <= bits or not 0 <= one.number < base << one.depth:
                raise ValueError(
                    f"bucket {one.number} of depth {one.depth}; expected a depth from 0 to {bits}, and a number below "
                    f"{base} * 2^depth"
                )
            last = _position(one.number, base, bits) | ((1 << (bits - one.depth)) - 1)
            nodes.append(Node(last, one.file_id_prefix))
        found = cls(tuple(nodes), base)
        depths = {_position(one.number, base, bits): one.depth for one in buckets}
        expected = 0
        for place, node in enumerate(found.nodes):
            depth = depths.get(expected)
            if depth is None or node.value - expected + 1 != 1 << (bits - depth):
                raise ValueError(f"no bucket, or two, for the hash {_hash_at(expected, base, bits)}")
            expected = node.value + 1
            assert found.depth_of(place) == depth
        if expected != found.span or len(depths) != len(buckets) or len(set(found.prefixes)) != len(buckets):
            raise ValueError(
                "buckets that do not share out all hashes, each to one, under names of their own"
            )
        return found

    @property
    def buckets(self) -> tuple[Bucket, ...]:
        return tuple(
            Bucket(self.number_of(place), self.depth_of(place), node.file_id_prefix)
            for place, node in enumerate(self.nodes)
        )

    def number_of(self, place: int) -> int:
        """Return a bucket's number."""
        return _hash_at(self.before(place).value + 1, self.base, self.bits)

    def depth_of(self, place: int) -> int:
        """Return by how many bits a bucket is told apart."""
        return self.bits - (self.width(place).bit_length() - 1)

    def before(self, place: int) -> Node:
        """Return the predecessor of a bucket; the first has one that ends before all positions."""
        return self.nodes[place - 1] if place else Node(-1, "")

    def positions(self, hashes: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
        found = np.empty(len(hashes), np.int32)
        _turn_around(hashes, self.base, self.bits, found)
        return found

    def owner(self, key_hash: int) -> Node:
        return self.node_of(_position(key_hash, self.base, self.bits))

    def owners(self, hashes: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
        if self.base << self.depth > _ENTRIES_MAX:
            return self.nodes_of(self.positions(hashes))
        places = np.empty(len(hashes), np.int32)
        _look_up(hashes, self._entries, places)
        return places

    @cached_property
    def _entries(self) -> npt.NDArray[np.int32]:
        """For every remainder of a hash, the place of its bucket."""
        entries = np.empty(self.base << self.depth, np.int32)
        for place in range(len(self.nodes)):
            entries[self.number_of(place) :: self.base << self.depth_of(place)] = place
        return entries

    def split_into(self, place: int, at: int, fresh: Callable[[int], str]) -> tuple[Node, ...]:
        """Return the children: halves of the bucket, of the half that `at` is in, and so on down to `at`."""
        assert self.can_split(place, at), "a point outside the bucket would take keys from others"
        before, last = self.before(place).value, self.nodes[place].value
        ends = [last]
        while True:
            middle = middle_between(before, last)
            assert middle is not None
            ends.append(middle)
            if middle == at:
                break
            before, last = (before, middle) if at < middle else (middle, last)
        starts = [self.before(place).value + 1, *(end + 1 for end in sorted(ends))]
        return tuple(
            Node(end, self._named(start, fresh(end)), Tag.REPLACE)
            for start, end in zip(starts, sorted(ends), strict=False)
        )

    def merge_into(self, places: Sequence[int], fresh: Callable[[int], str]) -> tuple[Node, ...]:
        first, last = self.before(places[0]).value + 1, self.nodes[places[-1]].value
        width = last - first + 1
        assert width & (width - 1) == 0 and first % width == 0, "only a bucket's parts become one"
        gone = (Node(self.nodes[place].value, "", Tag.DELETE) for place in places[:-1])
        return (*gone, Node(last, self._named(first, fresh(last)), Tag.REPLACE))

    def runs_to_merge(self, sizes: Sequence[int | None], *, limit: float, spare: int) -> Iterator[list[int]]:
        """Yield what was one bucket once, and together is no larger than `limit`: buddies, and buddies of these."""
        runs: list[tuple[list[int], int | None]] = []
        for place in range(len(self.nodes)):
            runs.append(([place], sizes[place]))
            while spare > 0 and len(runs) > 1:
                (left, left_size), (right, right_size) = runs[-2:]
                if left_size is None or right_size is None or left_size + right_size > limit:
                    break
                if not self._are_buddies(left, right):
                    break
                runs[-2:] = [(left + right, left_size + right_size)]
                spare -= 1
        yield from (run for run, _ in runs if len(run) > 1)

    def _are_buddies(self, left: Sequence[int], right: Sequence[int]) -> bool:
        start, end, last = self.before(left[0]).value, self.nodes[left[-1]].value, self.nodes[right[-1]].value
        width = end - start
        return last - end == width and (start + 1) % (2 * width) == 0 and 2 * width <= 1 << self.bits

    def halving_point(self, place: int, positions: npt.NDArray[np.int32]) -> int | None:  # noqa: ARG002 # the ring's
        """Return the first bit at which keys part: there is no other point to choose."""
        first, last = int(positions[0]), int(positions[-1])
        if first == last:
            return None
        # What the two have in common is the bits of the smallest bucket that would hold both.
        width = 1 << ((first ^ last).bit_length() - 1)
        return (last & -width) - 1

    def _named(self, start: int, prefix: str) -> str:
        """Put a bucket's number in front of an id that nobody has."""
        digits = bucket_digits(_hash_at(start, self.base, self.bits))
        return f"{digits}{prefix[8:]}"

    def __reduce__(self) -> tuple[Any, ...]:
        return Directory, (self.nodes, self.base)


def bucket_digits(number: int) -> str:
    """Write a bucket's number as file ids have it."""
    return f"{number:08d}"


def _position(key_hash: int, base: int, bits: int) -> int:
    turned = int(f"{key_hash // base % (1 << bits):0{bits}b}"[::-1], 2)
    return (key_hash % base) << bits | turned


def _hash_at(position: int, base: int, bits: int) -> int:
    """Return the smallest hash of a position."""
    turned = int(f"{position % (1 << bits):0{bits}b}"[::-1], 2)
    return turned * base + (position >> bits)


@compiled()
def _look_up(hashes, entries, places):  # type: ignore[no-untyped-def] # numba infers
    # A null key, whose hash is below 0, has no bucket: any place will do.
    count = np.uint32(len(entries))
    lower_bits = np.uint32(count - 1)
    if count & lower_bits == 0:
        for row in range(len(hashes)):
            places[row] = entries[np.uint32(hashes[row]) & lower_bits]
    else:
        for row in range(len(hashes)):
            places[row] = entries[np.uint32(hashes[row]) % count]


@compiled()
def _turn_around(hashes, base, bits, positions):  # type: ignore[no-untyped-def] # numba infers
    for row in range(len(hashes)):
        key_hash = hashes[row]
        if key_hash < 0:
            positions[row] = -1
            continue
        turned = np.int64(key_hash) // base
        # Neighbouring bits change places, then pairs of them, and so on.
        turned = (turned & 0x55555555) << 1 | turned >> 1 & 0x55555555
        turned = (turned & 0x33333333) << 2 | turned >> 2 & 0x33333333
        turned = (turned & 0x0F0F0F0F) << 4 | turned >> 4 & 0x0F0F0F0F
        turned = (turned & 0x00FF00FF) << 8 | turned >> 8 & 0x00FF00FF
        turned = (turned & 0x0000FFFF) << 16 | turned >> 16
        positions[row] = np.int64(key_hash) % base << bits | turned >> 32 - bits
