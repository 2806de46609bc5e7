"""Where a merged scan spends its time, in one process.

Two passes over the same table, after one that warms up kernels and page cache. The first counts CPU seconds
per stage, each stage without what it calls: merging pulls base batches through itself, and their decoding is
not its cost. The second runs under cProfile, which slows Python down unevenly, so it says *where* and never
*how much*.
"""

from __future__ import annotations

import cProfile
import io
import pstats
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

from rich.console import Console
from rich.table import Table as Grid

from benchmarks.data import COLUMNS
from benchmarks.tables import BUCKETS
from bucketlake import Table
from bucketlake.read import read_all, task

FUNCTIONS_SHOWN = 25

STAGES = {
    "read_base_file": "base file: open and decode Parquet",
    "read_log_files": "logs: read and decode blocks",
    "merge_slice": "merge",
    "apply_filters": "filter",
}
"""Names that `bucketlake.read.task` calls; what is left of a slice is projecting and glue."""


@dataclass(slots=True)
class Stopwatch:
    """CPU seconds per stage, the innermost running stage getting them."""

    seconds: dict[str, float] = field(default_factory=dict)
    calls: dict[str, int] = field(default_factory=dict)
    _running: list[str] = field(default_factory=list)
    _since: float = 0.0

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        self._charge()
        self._running.append(name)
        try:
            yield
        finally:
            self._charge()
            self._running.pop()

    def _charge(self) -> None:
        now = time.process_time()
        if self._running:
            name = self._running[-1]
            self.seconds[name] = self.seconds.get(name, 0.0) + now - self._since
        self._since = now


def print_stages(table: Path, console: Console) -> None:
    """Profile a scan of two columns and one of all columns."""
    for columns in (("status", "amount"), COLUMNS):
        _scan(table, columns)
        watch = Stopwatch()
        rows = _timed_scan(table, columns, watch)
        _print_watch(watch, f"{len(columns)} columns, {rows:,} rows", console)
        profile = cProfile.Profile(time.process_time)
        profile.runcall(_scan, table, columns)
        _print_functions(profile, console)


def _scan(table: Path, columns: Sequence[str]) -> int:
    plan = Table.open(table, buckets=BUCKETS).plan(columns=list(columns))
    return sum(batch.num_rows for batch in read_all(plan))


def _timed_scan(table: Path, columns: Sequence[str], watch: Stopwatch) -> int:
    with ExitStack() as stack:
        for name, stage in STAGES.items():
            stack.enter_context(patch.object(task, name, _watched(getattr(task, name), stage, watch)))
        with watch.stage("plan: timeline, listing, slices"):
            plan = Table.open(table, buckets=BUCKETS).plan(columns=list(columns))
        with watch.stage("project and glue"):
            return sum(batch.num_rows for batch in read_all(plan))


def _watched(original: Callable[..., Any], stage: str, watch: Stopwatch) -> Callable[..., Any]:
    """Return `original` with its time charged to `stage`, and that of every item if it yields."""

    def wrapper(*arguments: Any, **named: Any) -> Any:
        with watch.stage(stage):
            result = original(*arguments, **named)
        watch.calls[stage] = watch.calls.get(stage, 0) + 1
        return _items(result, stage, watch) if isinstance(result, Iterator) else result

    return wrapper


def _items(items: Iterator[Any], stage: str, watch: Stopwatch) -> Iterator[Any]:
    while True:
        with watch.stage(stage):
            item = next(items, _END)
        if item is _END:
            return
        yield item


_END = object()


def _print_watch(watch: Stopwatch, title: str, console: Console) -> None:
    total = sum(watch.seconds.values())
    grid = Grid(
        "stage",
        "CPU seconds",
        "share",
        "calls",
        title=f"Merged scan in one process: {title}",
        title_justify="left",
    )
    for stage, seconds in sorted(watch.seconds.items(), key=lambda item: -item[1]):
        grid.add_row(stage, f"{seconds:.3f}", f"{seconds / total:.0%}", str(watch.calls.get(stage, 1)))
    grid.add_row("all", f"{total:.3f}", "", "")
    console.print(grid)


def _print_functions(profile: cProfile.Profile, console: Console) -> None:
    text = io.StringIO()
    pstats.Stats(profile, stream=text).strip_dirs().sort_stats("tottime").print_stats(FUNCTIONS_SHOWN)
    console.print(text.getvalue(), highlight=False, markup=False, soft_wrap=True)
