"""What is on disk of a record-level index, file by file: for tests that compare ours with Hudi's."""

from __future__ import annotations

from collections.abc import Iterator

from bucketlake import hfile
from bucketlake.index import resolve_index
from bucketlake.layout.names import parse_index_base_file_name, parse_log_file_name, split_path
from bucketlake.logfile.deletes import decode_deletes
from bucketlake.logfile.frame import BlockType, decode_blocks
from bucketlake.metadata.places import RECORD_INDEX, folder_of
from bucketlake.metadata.record_index import decode_location
from bucketlake.metadata.record_shards import parse_shard_file_id
from bucketlake.state import load_state
from bucketlake.storage import Store


def entries_of(store: Store) -> dict[tuple[str, str], str]:
    """Return all entries of an index: the file id of each partition and key."""
    found: dict[tuple[str, str], str] = {}
    for row in _all_entries(store):
        place = row["partition"], row["key"]
        assert place not in found, f"{place} has two entries"
        found[place] = row["file_id"]
    return found


def _all_entries(store: Store) -> Iterator[dict[str, str]]:
    index = resolve_index(load_state(store)).recorded
    assert index is not None
    for shard in range(index.shards):
        yield from index.entries(shard).to_pylist()


def values_in_files(store: Store) -> Iterator[tuple[str, bytes]]:
    """Return the values of all entries in logs and base files, each with the instant of its file."""
    for file in store.list(folder_of(RECORD_INDEX)).files:
        name = split_path(file.path)[1]
        base, log = parse_index_base_file_name(name), parse_log_file_name(name)
        if base is not None:
            yield from ((base.instant, value) for _, value in _records(store.read(file.path), file.path))
        if log is not None:
            for block in decode_blocks(store.read(file.path), path=file.path):
                if block.type is BlockType.HFILE_DATA:
                    yield from ((log.instant, value) for _, value in _records(block.content, file.path))


def said_by_commits(store: Store) -> list[dict[tuple[str | None, str], str | None]]:
    """Return what each commit, the first one first, says of keys: the partition they live in, or None if they are gone.

    The first part of a key is the partition that its shard is for.
    """
    by_instant: dict[str, dict[tuple[str | None, str], str | None]] = {}
    for file in store.list(folder_of(RECORD_INDEX)).files:
        log = parse_log_file_name(split_path(file.path)[1])
        shard = None if log is None else parse_shard_file_id(log.file_id)
        if log is None or shard is None:
            continue
        said = by_instant.setdefault(log.instant, {})
        for block in decode_blocks(store.read(file.path), path=file.path):
            if block.type is BlockType.HFILE_DATA:
                for key, value in _records(block.content, file.path):
                    said[shard[0], key] = decode_location(value, path=file.path).partition
            else:
                keys, _, _ = decode_deletes(block.content, {}, path=file.path, offset=block.offset)
                said.update({(shard[0], key): None for key in keys.to_pylist()})
    return [said for _, said in sorted(by_instant.items()) if said]


def _records(image: bytes | memoryview, path: str) -> Iterator[tuple[str, bytes]]:
    records = hfile.HFile.open(hfile.InMemory(image, name=path)).scan()
    for key, value in zip(records.keys.to_pylist(), records.values.to_pylist(), strict=True):
        yield key.decode(), value
