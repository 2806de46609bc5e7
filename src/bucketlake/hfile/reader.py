"""An HFile to columns: all of it, the values of some keys, or the keys with some prefixes.

Keys of a file ascend, and here is the catch: ours by their UTF-8 bytes, Hudi's by Java's order of strings, which is
by UTF-16 units. The two differ where one key has a character from U+E000 to U+FFFF (lead byte 0xEE or 0xEF) and the
other one beyond (lead byte 0xF0 or above) at the first place at which they differ; and a file does not say which it
has. Two facts make every search right in both kinds of files:

- A key without a byte of 0xEE or above compares with every key of a file alike in both orders, so a search by bytes
  finds it if it is there.
- UTF-16 order is byte order after a permutation of byte values (`_JAVA_ORDER`). So keys that have such a byte and
  were not found are searched for a second time, after the permutation, by the same loops. One of the two searches is
  by the file's own order; the other can miss a key, and cannot find one that is not there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bucketlake.errors import UnsupportedError
from bucketlake.hfile import block as blocks
from bucketlake.hfile.block import Codec, decode_block
from bucketlake.hfile.columns import ByteColumn, ByteColumnBuilder, Bytes, as_bytes
from bucketlake.hfile.index import BlockIndex, decode_leaf, decode_root
from bucketlake.hfile.kernels import (
    KEY_START,
    RECORD_OVERHEAD,
    VALUE_START,
    find_blocks,
    find_prefix_blocks,
    gather,
    mark_shortest,
    match_keys,
    match_prefixes,
    parse_block,
)
from bucketlake.hfile.sorting import order_of
from bucketlake.hfile.source import InMemory, Range, Source, damaged, read_ranges
from bucketlake.hfile.trailer import TRAILER_BYTES, Trailer, decode_info, decode_trailer

Numbers = npt.NDArray[np.int64]

_TAIL_BYTES = 64 << 10
"""What is read first: a small file is all in it, the index of a file of some megabytes too."""

_READ_BYTES = 32 << 20
"""Blocks that are asked for at once."""

UNCERTAIN = -1

_LEAD_BYTE = 0xEE
_JAVA_ORDER = bytes([*range(0xEE), 0xFE, 0xFF, *range(0xEE, 0xFE)])
"""What each byte becomes: 0xEE and 0xEF change places with all above them."""


@dataclass(frozen=True, slots=True)
class Entries:
    """Records in file order. Columns are binary, or large binary if one has 2 GiB or more."""

    keys: pa.BinaryArray
    values: pa.BinaryArray


@dataclass(frozen=True, slots=True, eq=False)
class Found:
    """Which of the keys asked for are in a file, ascending, and the value of each."""

    at: Numbers
    values: pa.BinaryArray


@dataclass(frozen=True, slots=True, eq=False)
class HFile:
    """An HFile whose index is in memory. Threads may share it."""

    source: Source
    codec: Codec
    entries: int
    info: Mapping[str, bytes]
    index: BlockIndex = field(repr=False)

    @staticmethod
    def open(source: Source) -> HFile:
        """Read trailer, index and file info: one request, or two if the index is large."""
        name, size = source.name, source.size
        if size < TRAILER_BYTES:
            raise damaged(name, found=f"{size} bytes", expected=f"an HFile, of at least {TRAILER_BYTES}")
        tail_at = max(0, size - _TAIL_BYTES)
        (tail,) = read_ranges(source, [(tail_at, size - tail_at)])
        trailer = decode_trailer(tail[-TRAILER_BYTES:], name=name, file_size=size)
        start, stop = trailer.load_on_open_at, size - TRAILER_BYTES
        if tail_at == 0 and not isinstance(source, InMemory):
            source = InMemory(tail.tobytes(), name)
        if start >= tail_at:
            section = tail[start - tail_at : stop - tail_at]
        else:
            (section,) = read_ranges(source, [(start, stop - start)])
        return _opened(source, trailer, section)

    @property
    def size_in_memory(self) -> int:
        """How many bytes it takes while it is open."""
        keys, numbers = self.index.keys, (self.index.offsets, self.index.sizes)
        held = self.source.size if isinstance(self.source, InMemory) else 0
        return held + keys.data.nbytes + keys.offsets.nbytes + sum(column.nbytes for column in numbers)

    @property
    def blocks(self) -> int:
        """How many data blocks there are."""
        return len(self.index.offsets)

    def scan(self, blocks: range | None = None) -> Entries:
        """Return all records, or those of a run of data blocks."""
        keys, values = ByteColumnBuilder(), ByteColumnBuilder()
        run = range(self.blocks) if blocks is None else blocks
        for block in self._read(np.arange(run.start, run.stop)):
            keys.reserve(block.count, block.key_bytes)
            values.reserve(block.count, block.value_bytes)
            everything = np.arange(block.count)
            block.append(everything, KEY_START, keys, block.key_bytes)
            block.append(everything, VALUE_START, values, block.value_bytes)
        if len(run) == self.blocks and keys.rows != self.entries:
            raise damaged(
                self.source.name, found=f"{keys.rows} records", expected=f"the {self.entries} of the trailer"
            )
        return Entries(keys.finish(), values.finish())

    def look_up(self, keys: pa.Array | pa.ChunkedArray) -> Found:
        """Return which keys are here, and their values. Keys come in any order, and may repeat.

        Only blocks that can hold a key are read.
        """
        asked = ByteColumn.of(keys, "keys to look up")
        values = ByteColumnBuilder()
        at = self._search(asked, np.arange(len(asked)), values, in_java_order=False)
        doubtful = np.flatnonzero(_has_lead_byte(asked))
        if len(doubtful):
            doubtful = np.setdiff1d(doubtful, at, assume_unique=True)
            at = np.concatenate([at, self._search(asked, doubtful, values, in_java_order=True)])
        found = values.finish()
        if np.any(at[1:] < at[:-1]):
            order = np.argsort(at)
            return Found(at[order], found.take(pa.array(order)))
        return Found(at, found)

    def blocks_of(self, keys: pa.Array | pa.ChunkedArray) -> Numbers:
        """Return the number of the data block that alone can hold each key.

        It is `UNCERTAIN` where that depends on the order that the file has.
        """
        asked = ByteColumn.of(keys, "keys to look up")
        order, ascending = _sorted(asked)
        found = np.empty(len(asked), np.int64)
        find_blocks(self.index.keys.data, self.index.keys.offsets, ascending.data, ascending.offsets, found)
        blocks = np.empty(len(asked), np.int64)
        blocks[slice(None) if order is None else order] = np.maximum(found, 0)
        blocks[_has_lead_byte(asked)] = UNCERTAIN
        return blocks

    def with_prefixes(self, prefixes: pa.Array | pa.ChunkedArray) -> Entries:
        """Return the records whose key starts with one of the prefixes, each once."""
        asked = _shortest(prefixes)
        is_wanted = self._blocks_with(asked)
        keys, values = ByteColumnBuilder(), ByteColumnBuilder()
        for block in self._read(np.flatnonzero(is_wanted)):
            records = np.empty(block.count, np.int64)
            count, key_bytes, value_bytes = match_prefixes(
                block.data, block.spans, block.count, asked.data, asked.offsets, records
            )
            keys.reserve(count, key_bytes)
            values.reserve(count, value_bytes)
            block.append(records[:count], KEY_START, keys, key_bytes)
            block.append(records[:count], VALUE_START, values, value_bytes)
        return Entries(keys.finish(), values.finish())

    def least_with_prefixes(self, prefixes: pa.Array | pa.ChunkedArray) -> int:
        """Return about how many records start with one of the prefixes at the least, by the index: reads no block.

        The first and the last block of a prefix may have a single one.
        """
        asked = _shortest(prefixes)
        whole = int(self._blocks_with(asked).sum()) - 2 * len(asked)
        return max(0, whole) * self.entries // max(1, len(self.index.offsets))

    def _blocks_with(self, asked: ByteColumn) -> npt.NDArray[np.bool_]:
        """Mark the blocks that can hold a key that starts with one of the ascending prefixes."""
        is_wanted = np.zeros(len(self.index.offsets), np.bool_)
        index = self.index.keys
        find_prefix_blocks(index.data, index.offsets, asked.data, asked.offsets, is_wanted)
        if _has_lead_byte(asked).any():
            index, permuted = _permuted(index), _sorted(_permuted(asked))[1]
            find_prefix_blocks(index.data, index.offsets, permuted.data, permuted.offsets, is_wanted)
        return is_wanted

    def _search(
        self, asked: ByteColumn, rows: Numbers, values: ByteColumnBuilder, *, in_java_order: bool
    ) -> Numbers:
        """Search for some of the keys; return which were found, and append their values."""
        keys, index = asked, self.index.keys
        if in_java_order:
            keys, index = _permuted(asked), _permuted(index)
        if len(rows) < len(asked):
            keys = _taken(keys, rows)
        order, keys = _sorted(keys)
        block_of = np.empty(len(keys), np.int64)
        find_blocks(index.data, index.offsets, keys.data, keys.offsets, block_of)

        # Keys ascend, and so do their blocks: one run of keys per block.
        starts = np.flatnonzero(np.diff(block_of, prepend=-1))
        stops = np.append(starts, len(keys))[1:]
        found = [np.empty(0, np.int64)]
        for block, start, stop in zip(
            self._read(block_of[starts]), starts.tolist(), stops.tolist(), strict=True
        ):
            hits, records = np.empty(stop - start, np.int64), np.empty(stop - start, np.int64)
            data = as_bytes(block.data.tobytes().translate(_JAVA_ORDER)) if in_java_order else block.data
            count, size = match_keys(
                data, block.spans, block.count, keys.data, keys.offsets, start, stop, hits, records
            )
            values.reserve(count, size)
            block.append(records[:count], VALUE_START, values, size)
            found.append(hits[:count])
        hits = np.concatenate(found)
        which: Numbers = rows[hits if order is None else order[hits]]
        return which

    def _read(self, numbers: Numbers) -> Iterator[_Block]:
        """Yield some data blocks, ascending; adjacent ones are read as one range."""
        name = self.source.name
        spans = np.empty((0, 4), np.int32)
        for group in _groups(self.index, numbers):
            ranges = _joined(self.index, group)
            pieces = iter(zip(ranges, read_ranges(self.source, ranges), strict=True))
            (offset, length), piece = next(pieces)
            for number in group.tolist():
                start, size = int(self.index.offsets[number]), int(self.index.sizes[number])
                if start >= offset + length:
                    (offset, length), piece = next(pieces)
                at = start - offset
                payload, end = decode_block(
                    piece[: at + size], at, (blocks.DATA,), self.codec, name=name, offset=offset
                )
                if end != at + size:
                    raise damaged(
                        name, found=f"a block of {end - at} bytes at {start}", expected=f"{size} bytes"
                    )
                data = as_bytes(payload)
                if len(spans) < len(data) // RECORD_OVERHEAD:
                    spans = np.empty((len(data) // RECORD_OVERHEAD, 4), np.int32)
                count, key_bytes, value_bytes = parse_block(data, spans)
                if count < 0:
                    raise damaged(
                        name,
                        found=f"byte {key_bytes} of the block at position {start}, where no record can be",
                        expected="records whose lengths add up",
                    )
                yield _Block(data, spans, count, key_bytes, value_bytes)


@dataclass(frozen=True, slots=True, eq=False)
class _Block:
    """The records of a data block; `spans` is used again for the next one."""

    data: Bytes
    spans: npt.NDArray[np.int32]
    count: int
    key_bytes: int
    value_bytes: int

    def append(self, records: Numbers, part: int, column: ByteColumnBuilder, size: int) -> None:
        """Append the keys or values of some records, which have `size` bytes, to a column with memory for them."""
        gather(self.data, self.spans, records, part, column.data, column.offsets, column.rows, column.size)
        column.added(len(records), size)


def _opened(source: Source, trailer: Trailer, section: memoryview) -> HFile:
    """Read the section that the trailer points at, and the levels of index below it if there are any."""
    name, offset, codec = source.name, trailer.load_on_open_at, trailer.codec
    root, at = decode_block(section, 0, (blocks.ROOT_INDEX,), codec, name=name, offset=offset)
    _, at = decode_block(section, at, (blocks.ROOT_INDEX,), codec, name=name, offset=offset)
    payload, _ = decode_block(section, at, (blocks.FILE_INFO,), codec, name=name, offset=offset)
    info = decode_info(payload, name=name)
    if "hfile.MAX_TAGS_LEN" in info:
        raise UnsupportedError(
            subject=f"the HFile {name}",
            found="one whose records have tags",
            supported="records of keys and values",
            remedy="Have the file written without tags, as Hudi does.",
        )
    count, levels = trailer.data_index_count, trailer.index_levels
    index = BlockIndex.of(
        decode_root(root, count, has_levels_below=levels > 1, name=name), name=name, end=offset
    )
    for level in range(levels - 1, 0, -1):
        magic = blocks.LEAF_INDEX if level == 1 else blocks.INTERMEDIATE_INDEX
        index = _level_below(source, index, magic, codec, end=offset)
    return HFile(source, codec, trailer.entry_count, info, index)


def _level_below(source: Source, above: BlockIndex, magic: bytes, codec: Codec, *, end: int) -> BlockIndex:
    ranges = list(zip(above.offsets.tolist(), above.sizes.tolist(), strict=True))
    entries = []
    for (offset, _), piece in zip(ranges, read_ranges(source, ranges), strict=True):
        payload, _ = decode_block(piece, 0, (magic,), codec, name=source.name, offset=offset)
        entries += decode_leaf(payload, name=source.name)
    return BlockIndex.of(entries, name=source.name, end=end)


def _groups(index: BlockIndex, numbers: Numbers) -> Iterator[Numbers]:
    """Divide blocks into those that are read at once."""
    sums = np.cumsum(index.sizes[numbers])
    start = 0
    while start < len(numbers):
        before = sums[start - 1] if start else 0
        stop = max(start + 1, int(np.searchsorted(sums, before + _READ_BYTES, side="right")))
        yield numbers[start:stop]
        start = stop


def _joined(index: BlockIndex, numbers: Numbers) -> list[Range]:
    """Return the ranges of blocks, adjacent ones as one."""
    starts = index.offsets[numbers]
    ends = starts + index.sizes[numbers]
    gaps = np.flatnonzero(starts[1:] != ends[:-1]) + 1
    first = np.concatenate([[0], gaps])
    last = np.append(gaps, len(numbers)) - 1
    return list(zip(starts[first].tolist(), (ends[last] - starts[first]).tolist(), strict=True))


def _sorted(column: ByteColumn) -> tuple[Numbers | None, ByteColumn]:
    """Return a column in ascending order, and which row came where; None if all stayed."""
    order = order_of(column)
    return order, column if order is None else _taken(column, order)


def _taken(column: ByteColumn, rows: Numbers) -> ByteColumn:
    return ByteColumn.of(column.to_arrow().take(pa.array(rows)), "keys")


def _permuted(column: ByteColumn) -> ByteColumn:
    return ByteColumn(as_bytes(column.data.tobytes().translate(_JAVA_ORDER)), column.offsets)


def _has_lead_byte(column: ByteColumn) -> npt.NDArray[np.bool_]:
    """Say of every string whether a byte in it may make the two orders differ."""
    start = column.offsets[0]
    is_high = column.data[start : column.offsets[-1]] >= _LEAD_BYTE
    if not is_high.any():
        return np.zeros(len(column), np.bool_)
    before = np.concatenate([[0], np.cumsum(is_high)])
    has: npt.NDArray[np.bool_] = np.diff(before[column.offsets - start]) > 0
    return has


def _shortest(prefixes: pa.Array | pa.ChunkedArray) -> ByteColumn:
    """Sort prefixes, and drop those that start with another one."""
    ascending = _sorted(ByteColumn.of(prefixes, "prefixes"))[1]
    is_kept = np.empty(len(ascending), np.bool_)
    mark_shortest(ascending.data, ascending.offsets, is_kept)
    return _taken(ascending, np.flatnonzero(is_kept))
