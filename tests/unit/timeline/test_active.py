"""The timeline is the only truth about what was committed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from bucketlake.config import TimelineTimezone, load_properties
from bucketlake.storage import FileStat, LocalStore
from bucketlake.timeline import Action, State, Timeline, load_timeline, timeline_of


def timeline(*names: str, layout: int = 2, modified_ms: int = 0) -> Timeline:
    files = [FileStat(f".hoodie/timeline/{name}", 0, modified_ms, "") for name in names]
    return timeline_of(files, layout=layout, timezone=TimelineTimezone.UTC)


def shown(found: Timeline) -> list[str]:
    return [f"{i.requested} {i.action} {i.state}" for i in found.instants]


@pytest.mark.parametrize(
    ("names", "instants"),
    [
        (["01.commit.requested"], ["01 commit requested"]),
        (["01.commit.requested", "01.inflight"], ["01 commit inflight"]),
        (["01_02.commit", "01.inflight", "01.commit.requested"], ["01 commit completed"]),
        (["01_02.commit"], ["01 commit completed"]),
        (["01.compaction.requested", "01.compaction.inflight"], ["01 compaction inflight"]),
        (["01.compaction.requested", "01.compaction.inflight", "01_02.commit"], ["01 commit completed"]),
        (["01.clustering.requested", "01_02.replacecommit"], ["01 replacecommit completed"]),
        (["01.logcompaction.requested", "01_02.deltacommit"], ["01 deltacommit completed"]),
        # A savepoint has the time of what it protects, and is an instant of its own.
        (["01_02.commit", "01_05.savepoint"], ["01 commit completed", "01 savepoint completed"]),
        (["03_04.commit", "01_09.commit"], ["01 commit completed", "03 commit completed"]),
        (["01_02.commit.tmp", "hoodie.properties", "01.what"], []),
    ],
)
def test_of_an_instant_the_furthest_state_counts(names: list[str], instants: list[str]) -> None:
    assert shown(timeline(*names)) == instants


def test_the_first_of_two_completed_files_counts() -> None:
    assert [i.completed for i in timeline("01_04.commit", "01_03.commit").instants] == ["03"]


def test_a_completion_time_that_nobody_wrote_is_the_files_own_age() -> None:
    (instant,) = timeline("20240102030405000.commit", layout=1, modified_ms=1704164645678).instants
    assert (instant.state, instant.completed) == (State.COMPLETED, "20240102030405678")


def test_a_timeline_answers_by_state_and_action() -> None:
    found = timeline("01_02.deltacommit", "03.compaction.requested", "04_05.clean", "06.deltacommit.inflight")
    assert [i.requested for i in found.completed()] == ["01", "04"]
    assert [i.requested for i in found.completed(Action.CLEAN)] == ["04"]
    assert [i.requested for i in found.pending()] == ["03", "06"]
    assert [i.requested for i in found.pending(Action.COMPACTION)] == ["03"]
    assert [i.requested for i in found.writes] == ["01"]


@pytest.mark.parametrize(
    ("names", "start"),
    [
        ([], None),
        (["01_02.clean", "03_04.rollback"], None),
        (["01_02.clean", "03_04.commit"], "03"),
        (["03.commit.requested", "05_06.commit"], "03"),
        (["02.compaction.requested", "05_06.commit"], "02"),
    ],
)
def test_the_timeline_starts_with_its_first_write_pending_or_not(names: list[str], start: str | None) -> None:
    assert timeline(*names).start == start


def test_hudis_own_timelines_are_read(golden_table: Callable[[str], Path]) -> None:
    def load(name: str) -> Timeline:
        store = LocalStore(golden_table(name))
        return load_timeline(store, load_properties(store))

    actions = [(str(i.action), i.is_completed) for i in load("svc_mor").instants]
    assert actions == [
        ("commit", True),  # was a compaction
        ("deltacommit", True),
        ("clean", True),
        ("replacecommit", True),
        ("deltacommit", True),
    ]
    v6 = load("mor_v6")
    assert [(i.action, i.state) for i in v6.instants] == [(Action.DELTA_COMMIT, State.COMPLETED)] * 3
    assert all(i.completed is not None and i.completed > i.requested for i in v6.instants)
    (pending,) = load("mor_consistent_1_pending_split").pending(Action.CLUSTERING)
    assert pending.state is State.REQUESTED
    restored = load("cow_savepoint_restore")
    assert len(restored.savepoints) == 1
    assert [i.action for i in restored.completed(Action.RESTORE)] == [Action.RESTORE]
