"""Read a shard of `column_stats` or `partition_stats`: its base file, with its logs merged into it."""

from __future__ import annotations

from collections.abc import Iterator

from bucketlake import hfile
from bucketlake.logfile.deletes import delete_records
from bucketlake.logfile.frame import BlockType, decode_blocks
from bucketlake.metadata.column_stats import Kind, Values, kinds_of_columns, merge_values
from bucketlake.metadata.listing import ShardSlice
from bucketlake.storage import FileCache, Store


def read_stats(store: Store, shard: ShardSlice) -> dict[str, bytes]:
    """Return the records of a shard by key, as they are stored: what its next base file is made of."""
    return merge_values(_parts(store, shard), path=_path_of(shard))


_KINDS: FileCache[dict[str, frozenset[Kind]]] = FileCache("kinds in statistics")
_COLUMN_BYTES = 300


def kinds_in(store: Store, shard: ShardSlice) -> dict[str, frozenset[Kind]]:
    """Return of which kinds the ranges of each column are, by `column_key`. A file is read once by a process."""
    found: dict[str, frozenset[Kind]] = {}
    for file in (shard.base, *shard.logs):
        if file is None:
            continue
        known = _KINDS.get(store, file)
        if known is None:
            alone = ShardSlice(None, (file,)) if file in shard.logs else ShardSlice(file, ())
            known = {}
            for values, _ in _parts(store, alone):
                known = _joined(known, kinds_of_columns(values, path=file.path))
            _KINDS.put(store, file, known, _COLUMN_BYTES * (1 + len(known)))
        found = _joined(found, known)
    return found


def _joined(one: dict[str, frozenset[Kind]], other: dict[str, frozenset[Kind]]) -> dict[str, frozenset[Kind]]:
    return {key: one.get(key, frozenset()) | other.get(key, frozenset()) for key in one | other}


def _path_of(shard: ShardSlice) -> str:
    return next((file.path for file in (shard.base, *shard.logs) if file is not None), "")


def _parts(store: Store, shard: ShardSlice) -> Iterator[tuple[Values, list[str]]]:
    """Yield the base file and the blocks of the logs, the oldest first, each with the keys that it deletes."""
    if shard.base is not None:
        yield _values(store.read(shard.base.path), shard.base.path), []
    for log in shard.logs:
        for block in decode_blocks(store.read(log.path), path=log.path):
            if block.type is BlockType.DELETE:
                gone = delete_records(block.content, path=log.path, offset=block.offset)
                yield {}, gone.field("recordKey").to_pylist()
            else:
                yield _values(bytes(block.content), log.path), []


def _values(image: bytes, path: str) -> Values:
    entries = hfile.HFile.open(hfile.InMemory(image, name=path)).scan()
    keys = (key.decode() for key in entries.keys.to_pylist())
    return dict(zip(keys, entries.values.to_pylist(), strict=True))
