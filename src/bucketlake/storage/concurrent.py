"""Many requests at once: what waits for a store waits together.

One pool of threads serves the process. Starting threads for every listing would cost more than a local disk
takes to answer, and a pool of its own for every caller would multiply them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import TypeVar

REQUESTS_AT_ONCE = 16

T = TypeVar("T")
R = TypeVar("R")


@lru_cache(maxsize=1)
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(REQUESTS_AT_ONCE, thread_name_prefix="bucketlake")


# A forked process inherits the pool without its threads, and would wait for them for ever.
os.register_at_fork(after_in_child=_pool.cache_clear)


def in_parallel(function: Callable[[T], R], items: Iterable[T]) -> list[R]:
    """Return `function` of each item, in their order; the first error is raised.

    `function` must not call `in_parallel` itself: it would wait for a thread that waits for it.
    """
    wanted = list(items)
    if len(wanted) < 2:
        return [function(item) for item in wanted]
    return list(_pool().map(function, wanted))
