"""Heartbeats: how others tell a writer that is at work from one that died.

    .hoodie/.heartbeat/<instant>    its modification time is the last beat; Hudi's are empty, ours are not

The rule is Hudi's, for writers of its lazy policy: a pending write whose file is missing, or has not been touched
for two minutes, is dead, and may be rolled back. The file is there before the instant is, and goes after it. Its
age is told by the store's clock and ours together, so clocks minutes apart make the living look dead.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import suppress
from threading import Event, Thread
from types import TracebackType
from typing import Protocol, Self

from bucketlake.layout.names import HEARTBEAT_FOLDER, heartbeat_path, split_path
from bucketlake.storage import Store

BEAT_SECONDS = 30.0
DEAD_AFTER_MS = 2 * 60 * 1000

_OURS = b"bucketlake"

_log = logging.getLogger("bucketlake.write")


def start_heartbeat(store: Store, instant: str, *, owner: str = "") -> bool:
    """Make the heartbeat of an instant; False if another writer has one for the same time.

    The `owner` is the stream that the instant is of, if it is of one.
    """
    return store.put_new(heartbeat_path(instant), _said(owner))


def beat(store: Store, instant: str, *, owner: str = "") -> None:
    store.put(heartbeat_path(instant), _said(owner))


def _said(owner: str) -> bytes:
    return f"{_OURS.decode()} {owner}".encode() if owner else _OURS


def owner_of(store: Store, instant: str) -> str:
    """Return the stream that a pending instant is of; empty if it is of none, or its writer has ended."""
    try:
        words = store.read(heartbeat_path(instant)).decode(errors="replace").split(" ", 1)
    except FileNotFoundError:
        return ""
    return words[1] if words[0] == _OURS.decode() and len(words) > 1 else ""


def beat_along(store: Store, instant: str) -> None:
    """Beat for a writer in another process; one that has ended is not brought back."""
    path = heartbeat_path(instant)
    with suppress(FileNotFoundError):
        version = store.stat(path).version
        store.replace_if(path, store.read(path), version)


def take_over(store: Store, instant: str, *, now_ms: int) -> bool:
    """Beat for an instant whose process is dead; False if it is not, or somebody else was faster."""
    if start_heartbeat(store, instant):
        return True
    path = heartbeat_path(instant)
    try:
        last = store.stat(path)
        return not is_alive(last.modified_ms, now_ms=now_ms) and store.replace_if(path, _OURS, last.version)
    except FileNotFoundError:
        return False


def stop_heartbeat(store: Store, instant: str) -> None:
    store.delete(heartbeat_path(instant))


def list_heartbeats(store: Store) -> dict[str, int]:
    """Return instant -> last beat, in milliseconds since the epoch."""
    return {split_path(file.path)[1]: file.modified_ms for file in store.list(HEARTBEAT_FOLDER).files}


def living_strangers(store: Store, *, now_ms: int) -> Iterator[str]:
    """Name the instants of writers that are at work and are not ours."""
    for file in store.list(HEARTBEAT_FOLDER).files:
        if file.size_bytes == 0 and is_alive(file.modified_ms, now_ms=now_ms):
            yield split_path(file.path)[1]


def is_alive(last_beat_ms: int | None, *, now_ms: int) -> bool:
    """Tell whether a writer with this last beat is at work.

    >>> is_alive(1_000, now_ms=60_000), is_alive(1_000, now_ms=200_000), is_alive(None, now_ms=0)
    (True, False, False)
    """
    return last_beat_ms is not None and now_ms - last_beat_ms < DEAD_AFTER_MS


class Beating(Protocol):
    """A write under way: a `Transaction`."""

    @property
    def store(self) -> Store: ...

    @property
    def instant(self) -> str: ...


class Heartbeat:
    """Keeps a write's heartbeat going while the block runs.

    When the block ends, however it ends, the file is gone: a write that was not completed by then is up for
    rolling back. Unless it is another process's write, for which this one only beats along.
    """

    def __init__(
        self,
        write: Beating,
        *,
        every_seconds: float | None = None,
        is_another: bool = False,
        owner: str = "",
    ) -> None:
        self._store = write.store
        self._instant = write.instant
        self._owner = owner
        self._every_seconds = BEAT_SECONDS if every_seconds is None else every_seconds
        self._is_another = is_another
        self._ended = Event()
        self._thread = Thread(target=self._run, name=f"heartbeat of {write.instant}", daemon=True)

    def __enter__(self) -> Self:
        if self._is_another:
            self._try(beat_along)  # the last beat may be a while ago
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()
        if not self._is_another:
            self._try(stop_heartbeat)

    def _run(self) -> None:
        while not self._ended.wait(self._every_seconds):
            self._try(beat_along if self._is_another else self._beat)

    def _beat(self, store: Store, instant: str) -> None:
        beat(store, instant, owner=self._owner)

    def _try(self, act: Callable[[Store, str], None]) -> None:
        """A beat that fails is no reason to fail: the next may not, and the commit checks for itself."""
        try:
            act(self._store, self._instant)
        except Exception as fault:
            _log.warning("heartbeat of %s: %s", self._instant, fault)
