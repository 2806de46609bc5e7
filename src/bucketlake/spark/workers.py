"""What Spark's Python workers run, found out by asking one."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib.metadata import version
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.errors import PySparkException

from bucketlake.spark.python import settle_python

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class Worker:
    """The Python of a worker, and the version of bucketlake that it finds."""

    executable: str
    version: str


def ask_a_worker(session: SparkSession) -> tuple[Worker | None, str]:
    """Return what a worker says of itself; None and the fault if it cannot run what a task of ours needs."""
    settle_python(session)
    try:
        (row,) = session.range(1).mapInArrow(_tell, "told string").collect()
    except PySparkException as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        faults = [line for line in lines if "Error" in line.split(":")[0]]
        return None, (faults or lines)[-1] if lines else type(error).__name__
    return Worker(**json.loads(row.told)), ""


def _tell(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for _ in batches:
        told = json.dumps({"executable": sys.executable, "version": version("bucketlake")})
        yield pa.RecordBatch.from_pydict({"told": [told]})
