"""The table lock: at most one writer checks and commits at a time, Hudi's writers included.

    shared disk      .hoodie/lock                    there while somebody holds it     (FileSystemBasedLockProvider)
    object stores    .hoodie/.locks/table_lock.json  {"expired": false, "validUntil": ms, "owner": "...",
                                                      "process": {"bootId": "...", "pidNamespace": 4026531836,
                                                                  "pid": 17, "startTime": 4711}}
                                                     replaced on condition             (StorageBasedLockProvider)
    memory           none: one process is all there is

`process` is ours; Hudi's StorageLockFile passes over keys that it does not know. The lock of a process of this host
that is provably dead (`processes`) is taken over at once.

Threads of one process line up for a lock of their own first. A thread that holds a table's lock may enter again: the
inner block asks the store for nothing and gives nothing back. A lock is held for the seconds of a commit, and renewed
if that takes longer; one whose time has run out is taken over. Whoever lost a lock that way cannot commit any more,
but not because of the lock: commits are decided by claims, and the lock only keeps writers from trying in vain. Where
files have the same names whoever puts them, and no claim tells whose they are, changes go through `WhileHeld`.

A lease (`lease`) is such a file too, under a name of ours and on every store. Nobody waits for one.

Hudi leaves nothing in `.hoodie/lock`, not even a time, so a lock that a dead Hudi left there stays until somebody
deletes it; we say so when we have waited long enough.
"""

from __future__ import annotations

import json
import logging
import os
import random
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Lock, RLock, Thread
from time import monotonic, sleep

from bucketlake.commit.processes import Process, is_provably_dead, this_process
from bucketlake.errors import CommitConflictError, ConflictError
from bucketlake.storage import FileStat, Listing, Store
from bucketlake.timeline.clock import system_ms

DISK_LOCK_PATH = ".hoodie/lock"
OBJECT_LOCK_PATH = ".hoodie/.locks/table_lock.json"

VALID_MS = 300_000
"""As long as Hudi's: a holder that shows no sign of life for so long is taken for dead."""
RENEW_SECONDS = 30.0
WAIT_SECONDS = 60.0
DRIFT_MS = 500
"""How far clocks may be apart, as Hudi has it."""

_log = logging.getLogger("bucketlake.write")
_chance = random.Random(os.getpid())


class _Turn:
    """One table's lock among the threads of this process."""

    def __init__(self) -> None:
        self.lock = RLock()
        self.held_in: int | None = None
        """The process whose thread is inside: a fork inherits the lock of its parent's thread, but not the file."""
        self.file: _FileLock | None = None
        """What it holds; nothing of a table in memory."""


_turns: dict[str, _Turn] = {}
_turns_guard = Lock()


@dataclass(frozen=True, slots=True)
class _Held:
    """What a lock file says of its holder."""

    owner: str
    valid_until_ms: int
    process: Process | None = None

    def render(self, *, expired: bool = False) -> bytes:
        body: dict[str, object] = {
            "expired": expired,
            "validUntil": self.valid_until_ms,
            "owner": self.owner,
        }
        if self.process is not None:
            body["process"] = {
                "bootId": self.process.boot_id,
                "pidNamespace": self.process.pid_namespace,
                "pid": self.process.pid,
                "startTime": self.process.start_time,
            }
        return json.dumps(body).encode()

    @classmethod
    def parse(cls, data: bytes) -> _Held | None:
        """Read a lock file; None if that is nothing we understand, as with Hudi's on disk."""
        try:
            body = json.loads(data or b"{}")
            expired, until, owner = body.get("expired", False), body["validUntil"], body["owner"]
            return cls(str(owner), -DRIFT_MS - 1 if expired else int(until), _process(body.get("process")))
        except (ValueError, KeyError, TypeError, AttributeError):
            return None


def _process(said: object) -> Process | None:
    match said:
        case {
            "bootId": str(boot_id),
            "pidNamespace": int(namespace),
            "pid": int(pid),
            "startTime": int(start_time),
        }:
            return Process(boot_id, namespace, pid, start_time)
        case _:
            return None


@contextmanager
def table_lock(
    store: Store, *, wait_seconds: float | None = None, now_ms: Callable[[], int] = system_ms
) -> Iterator[Store]:
    """Hold the table's lock while the block runs; `ConflictError` if it was not to be had in time.

    A thread that holds it already goes in at once. The outermost block gives it back. The block gets the store as it
    may be changed by who has the lock: not any more once that may have run out.
    """
    if wait_seconds is None:
        wait_seconds = WAIT_SECONDS
    deadline = monotonic() + wait_seconds
    with _turns_guard:
        turn = _turns.setdefault(store.uri, _Turn())
    if not turn.lock.acquire(timeout=wait_seconds):
        raise _too_long(store, "another thread of this process", wait_seconds)
    outer = turn.held_in
    try:
        if outer == os.getpid():
            yield _while_held(store, turn.file)
            return
        with _held_by_this_process(store, deadline, wait_seconds, now_ms) as file:
            turn.held_in, turn.file = os.getpid(), file
            yield _while_held(store, file)
    finally:
        turn.held_in = outer
        turn.lock.release()


@contextmanager
def _held_by_this_process(
    store: Store, deadline: float, wait_seconds: float, now_ms: Callable[[], int]
) -> Iterator[_FileLock | None]:
    if store.uri.startswith("memory:"):
        yield None
        return
    lock = _FileLock(store, now_ms)
    try:
        lock.acquire(deadline, wait_seconds)
    except OSError:
        lock.release()  # It may be ours all the same, if only the answer was lost.
        raise
    with lock.renewed():
        yield lock


@dataclass(frozen=True, slots=True)
class WhileHeld:
    """A table's store for who has its lock: it changes nothing once others may have that.

    Who slept would delete what they have put under the same name, or put what is not so any more over it.
    """

    inner: Store
    lock: _FileLock

    @property
    def uri(self) -> str:
        return self.inner.uri

    @property
    def requests_at_once(self) -> int:
        return self.inner.requests_at_once

    def list(self, folder: str, *, recursive: bool = False) -> Listing:
        return self.inner.list(folder, recursive=recursive)

    def stat(self, path: str) -> FileStat:
        return self.inner.stat(path)

    def read(self, path: str, *, offset: int = 0, length: int | None = None) -> bytes:
        return self.inner.read(path, offset=offset, length=length)

    def put(self, path: str, data: bytes | Path) -> None:
        self.lock.check_held()
        self.inner.put(path, data)

    def put_new(self, path: str, data: bytes | Path) -> bool:
        self.lock.check_held()
        return self.inner.put_new(path, data)

    def replace_if(self, path: str, data: bytes | Path, version: str) -> bool:
        self.lock.check_held()
        return self.inner.replace_if(path, data, version)

    def delete(self, path: str) -> None:
        self.lock.check_held()
        self.inner.delete(path)


def _while_held(store: Store, lock: _FileLock | None) -> Store:
    return store if lock is None else WhileHeld(store, lock)


@contextmanager
def lease(store: Store, path: str, *, now_ms: Callable[[], int] = system_ms) -> Iterator[bool]:
    """Be the only one at something while the block runs; the block is told False if somebody else is.

    Dead holders are told as those of the table lock are. Whoever lost a lease, because it slept, does not notice: what
    is done under one must do no harm if two do it.
    """
    held = _FileLock(store, now_ms, lease_path=path)
    try:
        is_ours = held.try_acquire()
    except OSError:
        held.release()  # It may be ours all the same, if only the answer was lost.
        raise
    if not is_ours:
        yield False
        return
    with held.renewed():
        yield True


class _FileLock:
    """A lock file, taken by putting it, or by replacing one whose holder is dead."""

    def __init__(self, store: Store, now_ms: Callable[[], int], *, lease_path: str | None = None) -> None:
        self._store = store
        self._now_ms = now_ms
        is_disk = "://" not in store.uri or store.uri.startswith("file:")
        self._path = lease_path or (DISK_LOCK_PATH if is_disk else OBJECT_LOCK_PATH)
        # Hudi never deletes the lock of an object store: what it finds there it replaces.
        self._is_deleted = is_disk or lease_path is not None
        # Every holder is somebody else, even in one process: a lock that was lost must not look like ours.
        self._owner = f"bucketlake-{socket.gethostname()}-{os.getpid()}-{_chance.getrandbits(64):016x}"
        self._process = this_process()
        self._valid_until_ms = 0

    def check_held(self) -> None:
        """Raise `CommitConflictError` if others may have taken the lock over, because this process slept."""
        if self._now_ms() > self._valid_until_ms:
            raise CommitConflictError(
                f"this process slept until its lock of {self._store.uri} ran out, and others may have changed what it "
                f"was about to. It stopped, and nothing of it is visible. Run it again."
            )

    def acquire(self, deadline: float, wait_seconds: float) -> None:
        pause = 0.01
        while not self.try_acquire():
            if monotonic() > deadline:
                raise _too_long(self._store, self._holder(), wait_seconds)
            sleep(pause * (0.5 + _chance.random()))
            pause = min(2 * pause, 0.5)

    @contextmanager
    def renewed(self) -> Iterator[None]:
        """Keep the lock alive while the block runs, and release it then."""
        ended = Event()

        def renew() -> None:
            while not ended.wait(RENEW_SECONDS):
                try:
                    self._replace_own(expired=False)
                except Exception as fault:
                    _log.warning("the lock of %s was not renewed: %s", self._store.uri, fault)

        thread = Thread(target=renew, name=f"lock of {self._store.uri}", daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()
            self.release()

    def try_acquire(self) -> bool:
        """Take the lock if it is to be had now."""
        fresh = self._fresh()
        mine = fresh.render()
        if self._store.put_new(self._path, mine):
            self._valid_until_ms = fresh.valid_until_ms
            return True
        found = self._found()
        if found is None:
            return False
        stat, held = found
        if held is not None and held.owner == self._owner:
            self._valid_until_ms = held.valid_until_ms
            return True  # The answer to our first try was lost on the way.
        if held is None or not (self._has_run_out(held) or _is_of_the_dead(held)):
            return False
        is_ours = self._store.replace_if(self._path, mine, stat.version)
        self._valid_until_ms = fresh.valid_until_ms if is_ours else 0
        return is_ours

    def _has_run_out(self, held: _Held) -> bool:
        return self._now_ms() > held.valid_until_ms + DRIFT_MS

    def release(self) -> None:
        """Give the lock up, unless it was taken from us."""
        try:
            if not self._is_deleted:
                self._replace_own(expired=True)
            elif self._replace_own(expired=False):
                # Renewed just now: nobody takes it over before it is gone.
                self._store.delete(self._path)
        except Exception as fault:
            _log.warning(
                "the lock of %s was not released, and will run out by itself: %s", self._store.uri, fault
            )

    def _replace_own(self, *, expired: bool) -> bool:
        found = self._found()
        if found is None or found[1] is None or found[1].owner != self._owner:
            return False
        fresh = self._fresh()
        is_ours = self._store.replace_if(self._path, fresh.render(expired=expired), found[0].version)
        if is_ours and not expired:
            self._valid_until_ms = fresh.valid_until_ms
        return is_ours

    def _found(self) -> tuple[FileStat, _Held | None] | None:
        """Return the lock file, and what it says, if we understand it."""
        try:
            stat = self._store.stat(self._path)
            return stat, _Held.parse(self._store.read(self._path))
        except FileNotFoundError:
            return None

    def _fresh(self) -> _Held:
        return _Held(self._owner, self._now_ms() + VALID_MS, self._process)

    def _holder(self) -> str:
        found = self._found()
        if found is None:
            return "somebody who has just released it"
        stat, held = found
        age = max(0, self._now_ms() - stat.modified_ms) // 1000
        if held is None:
            return f"a writer that left no name in {self._path}, as Hudi does, {age} s ago; if dead, delete the file"
        return f"{held.owner}, renewed {age} s ago"


def _is_of_the_dead(held: _Held) -> bool:
    return held.process is not None and is_provably_dead(held.process)


def _too_long(store: Store, holder: str, wait_seconds: float) -> ConflictError:
    return ConflictError(
        f"the lock of {store.uri} was not to be had within {wait_seconds:.0f} s: it is held by {holder}. "
        f"Nothing of ours is visible. Try again."
    )
