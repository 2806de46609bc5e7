"""List a table's files by its metadata table: a look at some files instead of one request per partition.

    base     the newest base file of the shard whose instant is completed
    logs     those that completed after it, of instants that count
    entries  base, then logs in the order of their instants

An instant counts if the table has completed it, or the metadata table has and the table does not say that it is
pending: then it is one of the metadata table's own, or archived by the table.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

import pyarrow as pa

from bucketlake import hfile
from bucketlake.config import TableProperties
from bucketlake.errors import CorruptTableError, DamagedFileError
from bucketlake.layout import DataFile, find_data_file
from bucketlake.layout.names import (
    LogFileName,
    parse_index_base_file_name,
    parse_log_file_name,
    path_in_partition,
    split_path,
    token_of_build,
)
from bucketlake.logfile.frame import BlockType, decode_blocks
from bucketlake.metadata.change import tells_of
from bucketlake.metadata.files import (
    ALL_PARTITIONS,
    Entries,
    FileEntry,
    decode_entries,
    key_of,
    merged,
    partition_of,
)
from bucketlake.metadata.places import FILES, FILES_SHARD, folder_of, is_own_instant
from bucketlake.metadata.step import Step, look_at_step
from bucketlake.storage import FileCache, FileStat, Store, in_parallel
from bucketlake.timeline import Action, Timeline

Records = Mapping[str, Entries]
"""Key -> what a file says under it."""


@dataclass(frozen=True, slots=True)
class ShardSlice:
    """What a shard of the metadata table is made of."""

    base: FileStat | None
    logs: tuple[FileStat, ...]
    """In the order in which they apply."""
    lost: tuple[str, ...] = ()
    """Instants of the table that must have a log and have none."""


def list_by_metadata(
    store: Store, properties: TableProperties, table: Timeline, partitions: Collection[str] | None
) -> dict[str, tuple[DataFile, ...]] | None:
    """List the data files of all partitions, or of those named; None if the metadata table cannot be relied on."""
    if FILES not in properties.metadata_partitions:
        return None
    step = look_at_step(store, properties, table)
    if not step.is_kept:
        return None
    shard = slice_of(store.list(folder_of(FILES)).files, step, file_id=FILES_SHARD)
    if shard.lost or _has_lost_its_base(shard, step):
        return None
    try:
        records = read_files(store, shard, partitions)
    except FileNotFoundError:
        return None  # taken back, or cleaned, since the folder was listed
    listed = live_partitions(records)
    wanted = listed if partitions is None else sorted(set(partitions).intersection(listed))
    return {partition: _data_files(partition, records.get(key_of(partition), {})) for partition in wanted}


def _has_lost_its_base(shard: ShardSlice, step: Step) -> bool:
    """Tell whether the base file of `files` is gone: what only it told of would be missed without a word.

    It is as old as the last compaction, or older if nothing was committed before that: every commit has a log.
    """
    parsed = shard.base and parse_index_base_file_name(split_path(shard.base.path)[1])
    if not parsed:
        return True
    done = step.metadata.completed(Action.COMMIT, Action.DELTA_COMMIT)
    compacted = max((i.requested for i in done if i.action is Action.COMMIT), default="")
    if compacted <= parsed.instant:
        return False
    is_archived = parsed.instant not in {i.requested for i in done}
    return is_archived or any(
        parsed.instant < (i.completed or "") < compacted and not is_own_instant(i.requested)
        for i in done
        if i.action is Action.DELTA_COMMIT
    )


def live_partitions(records: Records) -> list[str]:
    entries = records.get(ALL_PARTITIONS, {})
    return sorted(partition_of(key) for key, entry in entries.items() if not entry.is_deleted)


def _data_files(partition: str, entries: Entries) -> tuple[DataFile, ...]:
    found = (
        find_data_file(path_in_partition(partition, name), size_bytes=entry.size_bytes)
        for name, entry in sorted(entries.items())
        if not entry.is_deleted
    )
    return tuple(file for file in found if file is not None)


def read_files(
    store: Store, shard: ShardSlice, partitions: Collection[str] | None = None
) -> dict[str, dict[str, FileEntry]]:
    """Read what `files` says of all partitions, or of those named, and which there are."""
    keys = None if partitions is None else sorted({ALL_PARTITIONS, *map(key_of, partitions)})
    return read_slice(store, shard, keys)


def read_slice(
    store: Store, shard: ShardSlice, keys: list[str] | None = None
) -> dict[str, dict[str, FileEntry]]:
    """Read what a shard of `files` says, all of it or under some keys."""
    return merge_records(
        [
            *([_base_records(store, shard.base, keys)] if shard.base else []),
            *in_parallel(lambda log: _chosen(log_records(store, log), keys), shard.logs, store),
        ]
    )


def merge_records(parts: Iterable[Records]) -> dict[str, dict[str, FileEntry]]:
    """Put records over records, the oldest first."""
    found: dict[str, dict[str, FileEntry]] = {}
    for records in parts:
        for key, entries in records.items():
            found[key] = merged(found.get(key, {}), entries)
    return found


def slice_of(files: Iterable[FileStat], step: Step, *, file_id: str, before: str | None = None) -> ShardSlice:
    """Choose, of the files in a folder of the metadata table, those that make up a shard.

    With `before`, a time, what it was made of then: what a compaction of that time takes in.
    """
    completions = {i.requested: i.completed or "" for i in step.metadata.writes}
    # A savepoint has the time of the write that it protects.
    pending = {i.requested for i in step.table.pending() if i.action is not Action.SAVEPOINT}
    oldest = min(completions, default="")
    bases: list[tuple[str, bool, FileStat]] = []
    logs: list[tuple[LogFileName, FileStat]] = []
    for file in files:
        name = split_path(file.path)[1]
        base, log = parse_index_base_file_name(name), parse_log_file_name(name)
        if base is not None and base.file_id == file_id:
            is_archived = base.instant < oldest
            is_early = before is None or base.instant < before
            # Whoever slept through another's build may have put one, too, under the number of that.
            is_told = base.write_token == token_of_build(completions.get(base.instant, ""))
            if is_early and (base.instant in completions or is_archived):
                bases.append((base.instant, is_told, file))
        if log is not None and log.file_id == file_id:
            counts = log.instant in completions and log.instant not in pending
            logs += [(log, file)] if counts else []
    since, _, newest = max(bases, default=("", False, None))
    applied = sorted(
        (log.instant, log.version, log.write_token, file)
        for log, file in logs
        if completions[log.instant] > since and (before is None or completions[log.instant] < before)
    )
    # Every commit says which partitions it touches, be it none.
    told = {i.requested for i in step.table.completed() if tells_of(i.action)}
    needed = {instant for instant in told.intersection(completions) if completions[instant] > since}
    lost = needed.difference(log.instant for log, _ in logs)
    return ShardSlice(newest, tuple(file for *_, file in applied), tuple(sorted(lost)))


_LOGS: FileCache[Records] = FileCache("metadata logs")
_BASES: FileCache[Records] = FileCache("metadata")
_ENTRY_BYTES = 250
"""What an entry takes in memory: its name, its size, its place in a dictionary."""


def log_records(store: Store, file: FileStat) -> Records:
    """Read a log of `files`. Each is read once by a process."""
    known = _LOGS.get(store, file)
    if known is None:
        known = _decoded_log(store.read(file.path), file.path)
        _LOGS.put(store, file, known, _memory_of(known))
    return known


def _decoded_log(data: bytes, path: str) -> Records:
    parts: list[Records] = []
    if not data:
        raise DamagedFileError(
            path=path,
            found="nothing",
            expected="a log of a metadata table",
            remedy="Build the metadata table anew: `bucketlake metadata rebuild TABLE`.",
        )
    for block in decode_blocks(data, path=path):
        match block.type:
            case BlockType.HFILE_DATA:
                opened = hfile.HFile.open(hfile.InMemory(block.content, name=path))
                parts.append(_records(opened.scan(), path))
            case BlockType.DELETE:
                pass  # `files` has none that say anything: what goes is an entry of its own
            case _:
                raise CorruptTableError(
                    path=path,
                    found=f"a block of type {block.type.name}, at byte {block.offset}",
                    expected="HFile blocks, in a log of a metadata table",
                    remedy="Build the metadata table anew: `bucketlake metadata rebuild TABLE`.",
                )
    return merge_records(parts)


def _base_records(store: Store, file: FileStat, keys: list[str] | None) -> Records:
    """Read what a base file says, all of it or under some keys."""
    known = _BASES.get(store, file)
    if known is not None:
        return _chosen(known, keys)
    opened = hfile.HFile.open(StoredFile(store, file))
    if keys is not None:
        asked = pa.array([key.encode() for key in keys], pa.binary())
        found = opened.look_up(asked)
        return {
            keys[at]: decode_entries(value, path=file.path)
            for at, value in zip(found.at.tolist(), found.values.to_pylist(), strict=True)
        }
    known = _records(opened.scan(), file.path)
    _BASES.put(store, file, known, _memory_of(known))
    return known


def _records(entries: hfile.Entries, path: str) -> Records:
    pairs = zip(entries.keys.to_pylist(), entries.values.to_pylist(), strict=True)
    return {key.decode(): decode_entries(value, path=path) for key, value in pairs}


def _chosen(records: Records, keys: list[str] | None) -> Records:
    return records if keys is None else {key: records[key] for key in keys if key in records}


def _memory_of(records: Records) -> int:
    return sum(_ENTRY_BYTES * (1 + len(entries)) for entries in records.values())


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file of a store, read by ranges."""

    store: Store
    file: FileStat

    @property
    def name(self) -> str:
        return self.file.path

    @property
    def size(self) -> int:
        return self.file.size_bytes

    def read(self, ranges: Iterable[tuple[int, int]]) -> list[bytes]:
        return in_parallel(
            lambda part: self.store.read(self.file.path, offset=part[0], length=part[1]), ranges, self.store
        )
