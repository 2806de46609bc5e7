"""The floor of a write: pyarrow and one Parquet file per day and bucket. No log of what happened, no transaction.

    <table>/<dt>/<bucket>.0.parquet      rewritten by every upsert of a copy-on-write table
    <table>/<dt>/<bucket>.<n>.parquet    appended by the n-th upsert of a merge-on-read table

Two threads, as many as Spark has in `local[2]`; a file has the columns of the rows and no others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks.tables import BUCKETS
from benchmarks.truth import fingerprint_of
from benchmarks.workers.base_files import THREADS
from benchmarks.workers.pipe import serve
from bucketlake.index import buckets_of


class PlainFiles:
    def start(self, driver_memory: str, folder: str) -> dict[str, str]:
        pa.set_cpu_count(THREADS)
        pa.set_io_thread_count(THREADS)
        return {"pyarrow": pa.__version__}

    def load(self, table: str, rows: str, table_type: str) -> None:
        _for_each_bucket(rows, lambda place, new: _put(Path(table) / f"{place}.0.parquet", new))

    def upsert(self, table: str, rows: str, table_type: str) -> None:
        root = Path(table)
        if table_type == "MERGE_ON_READ":
            number = 1 + max(int(path.suffixes[0][1:]) for path in root.glob("*/*.parquet"))
            _for_each_bucket(rows, lambda place, new: _put(root / f"{place}.{number}.parquet", new))
        else:
            _for_each_bucket(rows, lambda place, new: _rewrite(root / f"{place}.0.parquet", new))

    def fingerprint(self, table: str) -> list[int]:
        """Read the newest version of every row; of equals that in the later file."""
        files = f"read_parquet('{table}/*/*.parquet', hive_partitioning = false, filename = true)"
        newest = "row_number() OVER (PARTITION BY order_id ORDER BY updated_at DESC, filename DESC) = 1"
        with duckdb.connect(config={"threads": THREADS}) as connection:
            return fingerprint_of(f"(SELECT * FROM {files} QUALIFY {newest})", connection)


def _for_each_bucket(rows: str, put: Callable[[str, pa.Table], None]) -> None:
    with ThreadPoolExecutor(THREADS) as pool:
        for done in [pool.submit(put, place, new) for place, new in _by_bucket(pq.read_table(rows))]:
            done.result()


def _by_bucket(rows: pa.Table) -> Iterator[tuple[str, pa.Table]]:
    """Sort rows by day and bucket, and cut them."""
    days = rows.column("dt").combine_chunks().dictionary_encode()
    codes = days.indices.to_numpy() * BUCKETS + buckets_of(rows.column("order_id"), ["order_id"], BUCKETS)
    order = np.argsort(codes, kind="stable")
    in_order, codes = rows.take(pa.array(order)), codes[order]
    starts = [0, *(np.flatnonzero(codes[1:] != codes[:-1]) + 1).tolist(), len(codes)]
    for start, stop in pairwise(starts):
        day, bucket = divmod(int(codes[start]), BUCKETS)
        yield f"{days.dictionary[day].as_py()}/{bucket}", in_order.slice(start, stop - start)


def _rewrite(path: Path, new: pa.Table) -> None:
    """Put the newer of both versions of every row."""
    if path.exists():
        old = pq.read_table(path, use_threads=False)
        place = pc.index_in(old.column("order_id"), value_set=new.column("order_id").combine_chunks())
        is_newer = pc.greater_equal(new.column("updated_at").take(place), old.column("updated_at"))
        loses = place.filter(pc.fill_null(pc.invert(is_newer), False))
        stays = np.ones(len(new), np.bool_)
        stays[loses.to_numpy()] = False
        kept = old.filter(pc.fill_null(pc.invert(is_newer), True))
        new = pa.concat_tables([kept, new.filter(pa.array(stays))])
    _put(path, new)


def _put(path: Path, rows: pa.Table) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(rows, path.with_suffix(".tmp"), compression="zstd")
    path.with_suffix(".tmp").replace(path)


if __name__ == "__main__":
    serve(PlainFiles())
