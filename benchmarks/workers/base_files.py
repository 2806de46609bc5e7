"""The floor without Spark: DuckDB and pyarrow on the base files. Of a table with logs it sees old rows only.

A lookup is told what an index would tell: the bucket. Then it is one file with a partition and one
file per partition without.
"""

from __future__ import annotations

import time
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from benchmarks.data import COLUMNS
from benchmarks.tables import BUCKETS, base_files
from benchmarks.truth import aggregate_of, fingerprint_of
from benchmarks.workers.pipe import serve
from bucketlake.index import bucket_of

THREADS = 2
"""As many as Spark has in `local[2]`."""


class BaseFiles:
    def start(self, driver_memory: str, folder: str) -> dict[str, str]:
        pa.set_cpu_count(THREADS)
        pa.set_io_thread_count(THREADS)
        return {"duckdb": duckdb.__version__, "pyarrow": pa.__version__}

    def aggregate(self, table: str) -> list[list[Any]]:
        return aggregate_of(_relation(table))

    def materialise(self, table: str) -> None:
        for _ in ds.dataset(base_files(table)).to_batches(columns=list(COLUMNS)):
            pass

    def fingerprint(self, table: str) -> list[int]:
        return fingerprint_of(_relation(table))

    def lookups(self, table: str, keys: list[list[str]], with_partition: bool) -> list[list[Any]]:
        timed = []
        for order_id, dt in keys:
            start = time.perf_counter()
            files = base_files(table, dt if with_partition else "*", f"{bucket_of([order_id], BUCKETS):08d}-")
            found = _rows(files, order_id)
            timed.append([(time.perf_counter() - start) * 1000, found])
        return timed


def _rows(files: list[str], order_id: str) -> list[list[Any]]:
    if not files:
        return []
    rows = ds.dataset(files).to_table(columns=list(COLUMNS), filter=pc.field("order_id") == order_id)
    return [list(row.values()) for row in rows.to_pylist()]


def _relation(table: str) -> str:
    return f"read_parquet('{table}/*/*.parquet', hive_partitioning = false)"


if __name__ == "__main__":
    serve(BaseFiles())
