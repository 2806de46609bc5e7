"""The benchmark must not rot: its suites run in small, and every answer is verified."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest
from benchmarks import metadata_table, record_index
from benchmarks.report import print_results
from benchmarks.smoke import DAYS, read_small, write_small
from pyspark.sql import SparkSession
from rich.console import Console

from judges.hudi_jvm import HudiJvm

pytestmark = pytest.mark.spark


def test_the_benchmark_of_metadata_tables_runs() -> None:
    shown: list[object] = []
    metadata_table.main(["--partitions", "3", "--rows", "2000", "--rounds", "1"], show=shown.append)
    assert len(shown) == 2


def test_the_benchmark_of_record_level_indexes_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_index, "BATCHES", 2)
    monkeypatch.setattr(record_index, "LOOKED_UP", (1, 10))
    shown: list[object] = []
    record_index.main(["--keys", "2000"], show=shown.append)
    assert len(shown) == 3


@pytest.mark.interop
def test_the_benchmark_runs_and_all_contestants_agree(
    hudi: HudiJvm, spark: SparkSession, tmp_path: Path
) -> None:
    def write(path: Path, rows: Path, options: dict[str, str], operation: str, mode: str) -> None:
        hudi.write(path, pq.read_table(rows), options, operation=operation, mode=mode)

    results = read_small(tmp_path, write, spark)
    assert {result.case for result in results}


def test_the_benchmark_of_writing_runs_and_all_tables_hold_the_truth(
    spark: SparkSession, tmp_path: Path
) -> None:
    results = write_small(tmp_path, spark)
    loads = [result for result in results if result.case.startswith("bulk load")]
    assert [len(result.scores) for result in loads] == [4, 2, 4, 2, 1]
    of_buckets = loads[:-1]
    assert all(score.files_written >= 4 * DAYS for result in of_buckets for score in result.scores), (
        "a file for each of 4 buckets in every partition"
    )
    print_results(results, Console(quiet=True))
