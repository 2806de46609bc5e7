"""`python -m benchmarks.commits`: how long a small commit takes with 1, 3 and 8 writers on one table.

Writers are processes. Each upserts a hundred rows, again and again, into all buckets of a table of four partitions
with four buckets: all of them meet in every file group. Some keys are each writer's own, one is everybody's. Logs of
a merge-on-read table commute, so its writers wait for the lock only; those of a copy-on-write table overtake each
other, and write again what was overtaken. When all are done the rows are compared with the truth.
"""

from __future__ import annotations

import argparse
import json
import logging
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pyarrow as pa
from rich.console import Console
from rich.table import Table as Shown

from benchmarks.page import BENCHMARKS, fill
from bucketlake import Table, create_table
from bucketlake.errors import CommitConflictError

WRITERS = (1, 3, 8)
PARTITIONS = 4
OWN_ROWS = 99
SCHEMA = pa.schema([("id", pa.string()), ("dt", pa.string()), ("ts", pa.int64()), ("writer", pa.int32())])


class _Retries(logging.Handler):
    """Counts what the engine says of writes that were overtaken."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.count = 0

    def emit(self, record: logging.LogRecord) -> None:
        self.count += "came in between" in record.getMessage()


def rows_of(writer: int, commit: int) -> pa.Table:
    own = [(f"w{writer}-{commit}-{n}", f"d{n % PARTITIONS}", commit, writer) for n in range(OWN_ROWS)]
    shared = ("shared", "d0", commit * 100 + writer, writer)
    return pa.Table.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in (*own, shared)], SCHEMA)


def write(path: str, writer: int, commits: int) -> None:
    """One writer: commit, and print what each took."""
    retries = _Retries()
    logging.getLogger("bucketlake.write").addHandler(retries)
    logging.getLogger("bucketlake.write").setLevel(logging.INFO)
    table = Table.open(path)
    rows = [rows_of(writer, commit) for commit in range(commits)]
    sys.stdin.readline()  # until all are ready
    seconds: list[float] = []
    given_up = 0
    for batch in rows:
        start = time.perf_counter()
        while True:
            try:
                table.upsert(batch)
            except CommitConflictError:
                given_up += 1
                continue
            break
        seconds.append(time.perf_counter() - start)
    print(json.dumps({"seconds": seconds, "retries": retries.count, "given_up": given_up}))


def measure(folder: Path, table_type: str, writers: int, commits: int) -> tuple[str, ...]:
    path = folder / f"{table_type}-{writers}"
    create_table(path, SCHEMA, key="id", partition="dt", ordering="ts", buckets=4, table_type=table_type)
    Table.open(path).upsert(rows_of(0, 0))
    command = [sys.executable, "-m", "benchmarks.commits", "--path", str(path), "--commits", str(commits)]
    processes = [
        subprocess.Popen(
            [*command, "--writer", str(n)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for n in range(writers)
    ]
    time.sleep(2.0 * writers)  # imports; none of them should be measured
    start = time.perf_counter()
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    told = [json.loads(process.communicate()[0]) for process in processes]
    wall = time.perf_counter() - start
    _verify(Table.open(path), writers, commits)
    taken = sorted(second * 1000 for one in told for second in one["seconds"])
    return (
        table_type.lower().replace("_", "-"),
        str(writers),
        f"{statistics.median(taken):,.0f} ms",
        f"{taken[-(-len(taken) * 95 // 100) - 1]:,.0f} ms",
        f"{len(taken) / wall:.1f}",
        f"{sum(one['retries'] for one in told) / len(taken):.2f}",
        str(sum(one["given_up"] for one in told)),
    )


def _verify(table: Table, writers: int, commits: int) -> None:
    found = table.to_arrow(columns=["id", "dt", "ts", "writer"]).to_pylist()
    expected = {(f"w{w}-{c}-{n}", w) for w in range(writers) for c in range(commits) for n in range(OWN_ROWS)}
    own = [(row["id"], row["writer"]) for row in found if row["id"] != "shared"]
    assert len(own) == len(expected) and set(own) == expected, "rows were lost or doubled"
    [shared] = [row["ts"] for row in found if row["id"] == "shared"]
    assert shared == (commits - 1) * 100 + writers - 1, "the newest version of the shared row was lost"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.commits", description=__doc__)
    parser.add_argument("--commits", type=int, default=20, help="of each writer")
    parser.add_argument("--path", help=argparse.SUPPRESS)
    parser.add_argument("--writer", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--write", action="store_true", help="fill the table of docs/benchmarks.md")
    options = parser.parse_args()
    if options.writer is not None:
        write(options.path, options.writer, options.commits)
        return
    columns = ("table", "writers", "p50", "p95", "commits/s", "overtaken per commit", "given up")
    shown = Shown(*columns, title="A commit of 100 rows into 16 file groups")
    folder = Path(tempfile.mkdtemp(prefix="bucketlake-commits-"))
    try:
        for table_type in ("MERGE_ON_READ", "COPY_ON_WRITE"):
            for writers in WRITERS:
                shown.add_row(*measure(folder, table_type, writers, options.commits))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    Console().print(shown)
    if options.write:
        fill(BENCHMARKS, "commits", [shown])


if __name__ == "__main__":
    main()
