"""Block bytes are shared with Hudi: one wrong length and neither reads the other's writes."""

from __future__ import annotations

import struct

import pytest

from bucketlake.errors import CorruptTableError, UnsupportedError
from bucketlake.logfile import BlockType, HeaderKey, decode_blocks, encode_block
from bucketlake.logfile.frame import find_bytes
from judges.hudi_blocks import hudi_block

# A rollback, as docs/formats/log-file.md takes it apart.
ROLLBACK = bytes.fromhex(
    "234855444923"  # magic
    "000000000000003f"  # size: 63 bytes follow
    "00000001 00000000"  # format 1, COMMAND
    "00000003"  # three header entries
    "00000000 00000003 303033"  # INSTANT_TIME "003"
    "00000001 00000003 303032"  # TARGET_INSTANT_TIME "002"
    "00000003 00000001 30"  # COMMAND_BLOCK_TYPE "0"
    "0000000000000000"  # no content
    "00000000"  # no footer
    "0000000000000045"  # tail: 69 bytes stand before it
)
ROLLBACK_HEADER = {
    HeaderKey.INSTANT_TIME: "003",
    HeaderKey.TARGET_INSTANT_TIME: "002",
    HeaderKey.COMMAND_BLOCK_TYPE: "0",
}


def block(content: bytes = b"rows", instant: str = "001") -> bytes:
    return hudi_block(BlockType.AVRO_DATA, {HeaderKey.INSTANT_TIME: instant}, content)


OUR_ROLLBACK = bytes.fromhex(
    "234855444923"  # magic
    "0000000000000060"  # size: 96 bytes follow
    "00000001 00000000"  # format 1, COMMAND
    "00000004"  # four header entries
    "00000000 00000003 303033"  # INSTANT_TIME "003"
    "00000001 00000003 303032"  # TARGET_INSTANT_TIME "002"
    "00000003 00000001 30"  # COMMAND_BLOCK_TYPE "0"
    "00000006 00000019"  # BLOCK_IDENTIFIER, 25 bytes
    "6275636b65746c616b652e63726333323d"  # "bucketlake.crc32="
    "6436616638376162"  # "d6af87ab"
    "0000000000000000"  # no content
    "00000000"  # no footer
    "0000000000000066"  # tail: 102 bytes stand before it
)


def test_a_block_is_these_bytes() -> None:
    assert encode_block(BlockType.COMMAND, ROLLBACK_HEADER, b"") == OUR_ROLLBACK
    (decoded,) = decode_blocks(ROLLBACK, path="f")
    assert (decoded.type, decoded.header, bytes(decoded.content)) == (BlockType.COMMAND, ROLLBACK_HEADER, b"")


def test_an_empty_file_has_no_blocks() -> None:
    assert list(decode_blocks(b"", path="f")) == []


def test_content_is_a_view_of_the_file() -> None:
    data = memoryview(block())
    (decoded,) = decode_blocks(data, path="f")
    assert decoded.content.obj is data.obj


def test_a_file_that_begins_otherwise_is_no_log_file() -> None:
    with pytest.raises(CorruptTableError, match=r"some\.log.*at byte 0"):
        list(decode_blocks(b"PAR1....", path="some.log"))


def test_a_block_cut_off_at_the_end_of_the_file_is_corrupt() -> None:
    first, torn = decode_blocks(block() + block()[:-1], path="f")
    assert first.type is BlockType.AVRO_DATA
    assert (torn.type, torn.offset) == (BlockType.CORRUPT, len(block()) + 6)


def test_a_block_whose_tail_disagrees_with_its_size_is_corrupt() -> None:
    wrong = block()[:-8] + struct.pack(">q", 99)
    torn, second = decode_blocks(wrong + block(b"later"), path="f")
    assert torn.type is BlockType.CORRUPT
    assert bytes(second.content) == b"later"


def test_a_block_that_neither_magic_nor_end_follows_is_corrupt() -> None:
    torn, second = decode_blocks(block() + b"garbage" + block(b"later"), path="f")
    assert torn.type is BlockType.CORRUPT
    assert bytes(second.content) == b"later"


def test_the_next_magic_is_found_across_the_pieces_of_a_search() -> None:
    for rest in range((1 << 20) - 8, (1 << 20) + 2):
        torn = block()[:14] + bytes(rest - 8)
        first, second = decode_blocks(torn + block(b"later"), path="f")
        assert first.type is BlockType.CORRUPT
        assert bytes(second.content) == b"later"


@pytest.mark.parametrize(
    ("at", "number", "words"),
    [
        (14, 2, "of log format 2"),
        (18, 7, "of type 7"),
        (18, 2, "of type 2"),
        (18, -1, "of type -1"),
        (26, 9, "one with header 9"),
    ],
)
def test_a_block_of_a_later_hudi_is_refused_not_skipped(at: int, number: int, words: str) -> None:
    data = bytearray(block())
    struct.pack_into(">i", data, at, number)
    with pytest.raises(UnsupportedError, match=words) as caught:
        list(decode_blocks(bytes(data), path="some.log"))
    assert "some.log" in str(caught.value)


@pytest.mark.parametrize(("at", "number"), [(22, 1000), (30, 1000), (30, -1), (37, -1), (41, 1000), (49, 5)])
def test_a_whole_block_that_contradicts_itself_is_an_error(at: int, number: int) -> None:
    data = bytearray(block())
    struct.pack_into(">i", data, at, number)
    with pytest.raises((CorruptTableError, UnsupportedError), match=r"some\.log"):
        list(decode_blocks(bytes(data), path="some.log"))


def test_a_header_that_is_no_text_is_an_error() -> None:
    with pytest.raises(CorruptTableError, match="not UTF-8"):
        list(decode_blocks(block().replace(b"001", b"\xff\xff\xff"), path="f"))


@pytest.mark.parametrize("before", [0, 1, 65_530, 65_531, 65_535, 65_536, 131_065, 200_000])
@pytest.mark.parametrize("wanted", [b"key", b"k" * 70_000])
def test_bytes_are_found_wherever_they_stand(before: int, wanted: bytes) -> None:
    data = b"." * before + wanted + b"." * 9
    assert find_bytes(memoryview(data), wanted) == before
    assert find_bytes(memoryview(data), wanted + b"!") == -1
    assert find_bytes(memoryview(data), wanted, before + 1) == -1
