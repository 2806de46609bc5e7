"""Who runs the tasks of a service: this process, or somebody with more hands.

A task is a plain function of a picklable value, and may be run twice. `Tasks` is a map over such values, in order;
`here` is the one that needs nothing. Who has several hands shares the values out by their bytes.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

T = TypeVar("T")
R = TypeVar("R")


class Tasks(Protocol):
    """A parallel map: `function` of each item, in the order of the items."""

    def __call__(self, function: Callable[[T], R], items: Sequence[T], /) -> list[R]: ...


def here(function: Callable[[T], R], items: Sequence[T], /) -> list[R]:
    """Run the tasks one after the other, in this process.

    >>> here(len, ["a", "bc"])
    [1, 2]
    """
    return [function(item) for item in items]


def size_of(item: object) -> int:
    """Return how many bytes a task reads, if it says so."""
    return int(getattr(item, "size_bytes", 0))


def share_out(sizes: Sequence[int], shares: int) -> list[list[int]]:
    """Share items out evenly; return their positions. The largest share comes first, and in it the largest item.

    >>> share_out([1, 9, 5, 4], 2)
    [[1, 0], [2, 3]]
    """
    lightest = [(0, share) for share in range(min(shares, len(sizes)))]
    packs: list[list[int]] = [[] for _ in lightest]
    for position in sorted(range(len(sizes)), key=lambda position: -sizes[position]):
        weight, share = heapq.heappop(lightest)
        packs[share].append(position)
        heapq.heappush(lightest, (weight + sizes[position], share))
    by_weight = sorted(lightest, key=lambda pair: -pair[0])
    return [packs[share] for _, share in by_weight if packs[share]]
