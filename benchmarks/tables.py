"""The tables that everybody reads, written by Hudi on the JVM and kept for the next run.

    plain     copy-on-write, loaded by one bulk insert: base files only
    merged    merge-on-read, a bulk insert and five upserts, never compacted: base files under Avro logs

Both have a simple bucket index with four buckets per partition, zstd base files and no metadata table.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from benchmarks.contestants import HUDI, started
from benchmarks.data import BATCHES, MERGED, PLAIN, Orders

BUCKETS = 4
SHAPE: dict[str, Any] = {"key": "order_id", "partition": "dt", "ordering": "updated_at", "buckets": BUCKETS}
"""The tables that bucketlake writes, as arguments of `create_table`."""

_OPTIONS = {
    "hoodie.datasource.write.recordkey.field": "order_id",
    "hoodie.datasource.write.partitionpath.field": "dt",
    "hoodie.datasource.write.hive_style_partitioning": "false",
    "hoodie.table.ordering.fields": "updated_at",
    "hoodie.record.merge.mode": "EVENT_TIME_ORDERING",
    "hoodie.index.type": "BUCKET",
    "hoodie.index.bucket.engine": "SIMPLE",
    "hoodie.bucket.index.hash.field": "order_id",
    "hoodie.bucket.index.num.buckets": str(BUCKETS),
    "hoodie.metadata.enable": "false",
    "hoodie.parquet.compression.codec": "zstd",  # gzip is Hudi's default and nobody's choice
    "hoodie.compact.inline": "false",
    "hoodie.bulkinsert.shuffle.parallelism": "4",
    "hoodie.upsert.shuffle.parallelism": "4",
}

_TYPES = {PLAIN: "COPY_ON_WRITE", MERGED: "MERGE_ON_READ"}
_WRITES = {
    PLAIN: (("orders", "bulk_insert"),),
    MERGED: (("orders", "bulk_insert"), *((batch, "upsert") for batch in BATCHES)),
}


class Writer(Protocol):
    """Writes the rows of a Parquet file into a Hudi table; the first write makes the table."""

    def __call__(
        self, path: Path, rows: Path, options: dict[str, str], operation: str, mode: str
    ) -> None: ...


def make_tables(
    orders: Orders, folder: Path, *, driver_memory: str, say: Callable[[str], None]
) -> dict[str, Path]:
    """Return the tables of `orders`, letting Hudi write those that are not there yet."""
    missing = [name for name in _TYPES if not _is_ready(orders, folder, name)]
    if missing:
        say(f"Hudi writes {' and '.join(missing)} ({orders.rows:,} orders)")
        # Its JVM ends with the writing: the one that is measured starts as fresh as everybody else's.
        with _hudi_writer(driver_memory) as write:
            for name in missing:
                write_table(name, orders, folder, write)
    return {name: folder / name for name in _TYPES}


def write_table(name: str, orders: Orders, folder: Path, write: Writer) -> Path:
    """Let `write` make the table `name` in `folder`, and mark it as complete."""
    path = folder / name
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir(parents=True)
    mode = "overwrite"
    for batch, operation in _WRITES[name]:
        write(path, orders.batch(batch), _options(name), operation, mode)
        mode = "append"
    _ready_path(folder, name).write_text(_stamp(orders, name))
    return path


def base_files(table: str, partition: str = "*", prefix: str = "") -> list[str]:
    """List base files. The tables are loaded once and never compacted, so all of them count."""
    return sorted(str(path) for path in Path(table).glob(f"{partition}/{prefix}*.parquet"))


@contextmanager
def _hudi_writer(driver_memory: str) -> Iterator[Writer]:
    with started([HUDI], driver_memory=driver_memory) as running:
        hudi = running.respondents[HUDI.name]

        def write(path: Path, rows: Path, options: dict[str, str], operation: str, mode: str) -> None:
            hudi.ask("write", path=str(path), rows=str(rows), options=options, operation=operation, mode=mode)

        yield write


def _options(name: str) -> dict[str, str]:
    return {**_OPTIONS, "hoodie.table.name": name, "hoodie.datasource.write.table.type": _TYPES[name]}


def _is_ready(orders: Orders, folder: Path, name: str) -> bool:
    ready = _ready_path(folder, name)
    return ready.exists() and ready.read_text() == _stamp(orders, name)


def _ready_path(folder: Path, name: str) -> Path:
    return folder / f"{name}.ready.json"


def _stamp(orders: Orders, name: str) -> str:
    """Say what the table was made from and how, so that a change of either makes it anew."""
    return json.dumps({"data": orders.stamp, "writes": _WRITES[name], "options": _options(name)})
