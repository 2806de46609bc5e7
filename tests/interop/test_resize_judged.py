"""Consistent hashing in two hands: Hudi writes beside our resizes and completes them, and we do so with its."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from bucketlake import ConsistentBuckets, Table
from bucketlake.services import check_table
from bucketlake.services.fsck import Kind
from bucketlake.services.resize import (
    abort_resize,
    look_for_resize,
    resize_table,
    run_resize,
    schedule_resize,
)
from bucketlake.services.resize_plan import ResizeTrigger
from bucketlake.state import load_state
from bucketlake.testing.invariants import check_invariants
from bucketlake.timeline import Action
from judges.hudi_jvm import QUIET, HudiJvm, JudgeError, options_for
from judges.hudi_rs import read_snapshot
from judges.random_tables import CONSISTENT_OPTIONS
from judges.rows import assert_same_rows
from stand_ins.orders_table import orders, orders_table

pytestmark = pytest.mark.interop

OPTIONS = options_for("orders", table_type="MERGE_ON_READ", buckets=2, more=CONSISTENT_OPTIONS)
SPLIT = ResizeTrigger(file_bytes=1_000, split_threshold=1.0, merge_threshold=0.1, max_buckets=8)
MERGE = ResizeTrigger(file_bytes=120_000_000)
MOVED = ["_hoodie_file_name", "_hoodie_commit_seqno"]
"""Hudi numbers the two copies of a row that it writes beside a resize differently."""


def agree(table: Table, hudi: HudiJvm, path: Path) -> pa.Table:
    by_hudi = hudi.read(path)
    assert_same_rows(table.to_arrow(meta_columns=True), by_hudi)
    assert_same_rows(read_snapshot(path), by_hudi)
    check_invariants(table)
    report = check_table(table.store)
    assert report.damage == (), str(report)
    return by_hudi


def resize_by_hudi(hudi: HudiJvm, path: Path, operation: str, file_bytes: int) -> None:
    given = {**OPTIONS, "hoodie.parquet.max.file.size": str(file_bytes)}
    text = ",".join(f"{key}={value}" for key, value in given.items() if key != "hoodie.table.name")
    hudi.sql(
        f"CALL run_clustering(path => '{path}', op => '{operation}', options => '{text}')", settings=QUIET
    )


def schedule(table: Table, trigger: ResizeTrigger) -> str:
    instant = schedule_resize(table.store, look_for_resize(table.store, trigger))
    assert instant is not None
    return instant


def ring_sizes(table: Table) -> list[int | None]:
    return [one.buckets for one in table.layout().partitions]


def loaded(path: Path, **how: bool) -> Table:
    table = orders_table(path, index=ConsistentBuckets(2, **how))
    table.upsert(orders(range(60), "first", 10))
    table.upsert(orders(range(20, 80), "second", 20))
    return table


@pytest.mark.shows("C2", "S5")
def test_hudi_reads_and_writes_our_table_without_being_told_its_engine(hudi: HudiJvm, tmp_path: Path) -> None:
    table = loaded(tmp_path)
    agree(table, hudi, tmp_path)
    told = {key: value for key, value in OPTIONS.items() if "bucket" not in key and "index" not in key}
    hudi.write(tmp_path, orders(range(30, 100), "by Hudi", 30), told)
    assert agree(table, hudi, tmp_path).num_rows == 100
    table.upsert(orders(range(90, 120), "by us", 40))
    assert agree(table, hudi, tmp_path).num_rows == 120


@pytest.mark.shows("C5", "C6")
@pytest.mark.parametrize("trigger", [SPLIT, MERGE], ids=["split", "merge"])
def test_hudi_writes_beside_our_resize_and_completes_it(
    hudi: HudiJvm, tmp_path: Path, trigger: ResizeTrigger
) -> None:
    table = loaded(tmp_path)
    before = ring_sizes(table)
    schedule(table, trigger)
    table.upsert(orders(range(10, 30), "ours", 30))
    hudi.write(tmp_path, orders(range(25, 45), "by Hudi", 31), OPTIONS)
    table.delete([1, 2])
    during = agree(table, hudi, tmp_path)
    resize_by_hudi(hudi, tmp_path, "execute", 1_000)
    assert load_state(table.store).timeline.pending(Action.CLUSTERING) == ()
    assert ring_sizes(table) != before
    after = agree(table, hudi, tmp_path)
    assert_same_rows(after, during, without=MOVED)
    table.upsert(orders(range(70, 90), "ours", 50))
    hudi.write(tmp_path, orders(range(80, 95), "by Hudi", 51), OPTIONS)
    assert agree(table, hudi, tmp_path).num_rows == 93


@pytest.mark.shows("C5", "C6")
@pytest.mark.parametrize("file_bytes", [1_000, 120_000_000], ids=["split", "merge"])
def test_we_write_beside_a_resize_of_hudis_and_complete_it(
    hudi: HudiJvm, tmp_path: Path, file_bytes: int
) -> None:
    table = loaded(tmp_path)
    resize_by_hudi(hudi, tmp_path, "schedule", file_bytes)
    (pending,) = load_state(table.store).timeline.pending(Action.CLUSTERING)
    hudi.write(tmp_path, orders(range(10, 30), "by Hudi", 30), OPTIONS)
    table.upsert(orders(range(25, 45), "ours", 31))
    table.delete([1, 2])
    during = agree(table, hudi, tmp_path)
    print(run_resize(table.store, pending.requested))
    after = agree(table, hudi, tmp_path)
    assert_same_rows(after, during, without=MOVED)
    hudi.write(tmp_path, orders(range(70, 90), "by Hudi", 51), OPTIONS)
    table.upsert(orders(range(80, 95), "ours", 52))
    assert agree(table, hudi, tmp_path).num_rows == 93


@pytest.mark.shows("C4", "C6")
def test_hudi_agrees_after_every_round_and_after_a_resize_that_was_taken_back(
    hudi: HudiJvm, tmp_path: Path
) -> None:
    table = loaded(tmp_path)
    taken_back = schedule(table, SPLIT)
    table.upsert(orders(range(5, 15), "beside", 30))
    hudi.write(tmp_path, orders(range(10, 20), "beside, by Hudi", 31), OPTIONS)
    rows = agree(table, hudi, tmp_path)
    abort_resize(table.store, taken_back)
    assert_same_rows(agree(table, hudi, tmp_path), rows)
    for number, trigger in enumerate([SPLIT, MERGE]):
        assert resize_table(table.store, trigger)
        table.upsert(orders(range(number, 90, 7), f"round {number}", 40 + number))
        hudi.write(tmp_path, orders(range(number, 90, 11), f"by Hudi, {number}", 50 + number), OPTIONS)
        agree(table, hudi, tmp_path)


@pytest.mark.shows("C6")
def test_hudi_refuses_a_virtual_log_until_the_resize_is_completed(hudi: HudiJvm, tmp_path: Path) -> None:
    table = loaded(tmp_path, virtual_logs=True)
    instant = schedule(table, SPLIT)
    table.upsert(orders(range(5, 15), "beside", 30))
    with pytest.raises(JudgeError, match="64"):
        hudi.read(tmp_path)
    with pytest.raises(Exception, match="64"):
        read_snapshot(tmp_path)
    run_resize(table.store, instant)
    agree(table, hudi, tmp_path)


@pytest.mark.shows("C2", "C6", "S6")
@pytest.mark.parametrize(
    "name", ["0_before", "1_pending_split", "2_after_split", "3_pending_merge", "4_after_merge"]
)
def test_what_hudi_began_is_adopted_and_continued(
    hudi: HudiJvm, golden_table: Callable[[str], Path], tmp_path: Path, name: str
) -> None:
    path = tmp_path / "table"
    shutil.copytree(golden_table(f"mor_consistent_{name}"), path)
    before = hudi.read(path)
    table = Table.adopt(path)
    assert_same_rows(table.to_arrow(meta_columns=True), before)
    more = before.slice(0, 7).select(["id", "name", "ts", "dt"])
    newer = more.set_column(2, "ts", pa.array([1_000] * 7, more.schema.field("ts").type))
    table.upsert(newer)
    agree(table, hudi, path)
    resize_table(
        table.store, ResizeTrigger(file_bytes=400, split_threshold=1.0, merge_threshold=0.1, max_buckets=8)
    )
    assert load_state(table.store).timeline.pending(Action.CLUSTERING) == ()
    table.upsert(newer.set_column(2, "ts", pa.array([1_001] * 7, newer.schema.field("ts").type)))
    agree(table, hudi, path)
    resize_table(table.store, MERGE)
    agree(table, hudi, path)


@pytest.mark.parametrize("is_optimized", [True, False])
def test_an_update_of_hudis_sql_that_is_lost_is_found_and_one_that_is_told_better_is_not(
    hudi: HudiJvm, tmp_path: Path, is_optimized: bool
) -> None:
    """Hudi names the log after the write of the row; after a compaction nobody, Hudi included, looks for it there."""
    table = loaded(tmp_path)
    table.compact()
    settings = {name: value for name, value in OPTIONS.items() if ".datasource." not in name}
    settings["hoodie.spark.sql.optimized.writes.enable"] = str(is_optimized).lower()
    hudi.sql(
        f"CREATE TABLE changed USING hudi LOCATION '{tmp_path}'",
        "UPDATE changed SET name = 'changed' WHERE id = 25",
        "DROP TABLE changed",
        settings=settings,
    )
    is_there = ["changed" in rows["name"].to_pylist() for rows in (hudi.read(tmp_path), table.to_arrow())]
    assert is_there == [not is_optimized] * 2
    kinds = {finding.kind for finding in check_table(table.store).damage}
    assert kinds == ({Kind.MISNAMED_LOG} if is_optimized else set())
