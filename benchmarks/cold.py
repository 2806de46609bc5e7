"""`python -m benchmarks.cold`: what a user pays who comes cold, in a new process that takes each step once.

Every contestant starts anew and makes a table; nothing is warmed up. In every round another begins. Told are the CPU
seconds of its process tree, the median of the rounds; the wall seconds in brackets.

    start      until there is a session
    load       all orders into a new table
    upsert     the first batch of 5 %, half of it changes and half new orders
    later      the other four, the median of them
    scan       sum and count by status, over what the batches left; then the rows are compared with the truth
    compact    logs, or small files and deletes, away
    scan       the same over what is left
    lookup     a row by its key and partition, the mean of 20
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console
from rich.table import Table as Shown

from benchmarks.contestants import (
    ALONE,
    BUCKETLAKE,
    DELTA,
    DYNAMIC,
    EVALUATED,
    FILES,
    HUDI_AS_IT_COMES,
    HUDI_RECORD,
    ICEBERG,
    PAIMON,
    PAIMON_DYNAMIC,
    PLAIN_SESSION,
    RECORD,
    BenchmarkError,
    Contestant,
    Respondent,
    started,
)
from benchmarks.data import BATCHES, MERGED, Orders, make_orders
from benchmarks.meter import Cost, cpu_s_so_far, metered
from benchmarks.page import BENCHMARKS, fill
from benchmarks.truth import Truth, truths_about
from benchmarks.write_race import as_path

ROWS = 1_000_000
STEPS = ("start", "load", "upsert", "later", "scan", "compact", "scan, compacted", "lookup")
MERGE_ON_READ, COPY_ON_WRITE = "MERGE_ON_READ", "COPY_ON_WRITE"
_BOTH = (MERGE_ON_READ, COPY_ON_WRITE)

TYPES: dict[Contestant, tuple[str, ...]] = {
    FILES: _BOTH,
    ALONE: _BOTH,
    BUCKETLAKE: _BOTH,
    EVALUATED: _BOTH,
    PLAIN_SESSION: _BOTH,
    HUDI_AS_IT_COMES: _BOTH,
    ICEBERG: _BOTH,
    DELTA: (MERGE_ON_READ,),
    PAIMON: (MERGE_ON_READ,),
    RECORD: (MERGE_ON_READ,),
    HUDI_RECORD: (MERGE_ON_READ,),
    DYNAMIC: (MERGE_ON_READ,),
    PAIMON_DYNAMIC: (MERGE_ON_READ,),
}
"""Who takes part, with which tables. Delta has one type; its deletion vectors make it merge on read."""

_NO_COMPACTION = (FILES, DELTA)


@dataclass(frozen=True, slots=True)
class Entry:
    contestant: Contestant
    table_type: str

    def __str__(self) -> str:
        return f"{self.contestant.name}, {self.table_type.lower().replace('_', '-')}"


Costs = dict[str, Cost]


def journey(entry: Entry, respondent: Respondent, orders: Orders, truth: Truth, folder: Path) -> Costs:
    """Take every step once; `BenchmarkError` if the rows are not the truth's."""
    table = str(folder / as_path(str(entry)))
    costs: Costs = {}

    def take(step: str, question: str, **arguments: object) -> Any:
        done = metered(respondent.process, partial(respondent.ask, question, table=table, **arguments))
        costs[step] = done.cost
        return done.answer

    def write(step: str, batch: str) -> None:
        question = "load" if step == "load" else "upsert"
        take(step, question, rows=str(orders.batch(batch)), table_type=entry.table_type)

    write("load", "orders")
    for batch in BATCHES:
        write("upsert" if batch == BATCHES[0] else batch, batch)
    costs["later"] = _middle([costs.pop(batch) for batch in BATCHES[1:]])
    if entry.contestant == FILES:
        _compare(entry, "rows", respondent.ask("fingerprint", table=table), truth.fingerprint)
        return costs
    _compare(entry, "a scan", take("scan", "aggregate"), truth.aggregate)
    if entry.table_type == MERGE_ON_READ and entry.contestant not in _NO_COMPACTION:
        take("compact", "compact")
        _compare(entry, "a scan, compacted", take("scan, compacted", "aggregate"), truth.aggregate)
    keys = [list(key) for key in truth.keys]
    found = take("lookup", "lookups", keys=keys, with_partition=True)
    costs["lookup"] = _share(costs["lookup"], len(keys))
    for (key, _), (_, rows) in zip(truth.keys, found, strict=True):
        _compare(entry, key, rows, truth.rows[key])
    _compare(entry, "rows", respondent.ask("fingerprint", table=table), truth.fingerprint)
    return costs


def rounds(
    entries: Sequence[Entry], orders: Orders, truth: Truth, *, count: int, driver_memory: str, say: Say
) -> dict[Entry, list[Costs]]:
    found: dict[Entry, list[Costs]] = {entry: [] for entry in entries}
    for number in range(count):
        turn = number * len(entries) // max(1, count)
        for entry in [*entries[turn:], *entries[:turn]]:
            folder = Path(tempfile.mkdtemp(prefix="bucketlake-cold-"))
            try:
                begin = time.perf_counter()
                with started([entry.contestant], driver_memory=driver_memory) as running:
                    respondent = running.respondents[entry.contestant.name]
                    start = Cost(time.perf_counter() - begin, cpu_s_so_far(respondent.process), 0, 0)
                    costs = {"start": start, **journey(entry, respondent, orders, truth, folder)}
            finally:
                shutil.rmtree(folder, ignore_errors=True)
            found[entry].append(costs)
            told = ", ".join(f"{step} {cost.cpu_s:.2f}" for step, cost in costs.items())
            say(f"round {number + 1}: {entry}: CPU s {told}")
    return found


Say = Callable[[str], None]


def shown(found: dict[Entry, list[Costs]], rows: int) -> Shown:
    table = Shown(
        title=f"Cold, {rows:,} orders: CPU s of each step, taken once, and wall s", title_justify="left"
    )
    table.add_column("contestant")
    for step in STEPS:
        table.add_column(step, justify="right")
    for entry, turns in found.items():
        cells = []
        for step in STEPS:
            taken = [costs[step] for costs in turns if step in costs]
            middle = _middle(taken) if taken else None
            cells.append("" if middle is None else f"{_digits(middle.cpu_s)} [{_digits(middle.wall_s)}]")
        table.add_row(str(entry), *cells)
    return table


def _digits(seconds: float) -> str:
    return f"{seconds:.2f}" if seconds < 10 else f"{seconds:.0f}"


def _middle(costs: Sequence[Cost]) -> Cost:
    return Cost(
        wall_s=median(c.wall_s for c in costs),
        cpu_s=median(c.cpu_s for c in costs),
        others_cpu_s=median(c.others_cpu_s for c in costs),
        peak_memory_bytes=max(c.peak_memory_bytes for c in costs),
    )


def _share(cost: Cost, parts: int) -> Cost:
    return Cost(cost.wall_s / parts, cost.cpu_s / parts, cost.others_cpu_s / parts, cost.peak_memory_bytes)


def _compare(entry: Entry, what: str, found: object, expected: object) -> None:
    if found != expected:
        raise BenchmarkError(f"{entry}: {what}: found {found!r:.500}, expected {expected!r:.500}")


def main(arguments: list[str] | None = None, show: Callable[[Any], None] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", action="append", choices=sorted(c.name for c in TYPES))
    parser.add_argument("--driver-memory", default="4g", help="of every Spark driver")
    parser.add_argument(
        "--place", type=Path, default=Path("build") / "bench", help="where the orders are kept"
    )
    parser.add_argument("--write", action="store_true", help="fill the table of docs/benchmarks.md")
    chosen = parser.parse_args(arguments)
    show = show or Console(width=180).print
    orders = make_orders(chosen.rows, chosen.place / str(chosen.rows) / "data")
    truth = truths_about(orders)[MERGED]
    entries = [
        Entry(contestant, table_type)
        for contestant, types in TYPES.items()
        for table_type in types
        if not chosen.only or contestant.name in chosen.only
    ]
    try:
        found = rounds(
            entries,
            orders,
            truth,
            count=chosen.rounds,
            driver_memory=chosen.driver_memory,
            say=partial(print, flush=True, file=sys.stderr),
        )
    except BenchmarkError as error:
        sys.exit(f"no result: {error}")
    result = shown(found, chosen.rows)
    show(result)
    if chosen.write:
        fill(BENCHMARKS, "cold", [result])


if __name__ == "__main__":
    main()
