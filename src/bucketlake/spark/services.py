"""The tasks of a service, run by Spark's.

    values ── shared out by their bytes ──> a row per Spark task, the largest first
           ── function ──> a row per result, back on the driver

Spark starts tasks in the order of their numbers, so the largest do not come last. An attempt that fails is tried again
by Spark; that is for the functions to bear, and they do: see `services.tasks`.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, TypeVar

import pyarrow as pa
from pyspark.sql import SparkSession

from bucketlake.services.tasks import share_out, size_of
from bucketlake.spark.progress import watched
from bucketlake.spark.python import settle_python
from bucketlake.spark.read import TASK_BYTES
from bucketlake.spark.worker import settle_worker
from bucketlake.spark.write import cores_of, own_errors

OPEN_COST_BYTES = 1024 * 1024
"""What a value costs beside its bytes."""

TASKS_PER_CORE = 4
"""So that a core which is done early finds more to do."""

T = TypeVar("T")
R = TypeVar("R")


class SessionTasks:
    """Runs the tasks of a service on a session, classic or of Spark Connect."""

    def __init__(self, session: SparkSession, *, progress: bool | None = None) -> None:
        settle_python(session)
        self._session = session
        self._progress = progress

    def __call__(self, function: Callable[[T], R], items: Sequence[T], /) -> list[R]:
        if not items:
            return []
        sizes = [size_of(item) + OPEN_COST_BYTES for item in items]
        packs = share_out(sizes, max(cores_of(self._session) * TASKS_PER_CORE, sum(sizes) // TASK_BYTES))
        rows = pa.table(
            {
                "task": pa.array(range(len(packs)), pa.int32()),
                # A pack is pickled as one: what its values share is in it once.
                "items": pa.array([pickle.dumps([(n, items[n]) for n in pack]) for pack in packs]),
            }
        )
        frame = self._session.createDataFrame(rows).repartitionById(len(packs), "task")
        done = frame.mapInArrow(partial(_run_packs, function=function), "number INT, result BINARY")
        title = getattr(function, "__name__", "tasks").replace("_", " ")
        with own_errors(), watched(self._session, title, show=self._progress):
            results = done.toArrow()
        found = dict(zip(*(column.to_pylist() for column in results.columns), strict=True))
        return [pickle.loads(found[number]) for number in range(len(items))]


def _run_packs(
    batches: Iterable[pa.RecordBatch], *, function: Callable[[Any], Any]
) -> Iterator[pa.RecordBatch]:
    settle_worker()
    for batch in batches:
        for pack in batch.column("items").to_pylist():
            for number, item in pickle.loads(pack):
                row = {"number": pa.array([number], pa.int32()), "result": [pickle.dumps(function(item))]}
                yield pa.RecordBatch.from_pydict(row)
