"""The benchmark in small, so that it cannot rot: a test calls it with Hudi and a session of its own.

Everything runs in the caller's process but Hudi, who made the tables. The answers are verified as ever; the
numbers mean nothing.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

from pyspark.sql import SparkSession

from benchmarks.contestants import (
    ALONE,
    BASE_FILES,
    BUCKETLAKE,
    DYNAMIC,
    EVALUATED,
    FILES,
    PARQUET,
    RECORD,
    RING,
    SOURCE,
    Here,
    Respondent,
)
from benchmarks.data import MERGED, PLAIN, make_orders
from benchmarks.index_race import index_race
from benchmarks.race import Result, race
from benchmarks.suites import dynamic, engines, read, record, secondary, write
from benchmarks.tables import Writer, write_table
from benchmarks.truth import truths_about
from benchmarks.workers.base_files import BaseFiles
from benchmarks.workers.bucketlake_alone import BucketlakeAlone
from benchmarks.workers.bucketlake_dynamic import BucketlakeDynamic
from benchmarks.workers.bucketlake_evaluated import BucketlakeEvaluated
from benchmarks.workers.bucketlake_on_spark import BucketlakeOnSpark
from benchmarks.workers.bucketlake_record import BucketlakeRecord
from benchmarks.workers.bucketlake_ring import BucketlakeRing
from benchmarks.workers.bucketlake_source import BucketlakeSource
from benchmarks.workers.parquet_on_spark import ParquetOnSpark
from benchmarks.workers.plain_files import PlainFiles
from benchmarks.write_race import write_race

ROWS = 2_000
DAYS = 4
"""Partitions, so four times as many file groups: these are what a small table costs."""
LOOKUPS = 3


def read_small(folder: Path, write: Writer, spark: SparkSession, *, rows: int = ROWS) -> tuple[Result, ...]:
    """Make data and tables in `folder`, Hudi writing through `write`, and ask every question once.

    Raises `BenchmarkError` for the first wrong answer.
    """
    orders = make_orders(rows, folder / "data", quiet_days=DAYS - 1)
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
            suite="read",
            rows=rows,
            tables=dict.fromkeys(case.contestants, tables[case.table]),
            respondents=respondents,
            truths=truths,
            warm_ups=0,
            repeats=1,
            say=lambda _: None,
        )
        for case in read.cases()
    )


def write_small(folder: Path, spark: SparkSession, *, rows: int = ROWS) -> tuple[Result, ...]:
    """Let everybody but Hudi make its tables in `folder`; raises `BenchmarkError` for the first wrong one."""
    orders = make_orders(rows, folder / "data", quiet_days=DAYS - 1)
    truths = truths_about(orders)
    respondents: dict[str, Respondent] = {
        BUCKETLAKE.name: Here(BucketlakeOnSpark(spark)),
        EVALUATED.name: Here(BucketlakeEvaluated(spark)),
        RING.name: Here(BucketlakeRing(spark)),
        RECORD.name: Here(BucketlakeRecord(spark)),
        DYNAMIC.name: Here(BucketlakeDynamic(spark)),
        ALONE.name: Here(BucketlakeAlone()),
        FILES.name: Here(PlainFiles()),
    }
    return tuple(
        result
        for case in (*write.cases(), *engines.cases(), *record.cases()[1:], *dynamic.cases())
        for result in write_race(
            case,
            suite="write",
            orders=orders,
            warm_up=None,
            folder=folder / "written",
            respondents=respondents,
            readers=lambda name: nullcontext(respondents[name]),
            truths=truths,
            warm_ups=0,
            repeats=1,
            say=lambda _: None,
        )
    )


def index_small(folder: Path, spark: SparkSession, *, rows: int = ROWS) -> tuple[Result, ...]:
    """Let everybody but Hudi build an index in `folder` and query by it; raises `BenchmarkError` if one is wrong."""
    orders = make_orders(rows, folder / "data", quiet_days=DAYS - 1)
    respondents: dict[str, Respondent] = {
        RECORD.name: Here(BucketlakeRecord(spark)),
        ALONE.name: Here(BucketlakeAlone()),
    }
    [case] = secondary.cases()
    return index_race(
        case,
        suite="secondary",
        orders=orders,
        warm_up=None,
        folder=folder / "indexed",
        respondents=respondents,
        truths=truths_about(orders),
        warm_ups=0,
        repeats=1,
        write_repeats=1,
        say=lambda _: None,
    )
