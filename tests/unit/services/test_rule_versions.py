"""A version of the rules that was never committed must not become one by growing old."""

from __future__ import annotations

import pytest

from bucketlake.index import ConfigVersions, current_version, list_versions
from bucketlake.layout.names import hashing_config_path
from bucketlake.services.archive import archive_table
from bucketlake.services.rule_versions import VersionsPlan, plan_versions
from bucketlake.state import load_state
from bucketlake.testing.invariants import check_invariants
from stand_ins.orders_table import orders, orders_table, rows_of
from stand_ins.timelines import state_of

pytestmark = pytest.mark.shows("P8")

TIMELINE = [
    "20240102030000000_20240102030001000.deltacommit",
    "20240102040000000_20240102040001000.replacecommit",
    "20240102050000000_20240102050001000.deltacommit",
    "20240102060000000.replacecommit.requested",
]


def versions(*instants: str) -> ConfigVersions:
    return ConfigVersions({instant: f"c/{instant}" for instant in instants}, {})


@pytest.mark.parametrize(
    ("present", "uncommitted", "old"),
    [
        (["00000000000000", "20240102040000000"], [], []),
        (["00000000000000", "20240102050000001"], ["20240102050000001"], []),
        (["00000000000000", "20240102060000000"], [], []),
        (
            ["00000000000000", "20240101000000000", "20240101000000001", "20240102040000000"],
            [],
            ["00000000000000"],
        ),
    ],
)
def test_what_stays_and_what_goes(present: list[str], uncommitted: list[str], old: list[str]) -> None:
    plan = plan_versions(versions(*present), state_of(TIMELINE).timeline)
    assert plan == VersionsPlan(tuple(f"c/{i}" for i in uncommitted), tuple(f"c/{i}" for i in old))


def test_archiving_keeps_three_versions_and_reads_of_the_past() -> None:
    table = orders_table("memory://rule-versions")
    table.upsert(orders(range(20), "first", 1))
    moments = []
    for count in (3, 4, 5, 6, 7):
        done = table.buckets.overwrite(f"p0,{count}", dry_run=False)
        moments.append((done.instant, count))
        table.upsert(orders(range(20), f"after {count}", count))
    stray = hashing_config_path("29990101000000000")
    table.store.put(stray, table.store.read(hashing_config_path(moments[0][0])))
    before = rows_of(table)
    archive_table(table.store, keep_min=2, keep_max=3)
    found = list_versions(table.store)
    assert sorted(found.active) == [instant for instant, _ in moments[-3:]]
    assert sorted(found.archived) == [instant for instant, _ in moments[:2]]
    state = load_state(table.store)
    assert current_version(table.store, state.timeline) == moments[-1][0]
    assert [v.expressions for v in table.buckets.show_config()] == [f"p0,{count}" for _, count in moments]
    assert rows_of(table) == before
    table.upsert(orders(range(20), "later", 99))
    check_invariants(table)
