"""Writing on executors that are other processes, and through Spark Connect, is writing like anywhere else."""

from __future__ import annotations

import pytest

from spark.cases_on_a_cluster import BUDGET_CASES, EXCHANGE_CASES, KILLED_CASES, OVERTAKEN_CASES
from spark.cases_on_connect import BAR_CASES, STREAM_CASES
from spark.processes import Outcomes, check_outcome, run_script
from spark.stream_cases import CLUSTER_CASES, CONNECT_CASES
from spark.write_scenarios import SCENARIO_CASES

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def on_a_cluster(tmp_path_factory: pytest.TempPathFactory) -> Outcomes:
    return run_script("cases_on_a_cluster", tmp_path_factory.mktemp("cluster"))


@pytest.fixture(scope="module")
def on_connect(tmp_path_factory: pytest.TempPathFactory) -> Outcomes:
    return run_script("cases_on_connect", tmp_path_factory.mktemp("connect"))


@pytest.mark.shows("S3", "S5", "X3")
@pytest.mark.parametrize("case", SCENARIO_CASES)
def test_executors_of_other_processes_write(case: str, on_a_cluster: Outcomes) -> None:
    check_outcome(case, on_a_cluster)


@pytest.mark.shows("X10")
@pytest.mark.parametrize("case", BUDGET_CASES)
def test_workers_take_their_memory_budget_from_spark(case: str, on_a_cluster: Outcomes) -> None:
    check_outcome(case, on_a_cluster)


@pytest.mark.shows("X2", "X3")
@pytest.mark.parametrize("case", KILLED_CASES)
def test_a_write_survives_the_loss_of_an_executor(case: str, on_a_cluster: Outcomes) -> None:
    check_outcome(case, on_a_cluster)


@pytest.mark.shows("R9", "X2")
@pytest.mark.parametrize("case", CLUSTER_CASES)
def test_a_stream_counts_each_record_once_whatever_its_tasks_lose(case: str, on_a_cluster: Outcomes) -> None:
    check_outcome(case, on_a_cluster)


@pytest.mark.shows("X2")
@pytest.mark.parametrize("case", OVERTAKEN_CASES)
def test_of_two_attempts_at_once_one_file_stays(case: str, on_a_cluster: Outcomes) -> None:
    check_outcome(case, on_a_cluster)


@pytest.mark.shows("X2")
@pytest.mark.parametrize("case", EXCHANGE_CASES)
def test_of_two_attempts_at_once_every_row_counts_once(case: str, on_a_cluster: Outcomes) -> None:
    check_outcome(case, on_a_cluster)


@pytest.mark.shows("S3", "S5", "X3")
@pytest.mark.parametrize("case", SCENARIO_CASES)
def test_spark_connect_writes(case: str, on_connect: Outcomes) -> None:
    check_outcome(case, on_connect)


@pytest.mark.parametrize("case", BAR_CASES)
def test_spark_connect_shows_progress(case: str, on_connect: Outcomes) -> None:
    check_outcome(case, on_connect)


@pytest.mark.shows("R9", "X2")
@pytest.mark.parametrize("case", CONNECT_CASES)
def test_a_stream_over_spark_connect_counts_each_record_once(case: str, on_connect: Outcomes) -> None:
    check_outcome(case, on_connect)


@pytest.mark.shows("H3")
@pytest.mark.parametrize("case", STREAM_CASES)
def test_spark_connect_reads_a_stream(case: str, on_connect: Outcomes) -> None:
    check_outcome(case, on_connect)
