"""An index that a table lists beside its buckets, as small as one can be: it keeps what it is told, as it is told it.

.hoodie/.key_list/<instant>/<shard>.json    [[key, partition, file id or null], ...]
"""

from __future__ import annotations

import json
import zlib
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bucketlake import Table
from bucketlake.config import update_properties
from bucketlake.index.keeper import Keeper, Upkeep
from bucketlake.index.listed import LISTED_INDEXES, EntryFile, KeyRecords, register_listed_index
from bucketlake.storage import Store
from bucketlake.timeline import Action

FOLDER = ".hoodie/.key_list"
WORD = "KEY_LIST"
Told = tuple[str, str, str | None]
"""Key, partition, and file id of one that came."""


@dataclass(frozen=True, slots=True)
class KeyList(KeyRecords):
    shards: int = field(default=3)

    def shard_of(self, partitions: Any, record_keys: Any) -> npt.NDArray[np.int64]:  # by key alone
        hashes = [zlib.crc32(key.encode()) for key in record_keys.to_pylist()]
        return np.array(hashes, np.int64) % self.shards

    def entry_files(self, shard: int, entries: pa.Table, *, instant: str) -> dict[str, EntryFile]:
        lines = [[entry["key"], entry["partition"], entry["file_id"]] for entry in entries.to_pylist()]
        return {f"{FOLDER}/{instant}/{shard}.json": EntryFile(json.dumps(lines).encode(), entries)}


class KeyListKeeper(Keeper):
    """What was told goes with its instant."""

    def after_taking_back(self, store: Store, *, instant: str, action: Action) -> Upkeep:
        return Upkeep(deletes=tuple(f.path for f in store.list(f"{FOLDER}/{instant}", recursive=True).files))


def listing(table: Table) -> Table:
    """Let a table list the index from now on."""
    register_listed_index(WORD, lambda _: KeyList(), keeper=KeyListKeeper())
    return Table(table.store, update_properties(table.store, {LISTED_INDEXES: WORD}))


def told(store: Store, instant: str) -> list[Told]:
    """Return what the index was told of a commit."""
    files = store.list(f"{FOLDER}/{instant}", recursive=True).files
    return [(key, p, f) for file in files for key, p, f in json.loads(store.read(file.path))]
