"""Extendible hashing beside Hudi, which has no such engine: it must read the table, and never write to it."""

from __future__ import annotations

from pathlib import Path

import pytest

from bucketlake import ExtendibleBuckets, SimpleBuckets, Table
from bucketlake.services import ResizeTrigger, check_table
from bucketlake.services.resize import look_for_resize, run_resize, schedule_resize
from bucketlake.testing.invariants import check_invariants
from judges.hudi_jvm import QUIET, HudiJvm, JudgeError, options_for
from judges.hudi_rs import read_snapshot
from judges.random_tables import CONSISTENT_OPTIONS
from judges.rows import assert_same_rows
from stand_ins.orders_table import orders, orders_table

pytestmark = pytest.mark.interop

SIMPLE = options_for("orders", table_type="MERGE_ON_READ", buckets=4)
SPLIT = ResizeTrigger(file_bytes=1_000, split_threshold=1.0, merge_threshold=0.1, max_buckets=8)
NOTHING_SAID = {key: value for key, value in SIMPLE.items() if "bucket" not in key and "index" not in key}
WRITERS = {
    "who says nothing of buckets": NOTHING_SAID,
    "who says the engine": {**NOTHING_SAID, "hoodie.index.bucket.engine": "EXTENDIBLE_HASHING"},
    "who takes it for simple buckets": {**SIMPLE, "hoodie.index.bucket.engine": "SIMPLE"},
    "who says the number": {**NOTHING_SAID, "hoodie.bucket.index.num.buckets": "4"},
    "who takes it for a ring": {**SIMPLE, **CONSISTENT_OPTIONS},
    "who takes it for no buckets": {**NOTHING_SAID, "hoodie.index.type": "BLOOM"},
}

REFUSED = r"No enum constant .*BucketIndexEngineType\.EXTENDIBLE_HASHING|Config conflict"
"""By the engine's word, which Hudi does not know, or because the table says otherwise."""


def agree(table: Table, hudi: HudiJvm, path: Path) -> None:
    by_hudi = hudi.read(path)
    assert_same_rows(table.to_arrow(meta_columns=True), by_hudi)
    assert_same_rows(read_snapshot(path), by_hudi)
    check_invariants(table)
    report = check_table(table.store)
    assert report.damage == (), str(report)


def files_of(path: Path) -> set[str]:
    return {str(file.relative_to(path)) for file in path.rglob("*.parquet")}


@pytest.mark.shows("C1", "C6", "S5")
def test_hudi_reads_an_extendible_table_throughout_and_writes_to_it_never(
    hudi: HudiJvm, tmp_path: Path
) -> None:
    table = orders_table(tmp_path, index=ExtendibleBuckets(4))
    table.upsert(orders(range(60), "first", 10))
    table.upsert(orders(range(20, 80), "second", 20))
    agree(table, hudi, tmp_path)
    instant = schedule_resize(table.store, look_for_resize(table.store, SPLIT))
    assert instant is not None
    table.upsert(orders(range(40, 90), "beside", 30))
    agree(table, hudi, tmp_path)
    run_resize(table.store, instant)
    agree(table, hudi, tmp_path)

    files, rows = files_of(tmp_path), table.to_arrow().num_rows
    for who, options in WRITERS.items():
        with pytest.raises(JudgeError, match=REFUSED):
            hudi.write(tmp_path, orders(range(5), who, 40), options)
        assert table.to_arrow().num_rows == rows, who
        assert files_of(tmp_path) == files, who
    statements = (
        "INSERT INTO {0} SELECT * FROM {0} LIMIT 1",
        "UPDATE {0} SET ts = 5",
        "DELETE FROM {0}",
        f"CALL run_clustering(path => '{tmp_path}', op => 'scheduleAndExecute')",
    )
    for number, statement in enumerate(statements):
        name = f"judged_{number}"
        create = f"CREATE TABLE {name} USING hudi LOCATION '{tmp_path}'"
        with pytest.raises(JudgeError, match=REFUSED):
            hudi.sql(create, statement.format(name), settings=QUIET)
        assert files_of(tmp_path) == files, statement
    table.upsert(orders(range(85, 95), "after", 50))
    table.buckets.resize()
    agree(table, hudi, tmp_path)


@pytest.mark.shows("X4", "S5")
def test_hudi_writes_before_and_after_a_doubling_and_only_reads_in_between(
    hudi: HudiJvm, tmp_path: Path
) -> None:
    table = orders_table(tmp_path, index=SimpleBuckets(2))
    table.upsert(orders(range(60), "first", 10))
    before = options_for("orders", table_type="MERGE_ON_READ", buckets=2)
    hudi.write(tmp_path, orders(range(40, 80), "by Hudi", 20), before)
    agree(table, hudi, tmp_path)

    assert not table.buckets.double(rounds=1).is_finished
    table.upsert(orders(range(70, 90), "in between", 30))
    agree(table, hudi, tmp_path)
    files = files_of(tmp_path)
    for options in (before, NOTHING_SAID):
        with pytest.raises(JudgeError, match=REFUSED):
            hudi.write(tmp_path, orders(range(5), "refused", 40), options)
    assert files_of(tmp_path) == files

    assert table.buckets.double().is_finished
    agree(table, hudi, tmp_path)
    with pytest.raises(JudgeError, match=r"num\.buckets:\s+2\s+4"):
        hudi.write(tmp_path, orders(range(5), "the old number", 40), before)
    after = options_for("orders", table_type="MERGE_ON_READ", buckets=4)
    hudi.write(tmp_path, orders(range(50, 120), "by Hudi again", 50), after)
    hudi.write(tmp_path, orders(range(110, 130), "by the table's word", 60), NOTHING_SAID)
    table.upsert(orders(range(125, 140), "last", 70))
    assert table.to_arrow().num_rows == 140
    agree(table, hudi, tmp_path)
