"""Partition-level buckets between Hudi and us: whoever writes keeps to the rules that the table has, told or not."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from bucketlake import PartitionBuckets, Table, create_table
from bucketlake.testing.invariants import check_invariants
from judges.hudi_jvm import QUIET, HudiJvm, options_for
from stand_ins.orders_table import SCHEMA, orders

pytestmark = [pytest.mark.interop, pytest.mark.shows("P1", "P3", "X1", "X2")]

Golden = Callable[[str], Path]


def check(hudi: HudiJvm, path: Path, expected: dict[int, str]) -> None:
    table = Table.open(path)
    check_invariants(table)
    for rows in (table.to_arrow(), hudi.read(path)):
        found = rows.select(["id", "name"]).to_pylist()
        assert len(found) == len(expected), "a key is there twice, or not at all"
        assert {row["id"]: row["name"] for row in found} == expected


@pytest.mark.parametrize("table_type", ["COPY_ON_WRITE", "MERGE_ON_READ"])
def test_hudi_follows_the_rules_of_our_table_without_being_told_any(
    hudi: HudiJvm, tmp_path: Path, table_type: str
) -> None:
    path = tmp_path / "orders"
    table = create_table(
        path,
        SCHEMA,
        key="id",
        partition="dt",
        ordering="ts",
        index=PartitionBuckets("p0$,7;^x,3", default=2),
        table_type=table_type,
    )
    table.upsert(orders(range(40), "ours", 1))
    expected = {n: f"ours {n}" for n in range(40)}
    check(hudi, path, expected)
    told = options_for("orders", table_type=table_type)
    # Neither a count nor rules: Hudi would take 256 buckets.
    del told["hoodie.bucket.index.num.buckets"]
    hudi.write(path, orders(range(20, 60), "hudi", 2), told)
    expected |= {n: f"hudi {n}" for n in range(20, 60)}
    check(hudi, path, expected)
    table.upsert(orders(range(30, 70), "ours again", 3))
    expected |= {n: f"ours again {n}" for n in range(30, 70)}
    check(hudi, path, expected)
    other = {"hoodie.bucket.index.num.buckets": "5", "hoodie.bucket.index.partition.expressions": "p,9"}
    hudi.write(path, orders(range(50, 54), "hudi again", 4), {**told, **other})
    expected |= {n: f"hudi again {n}" for n in range(50, 54)}
    check(hudi, path, expected)
    counts = {part.partition: part.buckets for part in Table.open(path).layout().partitions}
    assert counts == {"p0": 7, "p1": 2}
    name = f"rescaled_{table_type.lower()}"
    # Hudi remembers counts by the text of rules, of all tables of a process: no other test has this one.
    hudi.sql(
        f"CREATE TABLE {name} USING hudi LOCATION '{path}'",
        f"""CALL partition_bucket_index_manager(table => '{name}', dry_run => false, overwrite => '^p0$,3',
            bucket_number => 5)""",
        settings=QUIET,
    )
    check(hudi, path, expected)
    table.upsert(orders(range(60, 80), "after", 5))
    expected |= {n: f"after {n}" for n in range(60, 80)}
    check(hudi, path, expected)
    counts = {part.partition: part.buckets for part in Table.open(path).layout().partitions}
    assert counts == {"p0": 3, "p1": 5}


def test_a_table_that_hudi_has_rescaled_is_adopted_and_both_go_on(
    hudi: HudiJvm, golden_table: Golden, tmp_path: Path
) -> None:
    name = "mor_partition_bucket"
    path = tmp_path / name
    shutil.copytree(golden_table(name), path)
    table = Table.adopt(path)
    before = table.to_arrow()
    expected = {row["id"]: row["name"] for row in before.to_pylist()}
    assert len(expected) == 24

    def rows(ids: range, word: str, ts: int) -> pa.Table:
        days = ["2024-01-01", "2024-02-01", "2024-03-01", "2024-04-01"]
        values = [
            {"id": n, "name": f"{word} {n}", "ts": ts, "dt": days[3] if n >= 24 else days[n % 3]} for n in ids
        ]
        return pa.Table.from_pylist(values, before.schema)

    table.upsert(rows(range(12, 30), "ours", 200))
    expected |= {n: f"ours {n}" for n in range(12, 30)}
    check(hudi, path, expected)
    told = options_for(
        name, table_type="MERGE_ON_READ", more={"hoodie.datasource.write.hive_style_partitioning": "true"}
    )
    del told["hoodie.bucket.index.num.buckets"]
    hudi.write(path, rows(range(6, 36), "hudi", 300), told)
    expected |= {n: f"hudi {n}" for n in range(6, 36)}
    check(hudi, path, expected)
    table.upsert(rows(range(40), "ours again", 400))
    expected = {n: f"ours again {n}" for n in range(40)}
    check(hudi, path, expected)
