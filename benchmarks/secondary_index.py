"""`python -m benchmarks.secondary_index`: what secondary indexes cost those who write, in one process.

    upserts    CPU seconds of an upsert of 5 % of the rows, half of them new, on tables with 0, 1 and 3 indexes. Of the
               rows that are there every second one has another value in each indexed column

With an index, an update that is logged has to read the row that it changes: the price is highest on merge-on-read
tables. Rows are made before the clock starts.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from rich.console import Console
from rich.table import Table as Shown

from benchmarks.record_index import DAYS, Numbers, metered
from bucketlake import RecordIndex, Table, create_table

SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("dt", pa.string()),
        ("ts", pa.int64()),
        ("city", pa.string()),
        ("customer", pa.string()),
        ("day", pa.date32()),
        ("amount", pa.float64()),
    ]
)
INDEXED = ("city", "customer", "day")
INDEX_COUNTS = (0, 1, 3)
BATCHES = 3
TYPES = ("MERGE_ON_READ", "COPY_ON_WRITE")


def rows(numbers: Numbers, *, ts: int) -> pa.Table:
    """Rows of these keys; half of the keys have other values at each time."""
    text = numbers.astype(">u8").tobytes().hex()
    keys = pa.array([f"o-{text[at : at + 16]}" for at in range(0, len(text), 16)], pa.string())
    days = pa.array([f"2026-06-{day + 1:02d}" for day in range(DAYS)])
    version = np.where(numbers % np.uint64(2) == 0, np.uint64(ts), np.uint64(0))
    mixed = (numbers ^ (version * np.uint64(0x9E3779B97F4A7C15))) >> np.uint64(7)
    return pa.Table.from_arrays(
        [
            keys,
            days.take(pa.array((numbers % np.uint64(DAYS)).astype(np.int32))),
            pa.array(np.full(len(numbers), ts)),
            _names("city", mixed % np.uint64(1_000)),
            _names("customer", mixed % np.uint64(100_000)),
            pa.array((mixed % np.uint64(2_000)).astype(np.int32)).cast(pa.date32()),
            pa.array(np.random.default_rng(ts).random(len(numbers))),
        ],
        schema=SCHEMA,
    )


def _names(word: str, numbers: Numbers) -> pa.Array:
    known, places = np.unique(numbers, return_inverse=True)
    return pa.array([f"{word}-{number}" for number in known.tolist()]).take(pa.array(places))


def a_table(folder: Path, load: pa.Table, table_type: str, indexes: int) -> Table:
    made = create_table(
        folder / f"{table_type} {load.num_rows} {indexes}",
        SCHEMA,
        key="id",
        partition="dt",
        ordering="ts",
        index=RecordIndex(),
        table_type=table_type,
        maintenance="off",
    )
    made.bulk_insert(load)
    for column in INDEXED[:indexes]:
        made.create_index(f"by_{column}", on=column)
    return Table.open(made.store.uri)


def upserts(folder: Path, counts: list[int]) -> Shown:
    shown = Shown(title="CPU seconds of a 5 % upsert, median of three, one process", title_justify="left")
    shown.add_column("rows", justify="right")
    shown.add_column("table")
    for number in INDEX_COUNTS:
        shown.add_column(f"{number} index{'' if number == 1 else 'es'}", justify="right")
    for count in counts:
        rng = np.random.default_rng(count)
        known = np.unique(rng.integers(0, 1 << 63, count, np.uint64))
        load, changes = rows(known, ts=1), []
        for ts in range(2, 2 + BATCHES):
            old, new = rng.choice(known, count // 40), rng.integers(0, 1 << 63, count // 40, np.uint64)
            changes.append(rows(np.unique(np.concatenate([old, new])), ts=ts))
        for table_type in TYPES:
            cells = []
            for indexes in INDEX_COUNTS:
                table = a_table(folder, load, table_type, indexes)
                seconds: list[float] = []
                for batch in changes:
                    with metered(seconds):
                        table.upsert(batch)
                cells.append(f"{np.median(seconds):.2f}")
                shutil.rmtree(folder / f"{table_type} {load.num_rows} {indexes}")
            shown.add_row(f"{count:,}", table_type.replace("_", "-").lower(), *cells)
    return shown


def main(arguments: list[str] | None = None, show: Callable[[Any], None] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, nargs="+", default=[200_000, 1_000_000])
    parser.add_argument("--place", type=Path, help="where to make tables, if not in a temporary folder")
    chosen = parser.parse_args(arguments)
    show = show or Console(width=140).print
    folder = chosen.place or Path(tempfile.mkdtemp(prefix="secondary-index-"))
    try:
        show(upserts(folder, chosen.rows))
    finally:
        if chosen.place is None:
            shutil.rmtree(folder)


if __name__ == "__main__":
    main()
