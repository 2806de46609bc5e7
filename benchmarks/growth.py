"""`python -m benchmarks.growth`: does an upsert of 10,000 rows cost more as a table grows?

Half of the rows of each upsert change what is there, half are new. One thing grows at a time, the rest stays as it is:

    rows          in the table: four partitions, eight buckets in each
    partitions    of the table; an upsert goes to ten of them
    commits       before these, of 100 rows each, with services as they come
    buckets       of the one partition

Told are CPU seconds of one process without Spark, the median of five after a first one; of merge-on-read and
copy-on-write tables with simple buckets, and of merge-on-read tables with a record-level index where that can be. The
rows are counted in the end, up to two million.

    python -m benchmarks.growth --results growth.json     measure
    python -m benchmarks.growth --page growth.json        fill the tables of docs/benchmarks.md and draw docs/plots
"""

from __future__ import annotations

import argparse
import datetime
import json
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa
from rich.console import Console

from benchmarks.meter import machine
from benchmarks.page import filled
from benchmarks.plots import Line, Panel, chart
from benchmarks.record_index import Numbers, metered
from bucketlake import RecordIndex, SimpleBuckets, create_table
from bucketlake.index import IndexValue
from bucketlake.services.metadata_compaction import compact_metadata

ROWS = 10_000
UPSERTS = 5
SMALL = 100
"""Rows of the commits before."""
LOADED = 200_000
"""Rows of a table, where something else grows."""
AT_ONCE = 1_000_000
WRITTEN_INTO = 10
"""Partitions."""
SCHEMA = pa.schema([("id", pa.string()), ("dt", pa.string()), ("ts", pa.int64()), ("amount", pa.float64())])

VALUES: Mapping[str, tuple[int, ...]] = {
    "rows": (1_000_000, 5_000_000, 20_000_000),
    "partitions": (10, 100, 1_000, 10_000),
    "commits": (10, 100, 1_000),
    "buckets": (4, 32, 256, 1_024),
}
RECORD = "record-level index"
TABLES = ("merge-on-read", "copy-on-write", RECORD)


@dataclass(frozen=True, slots=True)
class Grown:
    """How large a table is."""

    rows: int = LOADED
    partitions: int = 4
    commits: int = 0
    buckets: int = 8


def grown(axis: str, value: int) -> Grown:
    if axis == "partitions":
        return Grown(rows=max(LOADED, 2 * value), partitions=value, buckets=1)
    if axis == "buckets":
        return Grown(partitions=1, buckets=value)
    return Grown(**{axis: value})


def measure(axis: str, value: int, kind: str, folder: Path) -> list[float] | None:
    """Return the CPU seconds of upserts into a table that is so large; None if such a table has no such thing."""
    if kind == RECORD and axis == "buckets":
        return None
    size = grown(axis, value)
    index: IndexValue = RecordIndex() if kind == RECORD else SimpleBuckets(size.buckets)
    table = create_table(
        folder / "table",
        SCHEMA,
        key="id",
        partition="dt",
        ordering="ts",
        index=index,
        table_type="COPY_ON_WRITE" if kind == "copy-on-write" else "MERGE_ON_READ",
        maintenance="inline" if axis == "commits" else "off",
    )
    rng = np.random.default_rng(value)
    count = 0
    for start in range(0, size.rows, AT_ONCE):
        numbers = np.arange(start, min(size.rows, start + AT_ONCE), dtype=np.uint64)
        table.bulk_insert(rows_of(numbers, size.partitions, ts=0))
        count += len(numbers)
    if kind == RECORD:
        compact_metadata(table.store)
    for number in range(size.commits):
        some = rng.integers(0, size.rows, SMALL, np.uint64)
        table.upsert(rows_of(np.unique(some), size.partitions, ts=1 + number))
    seconds: list[float] = []
    for number in range(1 + UPSERTS):
        batch = rows_of(_changed_and_new(rng, size, number), size.partitions, ts=1 + size.commits + number)
        with metered(seconds):
            done = table.upsert(batch)
        new = batch.num_rows // 2
        assert done.rows == batch.num_rows, done
        count += new
    if count <= 2 * AT_ONCE:
        found = table.to_arrow(columns=["id"]).num_rows
        assert found == count, f"{found:,} rows, expected {count:,}"
    return seconds[1:]


def _changed_and_new(rng: np.random.Generator, size: Grown, upsert: int) -> Numbers:
    """Number keys that are there and keys that are not, all of them in the partitions that are written into."""
    parts = min(WRITTEN_INTO, size.partitions)
    chosen = rng.choice(size.partitions, parts, replace=False)
    half, each = ROWS // 2, -(-ROWS // 2 // parts)
    there = size.rows // size.partitions
    old = np.concatenate([part + size.partitions * np.arange(min(each, there)) for part in chosen])[:half]
    first = (-(-size.rows // size.partitions) + upsert * each) * size.partitions
    new = np.concatenate([first + part + size.partitions * np.arange(each) for part in chosen])
    return np.concatenate([old, new[: len(old)]]).astype(np.uint64)


def rows_of(numbers: Numbers, partitions: int, *, ts: int) -> pa.Table:
    """Rows of these keys; the number says in which partition a row is."""
    scattered = (numbers * np.uint64(0x9E3779B97F4A7C15)).astype(">u8").tobytes().hex()
    keys = pa.array([scattered[at : at + 16] for at in range(0, len(scattered), 16)])
    days = pa.array([f"p{day:05d}" for day in range(partitions)])
    return pa.Table.from_arrays(
        [
            keys,
            days.take(pa.array((numbers % np.uint64(partitions)).astype(np.int32))),
            pa.array(np.full(len(numbers), ts)),
            pa.array(numbers.astype(np.float64)),
        ],
        schema=SCHEMA,
    )


def measured(values: Mapping[str, Sequence[int]]) -> Iterator[tuple[str, int, str, list[float]]]:
    for axis, sizes in values.items():
        for value in sizes:
            for kind in TABLES:
                folder = Path(tempfile.mkdtemp(prefix="bucketlake-growth-"))
                try:
                    seconds = measure(axis, value, kind, folder)
                finally:
                    shutil.rmtree(folder)
                if seconds is not None:
                    yield axis, value, kind, seconds


Results = Mapping[str, Any]


def write_page(results: Results, docs: Path) -> None:
    """Fill the table of the page, and draw the chart."""
    page = docs / "benchmarks.md"
    lines = [
        f"Measured {results['date']} on {results['machine']}.",
        "",
        "![CPU seconds of an upsert as a table grows](plots/growth.svg)",
        "",
        "| what grows | to | " + " | ".join(TABLES) + " |",
        "|---|---:|" + "---:|" * len(TABLES),
    ]
    for axis, sizes in VALUES.items():
        for value in sizes:
            cells = [_medians(results, axis, kind).get(value) for kind in TABLES]
            if any(cells):
                spelled = ["" if cell is None else f"{cell:.2f} s" for cell in cells]
                lines.append(f"| {axis} | {value:,} | " + " | ".join(spelled) + " |")
    page.write_text(filled(page.read_text(), "growth", lines))
    panels = [
        Panel(
            axis,
            tuple(
                Line(kind, tuple(sorted(points.items())))
                for kind in TABLES
                if (points := _medians(results, axis, kind))
            ),
        )
        for axis in VALUES
    ]
    (docs / "plots").mkdir(exist_ok=True)
    drawn = chart(f"An upsert of {ROWS:,} rows as a table grows", panels, x="how many", y="CPU seconds")
    (docs / "plots" / "growth.svg").write_text(drawn)


def _medians(results: Results, axis: str, kind: str) -> dict[int, float]:
    return {
        one["value"]: median(one["seconds"])
        for one in results["upserts"]
        if one["axis"] == axis and one["kind"] == kind
    }


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for axis, sizes in VALUES.items():
        parser.add_argument(f"--{axis}", type=int, nargs="*", default=list(sizes))
    parser.add_argument("--results", type=Path, help="where to put what was measured")
    parser.add_argument("--page", type=Path, help="fill the page from such a file, and measure nothing")
    chosen = parser.parse_args(arguments)
    if chosen.page:
        write_page(json.loads(chosen.page.read_text()), Path(__file__).parents[1] / "docs")
        return
    console = Console()
    upserts = []
    for axis, value, kind, seconds in measured({axis: getattr(chosen, axis) for axis in VALUES}):
        console.print(f"{axis} {value:,}, {kind}: {median(seconds):.2f} s", highlight=False)
        upserts.append({"axis": axis, "value": value, "kind": kind, "seconds": seconds})
    if chosen.results:
        today = datetime.datetime.now(tz=datetime.UTC).date().isoformat()
        chosen.results.write_text(
            json.dumps({"date": today, "machine": machine(), "upserts": upserts}, indent=1)
        )


if __name__ == "__main__":
    main()
