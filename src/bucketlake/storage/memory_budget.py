"""What a process remembers of the files it read, within one budget of memory.

A `FileCache` remembers one kind of fact (footers, key hashes, …), by file and
version: a file that was replaced has another version, so nothing in a cache is
ever out of date. All caches of a process share one `MemoryBudget`. Where it is
full, the fact that was used longest ago goes first, of whatever kind it is.

The budget is `BUCKETLAKE_MEMORY`, if the environment has it, else 256 MiB;
`set_memory_budget` changes it. Spark's workers are processes of their own: each
has its own budget, and takes it from its environment.
"""

from __future__ import annotations

import os
import sys
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from threading import Lock
from typing import Any, Generic, TypeVar

from bucketlake.errors import ConfigError
from bucketlake.storage.byte_sizes import parse_bytes, render_bytes
from bucketlake.storage.store import FileStat, Store

Fact = TypeVar("Fact")

VARIABLE = "BUCKETLAKE_MEMORY"
"""An environment variable: how many bytes a process may remember of the files it reads, such as `1GB`. Default: 256
MiB, which fits beside the rows of a task."""

DEFAULT_BYTES = 256 << 20
"""Enough to look keys up in some thousand files without opening them again, and little beside the gigabyte or more
that an executor gives to a worker."""

ENTRY_BYTES = 500
"""What an entry takes beside its fact and its texts: a tuple, a place in the order, small objects around the fact."""


@dataclass(frozen=True, slots=True)
class KindInUse:
    """What a process remembers of one kind."""

    kind: str
    entries: int
    size_bytes: int
    hits: int
    """How often it was asked for a fact and had it, since the process began."""
    misses: int


@dataclass(frozen=True, slots=True)
class MemoryInUse:
    """What a process remembers of files, by kind. Prints as a table."""

    budget_bytes: int
    kinds: tuple[KindInUse, ...]

    @property
    def size_bytes(self) -> int:
        return sum(kind.size_bytes for kind in self.kinds)

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        yield f"{'kind':<12}  {'entries':>9}  {'size':>10}  {'hits':>11}  {'misses':>11}"
        for kind in self.kinds:
            size = render_bytes(kind.size_bytes)
            yield f"{kind.kind:<12}  {kind.entries:>9,}  {size:>10}  {kind.hits:>11,}  {kind.misses:>11,}"
        yield f"{render_bytes(self.size_bytes)} of {render_bytes(self.budget_bytes)} in use"


class FileCache(Generic[Fact]):
    """Facts of one kind about files, within a budget that other kinds share."""

    def __init__(self, kind: str, budget: MemoryBudget | None = None) -> None:
        self._kind = kind
        self._budget = PROCESS_BUDGET if budget is None else budget
        self._budget.open(kind)

    def get(self, store: Store, file: FileStat) -> Fact | None:
        found: Fact | None = self._budget.get((self._kind, store.uri, file.path, file.version))
        return found

    def put(self, store: Store, file: FileStat, fact: Fact, size_bytes: int) -> None:
        """Remember a fact that takes so many bytes of memory, unless there is no room for one so large."""
        self._budget.put((self._kind, store.uri, file.path, file.version), fact, size_bytes)


_Key = tuple[str, str, str, str]
"""The kind of the fact; and the file: its store's uri, its path, its version."""


class MemoryBudget:
    """The one owner of what several caches remember: those used last, up to some bytes. Threads may share it."""

    def __init__(self, bytes_max: int | None = None) -> None:
        """None is what the environment says when it first matters: whoever imports the package is not to fail."""
        self._bytes_max = bytes_max
        self._bytes = 0
        self._entries: OrderedDict[_Key, tuple[Any, int]] = OrderedDict()
        self._kinds: dict[str, _Counts] = {}
        self._guard = Lock()

    def open(self, kind: str) -> None:
        with self._guard:
            assert kind not in self._kinds, f"two caches of {kind} would hand out each other's facts"
            self._kinds[kind] = _Counts()

    def get(self, key: _Key) -> Any:
        with self._guard:
            counts = self._kinds[key[0]]
            entry = self._entries.get(key)
            if entry is None:
                counts.misses += 1
                return None
            counts.hits += 1
            self._entries.move_to_end(key)
            return entry[0]

    def put(self, key: _Key, fact: Any, size_bytes: int) -> None:
        assert size_bytes >= 0
        size_bytes += ENTRY_BYTES + sum(map(sys.getsizeof, key[1:]))
        with self._guard:
            bytes_max = self._limit()
            # One file that takes more than half would leave too little for all others.
            if key not in self._entries and size_bytes <= bytes_max // 2:
                self._entries[key] = fact, size_bytes
                self._count(key, 1, size_bytes)
                self._shrink(bytes_max)

    def resize(self, bytes_max: int) -> None:
        """Change the bound; what is too much goes at once."""
        with self._guard:
            self._bytes_max = bytes_max
            self._shrink(bytes_max)

    def in_use(self) -> MemoryInUse:
        with self._guard:
            return MemoryInUse(
                self._limit(),
                tuple(
                    KindInUse(kind, counts.entries, counts.size_bytes, counts.hits, counts.misses)
                    for kind, counts in sorted(self._kinds.items())
                ),
            )

    def _limit(self) -> int:
        if self._bytes_max is None:
            self._bytes_max = _bytes_of_environment()
        return self._bytes_max

    def _shrink(self, bytes_max: int) -> None:
        while self._bytes > bytes_max:
            key, (_, size_bytes) = self._entries.popitem(last=False)
            self._count(key, -1, -size_bytes)

    def _count(self, key: _Key, entries: int, size_bytes: int) -> None:
        self._bytes += size_bytes
        self._kinds[key[0]].entries += entries
        self._kinds[key[0]].size_bytes += size_bytes


@dataclass(slots=True)
class _Counts:
    entries: int = 0
    size_bytes: int = 0
    hits: int = 0
    misses: int = 0


PROCESS_BUDGET = MemoryBudget()


def set_memory_budget(budget: int | str) -> None:
    """Let this process remember at most so many bytes of the files it reads: `1 << 30`, or `"1GB"`.

    A smaller budget takes effect at once. With 0, nothing is remembered and every read goes to the files. Other
    processes, such as Spark's workers, follow the environment variable `BUCKETLAKE_MEMORY`.
    """
    PROCESS_BUDGET.resize(checked_bytes(budget, name="the memory budget"))


def memory_in_use() -> MemoryInUse:
    """Return what this process remembers of files, by kind, and its budget. It prints as a table."""
    return PROCESS_BUDGET.in_use()


def _bytes_of_environment() -> int:
    text = os.environ.get(VARIABLE)
    if text is None:
        return DEFAULT_BYTES
    return checked_bytes(text, name=f"the environment variable {VARIABLE}")


def checked_bytes(given: object, *, name: str, default: int = DEFAULT_BYTES) -> int:
    """Read a bound that somebody gave: a number of bytes, or a text with a unit."""
    if isinstance(given, str):
        try:
            return parse_bytes(given)
        except ValueError:
            pass
    elif isinstance(given, int) and not isinstance(given, bool) and given >= 0:
        return given
    raise ConfigError(
        f"{name} is {given!r}. It must be a number of bytes, such as 536870912, or one with a unit, such as 512MB; "
        f"0 remembers nothing. Without it, it is {render_bytes(default)}."
    )
