"""One block of an HFile.

Every number is big-endian:

    block   := magic stored raw previous type chunk data payload checksums
    magic   := 8 bytes, which say what kind of block it is
    stored  := int32    bytes after the header: payload and checksums
    raw     := int32    bytes of the payload before it was compressed
    previous:= int64    where the data block before this one starts; -1 if there is none
    type    := int8     0: no checksums
    chunk   := int32    bytes that share a checksum
    data    := int32    bytes of header and payload
    payload := compressed by the codec that the trailer names
    checksums := 4 bytes per chunk

Nobody verifies checksums, and ours are zeros. Hudi's reader takes their area off the end of the *uncompressed*
payload, and does not see records that start there. So we declare one chunk per block: its four bytes are fewer than
any record has.
"""

from __future__ import annotations

import struct
from enum import IntEnum

from isal import igzip_lib

from bucketlake.errors import UnsupportedError
from bucketlake.hfile.source import BytesLike, damaged

DATA = b"DATABLK*"
ROOT_INDEX = b"IDXROOT2"
INTERMEDIATE_INDEX = b"IDXINTE2"
LEAF_INDEX = b"IDXLEAF2"
FILE_INFO = b"FILEINF2"

HEADER = struct.Struct(">8siiqbii")
CHECKSUM_BYTES = 4
_ONE_CHUNK = 0x7FFFFFFF

# The speed of level 1 is what we want of this library; its higher levels hardly make files smaller.
_LEVEL = 1

_StreamError: type[Exception] = igzip_lib.IsalError  # type: ignore[assignment]  # the stub says: an instance

_INFLATION_MAX = 1032
"""No byte of a deflate stream can stand for more."""


class Codec(IntEnum):
    """How payloads are compressed, by the numbers that trailers use."""

    GZIP = 1
    NONE = 2


_OTHER_CODECS = {0: "LZO", 3: "SNAPPY", 4: "LZ4", 5: "BZIP2", 6: "ZSTD"}


def codec_of(number: int, name: str) -> Codec:
    try:
        return Codec(number)
    except ValueError:
        raise UnsupportedError(
            subject=f"the codec of {name}",
            found=f"{_OTHER_CODECS.get(number, 'unknown')} (number {number})",
            supported="GZIP and NONE",
            remedy="Have the file written with one of these; Hudi itself reads no other.",
        ) from None


def encode_block(magic: bytes, payload: BytesLike, codec: Codec, *, previous: int = -1) -> bytes:
    stored = payload
    if codec is Codec.GZIP:
        stored = igzip_lib.compress(payload, _LEVEL, igzip_lib.COMP_GZIP)
    size = len(stored)
    header = HEADER.pack(
        magic, size + CHECKSUM_BYTES, len(payload), previous, 0, _ONE_CHUNK, HEADER.size + size
    )
    return b"".join((header, stored, bytes(CHECKSUM_BYTES)))


def decode_block(
    data: memoryview, at: int, magics: tuple[bytes, ...], codec: Codec, *, name: str, offset: int
) -> tuple[BytesLike, int]:
    """Return the payload of the block at a position of `data`, and where the block ends.

    `offset` is where `data` starts in the file, for errors.
    """
    where = f"the block at position {offset + at}"
    if len(data) - at < HEADER.size:
        raise damaged(name, found=f"{len(data) - at} bytes of {where}", expected="a whole header")
    magic, stored, raw, _, _, _, size = HEADER.unpack_from(data, at)
    if magic not in magics:
        expected = " or ".join(magic.decode() for magic in magics)
        raise damaged(name, found=f"{magic!r} as the kind of {where}", expected=expected)
    end = at + HEADER.size + stored
    if stored < 0 or end > len(data) or not HEADER.size <= size <= HEADER.size + stored or raw < 0:
        raise damaged(
            name,
            found=f"lengths {stored}, {raw} and {size} in {where}",
            expected=f"lengths that add up, and at most {len(data) - at} bytes",
        )
    payload = data[at + HEADER.size : at + size]
    if codec is Codec.NONE:
        if len(payload) != raw:
            raise damaged(name, found=f"{len(payload)} bytes in {where}", expected=f"{raw} bytes")
        return payload, end
    return _inflate(payload, raw, name=name, where=where), end


def _inflate(payload: memoryview, size: int, *, name: str, where: str) -> bytes:
    if size > _INFLATION_MAX * len(payload):
        raise damaged(
            name, found=f"{size} bytes said to be in {len(payload)} bytes of {where}", expected="fewer"
        )
    inflater = igzip_lib.IgzipDecompressor(flag=igzip_lib.DECOMP_GZIP)
    try:
        # One byte more than there should be, so that a stream that goes on is found out.
        inflated: bytes = inflater.decompress(payload, size + 1)
    except (_StreamError, EOFError) as error:
        raise damaged(name, found=f"{where} with a broken stream ({error})", expected="gzip") from error
    if not inflater.eof or len(inflated) != size:
        found = f"{len(inflated)} bytes{'' if inflater.eof else ' and an unfinished stream'} in {where}"
        raise damaged(name, found=found, expected=f"{size} bytes")
    return inflated
