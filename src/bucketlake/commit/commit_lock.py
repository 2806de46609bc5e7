"""The table lock as one commits with it: not while Hudi is about to build on what is committed.

Hudi holds the lock while it draws a time, and until that stands on the timeline as requested. Then it looks at what
there is to write on, and goes inflight. A write of ours that began in between has a later time; completed before Hudi
looked, it would be built upon by an earlier one, and readers, who go by these times, would not see that one's files.
Completed after Hudi looked, it is found by Hudi to be in its way, and Hudi refuses itself.

Writers of ours look once they are inflight, and draw another time if somebody with a later one is done.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic, sleep

from bucketlake.commit.heartbeat import living_strangers
from bucketlake.commit.locks import table_lock
from bucketlake.commit.operation import TRANSACTIONS
from bucketlake.config import TableProperties
from bucketlake.storage import Store
from bucketlake.timeline import Clock, State, load_timeline

LOOKS_WITHIN_SECONDS = 20.0
"""Hudi looks right after it has requested; but it goes inflight only when it has read all that it is to write."""
_PAUSE_SECONDS = 0.02


@contextmanager
def commit_lock(store: Store, properties: TableProperties, instant: str, clock: Clock) -> Iterator[None]:
    """Hold the table's lock while the block runs, at a moment when an instant may be completed."""
    deadline = monotonic() + LOOKS_WITHIN_SECONDS
    while True:
        with table_lock(store):
            if monotonic() > deadline or not _is_hudi_about_to_look(store, properties, instant, clock):
                yield
                return
        sleep(_PAUSE_SECONDS)


def _is_hudi_about_to_look(store: Store, properties: TableProperties, instant: str, clock: Clock) -> bool:
    """Tell whether Hudi has requested an earlier time just now, and may not have looked at the table since."""
    now_ms = clock.now_ms()
    since = clock.instant_at(now_ms - round(LOOKS_WITHIN_SECONDS * 1000))
    strangers = {i for i in living_strangers(store, now_ms=now_ms) if since < i < instant}
    if not strangers:
        return False
    pending = load_timeline(store, properties).pending(*TRANSACTIONS)
    return any(i.requested in strangers and i.state is State.REQUESTED for i in pending)
