"""Processes that use one table, each a thread that stops before every request to the store until it is told to go on.

So an interleaving is a list of numbers, and can be repeated. Threads have nothing in common but the store, and take its
lock as processes do. One of them can be killed before any request.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Semaphore, Thread, get_ident
from typing import Any, TypeVar

import pytest

from bucketlake.commit import heartbeat, locks, yielding
from bucketlake.storage import Store
from bucketlake.testing.faulty_store import FaultyStore, InjectedError
from bucketlake.write import job

T = TypeVar("T")

_REQUESTED = re.compile(
    r"put_new \.hoodie/timeline/(\d{17})\.(?:commit|deltacommit|replacecommit)\.requested"
)

_CHANGE = re.compile(r"(?:put|put_new|delete) \.hoodie/(?!\.heartbeat|\.temp|\.locks)")


@dataclass
class Task:
    """Something that somebody does with a table: one public call."""

    name: str
    act: Callable[[Store], object]
    instants: list[str] = field(default_factory=list)
    """What it has announced, attempt by attempt."""
    result: object = None
    error: BaseException | None = None
    is_late: bool = False
    """Whether time has passed since it began, so that others may have taken it for dead."""


class Actor(FaultyStore):
    """A thread that does a task, and the store as it sees it: it stops before every request."""

    def __init__(self, inner: Store, task: Task) -> None:
        super().__init__(inner)
        self.task = task
        self.is_over = False
        self.is_killed = False
        self._go, self._stopped = Semaphore(0), Semaphore(0)
        self._thread = Thread(target=self._run, name=task.name, daemon=True)
        self._thread.start()
        self._stopped.acquire()

    def step(self, count: int) -> None:
        """Let it send so many requests, or as many as are left."""
        for _ in range(count):
            if self.is_over:
                return
            self._go.release()
            self._stopped.acquire()

    def step_changes(self, count: int) -> None:
        """Let it go on until it has changed the timeline, claims, rules or rings so many times."""
        while count and not self.is_over:
            self.step(1)
            count -= _CHANGE.match(self.operations[-1]) is not None if self.operations else 0

    def kill(self) -> None:
        self.is_killed = True
        while not self.is_over:
            self.step(1)

    def _run(self) -> None:
        try:
            self.task.result = self.task.act(self)
        except BaseException as error:
            self.task.error = error
        self.is_over = True
        self._stopped.release()

    def _do(self, what: str, act: Callable[[], T]) -> T:
        self._stopped.release()
        self._go.acquire()
        if self.is_killed:
            raise InjectedError(f"killed before {what}")
        found = _REQUESTED.fullmatch(what)
        if found:
            self.task.instants.append(found[1])
        return super()._do(what, act)


class _EachForItself(dict[str, Any]):
    """No lock among threads: here they stand for processes. What one of them holds, it holds once."""

    def setdefault(self, key: str, default: Any = None) -> Any:
        return super().setdefault(f"{key} of {get_ident()}", default)


@contextmanager
def processes_without_clocks() -> Iterator[None]:
    """Nobody sleeps, whoever waits for a lock gives up after some tries, and nobody beats behind our back."""
    ticks = itertools.count()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(locks, "_turns", _EachForItself())
        patch.setattr(locks, "sleep", lambda seconds: None)
        patch.setattr(locks, "monotonic", lambda: next(ticks) * 3.0)
        patch.setattr(locks, "RENEW_SECONDS", 1e6)
        patch.setitem(heartbeat.Heartbeat.__init__.__kwdefaults__, "every_seconds", 1e6)
        patch.setattr(job, "sleep", lambda seconds: None)
        patch.setattr(yielding.Turn, "give_way", lambda turn, *, asks=True: None)
        yield
