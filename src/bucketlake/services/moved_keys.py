"""Keys whose rows a service has moved to other file groups: told to whatever the table keeps of keys.

    record_moved        one file per shard, named by the service's instant, says where the keys of its new files live
    check_recorded      the files are there when it completes
    refuse_later_keys   nobody has recorded keys, under a later time, in what gives way

Entries are made of the keys in the new base files and nothing else, so whoever runs the service again makes the same.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from bucketlake.basefile import read_base_file
from bucketlake.config import TableProperties
from bucketlake.errors import CommitConflictError, ProofError
from bucketlake.index import ENTRIES
from bucketlake.index.listed import KeyRecords, listed_indexes
from bucketlake.metadata.change import (
    INDEX_FILES_KEY,
    IndexFile,
    concerned_by,
    index_files_of,
    render_index_files,
)
from bucketlake.metadata.places import INDEX_BUILT
from bucketlake.schema import RECORD_KEY_COLUMN
from bucketlake.services.tasks import Tasks
from bucketlake.state import TableState, commit_metadata
from bucketlake.storage import Store, in_parallel
from bucketlake.timeline import CommitMetadata, WriteStat
from bucketlake.write.key_changes import in_order, index_file
from bucketlake.write.report import PROOF_KEY

SHARE_ROWS = 1 << 22
"""A task records about so many keys. Each of them reads the keys of all new files, and keeps those of its shards."""

_KEYS_ONLY = pa.schema([(RECORD_KEY_COLUMN, pa.string())])
_MODULUS = 1 << 64


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordTask:
    """Some shards to record keys in. Frozen and picklable."""

    store: Store
    records: KeyRecords
    stats: tuple[WriteStat, ...]
    """Of the new base files."""
    share: int
    shares: int
    """Of so many tasks, the shards with this remainder are its own."""
    instant: str


def record_moved(
    store: Store, told: Sequence[KeyRecords], metadata: CommitMetadata, *, instant: str, tasks: Tasks
) -> CommitMetadata:
    """Record where the keys of a service's new base files live; return what it says, with the files that tell so.

    A file of an earlier run that says something else gives way. Who knows values, and no places, is told nothing.
    """
    told = [records for records in told if records.knows_places]
    if not told:
        return metadata
    stats = tuple(stat for stat in metadata.write_stats if stat.written)
    rows = sum(stat.written for stat in stats)
    for records in told:
        records.check_there({stat.partition for stat in stats})
    work = [
        RecordTask(store=store, records=records, stats=stats, share=share, shares=shares, instant=instant)
        for records in told
        for shares in [min(records.shards, -(-rows // SHARE_ROWS))]
        for share in range(shares)
    ]
    files = [file for of_task in (tasks(record_share, work) if work else ()) for file in of_task]
    moved = (
        rows * len(told),
        json.loads(metadata.extra[PROOF_KEY])["file_key_hash_sum"] * len(told) % _MODULUS,
    )
    recorded = sum(file.came for file in files), sum(file.key_hash_sum for file in files) % _MODULUS
    if moved != recorded:
        raise ProofError(
            f"{instant} moved keys (their number, and the sum of their hashes: {moved}), and others are recorded "
            f"({recorded}). Nothing was committed; this is a bug, please report it."
        )
    return with_index_files(metadata, files)


def with_index_files(metadata: CommitMetadata, files: Iterable[IndexFile]) -> CommitMetadata:
    """Let a commit name the files in which it recorded keys."""
    return replace(metadata, extra={**metadata.extra, INDEX_FILES_KEY: render_index_files(files)})


def record_share(task: RecordTask) -> list[IndexFile]:
    """Record the keys of some shards; say what was put."""
    by_shard: dict[int, list[pa.RecordBatch]] = {}
    for stat in task.stats:
        for batch in read_base_file(task.store, stat.path, _KEYS_ONLY):
            keys = batch.column(0)
            partitions = pa.repeat(pa.scalar(stat.partition), len(keys))
            shards = task.records.shard_of(partitions, keys)
            ids = pa.repeat(pa.scalar(stat.file_id), len(keys))
            entries = pa.RecordBatch.from_arrays([keys, partitions, ids], schema=ENTRIES)
            mine = shards % task.shares == task.share
            for shard in np.unique(shards[mine]).tolist():
                by_shard.setdefault(shard, []).append(entries.filter(pa.array(shards == shard)))
    found = []
    for shard, batches in sorted(by_shard.items()):
        entries = in_order(pa.Table.from_batches(batches))
        for path, recorded in task.records.entry_files(shard, entries, instant=task.instant).items():
            put_entries(task.store, path, recorded.data)
            found.append(index_file(path, recorded))
    return found


def put_entries(store: Store, path: str, data: bytes) -> None:
    """Put a file of entries; one of an earlier run, on what there was then, gives way."""
    if not store.put_new(path, data) and store.read(path) != data:
        store.put(path, data)


def check_recorded(store: Store, metadata: CommitMetadata) -> None:
    """Refuse to complete without a file that somebody has deleted, who was still at taking an earlier run back."""
    files = index_files_of(metadata)
    for file, size in zip(files, in_parallel(lambda f: _size(store, f.path), files, store), strict=True):
        if size != file.size_bytes:
            raise CommitConflictError(
                f"{file.path} is not as it was left: somebody has taken an earlier run back. Nothing of it is visible. "
                f"Run it again."
            )


def _size(store: Store, path: str) -> int | None:
    try:
        return store.stat(path).size_bytes
    except FileNotFoundError:
        return None


def indexes_told(properties: TableProperties) -> tuple[str | None, ...]:
    """Name what a table tells of keys: a service that began with others has told the wrong ones."""
    words = (one.word for one in listed_indexes(properties))
    return properties.engine, properties.raw.get(INDEX_BUILT), *words


def refuse_other_indexes(before: TableProperties, now: TableProperties, what: str) -> None:
    """Refuse to complete a service if the table has got, or lost, an index since it began."""
    if indexes_told(before) != indexes_told(now):
        raise CommitConflictError(
            f"{what} cannot complete: an index of the table was built, or taken off the list, since it began. Nothing "
            f"of it is visible. Run it again."
        )


def refuse_later_keys(
    state: TableState, *, instant: str, replaced: Mapping[str, Sequence[str]], what: str
) -> None:
    """Refuse to complete if a write of a later time has recorded new keys in file groups that give way.

    Of two entries of a key the one of the later time counts, whoever completed first: it would point to what is gone.
    """
    for write in state.timeline.writes:
        if write.requested <= instant:
            continue
        commit = commit_metadata(state, write)
        groups = {(stat.partition, stat.file_id) for stat in commit.write_stats} | concerned_by(commit)
        touches = any(file_id in replaced.get(partition, ()) for partition, file_id in groups)
        is_silent = INDEX_FILES_KEY not in commit.extra and not commit.is_compaction
        if touches and (is_silent or any(file.came for file in index_files_of(commit))):
            raise CommitConflictError(
                f"{what} cannot complete: the {write.action} of {write.requested}, begun after it, has brought keys to "
                f"file groups that it replaces, and the index would look for them there. Nothing of it is visible. Run "
                f"it again while nobody inserts."
            )
