"""The benchmark in small, so that it cannot rot: a test calls it with Hudi and a session of its own.

Everything runs in the caller's process but Hudi, who made the tables. The answers are verified as ever; the
numbers mean nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from pyspark.sql import SparkSession

from benchmarks.contestants import ALONE, BASE_FILES, BUCKETLAKE, PARQUET, SOURCE, Here, Respondent
from benchmarks.data import MERGED, PLAIN, make_orders
from benchmarks.race import Result, race
from benchmarks.suites import SUITES
from benchmarks.tables import Writer, write_table
from benchmarks.truth import truths_about
from benchmarks.workers.base_files import BaseFiles
from benchmarks.workers.bucketlake_alone import BucketlakeAlone
from benchmarks.workers.bucketlake_on_spark import BucketlakeOnSpark
from benchmarks.workers.bucketlake_source import BucketlakeSource
from benchmarks.workers.parquet_on_spark import ParquetOnSpark

ROWS = 2_000
LOOKUPS = 3


def run_small(
    folder: Path,
    write: Writer,
    spark: SparkSession,
    *,
    suites: Iterable[str] = tuple(SUITES),
    rows: int = ROWS,
) -> tuple[Result, ...]:
    """Make data and tables in `folder`, Hudi writing through `write`, and run every case once.

    Raises `BenchmarkError` for the first wrong answer.
    """
    orders = make_orders(rows, folder / "data")
    tables = {name: write_table(name, orders, folder, write) for name in (PLAIN, MERGED)}
    truths = {name: replace(truth, keys=truth.keys[:LOOKUPS]) for name, truth in truths_about(orders).items()}
    respondents: dict[str, Respondent] = {
        BUCKETLAKE.name: Here(BucketlakeOnSpark(spark)),
        SOURCE.name: Here(BucketlakeSource(spark)),
        ALONE.name: Here(BucketlakeAlone()),
        PARQUET.name: Here(ParquetOnSpark(spark)),
        BASE_FILES.name: Here(BaseFiles()),
    }
    return tuple(
        race(
            case,
            suite=suite,
            rows=rows,
            table_path=str(tables[case.table]),
            respondents=respondents,
            truths=truths,
            warm_ups=0,
            repeats=1,
            say=lambda _: None,
        )
        for suite in suites
        for case in SUITES[suite]()
    )
