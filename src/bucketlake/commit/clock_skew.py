"""Whether this machine's clock can be trusted: it is compared with the store's.

A heartbeat's age is the difference of two clocks, the store's, which dates the file, and that of whoever looks. A
writer that is minutes ahead would take the living for dead, and put instants on the timeline that no other writer
can follow; one that is minutes behind would wait for the dead. Both are refused before they touch anything.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from time import monotonic

from bucketlake.errors import ClockSkewError
from bucketlake.storage import Store
from bucketlake.timeline.clock import system_ms

PROBES = ".hoodie/.bucketlake/clock-"
"""A file of its own for every look: process ids repeat on other machines, and in containers."""
SKEW_MAX_MS = 60_000
"""Half of what a heartbeat may be late."""
TRUSTED_SECONDS = 600.0
"""A clock that agreed is not asked again for so long."""

_trusted: dict[str, float] = {}


def check_clock(store: Store, *, now_ms: Callable[[], int] = system_ms) -> None:
    """Raise `ClockSkewError` if this machine's clock and the store's are more than a minute apart."""
    if monotonic() < _trusted.get(store.uri, 0.0):
        return
    skew = clock_skew_ms(store, now_ms=now_ms)
    if abs(skew) <= SKEW_MAX_MS:
        _trusted[store.uri] = monotonic() + TRUSTED_SECONDS
    if abs(skew) > SKEW_MAX_MS:
        raise ClockSkewError(
            f"this machine's clock is {abs(skew) / 1000:.0f} s {'ahead of' if skew > 0 else 'behind'} that of "
            f"{store.uri}, and writers who are more than {SKEW_MAX_MS // 1000} s apart take each other for dead. "
            f"Nothing was written to the table. Set the clock, e.g. by NTP, and try again."
        )


def clock_skew_ms(store: Store, *, now_ms: Callable[[], int] = system_ms) -> int:
    """Return by how many milliseconds this machine's clock is ahead, as far as a request's duration lets us tell."""
    path = f"{PROBES}{secrets.token_hex(8)}"
    before = now_ms()
    store.put(path, str(before).encode())
    stored = store.stat(path).modified_ms
    after = now_ms()
    store.delete(path)
    return before - stored if stored < before else min(after - stored, 0)
