"""Streams whose batches lose a process: a Python worker, an executor, or the one that runs the function of batches."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal
from unittest import mock

from pyspark.sql import DataFrame

from bucketlake import RecordIndex, SimpleBuckets, Table
from bucketlake import writes as of_writes
from bucketlake.config import load_properties
from bucketlake.index.told import IndexValue
from bucketlake.layout.names import CLAIM_FOLDER
from bucketlake.storage import Store
from spark.faults import Fault, FaultyRows, FaultyTaskStore
from spark.orders import Place, check_nothing_is_left
from spark.processes import wait_for
from spark.stream_jobs import Job, clicks_table
from stand_ins.clicks import commits_of, rows_of, truth

Lost = Literal["worker", "executor"]


class ShuffledJob(Job):
    """One whose batches are read by several tasks, and by way of a shuffle."""

    def frame(self) -> DataFrame:
        return super().frame().repartition(2)


def new_job(place: Place, name: str, index: IndexValue, table_type: str) -> Job:
    folder = Path(place.root) / "streams" / name
    return ShuffledJob(
        place.spark, folder, clicks_table(folder / "table", index=index, table_type=table_type)
    )


def a_batch_loses(place: Place, lost: Lost, step: Any, index: IndexValue, table_type: str) -> None:
    """Spark runs the task again, and the batch is committed once."""
    job = new_job(place, f"loses-{lost}-{table_type}", index, table_type)
    job.arrives(0)
    job.run()
    job.arrives(1, 2)
    fault = Fault(folder=job.folder / "fault", step=step, waits=True)
    with faulty_tasks(fault), ThreadPoolExecutor(1) as background:
        running = background.submit(job.run)
        wait_for(fault.happened)
        os.kill(fault.pids[0] if lost == "worker" else executor_of(fault.pids), signal.SIGKILL)
        running.result(timeout=180)
    job.check(0, 1, 2)
    check_nothing_is_left(job.table.store)


def a_batch_whose_tasks_all_fail(place: Place) -> None:
    """Then the query fails, and the next start writes the batch."""
    job = new_job(place, "fails", SimpleBuckets(2), "MERGE_ON_READ")
    job.arrives(0)
    job.run()
    job.arrives(1, 2)
    with faulty_tasks(Fault(folder=job.folder / "fault", step="data", always=True)):
        job.fails("injected at the step 'data'")
    assert rows_of(job.table.store) == truth([0])
    job.run()
    job.check(0, 1, 2)


def faulty_tasks(fault: Fault) -> Any:
    """Let the tasks of every write that begins meanwhile meet a fault."""
    by_tasks = of_writes.rows_by_tasks
    return mock.patch.object(
        of_writes, "rows_by_tasks", lambda rows, progress: FaultyRows(by_tasks(rows, progress), fault)
    )


def executor_of(task_pids: list[int]) -> int:
    """Find the JVM of a task among the processes above it."""

    def command(pid: int) -> str:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()

    return next(pid for pid in task_pids if "CoarseGrainedExecutorBackend" in command(pid))


CLUSTER_CASES: dict[str, Callable[[Place], None]] = {
    "a batch of a stream loses a Python worker that writes files": lambda place: a_batch_loses(
        place, "worker", "data", SimpleBuckets(2), "MERGE_ON_READ"
    ),
    "a batch of a stream loses an executor that writes files": lambda place: a_batch_loses(
        place, "executor", "data", RecordIndex(), "COPY_ON_WRITE"
    ),
    "a batch of a stream fails with its tasks and is written by the next start": a_batch_whose_tasks_all_fail,
}


@dataclass(slots=True)
class DyingStore(FaultyTaskStore):
    """A store that kills the process which is about to take a claim, or has taken one: the first that does."""

    def put_new(self, path: str, data: bytes | Path) -> bool:
        if path.startswith(CLAIM_FOLDER) and not self.fault.after:
            self._die()
        is_ours = self.inner.put_new(path, data)
        if path.startswith(CLAIM_FOLDER) and self.fault.after:
            self._die()
        return is_ours

    def _die(self) -> None:
        if not self.fault.happened.exists():
            self.fault.folder.mkdir(parents=True)
            self.fault.happened.touch()
            os.kill(os.getpid(), signal.SIGKILL)


def the_function_of_batches_is_killed(place: Place, after: bool) -> None:
    """It runs in a process of the server's. The query fails, and the next start goes on."""
    job = new_job(place, f"killed-{after}", SimpleBuckets(2), "MERGE_ON_READ")
    job.arrives(0)
    job.run()
    job.arrives(1, 2)
    store: Store = DyingStore(job.table.store, Fault(folder=job.folder / "fault", step="data", after=after))
    job.fails("", table=Table(store, load_properties(store)))
    assert (job.folder / "fault" / "happened").exists()
    assert rows_of(job.table.store) == truth([0]), "who was killed had published nothing"
    job.run()
    job.check(0, 1, 2)


@dataclass(frozen=True)
class FailsAfter:
    """Writes a batch, and fails then, once."""

    write: Callable[[DataFrame, int], None]
    flag: Path

    def __call__(self, frame: DataFrame, number: int) -> None:
        self.write(frame, number)
        if number == 1 and not self.flag.exists():
            self.flag.touch()
            raise RuntimeError("after the batch was written")


def the_function_of_batches_fails_after_the_commit(place: Place) -> None:
    job = new_job(place, "fails-after", RecordIndex(), "COPY_ON_WRITE")
    job.arrives(0, 1, 2)
    writer = job.table.batch_writer(checkpoint=job.folder / "checkpoint", verify_replay=True)
    write = FailsAfter(writer, job.folder / "failed")
    job.fails("after the batch was written", write=write)
    assert commits_of(job.table.store) == [0, 1]
    job.run(write=write)
    job.check(0, 1, 2)


CONNECT_CASES: dict[str, Callable[[Place], None]] = {
    "the function of batches is killed before its claim": lambda place: the_function_of_batches_is_killed(
        place, False
    ),
    "the function of batches is killed with its claim taken": lambda place: the_function_of_batches_is_killed(
        place, True
    ),
    "the function of batches fails after the commit": the_function_of_batches_fails_after_the_commit,
}
