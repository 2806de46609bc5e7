"""A version of the rules that was never committed must not become one by growing old."""

from __future__ import annotations

import pytest

from bucketlake import Table
from bucketlake.index import ConfigVersions, current_version, declare_rules, list_versions
from bucketlake.index.rules_keeper import VersionsPlan, plan_versions
from bucketlake.layout.names import hashing_config_path
from bucketlake.services import Retention, archive_table, clean_table
from bucketlake.services.rescale import rescale_table
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
        done = table.buckets.overwrite(f"p0,{count}")
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


@pytest.mark.shows("P4")
@pytest.mark.parametrize("is_archived", [False, True])
@pytest.mark.parametrize("after", ["nothing", "pending", "rolled back, with its file left"])
def test_the_version_of_the_last_rescale_that_was_completed_counts(after: str, is_archived: bool) -> None:
    """Whether it is on the active timeline or archived, and whatever came after it and did not complete."""
    table = orders_table(f"memory://loading-{after[:4]}-{is_archived}")
    table.upsert(orders(range(20), "first", 1))
    table.buckets.overwrite("p0,3")
    last = table.buckets.overwrite("p0,4").instant
    if is_archived:
        for number in range(4):
            table.upsert(orders(range(20), "more", 2 + number))
            clean_table(table.store, retain=Retention(commits=1))
            archive_table(table.store, keep_min=1, keep_max=2)
        assert (load_state(table.store).timeline.start or "") > last
    later = {"instant": ""}

    def dying(function, items):  # type: ignore[no-untyped-def] # a parallel map
        (later["instant"],) = {item.instant for item in items}
        raise KeyboardInterrupt

    if after != "nothing":
        with pytest.raises(KeyboardInterrupt):
            rescale_table(table.store, declare_rules("p0,5", 2), tasks=dying)
        config = table.store.read(hashing_config_path(last))
        if after != "pending":
            table.buckets.abort()
        table.store.put(hashing_config_path(later["instant"]), config.replace(b"p0,4", b"p0,5"))
    state = load_state(table.store)
    assert current_version(table.store, state.timeline) == last
    assert {p.partition: p.buckets for p in Table.open(table.store.uri).layout().partitions}["p0"] == 4
    table.upsert(orders(range(30), "next", 9))
    assert len(rows_of(table)) == 30
    for number in range(3):  # what was never committed must be gone before the timeline's start passes it
        table.upsert(orders(range(20), "end", 10 + number))
        clean_table(table.store, retain=Retention(commits=1))
        archive_table(table.store, keep_min=1, keep_max=2)
        state = load_state(table.store)
        assert current_version(table.store, state.timeline) == last
    assert len(rows_of(table)) == 30
    check_invariants(table)
