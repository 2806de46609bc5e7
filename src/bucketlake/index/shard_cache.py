"""What a shard of a record-level index says, kept on a local disk: so that keys are looked up without reading it again.

A large shard is kept in ranges of keys, a file each; the hottest stay (`storage/kept_files.py`). Keys of the others are
looked up in the index itself.

A kept file names what it was made from: the table, the shard and the range, the instant at which the index was built,
and the base file and logs with their versions. It counts for who sees just these files, or these and logs that come
after them; the later logs are looked at too. Everything else is dropped, and made anew: after a compaction, a rollback,
a restore, a rebuild. Uncommitted entries are never among what is kept, so any of it may go at any time.

A range is read whole to be kept. That is worth while once as many of its keys have been looked up as it has blocks, of
which each look-up reads one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bucketlake.index.known_keys import (
    NOWHERE,
    PLACES_MAX,
    UNSURE,
    KnownKeys,
    decode_known_keys,
    encode_known_keys,
)
from bucketlake.index.recorded import Probed
from bucketlake.layout import FileGroupId
from bucketlake.metadata.record_index import Locations
from bucketlake.metadata.record_shard import ShardEntries, look_up_logs, look_up_shard
from bucketlake.metadata.record_shards import RecordShard
from bucketlake.metadata.shard_ranges import NO_RANGE, ShardRanges
from bucketlake.schema import key_hashes
from bucketlake.storage import KeptFiles, Store, Wanted

KEY_BYTES = 10
"""About what a key takes in a kept file."""
RANGE_PART = 64
"""A range takes about this part of what may be kept, so that the hot and the cold are told apart,"""
RANGE_BYTES_MIN = 64 << 10
"""or so much, because every file names the file groups that its keys are in."""
RANGES_MAX = 64
"""Of one shard."""
_LOGGED_PART = 8
"""Logs that tell of more than this part of the keys are worked in."""
_LOGGED_MIN = 10_000
_COVERED_MAX = 1 << 40


def probe_shard(
    kept: KeptFiles, store: Store, shard: RecordShard, keys: pa.Array, *, incarnation: str, verifies: bool
) -> Probed:
    """Look keys up in what is kept of a shard, else in the index itself.

    With `verifies`, the index is asked about every key that is found.
    """
    range_bytes = max(kept.bytes_max // RANGE_PART, RANGE_BYTES_MIN)
    ranges = ShardRanges.of(store, shard.slice, keys=range_bytes // KEY_BYTES, most=RANGES_MAX)
    facts = {"table": store.uri, "shard": shard.file_id, "built": incarnation, "ranges": ranges.count}
    cache = _Cache(kept, store, shard, ranges, facts, _files(shard))
    return _found(cache.parts(_by_range(ranges, keys)), store, shard, keys, verifies=verifies)


@dataclass(frozen=True, slots=True)
class _Part:
    """The known keys of a range, and which of those that are looked up belong to it."""

    rows: npt.NDArray[np.int64]
    known: KnownKeys
    covered: int
    """How many of the shard's files are among what is known."""
    is_kept: bool
    """Whether it was, and has not been read just now."""


@dataclass(frozen=True, slots=True)
class _Cache:
    """What is kept of one shard."""

    kept: KeptFiles
    store: Store
    shard: RecordShard
    ranges: ShardRanges
    facts: Mapping[str, Any]
    files: list[list[str]]

    def parts(self, asked: Mapping[int, npt.NDArray[np.int64]]) -> list[_Part]:
        """Return what is known of the ranges that are asked for, of those where it is quicker than the index itself."""
        found: list[_Part] = []
        wanted: dict[str, int] = {}
        sizes: list[Wanted] = []
        for number, rows in asked.items():
            name = self._name(number)
            uses = len(rows) / max(1, len(self.ranges.blocks_in(number)))
            heat = self.kept.warm(name, uses)
            known, covered = self._load(name, number)
            if known is not None:
                refreshed = self._refreshed(name, number, known, covered) if uses >= 1 else None
                found.append(_Part(rows, refreshed or known, len(self.files) if refreshed else covered, True))
            elif heat >= 1:
                wanted[name] = number
                sizes.append(Wanted(name, KEY_BYTES * self.ranges.entries // self.ranges.count, heat))
        heats = {one.name: one.heat for one in sizes}
        for name in self.kept.with_room(sizes):
            known = _of_entries(self.ranges.read(wanted[name]))
            if known is None:
                self.kept.drop(name)  # it has to become hot again before it is read once more
                continue
            self._put(name, wanted[name], known, heats[name])
            found.append(_Part(asked[wanted[name]], known, len(self.files), False))
        return found

    def _refreshed(self, name: str, number: int, known: KnownKeys, covered: int) -> KnownKeys | None:
        """Work later logs in, if they tell of many keys."""
        after = _logs_covered(self.shard, covered)
        many = max(_LOGGED_MIN, len(known) // _LOGGED_PART)
        if self.ranges.logged(after) <= many:
            return None
        told = self.ranges.read_logs(number, after)
        if len(told) <= many:
            return None
        changed = known.changed(*_columns(told)) or _of_entries(self.ranges.read(number))
        if changed is not None:
            self._put(name, number, changed, None)
        return changed

    def _put(self, name: str, number: int, known: KnownKeys, heat: float | None) -> bool:
        facts = {**self.facts, "range": number, "files": self.files}
        return self.kept.put(name, encode_known_keys(known, facts), heat=heat)

    def _load(self, name: str, number: int) -> tuple[KnownKeys | None, int]:
        """Return what is kept of a range, and how many of the shard's files that covers."""
        data = self.kept.open(name)
        found = None if data is None else decode_known_keys(data)
        if found is None:
            if data is not None:
                self.kept.drop(name)
            return None, 0
        known, said = found
        made_from = said["files"]
        facts = {**self.facts, "range": number}
        is_of_these = {key: said.get(key) for key in facts} == facts
        is_of_these &= list(self.files[: len(made_from)]) == made_from
        has_base = len(made_from) > 0 or not self.files
        return (known, len(made_from)) if is_of_these and has_base else (None, 0)

    def _name(self, number: int) -> str:
        text = f"{self.store.uri}\n{self.shard.file_id}"
        return f"{hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()}-{number}"


def _by_range(ranges: ShardRanges, keys: pa.Array) -> dict[int, npt.NDArray[np.int64]]:
    """Return the rows of the keys of each range."""
    numbers = ranges.numbers_of(keys)
    order = np.argsort(numbers, kind="stable")
    found, starts = np.unique(numbers[order], return_index=True)
    runs = zip(found.tolist(), np.split(order, starts[1:]), strict=True)
    return {number: rows for number, rows in runs if number != NO_RANGE}


def _found(
    parts: Sequence[_Part], store: Store, shard: RecordShard, keys: pa.Array, *, verifies: bool
) -> Probed:
    """Look keys up in the later logs, then among what is known, then, of those that are not certain, in the index."""
    # What a log says that is among what is known already holds as well: it is older than what later ones say.
    covered = min((part.covered for part in parts), default=_COVERED_MAX)
    said, is_told = look_up_logs(store, shard.slice.logs[_logs_covered(shard, covered) :], keys)
    places: list[FileGroupId] = []
    codes = _numbered(said, places)
    is_asked = ~is_told
    hashes = key_hashes(keys)
    answered = 0
    for part in parts:
        rows = part.rows[~is_told[part.rows]]
        probed = part.known.look_up(hashes[rows])
        start = len(places)
        places += part.known.places
        codes[rows] = np.where(probed >= 0, probed + start, probed)
        is_asked[rows] = (probed == UNSURE) | (verifies & (probed >= 0))
        answered += int((~is_asked[rows]).sum()) if part.is_kept else 0
    asked = np.flatnonzero(is_asked)
    if len(asked):
        codes[asked] = _numbered(look_up_shard(store, shard.slice, keys.take(pa.array(asked))), places)
    taken = pa.array(codes, mask=codes < 0)
    columns = (pa.array([place[half] for place in places], pa.string()) for half in (0, 1))
    partitions, ids = (column.take(taken) for column in columns)
    return Probed(partitions, ids, cache_hits=answered)


def _numbered(found: Locations, places: list[FileGroupId]) -> npt.NDArray[np.int32]:
    """Return the numbers of locations among places, to which theirs are added."""
    start = len(places)
    places += [(place.partition, place.file_id) for place in found.distinct]
    numbers = np.append(np.arange(start, start + len(found.distinct)), NOWHERE).astype(np.int32)
    codes: npt.NDArray[np.int32] = numbers[found.codes]
    return codes


def _of_entries(entries: ShardEntries) -> KnownKeys | None:
    """Keep all entries of a shard; None if they are in too many file groups."""
    hashes, codes, places = _columns(entries)
    return KnownKeys.of(hashes, codes, places) if len(places) <= PLACES_MAX else None


def _columns(
    entries: ShardEntries,
) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.int32], list[FileGroupId]]:
    """Return the hashes of keys, and where each is; an entry tells the instant too, by which nobody decides."""
    numbers: dict[FileGroupId, int] = {}
    renumbered = [
        numbers.setdefault((place.partition, place.file_id), len(numbers))
        for place in entries.locations.distinct
    ]
    codes = np.array([*renumbered, NOWHERE], np.int32)[entries.locations.codes]
    return key_hashes(entries.keys), codes, list(numbers)


def _files(shard: RecordShard) -> list[list[str]]:
    base = [] if shard.slice.base is None else [shard.slice.base]
    return [[file.path, str(file.size_bytes), file.version] for file in (*base, *shard.slice.logs)]


def _logs_covered(shard: RecordShard, covered: int) -> int:
    """Return how many logs are among so many files."""
    has_base = shard.slice.base is not None
    return max(0, covered - has_base)
