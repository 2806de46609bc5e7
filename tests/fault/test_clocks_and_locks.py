"""Clocks that disagree, and locks that nobody gives back: a writer gets through, or says what is wrong."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bucketlake import Table
from bucketlake.commit import clock_skew, locks
from bucketlake.commit.locks import DISK_LOCK_PATH, VALID_MS
from bucketlake.config import TimelineTimezone
from bucketlake.errors import ClockSkewError, ConflictError
from bucketlake.testing.invariants import check_invariants
from bucketlake.timeline import Clock, clock
from bucketlake.timeline.clock import instant_time_of, system_ms
from stand_ins.orders_table import orders, orders_table

MINUTE_MS = 60_000


@pytest.fixture
def table(tmp_path: Path) -> Table:
    made = orders_table(tmp_path / "orders")
    made.upsert(orders(range(4), "first", 1))
    return made


@pytest.fixture
def set_clock(monkeypatch: pytest.MonkeyPatch) -> object:
    """Return a function that sets this process's clock ahead, or behind, as another machine's may be."""

    def by(off_ms: int) -> None:
        def now_ms() -> int:
            return system_ms() + off_ms

        monkeypatch.setattr(clock, "_CLOCKS", {zone: Clock(zone, now_ms=now_ms) for zone in TimelineTimezone})
        monkeypatch.setattr(clock_skew, "_trusted", {})
        monkeypatch.setitem(clock_skew.check_clock.__kwdefaults__, "now_ms", now_ms)

    return by


def names(table: Table) -> set[str]:
    return set(table.to_arrow(columns=["name"])["name"].to_pylist())


@pytest.mark.shows("X2")
def test_writers_whose_clocks_are_half_a_minute_apart_commit_one_after_the_other(
    table: Table, set_clock
) -> None:  # type: ignore[no-untyped-def] # a fixture
    """Each instant is later than all before it, whoever's clock made it."""
    for number, off_ms in enumerate([45_000, -45_000, 0, -30_000, 45_000, -45_000], 2):
        set_clock(off_ms)
        summary = table.upsert(orders(range(4), f"write {number}", number))
        assert summary.instant is not None and summary.completed is not None
        assert names(table) == {f"write {number} {n}" for n in range(4)}
    times = [
        time
        for instant in table.timeline()
        for time in (instant.requested, instant.completed)
        if time is not None
    ]
    assert times == sorted(times)
    check_invariants(table)


@pytest.mark.shows("X2")
@pytest.mark.parametrize("off_ms", [10 * MINUTE_MS, -10 * MINUTE_MS], ids=["ahead", "behind"])
def test_a_writer_whose_clock_is_minutes_off_is_refused_and_told(
    table: Table, set_clock, off_ms: int
) -> None:  # type: ignore[no-untyped-def] # a fixture
    before = table.timeline()
    set_clock(off_ms)
    with pytest.raises(ClockSkewError, match=r"600 s (ahead of|behind).*Set the clock"):
        table.upsert(orders(range(4), "skewed", 2))
    assert table.timeline() == before
    assert names(table) == {f"first {n}" for n in range(4)}
    set_clock(0)
    table.upsert(orders(range(4), "set", 3))
    assert names(table) == {f"set {n}" for n in range(4)}


@pytest.mark.shows("X2")
def test_after_a_writer_of_the_future_others_still_commit(table: Table) -> None:
    """Hudi does not look at clocks: an instant of an hour ahead may be there. Ours follow it, by milliseconds."""
    ahead = system_ms() + 60 * MINUTE_MS
    properties = table.properties
    names_ahead = [instant_time_of(ahead + n, properties.timeline_timezone) for n in range(2)]
    newest = next(e for e in reversed(table.timeline()) if e.completed is not None)
    body = table.store.read(
        f"{properties.timeline_folder}/{newest.requested}_{newest.completed}.{newest.action}"
    )
    name = f"{properties.timeline_folder}/{names_ahead[0]}_{names_ahead[1]}.{newest.action}"
    table.store.put(name, body)
    summary = table.upsert(orders(range(4), "second", 2))
    assert summary.instant is not None
    assert summary.instant > names_ahead[1]
    assert names(table) == {f"second {n}" for n in range(4)}


@pytest.mark.shows("X2")
def test_the_lock_of_a_host_that_died_is_told_and_taken_over_when_it_runs_out(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    def left(valid_ms: int) -> None:
        body = {"expired": False, "validUntil": system_ms() + valid_ms, "owner": "bucketlake-gone-17"}
        table.store.put(DISK_LOCK_PATH, json.dumps(body).encode())

    left(VALID_MS)
    monkeypatch.setattr(locks, "WAIT_SECONDS", 0.2)
    with pytest.raises(ConflictError, match=r"held by bucketlake-gone-17, renewed 0 s ago.*Try again"):
        table.upsert(orders(range(4), "early", 2))
    assert names(table) == {f"first {n}" for n in range(4)}
    left(-1_000)
    table.upsert(orders(range(4), "later", 3))
    assert names(table) == {f"later {n}" for n in range(4)}
    check_invariants(table)
