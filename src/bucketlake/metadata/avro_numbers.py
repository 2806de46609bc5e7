"""Numbers as Avro spells them: zigzag, seven bits at a time."""

from __future__ import annotations


def number(value: int) -> bytes:
    """Spell a number.

    >>> number(-1), number(300)
    (b'\\x01', b'\\xd8\\x04')
    """
    rest = value << 1 if value >= 0 else (-value << 1) - 1
    spelled = bytearray()
    while rest > 0x7F:
        spelled.append(rest & 0x7F | 0x80)
        rest >>= 7
    spelled.append(rest)
    return bytes(spelled)


def read_number(data: bytes, at: int) -> tuple[int, int]:
    """Read a number; return it and where the next thing begins."""
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at
        shift += 7
        if shift > 63:
            raise ValueError("a number of more than 64 bits")
