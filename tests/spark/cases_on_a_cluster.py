"""Executors that are processes of their own: the scenarios, and what happens when one is slow, or killed.

Run by `processes.run_script`. The master, and at first the workers, are in the driver's JVM (`local-cluster`).
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from unittest import mock

import pyarrow as pa
import pyspark
from pyspark.sql import SparkSession

from bucketlake import SPARK_SETTINGS, memory_in_use
from bucketlake.spark import exchange
from bucketlake.spark.write import FrameRows
from bucketlake.write import Operation, run_write
from spark.exchange_cases import STAGES, WAYS, an_exchange_brings_every_row_once
from spark.faults import Fault, FaultyRows, Step
from spark.orders import (
    Order,
    Place,
    check_files,
    check_nothing_is_left,
    check_rows,
    frame_of,
    orders,
)
from spark.processes import is_running, run_cases, wait_for, wait_until_gone
from spark.stream_cases import CLUSTER_CASES, executor_of
from spark.write_scenarios import SCENARIO_CASES

EXECUTORS = 2
WORKERS_BUDGET_BYTES = 7 << 20
JAVA = "-Duser.timezone=UTC -XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
JAVA_OPTIONS = ("spark.driver.extraJavaOptions", "spark.executor.extraJavaOptions")


def batch() -> list[Order]:
    return [*orders(range(20, 160), version=2), *orders(range(1_000, 1_020), version=2, days=["2026-07-01"])]


def an_executor_is_killed(place: Place, table_type: str, step: Step, is_on_disk: bool = True) -> None:
    """What it had done is done again by others; what it had told of the rows it read is told twice."""
    name = f"killed-{step}-{table_type}-{is_on_disk}"
    table, truth = place.loaded_table(name, table_type)
    fault = Fault(folder=Path(place.root) / f"{name}-fault", step=step, waits=True)
    frame = frame_of(place.spark, batch(), pieces=6)
    rows = FaultyRows(FrameRows(frame), fault, is_on_disk=is_on_disk)
    with (
        mock.patch.object(exchange, "_sums", side_effect=exchange._sums) as sums,
        ThreadPoolExecutor(1) as background,
    ):
        writing = background.submit(run_write, rows, table.store, Operation.UPSERT)
        wait_for(fault.happened)
        os.kill(executor_of(fault.pids), signal.SIGKILL)
        summary = writing.result(timeout=120)
    truth.upsert(batch())
    assert summary.rows == len(batch())
    if step == "data" and not is_on_disk:
        # The rows that the lost executor had tagged were tagged once more, and so counted twice at first.
        assert sums.call_count == 2, "the rows were not counted anew"
    check_rows(table, truth)
    check_files(table)
    check_nothing_is_left(table.store)
    wait_for_executors(place.spark, EXECUTORS)


def a_second_attempt_overtakes(place: Place, table_type: str, step: Step) -> None:
    """The first attempt is so slow that Spark starts another; it goes on when the write is long committed."""
    name = f"overtaken-{step}-{table_type}"
    table, truth = place.loaded_table(name, table_type)
    fault = Fault(folder=Path(place.root) / f"{name}-fault", step=step, waits=True)
    rows = FaultyRows(FrameRows(frame_of(place.spark, batch())), fault)
    summary = run_write(rows, table.store, Operation.UPSERT)
    truth.upsert(batch())
    assert summary.rows == len(batch())
    (slow_worker, *_) = fault.pids
    assert is_running(slow_worker), "the slow attempt was waited for"
    check_rows(table, truth)
    check_files(table)
    fault.go.touch()
    wait_until_gone([slow_worker])
    check_rows(table, truth)
    check_files(table)

    again = orders(range(30), version=3)
    table.upsert(frame_of(place.spark, again))
    truth.upsert(again)
    check_rows(table, truth)
    check_files(table)
    check_nothing_is_left(table.store)


def workers_follow_their_environment(place: Place) -> None:
    """Each is a process with a memory budget of its own; nobody calls `set_memory_budget` there."""

    def budgets(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            yield pa.RecordBatch.from_pydict({"bytes": [memory_in_use().budget_bytes]})

    found = place.spark.range(2, numPartitions=2).mapInArrow(budgets, "bytes long").collect()
    assert [row.bytes for row in found] == [WORKERS_BUDGET_BYTES] * 2
    assert memory_in_use().budget_bytes != WORKERS_BUDGET_BYTES


@contextmanager
def a_worker_on_another_host(spark: SparkSession, folder: Path) -> Iterator[None]:
    """Add an executor at another address: Spark does not start a second attempt on the host of the first."""
    clusters = getattr(spark._jvm, "org.apache.spark.deploy.LocalSparkCluster$")
    cluster = getattr(clusters, "MODULE$").get().get()
    with urllib.request.urlopen(f"http://127.0.0.1:{cluster.masterWebUIPort()}/json/") as page:
        master = json.load(page)["url"]
    spark_class = Path(pyspark.__file__).parent / "bin" / "spark-class"
    command = [str(spark_class), "org.apache.spark.deploy.worker.Worker", "--host", "127.0.0.2"]
    command += ["--cores", "1", "--memory", "1g", "--webui-port", "0", "--work-dir", str(folder), master]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as worker:
        try:
            wait_for_executors(spark, EXECUTORS + 1)
            yield
        finally:
            worker.terminate()


def wait_for_executors(spark: SparkSession, count: int, *, seconds_max: float = 60) -> None:
    deadline = time.monotonic() + seconds_max
    tracker = spark.sparkContext._jsc.sc().statusTracker()
    while len(tracker.getExecutorInfos()) - 1 < count:  # the driver is one of them
        assert time.monotonic() < deadline, f"{count} executors did not come to be"
        time.sleep(0.05)


BUDGET_CASES: dict[str, Callable[[Place], None]] = {
    "workers have the memory budget of their environment": workers_follow_their_environment,
}
KILLED_CASES: dict[str, Callable[[Place], None]] = {
    "an executor is killed while it tags rows": partial(
        an_executor_is_killed, table_type="MERGE_ON_READ", step="tag"
    ),
    "an executor is killed while it writes files": partial(
        an_executor_is_killed, table_type="COPY_ON_WRITE", step="data"
    ),
    "an executor is killed while it writes files from rows that Spark carried": partial(
        an_executor_is_killed, table_type="COPY_ON_WRITE", step="data", is_on_disk=False
    ),
}
OVERTAKEN_CASES: dict[str, Callable[[Place], None]] = {
    "a second attempt overtakes the first before its marker": partial(
        a_second_attempt_overtakes, table_type="COPY_ON_WRITE", step="marker"
    ),
    "a second attempt overtakes the first before its log": partial(
        a_second_attempt_overtakes, table_type="MERGE_ON_READ", step="data"
    ),
}


EXCHANGE_CASES: dict[str, Callable[[Place], None]] = {
    f"a second attempt of the {stage} stage of an exchange by {way} overtakes the first": partial(
        an_exchange_brings_every_row_once, way=way, stage=stage, waits=True
    )
    for way in WAYS
    for stage in STAGES
}


def main(folder: Path) -> int:
    spark = (
        SparkSession.builder.master(f"local-cluster[{EXECUTORS},1,1024]")
        .config(map=SPARK_SETTINGS | {name: f"{SPARK_SETTINGS[name]} {JAVA}" for name in JAVA_OPTIONS})
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.executorEnv.BUCKETLAKE_MEMORY", "7MB")
        .config("spark.speculation", "true")
        .config("spark.speculation.quantile", "0.5")
        # What a lost executor held is asked for in vain: not for long.
        .config("spark.shuffle.io.maxRetries", "1")
        .config("spark.shuffle.io.retryWait", "100ms")
        .config("spark.standalone.executorRemoveDelayOnDisconnection", "100ms")
        .config("spark.python.task.killTimeout", "60s")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    try:
        return run_all(Place(spark, str(folder)), folder)
    finally:
        # Executors log to a folder of the installation, whatever one asks for.
        logs = Path(pyspark.__file__).parent / "work" / spark.sparkContext.applicationId
        spark.stop()
        shutil.rmtree(logs, ignore_errors=True)


def run_all(place: Place, folder: Path) -> int:
    def bound(cases: dict[str, Callable[[Place], None]]) -> dict[str, Callable[[], None]]:
        return {name: partial(case, place) for name, case in cases.items()}

    failed = run_cases(bound(BUDGET_CASES | SCENARIO_CASES | KILLED_CASES | CLUSTER_CASES), folder)
    with a_worker_on_another_host(place.spark, folder / "worker"):
        return max(failed, run_cases(bound(OVERTAKEN_CASES | EXCHANGE_CASES), folder))


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
