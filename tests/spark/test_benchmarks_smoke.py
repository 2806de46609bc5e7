"""The benchmark must not rot: its suites run in small, and every answer is verified."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from xml.etree import ElementTree

import pyarrow.parquet as pq
import pytest
from benchmarks import (
    cold,
    cold_profile,
    dynamic_buckets,
    growth,
    index_cache,
    limits,
    limits_page,
    many_files,
    metadata_table,
    record_index,
    secondary_index,
    secondary_reads,
    small_batches,
    streams,
)
from benchmarks.contestants import BUCKETLAKE, PIPELINED, RECORD, Contestant, Here, Respondent, Running
from benchmarks.data import make_arrivals
from benchmarks.page import BENCHMARKS, fill, filled
from benchmarks.report import Setting, print_results, write_page
from benchmarks.smoke import DAYS, index_small, read_small, write_small
from benchmarks.workers.bucketlake_alone import BucketlakeAlone
from benchmarks.workers.bucketlake_on_spark import BucketlakeOnSpark
from benchmarks.workers.bucketlake_pipelined import BucketlakePipelined
from benchmarks.workers.bucketlake_record import BucketlakeRecord
from pyspark.sql import SparkSession
from rich.console import Console
from rich.table import Table as Shown

from bucketlake import SimpleBuckets
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


def test_the_benchmark_of_reads_by_secondary_indexes_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(secondary_reads, "ROUNDS", 2)
    monkeypatch.setattr(secondary_reads, "DAYS", 4)
    shown: list[object] = []
    secondary_reads.main(["--rows", "2000"], show=shown.append)
    assert len(shown) == 1


def test_the_benchmark_of_secondary_indexes_runs() -> None:
    shown: list[object] = []
    secondary_index.main(["--rows", "2000"], show=shown.append)
    assert len(shown) == 1


def test_the_benchmark_of_dynamic_buckets_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dynamic_buckets, "COMMITS", 4)
    monkeypatch.setattr(dynamic_buckets, "UPSERTS", 2)
    shown: list[object] = []
    dynamic_buckets.main(["--keys", "2000"], show=shown.append)
    assert len(shown) == 3


def test_the_benchmark_of_many_files_runs(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(many_files, "TURNS", 2)
    monkeypatch.setattr(many_files, "BUCKETS_WRITTEN", 4)
    monkeypatch.setattr(many_files, "PUTS", ((3, 2),))
    monkeypatch.setattr(many_files, "local_session", lambda: spark)
    shown: list[object] = []
    many_files.main(["--keys", "3"], show=shown.append)
    assert len(shown) == 3


def test_the_benchmark_of_cold_processes_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def here(contestants: list[Contestant], **_: object) -> Iterator[Running]:
        yield Running({one.name: Here(BucketlakeAlone()) for one in contestants}, {})

    monkeypatch.setattr(cold, "started", here)
    shown: list[object] = []
    chosen = ["--only", cold.ALONE.name, "--place", str(tmp_path)]
    cold.main(["--rows", "2000", "--rounds", "1", *chosen], show=shown.append)
    assert len(shown) == 1


def test_the_profile_of_a_cold_session_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def here(contestants: list[Contestant], **_: object) -> Iterator[Running]:
        yield Running({one.name: Here(BucketlakeAlone()) for one in contestants}, {})

    monkeypatch.setattr(cold_profile, "started", here)
    shown: list[Shown] = []
    chosen = ["--contestant", cold.ALONE.name, "--place", str(tmp_path)]
    cold_profile.main(["--rows", "2000", *chosen], show=shown.append)
    assert [table.row_count for table in shown] == [6], "a line for each step"


@pytest.mark.parametrize(
    "name", ["cold", "cold-profile", "small-batches", "many-files", "growth", "warm", "commits", "aging"]
)
def test_the_page_has_a_place_for_every_table_that_is_filled(name: str) -> None:
    assert f"{name}: start" in filled(BENCHMARKS.read_text(), name, ["measured"])


def test_the_benchmark_of_growth_runs_and_fills_its_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(growth, "LOADED", 4_000)
    monkeypatch.setattr(growth, "ROWS", 400)
    monkeypatch.setattr(growth, "UPSERTS", 1)
    few = {"rows": [3_000], "partitions": [10], "commits": [2], "buckets": [4]}
    asked = [part for axis, values in few.items() for part in (f"--{axis}", *map(str, values))]
    growth.main([*asked, "--results", str(tmp_path / "growth.json")])
    results = json.loads((tmp_path / "growth.json").read_text())
    (tmp_path / "benchmarks.md").write_text("<!-- growth: start -->\n<!-- growth: end -->\n")
    monkeypatch.setattr(growth, "VALUES", few)
    growth.write_page(results, tmp_path)
    assert (tmp_path / "benchmarks.md").read_text().count("| 4 |") == 1
    ElementTree.parse(tmp_path / "plots" / "growth.svg")


def test_the_benchmark_of_small_batches_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(small_batches, "UPSERTS", 1)
    monkeypatch.setattr(small_batches, "REQUEST_SECONDS", 0.001)
    monkeypatch.setattr(small_batches, "INDEXES", {"buckets": SimpleBuckets(1)})
    shown: list[object] = []
    small_batches.main(["--keys", "2000"], show=shown.append)
    assert len(shown) == 1


def test_the_benchmark_of_the_index_cache_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_cache, "BATCHES", 2)
    monkeypatch.setattr(index_cache, "BATCH_ROWS", 100)
    shown: list[object] = []
    index_cache.main(["--keys", "3000"], show=shown.append)
    assert len(shown) == 1


def test_the_race_of_streams_runs_and_all_tables_hold_the_truth(spark: SparkSession, tmp_path: Path) -> None:
    arrivals = make_arrivals(500, 2, 100, tmp_path / "data", quiet_days=1)
    racers: dict[str, Respondent] = {
        RECORD.name: Here(BucketlakeRecord(spark)),
        PIPELINED.name: Here(BucketlakePipelined(spark)),
        BUCKETLAKE.name: Here(BucketlakeOnSpark(spark)),
    }
    raced = streams.stream_race(
        list(racers), arrivals, None, tmp_path / "raced", lambda name: nullcontext(racers[name])
    )
    results = list(raced)
    assert [len(done.latencies_ms) for done in results] == [2, 2, 2]
    assert streams.table_of(results, arrivals).row_count == 3
    page = tmp_path / "streams.md"
    page.write_text(limits_page.PAGE.with_name("streams.md").read_text())
    fill(page, "race", [streams.table_of(results, arrivals)])
    assert "| bucketlake, record-level |" in page.read_text()


@pytest.mark.shows("R12")
def test_the_benchmark_of_limits_runs_and_makes_its_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fewer = {"BATCHES_MIN": 1, "BATCHES_MAX": 1, "LOOK_UPS_MIN": 1, "LOOK_UPS_MAX": 1, "FILLED_WITH": 2_000}
    for name, few in fewer.items():
        monkeypatch.setattr(limits, name, few)
    monkeypatch.setattr(limits, "LOOKED_UP", (1, 10))
    monkeypatch.setattr(limits, "STATES", ("warm",))
    monkeypatch.setattr(limits_page, "MODELLED", 8_000)
    results, page = tmp_path / "limits.json", tmp_path / "limits.md"
    limits.main(["--keys", "2000", "4000", "--rows", "50", "--seconds", "0", "--results", str(results)])
    page.write_text(limits_page.PAGE.read_text())
    limits.main(["--page", str(results), "--docs", str(tmp_path)])
    filled = page.read_text()
    assert filled.count("| 0.004 M |") == 4 + 2 + 3, (
        "a line in each of four tables, two look-ups, three loads"
    )
    assert filled.count("| 0.008 M | 50 | ~") == 3, "and of what is modelled"
    for drawn in (tmp_path / "plots").iterdir():
        assert ElementTree.parse(drawn).getroot().tag.endswith("svg")


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
    assert [len(result.scores) for result in loads] == [4, 2, 4, 2, 1, 2]
    of_buckets = loads[:-2]
    assert all(score.files_written >= 4 * DAYS for result in of_buckets for score in result.scores), (
        "a file for each of 4 buckets in every partition"
    )
    print_results(results, Console(quiet=True))
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- warm: start -->\nold\n<!-- warm: end -->\nafter\n")
    write_page(page, results, Setting("make bench", 2, 5, 1, "4g", {"bucketlake": {"spark": "4.1"}}))
    assert page.read_text().count("| bucketlake |") >= len(loads) - 1
    assert "old" not in page.read_text()


def test_the_benchmark_of_secondary_indexes_beside_others_runs_and_all_answers_are_true(
    spark: SparkSession, tmp_path: Path
) -> None:
    results = index_small(tmp_path, spark)
    assert [len(result.scores) for result in results] == [2, 2, 2, 2], "a build, and queries for three sizes"
    print_results(results, Console(quiet=True))
