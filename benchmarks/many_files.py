"""`python -m benchmarks.many_files`: what the number of file groups costs a read and a write on Spark.

    reads     a table of so many buckets and no logs, beside Spark's own read of its folder: CPU seconds of the process
              tree until there is a frame, and for a sum over all rows; first in the session, and the best of the rest
    writes    an upsert of 900 rows into 256 buckets of it
    files     a load into 1,000 partitions of two buckets, and then a batch that changes a row in each bucket of 5,000
              partitions of one: a new table, and files are most of what it costs

Spark's own read sees whatever lies in the folder: it is the floor, and no table.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from rich.table import Table as Shown

from benchmarks.meter import Cost, metered
from benchmarks.record_index import run_in_folder
from bucketlake import Table, create_table
from bucketlake.spark.local import local_session

ROWS_PER_BUCKET = 20
TURNS = 4
BUCKETS_WRITTEN, ROWS_WRITTEN = 256, 900
PUTS = ((1_000, 2), (5_000, 1))
"""Partitions, and buckets in each."""
SCHEMA = pa.schema([("id", pa.string()), ("ts", pa.int64()), ("amount", pa.int64())])


def rows(count: int, ts: int) -> pa.Table:
    columns = [[f"k{n}" for n in range(count)], [ts] * count, list(range(count))]
    return pa.Table.from_arrays(
        [pa.array(c, t.type) for c, t in zip(columns, SCHEMA, strict=True)], schema=SCHEMA
    )


def a_table(folder: Path, buckets: int) -> Table:
    table = create_table(
        folder / f"{buckets} buckets", SCHEMA, key="id", ordering="ts", buckets=buckets, maintenance="off"
    )
    table.upsert(rows(buckets * ROWS_PER_BUCKET, 0))
    return table


def reads(session: SparkSession, table: Table) -> Iterator[tuple[str, Cost, Cost]]:
    """Read a table and its folder in turn; yield what the frame and the sum cost each time."""
    folder = table.store.uri

    def ours() -> DataFrame:
        return table.read(session, columns=["amount"])

    def by_spark() -> DataFrame:
        return session.read.parquet(folder).select("amount")

    for _ in range(TURNS):
        for name, frame_of in (("bucketlake", ours), ("Spark, the folder", by_spark)):
            planned = metered(os.getpid(), frame_of)
            summed = metered(os.getpid(), lambda frame=planned.answer: frame.agg({"amount": "sum"}).collect())
            yield name, planned.cost, summed.cost


def reads_of(session: SparkSession, folder: Path, counts: list[int]) -> Shown:
    shown = Shown(title="Reads, CPU s [wall s]: first, and the best of the rest", title_justify="left")
    for name in ("buckets", "reader", "the frame", "", "the sum", ""):
        shown.add_column(name, justify="left" if name == "reader" else "right")
    for count in counts:
        costs: dict[str, list[tuple[Cost, Cost]]] = {}
        for name, planned, summed in reads(session, a_table(folder, count)):
            costs.setdefault(name, []).append((planned, summed))
        for name, turns in costs.items():
            cells = [cell for part in (0, 1) for cell in _first_and_best([turn[part] for turn in turns])]
            shown.add_row(f"{count:,}", name, *cells)
    return shown


def _first_and_best(costs: list[Cost]) -> tuple[str, str]:
    best = min(costs[1:], key=lambda cost: cost.cpu_s)
    first, rest = (f"{cost.cpu_s:.2f} [{cost.wall_s:.2f}]" for cost in (costs[0], best))
    return first, rest


def writes(session: SparkSession, folder: Path) -> Shown:
    shown = Shown(
        title=f"An upsert of {ROWS_WRITTEN} rows into {BUCKETS_WRITTEN} buckets, CPU s [wall s]",
        title_justify="left",
    )
    for name in ("table", "first", "best of the rest"):
        shown.add_column(name, justify="left" if name == "table" else "right")
    for table_type in ("MERGE_ON_READ", "COPY_ON_WRITE"):
        table = create_table(
            folder / table_type,
            SCHEMA,
            key="id",
            ordering="ts",
            buckets=BUCKETS_WRITTEN,
            table_type=table_type,
            maintenance="off",
        )
        costs = []
        for turn in range(TURNS + 1):
            frame = session.createDataFrame(rows(ROWS_WRITTEN, turn))
            costs.append(metered(os.getpid(), partial(table.upsert, frame)).cost)
        shown.add_row(table_type, *_first_and_best(costs))
    return shown


def puts(session: SparkSession, folder: Path) -> Shown:
    """Load new tables of many partitions, and upsert a row into every bucket or so; merge-on-read."""
    shown = Shown(title="Many partitions, CPU s [wall s]", title_justify="left")
    for name in ("partitions", "buckets in each", "load", "upsert", "upsert again"):
        shown.add_column(name, justify="right")
    for partitions, buckets in PUTS:
        count = ROWS_PER_BUCKET * partitions * buckets
        loaded = _in_partitions(rows(count, 0), partitions)
        table = create_table(
            folder / f"{partitions} partitions",
            loaded.schema,
            key="id",
            partition="dt",
            ordering="ts",
            buckets=buckets,
            maintenance="off",
        )
        costs = [metered(os.getpid(), partial(table.bulk_insert, session.createDataFrame(loaded))).cost]
        for turn in (1, 2):
            changed = _in_partitions(rows(partitions * buckets, turn), partitions)
            costs.append(metered(os.getpid(), partial(table.upsert, session.createDataFrame(changed))).cost)
        found = table.to_arrow(columns=["id"]).num_rows
        assert found == count, f"{found:,} rows, expected {count:,}"
        cells = [f"{cost.cpu_s:.2f} [{cost.wall_s:.2f}]" for cost in costs]
        shown.add_row(f"{partitions:,}", str(buckets), *cells)
    return shown


def _in_partitions(batch: pa.Table, partitions: int) -> pa.Table:
    return batch.append_column("dt", pa.array([f"p{n % partitions:05d}" for n in range(batch.num_rows)]))


def main(arguments: list[str] | None = None, show: Any = None) -> None:
    def run(folder: Path, counts: list[int]) -> Iterator[Shown]:
        session = local_session()
        session.range(10).count()
        yield reads_of(session, folder, counts)
        yield writes(session, folder)
        yield puts(session, folder)

    run_in_folder(run, __doc__ or "", [80, 1_000, 10_000], arguments, show)


if __name__ == "__main__":
    main()
