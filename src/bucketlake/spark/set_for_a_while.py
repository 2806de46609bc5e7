"""Settings of a session that are others for as long as a block runs, and then as they were."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from threading import Lock

from pyspark.sql import SparkSession

# What a setting was before, and how many blocks have changed it: several may run in one session.
_before: dict[tuple[int, str], tuple[int, str | None]] = {}
_guard = Lock()


@contextmanager
def set_for_a_while(session: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Change settings of a session for as long as the block runs; of two at once, both get the later one's."""
    with _guard:
        for name, value in settings.items():
            users, before = _before.get((id(session), name), (0, session.conf.get(name, None)))
            _before[id(session), name] = users + 1, before
            session.conf.set(name, value)
    try:
        yield
    finally:
        with _guard:
            for name in settings:
                users, before = _before.pop((id(session), name))
                if users > 1:
                    _before[id(session), name] = users - 1, before
                elif before is None:
                    session.conf.unset(name)
                else:
                    session.conf.set(name, before)
