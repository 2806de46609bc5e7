"""What an index that records keys lacks of the rows in new base files; and putting it back.

    look_for_missing    tasks: every key of the new files is looked up, once per shard
    heal                under the lock: those that a reader still finds, and the index still lacks, are recorded

A compaction reads every key of its file groups anyway, so it is where an index is proved by the way. A key may be
missing for a good reason: a write that came after the plan has deleted it. So what is missing is looked at again when
nobody can commit.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from bucketlake.basefile import read_base_file
from bucketlake.index import ENTRIES, RecordedIndex, resolve_index
from bucketlake.index.listed import KeyRecords, resolve_listed
from bucketlake.layout import FileGroupId, FileSlice, slices_of
from bucketlake.merge import MergeRules
from bucketlake.metadata.change import IndexFile
from bucketlake.schema import RECORD_KEY_COLUMN, with_meta_columns
from bucketlake.services.moved_keys import put_entries
from bucketlake.services.tasks import Tasks
from bucketlake.state import TableState, files_of, table_schema, view_for
from bucketlake.storage import Store
from bucketlake.timeline import WriteStat
from bucketlake.write.key_changes import in_order, index_file
from bucketlake.write.stored_rows import merged_keys

SHARE_ROWS = 1 << 21
"""A task looks up about so many keys."""

_KEYS_ONLY = pa.schema([(RECORD_KEY_COLUMN, pa.string())])


@dataclass(frozen=True, slots=True, kw_only=True)
class ProofTask:
    """New base files whose keys are looked up in one index. Frozen and picklable."""

    number: int
    """Of the index."""
    store: Store
    index: RecordedIndex
    stats: tuple[WriteStat, ...]

    @property
    def size_bytes(self) -> int:
        return sum(stat.size_bytes for stat in self.stats)


@dataclass(frozen=True, slots=True)
class Missing:
    """Keys of one file group that an index has no entry of."""

    number: int
    group: FileGroupId
    keys: pa.Array


def recorded_indexes(state: TableState) -> tuple[RecordedIndex, ...]:
    """Return what a table keeps that says where keys live, and is told of every write."""
    own = resolve_index(state).recorded
    listed = (records.recorded for records in resolve_listed(state))
    found = [index for index in (own, *listed) if index is not None and index.is_kept]
    return tuple(index for n, index in enumerate(found) if type(index) not in map(type, found[:n]))


def look_for_missing(
    store: Store, indexes: Sequence[RecordedIndex], stats: Iterable[WriteStat], tasks: Tasks
) -> tuple[Missing, ...]:
    """Look the keys of new base files up; return those that are nowhere."""
    shares: list[list[WriteStat]] = []
    room = 0
    for stat in stats if indexes else ():
        if not shares or room < stat.written:
            shares.append([])
            room = max(SHARE_ROWS, stat.written)
        shares[-1].append(stat)
        room -= stat.written
    work = [
        ProofTask(number=number, store=store, index=index, stats=tuple(share))
        for number, index in enumerate(indexes)
        for share in shares
    ]
    return tuple(missing for found in (tasks(find_missing, work) if work else ()) for missing in found)


def find_missing(task: ProofTask) -> list[Missing]:
    """Look the keys of some base files up, together: a shard is opened once."""
    groups = [(stat.partition, stat.file_id) for stat in task.stats]
    parts = [
        (number, batch.column(0))
        for number, stat in enumerate(task.stats)
        for batch in read_base_file(task.store, stat.path, _KEYS_ONLY)
    ]
    if not parts:
        return []
    keys = pa.chunked_array([keys for _, keys in parts], pa.string())
    owners = np.repeat([number for number, _ in parts], [len(keys) for _, keys in parts])
    names = pa.array([partition for partition, _ in groups], pa.string())
    lacking = _lacking(task.index, names.take(pa.array(owners)), keys)
    found = []
    for number in np.unique(owners[lacking]).tolist():
        mine = lacking[owners[lacking] == number]
        found.append(Missing(task.number, groups[number], keys.take(pa.array(mine)).combine_chunks()))
    return found


def _lacking(index: RecordedIndex, partitions: pa.Array, keys: pa.ChunkedArray) -> npt.NDArray[np.int64]:
    """Return the positions of keys that an index has no entry of."""
    flat = keys.combine_chunks() if isinstance(keys, pa.ChunkedArray) else keys
    shards = index.shard_of(partitions, flat)
    order = np.argsort(shards, kind="stable")
    lacking = [np.empty(0, np.int64)]
    for run in np.split(order, np.flatnonzero(np.diff(shards[order])) + 1) if len(order) else []:
        taken = pa.array(run)
        _, ids = index.look_up(int(shards[run[0]]), partitions.take(taken), flat.take(taken))
        lacking.append(run[pc.is_null(ids).to_numpy(zero_copy_only=False)])
    return np.sort(np.concatenate(lacking))


def heal(state: TableState, missing: Iterable[Missing], *, instant: str) -> tuple[IndexFile, ...]:
    """Record those keys that a reader finds now, and that are still nowhere; say what was put.

    The table's lock is held, and `state` was loaded under it.
    """
    indexes = recorded_indexes(state)
    by_index: dict[int, list[pa.RecordBatch]] = {}
    for one in missing:
        if one.number >= len(indexes):
            continue  # taken off the list meanwhile
        partition, file_id = one.group
        keys = _alive(state, one)
        names = pa.repeat(pa.scalar(partition), len(keys))
        keys = keys.take(pa.array(_lacking(indexes[one.number], names, keys)))
        names, ids = (pa.repeat(pa.scalar(text), len(keys)) for text in (partition, file_id))
        entries = pa.RecordBatch.from_arrays([keys, names, ids], schema=ENTRIES)
        if entries.num_rows:
            by_index.setdefault(one.number, []).append(entries)
    files: list[IndexFile] = []
    for number, batches in by_index.items():
        files += record_entries(
            state, indexes[number], pa.Table.from_batches(batches).combine_chunks(), instant
        )
    return tuple(files)


def record_entries(state: TableState, index: KeyRecords, entries: pa.Table, instant: str) -> list[IndexFile]:
    """Put one file per shard that says what became of keys, as `ENTRIES`; say what was put."""
    shards = index.shard_of(entries["partition"].combine_chunks(), entries["key"].combine_chunks())
    found: list[IndexFile] = []
    for shard in np.unique(shards).tolist():
        mine = in_order(entries.filter(pa.array(shards == shard)))
        for path, recorded in index.entry_files(shard, mine, instant=instant).items():
            put_entries(state.store, path, recorded.data)
            found.append(index_file(path, recorded))
    more = index.files_of_new_shards({file.path for file in found}, instant=instant)
    for path, data in more.items():
        put_entries(state.store, path, data)
        found.append(IndexFile(path=path, size_bytes=len(data), came=0, gone=0, key_hash_sum=0))
    return found


def _alive(state: TableState, missing: Missing) -> pa.Array:
    """Return those of the keys that a reader finds in their file group."""
    partition, file_id = missing.group
    files = files_of(state, [partition]).get(partition, ())
    present: FileSlice | None = next(
        (part for part in slices_of(partition, files, view_for(state, files)) if part.file_id == file_id),
        None,
    )
    if present is None:
        return missing.keys.slice(0, 0)
    properties = state.properties
    rules = MergeRules(
        properties.merge_mode, properties.ordering_fields, properties.delete_field, properties.delete_marker
    )
    file_schema = with_meta_columns(table_schema(state))
    return merged_keys(state.store, present, rules, table_schema=file_schema, keys=missing.keys)
