"""`python -m benchmarks.streams`: the race of streams; with `--write docs/streams.md` its table goes there.

Orders are loaded into a merge-on-read table, and then files of changes come, one for each batch of a streaming query
that takes what is there and ends (`availableNow`). Half of a batch are changes of any orders, half are new orders, and
2 % of the changes are late. A key is one of the whole table, but where there are buckets: there it is one of its day.

    rows/s       of the query, from its start to its end
    p50, p95     of `triggerExecution` of its batches, as Spark's StreamingQueryProgress says
    CPU, memory  of the process tree while the query runs; services that run beside it included, until the query ends,
                 and ours until they end
    others       cores that other processes had meanwhile

Everybody gets the same files, in a process of its own that ends before the next one starts, after a small table and
stream to warm up. Services are as they come: ours run after the fifteenth commit, Hudi's sink compacts after the fifth.
Every table is compared with the truth, which DuckDB computes from the files.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from rich.console import Console
from rich.table import Table as Shown

from benchmarks.contestants import (
    BUCKETLAKE,
    DELTA,
    HUDI_RECORD,
    KEPT,
    PIPELINED,
    RECORD,
    BenchmarkError,
    Respondent,
    another,
)
from benchmarks.data import Arrivals, make_arrivals
from benchmarks.meter import Cost, metered
from benchmarks.page import fill
from benchmarks.truth import fingerprint_of

RACERS = {c.name: c for c in (RECORD, KEPT, PIPELINED, BUCKETLAKE, DELTA, HUDI_RECORD)}
WARM_UP = (20_000, 3, 2_000)
"""Orders, batches, and rows of a batch."""

COLUMNS = ("contestant", "rows/s", "p50 ms", "p95 ms", "first ms", "CPU s", "GiB", "load s", "others")

Opened = Callable[[str], AbstractContextManager[Respondent]]
"""Starts a contestant, by its name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Streamed:
    """What became of one contestant."""

    name: str
    rows: int
    seconds: float
    """Of the query."""
    latencies_ms: tuple[int, ...]
    """Of its batches, in their order."""
    load_seconds: float
    cost: Cost

    @property
    def rows_per_second(self) -> float:
        return self.rows / self.seconds

    def latency_ms(self, share: float) -> int:
        ascending = sorted(self.latencies_ms)
        return ascending[min(len(ascending) - 1, int(share * len(ascending)))]


def stream_race(
    names: Sequence[str],
    arrivals: Arrivals,
    warm_up: Arrivals | None,
    folder: Path,
    opened: Opened,
) -> Iterator[Streamed]:
    """Let them take the stream, one after the other. BenchmarkError if a table is not the truth."""
    for name in names:
        with opened(name) as respondent:
            if warm_up is not None:
                _streamed(name, respondent, warm_up, folder)
            yield _streamed(name, respondent, arrivals, folder)


def _streamed(name: str, respondent: Respondent, arrivals: Arrivals, folder: Path) -> Streamed:
    table, checkpoint = folder / "table", folder / "checkpoint"
    for place in (table, checkpoint):
        shutil.rmtree(place, ignore_errors=True)
    loaded = arrivals.orders.batch("orders")
    load = partial(respondent.ask, "load", table=str(table), rows=str(loaded), table_type="MERGE_ON_READ")
    load_seconds = metered(respondent.process, load).cost.wall_s
    ask = partial(
        respondent.ask, "stream", table=str(table), rows=str(arrivals.folder), checkpoint=str(checkpoint)
    )
    taken = metered(respondent.process, ask)
    latencies = taken.answer["batches_ms"]
    if len(latencies) != arrivals.batches:
        raise BenchmarkError(f"{name} took {len(latencies)} batches of {arrivals.batches}")
    found = respondent.ask("fingerprint", table=str(table))
    expected = fingerprint_of(f"'{arrivals.orders.truth('merged')}'")
    if found != expected:
        raise BenchmarkError(f"{name} streamed wrongly: found {found!r}, expected {expected!r}")
    return Streamed(
        name=name,
        rows=arrivals.batches * arrivals.batch_rows,
        seconds=taken.answer["seconds"],
        latencies_ms=tuple(latencies),
        load_seconds=load_seconds,
        cost=taken.cost,
    )


def table_of(results: Sequence[Streamed], arrivals: Arrivals) -> Shown:
    shown = Shown(title=_title(arrivals), title_justify="left")
    for name in COLUMNS:
        shown.add_column(name, justify="left" if name == "contestant" else "right")
    for done in results:
        shown.add_row(*_cells(done))
    return shown


def _title(arrivals: Arrivals) -> str:
    return f"{arrivals.batches} batches of {arrivals.batch_rows:,} rows into {arrivals.orders.rows:,} orders"


def _cells(done: Streamed) -> list[str]:
    return [
        done.name,
        f"{done.rows_per_second:,.0f}",
        f"{done.latency_ms(0.5):,}",
        f"{done.latency_ms(0.95):,}",
        f"{done.latencies_ms[0]:,}",
        f"{done.cost.cpu_s:.1f}",
        f"{done.cost.peak_memory_bytes / 2**30:.1f}",
        f"{done.load_seconds:.1f}",
        f"{done.cost.others_cpu_s / max(done.cost.wall_s, 0.001):.2f}",
    ]


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--keys", type=int, default=1_000_000, help="orders in the table")
    parser.add_argument("--batches", type=int, default=20)
    parser.add_argument("--rows", type=int, default=20_000, help="of a batch")
    parser.add_argument("--only", action="append", choices=sorted(RACERS), help="only this contestant")
    parser.add_argument("--no-warm-up", action="store_true")
    parser.add_argument("--driver-memory", default="4g", help="of every Spark driver")
    parser.add_argument("--results", type=Path, help="a file for all figures, as JSON")
    parser.add_argument(
        "--place", type=Path, help="where data and tables are made, if not in a temporary folder"
    )
    parser.add_argument(
        "--write", type=Path, help="a page with a place for the table, such as docs/streams.md"
    )
    chosen = parser.parse_args(arguments)
    console = Console(width=140)
    with _folder(chosen.place) as folder:
        arrivals = make_arrivals(chosen.keys, chosen.batches, chosen.rows, folder / "data")
        warm_up = None if chosen.no_warm_up else make_arrivals(*WARM_UP, folder / "warm-up")
        opened = partial(another, driver_memory=chosen.driver_memory)
        results = []
        for done in stream_race(chosen.only or list(RACERS), arrivals, warm_up, folder / "streamed", opened):
            results.append(done)
            console.print(f"{done.name}: {done.rows_per_second:,.0f} rows/s", highlight=False)
            if chosen.results:
                chosen.results.write_text(
                    json.dumps([dataclasses.asdict(done) for done in results], indent=1)
                )
    console.print(table_of(results, arrivals))
    if chosen.write:
        fill(chosen.write, "race", [table_of(results, arrivals)])


@contextmanager
def _folder(place: Path | None) -> Iterator[Path]:
    if place is not None:
        yield place
        return
    with tempfile.TemporaryDirectory(prefix="bucketlake-bench-") as folder:
        yield Path(folder)


if __name__ == "__main__":
    main()
