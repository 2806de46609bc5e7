"""A store that fails on purpose, for tests of what must survive that.

    FaultyStore(store, fails_at=7)                      the 7th operation fails, before it does anything
    FaultyStore(store, fails_at=7, took_effect=True)    it does what it should, then fails: an answer lost on the way
    FaultyStore(store, fails_at=7, is_dead=True)        and so does every operation after it: the process was killed
    FaultyStore(store, fails_at=7, refuses=ENOSPC)      from the 7th on nothing can be written: the disk is full
    FaultyStore(store, fails_at=7, refuses=EROFS)       nor deleted: it can only be read
    FaultyStore(store, fails_at=7, refuses=EACCES)      nor read: the permission was withdrawn
    FaultyStore(store, fails_at=7, meanwhile=act)       the 7th is held up, and others get time to `act` on the store

The others are another process, as far as locks go: what the held-up thread holds, they have to wait for.

A table must survive each of them at every operation: count them with `fails_at=None`, then try all numbers.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

from bucketlake.commit import locks
from bucketlake.storage import FileStat, Listing, Store

T = TypeVar("T")

_LOOKS = ("list", "stat", "read")


@contextmanager
def _as_another_process() -> Iterator[None]:
    """Let this thread forget the locks it holds: it would pass through them."""
    held = locks._turns
    locks._turns = {}
    try:
        yield
    finally:
        locks._turns = held


class InjectedError(OSError):
    """What a `FaultyStore` raises, unless it refuses."""


class FaultyStore:
    """Another store, whose operations are counted, and fail as told."""

    def __init__(
        self,
        inner: Store,
        *,
        fails_at: int | None = None,
        took_effect: bool = False,
        is_dead: bool = False,
        refuses: int | None = None,
        meanwhile: Callable[[Store], object] | None = None,
    ) -> None:
        self.inner = inner
        self.operations: list[str] = []
        """What was asked for, such as `put_new a/b`."""
        self._fails_at = fails_at
        self._took_effect = took_effect
        self._is_dead = is_dead
        self._refuses = refuses
        self._meanwhile = meanwhile

    @property
    def uri(self) -> str:
        return self.inner.uri

    @property
    def requests_at_once(self) -> int:
        return 1  # in one order, so that a number means the same operation in every run

    def list(self, folder: str, *, recursive: bool = False) -> Listing:
        return self._do(f"list {folder}", lambda: self.inner.list(folder, recursive=recursive))

    def stat(self, path: str) -> FileStat:
        return self._do(f"stat {path}", lambda: self.inner.stat(path))

    def read(self, path: str, *, offset: int = 0, length: int | None = None) -> bytes:
        return self._do(f"read {path}", lambda: self.inner.read(path, offset=offset, length=length))

    def put(self, path: str, data: bytes | Path) -> None:
        self._do(f"put {path}", lambda: self.inner.put(path, data))

    def put_new(self, path: str, data: bytes | Path) -> bool:
        return self._do(f"put_new {path}", lambda: self.inner.put_new(path, data))

    def replace_if(self, path: str, data: bytes | Path, version: str) -> bool:
        return self._do(f"replace_if {path}", lambda: self.inner.replace_if(path, data, version))

    def delete(self, path: str) -> None:
        self._do(f"delete {path}", lambda: self.inner.delete(path))

    def _do(self, what: str, act: Callable[[], T]) -> T:
        self.operations.append(what)
        number = len(self.operations)
        if self._fails_at is None or number < self._fails_at:
            return act()
        if self._refuses is not None:
            self._refuse(self._refuses, what)
            return act()
        if self._meanwhile is not None:
            if number == self._fails_at:
                with _as_another_process():
                    self._meanwhile(self.inner)
            return act()
        if number > self._fails_at:
            if self._is_dead:
                raise InjectedError(errno.EIO, f"dead before operation {number}: {what}")
            return act()
        if self._took_effect:
            with suppress(Exception):  # an error is an answer too
                act()
        raise InjectedError(errno.EIO, f"operation {number} failed: {what}")

    def _refuse(self, code: int, what: str) -> None:
        verb, _, path = what.partition(" ")
        is_allowed = {errno.ENOSPC: (*_LOOKS, "delete"), errno.EROFS: _LOOKS}.get(code, ())
        if verb not in is_allowed:
            raise OSError(code, os.strerror(code), f"{self.uri}/{path}")
