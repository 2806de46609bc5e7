"""`python -m benchmarks.small_batches`: an upsert of 100 rows into a table of a million, by a process without Spark.

Half of the rows change what is there, half are new; both go to all four partitions, or to one.

    CPU ms       of an upsert, and of the first in a process that has not seen the table; services off
    requests     to the store, lists among them
    in a row     requests that wait for one another: an upsert into the same table where every request takes 20 ms,
                 divided by these, and what that upsert took

In the end the rows are counted.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from rich.table import Table as Shown

from benchmarks.growth import rows_of
from benchmarks.record_index import Numbers, metered, run_in_folder
from bucketlake import DynamicBuckets, RecordIndex, SimpleBuckets, Table, create_table
from bucketlake.config import load_properties
from bucketlake.index import IndexValue
from bucketlake.services.metadata_compaction import compact_metadata
from bucketlake.storage import FileStat, Listing, Store
from bucketlake.testing.faulty_store import FaultyStore

ROWS = 100
UPSERTS = 20
PARTITIONS = 4
REQUEST_SECONDS = 0.02
AT_ONCE = 16
INDEXES: dict[str, IndexValue] = {
    "buckets": SimpleBuckets(4),
    "record-level index": RecordIndex(),
    "dynamic buckets": DynamicBuckets(assigners=4, keys_per_bucket=100_000),
}


@dataclass(frozen=True, slots=True)
class FarStore:
    """A store whose every request takes a while, as that of an object store."""

    inner: Store

    @property
    def uri(self) -> str:
        return self.inner.uri

    @property
    def requests_at_once(self) -> int:
        return AT_ONCE

    def list(self, folder: str, *, recursive: bool = False) -> Listing:
        time.sleep(REQUEST_SECONDS)
        return self.inner.list(folder, recursive=recursive)

    def stat(self, path: str) -> FileStat:
        time.sleep(REQUEST_SECONDS)
        return self.inner.stat(path)

    def read(self, path: str, *, offset: int = 0, length: int | None = None) -> bytes:
        time.sleep(REQUEST_SECONDS)
        return self.inner.read(path, offset=offset, length=length)

    def put(self, path: str, data: bytes | Path) -> None:
        time.sleep(REQUEST_SECONDS)
        self.inner.put(path, data)

    def put_new(self, path: str, data: bytes | Path) -> bool:
        time.sleep(REQUEST_SECONDS)
        return self.inner.put_new(path, data)

    def replace_if(self, path: str, data: bytes | Path, version: str) -> bool:
        time.sleep(REQUEST_SECONDS)
        return self.inner.replace_if(path, data, version)

    def delete(self, path: str) -> None:
        time.sleep(REQUEST_SECONDS)
        self.inner.delete(path)


@dataclass(slots=True)
class Batches:
    """Batches of rows for one table."""

    keys: int
    partitions: int = PARTITIONS
    number: int = 0

    def next(self) -> pa.Table:
        self.number += 1
        rng = np.random.default_rng(self.number)
        every = PARTITIONS // self.partitions
        old = rng.choice(self.keys // every, ROWS // 2, replace=False) * every
        new = self.keys + (np.arange(ROWS // 2) + self.number * ROWS) * every
        return rows_of(np.concatenate([old, new]).astype(np.uint64), PARTITIONS, ts=self.number)


def measured(folder: Path, name: str, table_type: str, keys: int) -> Iterator[list[str]]:
    place = folder / f"{name} {table_type}"
    table = create_table(
        place,
        rows_of(np.empty(0, np.uint64), PARTITIONS, ts=0).schema,
        key="id",
        partition="dt",
        ordering="ts",
        index=INDEXES[name],
        table_type=table_type,
        maintenance="off",
    )
    table.bulk_insert(rows_of(_numbers(keys), PARTITIONS, ts=0))
    if name != "buckets":
        compact_metadata(table.store)
    came = 0
    for partitions in (PARTITIONS, 1):
        batches = Batches(keys, partitions, number=came)
        first = _first(place, batches)
        seconds: list[float] = []
        for _ in range(UPSERTS):
            rows = batches.next()
            with metered(seconds):
                table.upsert(rows)
        counting = FaultyStore(table.store)
        Table(counting, load_properties(counting)).upsert(batches.next())
        kinds = Counter(operation.partition(" ")[0] for operation in counting.operations)
        far = Table(FarStore(table.store), load_properties(table.store))
        rows = batches.next()
        start = time.perf_counter()
        far.upsert(rows)
        waited = time.perf_counter() - start
        came = batches.number
        yield [
            name,
            table_type.lower().replace("_", "-"),
            str(partitions),
            f"{1000 * float(np.median(seconds)):.0f}",
            f"{1000 * first:.0f}",
            str(sum(kinds.values())),
            str(kinds["list"]),
            f"{waited / REQUEST_SECONDS:.0f}",
            f"{waited:.2f} s",
        ]
    found = table.to_arrow(columns=["id"]).num_rows
    assert found == keys + came * ROWS // 2, f"{found:,} rows"
    shutil.rmtree(place)


def _first(place: Path, batches: Batches) -> float:
    """Return the CPU seconds of an upsert in a process that has seen nothing of the table."""
    told = [batches.keys, batches.partitions, batches.number]
    command = [sys.executable, "-m", "benchmarks.small_batches", "--first", str(place), *map(str, told)]
    batches.number += 1
    return float(subprocess.check_output(command))


def _numbers(keys: int) -> Numbers:
    return np.arange(keys, dtype=np.uint64)


def main(arguments: list[str] | None = None, show: Callable[[Any], None] | None = None) -> None:
    def run(folder: Path, counts: list[int]) -> Iterator[Shown]:
        for keys in counts:
            shown = Shown(
                title=f"An upsert of {ROWS} rows into a table of {keys:,}, one process", title_justify="left"
            )
            heads = (
                "index",
                "table",
                "partitions",
                "CPU ms",
                "the first",
                "requests",
                "lists",
                "in a row",
                "",
            )
            for number, head in enumerate(heads):
                shown.add_column(head, justify="left" if number < 2 else "right")
            for name in INDEXES:
                for table_type in ("MERGE_ON_READ", "COPY_ON_WRITE"):
                    for cells in measured(folder, name, table_type, keys):
                        shown.add_row(*cells)
            yield shown

    run_in_folder(run, __doc__ or "", [1_000_000], arguments, show)


def first_of_a_process(place: str, keys: str, partitions: str, number: str) -> float:
    seconds: list[float] = []
    rows = Batches(int(keys), int(partitions), int(number)).next()
    table = Table.open(place)
    with metered(seconds):
        table.upsert(rows)
    return seconds[0]


if __name__ == "__main__":
    if sys.argv[1:2] == ["--first"]:
        print(first_of_a_process(*sys.argv[2:]))
    else:
        main()
