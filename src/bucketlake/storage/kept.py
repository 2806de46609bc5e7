"""What was found out about files that do not change, kept for who comes back.

A file that was replaced has another version, and what is kept of it is another's.
"""

from __future__ import annotations

from collections import OrderedDict
from threading import Lock
from typing import Generic, TypeVar

from bucketlake.storage.store import FileStat, Store

Fact = TypeVar("Fact")


class Kept(Generic[Fact]):
    """Facts of files, those used last, up to some bytes."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._bytes = 0
        self._facts: OrderedDict[tuple[str, str, str], tuple[Fact, int]] = OrderedDict()
        self._guard = Lock()

    def get(self, store: Store, file: FileStat) -> Fact | None:
        key = store.uri, file.path, file.version
        with self._guard:
            if key not in self._facts:
                return None
            self._facts.move_to_end(key)
            return self._facts[key][0]

    def put(self, store: Store, file: FileStat, fact: Fact, size_bytes: int) -> None:
        key = store.uri, file.path, file.version
        with self._guard:
            if key not in self._facts and size_bytes <= self._bytes_max:
                self._facts[key] = fact, size_bytes
                self._bytes += size_bytes
            while self._bytes > self._bytes_max:
                _, (_, oldest_bytes) = self._facts.popitem(last=False)
                self._bytes -= oldest_bytes
