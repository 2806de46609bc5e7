"""A log file is the blocks it was made of, also after a writer died in the middle of one."""

from __future__ import annotations

import contextlib

from hypothesis import given
from hypothesis import strategies as st

from bucketlake.errors import CorruptTableError, UnsupportedError
from bucketlake.logfile import BlockType, HeaderKey, decode_blocks, encode_block
from bucketlake.logfile.frame import has_checksum
from judges.hudi_blocks import hudi_block

Written = tuple[BlockType, dict[HeaderKey, str], bytes]

# A magic inside a block is legal; after a torn one it is where reading goes on, so these contents have none.
contents = st.binary(max_size=200).filter(lambda content: b"#" not in content)
blocks: st.SearchStrategy[Written] = st.tuples(
    st.sampled_from([kind for kind in BlockType if kind is not BlockType.CORRUPT]),
    st.dictionaries(
        st.sampled_from([key for key in HeaderKey if key is not HeaderKey.BLOCK_IDENTIFIER]),
        # Nor does a text say what the mark of our checksum says.
        st.text(st.characters(codec="utf-8", exclude_characters="#"), max_size=20).filter(
            lambda text: "crc32=" not in text
        ),
    ),
    contents,
)


def read(data: bytes) -> list[Written]:
    return [
        (block.type, dict(block.header), bytes(block.content))
        for block in decode_blocks(data, path="f")
        if block.type is not BlockType.CORRUPT
    ]


@given(st.lists(blocks, max_size=5))
def test_a_log_file_decodes_to_the_blocks_it_was_made_of(written: list[Written]) -> None:
    data = b"".join(encode_block(*block) for block in written)
    assert read(data) == written
    for block in decode_blocks(data, path="f"):
        assert data[block.offset : block.offset + len(block.content)] == bytes(block.content)


@given(st.lists(blocks, max_size=5))
def test_blocks_without_a_checksum_are_read_as_they_are(written: list[Written]) -> None:
    assert read(b"".join(hudi_block(*block) for block in written)) == written


@given(st.lists(blocks, max_size=3), blocks, st.lists(blocks, max_size=3), st.data())
def test_a_torn_block_costs_itself_and_nothing_else(
    before: list[Written], torn: Written, after: list[Written], data: st.DataObject
) -> None:
    whole = hudi_block(*torn)
    kept = data.draw(st.integers(6, len(whole) - 1), label="bytes written before the writer died")
    file = b"".join(
        (
            *(encode_block(*block) for block in before),
            whole[:kept],
            *(encode_block(*block) for block in after),
        )
    )
    assert read(file) == before + after


@given(st.lists(blocks, min_size=1, max_size=3), st.binary(max_size=5))
def test_less_than_a_magic_at_the_end_means_nothing(written: list[Written], rest: bytes) -> None:
    assert read(b"".join(encode_block(*block) for block in written) + rest) == written


@given(blocks, st.data())
def test_a_flipped_bit_of_a_block_of_ours_is_always_seen(block: Written, data: st.DataObject) -> None:
    file = bytearray(encode_block(*block))
    place = data.draw(st.integers(0, 8 * len(file) - 1), label="bit")
    file[place // 8] ^= 1 << place % 8
    try:
        (torn,) = decode_blocks(bytes(file), path="f")
    except (CorruptTableError, UnsupportedError):
        return
    assert torn.type is BlockType.CORRUPT and has_checksum(torn)


@given(blocks, st.data())
def test_flipped_bytes_give_blocks_or_an_error_of_ours(block: Written, data: st.DataObject) -> None:
    file = bytearray(hudi_block(*block))
    for _ in range(data.draw(st.integers(1, 3))):
        file[data.draw(st.integers(0, len(file) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(CorruptTableError, UnsupportedError):
        read(bytes(file))
