"""Whatever fails inside a write on Spark, the table has all of it or nothing, and never a file twice."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from bucketlake.layout.names import PIECES_FOLDER
from bucketlake.storage import Store
from spark.cases_with_retries import CASES as WITH_RETRIES
from spark.faults import Fault
from spark.orders import (
    Place,
    check_files,
    check_nothing_is_left,
    check_rows,
    data_files,
    frame_of,
    orders,
)
from spark.processes import (
    Outcomes,
    check_outcome,
    let_time_pass,
    run_script,
    start_script,
    wait_for,
    wait_until_gone,
)

pytestmark = [pytest.mark.spark, pytest.mark.shows("X2")]


@pytest.fixture(scope="module")
def with_retries(tmp_path_factory: pytest.TempPathFactory) -> Outcomes:
    return run_script("cases_with_retries", tmp_path_factory.mktemp("retries"))


@pytest.mark.parametrize("case", WITH_RETRIES)
def test_a_task_that_fails_leaves_no_trace(case: str, with_retries: Outcomes) -> None:
    check_outcome(case, with_retries)


def test_what_a_killed_driver_left_is_rolled_back(spark: SparkSession, tmp_path: Path) -> None:
    place = Place(spark, str(tmp_path))
    table, truth = place.loaded_table("orders", "COPY_ON_WRITE")
    before = data_files(table.store)
    fault = Fault(folder=tmp_path / "fault", step="data", nth=2, waits=True)
    with start_script("write_until_killed", str(tmp_path / "orders"), str(fault.folder)) as driver:
        try:
            wait_for(fault.happened, seconds_max=120)
        finally:
            os.killpg(driver.pid, signal.SIGKILL)
        print(driver.communicate()[0])
    wait_until_gone(fault.pids[:2])  # its workers end a moment after it
    left = set(data_files(table.store)) - set(before)
    assert left, "the driver was killed before anything was written"
    assert pieces_in(table.store), "its tasks had left no rows for each other"
    check_rows(table, truth, spark)

    # As long as its heart may be beating, others write beside it, and leave what it left alone.
    beside = orders(range(50), version=3)
    table.upsert(frame_of(spark, beside))
    truth.upsert(beside)
    assert left <= set(data_files(table.store))
    assert pieces_in(table.store)
    check_rows(table, truth)

    let_time_pass(tmp_path / "orders" / ".hoodie" / ".heartbeat")
    later = orders(range(50), version=4)
    table.upsert(frame_of(spark, later))
    truth.upsert(later)
    assert not left & set(data_files(table.store))
    assert not pieces_in(table.store)
    check_rows(table, truth, spark)
    check_files(table)
    assert [entry.action for entry in table.timeline()].count("rollback") == 1

    let_time_pass(tmp_path / "orders" / ".hoodie" / ".temp")
    table.delete([0])
    check_nothing_is_left(table.store)


def pieces_in(store: Store) -> list[str]:
    return [file.path for file in store.list(PIECES_FOLDER, recursive=True).files]
