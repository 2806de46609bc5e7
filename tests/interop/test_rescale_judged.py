"""A rescale of ours, and Hudi afterwards; a rescale of Hudi's, and we afterwards: no key twice, no rule forgotten."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from bucketlake import PartitionBuckets, Table
from bucketlake.errors import InstantError
from bucketlake.index import SimpleBuckets, declare_rules
from bucketlake.services import here
from bucketlake.services.rescale import rescale_table
from bucketlake.testing.invariants import check_invariants
from judges.hudi_jvm import QUIET, HudiJvm, options_for
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


def check_pruned(hudi: HudiJvm, path: Path, expected: dict[int, str], keys: Sequence[int]) -> None:
    """Ask Hudi for single keys: it reads the bucket that it takes a key to be in, and no other."""
    name = f"pruned_{abs(hash(path)):x}"
    hudi.sql(f"CREATE TABLE IF NOT EXISTS {name} USING hudi LOCATION '{path}'", settings=QUIET)
    for key in keys:
        ask = f"SELECT id, name FROM {name} WHERE id = {key}"
        assert hudi.sql(f"REFRESH TABLE {name}", ask, settings=QUIET) == [{"id": key, "name": expected[key]}]


def cut_off(table: Table, rules: str, *, after: int) -> None:
    def dying(function: Callable[[Any], Any], items: Sequence[Any], /) -> list[Any]:
        here(function, items[:after])
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        rescale_table(table.store, declare_rules(rules, 2), tasks=dying)


@pytest.mark.parametrize("table_type", ["COPY_ON_WRITE", "MERGE_ON_READ"])
def test_hudi_goes_on_after_our_rescale_and_after_its_rollback(
    hudi: HudiJvm, tmp_path: Path, table_type: str
) -> None:
    path = tmp_path / "orders"
    table = orders_table(path, table_type=table_type, index=SimpleBuckets(2))
    table.upsert(orders(range(40), "ours", 1))
    expected = {n: f"ours {n}" for n in range(40)}
    told = options_for("orders", table_type=table_type)
    del told["hoodie.bucket.index.num.buckets"]  # what it is not told it must find
    table.buckets.overwrite("p0,5")
    check(hudi, path, expected, {"p0": 5, "p1": 2})
    hudi.write(path, orders(range(20, 60), "hudi", 2), told)
    expected |= {n: f"hudi {n}" for n in range(20, 60)}
    check(hudi, path, expected, {"p0": 5, "p1": 2})
    last = table.buckets.add("p1,3", bucket_number=7)
    check(hudi, path, expected, {"p0": 5, "p1": 3})
    table.buckets.rollback(last.instant)
    check(hudi, path, expected, {"p0": 5, "p1": 2})
    hudi.write(path, orders(range(30, 70), "hudi again", 3), told)
    expected |= {n: f"hudi again {n}" for n in range(30, 70)}
    table.upsert(orders(range(50, 80), "ours again", 4))
    expected |= {n: f"ours again {n}" for n in range(50, 80)}
    check(hudi, path, expected, {"p0": 5, "p1": 2})


@pytest.mark.shows("P4", "P10", "P14")
@pytest.mark.parametrize(
    ("name", "buckets", "rules"),
    [
        ("mor_partition_bucket", None, None),
        ("mor_partition_bucket_before", 2, "2024-01-0[12],4;2024-02-.*,8"),
    ],
)
def test_a_table_of_hudis_is_adopted_and_rescaled_on(
    hudi: HudiJvm,
    golden_table: Callable[[str], Path],
    tmp_path: Path,
    name: str,
    buckets: int | None,
    rules: str | None,
) -> None:
    path = tmp_path / name
    shutil.copytree(golden_table(name), path)
    table = Table.adopt(path, index=PartitionBuckets(rules, buckets) if rules and buckets else None)
    before = table.to_arrow()
    counts_before = {part.partition: part.buckets or 0 for part in table.layout().partitions}
    expected = {row["id"]: row["name"] for row in before.to_pylist()}

    def rows(ids: range, word: str, ts: int) -> pa.Table:
        days = ["2024-01-01", "2024-02-01", "2024-03-01"]
        values = [{"id": n, "name": f"{word} {n}", "ts": ts, "dt": days[n % 3]} for n in ids]
        return pa.Table.from_pylist(values, before.schema)

    told = options_for(
        "mor_partition_bucket",
        table_type="MERGE_ON_READ",
        more={"hoodie.datasource.write.hive_style_partitioning": "true"},
    )
    del told["hoodie.bucket.index.num.buckets"]
    days = ("dt=2024-01-01", "dt=2024-02-01", "dt=2024-03-01")
    counts = dict(zip(days, (6, 2, 7), strict=True))
    done = table.buckets.overwrite("2024-01-01,6;2024-03,7", bucket_number=2)
    check(hudi, path, expected, counts)
    check_pruned(hudi, path, expected, [0, 1, 2, 11])
    hudi.write(path, rows(range(12, 30), "hudi", 300), told)
    expected |= {n: f"hudi {n}" for n in range(12, 30)}
    check(hudi, path, expected, counts)
    later = table.buckets.add("2024-02-01,3")
    check_pruned(hudi, path, expected, [1, 13, 28])
    table.buckets.rollback(later.instant)
    check(hudi, path, expected, counts)
    assert done.instant < later.instant
    hudi.write(path, rows(range(20, 40), "hudi again", 400), told)
    expected |= {n: f"hudi again {n}" for n in range(20, 40)}
    table.upsert(rows(range(5), "ours", 500))
    expected |= {n: f"ours {n}" for n in range(5)}
    check(hudi, path, expected, counts)
    check_pruned(hudi, path, expected, [0, 13, 28, 35])
    assert counts != counts_before


@pytest.mark.shows("P14")
@pytest.mark.parametrize("table_type", ["COPY_ON_WRITE", "MERGE_ON_READ"])
def test_hudi_reads_and_writes_on_after_a_rescale_that_caught_up_and_was_resumed(
    hudi: HudiJvm, tmp_path: Path, table_type: str
) -> None:
    """There are file groups without rows then, and commits of a later time that were completed earlier."""
    path = tmp_path / "orders"
    table = orders_table(path, table_type=table_type, index=SimpleBuckets(2))
    table.upsert(orders(range(12), "ours", 1))
    cut_off(table, "p,16", after=2)
    table.upsert(orders(range(4, 8), "beside", 2))
    expected = {n: f"{'beside' if 4 <= n < 8 else 'ours'} {n}" for n in range(12)}
    table.buckets.resume()
    sizes = [part.base_file for part in table.plan().slices]
    assert len(sizes) == 32, "every bucket has a file, and most have no row"
    check(hudi, path, expected, {"p0": 16, "p1": 16})
    check_pruned(hudi, path, expected, [0, 5])
    told = options_for("orders", table_type=table_type)
    del told["hoodie.bucket.index.num.buckets"]
    hudi.write(path, orders(range(6, 40), "hudi", 3), told)
    expected |= {n: f"hudi {n}" for n in range(6, 40)}
    check(hudi, path, expected, {"p0": 16, "p1": 16})
    table.upsert(orders(range(30, 50), "again", 4))
    expected |= {n: f"again {n}" for n in range(30, 50)}
    check(hudi, path, expected, {"p0": 16, "p1": 16})


@pytest.mark.shows("P14")
def test_hudi_takes_back_a_rescale_that_was_cut_off_and_both_go_on(hudi: HudiJvm, tmp_path: Path) -> None:
    path = tmp_path / "orders"
    table = orders_table(path, index=SimpleBuckets(2))
    table.upsert(orders(range(40), "ours", 1))
    # Hudi knows rules by their text, and remembers the default count of the first table that had it.
    table.buckets.overwrite("p0,3;no-other-table,1")
    cut_off(table, "p0,6", after=2)
    expected = {n: f"ours {n}" for n in range(40)}
    check(hudi, path, expected, {"p0": 3, "p1": 2})
    told = options_for("orders")
    del told["hoodie.bucket.index.num.buckets"]
    hudi.write(path, orders(range(20, 60), "hudi", 2), told)
    expected |= {n: f"hudi {n}" for n in range(20, 60)}
    check(hudi, path, expected, {"p0": 3, "p1": 2})
    with pytest.raises(InstantError, match="no rescale of the table is pending"):
        table.buckets.resume()
    table.buckets.overwrite("p0,6")
    check(hudi, path, expected, {"p0": 6, "p1": 2})


@pytest.mark.shows("P7")
def test_we_go_on_after_hudi_has_rescaled_and_taken_that_back(hudi: HudiJvm, tmp_path: Path) -> None:
    path = tmp_path / "orders"
    table = orders_table(path, index=SimpleBuckets(2))
    table.upsert(orders(range(40), "ours", 1))
    expected = {n: f"ours {n}" for n in range(40)}
    table.buckets.overwrite("p0,5")
    name = "rescaled_by_hudi"
    hudi.sql(
        f"CREATE TABLE {name} USING hudi LOCATION '{path}'",
        f"CALL partition_bucket_index_manager(table => '{name}', dry_run => false, add => 'p1,3')",
        settings=QUIET,
    )
    check(hudi, path, expected, {"p0": 5, "p1": 3})
    table.upsert(orders(range(30, 50), "after", 2))
    expected |= {n: f"after {n}" for n in range(30, 50)}
    check(hudi, path, expected, {"p0": 5, "p1": 3})
    last = hudi.sql(
        f"""CALL partition_bucket_index_manager(table => '{name}', dry_run => false, overwrite => 'p,4',
            bucket_number => 2)""",
        settings=QUIET,
    )
    assert last
    check(hudi, path, expected, {"p0": 4, "p1": 4})
    instant = max(version.instant for version in table.buckets.show_config())
    hudi.sql(
        f"CALL partition_bucket_index_manager(table => '{name}', rollback => '{instant}')", settings=QUIET
    )
    check(hudi, path, expected, {"p0": 5, "p1": 3})
    table.upsert(orders(range(40, 60), "last", 3))
    expected |= {n: f"last {n}" for n in range(40, 60)}
    check(hudi, path, expected, {"p0": 5, "p1": 3})
    table.buckets.overwrite("p,2")
    check(hudi, path, expected, {"p0": 2, "p1": 2})
