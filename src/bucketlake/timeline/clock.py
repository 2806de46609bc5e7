"""Instant times: 17 digits, `yyyyMMddHHmmssSSS`; and the only clock we read.

Instant times are compared as text. Nothing that reads a table converts one:
which zone they were written in (`hoodie.table.timeline.timezone`) is then
of no concern. Conversions are for writers, who need the present, and for
people, who type dates.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from threading import Lock

from bucketlake.config import TimelineTimezone
from bucketlake.errors import ConfigError

INSTANT_DIGITS = 17
_SECONDS_DIGITS = 14
_SECONDS_FORMAT = "%Y%m%d%H%M%S"
# Hudi reads a time without milliseconds as the end of its second, so that "as of 03:04:05" holds all of it.
_END_OF_SECOND = "999"


def parse_instant_time(text: str) -> str:
    """Turn what a person types into an instant time of 17 digits, as Hudi's time travel reads it.

    A date is its first moment; a time without milliseconds is the end of its second. All zeros, the beginning
    of time in Hudi's options, stay so.

    >>> parse_instant_time("2024-01-02")
    '20240102000000000'
    >>> parse_instant_time("2024-01-02T03:04:05")
    '20240102030405999'
    >>> parse_instant_time("2024-01-02 03:04:05.6")
    '20240102030405600'
    """
    stripped = text.strip()
    if stripped.isascii() and stripped.isdigit():
        if set(stripped) == {"0"}:
            return "0" * INSTANT_DIGITS
        if len(stripped) == _SECONDS_DIGITS:
            stripped += _END_OF_SECOND
        if len(stripped) == INSTANT_DIGITS and _datetime_of(stripped) is not None:
            return stripped
        raise _not_a_time(text)
    for pattern in ("%Y-%m-%d", "%Y-%m-%d %H:%M:%S", "%Y-%m-%d %H:%M:%S.%f"):
        try:
            moment = datetime.strptime(stripped.replace("T", " ", 1), pattern)
        except ValueError:
            continue
        seconds = moment.strftime(_SECONDS_FORMAT).rjust(_SECONDS_DIGITS, "0")
        return seconds + (_END_OF_SECOND if pattern.endswith("%S") else f"{moment.microsecond // 1000:03d}")
    raise _not_a_time(text)


def instant_time_of(moment_ms: int, timezone: TimelineTimezone) -> str:
    """Return the instant time of a moment, in milliseconds since the epoch.

    LOCAL is the zone of this machine, as it is the JVM's for Hudi.

    >>> instant_time_of(1704164645678, TimelineTimezone.UTC)
    '20240102030405678'
    """
    moment = datetime.fromtimestamp(moment_ms // 1000, UTC)
    zoned = moment if timezone is TimelineTimezone.UTC else moment.astimezone()
    return f"{zoned.strftime(_SECONDS_FORMAT)}{moment_ms % 1000:03d}"


def shift_instant(instant: str, milliseconds: int) -> str:
    """Move an instant time on the face of the clock, with no regard to zones.

    What is no date (all zeros, the short numbers of test tables) stays as it is.

    >>> shift_instant("20240301000000000", -86_400_000)
    '20240229000000000'
    """
    moment = _datetime_of(instant.ljust(INSTANT_DIGITS, "9")[:INSTANT_DIGITS])
    if moment is None:
        return instant
    try:
        shifted = moment + timedelta(milliseconds=milliseconds)
    except OverflowError:
        return instant
    return _render(shifted)


def elapsed_ms(since: str, until: str) -> int:
    """Return the milliseconds from one instant time to another, on the face of the clock.

    >>> elapsed_ms("20240229235959999", "20240301000000001")
    2
    """
    first, last = _datetime_of(since), _datetime_of(until)
    assert first is not None and last is not None, f"{since}, {until}: no times"
    return round((last - first).total_seconds() * 1000)


class Clock:
    """Makes instant times, no two alike.

    One clock serves a whole process; `after` brings in what other writers have already put on a table's timeline. A
    table that is ahead of the present, because somebody's clock was, does not draw others after it.
    """

    def __init__(self, timezone: TimelineTimezone, *, now_ms: Callable[[], int] | None = None) -> None:
        self._timezone = timezone
        self._now_ms = now_ms or system_ms
        self._last = ""
        self._ahead: set[str] = set()
        self._lock = Lock()

    def now_ms(self) -> int:
        """Return the present, in milliseconds since the epoch."""
        return self._now_ms()

    def instant_at(self, moment_ms: int) -> str:
        """Return the instant time of a moment, in milliseconds since the epoch."""
        return instant_time_of(moment_ms, self._timezone)

    def next_instant(self, *, after: str = "") -> str:
        """Return the present as an instant time, or the millisecond after `after` or after our last one."""
        with self._lock:
            present = instant_time_of(self._now_ms(), self._timezone)
            # A clock set back, or the hour that comes twice in autumn, must not lead back in time.
            own = present if present > self._last else shift_instant(self._last, 1)
            if own > after:
                self._last = own
                return own
            self._ahead = {instant for instant in self._ahead if instant > own}
            ahead = shift_instant(after, 1)
            while ahead in self._ahead:
                ahead = shift_instant(ahead, 1)
            assert ahead > after, f"no instant time follows {after}"
            self._ahead.add(ahead)
            return ahead


def process_clock(timezone: TimelineTimezone) -> Clock:
    """Return this process's clock for tables of a zone: all its writers share it, so no two draw one time."""
    with _CLOCKS_LOCK:
        return _CLOCKS.setdefault(timezone, Clock(timezone))


_CLOCKS: dict[TimelineTimezone, Clock] = {}
_CLOCKS_LOCK = Lock()


def system_ms() -> int:
    """Return what this machine takes for the present, in milliseconds since the epoch."""
    return time.time_ns() // 1_000_000


@lru_cache(maxsize=4096)
def _datetime_of(instant: str) -> datetime | None:
    # Asked for every log file of every listing, and of one instant again and again.
    try:
        seconds = datetime.strptime(instant[:_SECONDS_DIGITS], _SECONDS_FORMAT)
        return seconds + timedelta(milliseconds=int(instant[_SECONDS_DIGITS:]))
    except ValueError:
        return None


def _render(moment: datetime) -> str:
    digits = moment.strftime(_SECONDS_FORMAT).rjust(_SECONDS_DIGITS, "0")
    return f"{digits}{moment.microsecond // 1000:03d}"


def _not_a_time(text: str) -> ConfigError:
    return ConfigError(
        f"{text!r} is not a time. Write 2024-01-02, 2024-01-02 03:04:05, 2024-01-02 03:04:05.678, "
        f"or an instant of 14 or 17 digits."
    )
