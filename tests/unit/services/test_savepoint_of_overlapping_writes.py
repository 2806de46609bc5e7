"""Writers overlap: who began first may complete last. A savepoint keeps what was complete, and a restore finds it."""

from __future__ import annotations

from typing import Any

import pytest

from bucketlake import Table
from bucketlake.errors import InstantError
from bucketlake.services import Retention, clean_table, load_held, plan_compaction, schedule_compaction
from bucketlake.state import files_of, load_state
from bucketlake.testing.faulty_store import FaultyStore
from bucketlake.testing.invariants import check_invariants
from stand_ins.replacements import TYPES, rows_of, table_for


def newest(table: Table) -> dict[int, int]:
    found = table.to_arrow(columns=["id", "ts"]).to_pylist()
    assert len(found) == len({row["id"] for row in found}), "a key is there twice"
    return {row["id"]: row["ts"] for row in found}


class Paused(FaultyStore):
    """A store whose first data file waits for something else to happen."""

    def __init__(self, inner: Any, meanwhile: Any) -> None:
        super().__init__(inner)
        self._act = meanwhile

    def _do(self, what: str, act: Any) -> Any:
        verb, _, path = what.partition(" ")
        if verb.startswith("put") and path.startswith("d") and self._act is not None:
            happens, self._act = self._act, None
            happens()
        return super()._do(what, act)


@pytest.mark.shows("H2")
@pytest.mark.parametrize("table_type", TYPES)
def test_a_savepoint_of_the_present_keeps_the_write_that_completed_last(table_type: str) -> None:
    table = table_for("clustering", table_type)
    table.upsert(rows_of(range(8), ts=1))
    inner = []
    slow = Paused(table.store, lambda: inner.append(table.upsert(rows_of([1, 3], ts=2))))
    outer = Table(slow, table.properties).upsert(rows_of([0, 2], ts=3))
    assert (
        (outer.instant or "")
        < (inner[0].instant or "")
        < (inner[0].completed or "")
        < (outer.completed or "")
    )
    with pytest.raises(InstantError, match="completed after it"):
        table.savepoint(inner[0].instant)
    expected = newest(table)
    savepoint = table.savepoint()
    assert savepoint.instant == outer.instant
    for ts in range(4, 7):
        table.upsert(rows_of(range(8), ts=ts))
        if table_type == "MERGE_ON_READ":
            table.compact()
        clean_table(table.store, retain=Retention(commits=1))
    table.restore(savepoint.instant)
    assert newest(table) == expected
    check_invariants(table)


@pytest.mark.shows("H2")
def test_a_compaction_that_was_planned_before_a_savepoint_and_run_after_it_keeps_its_files() -> None:
    """A restore leaves it on the timeline; so its base files must be there."""
    table = table_for("clustering", "MERGE_ON_READ")
    table.upsert(rows_of(range(8), ts=1))
    table.upsert(rows_of(range(8), ts=2))
    state = load_state(table.store)
    schedule_compaction(table.store, plan_compaction(state, files_of(state), load_held(state), now=""))
    table.upsert(rows_of([20], ts=3))
    expected = newest(table)
    savepoint = table.savepoint()
    for ts in range(4, 7):
        table.compact()
        table.upsert(rows_of(range(8), ts=ts))
        clean_table(table.store, retain=Retention(commits=1))
    table.restore(savepoint.instant)
    assert newest(table) == expected
    check_invariants(table)


@pytest.mark.shows("H2")
def test_a_write_whose_files_were_cleaned_cannot_be_protected_any_more() -> None:
    table = table_for("clustering", "COPY_ON_WRITE")
    old = table.upsert(rows_of(range(8), ts=1))
    for ts in range(2, 5):
        table.upsert(rows_of(range(8), ts=ts))
    clean_table(table.store, retain=Retention(versions=1))
    with pytest.raises(InstantError, match="cannot be protected any more: a clean has deleted"):
        table.savepoint(old.instant)
    assert table.savepoints() == ()


def test_a_write_whose_files_were_lost_cannot_be_protected() -> None:
    table = table_for("clustering", "COPY_ON_WRITE")
    old = table.upsert(rows_of(range(8), ts=1))
    lost = [file.path for files in files_of(load_state(table.store)).values() for file in files]
    table.upsert(rows_of(range(8), ts=2))
    for path in lost:
        table.store.delete(path)
    with pytest.raises(InstantError, match=r"cannot be protected: .* was cleaned or lost"):
        table.savepoint(old.instant)


@pytest.mark.shows("H2")
def test_the_present_can_be_protected_though_a_clean_has_passed_the_write_that_completed_last() -> None:
    table = table_for("clustering", "COPY_ON_WRITE")
    table.upsert(rows_of(range(8), ts=1))

    def meanwhile() -> None:
        for ts in range(2, 6):
            table.upsert(rows_of([1, 3], ts=ts))

    slow = Paused(table.store, meanwhile)
    outer = Table(slow, table.properties).upsert(rows_of([0, 2], ts=9))
    table.clean(retain_commits=1)
    expected = newest(table)
    assert table.savepoint().instant == outer.instant
    table.upsert(rows_of(range(8), ts=10))
    table.clean(retain_commits=1)
    table.restore(outer.instant)
    assert newest(table) == expected


@pytest.mark.shows("H2")
def test_a_write_that_a_clean_has_passed_cannot_be_protected() -> None:
    table = table_for("clustering", "COPY_ON_WRITE")
    first = table.upsert(rows_of(range(8), ts=1))
    for ts in range(2, 5):
        table.upsert(rows_of(range(8), ts=ts))
    table.clean(retain_commits=1)
    with pytest.raises(InstantError, match=r"cannot be protected any more.*kept files from"):
        table.savepoint(first.instant)
