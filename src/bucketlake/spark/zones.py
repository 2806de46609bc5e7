"""The zone that a session reads times in: `spark.sql.session.timeZone`."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from functools import partial
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

from bucketlake.errors import ConfigError
from bucketlake.timeline import InZone

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SESSION_ZONE = "spark.sql.session.timeZone"
_OFFSET = re.compile(r"(?:UTC|GMT|UT)?([+-])(\d{1,2})(?::?(\d{2}))?(?::?(\d{2}))?", re.ASCII)


def in_zone_of(session: SparkSession) -> InZone:
    """Return what gives a time the zone of a session, which is asked for only then."""
    return partial(_placed, session=session)


def _placed(clock: datetime, *, session: SparkSession) -> datetime:
    return clock.replace(tzinfo=zone_of(str(session.conf.get(_SESSION_ZONE))))


def zone_of(name: str) -> tzinfo:
    """Find a zone by the name that a session has for it.

    >>> print(zone_of("GMT+5:30"), zone_of("-01"), zone_of("Z"), zone_of("Asia/Tokyo"))
    UTC+05:30 UTC-01:00 UTC Asia/Tokyo
    """
    if name == "Z":
        return UTC
    try:
        if offset := _OFFSET.fullmatch(name):
            hours, minutes, seconds = (int(part or 0) for part in offset.groups()[1:])
            sign = -1 if offset[1] == "-" else 1
            return timezone(sign * timedelta(hours=hours, minutes=minutes, seconds=seconds))
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise ConfigError(
            f"the session's {_SESSION_ZONE} is {name!r}, which is no zone that is known here, and a time without an "
            f"offset was given. Add one (2024-01-02 03:04:05+01:00), give a datetime, or name the zone in full: "
            f"America/Los_Angeles, not PST."
        ) from None
