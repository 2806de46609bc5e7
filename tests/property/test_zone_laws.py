"""A moment is one moment, in whatever zone it is named and in whatever zone the timeline keeps it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import partial
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bucketlake.config import TimelineTimezone
from bucketlake.timeline import in_process_zone, instant_time_of, parse_instant_time
from stand_ins.zones import CHANGES, ZONES, process_in

pytestmark = pytest.mark.shows("S4")

zones = st.sampled_from(ZONES)
timelines = st.sampled_from(TimelineTimezone)
moments = st.one_of(
    st.datetimes(datetime(1972, 1, 1), datetime(2037, 1, 1)).map(lambda face: face.replace(tzinfo=UTC)),
    st.builds(
        lambda change, minutes: change + timedelta(minutes=minutes, milliseconds=1),
        st.sampled_from(CHANGES),
        st.integers(-1600, 1600),
    ),
)


@given(moment=moments, zone=zones, process=zones, timeline=timelines)
def test_a_moment_is_the_same_instant_in_every_zone(
    moment: datetime, zone: str, process: str, timeline: TimelineTimezone
) -> None:
    with process_in(process):
        expected = instant_time_of(_millis(moment), timeline)
        there = moment.astimezone(ZoneInfo(zone))
        here = moment.astimezone().replace(tzinfo=None)
        # What Python calls a local time does not say by itself which of two it is.
        here = here.replace(fold=int(in_process_zone(here) != moment))
        for named in (
            moment,
            there,
            here,
            there.isoformat(timespec="milliseconds"),
            moment.replace(tzinfo=None).isoformat(" ", "microseconds") + "Z",
        ):
            assert parse_instant_time(named, timeline) == expected, named
        whole_second = there.isoformat(" ", "seconds")
        assert parse_instant_time(whole_second, timeline) == expected[:14] + "999"


@given(moment=moments, session=zones, process=zones, timeline=timelines)
def test_a_text_without_an_offset_is_what_the_clocks_of_its_zone_show(
    moment: datetime, session: str, process: str, timeline: TimelineTimezone
) -> None:
    """As Java has it: of two moments the first, and of none the one as far after the change as the text is."""
    face = moment.replace(tzinfo=None)
    text = face.isoformat(" ", "milliseconds")
    with process_in(process):
        for in_zone, zone in (
            (partial(_placed, zone=ZoneInfo(session)), session),
            (in_process_zone, process),
        ):
            expected = instant_time_of(_millis(_meant(face, ZoneInfo(zone))), timeline)
            assert parse_instant_time(text, timeline, in_zone=in_zone) == expected


def _placed(clock: datetime, zone: ZoneInfo) -> datetime:
    return clock.replace(tzinfo=zone)


def _meant(face: datetime, zone: ZoneInfo) -> datetime:
    """Find the moment at which clocks show a face, by trying the offsets that the zone has around that time."""
    as_utc = face.replace(tzinfo=UTC)
    around = [(as_utc + timedelta(hours=hours)).astimezone(zone).utcoffset() for hours in (-50, 0, 50)]
    offsets = [offset for offset in around if offset is not None]
    shown = [as_utc - offset for offset in offsets if _shows(as_utc - offset, zone, face)]
    return min(shown) if shown else as_utc - offsets[0]


def _shows(moment: datetime, zone: ZoneInfo, face: datetime) -> bool:
    return moment.astimezone(zone).replace(tzinfo=None) == face


def _millis(moment: datetime) -> int:
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)
