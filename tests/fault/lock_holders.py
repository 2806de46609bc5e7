"""What processes do that contend for the lock of one table; started by tests, each in a process of its own."""

from __future__ import annotations

import json
from collections.abc import Mapping
from time import sleep

from bucketlake.commit.locks import OBJECT_LOCK_PATH, table_lock
from bucketlake.storage import open_store
from bucketlake.timeline.clock import system_ms


def count_up(uri: str, options: Mapping[str, str], times: int) -> int:
    """Add to a number in the store, unprotected but by the lock; return how often somebody else was seen inside."""
    store = open_store(uri, options)
    meetings = 0
    for _ in range(times):
        with table_lock(store):
            meetings += not store.put_new("inside", b"")
            number = int(store.read("number"))
            sleep(0.002)
            store.put("number", str(number + 1).encode())
            store.delete("inside")
    return meetings


def take_and_die(uri: str, options: Mapping[str, str]) -> None:
    """Take the lock as a host does that is switched off then: nobody gives it back."""
    store = open_store(uri, options)
    body = {"expired": False, "validUntil": system_ms() + 1_500, "owner": "a host that is gone"}
    assert store.put_new(OBJECT_LOCK_PATH, json.dumps(body).encode())
