"""What waits for a store waits together, and no more of it than fits."""

from __future__ import annotations

import time
from collections.abc import Iterator
from threading import Lock

import pytest

from bucketlake.storage import MemoryStore, overlapped
from bucketlake.storage.concurrent import OVERLAPPED_BYTES


class Far(MemoryStore):
    @property
    def requests_at_once(self) -> int:
        return 4


class Watched:
    """A function that takes a while, and knows how much of it was under way at once."""

    def __init__(self) -> None:
        self.under_way: list[int] = []
        self.most: list[int] = []
        self._lock = Lock()

    def __call__(self, item: int) -> int:
        with self._lock:
            self.under_way.append(item)
            self.most = max(self.most, list(self.under_way), key=len)
        time.sleep(0.02)
        with self._lock:
            self.under_way.remove(item)
        return -item


def test_small_ones_are_under_way_together_and_come_in_their_order() -> None:
    watched = Watched()
    assert list(overlapped(watched, range(12), Far(), bytes_of=lambda _: 1)) == [-n for n in range(12)]
    assert 2 <= len(watched.most) <= 4


def test_large_ones_are_worked_on_alone() -> None:
    watched = Watched()
    assert list(overlapped(watched, range(5), Far(), bytes_of=lambda _: OVERLAPPED_BYTES)) == [
        -n for n in range(5)
    ]
    assert len(watched.most) == 1


def test_where_there_is_nothing_to_wait_for_one_follows_the_other() -> None:
    watched = Watched()
    taken: list[int] = []

    def items() -> Iterator[int]:
        for item in range(3):
            taken.append(item)
            yield item

    found = overlapped(watched, items(), MemoryStore(), bytes_of=lambda _: 1)
    assert next(found) == 0
    assert taken == [0]


def test_a_failure_leaves_nothing_under_way() -> None:
    watched = Watched()

    def fails_at_once(item: int) -> int:
        if item == 0:
            raise ConnectionError
        return watched(item)

    with pytest.raises(ConnectionError):
        list(overlapped(fails_at_once, range(4), Far(), bytes_of=lambda _: 1))
    assert watched.most, "the others had begun"
    assert watched.under_way == []
