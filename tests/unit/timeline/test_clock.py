"""An instant time that goes back, or a date misread, puts a commit in the wrong place of history."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from bucketlake.config import TimelineTimezone
from bucketlake.errors import ConfigError
from bucketlake.timeline import Clock, instant_time_of, parse_instant_time, shift_instant

# 2024-01-02 03:04:05.678 UTC
MOMENT_MS = 1_704_164_645_678


def _in_utc(clock: datetime) -> datetime:
    return clock.replace(tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "instant"),
    [
        ("2024-01-02", "20240102000000000"),
        ("2024-01-02 03:04:05", "20240102030405999"),
        ("2024-01-02T03:04:05", "20240102030405999"),
        ("2024-01-02 03:04:05.678", "20240102030405678"),
        ("2024-01-02T03:04:05.678", "20240102030405678"),
        ("2024-01-02 03:04:05.6789", "20240102030405678"),
        (" 20240102030405678 ", "20240102030405678"),
        ("20240102030405", "20240102030405999"),
        ("000", "00000000000000000"),
        ("00000000000000000", "00000000000000000"),
        ("2024-01-02 03:04:05Z", "20240102030405999"),
        ("2024-01-02T03:04:05.678901234+05:30", "20240101213405678"),
        ("2024-01-02 03:04:05.6 -0100", "20240102040405600"),
        ("2024-01-02T03:04:05-01", "20240102040405999"),
        ("9999-12-31 23:59:59-01:00", "99991231235959999"),
        (datetime(2024, 1, 2, 3, 4, 5, 678_901, tzinfo=UTC), "20240102030405678"),
        (datetime(2024, 1, 2, 3, 4, 5, tzinfo=timezone(timedelta(hours=2))), "20240102010405000"),
    ],
)
def test_what_people_type_becomes_an_instant(text: str | datetime, instant: str) -> None:
    assert parse_instant_time(text, TimelineTimezone.UTC, in_zone=_in_utc) == instant


@pytest.mark.parametrize(
    "text",
    [
        "",
        "yesterday",
        "2024-13-01",
        "2024-01-02 25:00:00",
        "2024",
        "20241301000000000",
        "2024010203040567",
        "-1",
        "2024-01-02Z",
        "2024-01-02 03:04:05+25:00",
        "2024-01-02 03:04:05 Europe/Berlin",
        1704164645,
    ],
)
def test_what_is_no_time_is_refused_with_what_would_be(text: Any) -> None:
    with pytest.raises(ConfigError, match=r"is not a time\. Write 2024-01-02"):
        parse_instant_time(text, TimelineTimezone.UTC)


def test_a_moment_is_written_in_the_tables_zone() -> None:
    assert instant_time_of(MOMENT_MS, TimelineTimezone.UTC) == "20240102030405678"
    assert instant_time_of(MOMENT_MS, TimelineTimezone.LOCAL)[-5:] == "05678"


@pytest.mark.parametrize(
    ("instant", "milliseconds", "shifted"),
    [
        ("20240102030405678", 1, "20240102030405679"),
        ("20231231235959999", 1, "20240101000000000"),
        ("20240301000000000", -86_400_000, "20240229000000000"),
        ("00000000000000000", -1, "00000000000000000"),
    ],
)
def test_instants_are_shifted_on_the_face_of_the_clock(instant: str, milliseconds: int, shifted: str) -> None:
    assert shift_instant(instant, milliseconds) == shifted


def test_a_clock_never_gives_a_time_twice_nor_an_earlier_one() -> None:
    times = iter([MOMENT_MS, MOMENT_MS, MOMENT_MS - 5000, MOMENT_MS + 10])
    clock = Clock(TimelineTimezone.UTC, now_ms=lambda: next(times))
    given = [clock.next_instant() for _ in range(4)]
    assert [instant[-3:] for instant in given] == ["678", "679", "680", "688"]


def test_a_clock_stays_behind_nobody_on_the_timeline() -> None:
    clock = Clock(TimelineTimezone.UTC, now_ms=lambda: MOMENT_MS)
    assert clock.next_instant(after="20250101000000000") == "20250101000000001"
    assert clock.next_instant(after="20250101000000000") == "20250101000000002", "not the same twice"


def test_a_table_of_the_future_does_not_draw_others_after_it() -> None:
    clock = Clock(TimelineTimezone.UTC, now_ms=lambda: MOMENT_MS)
    first = clock.next_instant()
    clock.next_instant(after="20250101000000000")
    assert clock.next_instant(after=first) == shift_instant(first, 1)


def test_threads_that_share_a_clock_get_different_times() -> None:
    clock = Clock(TimelineTimezone.UTC)
    with ThreadPoolExecutor(8) as pool:
        given = list(pool.map(lambda _: clock.next_instant(), range(200)))
    assert len(set(given)) == 200
    assert all(len(instant) == 17 for instant in given)
