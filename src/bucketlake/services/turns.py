"""One at a time: services that change the timeline itself take turns.

What is decided is decided by claims and `put_new`, and holds whoever else is at it; taking turns only keeps two from
getting in each other's way.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

from bucketlake.storage import Store
from bucketlake.timeline import Clock

_turns: dict[str, Lock] = {}
_guard = Lock()


@contextmanager
def in_turn(store: Store, clock: Clock) -> Iterator[None]:  # noqa: ARG001 # a lock on the store has its age
    """Wait for the threads of this process that are at the same table."""
    with _guard:
        turn = _turns.setdefault(store.uri, Lock())
    with turn:
        yield
