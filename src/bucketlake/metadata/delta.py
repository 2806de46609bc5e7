"""A delta commit of the metadata table, as bytes: what a change of the table becomes. Pure.

    .hoodie/metadata/files/.files-0000-0_<instant>.log.1_<token>    an HFile block with the records
    .hoodie/metadata/column_stats/...                               and one with keys that go, as Hudi has it there
    .hoodie/metadata/partition_stats/...
    <instant>_<completed>.deltacommit                               its body, on the metadata table's timeline

It has the instant time of what it follows. The same change gives the same bytes, so that whoever comes second puts
what is there already.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa

from bucketlake import hfile
from bucketlake.layout.names import (
    METADATA_TABLE_FOLDER,
    WRITE_TOKEN,
    BaseFileName,
    LogFileName,
    parse_index_base_file_name,
    parse_log_file_name,
    render_index_base_file_name,
    render_log_file_name,
    split_path,
    token_of_build,
)
from bucketlake.logfile.deletes import Deletes, encode_deletes
from bucketlake.logfile.frame import BlockType, HeaderKey, encode_block
from bucketlake.metadata.change import Change, IndexFile
from bucketlake.metadata.files import ALL_PARTITIONS, Entries, FileEntry, encode_entries, key_of
from bucketlake.metadata.places import FILES, FILES_SHARD, RECORD_INDEX, folder_of
from bucketlake.metadata.record_schema import RECORD_SCHEMA, STORED_SCHEMA
from bucketlake.timeline import SCHEMA_KEY, Action, CommitMetadata, WriteStat, encode_commit_metadata

_UPDATE = "UPSERT_PREPPED"
_FIRST = "BULK_INSERT_PREPPED"
_NO_DELETES = bytes.fromhex("00 00 00 03 00 00 00 01 00")
"""The content of a delete block of the third version that names no key."""


@dataclass(frozen=True, slots=True)
class ShardChange:
    """What an instant says in one shard of the metadata table."""

    partition: str
    file_id: str
    values: Mapping[str, bytes]
    """Key -> value of a record."""
    deleted: tuple[str, ...] = ()
    """Keys that go."""


@dataclass(frozen=True, slots=True)
class DeltaCommit:
    """What an instant puts into the metadata table."""

    files: Mapping[str, bytes]
    """Path -> content; they come before the instant."""
    body: bytes


def delta_commit(instant: str, change: Change, others: Iterable[ShardChange] = ()) -> DeltaCommit:
    """Return the delta commit that follows a change of the table, in `files` and in other partitions.

    What was recorded of keys lies there already, and is only told of.
    """
    files = ShardChange(FILES, FILES_SHARD, encoded_records(records_of(change)))
    logs: dict[str, bytes] = {}
    stats: list[WriteStat] = []
    for shard in (files, *others):
        data = _log(instant, shard)
        name = render_log_file_name(LogFileName(shard.file_id, instant, 1, WRITE_TOKEN))
        logs[f"{folder_of(shard.partition)}/{name}"] = data
        stats.append(
            _stat(
                shard.partition,
                shard.file_id,
                name,
                len(data),
                len(shard.values),
                is_log=True,
                deleted=len(shard.deleted),
            )
        )
    return DeltaCommit(logs, _body(_UPDATE, *stats, *_stats_of_index_files(change.index_files)))


def _stats_of_index_files(files: Iterable[IndexFile]) -> Iterator[WriteStat]:
    for file in files:
        folder, name = split_path(file.path)
        log = parse_log_file_name(name)
        if log is None or split_path(folder)[0] != METADATA_TABLE_FOLDER:
            continue  # of an index that keeps its entries elsewhere
        partition = split_path(folder)[1]
        yield _stat(partition, log.file_id, name, file.size_bytes, file.came, is_log=True, deleted=file.gone)


def _log(instant: str, shard: ShardChange) -> bytes:
    header = {HeaderKey.INSTANT_TIME: instant, HeaderKey.SCHEMA: STORED_SCHEMA}
    blocks = []
    if shard.values:
        blocks.append(encode_block(BlockType.HFILE_DATA, header, encode_values(shard.values)))
    if shard.deleted:
        gone = Deletes(pa.array(shard.deleted, pa.string()), shard.partition, None)
        blocks.append(encode_block(BlockType.DELETE, header, encode_deletes(gone)))
    assert blocks, "a log file that says nothing"
    return b"".join(blocks)


def first_commit(instant: str, listing: Mapping[str, Mapping[str, int]], *, completed: str) -> DeltaCommit:
    """Return the delta commit with which `files` begins: all that there is, as a base file.

    That has a name of its own for every build: whoever sleeps through another's must not delete it, nor put his over
    it. Hudi makes a shard known by a log that says nothing, and so do we.
    """
    records = records_of(Change(added=listing))
    image = encode_records(records)
    log = render_log_file_name(LogFileName(FILES_SHARD, instant, 1, "0-0-0"))
    base = render_index_base_file_name(BaseFileName(FILES_SHARD, token_of_build(completed), instant))
    folder = folder_of(FILES)
    files = {
        f"{folder}/{log}": encode_nothing(instant),
        f"{folder}/{base}": image,
    }
    stat = _stat(FILES, FILES_SHARD, base, len(image), len(records), is_log=False)
    return DeltaCommit(files, _body(_FIRST, stat))


def first_record_commit(instant: str, shards: Iterable[str]) -> DeltaCommit:
    """Return the delta commit with which an index of no keys begins: shards that are there, and say nothing."""
    folder = folder_of(RECORD_INDEX)
    log = encode_nothing(instant)
    names = [render_log_file_name(LogFileName(shard, instant, 1, "0-0-0")) for shard in shards]
    return DeltaCommit({f"{folder}/{name}": log for name in names}, _body(_FIRST))


def built_index_commit(files: Iterable[IndexFile]) -> bytes:
    """Return the body of the delta commit with which an index begins whose files are there."""
    stats = []
    for file in files:
        name = split_path(file.path)[1]
        log, base = parse_log_file_name(name), parse_index_base_file_name(name)
        shard = log or base
        assert shard is not None, f"{name} is no file of an index"
        is_log = log is not None
        stats.append(
            _stat(
                split_path(split_path(file.path)[0])[1],
                shard.file_id,
                name,
                file.size_bytes,
                file.came,
                is_log=is_log,
                deleted=file.gone,
            )
        )
    return _body(_FIRST, *stats)


def encode_nothing(instant: str) -> bytes:
    """Return the log that says nothing: with such a one a shard begins."""
    return encode_block(BlockType.DELETE, {HeaderKey.INSTANT_TIME: instant}, _NO_DELETES)


def records_of(change: Change) -> dict[str, Entries]:
    """Return the records that tell of a change, by key. Which partitions it touches is said even if none is new."""
    partitions = {key_of(p): FileEntry(0) for p in change.added}
    partitions |= {key_of(p): FileEntry(0, is_deleted=True) for p in change.dropped}
    records: dict[str, Entries] = {ALL_PARTITIONS: partitions}
    for partition in change.added.keys() | change.removed.keys():
        entries = {name: FileEntry(size) for name, size in change.added.get(partition, {}).items()}
        entries |= {name: FileEntry(0, is_deleted=True) for name in change.removed.get(partition, ())}
        records[key_of(partition)] = entries
    return records


def encode_records(records: Mapping[str, Entries]) -> bytes:
    """Return records of `files` as an HFile: a base file, or the content of a log block."""
    return encode_values(encoded_records(records))


def encoded_records(records: Mapping[str, Entries]) -> dict[str, bytes]:
    return {key: encode_entries(key, entries) for key, entries in records.items()}


def encode_values(values: Mapping[str, bytes]) -> bytes:
    """Return records of any partition as an HFile."""
    # Python sorts texts by code point, and UTF-8 keeps that order.
    keys = sorted(values)
    return hfile.encode(
        pa.array([key.encode() for key in keys], pa.binary()),
        pa.array([values[key] for key in keys], pa.binary()),
        info={"schema": STORED_SCHEMA.encode()},
    )


def _stat(
    partition: str,
    file_id: str,
    name: str,
    size_bytes: int,
    count: int,
    *,
    is_log: bool,
    deleted: int = 0,
) -> WriteStat:
    return WriteStat(
        partition=partition,
        file_id=file_id,
        path=f"{partition}/{name}",
        previous_instant=None,
        written=count,
        inserted=0 if is_log else count,
        updated=count if is_log else 0,
        deleted=deleted,
        errors=0,
        written_bytes=size_bytes,
        size_bytes=size_bytes,
        log_files=(name,) if is_log else (),
    )


def _body(operation: str, *stats: WriteStat) -> bytes:
    metadata = CommitMetadata(operation=operation, write_stats=stats, extra={SCHEMA_KEY: RECORD_SCHEMA})
    return encode_commit_metadata(metadata, action=Action.DELTA_COMMIT)
