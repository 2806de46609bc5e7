"""A rescale of ours, and Hudi afterwards; a rescale of Hudi's, and we afterwards: no key twice, no rule forgotten."""

from __future__ import annotations

from pathlib import Path

import pytest

from bucketlake import Table
from bucketlake.testing.invariants import check_invariants
from judges.hudi_jvm import HudiJvm, options_for
from judges.hudi_rs import read_snapshot
from stand_ins.orders_table import orders, orders_table

pytestmark = [pytest.mark.interop, pytest.mark.shows("P5", "P6", "P7", "P11")]


def check(hudi: HudiJvm, path: Path, expected: dict[int, str], counts: dict[str, int]) -> None:
    table = Table.open(path)
    check_invariants(table)
    for rows in (table.to_arrow(), hudi.read(path), read_snapshot(path)):
        found = rows.select(["id", "name"]).to_pylist()
        assert len(found) == len(expected), "a key is there twice, or not at all"
        assert {row["id"]: row["name"] for row in found} == expected
    assert {part.partition: part.buckets for part in table.layout().partitions} == counts


@pytest.mark.parametrize("table_type", ["COPY_ON_WRITE", "MERGE_ON_READ"])
def test_hudi_goes_on_after_our_rescale_and_after_its_rollback(
    hudi: HudiJvm, tmp_path: Path, table_type: str
) -> None:
    path = tmp_path / "orders"
    table = orders_table(path, table_type=table_type, buckets=2)
    table.upsert(orders(range(40), "ours", 1))
    expected = {n: f"ours {n}" for n in range(40)}
    told = options_for("orders", table_type=table_type)
    del told["hoodie.bucket.index.num.buckets"]  # what it is not told it must find
    table.buckets.overwrite("p0,5", dry_run=False)
    check(hudi, path, expected, {"p0": 5, "p1": 2})
    hudi.write(path, orders(range(20, 60), "hudi", 2), told)
    expected |= {n: f"hudi {n}" for n in range(20, 60)}
    check(hudi, path, expected, {"p0": 5, "p1": 2})
    last = table.buckets.add("p1,3", bucket_number=7, dry_run=False)
    check(hudi, path, expected, {"p0": 5, "p1": 3})
    table.buckets.rollback(last.instant, dry_run=False)
    check(hudi, path, expected, {"p0": 5, "p1": 2})
    hudi.write(path, orders(range(30, 70), "hudi again", 3), told)
    expected |= {n: f"hudi again {n}" for n in range(30, 70)}
    table.upsert(orders(range(50, 80), "ours again", 4))
    expected |= {n: f"ours again {n}" for n in range(50, 80)}
    check(hudi, path, expected, {"p0": 5, "p1": 2})
