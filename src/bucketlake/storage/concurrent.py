"""Many requests at once: what waits for a store waits together."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from threading import main_thread
from typing import TypeVar

from bucketlake.storage.store import Store

OVERLAPPED_BYTES = 64 << 20
"""What is overlapped may take so much memory in all."""

T = TypeVar("T")
R = TypeVar("R")


def in_parallel(function: Callable[[T], R], items: Iterable[T], store: Store) -> list[R]:
    """Return `function` of each item, in their order, with as many under way as pays off for `store`."""
    wanted = list(items)
    at_once = min(len(wanted), store.requests_at_once)
    # A process that is on its way out begins no threads; what publishes a commit may still be at work in it.
    if at_once < 2 or not main_thread().is_alive():
        return [function(item) for item in wanted]
    with ThreadPoolExecutor(at_once) as pool:
        return list(pool.map(function, wanted))


def overlapped(
    function: Callable[[T], R], items: Iterable[T], store: Store, *, bytes_of: Callable[[T], int]
) -> Iterator[R]:
    """Yield `function` of each item, in their order; what waits for the store waits together, as far as it is small.

    `bytes_of` says how much memory an item takes while it is worked on. Items are taken as there is room for them. If
    one fails, those that are under way are waited for.
    """
    if store.requests_at_once < 2:
        yield from map(function, items)
        return
    under_way: deque[tuple[Future[R], int]] = deque()
    taken = 0
    with ThreadPoolExecutor(store.requests_at_once) as pool:
        for item in items:
            size = bytes_of(item)
            while under_way and (len(under_way) >= store.requests_at_once or taken + size > OVERLAPPED_BYTES):
                done, its_size = under_way.popleft()
                taken -= its_size
                yield done.result()
            under_way.append((pool.submit(function, item), size))
            taken += size
        while under_way:
            yield under_way.popleft()[0].result()
