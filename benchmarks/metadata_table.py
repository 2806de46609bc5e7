"""`python -m benchmarks.metadata_table`: what a metadata table costs a commit, and what it saves when files are listed.

    planning    requests and seconds until a write of 100 rows into 5 partitions knows its file groups, and until a read
                knows its files, with 10, 1,000 and 10,000 partitions; in a folder and where every request takes 20 ms,
                or with `--place s3://…` on an object store, as it is and with 20 ms more a request
    commit      CPU seconds of five upserts of 5 % into 1,000,000 rows, merge-on-read, with it and without, in turn

Both tables have the same files. Where requests take time, sixteen are under way at once, as on an object store.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from rich.console import Console
from rich.table import Table as Shown

from bucketlake import Table, create_table, set_memory_budget
from bucketlake.state import files_of, load_state
from bucketlake.storage import Store, open_store

SCHEMA = pa.schema([("id", pa.string()), ("dt", pa.string()), ("ts", pa.int64()), ("v", pa.float64())])
REQUEST_SECONDS = 0.02
AT_ONCE = 16
TOUCHED = 5


@dataclass
class Slow:
    """A store whose requests are counted, and take a while."""

    store: Store
    seconds: float
    requests: int = 0
    requests_at_once: int = AT_ONCE
    uri: str = field(init=False)

    def __post_init__(self) -> None:
        self.uri = self.store.uri

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.store, name)
        if not callable(found):
            return found

        def request(*arguments: Any, **options: Any) -> Any:
            self.requests += 1
            time.sleep(self.seconds)
            return found(*arguments, **options)

        return request


def orders(first: int, count: int, partitions: int, ts: int) -> pa.Table:
    numbers = np.arange(first, first + count)
    return pa.table(
        {
            "id": pa.array([f"k{n:09d}" for n in numbers.tolist()]),
            "dt": pa.array([f"d{n % partitions:05d}" for n in numbers.tolist()]),
            "ts": pa.array(np.full(count, ts)),
            "v": pa.array(np.random.default_rng(ts).random(count)),
        },
        schema=SCHEMA,
    )


@dataclass(frozen=True)
class Place:
    """Where tables are made."""

    uri: str
    options: dict[str, str]

    def table(self, name: str) -> str:
        return f"{self.uri}/{name}"

    def open(self, name: str) -> Store:
        return open_store(self.table(name), self.options or None)


def made(place: Place, name: str, rows: pa.Table, *, buckets: int, metadata: bool) -> Table:
    table = create_table(
        place.table(name),
        SCHEMA,
        key="id",
        partition="dt",
        ordering="ts",
        buckets=buckets,
        table_type="MERGE_ON_READ",
        metadata=metadata,
        storage_options=place.options or None,
    )
    table.bulk_insert(rows, maintenance="off")
    return table


def plan(place: Place, name: str, partitions: int, *, seconds: float, whole: bool) -> tuple[int, float]:
    """Load a table and list what a write, or a read, looks at; cold: nothing is remembered."""
    set_memory_budget(0)
    set_memory_budget("256MiB")
    store = Slow(place.open(name), seconds)
    touched = None if whole else [f"d{n:05d}" for n in range(min(TOUCHED, partitions))]
    start = time.perf_counter()
    files_of(load_state(store), touched)
    return store.requests, time.perf_counter() - start


def planning(place: Place, counts: list[int]) -> Shown:
    shown = Shown(
        title="planning: requests, and seconds as it is and with 20 ms more a request", title_justify="left"
    )
    for name in ("partitions", "what", "without", "", "", "with metadata table", "", ""):
        shown.add_column(name, justify="left" if name == "what" else "right")
    for count in counts:
        rows = orders(0, count, count, 1)
        names = {kept: f"plan-{count}-{kept}" for kept in (False, True)}
        for kept, name in names.items():
            made(place, name, rows, buckets=1, metadata=kept)
        for whole in (False, True):
            cells: list[str] = []
            for name in names.values():
                requests, near = plan(place, name, count, seconds=0.0, whole=whole)
                _, far = plan(place, name, count, seconds=REQUEST_SECONDS, whole=whole)
                cells += [f"{requests:,}", f"{near:.3f}", f"{far:.2f}"]
            shown.add_row(f"{count:,}", "read of all" if whole else f"write to {TOUCHED}", *cells)
    return shown


@contextmanager
def metered(seconds: list[float]) -> Iterator[None]:
    start = time.process_time()
    yield
    seconds.append(time.process_time() - start)


def commits(place: Place, count: int, rounds: int) -> Shown:
    tables = {
        kept: made(place, f"commit-{kept}", orders(0, count, 20, 1), buckets=4, metadata=kept)
        for kept in (False, True)
    }
    seconds: dict[bool, list[float]] = {False: [], True: []}
    for number in range(rounds):
        batch = orders(number * 97, count // 20, 20, number + 2)
        for kept, table in tables.items():
            with metered(seconds[kept]):
                table.upsert(batch, maintenance="off")
    shown = Shown(title=f"5 % upserts into {count:,} rows, CPU seconds", title_justify="left")
    for name in ("metadata table", *(f"{n + 1}" for n in range(rounds)), "median"):
        shown.add_column(name, justify="right")
    for kept, found in seconds.items():
        shown.add_row("with" if kept else "without", *(f"{s:.2f}" for s in found), f"{np.median(found):.2f}")
    return shown


def main(arguments: list[str] | None = None, show: Callable[[Any], None] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--partitions", type=int, nargs="+", default=[10, 1_000, 10_000])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--place", help="where to make tables, if not in a temporary folder")
    parser.add_argument("--storage", nargs="*", default=[], metavar="NAME=VALUE", help="of an object store")
    chosen = parser.parse_args(arguments)
    show = show or Console(width=140).print
    folder = Path(tempfile.mkdtemp(prefix="metadata-"))
    try:
        options = dict(one.split("=", 1) for one in chosen.storage)
        place = Place(chosen.place or str(folder), options)
        show(planning(place, chosen.partitions))
        show(commits(place, chosen.rows, chosen.rounds))
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
