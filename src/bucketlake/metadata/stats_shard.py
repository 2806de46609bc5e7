"""Read a shard of `column_stats` or `partition_stats`: its base file, with its logs merged into it."""

from __future__ import annotations

from collections.abc import Iterator

from bucketlake import hfile
from bucketlake.logfile.deletes import delete_records
from bucketlake.logfile.frame import BlockType, decode_blocks
from bucketlake.metadata.column_stats import Values, merge_values
from bucketlake.metadata.listing import ShardSlice
from bucketlake.storage import Store


def read_stats(store: Store, shard: ShardSlice) -> dict[str, bytes]:
    """Return the records of a shard by key, as they are stored: what its next base file is made of."""
    return merge_values(_parts(store, shard), path=_path_of(shard))


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
