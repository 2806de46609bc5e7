"""Partition paths of the TIMESTAMP key generator: a value read as a moment, written by a pattern.

    1704164645123   EPOCHMILLISECONDS, output yyyy/MM/dd         -> 2024/01/02
    "2024-01-02"    DATE_STRING, input yyyy-MM-dd, output yyyy   -> 2024

Patterns are Joda's. These parts are understood, in both directions unless said otherwise:

    y yyyy    year, padded to the letters' number     H HH  hour 0-23      S SSS  fraction of a second
    yy        last two digits (output only)           m mm  minute         Z      +0530
    M MM      month                                   s ss  second         ZZ     +05:30
    d dd      day of month                            'T'   text           ''     a quote

A pattern with any other letter is refused by name: what it prints depends on a locale, or on the day it is
read. A zone that is not configured is the writing machine's own; here it is UTC.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from functools import lru_cache
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import pyarrow as pa
import pyarrow.compute as pc

from bucketlake.config import TimestampKeyConfig, TimestampType
from bucketlake.errors import ConfigError, UnsupportedError
from bucketlake.keygen.text import civil_of, days_of, distinct_texts, truncated_quotient

_MILLIS = {  # (multiplier, divisor) of a TimeUnit to milliseconds
    "NANOSECONDS": (1, 1_000_000),
    "MICROSECONDS": (1, 1_000),
    "MILLISECONDS": (1, 1),
    "SECONDS": (1_000, 1),
    "MINUTES": (60_000, 1),
    "HOURS": (3_600_000, 1),
    "DAYS": (86_400_000, 1),
}
_UNITS = {
    TimestampType.UNIX_TIMESTAMP: "SECONDS",
    TimestampType.EPOCHMILLISECONDS: "MILLISECONDS",
    TimestampType.EPOCHMICROSECONDS: "MICROSECONDS",
}
_DAY_MS = 86_400_000
_CYCLE_MS = 146_097 * _DAY_MS  # the calendar repeats every 400 years
_WHOLE_MINUTES_FROM_MS = 94_694_400_000  # 1973: the last zone with seconds in its offset gave them up in 1972
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_OLDEST_MS = days_of(2, 1, 1) * _DAY_MS
_NEWEST_MS = days_of(9999, 1, 1) * _DAY_MS


@dataclass(frozen=True, slots=True)
class TimestampPaths:
    """Turns the values of one column into the texts of their partition paths, not yet escaped."""

    config: TimestampKeyConfig
    logical_timestamps: bool = False

    def text_of(self, value: object, *, field: str) -> str:
        """Return the text of one value; a null gets the moment just after the epoch, as in Hudi.

        >>> config = TimestampKeyConfig(type=TimestampType.UNIX_TIMESTAMP, output_format="yyyy/MM/dd")
        >>> TimestampPaths(config).text_of(1704164645, field="ts")
        '2024/01/02'
        """
        scalar = value if isinstance(value, pa.Scalar) else pa.scalar(value)
        output = parse_pattern(self.config.output_format)
        millis, parsed_zone = self._moment(scalar, field)
        zone = _zone(self.config.output_timezone) or parsed_zone or UTC
        return render(output, millis, zone)

    def texts_of(self, column: Any, *, field: str) -> Any:
        """Return the texts of a column, each distinct value written once.

        Moments are first rounded down to what the pattern can show, so a day of milliseconds is few values.
        """
        column = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
        texts = distinct_texts(self._rounded(column), lambda scalar: self.text_of(scalar, field=field))
        if texts.null_count:
            texts = texts.fill_null(self.text_of(pa.scalar(None, column.type), field=field))
        return texts

    def _moment(self, scalar: Any, field: str) -> tuple[int, tzinfo | None]:
        """Return a value's milliseconds, and the zone that it was read in, if it is text."""
        if not scalar.is_valid:
            scalar = self._stand_in_for_null()
        kind = scalar.type
        if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
            return self._parse(scalar.as_py(), field)
        if self.logical_timestamps and pa.types.is_timestamp(kind) and kind.tz is not None:
            return truncated_quotient(scalar.value, 1000 if kind.unit == "us" else 1), None
        if pa.types.is_timestamp(kind) or pa.types.is_date32(kind):
            return self._to_millis(scalar.value, field), None
        if pa.types.is_signed_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
            return self._to_millis(int(scalar.as_py()), field), None
        raise ConfigError(
            f"column {field!r} has type {kind}, and a TIMESTAMP partition path is made from a number, "
            f"a date, a timestamp or text. Partition by a column of one of these types."
        )

    def _stand_in_for_null(self) -> Any:
        if not self._reads_text:
            return pa.scalar(1, pa.int64())
        if not self.config.input_formats:
            return pa.scalar(None, pa.string())
        zone = _zone(self.config.input_timezone) or _zone(self.config.output_timezone) or UTC
        return pa.scalar(render(parse_pattern(self.config.input_formats[0]), 1, zone))

    def _to_millis(self, number: int, field: str) -> int:
        if self._reads_text:
            raise ConfigError(
                f"column {field!r} holds numbers, and the table's timestamp type {self.config.type} reads "
                f"text. Set hoodie.keygen.timebased.timestamp.type to a type of numbers, or give the column "
                f"as text."
            )
        multiplier, divisor = self._unit
        return truncated_quotient(number * multiplier, divisor)

    def _parse(self, text: str | None, field: str) -> tuple[int, tzinfo]:
        formats = self.config.input_formats
        if not self._reads_text or not formats or text is None:
            raise ConfigError(
                f"column {field!r} holds text, and the table's timestamp type is {self.config.type} with "
                f"{len(formats)} input formats. Set the type DATE_STRING and "
                f"hoodie.keygen.timebased.input.dateformat, or give the column as numbers."
            )
        for pattern in formats:
            match = _reader(pattern).fullmatch(text)
            if match is not None:
                return _moment_of(match, _zone(self.config.input_timezone), text=text, field=field)
        raise ConfigError(
            f"column {field!r} holds {text!r}, which fits none of the table's input formats: "
            f"{', '.join(formats)}. Mend the value, or read it into another column."
        )

    @property
    def _reads_text(self) -> bool:
        return self.config.type in (TimestampType.DATE_STRING, TimestampType.MIXED)

    @property
    def _unit(self) -> tuple[int, int]:
        name = _UNITS.get(self.config.type, self.config.scalar_unit.upper())
        if name not in _MILLIS:
            raise UnsupportedError(
                subject="hoodie.keygen.timebased.timestamp.scalar.time.unit",
                found=repr(name),
                supported=", ".join(_MILLIS),
                remedy="Mend the unit in the table's properties.",
            )
        return _MILLIS[name]

    def _rounded(self, column: Any) -> Any:
        if self._reads_text or self.logical_timestamps:
            return column
        if pa.types.is_timestamp(column.type):
            column = column.cast(pa.int64())
        letters = {part.letter for part in parse_pattern(self.config.output_format)}
        multiplier, divisor = self._unit
        if not pa.types.is_int64(column.type) or "S" in letters or (divisor == 1 and multiplier >= 1000):
            return column
        second = 1000 * divisor
        granule, since = (second, 0) if "s" in letters else (60 * second, _WHOLE_MINUTES_FROM_MS * divisor)
        # numpy has the remainder that Arrow compute lacks; nulls travel beside.
        numbers = column.fill_null(0).to_numpy(zero_copy_only=False)
        rounded = pa.array(numbers - numbers % granule)
        return pc.if_else(pc.greater_equal(column, since), rounded, column)


@dataclass(frozen=True, slots=True)
class Part:
    """One part of a pattern: a letter and how often it stands there, or (no letter) text."""

    letter: str
    width: int
    text: str = ""


@lru_cache(maxsize=256)
def parse_pattern(pattern: str) -> tuple[Part, ...]:
    """Read a Joda pattern.

    >>> [part.letter or part.text for part in parse_pattern("yyyy'T'MM")]
    ['y', 'T', 'M']
    """
    parts: list[Part] = []
    for match in re.finditer(r"([A-Za-z])\1*|'((?:[^']|'')*)'|(.)", pattern, re.DOTALL):
        letter, quoted, other = match.groups()
        if letter is None:
            text = other if quoted is None else quoted.replace("''", "'") or "'"
            parts.append(Part("", 0, text))
            continue
        part = Part(letter, len(match[0]))
        if letter not in "yMdHmsSZ" or part.width > _WIDEST.get(letter, part.width):
            raise _unsupported_pattern(pattern, match[0], at=match.start())
        parts.append(part)
    return tuple(parts)


_WIDEST = {"M": 2, "d": 2, "H": 2, "m": 2, "s": 2, "Z": 2}


def render(parts: tuple[Part, ...], millis: int, zone: tzinfo) -> str:
    """Write a moment by a pattern, in a zone.

    >>> render(parse_pattern("yyyy-MM-dd HH:mm:ss.SSSZ"), 0, UTC)
    '1970-01-01 00:00:00.000+0000'
    """
    offset_ms = _offset_ms(millis, zone)
    days, milli_of_day = divmod(millis + offset_ms, _DAY_MS)
    year, month, day = civil_of(days)
    seconds, fraction = divmod(milli_of_day, 1000)
    numbers = {"M": month, "d": day, "H": seconds // 3600, "m": seconds // 60 % 60, "s": seconds % 60}
    written: list[str] = []
    for part in parts:
        match part.letter:
            case "":
                written.append(part.text)
            case "y" if part.width == 2:
                written.append(f"{abs(year) % 100:02d}")
            case "y":
                written.append(f"{'-' if year < 0 else ''}{abs(year):0{part.width}d}")
            case "S":
                written.append(f"{fraction:03d}".ljust(part.width, "0")[: part.width])
            case "Z":
                minutes = abs(offset_ms) // 60_000
                colon = ":" if part.width == 2 else ""
                written.append(f"{'-' if offset_ms < 0 else '+'}{minutes // 60:02d}{colon}{minutes % 60:02d}")
            case letter:
                written.append(f"{numbers[letter]:0{part.width}d}")
    return "".join(written)


@lru_cache(maxsize=256)
def _reader(pattern: str) -> re.Pattern[str]:
    """Return what a pattern reads: numbers take all digits they can and never give one back, as in Joda."""
    parts = parse_pattern(pattern)
    names: list[str] = []
    expression = ""
    for part, following in zip(parts, (*parts[1:], Part("", 0)), strict=True):
        if not part.letter:
            expression += re.escape(part.text)
            continue
        if part.letter in names or (part.letter, part.width) == ("y", 2):
            raise _unsupported_pattern(pattern, part.letter * part.width, at=pattern.index(part.letter))
        names.append(part.letter)
        digits = {"y": part.width if following.letter not in ("", "Z") else 9, "S": part.width}.get(
            part.letter, 2
        )
        sign = "[+-]?" if part.letter == "y" else ""
        body = r"Z|[+-][0-9]{2}(?::?[0-9]{2})?" if part.letter == "Z" else f"{sign}[0-9]{{1,{digits}}}+"
        expression += f"(?P<{part.letter}>{body})"
    if "y" not in names:
        raise _unsupported_pattern(pattern, "a pattern without a year", at=0)
    return re.compile(expression, re.IGNORECASE)


def _moment_of(match: re.Match[str], zone: tzinfo | None, *, text: str, field: str) -> tuple[int, tzinfo]:
    found = match.groupdict()
    hour, minute, second = (int(found.get(letter) or 0) for letter in "Hms")
    try:
        days = days_of(int(found["y"]), int(found.get("M") or 1), int(found.get("d") or 1))
        if hour > 23 or minute > 59 or second > 59:
            raise ValueError
    except ValueError:
        raise ConfigError(
            f"column {field!r} holds {text!r}, and there is no such moment. Mend the value."
        ) from None
    fraction = int((found.get("S") or "0").ljust(3, "0")[:3])
    local_ms = days * _DAY_MS + ((hour * 60 + minute) * 60 + second) * 1000 + fraction
    offset_text = found.get("Z")
    if offset_text is not None:
        own_zone = _fixed_zone(offset_text)
        return local_ms - _offset_ms(0, own_zone), zone or own_zone
    zone = zone or UTC
    millis = _from_local_ms(local_ms, zone)
    if millis is None:
        raise ConfigError(
            f"column {field!r} holds {text!r}, which the clocks of {zone} skipped. Mend the value, or set "
            f"hoodie.keygen.timebased.input.timezone."
        )
    return millis, zone


def _from_local_ms(local_ms: int, zone: tzinfo) -> int | None:
    """Return the moment a clock of `zone` shows this time: the earlier of two, None if it never does."""
    guesses = {_offset_ms(local_ms - shift, zone) for shift in (-_DAY_MS, 0, _DAY_MS)}
    for guess in sorted(guesses, reverse=True):
        if _offset_ms(local_ms - guess, zone) == guess:
            return local_ms - guess
    return None


def _offset_ms(millis: int, zone: tzinfo) -> int:
    """Return the zone's offset at a moment; outside Python's years it is that of the nearest like year."""
    if millis > _NEWEST_MS:
        millis -= -(-(millis - _NEWEST_MS) // _CYCLE_MS) * _CYCLE_MS
    moment = _EPOCH + timedelta(milliseconds=max(millis, _OLDEST_MS))
    offset = moment.astimezone(zone).utcoffset()
    assert offset is not None
    return int(offset / timedelta(milliseconds=1))


def _fixed_zone(text: str) -> tzinfo:
    if text in "Zz":
        return UTC
    hours, minutes = int(text[1:3]), int(text[3:].lstrip(":") or 0)
    return timezone((-1 if text[0] == "-" else 1) * timedelta(hours=hours, minutes=minutes))


@lru_cache(maxsize=256)
def _zone(name: str) -> tzinfo | None:
    """Find a zone by the name that Java's `TimeZone` would know; the empty name is no zone."""
    name = name.strip()
    if not name:
        return None
    custom = re.fullmatch(r"GMT([+-])(\d{1,2})(?::?(\d{2}))?", name)
    if custom:
        sign, hours, minutes = custom.groups()
        return _fixed_zone(f"{sign}{int(hours):02d}{minutes or '00'}")
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        # Java reads a name it does not know as GMT; but a name we do not know, it may.
        raise UnsupportedError(
            subject="a time zone in hoodie.keygen.timebased.*",
            found=repr(name),
            supported="names of the IANA time zone database, and GMT+8:00 and the like",
            remedy="Use the zone's full name (America/Los_Angeles, not PST).",
        ) from None


def _unsupported_pattern(pattern: str, part: str, *, at: int) -> UnsupportedError:
    return UnsupportedError(
        subject=f"the date pattern {pattern!r} in hoodie.keygen.timebased.*",
        found=f"{part!r} at position {at}",
        supported="y M d H m s S Z, quoted text and marks; input formats need a year, and not of two letters",
        remedy="Use another pattern for this table.",
    )
