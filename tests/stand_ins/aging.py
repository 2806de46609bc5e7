"""Stores whose files can be made older, so that a test need not wait for a writer to count as dead."""

from __future__ import annotations

import json
from dataclasses import replace

from bucketlake.commit.locks import OBJECT_LOCK_PATH
from bucketlake.layout.names import MAINTENANCE_LEASE
from bucketlake.storage import MemoryStore, Store
from bucketlake.timeline.clock import system_ms

OLD_MS = 20 * 60 * 1000
"""By then a writer that does not beat is dead, its lock has run out, and its tasks are gone."""


class Bucket(MemoryStore):
    """A store in memory that says it is an object store: writers take the lock of one."""

    @property
    def uri(self) -> str:
        return super().uri.replace("memory://", "s3://in-memory/")


def age(store: Store) -> None:
    """Let twenty minutes pass, in which nobody did anything."""
    assert isinstance(store, MemoryStore)
    shelf = store._shelf
    with shelf.lock:
        for path, file in shelf.files.items():
            stat = replace(file.stat, modified_ms=file.stat.modified_ms - OLD_MS)
            shelf.files[path] = replace(file, stat=stat)
    for path in {OBJECT_LOCK_PATH, MAINTENANCE_LEASE}.intersection(shelf.files):
        lock = json.loads(store.read(path))
        store.put(path, json.dumps({**lock, "validUntil": system_ms() - OLD_MS}).encode())


def copy_of(store: Store) -> Bucket:
    made = Bucket()
    for file in store.list("", recursive=True).files:
        made.put(file.path, store.read(file.path))
    return made
