"""What a question costs: wall time, CPU of a process tree, its memory, and the CPU others took meanwhile.

CPU time is the measure to compare by: on a busy machine wall time is mostly the neighbours'. A live process's
time is read from its CPU clock, to the nanosecond; what its ended children took is in /proc, to the tick. A
process that ends between two readings moves from the one to the other, so nothing is lost, unless its parent ignores
its end: then the system forgets what it took. Spark's daemon does so, and ends workers that idle; of these the last
sample counts.

Memory is what the tree has in memory, sampled. A page that several processes share, as forked Python workers do,
counts once: of each, its proportional set is summed. Linux only.
"""

from __future__ import annotations

import os
import platform
import signal
import threading
import time
from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

SAMPLE_SECONDS = 0.5

_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
_PROC = Path("/proc")

Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class Cost:
    wall_s: float
    cpu_s: float
    """Of the process tree."""
    others_cpu_s: float
    """Of every other process but the meter's own."""
    peak_memory_bytes: int


@dataclass(frozen=True, slots=True)
class Metered(Generic[Answer]):
    answer: Answer
    cost: Cost


def metered(root: int, question: Callable[[], Answer]) -> Metered[Answer]:
    """Ask, and say what the tree below process `root` paid for the answer."""
    before = _read_clocks(root)
    sampler = _Sampler(root)
    sampler.start()
    start = time.perf_counter()
    answer = question()
    wall_s = time.perf_counter() - start
    peak = sampler.stop()
    after = _read_clocks(root)
    own = sum(after.tree_s.values()) + sampler.forgotten_s(after.tree_s) - sum(before.tree_s.values())
    meter = 0.0 if root == os.getpid() else after.meter_s - before.meter_s
    others = max(0.0, after.machine_s - before.machine_s - own - meter)
    return Metered(answer, Cost(wall_s, own, others, peak))


def machine() -> str:
    """Name what is measured on."""
    return f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}"


def cpu_s_so_far(root: int) -> float:
    """Say what the tree below a process has taken since it began."""
    return sum(_read_clocks(root).tree_s.values())


@dataclass(frozen=True, slots=True)
class _Clocks:
    tree_s: dict[int, float]
    """By process."""
    meter_s: float
    machine_s: float


def _read_clocks(root: int) -> _Clocks:
    tree_s = {process: _cpu_s(process) for process in _tree(root)}
    return _Clocks(tree_s, time.process_time(), _machine_busy_s())


class _Sampler(threading.Thread):
    """Keeps the most memory seen, and the time of processes whose end nobody will ask about."""

    def __init__(self, root: int) -> None:
        super().__init__(daemon=True)
        self._root = root
        self._ended = threading.Event()
        self._peak = 0
        self._unasked_s: dict[int, float] = {}
        self._sample()

    def run(self) -> None:
        while not self._ended.wait(SAMPLE_SECONDS):
            self._sample()

    def stop(self) -> int:
        """Return the most memory seen."""
        self._ended.set()
        self.join()
        self._sample()
        return self._peak

    def forgotten_s(self, alive: Container[int]) -> float:
        """Return what those have taken that are not alive any more."""
        return sum(taken for process, taken in self._unasked_s.items() if process not in alive)

    def _sample(self) -> None:
        self._peak = max(self._peak, sum(map(_memory_bytes, _resident(self._root))))
        tree = _tree(self._root)
        unasking = {process for process in tree if _ignores_ends(process)}
        for process in tree:
            fields = _stat_fields(process)
            if fields and int(fields[1]) in unasking:
                self._unasked_s[process] = _cpu_s(process)


def process_tree(root: int) -> list[tuple[int, int]]:
    """List a process and those below it, each with its parent; 0 for that of the root."""
    children: dict[int, list[int]] = {}
    for process, parent in _parents():
        children.setdefault(parent, []).append(process)
    found = [(root, 0)]
    for process, _ in found:
        found += [(child, process) for child in children.get(process, [])]
    return found


def _tree(root: int) -> list[int]:
    return [process for process, _ in process_tree(root)]


def _parents() -> Iterator[tuple[int, int]]:
    for entry in os.listdir(_PROC):  # noqa: PTH208 - a Path for every process, twice a second, is a cost of its own
        if entry.isdigit():
            fields = _stat_fields(int(entry))
            if fields:
                yield int(entry), int(fields[1])


def _ignores_ends(process: int) -> bool:
    """Whether a process ignores the signal that a child has ended."""
    try:
        lines = (_PROC / str(process) / "status").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return False
    ignored = next((int(line.split()[1], 16) for line in lines if line.startswith("SigIgn:")), 0)
    return bool(ignored >> (signal.SIGCHLD - 1) & 1)


def _stat_fields(process: int) -> list[str]:
    """Return the fields of /proc/<pid>/stat from the state on, or none if the process is gone."""
    try:
        return (_PROC / str(process) / "stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return []


def _cpu_s(process: int) -> float:
    fields = _stat_fields(process)
    if not fields:
        return 0.0
    ended_children = int(fields[13]) + int(fields[14])
    try:
        own = time.clock_gettime((~process << 3) | 2)  # how Linux numbers the CPU clock of a process
    except OSError:  # a zombie has no clock any more
        own = (int(fields[11]) + int(fields[12])) / _TICKS_PER_SECOND
    return own + ended_children / _TICKS_PER_SECOND


def _resident(root: int) -> list[int]:
    """Return the tree without children that have not yet called exec.

    Hadoop's local file system runs small programs, and such a child shows the JVM's heap as its own at first.
    """
    return [process for process in _tree(root) if process == root or not _is_half_born(process)]


def _is_half_born(process: int) -> bool:
    fields = _stat_fields(process)
    if not fields:
        return True
    command = _command(process)
    return b"java" in command.split(b"\0", 1)[0] and command == _command(int(fields[1]))


def _command(process: int) -> bytes:
    try:
        return (_PROC / str(process) / "cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""


def _memory_bytes(process: int) -> int:
    try:
        lines = (_PROC / str(process) / "smaps_rollup").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:")), 0)


def _machine_busy_s() -> float:
    with (_PROC / "stat").open() as stat:
        user, nice, system, _idle, _iowait, irq, softirq, steal = map(int, stat.readline().split()[1:9])
    return (user + nice + system + irq + softirq + steal) / _TICKS_PER_SECOND
