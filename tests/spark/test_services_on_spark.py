"""A service on Spark must leave the same files as one in this process, however its tasks are spread or repeated."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from bucketlake import ConsistentBuckets, Table
from bucketlake.cli import main
from bucketlake.config import TimelineTimezone
from bucketlake.errors import CorruptTableError
from bucketlake.services import (
    ResizeTrigger,
    Retention,
    Tasks,
    check_table,
    clean_table,
    cluster_table,
    compact_table,
    here,
    look_for_resize,
    schedule_resize,
)
from bucketlake.services.compaction import compact_slice
from bucketlake.spark.services import SessionTasks
from bucketlake.state import load_state
from bucketlake.timeline import Clock
from stand_ins.orders_table import orders, orders_table, rows_of, written_table

pytestmark = pytest.mark.spark

Files = dict[str, bytes]


def frozen_clock() -> Clock:
    """A clock at which two runs give their instants the same times."""
    return Clock(TimelineTimezone.UTC, now_ms=lambda: 4_102_444_800_000)


def data_files(folder: Path) -> Files:
    found = (path for path in folder.rglob("*") if path.is_file() and ".hoodie/" not in str(path))
    return {str(path.relative_to(folder)): path.read_bytes() for path in found}


def twice(folder: Path, make: Callable[[Path], Table]) -> tuple[Table, Table]:
    """Make a table, and a copy of it."""
    make(folder / "here")
    shutil.copytree(folder / "here", folder / "there")
    return Table.open(folder / "here"), Table.open(folder / "there")


@pytest.mark.shows("X2")
def test_a_compaction_on_spark_writes_the_files_of_one_in_this_process(
    spark: SparkSession, tmp_path: Path
) -> None:
    alone, spread = twice(tmp_path, lambda path: written_table(path, buckets=4))
    before = rows_of(alone)
    expected = compact_table(alone.store, clock=frozen_clock())
    assert compact_table(spread.store, tasks=SessionTasks(spark), clock=frozen_clock()) == expected
    assert expected[0].file_groups > 4
    assert data_files(tmp_path / "there") == data_files(tmp_path / "here")
    assert rows_of(spread) == before
    assert spread.fsck(spark=spark) == alone.fsck() == check_table(alone.store)
    assert spread.fsck().is_sound


def test_a_clean_on_spark_deletes_what_one_in_this_process_does(spark: SparkSession, tmp_path: Path) -> None:
    alone, spread = twice(tmp_path, lambda path: written_table(path, table_type="COPY_ON_WRITE"))
    before = data_files(tmp_path / "here")
    planned = spread.plan_clean(retain_commits=1)
    assert data_files(tmp_path / "there") == before
    retain = Retention(commits=1)
    expected = clean_table(alone.store, retain=retain, clock=frozen_clock())
    assert (
        clean_table(spread.store, retain=retain, tasks=SessionTasks(spark), clock=frozen_clock()) == expected
    )
    assert expected[0].files == len(planned.work.files) > 0
    assert data_files(tmp_path / "there") == data_files(tmp_path / "here")
    assert rows_of(spread) == rows_of(alone)


def test_a_clustering_on_spark_writes_the_files_of_one_in_this_process(
    spark: SparkSession, tmp_path: Path
) -> None:
    alone, spread = twice(tmp_path, lambda path: written_table(path, buckets=4))
    before = rows_of(alone)
    expected = cluster_table(alone.store, by=["name"], clock=frozen_clock())
    assert len(spread.plan_clustering(by="name").work.slices) == expected[0].file_groups > 4
    done = cluster_table(spread.store, by=["name"], tasks=SessionTasks(spark), clock=frozen_clock())
    assert done == expected
    assert data_files(tmp_path / "there") == data_files(tmp_path / "here")
    assert rows_of(spread) == before
    assert spread.cluster(spark=spark, by="name").runs == ()
    assert spread.fsck().is_sound


def test_fsck_on_spark_finds_what_it_finds_here(spark: SparkSession, tmp_path: Path) -> None:
    table = written_table(tmp_path / "orders")
    base, log = (
        sorted((tmp_path / "orders" / "p0").glob("*.parquet"))[0],
        next((tmp_path / "orders" / "p1").glob(".*.log.*")),
    )
    base.write_bytes(base.read_bytes()[:-9])
    log.unlink()
    found = table.fsck(spark=spark, progress=False)
    assert found == table.fsck()
    assert {finding.kind.name for finding in found.findings} >= {"MISSING_FILE", "UNREADABLE"}


@pytest.mark.shows("X2")
def test_a_slice_that_is_compacted_twice_at_once_has_one_file(spark: SparkSession, tmp_path: Path) -> None:
    table = written_table(tmp_path / "orders")
    before = rows_of(table)

    def everything_twice(function, items):  # type: ignore[no-untyped-def] # a Tasks
        done = SessionTasks(spark)(function, [*items, *items])
        assert done[: len(items)] == done[len(items) :]
        return done[: len(items)]

    (done,) = compact_table(table.store, tasks=everything_twice)
    bases = list((tmp_path / "orders").rglob(f"*_{done.instant}.parquet"))
    assert len(bases) == done.file_groups
    assert rows_of(table) == before
    assert table.fsck().is_sound


def test_an_error_of_a_task_arrives_as_itself_and_the_compaction_can_be_run_again(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = written_table(tmp_path / "orders")
    before = rows_of(table)
    log = next((tmp_path / "orders" / "p1").glob(".*.log.*"))
    bytes_of_log = log.read_bytes()
    log.write_bytes((b"no log at all" * len(bytes_of_log))[: len(bytes_of_log)])
    with pytest.raises(CorruptTableError, match=r"\.log\."):
        table.compact(spark=spark)
    log.write_bytes(bytes_of_log)
    due = table.plan_compaction()
    assert len(due.pending) == 1
    (done,) = table.compact(spark=spark).runs
    assert done.instant == due.pending[0]
    assert rows_of(table) == before


def test_results_come_in_the_order_of_the_items(spark: SparkSession) -> None:
    tasks: Tasks = SessionTasks(spark)
    words = ["x" * (n % 13) for n in range(100)]
    assert tasks(len, words) == here(len, words)
    assert tasks(len, []) == []


@pytest.mark.parametrize("table_type", ["COPY_ON_WRITE", "MERGE_ON_READ"])
def test_commands_run_services_on_a_local_session(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str], table_type: str
) -> None:
    path = tmp_path / "orders"
    table = written_table(path, table_type=table_type)
    before = rows_of(table)

    def answer(*words: object) -> dict[str, object]:
        with pytest.raises(SystemExit) as stop:
            main([*map(str, words), "--spark", "--json"])
        assert stop.value.code in (0, None)
        return json.loads(capsys.readouterr().out)  # type: ignore[no-any-return]

    if table_type == "MERGE_ON_READ":
        assert answer("compact", path, "--yes")["file_groups"] == 4
    assert answer("clean", path, "--retain-versions", 1, "--yes")["done"]
    table.upsert(orders([1], "last", 99))
    done = answer("service", "run", path, "--compact-delta-commits", 1, "--clean-versions", 1)
    assert {step["service"] for step in done["steps"]} == (  # type: ignore[attr-defined]
        {"compaction", "clean"} if table_type == "MERGE_ON_READ" else {"clean"}
    )
    assert answer("fsck", path)["sound"] is True
    assert len(rows_of(table)) == len(before)
    assert load_state(table.store).timeline.pending() == ()


def test_a_compaction_is_shared_out_by_bytes(spark: SparkSession, tmp_path: Path) -> None:
    table = written_table(tmp_path / "orders")
    sizes: list[int] = []

    def look(function, items):  # type: ignore[no-untyped-def] # a Tasks
        assert function is compact_slice
        sizes.extend(item.size_bytes for item in items)
        return here(function, items)

    due = table.plan_compaction()
    compact_table(table.store, tasks=look)
    assert sum(sizes) == due.work.size_bytes


@pytest.mark.shows("C4", "C6")
@pytest.mark.parametrize("virtual_logs", [False, True])
def test_buckets_are_resized_on_spark_beside_frames_that_are_written(
    spark: SparkSession, tmp_path: Path, virtual_logs: bool
) -> None:
    table = orders_table(tmp_path / "t", index=ConsistentBuckets(2, virtual_logs=virtual_logs))
    table.upsert(spark.createDataFrame(orders(range(200), "first", 10)))
    small = ResizeTrigger(file_bytes=1_000, split_threshold=1.0, merge_threshold=0.1, max_buckets=4)
    instant = schedule_resize(table.store, look_for_resize(table.store, small, tasks=SessionTasks(spark)))
    assert instant is not None
    summary = table.upsert(spark.createDataFrame(orders(range(50, 120), "beside", 20)))
    assert (summary.rows, summary.logged) == (70, 70)
    assert table.read(spark).where("name like 'beside%'").count() == 70
    done = table.buckets.resize(
        spark=spark, file_bytes=1_000, split_threshold=1.0, merge_threshold=0.1, max_buckets=4, rounds=1
    )
    assert done.runs[0].instant == instant
    assert {part.buckets for part in table.layout().partitions} == {4}
    assert table.read(spark).where("name like 'beside%'").count() == 70
    assert table.read(spark).count() == 200
    assert table.fsck(spark=spark).is_sound
