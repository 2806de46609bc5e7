"""bucketlake in one process, without Spark: `Table.get`, `Table.to_arrow`, and writes of Arrow tables."""

from __future__ import annotations

import time
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.data import COLUMNS
from benchmarks.tables import SHAPE
from benchmarks.truth import aggregate_of, fingerprint_of
from benchmarks.workers.base_files import THREADS
from benchmarks.workers.pipe import serve
from bucketlake import Table, create_table


class BucketlakeAlone:
    def start(self, driver_memory: str, folder: str) -> dict[str, str]:
        pa.set_cpu_count(THREADS)
        pa.set_io_thread_count(THREADS)
        return {"pyarrow": pa.__version__}

    def aggregate(self, table: str) -> list[list[Any]]:
        rows = Table.open(table).to_arrow(columns=["status", "amount"])
        with duckdb.connect() as connection:
            connection.register("rows", rows)
            return aggregate_of("rows", connection)

    def materialise(self, table: str) -> None:
        Table.open(table).to_arrow(columns=list(COLUMNS))

    def fingerprint(self, table: str) -> list[int]:
        rows = Table.open(table).to_arrow(columns=list(COLUMNS))
        with duckdb.connect() as connection:
            connection.register("rows", rows)
            return fingerprint_of("rows", connection)

    def lookups(self, table: str, keys: list[list[str]], with_partition: bool) -> list[list[Any]]:
        timed = []
        for order_id, dt in keys:
            start = time.perf_counter()
            partition = dt if with_partition else None
            found = Table.open(table, buckets=4).get(order_id, partition=partition, columns=list(COLUMNS))
            timed.append([(time.perf_counter() - start) * 1000, _plain(found)])
        return timed

    def create_index(self, table: str, column: str) -> None:
        Table.open(table).create_index(f"by_{column}", on=column)

    def by_value(self, table: str, column: str, value: str) -> list[Any]:
        start = time.perf_counter()
        found = Table.open(table).get_by(column, value, columns=["order_id", "amount"])
        return [(time.perf_counter() - start) * 1000, _plain(found)]

    def load(self, table: str, rows: str, table_type: str) -> None:
        orders = pq.read_table(rows)
        made = create_table(table, orders.schema, table_type=table_type, **SHAPE)
        made.bulk_insert(orders)

    def upsert(self, table: str, rows: str, table_type: str) -> None:
        Table.open(table).upsert(pq.read_table(rows))

    def compact(self, table: str) -> None:
        Table.open(table).compact()

    def rescale(self, table: str) -> None:
        Table.open(table).buckets.overwrite("2026-06-18,8")

    def clean(self, table: str) -> None:
        Table.open(table).clean(retain_versions=1)


def _plain(rows: pa.Table) -> list[list[Any]]:
    return [list(row.values()) for row in rows.to_pylist()]


if __name__ == "__main__":
    serve(BucketlakeAlone())
