"""One log block on disk, and nothing else.

A log file is a run of blocks. Every number is big-endian:

    block   := magic size version type header content footer tail
    magic   := b"#HUDI#"
    size    := int64    bytes after this field, tail included
    version := int32    1
    type    := int32    ordinal of `BlockType`
    header  := pairs
    content := int64 length, then that many bytes
    footer  := pairs
    tail    := int64    bytes before this field, magic included
    pairs   := int32 count, then (int32 key, int32 length, utf-8 text) each

`size` lets a reader jump forwards and `tail` backwards; `tail == size + 6`
always, and both sides check it.

Our blocks end their header with a BLOCK_IDENTIFIER, a text that no reader of
Hudi's looks at: "bucketlake.crc32=" and eight hexadecimal digits, the CRC-32 of
all bytes of the block but these eight. A footer would be the place for it, but
Hudi fails on one that is not empty.

A writer that dies leaves a torn block, and the next writer may append after
it. A block is therefore taken for torn when its tail does not agree with its
size, or when neither a magic nor the end of the file follows; it is handed
out as CORRUPT, and reading goes on at the next magic. So are fewer than six
bytes after the last block, a magic that was never finished.

This module turns values into bytes and bytes into values. It opens no file
(that is `storage`) and knows no records (those are `avro_columns` and
`deletes`).
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum

from bucketlake.errors import CorruptTableError, UnsupportedError

MAGIC = b"#HUDI#"
FORMAT_VERSION = 1

_INT32 = struct.Struct(">i")
_INT64 = struct.Struct(">q")
_PAIR = struct.Struct(">ii")
_TAIL_BYTES = 8
_SEARCH_BYTES = 1 << 16
_SUM_MARK = "bucketlake.crc32="
_SUM_DIGITS = 8


class BlockType(IntEnum):
    """What a block holds; the number on disk."""

    COMMAND = 0
    DELETE = 1
    CORRUPT = 2
    AVRO_DATA = 3
    HFILE_DATA = 4
    PARQUET_DATA = 5
    CDC_DATA = 6
    REFERENCE = 64
    """Ours; not the next number of Hudi's."""


class HeaderKey(IntEnum):
    """What a header says about its block; the number on disk."""

    INSTANT_TIME = 0
    TARGET_INSTANT_TIME = 1
    SCHEMA = 2
    COMMAND_BLOCK_TYPE = 3
    COMPACTED_BLOCK_TIMES = 4
    RECORD_POSITIONS = 5
    BLOCK_IDENTIFIER = 6
    IS_PARTIAL = 7
    BASE_FILE_INSTANT_TIME_OF_RECORD_POSITIONS = 8


@dataclass(frozen=True, slots=True)
class Block:
    type: BlockType
    header: Mapping[HeaderKey, str]
    content: memoryview
    """A view, not a copy; of a CORRUPT block, all bytes up to the next magic."""
    offset: int
    """Where `content` begins in the file."""


def encode_block(type: BlockType, header: Mapping[HeaderKey, str], content: bytes | memoryview) -> bytes:
    """Return the bytes of a block, to be appended to a log file.

    >>> len(encode_block(BlockType.DELETE, {HeaderKey.INSTANT_TIME: "001"}, b"")) - 14
    76
    """
    assert type is not BlockType.CORRUPT, "a corrupt block is found, never written"
    assert HeaderKey.BLOCK_IDENTIFIER not in header, "the place of the checksum"
    pairs = _encode_pairs({**header, HeaderKey.BLOCK_IDENTIFIER: _SUM_MARK + "0" * _SUM_DIGITS})
    footer = _encode_pairs({})
    size = _PAIR.size + len(pairs) + _INT64.size + len(content) + len(footer) + _TAIL_BYTES
    before = b"".join((MAGIC, _INT64.pack(size), _PAIR.pack(FORMAT_VERSION, type), pairs[:-_SUM_DIGITS]))
    after = (_INT64.pack(len(content)), content, footer, _INT64.pack(size + len(MAGIC)))
    return b"".join((before, _spelled_sum(before, *after), *after))


def decode_blocks(data: bytes | memoryview, *, path: str) -> Iterator[Block]:
    """Yield the blocks of a log file, torn ones as CORRUPT.

    A file that begins with other bytes than a block is no log file and raises `CorruptTableError`; so does
    a whole block whose inside contradicts its size or its checksum. A block type, header key or version of a later Hudi
    raises `UnsupportedError`, because skipping it would lose writes.
    """
    data = memoryview(data).cast("B")
    position = 0
    while position + len(MAGIC) <= len(data):
        if data[position : position + len(MAGIC)] != MAGIC:
            raise _corrupt(path, position, f"the bytes {data[position : position + len(MAGIC)].hex(' ')}")
        end = _end_of_block(data, position)
        if end is None:
            start = position + len(MAGIC)
            magic = find_bytes(data, MAGIC, start)
            end = magic if magic >= 0 else len(data)
            yield Block(BlockType.CORRUPT, {}, data[start:end], start)
        else:
            yield _decode_block(data, position, end, path)
        position = end
    if position < len(data):
        yield Block(BlockType.CORRUPT, {}, data[position:], position)


def has_checksum(block: Block) -> bool:
    """Say whether there is a mark in a torn block that only a block of ours has, and those are never put in part."""
    return find_bytes(block.content, _SUM_MARK.encode()) >= 0


def _end_of_block(data: memoryview, position: int) -> int | None:
    """Return where the block at `position` ends; None if it is torn."""
    body = position + len(MAGIC) + _INT64.size
    if body > len(data):
        return None
    (size,) = _INT64.unpack_from(data, body - _INT64.size)
    end: int = body + size
    if size < _TAIL_BYTES or end > len(data):
        return None
    (tail,) = _INT64.unpack_from(data, end - _TAIL_BYTES)
    if tail != size + len(MAGIC):
        return None
    following = data[end : end + len(MAGIC)]
    if len(following) == len(MAGIC) and following != MAGIC:
        return None
    return end


def find_bytes(data: memoryview, wanted: bytes, start: int = 0) -> int:
    """Return where `wanted` next stands in `data`, from `start` on; -1 if it does not.

    A view cannot be searched, so pieces of it are copied, small ones: fresh memory for a large one costs more than
    the search.

    >>> find_bytes(memoryview(b"one two two"), b"two", 5)
    8
    """
    piece_bytes = max(_SEARCH_BYTES, 2 * len(wanted))
    while start < len(data):
        found = bytes(data[start : start + piece_bytes]).find(wanted)
        if found >= 0:
            return start + found
        if start + piece_bytes >= len(data):
            break
        start += piece_bytes - len(wanted) + 1
    return -1


def _decode_block(data: memoryview, block_start: int, end: int, path: str) -> Block:
    start = block_start + len(MAGIC) + _INT64.size
    stop = end - _TAIL_BYTES
    try:
        version, ordinal = _PAIR.unpack_from(data, start)
        if version != FORMAT_VERSION:
            raise _unsupported(path, start, f"of log format {version}", f"log format {FORMAT_VERSION}")
        if ordinal not in BlockType._value2member_map_ or ordinal == BlockType.CORRUPT:
            names = ", ".join(kind.name for kind in BlockType if kind is not BlockType.CORRUPT)
            raise _unsupported(path, start, f"of type {ordinal}", f"the types {names}")
        header, position = _decode_pairs(data, start + _PAIR.size, stop, path)
        _check_sum(data, header, (block_start, position, end), path)
        (length,) = _INT64.unpack_from(data, position)
        position += _INT64.size
        if not 0 <= length <= stop - position:
            raise _corrupt(
                path, position, f"a content of {length} bytes in a block that has {stop - position}"
            )
        content = data[position : position + length]
        _, after = _decode_pairs(data, position + length, stop, path)
    except struct.error as error:
        raise _corrupt(path, start, "a block that ends inside its header") from error
    if after != stop:
        raise _corrupt(path, after, f"{stop - after} bytes too many in a block")
    return Block(BlockType(ordinal), header, content, position)


def _check_sum(
    data: memoryview, header: dict[HeaderKey, str], places: tuple[int, int, int], path: str
) -> None:
    """Compare a block with the checksum in its header, and take that out; others than ours have none."""
    start, header_end, end = places
    said = header.pop(HeaderKey.BLOCK_IDENTIFIER, "")
    is_ours = len(said) == len(_SUM_MARK) + _SUM_DIGITS or _SUM_MARK in said
    # A mark elsewhere means that what leads to it is damaged.
    if not is_ours and not any(_SUM_MARK in text for text in header.values()):
        return
    digits = header_end - _SUM_DIGITS
    found = _spelled_sum(data[start:digits], data[header_end:end])
    if said != _SUM_MARK + found.decode():
        raise _corrupt(path, start, f"a block with the checksum {found.decode()} that says {said!r}")


def _spelled_sum(*pieces: bytes | memoryview) -> bytes:
    value = 0
    for piece in pieces:
        value = zlib.crc32(piece, value)
    return f"{value:0{_SUM_DIGITS}x}".encode()


def _encode_pairs(pairs: Mapping[HeaderKey, str]) -> bytes:
    parts = [_INT32.pack(len(pairs))]
    for key, text in pairs.items():
        encoded = text.encode()
        parts += (_PAIR.pack(key, len(encoded)), encoded)
    return b"".join(parts)


def _decode_pairs(data: memoryview, position: int, stop: int, path: str) -> tuple[dict[HeaderKey, str], int]:
    (count,) = _INT32.unpack_from(data, position)
    position += _INT32.size
    pairs: dict[HeaderKey, str] = {}
    for _ in range(count):
        ordinal, length = _PAIR.unpack_from(data, position)
        position += _PAIR.size
        if not 0 <= length <= stop - position:
            raise _corrupt(
                path, position, f"a header text of {length} bytes in a block that has {stop - position}"
            )
        if ordinal not in HeaderKey._value2member_map_:
            raise _unsupported(path, position, f"one with header {ordinal}", f"headers 0 to {max(HeaderKey)}")
        try:
            pairs[HeaderKey(ordinal)] = str(data[position : position + length], "utf-8")
        except UnicodeDecodeError as error:
            raise _corrupt(path, position, "a header that is not UTF-8") from error
        position += length
    if position > stop:
        raise _corrupt(path, position, "a header that runs over the end of its block")
    return pairs, position


def _corrupt(path: str, position: int, found: str) -> CorruptTableError:
    return CorruptTableError(
        path=path,
        found=f"{found}, at byte {position}",
        expected="a log block",
        remedy="Restore the file from a copy, or roll back the commit that wrote it.",
    )


def _unsupported(path: str, position: int, found: str, supported: str) -> UnsupportedError:
    return UnsupportedError(
        subject=f"the log block at byte {position} of {path}",
        found=found,
        supported=supported,
        remedy="Compact the table with the engine that wrote it.",
    )
