"""`python -m benchmarks.record_index`: what the record-level index costs as a table grows, in one process.

    growth     CPU seconds of a load, of upserts of 5 % (half of them new keys), of 1 % of the keys that move to another
               partition, and of a compaction of the index; bytes of the index per key; beside simple buckets
    look-ups   CPU milliseconds of `Table.get` of 1, 1,000 and 100,000 keys, cold and warm
    batches    200 upserts of 100 rows, half of them new: bytes written for each that came, file groups at the end

Rows are made before the clock starts. What others do, Hudi's index and Delta's MERGE, is raced by
`python -m benchmarks --suite record`.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from rich.console import Console
from rich.table import Table as Shown

from benchmarks.page import BENCHMARKS, fill
from bucketlake import RecordIndex, SimpleBuckets, Table, create_table, set_memory_budget
from bucketlake.index import IndexValue
from bucketlake.services.metadata_compaction import compact_metadata

SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("dt", pa.string()),
        ("ts", pa.int64()),
        ("amount", pa.float64()),
        ("note", pa.string()),
    ]
)
DAYS = 20
LOOKED_UP = (1, 1_000, 100_000)
BATCHES, BATCH_ROWS = 200, 100
ENGINES: dict[str, IndexValue] = {
    "record-level index": RecordIndex(),
    "simple buckets": SimpleBuckets(4),
}

Numbers = npt.NDArray[np.uint64]


def rows(numbers: Numbers, *, ts: int, moved_by: int = 0) -> pa.Table:
    """Rows of these keys, which are 18 characters long; all but the time and the amount follow from the key."""
    text = numbers.astype(">u8").tobytes().hex()
    keys = pa.array([f"o-{text[at : at + 16]}" for at in range(0, len(text), 16)], pa.string())
    days = pa.array([f"2026-06-{day + 1:02d}" for day in range(DAYS)])
    places = ((numbers + np.uint64(moved_by)) % np.uint64(DAYS)).astype(np.int32)
    rng = np.random.default_rng(ts)
    return pa.Table.from_arrays(
        [
            keys,
            days.take(pa.array(places)),
            pa.array(np.full(len(numbers), ts)),
            pa.array(rng.random(len(numbers))),
            pc.binary_join_element_wise(keys, keys, keys, "/"),
        ],
        schema=SCHEMA,
    )


@contextmanager
def metered(seconds: list[float]) -> Iterator[None]:
    start = time.process_time()
    yield
    seconds.append(time.process_time() - start)


def a_table(
    folder: Path,
    name: str,
    index: IndexValue,
    *,
    table_type: str = "MERGE_ON_READ",
    maintenance: str = "off",
) -> Table:
    return create_table(
        folder / name,
        SCHEMA,
        key="id",
        partition="dt",
        ordering="ts",
        index=index,
        table_type=table_type,
        maintenance=maintenance,
    )


def growth(folder: Path, counts: list[int]) -> tuple[Shown, dict[int, Table]]:
    shown = Shown(title="CPU seconds, merge-on-read, one process", title_justify="left")
    for name in ("keys", "index", "load", "5 % upserts", "1 % moves", "index compaction", "bytes per key"):
        shown.add_column(name, justify="left" if name == "index" else "right")
    kept: dict[int, Table] = {}
    for count in counts:
        rng = np.random.default_rng(count)
        known = rng.integers(0, 1 << 63, count, np.uint64)
        load = rows(known, ts=1)
        changes = []
        for ts in range(2, 5):
            old, new = rng.choice(known, count // 40), rng.integers(0, 1 << 63, count // 40, np.uint64)
            changes.append(rows(np.unique(np.concatenate([old, new])), ts=ts))
        moves = rows(np.unique(rng.choice(known, count // 100)), ts=9, moved_by=1)
        for name, index in ENGINES.items():
            table = a_table(folder, f"{name} {count}", index)
            loaded, upserted, moved, compacted = [list[float]() for _ in range(4)]
            with metered(loaded):
                table.bulk_insert(load)
            for batch in changes:
                with metered(upserted):
                    table.upsert(batch)
            cells = [f"{loaded[0]:.2f}", f"{np.median(upserted):.2f}"]
            if isinstance(index, RecordIndex):
                with metered(moved):
                    table.upsert(moves)
                with metered(compacted):
                    compact_metadata(table.store)
                bases = (folder / f"{name} {count}/.hoodie/metadata/record_index").glob("*.hfile")
                entries = table.to_arrow(columns=["id"]).num_rows
                size = sum(file.stat().st_size for file in bases)
                cells += [f"{moved[0]:.2f}", f"{compacted[0]:.2f}", f"{size / entries:.1f}"]
                kept[count] = table
            shown.add_row(f"{count:,}", name, *cells)
    return shown, kept


def look_ups(tables: dict[int, Table]) -> Shown:
    shown = Shown(title="Table.get: CPU milliseconds, with nothing remembered and then", title_justify="left")
    for name in ("keys", *(f"{n:,} looked up" for n in LOOKED_UP)):
        shown.add_column(name, justify="right")
    for count, table in tables.items():
        everything = table.to_arrow(columns=["id"])["id"]
        cells = []
        for asked in LOOKED_UP:
            rng = np.random.default_rng(asked)
            times = []
            set_memory_budget(0)
            set_memory_budget("256MiB")
            for _ in range(4):
                chosen = everything.take(pa.array(rng.integers(0, len(everything), asked))).to_pylist()
                start = time.process_time()
                found = table.get(chosen, columns=["id", "amount"])
                times.append(1000 * (time.process_time() - start))
                assert found.num_rows == len(set(chosen))
            cells.append(f"{times[0]:,.0f}, {min(times[1:]):,.0f}")
        shown.add_row(f"{count:,}", *cells)
    return shown


def small_batches(folder: Path) -> Shown:
    table = a_table(folder, "small batches", RecordIndex(), maintenance="inline")
    rng = np.random.default_rng(7)
    known = rng.integers(0, 1 << 63, 20_000, np.uint64)
    table.bulk_insert(rows(known, ts=1))
    written = came = 0
    seconds: list[float] = []
    for number in range(BATCHES):
        new = rng.integers(0, 1 << 63, BATCH_ROWS // 2, np.uint64)
        old = rng.choice(known, BATCH_ROWS // 2)
        batch = rows(np.unique(np.concatenate([old, new])), ts=2 + number)
        with metered(seconds):
            done = table.upsert(batch)
        written += done.bytes
        came += batch.num_rows
        known = np.concatenate([known, new])
    sizes = [file.stat().st_size for file in (folder / "small batches").glob("2026*/*.parquet")]
    row_bytes = max(sizes) * DAYS / len(known)
    shown = Shown(
        title=f"{BATCHES} upserts of {BATCH_ROWS} rows into {DAYS} partitions", title_justify="left"
    )
    for name in ("bytes written per byte that came", "CPU ms, first and last fifty", "file groups"):
        shown.add_column(name, justify="right")
    groups = len({path.name.split("_")[0] for path in (folder / "small batches").glob("2026*/*.parquet")})
    first, last = np.median(seconds[:50]), np.median(seconds[-50:])
    shown.add_row(
        f"{written / (came * row_bytes):.0f}", f"{1000 * first:.0f}, {1000 * last:.0f}", f"{groups:,}"
    )
    return shown


def main(arguments: list[str] | None = None, show: Callable[[Any], None] | None = None) -> None:
    def run(folder: Path, counts: list[int]) -> Iterator[Shown]:
        shown, tables = growth(folder, counts)
        yield shown
        yield look_ups(tables)
        yield small_batches(folder)

    run_in_folder(run, __doc__ or "", [1_000_000, 4_000_000], arguments, show)


def run_in_folder(
    run: Callable[[Path, list[int]], Iterator[Shown]],
    about: str,
    counts: list[int],
    arguments: list[str] | None,
    show: Callable[[Any], None] | None,
) -> None:
    """Read the arguments, and show what is measured in a folder that is removed afterwards unless it was named."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keys", type=int, nargs="+", default=counts)
    parser.add_argument("--place", type=Path, help="where to make tables, if not in a temporary folder")
    parser.add_argument("--write", metavar="NAME", help="fill what docs/benchmarks.md has of this name")
    chosen = parser.parse_args(arguments)
    show = show or Console(width=140).print
    folder = chosen.place or Path(tempfile.mkdtemp(prefix="bucketlake-bench-"))
    tables = []
    try:
        for shown in run(folder, chosen.keys):
            show(shown)
            tables.append(shown)
    finally:
        if chosen.place is None:
            shutil.rmtree(folder)
    if chosen.write:
        fill(BENCHMARKS, chosen.write, tables)


if __name__ == "__main__":
    main()
