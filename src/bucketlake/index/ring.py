"""The hash ring of one partition: who owns a hash, and what becomes of the ring when buckets split or merge.

A ring is a sorted list of nodes. A node owns the hashes above its predecessor's value up to its own; hashes above the
largest value belong to the smallest node (after a merge this really happens). A node's value may never move, and a
resized node gets a new file-id prefix, so a ring that is out of date names file groups that are gone: that is how a
reader notices.

A resize is said by children, in Hudi's words: a REPLACE node takes the place of the one with its value, or is put
between two; a DELETE node takes one away, whose range falls to the next.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property
from itertools import pairwise
from typing import Any
from uuid import UUID

import numpy as np
import numpy.typing as npt

from bucketlake.compiled import compiled

HASH_MAX = 0x7FFFFFFF
RANGE = HASH_MAX + 1
"""How many hashes there are."""

_DIRECTORY_BITS = 12
_SHIFT = 31 - _DIRECTORY_BITS


class Tag(StrEnum):
    NORMAL = "NORMAL"
    REPLACE = "REPLACE"
    DELETE = "DELETE"


@dataclass(frozen=True, slots=True)
class Node:
    """One node of a ring: where its range ends, and the file group that holds it."""

    value: int
    file_id_prefix: str
    """Empty for a node that goes."""
    tag: Tag = Tag.NORMAL


@dataclass(frozen=True)
class Ring:
    """The nodes of one partition, by ascending value."""

    nodes: tuple[Node, ...]
    _values: npt.NDArray[np.int64] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        assert self.nodes, "a ring without nodes owns no key"
        # Of equal values the last counts, as in a TreeMap.
        by_value = {node.value: node for node in self.nodes}
        nodes = tuple(by_value[value] for value in sorted(by_value))
        object.__setattr__(self, "nodes", nodes)
        object.__setattr__(self, "_values", np.array([node.value for node in nodes], np.int64))

    @property
    def prefixes(self) -> tuple[str, ...]:
        return tuple(node.file_id_prefix for node in self.nodes)

    @property
    def span(self) -> int:
        """How many hashes the ring has, to draw it."""
        return RANGE

    def positions(self, hashes: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
        """Return where keys with these hashes lie on the ring; what is below 0 is no key."""
        return hashes

    def owner(self, key_hash: int) -> Node:
        """Return the node of a key with this hash."""
        return self.node_of(key_hash)

    def owners(self, hashes: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
        """Return the place in `nodes` of every key's node: `owner`, a column at a time."""
        return self.nodes_of(hashes)

    def node_of(self, ring_hash: int) -> Node:
        """Return the owner of a hash: the first node at or above it, or the smallest.

        >>> Ring((Node(10, "a"), Node(20, "b"))).node_of(21).file_id_prefix
        'a'
        """
        return self.nodes[bisect_left(self.nodes, ring_hash, key=lambda node: node.value) % len(self.nodes)]

    def nodes_of(self, ring_hashes: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
        """Return the place in `nodes` of every hash's owner: `node_of`, a column at a time."""
        places = np.empty(len(ring_hashes), np.int32)
        _find_owners(self._values, self._directory, ring_hashes, places)
        return places

    def place_of(self, prefix: str) -> int:
        """Return the place in `nodes` of the one with this prefix."""
        return self.prefixes.index(prefix)

    def before(self, place: int) -> Node:
        """Return the predecessor of a node, whose value is the last hash that is not the node's."""
        return self.nodes[place - 1]

    def width(self, place: int) -> int:
        """Return how many hashes a node owns."""
        return (self.nodes[place].value - self.before(place).value - 1) % RANGE + 1

    def can_split(self, place: int, at: int) -> bool:
        """Tell whether a hash ends a first half of a node's range: it is in it, and not its last.

        >>> ring = Ring((Node(10, "a"), Node(20, "b")))
        >>> [at for at in (9, 10, 11, 19, 20, 21) if ring.can_split(1, at)]
        [11, 19]
        """
        return 0 <= at <= HASH_MAX and (at - self.before(place).value - 1) % RANGE < self.width(place) - 1

    def with_children(self, children: Iterable[Node]) -> Ring:
        """Return the ring after a resize.

        >>> ring = Ring((Node(10, "a"), Node(20, "b")))
        >>> [(node.value, node.file_id_prefix) for node in ring.with_children(split(ring, 1, 15, ("c", "d"))).nodes]
        [(10, 'a'), (15, 'c'), (20, 'd')]
        """
        by_value = {node.value: node for node in self.nodes}
        for child in children:
            if child.tag == Tag.DELETE:
                by_value.pop(child.value, None)
            else:
                by_value[child.value] = Node(child.value, child.file_id_prefix)
        return replace(self, nodes=tuple(by_value.values()))

    def split_into(self, place: int, at: int, fresh: Callable[[int], str]) -> tuple[Node, ...]:
        """Return the children that a node splits into, with a hash that ends one of them; `fresh` names each."""
        return split(self, place, at, (fresh(at), fresh(self.nodes[place].value)))

    def merge_into(self, places: Sequence[int], fresh: Callable[[int], str]) -> tuple[Node, ...]:
        """Return the children of nodes that become one."""
        return merge(self, places, fresh(self.nodes[places[-1]].value))

    def runs_to_merge(self, sizes: Sequence[int | None], *, limit: float, spare: int) -> Iterator[list[int]]:
        """Yield nodes that may become one, because together they are no larger than `limit`.

        `sizes` has None for a node that is to stay; `spare` says how many nodes there may be fewer.
        """
        run: list[int] = []
        total = 0
        for place in range(len(self.nodes) + 1):
            size = sizes[place] if place < len(self.nodes) else None
            if size is not None and run and total + size <= limit:
                run.append(place)
                total += size
                continue
            run = run[: spare + 1]
            if len(run) > 1:
                spare -= len(run) - 1
                yield run
            run, total = ([place], size) if size is not None and size <= limit else ([], 0)

    def halving_point(self, place: int, positions: npt.NDArray[np.int32]) -> int | None:
        """Return where a node is to be split so that half of these keys fall to each side; None if nowhere."""
        return halving_point(self, place, positions)

    @cached_property
    def _directory(self) -> npt.NDArray[np.int32]:
        """For every value of a hash's upper bits, the first node that can own one: a search begins there."""
        edges = np.arange((1 << _DIRECTORY_BITS) + 1, dtype=np.int64) << _SHIFT
        return np.searchsorted(self._values, edges, side="left").astype(np.int32)

    def __reduce__(self) -> tuple[Any, ...]:
        return Ring, (self.nodes,)


@compiled()
def _find_owners(values, directory, hashes, places):  # type: ignore[no-untyped-def] # numba infers
    count = len(values)
    for number in range(len(hashes)):
        ring_hash = hashes[number]
        if ring_hash < 0:  # no key, no owner
            places[number] = 0
            continue
        bits = ring_hash >> _SHIFT
        low = directory[bits]
        high = directory[bits + 1]
        while low < high:
            middle = (low + high) >> 1
            if values[middle] < ring_hash:
                low = middle + 1
            else:
                high = middle
        places[number] = low if low < count else 0


def middle_between(before: int, last: int) -> int | None:
    """Return the middle of the range above one hash up to another, as Hudi splits it; None if there is none."""
    middle = ((before + last + (0 if before < last else RANGE)) >> 1) & HASH_MAX
    return None if middle in (before, last) else middle


def halving_point(ring: Ring, place: int, ring_hashes: npt.NDArray[np.int32]) -> int | None:
    """Return where a node's range is to be split so that half of these hashes, all its own, fall to each side.

    None if there is no such point: all are one hash.
    """
    before = ring.before(place).value
    # Counted from where the range begins, so that one that wraps around is like any other.
    offsets = np.sort((ring_hashes.astype(np.int64) - before - 1) % RANGE)
    if not len(offsets) or offsets[0] == offsets[-1]:
        return None
    half = offsets[(len(offsets) - 1) // 2]
    if half == offsets[-1]:  # more than half are the largest: the others go to the first
        half = offsets[np.searchsorted(offsets, half, side="left") - 1]
    return int((before + 1 + half) % RANGE)


def split(ring: Ring, place: int, at: int, prefixes: tuple[str, str]) -> tuple[Node, Node]:
    """Return the children that a node splits into: the first owns its hashes up to `at`."""
    assert ring.can_split(place, at), "a point outside the range would take keys from other nodes"
    node = ring.nodes[place]
    return Node(at, prefixes[0], Tag.REPLACE), Node(node.value, prefixes[1], Tag.REPLACE)


def merge(ring: Ring, places: Sequence[int], prefix: str) -> tuple[Node, ...]:
    """Return the children of neighbours, in the order of the ring, that become one: the last one's place is kept."""
    count = len(ring.nodes)
    assert len(places) > 1 and all((a + 1) % count == b for a, b in pairwise(places))
    gone = tuple(Node(ring.nodes[place].value, "", Tag.DELETE) for place in places[:-1])
    return (*gone, Node(ring.nodes[places[-1]].value, prefix, Tag.REPLACE))


def derived_prefix(*parts: bytes | str | int) -> str:
    """Return a file-id prefix that everybody derives alike: Java's `UUID.nameUUIDFromBytes`.

    >>> derived_prefix(0, 536870912, "p0")
    'a1ba364b-fbde-3906-b865-53e4c35f3556'
    """
    name = b"".join(_bytes_of(part) for part in parts)
    return str(UUID(bytes=hashlib.md5(name, usedforsecurity=False).digest(), version=3))


def _bytes_of(part: bytes | str | int) -> bytes:
    match part:
        case int():
            return part.to_bytes(8, "big")
        case str():
            return part.encode("utf-8")
        case _:
            return part
