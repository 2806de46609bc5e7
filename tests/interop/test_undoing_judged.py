"""Whatever we take back, Hudi reads the rows of before, and its next upsert finds every key where it is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from bucketlake import ConsistentBuckets, Table
from bucketlake.index import SimpleBuckets, declare_rules
from bucketlake.services import here
from bucketlake.services.rescale import rescale_table
from bucketlake.services.resize import look_for_resize, run_resize, schedule_resize
from bucketlake.services.resize_plan import ResizeTrigger
from bucketlake.testing.invariants import check_invariants
from judges.hudi_jvm import HudiJvm, options_for
from judges.hudi_rs import read_snapshot
from judges.random_tables import CONSISTENT_OPTIONS
from stand_ins.orders_table import orders, orders_table

pytestmark = [pytest.mark.interop, pytest.mark.shows("H2", "P7", "P11", "C6")]

SPLIT = ResizeTrigger(file_bytes=1_000, split_threshold=1.0, merge_threshold=0.1, max_buckets=8)


@dataclass
class Both:
    """A table in two hands, and the names that its keys must have."""

    hudi: HudiJvm
    table: Table
    path: Path
    told: dict[str, str]
    """What Hudi is told of the table."""
    names: dict[int, str]
    writes: int = 0

    def upsert(self, keys: range) -> None:
        self.writes += 1
        self.table.upsert(orders(keys, f"ours {self.writes}", self.writes))
        self.names |= {key: f"ours {self.writes} {key}" for key in keys}

    def lost(self, keys: range) -> str:
        """Write what is to be taken back, and return its instant."""
        self.writes += 1
        done = self.table.upsert(orders(keys, f"lost {self.writes}", self.writes))
        assert done.instant is not None
        return done.instant

    def agree(self) -> None:
        check_invariants(Table.open(self.path))
        for rows in (self.table.to_arrow(), self.hudi.read(self.path), read_snapshot(self.path)):
            found = rows.select(["id", "name"]).to_pylist()
            assert len(found) == len(self.names), "a key is there twice, or not at all"
            assert {row["id"]: row["name"] for row in found} == self.names

    def goes_on(self) -> None:
        """Hudi reads the table, writes old and new keys, and so do we."""
        self.agree()
        self.writes += 1
        first = max(self.names) - 9
        keys = range(first, first + 20)
        self.hudi.write(self.path, orders(keys, f"hudi {self.writes}", self.writes), self.told)
        self.names |= {key: f"hudi {self.writes} {key}" for key in keys}
        self.upsert(range(first + 5, first + 25))
        self.agree()


def counts(hudi: HudiJvm, path: Path, table_type: str) -> Both:
    table = orders_table(path, table_type=table_type, index=SimpleBuckets(2))
    both = Both(hudi, table, path, options_for("orders", table_type=table_type, buckets=2), {})
    both.upsert(range(40))
    both.upsert(range(30, 60))
    return both


def cut_off(function: Callable[[Any], Any], items: Sequence[Any], /) -> list[Any]:
    here(function, items[:1])
    raise KeyboardInterrupt


def test_hudi_goes_on_after_a_rollback_of_a_write_of_an_upgrade_and_after_an_abort(
    hudi: HudiJvm, tmp_path: Path
) -> None:
    both = counts(hudi, tmp_path / "orders", "COPY_ON_WRITE")
    table = both.table
    table.rollback(both.lost(range(20, 70)))
    both.goes_on()
    upgrade = table.buckets.overwrite("p0,5")
    table.rollback(upgrade.instant)
    both.goes_on()
    with pytest.raises(KeyboardInterrupt):
        rescale_table(table.store, declare_rules("p0,5;p1,3", 2), tasks=cut_off)
    both.upsert(range(10, 20))
    table.buckets.abort()
    both.goes_on()


def test_hudi_goes_on_after_a_rollback_of_several_rescales_and_after_a_restore_over_an_upgrade(
    hudi: HudiJvm, tmp_path: Path
) -> None:
    both = counts(hudi, tmp_path / "orders", "MERGE_ON_READ")
    table = both.table
    upgrade = table.buckets.overwrite("p0,5")
    table.buckets.add("p1,3")
    table.buckets.rollback(upgrade.instant, with_newer=True)
    both.goes_on()
    savepoint = table.savepoint().instant
    table.buckets.overwrite("p0,1;p1,4")
    both.lost(range(50, 90))
    table.compact()
    table.restore(savepoint)
    both.goes_on()


@pytest.mark.parametrize("virtual_logs", [True, False], ids=["virtual", "dual"])
def test_hudi_goes_on_after_a_resize_was_rolled_back_restored_over_or_aborted(
    hudi: HudiJvm, tmp_path: Path, virtual_logs: bool
) -> None:
    path = tmp_path / "orders"
    table = orders_table(path, index=ConsistentBuckets(2, virtual_logs=virtual_logs))
    told = options_for("orders", table_type="MERGE_ON_READ", buckets=2, more=CONSISTENT_OPTIONS)
    both = Both(hudi, table, path, told, {})
    both.upsert(range(60))
    both.upsert(range(20, 80))
    resize = planned(table)
    both.upsert(range(10, 30))
    run_resize(table.store, resize)
    table.rollback(resize)
    both.goes_on()
    both.upsert(range(5))
    savepoint = table.savepoint().instant
    resize = planned(table)
    both.lost(range(15, 40))
    run_resize(table.store, resize)
    both.lost(range(30, 50))
    table.restore(savepoint)
    both.goes_on()
    resize = planned(table)
    both.upsert(range(20, 40))
    table.buckets.abort(resize)
    both.goes_on()


def planned(table: Table) -> str:
    instant = schedule_resize(table.store, look_for_resize(table.store, SPLIT))
    assert instant is not None
    return instant
