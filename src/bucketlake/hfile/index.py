"""Where data blocks lie, and with which key each begins.

    root      := entry*, middle?            as many entries as the trailer says
    middle    := 16 bytes                   which key is in the middle; HBase's, if there are levels below the root
    entry     := int64 offset, int32 size, vint length, key
    leaf      := int32 count, int32 * (count + 1) where entries start, (int64 offset, int32 size, key)*
    key       := int16 length, key bytes, then whatever the writer added

Leaf blocks, and intermediate ones of the same form above them, exist in large files of HBase's writer: the root then
points at them. Hudi's writer and ours have the root only. HBase may write a shorter key than a block begins with,
one above all keys of the block before: a search finds the same block by it.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from bucketlake.hfile.block import HEADER
from bucketlake.hfile.columns import ByteColumn
from bucketlake.hfile.source import BytesLike, damaged
from bucketlake.hfile.wire import put_vint, read_vint

_PLACE = struct.Struct(">qi")
_INT16 = struct.Struct(">h")
_MIDDLE_BYTES = 16

IndexEntry = tuple[int, int, bytes]
"""Offset and size of a block, and its key."""


@dataclass(frozen=True, slots=True, eq=False)
class BlockIndex:
    """The blocks of one level, in file order."""

    offsets: npt.NDArray[np.int64]
    sizes: npt.NDArray[np.int64]
    keys: ByteColumn

    @staticmethod
    def of(entries: Sequence[IndexEntry], *, name: str, end: int) -> BlockIndex:
        """Check that blocks follow one another and end before `end`: so no index is larger than its file."""
        offsets = np.array([offset for offset, _, _ in entries], np.int64)
        sizes = np.array([size for _, size, _ in entries], np.int64)
        before = 0
        for offset, size, _ in entries:
            if offset < before or not HEADER.size <= size <= end - offset:
                raise damaged(
                    name,
                    found=f"an index entry for {size} bytes at position {offset}",
                    expected=f"blocks in order between {before} and {end}",
                )
            before = offset + size
        return BlockIndex(offsets, sizes, ByteColumn.of_bytes([key for _, _, key in entries]))


def encode_root(entries: Sequence[IndexEntry]) -> bytes:
    return b"".join(
        _PLACE.pack(offset, size) + put_vint(len(key) + 2) + _INT16.pack(len(key)) + key
        for offset, size, key in entries
    )


def decode_root(payload: BytesLike, count: int, *, has_levels_below: bool, name: str) -> list[IndexEntry]:
    data = memoryview(payload)
    entries: list[IndexEntry] = []
    at = 0
    try:
        for _ in range(count):
            offset, size = _PLACE.unpack_from(data, at)
            length, at = read_vint(data, at + _PLACE.size)
            entries.append((offset, size, _row(data, at, at + length)))
            at += length
        if at != len(data) and not (has_levels_below and at + _MIDDLE_BYTES == len(data)):
            raise ValueError(f"{len(data) - at} bytes after entry {count}")
    except (ValueError, struct.error) as error:
        raise damaged(name, found=f"a root index with {error}", expected=f"{count} entries") from error
    return entries


def decode_leaf(payload: BytesLike, *, name: str) -> list[IndexEntry]:
    data = memoryview(payload)
    entries: list[IndexEntry] = []
    try:
        (count,) = struct.unpack_from(">i", data)
        if count < 0 or 4 * (count + 2) > len(data):
            raise ValueError(f"{count} entries in {len(data)} bytes")
        starts = struct.unpack_from(f">{count + 1}i", data, 4)
        base = 4 * (count + 2)
        for start, stop in pairwise(starts):
            if not 0 <= start <= stop <= len(data) - base:
                raise ValueError(f"an entry from {start} to {stop}")
            offset, size = _PLACE.unpack_from(data[: base + stop], base + start)
            entries.append((offset, size, _row(data, base + start + _PLACE.size, base + stop)))
    except (ValueError, struct.error) as error:
        raise damaged(name, found=f"a leaf index with {error}", expected="entries in order") from error
    return entries


def _row(data: memoryview, start: int, stop: int) -> bytes:
    """Return the key proper, without its length and what follows it."""
    if stop > len(data) or stop - start < _INT16.size:
        raise ValueError("a key that is cut off")
    (length,) = _INT16.unpack_from(data, start)
    if not 0 <= length <= stop - start - _INT16.size:
        raise ValueError(f"a key of {length} bytes in {stop - start}")
    return bytes(data[start + _INT16.size : start + _INT16.size + length])
