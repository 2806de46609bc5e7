"""`python -m benchmarks.cold_profile`: where the CPU seconds of a cold session go.

A new process makes a session, loads orders into a merge-on-read table, upserts two batches and scans, as in `cold`.
Its process tree is sampled, and what each thread has taken by the end of a step is told by what it is for:

    driver      Python: imports, planning, the commit
    compilers   the JVM's
    collectors  of the JVM's garbage
    JVM         its other threads: class loading, Spark's own work
    daemon      the process that Spark forks Python workers from: imports
    workers     Python: rows to files and back
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table as Shown

from benchmarks.cold import MERGE_ON_READ, ROWS
from benchmarks.contestants import BUCKETLAKE, CONTESTANTS, started
from benchmarks.data import BATCHES, make_orders
from benchmarks.meter import process_tree
from benchmarks.page import BENCHMARKS, fill

PARTS = ("driver", "compilers", "collectors", "JVM", "daemon", "workers")
SAMPLE_SECONDS = 0.1
_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
_PROC = Path("/proc")

Taken = Counter[str]
"""Seconds by part."""


class Sampler(threading.Thread):
    """Keeps what every thread of a process tree had taken when it was last seen."""

    def __init__(self, root: int) -> None:
        super().__init__(daemon=True)
        self._root = root
        self._seen: dict[tuple[int, str], tuple[str, float]] = {}
        self._lock = threading.Lock()
        self._ended = threading.Event()

    def run(self) -> None:
        while not self._ended.wait(SAMPLE_SECONDS):
            self.taken()

    def stop(self) -> None:
        self._ended.set()
        self.join()

    def taken(self) -> Taken:
        """Look once more, and sum up."""
        with self._lock:
            for process, parent in process_tree(self._root):
                self._look_at(process, parent)
            found: Taken = Counter()
            for part, seconds in self._seen.values():
                found[part] += seconds
            return found

    def _look_at(self, process: int, parent: int) -> None:
        is_java = _name(_PROC / str(process)) == "java"
        of_java = _name(_PROC / str(parent)) == "java"
        for thread in _threads(process):
            try:
                words = (thread / "stat").read_text()
            except (FileNotFoundError, ProcessLookupError):
                continue
            name, fields = words[words.index("(") + 1 : words.rindex(")")], words.rpartition(")")[2].split()
            seconds = (int(fields[11]) + int(fields[12])) / _TICKS_PER_SECOND
            if is_java:
                part = part_of_java(name)
            elif process == self._root:
                part = "driver"
            else:
                part = "daemon" if of_java else "workers"
            self._seen[process, thread.name] = part, seconds


def part_of_java(thread: str) -> str:
    """Say what a thread of the JVM is for, by the 15 characters that Linux keeps of its name.

    >>> [part_of_java(name) for name in ("C2 CompilerThre", "GC Thread#1", "G1 Conc#0", "Executor task l")]
    ['compilers', 'collectors', 'collectors', 'JVM']
    """
    if "CompilerThre" in thread:
        return "compilers"
    return "collectors" if thread.startswith(("GC Thread", "G1 ")) else "JVM"


def _threads(process: int) -> list[Path]:
    try:
        return list((_PROC / str(process) / "task").iterdir())
    except (FileNotFoundError, ProcessLookupError):
        return []


def _name(process: Path) -> str:
    try:
        return (process / "comm").read_text().strip()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def profile(name: str, rows: int, place: Path, driver_memory: str) -> Shown:
    orders = make_orders(rows, place / str(rows) / "data")
    folder = Path(tempfile.mkdtemp(prefix="bucketlake-cold-"))
    shown = Shown(title=f"{name}, {rows:,} orders: CPU s of each step", title_justify="left")
    for head in ("step", *PARTS, "all"):
        shown.add_column(head, justify="left" if head == "step" else "right")
    try:
        with started([CONTESTANTS[name]], driver_memory=driver_memory) as running:
            respondent = running.respondents[name]
            sampler = Sampler(respondent.process)
            sampler.start()
            before: Taken = Counter()

            def tell(step: str) -> None:
                nonlocal before
                after = sampler.taken()
                cells = [after[part] - before[part] for part in PARTS]
                shown.add_row(step, *(f"{cell:.2f}" for cell in (*cells, sum(cells))))
                before = after

            tell("start")
            table = str(folder / "table")
            respondent.ask("load", table=table, rows=str(orders.batch("orders")), table_type=MERGE_ON_READ)
            tell("load")
            for step, batch in zip(("upsert", "upsert again"), BATCHES, strict=False):
                respondent.ask("upsert", table=table, rows=str(orders.batch(batch)), table_type=MERGE_ON_READ)
                tell(step)
            for step in ("scan", "scan again"):
                respondent.ask("aggregate", table=table)
                tell(step)
            sampler.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return shown


def main(arguments: list[str] | None = None, show: Callable[[Any], None] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--contestant", default=BUCKETLAKE.name, choices=sorted(CONTESTANTS))
    parser.add_argument("--driver-memory", default="4g", help="of a Spark driver")
    parser.add_argument(
        "--place", type=Path, default=Path("build") / "bench", help="where the orders are kept"
    )
    parser.add_argument("--write", action="store_true", help="fill the table of docs/benchmarks.md")
    chosen = parser.parse_args(arguments)
    shown = profile(chosen.contestant, chosen.rows, chosen.place, chosen.driver_memory)
    (show or Console(width=140).print)(shown)
    if chosen.write:
        fill(BENCHMARKS, "cold-profile", [shown])


if __name__ == "__main__":
    main()
