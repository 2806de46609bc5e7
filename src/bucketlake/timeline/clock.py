"""Instant times: 17 digits, `yyyyMMddHHmmssSSS`; and the only clock we read.

Instant times are compared as text. Nothing that reads a table converts one:
which zone they were written in (`hoodie.table.timeline.timezone`) is then
of no concern. Conversions are for writers, who need the present, and for
people, who ask for a moment in a zone of their own.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from functools import lru_cache
from threading import Lock

from bucketlake.config import TimelineTimezone
from bucketlake.errors import ConfigError

INSTANT_DIGITS = 17
_SECONDS_DIGITS = 14
_SECONDS_FORMAT = "%Y%m%d%H%M%S"
# Hudi reads a time without milliseconds as the end of its second, so that "as of 03:04:05" holds all of it.
_END_OF_SECOND = "999"


Moment = str | datetime
"""A moment as a caller names it; `parse_instant_time` says how it is read."""

InZone = Callable[[datetime], datetime]
"""Gives a time that has no zone the one that is meant where it was typed."""


def in_process_zone(clock: datetime) -> datetime:
    """Return the moment at which clocks of this process's zone show a time.

    Python's `astimezone` goes back where a clock leaves an hour out; this goes on, as Java does.
    """
    seconds = clock.replace(microsecond=0).timestamp()
    return datetime.fromtimestamp(seconds, UTC) + timedelta(microseconds=clock.microsecond)


_OFFSET = re.compile(r"(.*:.*\d) ?(?:Z|([+-])(\d{2})(?::?([0-5]\d))?)", re.ASCII)
_FINER_THAN_MICROSECONDS = re.compile(r"(\.\d{6})\d+$", re.ASCII)
_OFFSET_HOURS_MAX = 18


def parse_instant_time(
    moment: Moment, timeline: TimelineTimezone, *, in_zone: InZone = in_process_zone
) -> str:
    """Turn what a caller names into an instant time of 17 digits, in the zone of a timeline.

    Digits are an instant, and stand as they are; all zeros are the beginning of time, as in Hudi's options. A text is
    a moment at its offset, or else where `in_zone` says: a date is its first moment and, as in Hudi's time travel, a
    time without a fraction the end of its second. A `datetime` is exact; without a zone it is this process's, as it is
    to PySpark. Of an hour that comes twice the first is meant, unless `fold` says otherwise; a time that the clock
    leaves out is as long after the hour before as it says.

    >>> parse_instant_time("2024-01-02T03:04:05+02:00", TimelineTimezone.UTC)
    '20240102010405999'
    >>> parse_instant_time(datetime(2024, 1, 2, 3, 4, 5, 678_000, tzinfo=UTC), TimelineTimezone.UTC)
    '20240102030405678'
    >>> parse_instant_time("20240102030405678", TimelineTimezone.UTC)
    '20240102030405678'
    """
    if isinstance(moment, datetime):
        return _in_timeline(moment, in_process_zone, timeline)
    if not isinstance(moment, str):
        raise _not_a_time(moment)
    text = moment.strip()
    if text.isascii() and text.isdigit():
        return _instant_of_digits(text, moment)
    offset = _OFFSET.fullmatch(text)
    face = _FINER_THAN_MICROSECONDS.sub(r"\1", offset[1] if offset else text).replace("T", " ", 1)
    for pattern in ("%Y-%m-%d", "%Y-%m-%d %H:%M:%S", "%Y-%m-%d %H:%M:%S.%f"):
        try:
            clock = datetime.strptime(face, pattern)
        except ValueError:
            continue
        if offset:
            clock = clock.replace(tzinfo=_zone_of(offset, moment))
        instant = _in_timeline(clock, in_zone, timeline)
        return instant[:_SECONDS_DIGITS] + _END_OF_SECOND if pattern.endswith("%S") else instant
    raise _not_a_time(moment)


def _instant_of_digits(digits: str, given: str) -> str:
    if set(digits) == {"0"}:
        return "0" * INSTANT_DIGITS
    if len(digits) == _SECONDS_DIGITS:
        digits += _END_OF_SECOND
    if len(digits) == INSTANT_DIGITS and _datetime_of(digits) is not None:
        return digits
    raise _not_a_time(given)


def _zone_of(offset: re.Match[str], given: str) -> timezone:
    _, sign, hours, minutes = offset.groups()
    if sign is None:
        return UTC
    if int(hours) > _OFFSET_HOURS_MAX:
        raise _not_a_time(given)
    return timezone((-1 if sign == "-" else 1) * timedelta(hours=int(hours), minutes=int(minutes or 0)))


def _in_timeline(clock: datetime, in_zone: InZone, timeline: TimelineTimezone) -> str:
    try:
        placed = clock if clock.utcoffset() is not None else in_zone(clock)
        return _render(placed.astimezone(UTC if timeline is TimelineTimezone.UTC else None))
    except (
        OverflowError,
        OSError,
        ValueError,
    ):  # the first or the last day of the calendar: before or after all else
        return _render(clock)


def instant_time_of(moment_ms: int, timezone: TimelineTimezone) -> str:
    """Return the instant time of a moment, in milliseconds since the epoch.

    LOCAL is the zone of this machine, as it is the JVM's for Hudi.

    >>> instant_time_of(1704164645678, TimelineTimezone.UTC)
    '20240102030405678'
    """
    moment = datetime.fromtimestamp(moment_ms // 1000, UTC)
    zoned = moment if timezone is TimelineTimezone.UTC else moment.astimezone()
    return f"{zoned.strftime(_SECONDS_FORMAT)}{moment_ms % 1000:03d}"


def instant_ms(instant: str, timezone: TimelineTimezone) -> int:
    """Return the moment of an instant time, in milliseconds since the epoch; 0 for what is no date.

    >>> instant_ms("20240102030405678", TimelineTimezone.UTC)
    1704164645678
    """
    moment = _datetime_of(instant.ljust(INSTANT_DIGITS, "9")[:INSTANT_DIGITS])
    if moment is None:
        return 0
    zoned = moment.replace(tzinfo=UTC) if timezone is TimelineTimezone.UTC else in_process_zone(moment)
    return round(zoned.timestamp() * 1000)


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


def _not_a_time(given: object) -> ConfigError:
    return ConfigError(
        f"{given!r} is not a time. Write 2024-01-02, 2024-01-02 03:04:05, 2024-01-02 03:04:05.678, these two with an "
        f"offset (+01:00) or Z if you like, an instant of 14 or 17 digits, or give a datetime."
    )
