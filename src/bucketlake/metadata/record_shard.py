"""One shard of the record-level index as columns: its base file, with its logs over it.

    base     an HFile with entries
    log      blocks: HFiles with entries that came or changed, and lists of keys that are gone

What is said last of a key holds: base, then logs in their order, then blocks in theirs. A shard may have millions of
entries, so keys are a column and locations are numbers; nothing here is done once per entry.

Whoever asks for some keys reads only those blocks of the base file that can hold one of them. Logs are small beside
it: they are read whole, and remembered by the process.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
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
from bucketlake.metadata.places import RECORD_INDEX
from bucketlake.metadata.record_index import Location, Locations, decode_locations, encode_locations
from bucketlake.metadata.record_schema import STORED_SCHEMA
from bucketlake.storage import FileCache, FileStat, Store, in_parallel

_NOWHERE = -1
"""The code of a key that is not there, and in a log that of one that is gone."""

_TEXT_BYTES_MAX = (1 << 31) - 1
"""What a column of text can hold; one with more is large text."""

_REMEDY = "Build the record-level index anew."


@dataclass(frozen=True, slots=True, eq=False)
class ShardEntries:
    """Keys and where each lives."""

    keys: pa.Array
    """Text, or large text if it has 2 GiB or more. As a shard has them they ascend by their UTF-8 bytes, each once."""
    locations: Locations
    """One per key."""

    def __len__(self) -> int:
        return len(self.keys)


def read_shard(store: Store, shard: ShardSlice) -> ShardEntries:
    """Return all entries of a shard."""
    base = [] if shard.base is None else [_base_entries(store, shard.base)]
    return _those_there(_said_last([*base, *_logs(store, shard)]))


def read_blocks(store: Store, base: FileStat, blocks: range, told: ShardEntries) -> ShardEntries:
    """Return the entries of a run of a base file's blocks, after what is told of some keys."""
    return _those_there(_said_last([_hfile_entries(open_base(store, base), blocks), told]))


def look_up_shard(store: Store, shard: ShardSlice, keys: pa.Array) -> Locations:
    """Return where keys live, those that are nowhere with code -1. Keys come in any order, and may repeat."""
    said, is_told = _look_up_logs(_logs(store, shard), keys)
    rest = np.flatnonzero(~is_told)
    if shard.base is None or not len(rest):
        return _used(said)
    found = open_base(store, shard.base).look_up(keys.take(pa.array(rest)))
    both = _joined_locations([said, decode_locations(found.values, path=shard.base.path)])
    codes = both.codes[: len(keys)]
    codes[rest[found.at]] = both.codes[len(keys) :]
    return _used(Locations(codes, both.distinct))


def look_up_logs(
    store: Store, logs: Sequence[FileStat], keys: pa.Array
) -> tuple[Locations, npt.NDArray[np.bool_]]:
    """Return where keys live by what some logs say, the oldest first, and of which keys these say anything."""
    return _look_up_logs([_log_entries(store, log) for log in logs], keys)


def read_logs(store: Store, logs: Sequence[FileStat]) -> ShardEntries:
    """Return what some logs, the oldest first, say last of each of their keys; -1 is the code of one that is gone."""
    return _said_last([_log_entries(store, log) for log in logs])


def last_said(store: Store, shard: ShardSlice, key: str) -> tuple[FileStat | None, Location | None]:
    """Return the file that says last where a key lives, and where; no place if it says that the key is gone.

    No file says anything of a key that was never there.
    """
    asked = pa.array([key], pa.string())
    for log in reversed(shard.logs):
        said, is_told = _look_up_logs([_log_entries(store, log)], asked)
        if is_told[0]:
            code = int(said.codes[0])
            return log, None if code == _NOWHERE else said.distinct[code]
    if shard.base is None:
        return None, None
    found = decode_locations(open_base(store, shard.base).look_up(asked).values, path=shard.base.path)
    return (shard.base, found.distinct[0]) if found.distinct else (None, None)


@dataclass(frozen=True, slots=True)
class ShardSize:
    """How much there is in a shard, without reading it."""

    entries: int
    """Of its base file."""
    logged: int
    """Keys of which a log says anything, each log for itself."""


def shard_size(store: Store, shard: ShardSlice) -> ShardSize:
    """Count what a shard is made of. Reads its logs, and the end of its base file."""
    entries = 0 if shard.base is None else open_base(store, shard.base).entries
    return ShardSize(entries, sum(map(len, _logs(store, shard))))


def logged_keys(store: Store, log: FileStat) -> pa.Array:
    """Return the keys of which a log says anything, ascending."""
    return _log_entries(store, log).keys


_SEARCH_COST = 500
"""What searching a log for one key costs, in keys that are compared when all are gone through."""


def _look_up_logs(logs: Sequence[ShardEntries], keys: pa.Array) -> tuple[Locations, npt.NDArray[np.bool_]]:
    """Return where keys live by what logs say, the oldest first, and of which keys they say anything."""
    if len(keys) * len(logs) * _SEARCH_COST > sum(map(len, logs)):
        return _look_up(_joined(logs), keys)
    texts = keys.to_pylist()
    rows = ([row for text in texts if (row := _row_of(text, log.keys)) >= 0] for log in logs)
    return _look_up(_joined([_taken(log, hits) for log, hits in zip(logs, rows, strict=True)]), keys)


def _row_of(key: str, keys: pa.Array) -> int:
    """Return the row of a key among ascending ones, -1 if it is not there. Texts ascend as their UTF-8 bytes do."""
    row = bisect_left(range(len(keys)), key, key=lambda row: keys[row].as_py())
    return row if row < len(keys) and keys[row].as_py() == key else -1


def _look_up(logs: ShardEntries, keys: pa.Array) -> tuple[Locations, npt.NDArray[np.bool_]]:
    """Return where keys live by what logs say, and of which keys they say anything."""
    codes = np.full(len(keys), _NOWHERE, np.int32)
    if not len(logs):  # as after a compaction
        return Locations(codes, ()), np.zeros(len(keys), np.bool_)
    asked, told = _alike(keys, logs.keys)
    # Logs may have far more keys than are asked for: first drop the others, then see what was said last.
    hits = _said_last([some_entries(logs, pc.is_in(told, value_set=asked).to_numpy(zero_copy_only=False))])
    places = pc.index_in(asked, value_set=hits.keys.cast(asked.type))
    is_told = places.is_valid().to_numpy(zero_copy_only=False)
    codes[is_told] = hits.locations.codes[places.drop_null().to_numpy()]
    return Locations(codes, hits.locations.distinct), is_told


def encode_entry_log(instant: str, came: ShardEntries | None, gone: pa.Array | None) -> bytes:
    """Return the log that tells of keys that came, or live elsewhere now, and of keys that are gone.

    Keys come in any order, those that came each once, and none is both. The same keys give the same bytes. With
    neither, it is the log that says nothing: with such a one a shard begins.
    """
    header = {HeaderKey.INSTANT_TIME: instant, HeaderKey.SCHEMA: STORED_SCHEMA}
    blocks = []
    if came is not None and len(came):
        blocks.append(encode_block(BlockType.HFILE_DATA, header, _image(_sorted(came))))
    if gone is not None and len(gone):
        assert came is None or not _share_one(came.keys, gone), "a key that came, and is gone"
        deletes = Deletes(_ascending(gone.unique()), RECORD_INDEX, None)
        blocks.append(encode_block(BlockType.DELETE, header, encode_deletes(deletes)))
    if not blocks:
        return encode_nothing(instant)
    return b"".join(blocks)


def join_entries(parts: Sequence[ShardEntries]) -> ShardEntries:
    """Lay entries end to end, keys ascending."""
    return _sorted(_joined(parts))


def find_twice(entries: ShardEntries) -> tuple[str, Location, Location] | None:
    """Find a key that joined entries have more than once, and two of its places."""
    is_last = _is_last(entries.keys)
    if is_last.all():
        return None
    first = int(np.argmin(is_last))
    codes, distinct = entries.locations.codes, entries.locations.distinct
    return entries.keys[first].as_py(), distinct[codes[first]], distinct[codes[first + 1]]


def encode_base(entries: ShardEntries) -> bytes:
    """Return the base file of joined entries that have each key once."""
    return _image(entries)


def compacted_shard(store: Store, shard: ShardSlice) -> tuple[bytes, int]:
    """Return the base file that a slice becomes, and how many records it has. The same slice gives the same bytes."""
    entries = read_shard(store, shard)
    return _image(entries), len(entries)


def _image(entries: ShardEntries) -> bytes:
    info = {"schema": STORED_SCHEMA.encode()}
    return hfile.encode(entries.keys, encode_locations(entries.locations), info=info)


# ------------------------------------------------------------------------------------------------ files to columns


_BASES: FileCache[hfile.HFile] = FileCache("record index")
_LOGS: FileCache[ShardEntries] = FileCache("record index logs")
_LOCATION_BYTES = 400
"""What a location takes in memory: an object, two texts, a number."""


def _logs(store: Store, shard: ShardSlice) -> list[ShardEntries]:
    """Read what logs say, the oldest first. Each is read once by a process."""
    return in_parallel(lambda log: _log_entries(store, log), shard.logs, store)


def _log_entries(store: Store, file: FileStat) -> ShardEntries:
    known = _LOGS.get(store, file)
    if known is None:
        known = decode_log(store.read(file.path), file.path)
        size = known.keys.get_total_buffer_size() + known.locations.codes.nbytes
        _LOGS.put(store, file, known, size + _LOCATION_BYTES * len(known.locations.distinct))
    return known


def open_base(store: Store, file: FileStat) -> hfile.HFile:
    """Open a base file to look keys up: its index is read once by a process."""
    known = _BASES.get(store, file)
    if known is None:
        known = hfile.HFile.open(StoredFile(store, file))
        _BASES.put(store, file, known, known.size_in_memory)
    return known


def decode_log(data: bytes, path: str) -> ShardEntries:
    """Read what a log says last of each of its keys."""
    if not data:
        raise DamagedFileError(
            path=path, found="nothing", expected="a log of a record-level index", remedy=_REMEDY
        )
    return _said_last([_block_entries(block, path) for block in decode_blocks(data, path=path)])


def _block_entries(block: Block, path: str) -> ShardEntries:
    match block.type:
        case BlockType.HFILE_DATA:
            return _hfile_entries(hfile.HFile.open(hfile.InMemory(block.content, name=path)))
        case BlockType.DELETE:
            keys, _, _ = decode_deletes(block.content, {}, path=path, offset=block.offset)
            return ShardEntries(keys, Locations(np.full(len(keys), _NOWHERE, np.int32), ()))
        case _:
            raise CorruptTableError(
                path=path,
                found=f"a block of type {block.type.name}, at byte {block.offset}",
                expected="HFile and delete blocks, in a log of a record-level index",
                remedy=_REMEDY,
            )


def _base_entries(store: Store, file: FileStat) -> ShardEntries:
    return _hfile_entries(hfile.HFile.open(StoredFile(store, file)))


def _hfile_entries(file: hfile.HFile, blocks: range | None = None) -> ShardEntries:
    """Read entries, all or those of some blocks, in the order of the file: ours, or if Hudi wrote it Java's."""
    path = file.source.name
    entries = file.scan(blocks)
    kind = pa.large_string() if pa.types.is_large_binary(entries.keys.type) else pa.string()
    try:
        keys = entries.keys.cast(kind)
    except pa.ArrowInvalid as error:
        raise DamagedFileError(
            path=path, found=f"a key that is no text ({error})", expected="UTF-8", remedy=_REMEDY
        ) from error
    is_last = _is_last(keys)
    if not is_last.all():
        key = keys[int(np.argmin(is_last))].as_py()
        raise DamagedFileError(
            path=path, found=f"the key {key!r} twice", expected="each key once", remedy=_REMEDY
        )
    return ShardEntries(keys, decode_locations(entries.values, path=path))


# -------------------------------------------------------------------------------------------- columns over columns


def _said_last(parts: Sequence[ShardEntries]) -> ShardEntries:
    """Put parts over parts, the oldest first: of every key what was said of it last, keys ascending."""
    said = _sorted(_joined(parts))
    is_last = _is_last(said.keys)
    return said if is_last.all() else some_entries(said, is_last)


def _joined(parts: Sequence[ShardEntries]) -> ShardEntries:
    """Lay parts end to end, in memory of their own: who keeps the result does not keep a whole log with it."""
    columns = [part.keys for part in parts]
    is_large = any(pa.types.is_large_string(keys.type) for keys in columns)
    kind = pa.large_string() if is_large or _text_bytes(columns) > _TEXT_BYTES_MAX else pa.string()
    keys = pa.concat_arrays([pa.array([], kind), *(column.cast(kind) for column in columns)])
    return ShardEntries(keys, _joined_locations([part.locations for part in parts]))


def _joined_locations(parts: Sequence[Locations]) -> Locations:
    """Lay locations end to end; those that are equal have one code."""
    numbers: dict[Location, int] = {}
    codes = [np.empty(0, np.int32)]
    for part in parts:
        # The last one is that of code -1.
        renumbered = [*(numbers.setdefault(place, len(numbers)) for place in part.distinct), _NOWHERE]
        codes.append(np.array(renumbered, np.int32)[part.codes])
    return Locations(np.concatenate(codes), tuple(numbers))


def _sorted(entries: ShardEntries) -> ShardEntries:
    """Sort entries by key; those of one key stay in their order."""
    order = hfile.ascending(entries.keys)
    if order is None:
        return entries
    locations = Locations(entries.locations.codes[order], entries.locations.distinct)
    return ShardEntries(entries.keys.take(pa.array(order)), locations)


def _taken(entries: ShardEntries, rows: Sequence[int]) -> ShardEntries:
    locations = Locations(entries.locations.codes[rows], entries.locations.distinct)
    return ShardEntries(entries.keys.take(pa.array(rows, pa.int64())), locations)


def some_entries(entries: ShardEntries, is_kept: npt.NDArray[np.bool_]) -> ShardEntries:
    locations = Locations(entries.locations.codes[is_kept], entries.locations.distinct)
    return ShardEntries(entries.keys.filter(pa.array(is_kept)), locations)


def _is_last(keys: pa.Array) -> npt.NDArray[np.bool_]:
    """Say of every one of sorted keys whether the next is another."""
    is_last = np.ones(len(keys), np.bool_)
    is_last[:-1] = pc.not_equal(keys[:-1], keys[1:]).to_numpy(zero_copy_only=False)
    return is_last


def _those_there(said: ShardEntries) -> ShardEntries:
    """Drop the keys that are gone."""
    is_there = said.locations.codes != _NOWHERE
    there = said if is_there.all() else some_entries(said, is_there)
    return ShardEntries(there.keys, _used(there.locations))


def _used(locations: Locations) -> Locations:
    """Drop the locations that nothing has any more: whoever counts them counts file groups that are in use."""
    is_used = np.bincount(locations.codes - _NOWHERE, minlength=len(locations.distinct) + 1)[1:] > 0
    if is_used.all():
        return locations
    renumbered = np.append(np.cumsum(is_used) - 1, _NOWHERE).astype(np.int32)
    distinct = tuple(place for place, is_one in zip(locations.distinct, is_used, strict=True) if is_one)
    return Locations(renumbered[locations.codes], distinct)


def _ascending(keys: pa.Array) -> pa.Array:
    order = hfile.ascending(keys)
    return keys if order is None else keys.take(pa.array(order))


def _share_one(left: pa.Array, right: pa.Array) -> bool:
    keys, others = _alike(left, right)
    return bool(pc.any(pc.is_in(keys, value_set=others)).as_py())


def _alike(left: pa.Array, right: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Give two columns of text one type: Arrow compares no others."""
    kind = pa.string() if left.type == right.type == pa.string() else pa.large_string()
    return left.cast(kind), right.cast(kind)


def _text_bytes(columns: Iterable[pa.Array]) -> int:
    return sum(pc.sum(pc.binary_length(keys)).as_py() or 0 for keys in columns)
