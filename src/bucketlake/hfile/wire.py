"""Numbers and messages inside HFiles.

    varint  := seven bits a byte, lowest first; protobuf's
    vint    := Hadoop's: one byte for -112..127, else a byte that gives sign and length, then the number
    message := (varint tag, value)*, tag = 8 * field + kind, kind 0 varint, 1 eight bytes, 2 length and bytes, 5 four

Whatever does not parse is a ValueError: the caller knows the file's name.
"""

from __future__ import annotations

from collections.abc import Iterator

_WORD = (1 << 64) - 1


def put_varint(number: int) -> bytes:
    """Encode a number; a negative one as its 64-bit complement.

    >>> put_varint(300).hex(), len(put_varint(-1))
    ('ac02', 10)
    """
    number &= _WORD
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def read_varint(data: memoryview, at: int) -> tuple[int, int]:
    """Return the number at a position, and where it ends."""
    number = 0
    for shift in range(0, 70, 7):
        if at >= len(data):
            raise ValueError("a number that ends with the bytes")
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number & _WORD, at
    raise ValueError("a number of more than 64 bits")


def signed(number: int) -> int:
    """Return a 64-bit number with its sign.

    >>> signed(2**64 - 1), signed(7)
    (-1, 7)
    """
    return number - (1 << 64) if number >> 63 else number


def put_vint(number: int) -> bytes:
    """Encode a number that is not negative.

    >>> put_vint(38).hex(), put_vint(200).hex(), put_vint(300).hex()
    ('26', '8fc8', '8e012c')
    """
    assert number >= 0
    if number <= 127:
        return bytes([number])
    magnitude = number.to_bytes((number.bit_length() + 7) // 8, "big")
    return bytes([256 - 112 - len(magnitude)]) + magnitude


def read_vint(data: memoryview, at: int) -> tuple[int, int]:
    """Return the length at a position, and where it ends; a negative one is an error."""
    if at >= len(data):
        raise ValueError("a number that ends with the bytes")
    first = data[at]
    if first <= 127:
        return first, at + 1
    size = 256 - 112 - first
    if not 1 <= size <= 8 or at + 1 + size > len(data):
        raise ValueError("a length that is negative or cut off")
    return int.from_bytes(data[at + 1 : at + 1 + size], "big"), at + 1 + size


def put_field(number: int, value: int | bytes) -> bytes:
    if isinstance(value, int):
        return put_varint(number << 3) + put_varint(value)
    return put_varint(number << 3 | 2) + put_varint(len(value)) + value


def read_fields(message: memoryview) -> Iterator[tuple[int, int | memoryview]]:
    """Yield the fields of a message: numbers of varints, bytes of everything else."""
    at = 0
    while at < len(message):
        tag, at = read_varint(message, at)
        match tag & 7:
            case 0:
                number, at = read_varint(message, at)
                yield tag >> 3, number
                continue
            case 1:
                length = 8
            case 2:
                length, at = read_varint(message, at)
            case 5:
                length = 4
            case kind:
                raise ValueError(f"a field of the unknown kind {kind}")
        if length > len(message) - at:
            raise ValueError("a field that is longer than its message")
        yield tag >> 3, message[at : at + length]
        at += length


def framed_message(data: memoryview, at: int) -> memoryview:
    """Return the message whose length stands at a position."""
    length, at = read_varint(data, at)
    if length > len(data) - at:
        raise ValueError("a message that is longer than the bytes")
    return data[at : at + length]
