"""A consumer reads interval after interval. What is in none of them it never sees; what is in two counts twice."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pyarrow as pa
import pytest

from bucketlake import ConfigError, Table
from bucketlake.commit.claims import list_claims
from bucketlake.commit.recovery import recover
from bucketlake.layout.names import claim_path
from bucketlake.services import (
    Retention,
    archive_table,
    clean_table,
    load_held,
    plan_compaction,
    run_compaction,
    schedule_compaction,
)
from bucketlake.state import files_of, load_state
from bucketlake.testing.faulty_store import FaultyStore, InjectedError
from stand_ins.replacements import TYPES, replace_while, rows_of, table_for

T = TypeVar("T")
Golden = Callable[[str], Path]
WITH_WRITES_BESIDE = [
    ("rescale", "COPY_ON_WRITE"),
    ("rescale", "MERGE_ON_READ"),
    ("resize", "COPY_ON_WRITE"),
    ("resize", "MERGE_ON_READ"),
    ("resize with virtual logs", "MERGE_ON_READ"),
]


def changed(table: Table, begin: str | None, end: str | None = None, **how: object) -> dict[int, int]:
    found = table.to_arrow(columns=["id", "ts"], begin=begin, end=end, **how).to_pylist()  # type: ignore[arg-type]
    assert len(found) == len({row["id"] for row in found}), "a key is there twice"
    return {row["id"]: row["ts"] for row in found}


def plan(table: Table) -> str:
    state = load_state(table.store)
    found = plan_compaction(state, files_of(state), load_held(state), now="")
    instant = schedule_compaction(table.store, found)
    assert instant is not None
    return instant


@pytest.mark.shows("H3")
@pytest.mark.parametrize(("kind", "table_type"), WITH_WRITES_BESIDE)
def test_a_write_beside_a_replacement_is_in_one_interval(kind: str, table_type: str) -> None:
    """The replacement was begun before the write and completed after it, and moved its rows."""
    table = table_for(kind, table_type)
    first = table.upsert(rows_of(range(20), ts=1)).completed
    done: list[str | None] = []

    def meanwhile() -> None:
        done.append(table.upsert(rows_of([3, 4], ts=2)).completed)
        assert changed(table, first, done[0]) == {3: 2, 4: 2}

    assert replace_while(table, kind, meanwhile) is not None
    table = Table.open(table.store.uri)
    (write,) = done
    for _ in range(2):
        assert changed(table, first, write) == {3: 2, 4: 2}
        assert changed(table, write) == {}
        assert changed(table, first) == {3: 2, 4: 2}
        assert changed(table, "0", write) == {**dict.fromkeys(range(20), 1), 3: 2, 4: 2}
        assert changed(table, "0") == {**dict.fromkeys(range(20), 1), 3: 2, 4: 2}
        for key in range(6):
            wanted = {3: 2, 4: 2}.get(key)
            found = changed(table, first, write, filters=[("id", "=", key)])
            assert found == ({key: wanted} if wanted else {}), "it is looked for where it was then"
        archive_table(table.store, keep_min=1, keep_max=2)


@pytest.mark.shows("H3")
@pytest.mark.parametrize("version", ["pending", "run", "run and archived"])
def test_a_write_across_the_plan_of_a_compaction_is_in_one_interval(version: str) -> None:
    table = table_for("clustering", "MERGE_ON_READ")
    first = table.upsert(rows_of(range(20), ts=1)).completed
    table.upsert(rows_of([1, 2], ts=2))
    planned: list[str] = []
    slow = FaultyStore(table.store)
    Table(slow, table.properties).upsert(rows_of([5], ts=3))
    at = next(n for n, what in enumerate(slow.operations, 1) if what.startswith("put_new d"))
    paused = FaultyStore(table.store, fails_at=at, meanwhile=lambda _: planned.append(plan(table)))
    before = load_state(table.store).timeline.writes[-1].completed
    write = Table(paused, table.properties).upsert(rows_of([3, 4], ts=4))
    assert write.instant is not None and write.instant < planned[0] < (write.completed or "")
    if version != "pending":
        run_compaction(table.store, planned[0])
    if version == "run and archived":
        archive_table(table.store, keep_min=1, keep_max=2)
    assert changed(table, before, write.completed) == {3: 4, 4: 4}
    assert changed(table, write.completed) == {}
    assert changed(table, first, before) == {1: 2, 2: 2, 5: 3}
    assert changed(table, first) == {1: 2, 2: 2, 3: 4, 4: 4, 5: 3}


class DiesBeforePublishing(FaultyStore):
    """Nothing can be done any more once a completed instant is to be put on the timeline."""

    is_over = False

    def _do(self, what: str, act: Callable[[], T]) -> T:
        self.is_over = self.is_over or re.match(r"put_new \.hoodie/timeline/\d+_\d+\.", what) is not None
        if self.is_over:
            raise InjectedError(f"dead before {what}")
        return super()._do(what, act)


def cut_off_before_publishing(table: Table, rows: pa.Table) -> None:
    """Write rows, and die once it is decided that they are committed."""
    with pytest.raises(InjectedError):
        Table(DiesBeforePublishing(table.store), table.properties).upsert(rows)


@pytest.mark.shows("H3")
@pytest.mark.parametrize("table_type", TYPES)
def test_a_read_does_not_reach_past_a_commit_that_is_decided_and_not_visible_yet(table_type: str) -> None:
    table = table_for("clustering", table_type)
    first = table.upsert(rows_of(range(4), ts=1)).completed
    cut_off_before_publishing(table, rows_of([2], ts=2))
    assert table.changes_until() == table.describe().changes_until == first
    assert changed(table, first) == {}
    assert changed(table, "0", first) == dict.fromkeys(range(4), 1)
    with pytest.raises(ConfigError, match="not all there yet") as refused:
        changed(table, first, "20991231000000000")
    last_moment = re.findall(r"end at (\d+)", str(refused.value))[0]
    assert changed(table, first, last_moment) == {}
    recover(table.store, table.properties)
    assert changed(table, last_moment, table.changes_until()) == {2: 2}
    assert changed(table, first) == {2: 2}
    assert changed(table, table.changes_until()) == {}


@pytest.mark.shows("H3")
def test_a_later_commit_is_not_offered_before_an_earlier_one_that_is_not_visible_yet() -> None:
    """Another engine, which knows of no claims, has completed one in between."""
    table = table_for("clustering", "COPY_ON_WRITE")
    first = table.upsert(rows_of(range(4), ts=1)).completed
    cut_off_before_publishing(table, rows_of([2], ts=2))
    newest = list_claims(table.store).newest
    assert newest is not None
    claim = table.store.read(claim_path(newest.number))
    table.store.delete(claim_path(newest.number))
    later = table.upsert(rows_of([1], ts=3)).completed
    table.store.put(claim_path(newest.number + 1), claim)
    assert newest.completed < (later or "")
    assert table.changes_until() == first
    assert changed(table, first) == {}
    recover(table.store, table.properties)
    assert table.changes_until() == later
    assert changed(table, first, later) == {1: 3, 2: 2}


@pytest.mark.shows("H3")
def test_a_consumer_goes_on_after_the_newest_commit_was_taken_back() -> None:
    table = table_for("clustering", "COPY_ON_WRITE")
    assert table.changes_until() is None
    table.upsert(rows_of(range(4), ts=1))
    second = table.upsert(rows_of([1], ts=2))
    since = table.changes_until()
    assert since == second.completed
    table.rollback(second.instant or "")
    until = table.changes_until()
    assert since is not None and until is not None and since < until
    assert changed(table, since, until) == {}


@pytest.mark.shows("H3")
@pytest.mark.parametrize("table_type", TYPES)
def test_a_clean_takes_no_interval_that_needs_none_of_its_files(table_type: str) -> None:
    table = table_for("clustering", table_type)
    first = table.upsert(rows_of(range(4), ts=1)).completed
    for ts in range(2, 6):
        table.upsert(rows_of([1], ts=ts))
        if table_type == "MERGE_ON_READ":
            table.compact()
    clean_table(table.store, retain=Retention(commits=1))
    with pytest.raises(ConfigError, match="a clean has removed it"):
        changed(table, "0", first)
    assert changed(table, "0") == {0: 1, 1: 5, 2: 1, 3: 1}
    assert changed(table, first) == {1: 5}


def test_an_interval_of_cleaned_files_is_refused_and_a_longer_one_is_read(golden_table: Golden) -> None:
    table = Table.open(golden_table("svc_mor_b"))
    first = table.timeline()[0].completed
    with pytest.raises(ConfigError, match="a clean has removed it"):
        table.to_arrow(begin="0", end=first)
    everything = table.to_arrow(begin="0", meta_columns=False).sort_by("id")
    assert everything == table.to_arrow(meta_columns=False).sort_by("id")
