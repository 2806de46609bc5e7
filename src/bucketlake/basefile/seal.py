"""The checksum of a Parquet footer, which Parquet itself does not have.

    file   := data footer length "PAR1"
    length := int32, little-endian        bytes of the footer
    footer := thrift fields, seal, 00     the seal is a field, and the zero ends the struct
    seal   := 08 fe ff 03                 field 32767, binary: the one that Parquet leaves to extensions
              19                          25 bytes follow
              "bucketlake.crc32=" digits
    digits := eight hexadecimal           CRC-32 of all from the footer's first byte to the file's last but the digits

Pages have checksums of their own, and the footer tells that of all bytes before it (`DATA_CRC_KEY`). With the seal no
bit of a file is without one. Readers pass over a field that they do not know.
"""

from __future__ import annotations

import zlib

import pyarrow as pa

from bucketlake.errors import CorruptTableError

DATA_CRC_KEY = "bucketlake.data_crc32"

_MARK = b"bucketlake.crc32="
_DIGITS = 8
_FIELD = b"\x08\xfe\xff\x03" + bytes([len(_MARK) + _DIGITS])
_STOP = b"\x00"
_LENGTH = 4
_MAGIC = b"PAR1"
_END = len(_STOP) + _LENGTH + len(_MAGIC)
"""What stands after the digits."""


def spell_crc(value: int) -> str:
    return f"{value:0{_DIGITS}x}"


def seal_footer(footer: bytes) -> bytes:
    """Put a seal into the end of a Parquet file: a footer, its length, and the magic."""
    fields = footer[:-_END]
    assert footer[-_END : -_END + 1] == _STOP and footer.endswith(_MAGIC), "a footer ends in a stop byte"
    before = fields + _FIELD + _MARK
    length = len(before) + _DIGITS + len(_STOP)
    after = _STOP + length.to_bytes(_LENGTH, "little") + _MAGIC
    return before + spell_crc(zlib.crc32(after, zlib.crc32(before))).encode() + after


def check_seal(source: pa.NativeFile, *, path: str) -> bool:
    """Compare a file's footer with its seal; return whether it has one."""
    size = source.size()
    tail_bytes = len(_FIELD) + len(_MARK) + _DIGITS + _END
    if size < tail_bytes:
        return False
    source.seek(size - tail_bytes)
    tail = source.read(tail_bytes)
    if tail[len(_FIELD) : len(_FIELD) + len(_MARK)] != _MARK:
        return False
    length = int.from_bytes(tail[-_LENGTH - len(_MAGIC) : -len(_MAGIC)], "little")
    start = size - len(_MAGIC) - _LENGTH - length
    said = tail[-_END - _DIGITS : -_END]
    if 0 <= start <= size - tail_bytes:
        source.seek(start)
        before = memoryview(source.read_buffer(size - start - _DIGITS - _END))
        if spell_crc(zlib.crc32(tail[-_END:], zlib.crc32(before))).encode() == said:
            return True
    raise damaged(path, "a footer that is not the one its checksum was made of")


def check_data(source: pa.NativeFile, *, path: str, crc: str) -> None:
    """Compare all bytes before the footer with what the footer says of them."""
    size = source.size()
    source.seek(size - _LENGTH - len(_MAGIC))
    left = size - _LENGTH - len(_MAGIC) - int.from_bytes(source.read(_LENGTH), "little")
    source.seek(0)
    value = 0
    while left > 0:
        piece = source.read_buffer(min(left, 1 << 20))
        value = zlib.crc32(piece, value)
        left -= piece.size
    if spell_crc(value) != crc:
        raise damaged(path, f"data with the checksum {spell_crc(value)}, and a footer that says {crc}")


def damaged(path: str, found: str) -> CorruptTableError:
    return CorruptTableError(
        path=path,
        found=found,
        expected="a base file as it was written",
        remedy="Restore the file from a copy, or roll back the commit that wrote it.",
    )
