"""A recorded engine as small as one can be: its index is a JSON file per shard and commit.

    .hoodie/.ledger/<instant>/<shard>.json    {key: [partition, file id]}, or {key: null} for one that is gone

Files count whose instant is completed; later ones go before earlier ones. It is the proof that engines which look keys
up fit: nothing outside this file knows its name.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bucketlake.errors import ConfigError
from bucketlake.index import ENTRIES, NewKeys, NewTable, RecordedIndex, register_engine
from bucketlake.index.keeper import Keeper, Upkeep
from bucketlake.index.listed import EntryFile
from bucketlake.layout import FileSlice
from bucketlake.layout.names import new_file_id
from bucketlake.state import TableState
from bucketlake.storage import Store
from bucketlake.timeline import Action, Timeline

FOLDER = ".hoodie/.ledger"
WORD = "LEDGER"
_SHARDS, _ROOM, _GLOBAL = "ledger.shards", "ledger.room", "ledger.global"


@dataclass(frozen=True, slots=True)
class Ledger:
    """What a new table is told."""

    shards: int = 3
    room: int = 50
    """Keys that a file group takes before another is opened."""
    is_global: bool = True
    hash_fields: tuple[str, ...] = ()

    engine: ClassVar[str] = WORD

    def check(self, table: NewTable) -> None:
        if self.shards < 1 or self.room < 1:
            raise ConfigError(
                f"a ledger has {self.shards} shards and room for {self.room}; expected 1 or more."
            )

    def settings(self) -> Mapping[str, str]:
        return {_SHARDS: str(self.shards), _ROOM: str(self.room), _GLOBAL: str(self.is_global)}

    def first_files(self) -> Mapping[str, bytes]:
        return {}


@dataclass(frozen=True, slots=True)
class LedgerIndex(RecordedIndex):
    """Pinned to the instants that were completed when it was resolved."""

    store: Store
    room: int
    seen: tuple[str, ...]
    """Instants with entries, in the order in which they count."""
    shards: int = field()
    is_global: bool = field()
    hash_fields: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"a ledger of {self.shards} shards{'' if self.is_global else ', for each partition'}"

    def shard_of(self, partitions: Any, record_keys: Any) -> npt.NDArray[np.int64]:
        hashes = [zlib.crc32(key.encode()) for key in record_keys.to_pylist()]
        return np.array(hashes, np.int64) % self.shards

    def look_up(self, shard: int, partitions: Any, record_keys: Any) -> tuple[Any, Any]:
        known = self.read(shard)
        found = [
            known.get(self._name(partition, key))
            for partition, key in zip(partitions.to_pylist(), record_keys.to_pylist(), strict=True)
        ]
        return (
            pa.array([place and place[0] for place in found], pa.string()),
            pa.array([place and place[1] for place in found], pa.string()),
        )

    def _name(self, partition: str | None, key: str) -> str:
        return key if self.is_global else f"{partition}/{key}"

    def read(self, shard: int) -> dict[str, list[str] | None]:
        known: dict[str, list[str] | None] = {}
        for instant in self.seen:
            try:
                known |= json.loads(self.store.read(f"{FOLDER}/{instant}/{shard}.json"))
            except FileNotFoundError:
                continue
        return known

    def entries(self, shard: int) -> pa.Table:
        known = [(name, *place) for name, place in sorted(self.read(shard).items()) if place is not None]
        keys = [name if self.is_global else name.removeprefix(f"{where}/") for name, where, _ in known]
        columns = [keys, [where for _, where, _ in known], [file_id for _, _, file_id in known]]
        return pa.Table.from_arrays([pa.array(c, pa.string()) for c in columns], schema=ENTRIES)

    def assign(
        self,
        new: Sequence[NewKeys],
        groups: Mapping[str, Mapping[str, FileSlice]],
        *,
        instant: str,
        row_bytes: int,
    ) -> Sequence[str]:
        filled: dict[str, int] = {}
        assigned = []
        for keys in new:
            number = filled.get(keys.partition, 0) // self.room
            filled[keys.partition] = filled.get(keys.partition, 0) + keys.count
            assigned.append(new_file_id(f"{number:08d}", partition=keys.partition, instant=instant))
        return assigned

    def entry_files(self, shard: int, entries: pa.Table, *, instant: str) -> dict[str, EntryFile]:
        body = {
            self._name(entry["partition"], entry["key"]): entry["file_id"]
            and [entry["partition"], entry["file_id"]]
            for entry in entries.to_pylist()
        }
        data = json.dumps(body, sort_keys=True).encode()
        return {f"{FOLDER}/{instant}/{shard}.json": EntryFile(data, entries)}

    def overtaken(self, timeline: Timeline, *, instant: str) -> str | None:
        ours = shards_of(self.store, instant)
        later = [i.requested for i in timeline.writes if i.requested not in self.seen]
        return next((i for i in later if i != instant and ours & shards_of(self.store, i)), None)

    def stray(self, partition: str, file_id: str, record_keys: Any) -> str | None:
        keys = pa.array(record_keys.to_pylist(), pa.string())
        shards = self.shard_of(None, keys)
        for shard in set(shards.tolist()):
            mine = keys.filter(pa.array(shards == shard))
            where, ids = self.look_up(shard, pa.array([partition] * len(mine)), mine)
            for key, found in zip(
                mine.to_pylist(), zip(where.to_pylist(), ids.to_pylist(), strict=True), strict=True
            ):
                if found != (partition, file_id):
                    return str(key)
        return None


class LedgerKeeper(Keeper):
    """Entries go with their instant."""

    def after_taking_back(self, store: Store, *, instant: str, action: Action) -> Upkeep:
        return Upkeep(deletes=tuple(f.path for f in store.list(f"{FOLDER}/{instant}", recursive=True).files))


def shards_of(store: Store, instant: str) -> frozenset[str]:
    files = store.list(f"{FOLDER}/{instant}", recursive=True).files
    return frozenset(file.path.rpartition("/")[2] for file in files)


def index_of(state: TableState, as_of: str | None) -> LedgerIndex:
    raw = state.properties.raw
    writes = sorted(state.timeline.writes, key=lambda i: i.completed or "")
    return LedgerIndex(
        store=state.store,
        room=int(raw[_ROOM]),
        seen=tuple(i.requested for i in writes if as_of is None or i.requested <= as_of),
        shards=int(raw[_SHARDS]),
        is_global=raw[_GLOBAL] == "True",
    )


def register() -> None:
    register_engine(WORD, index_of, keeper=LedgerKeeper())
