"""The end of an HFile: what a reader must know first, and the file info.

    trailer   := b'TRABLK"$' varint length, message, zeros up to 4092 bytes, then the version: minor 1 byte, major 3
    file info := b"PBUF" varint length, message of entries, each a message of a name and a value

Fields of the trailer's message are numbered by `_Field`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum

from bucketlake.errors import UnsupportedError
from bucketlake.hfile.block import Codec, codec_of
from bucketlake.hfile.source import BytesLike, damaged
from bucketlake.hfile.wire import framed_message, put_field, put_varint, read_fields, signed

TRAILER_BYTES = 4096
_MAGIC = b'TRABLK"$'
_MAJOR_VERSION = 3
_INFO_MAGIC = b"PBUF"
_COMPARATOR = b"org.apache.hudi.io.storage.HoodieHBaseKVComparator"

_INDEX_LEVELS_MAX = 16
"""A level has at least two entries per entry of the level above, so no real file comes near."""


class _Field(IntEnum):
    FILE_INFO_AT = 1
    LOAD_ON_OPEN_AT = 2
    RAW_BYTES = 3
    DATA_INDEX_COUNT = 5
    META_INDEX_COUNT = 6
    ENTRY_COUNT = 7
    INDEX_LEVELS = 8
    FIRST_BLOCK_AT = 9
    LAST_BLOCK_AT = 10
    COMPARATOR = 11
    CODEC = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Trailer:
    """What the trailer says, as far as a reader or writer needs it."""

    load_on_open_at: int
    """Where the root index starts; the meta index and the file info follow it."""

    data_index_count: int
    """Entries of the root index."""

    meta_index_count: int
    entry_count: int
    index_levels: int
    codec: Codec
    file_info_at: int = 0
    raw_bytes: int = 0
    first_block_at: int = -1
    last_block_at: int = 0


def encode_trailer(trailer: Trailer) -> bytes:
    fields: tuple[tuple[int, int | bytes], ...] = (
        (_Field.FILE_INFO_AT, trailer.file_info_at),
        (_Field.LOAD_ON_OPEN_AT, trailer.load_on_open_at),
        (_Field.RAW_BYTES, trailer.raw_bytes),
        (_Field.DATA_INDEX_COUNT, trailer.data_index_count),
        (_Field.META_INDEX_COUNT, trailer.meta_index_count),
        (_Field.ENTRY_COUNT, trailer.entry_count),
        (_Field.INDEX_LEVELS, trailer.index_levels),
        (_Field.FIRST_BLOCK_AT, trailer.first_block_at),
        (_Field.LAST_BLOCK_AT, trailer.last_block_at),
        (_Field.COMPARATOR, _COMPARATOR),
        (_Field.CODEC, trailer.codec),
    )
    message = b"".join(put_field(number, value) for number, value in fields)
    start = _MAGIC + put_varint(len(message)) + message
    return start.ljust(TRAILER_BYTES - 4, b"\0") + _MAJOR_VERSION.to_bytes(4, "big")


def decode_trailer(data: memoryview, *, name: str, file_size: int) -> Trailer:
    """Read the last bytes of a file. What it says of positions and counts lies within the file."""
    if bytes(data[: len(_MAGIC)]) != _MAGIC:
        raise damaged(name, found="no trailer at its end", expected="an HFile, which ends with one")
    major = int.from_bytes(data[-3:], "big")
    if major != _MAJOR_VERSION:
        raise UnsupportedError(
            subject=f"the format of {name}",
            found=f"HFile version {major}",
            supported=f"version {_MAJOR_VERSION}",
            remedy="Have the file written again by a newer Hudi.",
        )
    try:
        numbers = {
            field: signed(value)
            for field, value in read_fields(framed_message(data[:-4], len(_MAGIC)))
            if isinstance(value, int)
        }
    except ValueError as error:
        raise damaged(name, found=f"a trailer with {error}", expected="a whole trailer") from error
    trailer = Trailer(
        load_on_open_at=numbers.get(_Field.LOAD_ON_OPEN_AT, -1),
        data_index_count=numbers.get(_Field.DATA_INDEX_COUNT, 0),
        meta_index_count=numbers.get(_Field.META_INDEX_COUNT, 0),
        entry_count=numbers.get(_Field.ENTRY_COUNT, 0),
        index_levels=numbers.get(_Field.INDEX_LEVELS, 1),
        codec=codec_of(numbers.get(_Field.CODEC, Codec.NONE), name),
    )
    counts = (trailer.data_index_count, trailer.meta_index_count, trailer.entry_count)
    if not 0 <= trailer.load_on_open_at <= file_size - TRAILER_BYTES or min(counts) < 0:
        raise damaged(name, found=f"{trailer}", expected=f"positions and counts within {file_size} bytes")
    if not 1 <= trailer.index_levels <= _INDEX_LEVELS_MAX:
        raise damaged(
            name, found=f"{trailer.index_levels} levels of index", expected=f"1 to {_INDEX_LEVELS_MAX}"
        )
    return trailer


def encode_info(info: Mapping[str, bytes]) -> bytes:
    """Encode entries, sorted by name: the same entries always give the same bytes."""
    entries = (put_field(1, name.encode()) + put_field(2, info[name]) for name in sorted(info))
    message = b"".join(put_field(1, entry) for entry in entries)
    return _INFO_MAGIC + put_varint(len(message)) + message


def decode_info(payload: BytesLike, *, name: str) -> dict[str, bytes]:
    data = memoryview(payload)
    try:
        if bytes(data[: len(_INFO_MAGIC)]) != _INFO_MAGIC:
            raise ValueError("another beginning than PBUF")
        info = {}
        for _, entry in read_fields(framed_message(data, len(_INFO_MAGIC))):
            parts = {number: bytes(part) for number, part in read_fields(_message(entry))}
            info[parts[1].decode()] = parts.get(2, b"")
    except (ValueError, KeyError, TypeError) as error:
        raise damaged(
            name, found=f"file info with {error}", expected="names and values in a message"
        ) from error
    return info


def _message(value: int | memoryview) -> memoryview:
    if isinstance(value, int):
        raise ValueError("a number in place of an entry")
    return value
