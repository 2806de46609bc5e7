"""Let a writer that keeps being overtaken go first, once.

    .hoodie/.bucketlake/yield/<name>    {"until_ms": ...}

A long batch beside short ones that touch the same keys loses every time: whoever is done first commits, and the batch
is run again whole. After some tries it asks the others to wait. They look before they commit, wait until it is done or
its time is over, and then find it in their way, once. Nothing depends on it but who waits: a record that its writer has
left behind runs out, and one that nobody heeds changes nothing.
"""

from __future__ import annotations

import json
import logging
import os
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from time import sleep

from bucketlake.layout.names import YIELD_FOLDER
from bucketlake.storage import Store
from bucketlake.timeline.clock import system_ms

YIELD_MS_MAX = 15 * 60 * 1000
"""Nobody waits longer."""
RUNS_BEFORE_ASKING = 2
"""After so many a writer asks others to wait."""

_LOOK_SECONDS = 0.5
_log = logging.getLogger("bucketlake.commit")
_chance = random.Random(os.getpid())


@dataclass(slots=True)
class Turn:
    """A writer's place among others: entered for every run of its write.

    Those that place keys by a hash, and whose rows do not depend on the table, write again only what others have
    changed: they never ask, and wait for others only.
    """

    store: Store
    now_ms: Callable[[], int] = system_ms
    wait: Callable[[float], None] = sleep
    name: str = field(default_factory=lambda: f"{os.getpid()}-{_chance.getrandbits(64):016x}")
    runs: int = 0
    started_ms: int = 0
    is_needed: bool = False

    @property
    def _path(self) -> str:
        return f"{YIELD_FOLDER}/{self.name}"

    def __enter__(self) -> Turn:
        """From the third run on, ask others to wait: three times as long as the last run took."""
        now_ms = self.now_ms()
        took_ms, self.started_ms = now_ms - self.started_ms, now_ms
        self.runs += 1
        if self.is_needed and self.runs > RUNS_BEFORE_ASKING:
            until_ms = now_ms + min(3 * took_ms + 10_000, YIELD_MS_MAX)
            self.store.put(self._path, json.dumps({"until_ms": until_ms}).encode())
        return self

    def __exit__(self, *_: object) -> None:
        if self.is_needed and self.runs > RUNS_BEFORE_ASKING:
            self.store.delete(self._path)

    def give_way(self, *, asks: bool = True) -> None:
        """Wait while somebody else has asked to go first; before a write is committed.

        A writer that `asks` may ask for the same, after some more runs.
        """
        self.is_needed = asks
        is_said = False
        while (until_ms := self._others_until()) is not None:
            if not is_said:
                _log.info("%s: waiting for a writer that was overtaken several times", self.store.uri)
                is_said = True
            self.wait(min(_LOOK_SECONDS, max(0.0, (until_ms - self.now_ms()) / 1000)))

    def _others_until(self) -> int | None:
        """Return until when others have asked for, None if nobody has. Records whose time is over are deleted.

        Of two who have asked, the first by name goes first: both would wait for each other.
        """
        now_ms = self.now_ms()
        asked: dict[str, int] = {}
        for file in self.store.list(YIELD_FOLDER).files:
            try:
                until_ms = int(json.loads(self.store.read(file.path))["until_ms"])
            except FileNotFoundError:
                continue
            except (ValueError, KeyError, TypeError):
                until_ms = 0
            if now_ms < until_ms <= now_ms + YIELD_MS_MAX:
                asked[file.path.rpartition("/")[2]] = until_ms
            else:
                self.store.delete(file.path)
        others = {name: until_ms for name, until_ms in asked.items() if name != self.name}
        if not others or (self.name in asked and self.name < min(others)):
            return None
        return max(others.values())
