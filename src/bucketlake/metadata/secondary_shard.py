"""One shard of a secondary index as columns: its base file, with its logs over it.

    base     an HFile with the keys of entries (`secondary_keys.py`), all with the same value, which says nothing
    log      blocks: HFiles with entries that came, and lists of those that are gone

What is said last of a key holds, as in `record_shard.py`: base, then logs in their order, then blocks in theirs.
Whoever asks for values reads only those blocks of the base file that can hold one of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from bucketlake import hfile
from bucketlake.errors import CorruptTableError, DamagedFileError
from bucketlake.logfile.deletes import Deletes, decode_deletes, encode_deletes
from bucketlake.logfile.frame import Block, BlockType, HeaderKey, decode_blocks, encode_block
from bucketlake.metadata.delta import encode_nothing
from bucketlake.metadata.listing import ShardSlice, StoredFile
from bucketlake.metadata.record_schema import STORED_SCHEMA
from bucketlake.metadata.secondary_keys import prefixes_of_entries
from bucketlake.storage import FileCache, FileStat, Store, in_parallel

VALUE = bytes.fromhex("00 00 00 00 00 00 0e 00 00 00 00 02 00")
"""What every entry has: Avro of `record_schema`, type 7, not deleted, all else null or empty."""

_REMEDY = "Drop the secondary index, and create it again."


@dataclass(frozen=True, slots=True, eq=False)
class Said:
    """Keys of entries, and what was said of each."""

    keys: pa.Array
    """Text, or large text if it has 2 GiB or more."""
    is_there: npt.NDArray[np.bool_]


def read_entries(store: Store, shard: ShardSlice) -> pa.Array:
    """Return the keys of all entries of a shard, ascending by their UTF-8 bytes, each once."""
    base = [] if shard.base is None else [_base(store, shard.base)]
    return _there([*base, *_logs(store, shard)])


def entries_of_values(store: Store, shard: ShardSlice, prefixes: pa.Array) -> pa.Array:
    """Return the keys of the entries that have one of these values; `prefixes` are what such keys begin with."""
    parts = (
        [] if shard.base is None else [_all_there(_opened(store, shard.base).with_prefixes(prefixes).keys)]
    )
    for log, said in zip(shard.logs, _logs(store, shard), strict=True):
        of_values = prefixes_of_entries(said.keys, path=log.path)
        is_asked = pc.is_in(of_values, value_set=prefixes.cast(of_values.type))
        kept = is_asked.to_numpy(zero_copy_only=False)
        parts.append(Said(said.keys.filter(is_asked), said.is_there[kept]))
    return _there(parts)


def least_of_values(store: Store, shard: ShardSlice, prefixes: pa.Array) -> int:
    """Return about how many entries of its base file have one of these values, at the least. Reads its end."""
    return 0 if shard.base is None else _opened(store, shard.base).least_with_prefixes(prefixes)


def entry_said_last(store: Store, shard: ShardSlice, key: str) -> tuple[FileStat | None, bool]:
    """Return the file that says last of an entry whether it is there, and what it says.

    No file says anything of one that was never there.
    """
    for log in reversed(shard.logs):
        said = _log(store, log)
        at = pc.index(said.keys, pa.scalar(key, said.keys.type)).as_py()
        if at >= 0:
            return log, bool(said.is_there[at])
    if shard.base is None:
        return None, False
    is_there = len(_opened(store, shard.base).look_up(pa.array([key], pa.string())).at) > 0
    return (shard.base, True) if is_there else (None, False)


def count_entries(store: Store, shard: ShardSlice) -> int:
    """Return how many entries the base file of a shard has. Reads its end."""
    return 0 if shard.base is None else _opened(store, shard.base).entries


def encode_secondary_log(instant: str, partition: str, came: pa.Array, gone: pa.Array) -> bytes:
    """Return the log that tells of entries that came, and of others that are gone. No key is both.

    Keys come in any order, each once. The same keys give the same bytes. `partition` is that of the metadata table.
    """
    header = {HeaderKey.INSTANT_TIME: instant, HeaderKey.SCHEMA: STORED_SCHEMA}
    blocks = []
    if len(came):
        blocks.append(encode_block(BlockType.HFILE_DATA, header, encode_secondary_base(_ascending(came))))
    if len(gone):
        deletes = Deletes(_ascending(gone), partition, None)
        blocks.append(encode_block(BlockType.DELETE, header, encode_deletes(deletes)))
    return b"".join(blocks) if blocks else encode_nothing(instant)


def encode_secondary_base(keys: pa.Array) -> bytes:
    """Return the base file of these entries, which ascend, each once."""
    values = pa.DictionaryArray.from_arrays(
        pa.array(np.zeros(len(keys), np.int32)), pa.array([VALUE], pa.binary())
    )
    return hfile.encode(keys, values, info={"schema": STORED_SCHEMA.encode()})


def decode_secondary_log(data: bytes, path: str) -> Said:
    """Read what a log says of entries, the last of each key."""
    if not data:
        raise DamagedFileError(
            path=path, found="nothing", expected="a log of a secondary index", remedy=_REMEDY
        )
    return _said_last([_block(block, path) for block in decode_blocks(data, path=path)])


def _block(block: Block, path: str) -> Said:
    match block.type:
        case BlockType.HFILE_DATA:
            return _all_there(hfile.HFile.open(hfile.InMemory(block.content, name=path)).scan().keys)
        case BlockType.DELETE:
            keys, _, _ = decode_deletes(block.content, {}, path=path, offset=block.offset)
            return Said(keys, np.zeros(len(keys), np.bool_))
        case _:
            raise CorruptTableError(
                path=path,
                found=f"a block of type {block.type.name}, at byte {block.offset}",
                expected="HFile and delete blocks, in a log of a secondary index",
                remedy=_REMEDY,
            )


_BASES: FileCache[hfile.HFile] = FileCache("secondary index")
_LOGS: FileCache[Said] = FileCache("secondary index logs")


def _logs(store: Store, shard: ShardSlice) -> list[Said]:
    """Read what logs say, the oldest first. Each is read once by a process."""
    return in_parallel(lambda log: _log(store, log), shard.logs, store)


def _log(store: Store, file: FileStat) -> Said:
    known = _LOGS.get(store, file)
    if known is None:
        known = decode_secondary_log(store.read(file.path), file.path)
        _LOGS.put(store, file, known, known.keys.get_total_buffer_size() + known.is_there.nbytes)
    return known


def _base(store: Store, file: FileStat) -> Said:
    return _all_there(_opened(store, file).scan().keys)


def _opened(store: Store, file: FileStat) -> hfile.HFile:
    """Open a base file to look values up: its index is read once by a process."""
    known = _BASES.get(store, file)
    if known is None:
        known = hfile.HFile.open(StoredFile(store, file))
        _BASES.put(store, file, known, known.size_in_memory)
    return known


def _all_there(keys: pa.Array) -> Said:
    kind = pa.large_string() if pa.types.is_large_binary(keys.type) else pa.string()
    return Said(keys.cast(kind), np.ones(len(keys), np.bool_))


def _there(parts: Sequence[Said]) -> pa.Array:
    said = _said_last(parts)
    return said.keys if said.is_there.all() else said.keys.filter(pa.array(said.is_there))


def _said_last(parts: Sequence[Said]) -> Said:
    """Put parts over parts, the oldest first: of every key what was said of it last, keys ascending."""
    is_large = sum(part.keys.nbytes for part in parts) >= 1 << 31
    kind = pa.large_string() if is_large else pa.string()
    keys = pa.concat_arrays([pa.array([], kind), *(part.keys.cast(kind) for part in parts)])
    is_there = np.concatenate([np.empty(0, np.bool_), *(part.is_there for part in parts)])
    order = hfile.ascending(keys)
    if order is not None:
        keys, is_there = keys.take(pa.array(order)), is_there[order]
    is_last = np.ones(len(keys), np.bool_)
    is_last[:-1] = pc.not_equal(keys[:-1], keys[1:]).to_numpy(zero_copy_only=False)
    return Said(keys, is_there) if is_last.all() else Said(keys.filter(pa.array(is_last)), is_there[is_last])


def _ascending(keys: pa.Array) -> pa.Array:
    order = hfile.ascending(keys)
    return keys if order is None else keys.take(pa.array(order))
