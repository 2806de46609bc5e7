"""What the kernels do, one record after the other: slow, and meant to be read.

Property tests hold `encode` and `HFile` to it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence

Record = tuple[bytes, bytes]
"""A key and its value."""

_LENGTHS = struct.Struct(">iih")
_CELL_TAIL = struct.pack(">bqb", 0, (1 << 63) - 1, 4)
"""No family, the largest timestamp, a put."""


def encode_record(key: bytes, value: bytes) -> bytes:
    cell_size = 2 + len(key) + len(_CELL_TAIL)
    return _LENGTHS.pack(cell_size, len(value), len(key)) + key + _CELL_TAIL + value + b"\0"


def encode_blocks(records: Iterable[Record], block_bytes: int) -> list[bytes]:
    """Return the payloads of the data blocks."""
    blocks: list[bytes] = []
    for key, value in records:
        record = encode_record(key, value)
        if blocks and len(blocks[-1]) + len(record) <= block_bytes:
            blocks[-1] += record
        else:
            blocks.append(record)
    return blocks


def decode_block(block: bytes) -> Iterator[Record]:
    """Yield the records of a payload; a ValueError says that it cannot be one."""
    at = 0
    while at < len(block):
        if len(block) - at < _LENGTHS.size + len(_CELL_TAIL) + 1:
            raise ValueError(f"position {at}: half a record")
        cell_size, value_size, key_size = _LENGTHS.unpack_from(block, at)
        key_start = at + _LENGTHS.size
        value_start = at + 8 + cell_size
        value_stop = value_start + value_size
        if key_size < 0 or key_size + 12 > cell_size or value_size < 0 or value_stop >= len(block):
            raise ValueError(f"position {at}: lengths that do not add up")
        yield block[key_start : key_start + key_size], block[value_start:value_stop]
        at = value_stop + _vint_size(block[value_stop])
        if at > len(block):
            raise ValueError("half a vint")


def _vint_size(first: int) -> int:
    """Return the bytes of a Hadoop vint that begins so."""
    number = first - 256 if first > 127 else first
    if number >= -112:
        return 1
    return -111 - number if number >= -120 else -119 - number


def look_up(records: Sequence[Record], keys: Sequence[bytes]) -> list[tuple[int, bytes]]:
    """Return the positions of the keys that are there, each with its value."""
    values = dict(records)
    return [(at, values[key]) for at, key in enumerate(keys) if key in values]


def with_prefixes(records: Sequence[Record], prefixes: Sequence[bytes]) -> list[Record]:
    return [record for record in records if record[0].startswith(tuple(prefixes))]


def utf16_order(key: bytes) -> bytes:
    """Return what to sort UTF-8 keys by to have them in Java's order of strings.

    >>> sorted(["\\uff21", "\\N{GRINNING FACE}"], key=lambda text: utf16_order(text.encode()))
    ['😀', 'Ａ']
    """
    return key.decode().encode("utf-16-be")
