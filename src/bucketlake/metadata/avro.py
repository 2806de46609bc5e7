"""Numbers and texts as Avro spells them, one at a time: for records of which there are few."""

from __future__ import annotations


def spell_number(value: int) -> bytes:
    """Spell a number: zigzag, seven bits at a time.

    >>> spell_number(-1), spell_number(64)
    (b'\\x01', b'\\x80\\x01')
    """
    rest = value << 1 if value >= 0 else (-value << 1) - 1
    spelled = bytearray()
    while rest > 0x7F:
        spelled.append(rest & 0x7F | 0x80)
        rest >>= 7
    spelled.append(rest)
    return bytes(spelled)


def spell_text(text: str) -> bytes:
    """Spell a text: its length, then its bytes.

    >>> spell_text("é")
    b'\\x04\\xc3\\xa9'
    """
    spelled = text.encode()
    return spell_number(len(spelled)) + spelled


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


class Reader:
    """Reads one value after the other. What does not fit raises `IndexError` or `ValueError`."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def number(self) -> int:
        found, self._at = read_number(self._data, self._at)
        return found

    def flag(self) -> bool:
        self._at += 1
        return self._data[self._at - 1] != 0

    def text(self) -> str:
        length = self.number()
        if not 0 <= length <= len(self._data) - self._at:
            raise ValueError(f"a text of {length} bytes")
        self._at += length
        return self._data[self._at - length : self._at].decode()
