"""PySpark's daemon with bucketlake loaded: `spark.python.daemon.module=bucketlake.spark.daemon`.

Spark forks a Python worker from its daemon for every task that runs at once, ends it after a task that failed or
about a minute without one, and forks another. Each loads what its first task needs, which takes bucketlake more than
a second of CPU. With this setting, which a session must have from its start, the daemon loads it once, and the workers
share the memory, too.
"""

from __future__ import annotations

from contextlib import suppress

import pyarrow as pa
from pyspark.daemon import manager

import bucketlake.spark.files
import bucketlake.spark.services
import bucketlake.spark.write  # noqa: F401 # to be there already in every worker
from bucketlake.config import TableType
from bucketlake.spark.worker import settle_worker
from bucketlake.storage import MemoryStore
from bucketlake.write import ArrowRows, Operation, TableSpec, create, run_write


def rehearse() -> None:
    """Write a row twice: compiled kernels are loaded when they are first called."""
    row = pa.table({"key": ["k"], "day": ["d"], "version": [1]})
    for table_type in TableType:
        store = MemoryStore()
        create(
            store,
            TableSpec(
                name="rehearsal",
                schema=row.schema,
                key=("key",),
                partition=("day",),
                ordering=("version",),
                table_type=table_type,
            ),
        )
        for _ in range(2):
            run_write(ArrowRows(row), store, Operation.UPSERT)


if __name__ == "__main__":
    with suppress(Exception):  # without it the first tasks are slower, and without a daemon there are none
        rehearse()
    settle_worker()
    manager()  # type: ignore[no-untyped-call] # PySpark has no types there
