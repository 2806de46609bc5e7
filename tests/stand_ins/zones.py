"""Zones whose clocks do what clocks do, and a process that is moved from one to another."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

ZONES = (
    "UTC",
    "Europe/Berlin",
    "America/St_Johns",
    "Asia/Kathmandu",
    "Australia/Lord_Howe",  # half an hour in summer
    "Pacific/Apia",  # which left out a day
)

CHANGES = (
    datetime(2024, 3, 31, 1, tzinfo=UTC),
    datetime(2024, 10, 27, 1, tzinfo=UTC),
    datetime(2024, 3, 10, 5, 30, tzinfo=UTC),
    datetime(2024, 11, 3, 4, 30, tzinfo=UTC),
    datetime(2024, 4, 6, 15, tzinfo=UTC),
    datetime(2024, 10, 5, 15, 30, tzinfo=UTC),
    datetime(2011, 12, 30, 10, tzinfo=UTC),
)
"""When some of their clocks were set: the hours around them come twice there, or not at all."""


@contextmanager
def process_in(zone: str) -> Iterator[None]:
    """Let this process live in a zone."""
    before = os.environ.get("TZ")
    _move(zone)
    try:
        yield
    finally:
        _move(before)


def _move(zone: str | None) -> None:
    if zone is None:
        os.environ.pop("TZ", None)
    else:
        os.environ["TZ"] = zone
    time.tzset()
