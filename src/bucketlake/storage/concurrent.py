"""Many requests at once: what waits for a store waits together."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from bucketlake.storage.store import Store

T = TypeVar("T")
R = TypeVar("R")


def in_parallel(function: Callable[[T], R], items: Iterable[T], store: Store) -> list[R]:
    """Return `function` of each item, in their order, with as many under way as pays off for `store`."""
    wanted = list(items)
    at_once = min(len(wanted), store.requests_at_once)
    if at_once < 2:
        return [function(item) for item in wanted]
    with ThreadPoolExecutor(at_once) as pool:
        return list(pool.map(function, wanted))
