"""Bytes that lie are refused before memory is taken on their word: a damaged index may not take a process down."""

from __future__ import annotations

import gzip
import struct
import tracemalloc
from collections.abc import Sequence

import pyarrow as pa
import pytest

from bucketlake.errors import DamagedFileError
from bucketlake.hfile import Codec, HFile, InMemory, encode
from bucketlake.hfile.block import HEADER, ROOT_INDEX, encode_block
from bucketlake.hfile.source import Range
from bucketlake.hfile.trailer import Trailer, encode_info, encode_trailer

KEYS = pa.array([f"{number:03d}" for number in range(100)])
FILE = encode(KEYS, pa.array([b"value"] * 100), block_bytes=500)


def read_all(data: bytes) -> None:
    file = HFile.open(InMemory(data, "x.hfile"))
    file.look_up(KEYS)
    file.with_prefixes(pa.array([""]))
    file.scan()


def changed(at: int, new: bytes) -> bytes:
    return FILE[:at] + new + FILE[at + len(new) :]


@pytest.mark.parametrize("size", [0, 1, 4095, 4096, 4097, len(FILE) // 2, len(FILE) - 1])
def test_a_file_that_is_cut_is_refused(size: int) -> None:
    with pytest.raises(DamagedFileError, match=r"x\.hfile: found"):
        read_all(FILE[:size])
    with pytest.raises(DamagedFileError):
        read_all(FILE[-size:] if size else b"")


@pytest.mark.parametrize("field", [8, 12, 29], ids=["stored", "raw", "data"])
@pytest.mark.parametrize("length", [-1, -(2**31), 0, 1, 1 << 20, 2**31 - 1])
def test_a_length_that_lies_is_refused(field: int, length: int) -> None:
    with pytest.raises(DamagedFileError):
        read_all(changed(field, struct.pack(">i", length)))


def test_a_stream_that_goes_on_beyond_its_length_is_not_inflated_further() -> None:
    bomb = gzip.compress(bytes(50 << 20))
    header = HEADER.pack(ROOT_INDEX, len(bomb) + 4, 100, -1, 0, 0x7FFFFFFF, HEADER.size + len(bomb))
    data = section(header + bomb + bytes(4))
    tracemalloc.start()
    with pytest.raises(DamagedFileError, match="101 bytes and an unfinished stream"):
        read_all(data)
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak_bytes < 1 << 20


def section(root: bytes, **fields: int) -> bytes:
    """Return a file without data blocks that has this root index."""
    rest = encode_block(ROOT_INDEX, b"", Codec.GZIP) + encode_block(b"FILEINF2", encode_info({}), Codec.GZIP)
    numbers = {"data_index_count": 0, "meta_index_count": 0, "entry_count": 0, "index_levels": 1} | fields
    return root + rest + encode_trailer(Trailer(load_on_open_at=0, codec=Codec.GZIP, **numbers))


@pytest.mark.parametrize(
    "fields",
    [
        {"data_index_count": 1},
        {"data_index_count": 2**62},
        {"data_index_count": -1},
        {"entry_count": 1},
        {"entry_count": -5},
        {"index_levels": 0},
        {"index_levels": 2**40},
    ],
    ids=str,
)
def test_counts_that_lie_are_refused(fields: dict[str, int]) -> None:
    with pytest.raises(DamagedFileError):
        read_all(section(encode_block(ROOT_INDEX, b"", Codec.GZIP), **fields))


@pytest.mark.parametrize("place", [(0, 33), (-8, 40), (1 << 62, 33), (0, -1), (0, 2**31 - 1)], ids=str)
def test_an_index_that_points_elsewhere_is_refused(place: tuple[int, int]) -> None:
    entry = struct.pack(">qi", *place) + b"\x03\0\1a"
    with pytest.raises(DamagedFileError):
        read_all(section(encode_block(ROOT_INDEX, entry, Codec.GZIP), data_index_count=1))


def test_a_source_with_fewer_bytes_than_it_says_is_refused() -> None:
    class Short:
        name = "short.hfile"
        size = len(FILE)

        def read(self, ranges: Sequence[Range]) -> list[bytes]:
            return [FILE[offset : offset + length - 1] for offset, length in ranges]

    with pytest.raises(DamagedFileError, match=r"short\.hfile"):
        HFile.open(Short())


def test_a_missing_record_is_noticed() -> None:
    others = encode(KEYS[:50], pa.array([b"value"] * 50), block_bytes=500, codec=Codec.NONE)
    entries = HFile.open(InMemory(others)).entries
    assert others.count(b"\x38" + bytes([entries])) == 1
    with pytest.raises(DamagedFileError, match="found 50 records, expected the 51 of the trailer"):
        read_all(others.replace(b"\x38" + bytes([entries]), b"\x38" + bytes([entries + 1])))
