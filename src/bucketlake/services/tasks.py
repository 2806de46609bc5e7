"""Who runs the tasks of a service: this process, or somebody with more hands.

A task is a plain function of a picklable value, and may be run twice. `Tasks` is a map over such values, in order;
`here` is the one that needs nothing.
"""

from __future__ import annotations

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
