"""`python -m benchmarks.aging`: what a commit and a read cost when a table has had hundreds of small upserts.

A process upserts twenty rows, again and again, into the one partition of a table of four buckets. The keys are among
those that the table was loaded with, so that it never holds more rows. It is done with a table that is maintained
inline, which is the default, and with one that is not. CPU is that of this process, of all that `upsert` does, rounds
included. A read is of the whole table, the least of several: after ten upserts, and right before the last, when the
most logs and files have gathered since a round. In the end the rows are compared with the truth.

Budget: with maintenance, a commit of the last hundred costs at most 1.3 times one of the second, and a read at the end
at most twice one after ten.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import tempfile
import time
from pathlib import Path

import pyarrow as pa
from rich.console import Console
from rich.table import Table as Shown

from benchmarks.page import BENCHMARKS, fill
from bucketlake import Table, create_table

KEYS = 2_000
ROWS = 20
EARLY = 10
READS = 7
HUNDRED = 100
SCHEMA = pa.schema([("id", pa.string()), ("dt", pa.string()), ("ts", pa.int64()), ("note", pa.string())])


def rows_of(commit: int) -> pa.Table:
    keys = [(commit * 7_919 + n * 97) % KEYS for n in range(ROWS)]
    return _rows(keys, commit)


def _rows(keys: list[int], ts: int) -> pa.Table:
    columns = [[f"k{key}" for key in keys], ["d0"] * len(keys), [ts] * len(keys), [f"v{ts}"] * len(keys)]
    return pa.table(
        [pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)], SCHEMA
    )


def read_ms(table: Table) -> float:
    taken = []
    for _ in range(READS):
        start = time.process_time()
        table.to_arrow()
        taken.append((time.process_time() - start) * 1000)
    return min(taken)


def measure(path: Path, table_type: str, mode: str, commits: int) -> tuple[str, ...]:
    table = create_table(
        path, SCHEMA, key="id", partition="dt", ordering="ts", table_type=table_type, maintenance=mode
    )
    table.upsert(_rows(list(range(KEYS)), 0))
    truth = dict.fromkeys((f"k{key}" for key in range(KEYS)), 0)
    taken: list[float] = []
    reads: dict[int, float] = {}
    for commit in range(1, commits + 1):
        rows = rows_of(commit)
        start = time.process_time()
        table.upsert(rows)
        taken.append((time.process_time() - start) * 1000)
        truth |= dict.fromkeys(rows["id"].to_pylist(), commit)
        if commit in (EARLY, commits - 2):
            reads[commit] = read_ms(table)
    found = table.to_arrow(columns=["id", "ts"])
    assert found.num_rows == KEYS, "rows were lost or doubled"
    assert dict(zip(found["id"].to_pylist(), found["ts"].to_pylist(), strict=True)) == truth, (
        "an update was lost"
    )
    means = [statistics.mean(taken[n : n + HUNDRED]) for n in range(0, commits, HUNDRED)]
    early, late = reads.values()
    second = means[1] if len(means) > 1 else means[0]
    return (
        table_type.lower().replace("_", "-"),
        mode,
        *(f"{mean:.0f}" for mean in means),
        f"{means[-1] / second:.2f}",
        f"{early:.1f}",
        f"{late:.1f}",
        f"{late / early:.2f}",
    )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.aging", description=__doc__)
    parser.add_argument("--commits", type=int, default=600)
    parser.add_argument("--write", action="store_true", help="fill the table of docs/benchmarks.md")
    options = parser.parse_args()
    commits = options.commits
    hundreds = [f"{n + 1}-{min(n + HUNDRED, commits)}" for n in range(0, commits, HUNDRED)]
    shown = Shown(
        *("table", "maintenance", *hundreds, "last / second", "read, 10", "read, end", "end / 10"),
        title=f"CPU ms of an upsert of {ROWS} rows, by commits, and of a read",
    )
    folder = Path(tempfile.mkdtemp(prefix="bucketlake-aging-"))
    try:
        for table_type in ("MERGE_ON_READ", "COPY_ON_WRITE"):
            for mode in ("inline", "off"):
                shown.add_row(*measure(folder / f"{table_type}-{mode}", table_type, mode, commits))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    Console().print(shown)
    if options.write:
        fill(BENCHMARKS, "aging", [shown])


if __name__ == "__main__":
    main()
