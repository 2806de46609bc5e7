"""On an object store every read is a request: reading a Parquet file must not take one per page."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bucketlake.storage import FileStat, Listing, LocalStore, MemoryStore, open_input
from bucketlake.storage.input import PIECE_BYTES, RangeReader


class CountingStore:
    """A store that remembers which ranges were asked for."""

    def __init__(self) -> None:
        self.inner = MemoryStore()
        self.reads: list[tuple[int, int | None]] = []

    @property
    def uri(self) -> str:
        return self.inner.uri

    @property
    def requests_at_once(self) -> int:
        return self.inner.requests_at_once

    def list(self, folder: str, *, recursive: bool = False) -> Listing:
        return self.inner.list(folder, recursive=recursive)

    def stat(self, path: str) -> FileStat:
        return self.inner.stat(path)

    def read(self, path: str, *, offset: int = 0, length: int | None = None) -> bytes:
        self.reads.append((offset, length))
        return self.inner.read(path, offset=offset, length=length)

    def put(self, path: str, data: bytes | Path) -> None:
        self.inner.put(path, data)

    def put_new(self, path: str, data: bytes | Path) -> bool:
        return self.inner.put_new(path, data)

    def replace_if(self, path: str, data: bytes | Path, version: str) -> bool:
        return self.inner.replace_if(path, data, version)

    def delete(self, path: str) -> None:
        self.inner.delete(path)


@pytest.fixture(scope="module")
def parquet() -> bytes:
    """Some 19 MB in four row groups, with a footer as long as Hudi's Bloom filters make them."""
    rows = 600_000
    table = pa.table({name: pa.array(range(rows)) for name in ("a", "b", "c", "d")})
    table = table.replace_schema_metadata({"bloom": "x" * 400_000})
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, row_group_size=rows // 4, compression="none", use_dictionary=False)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def test_a_footer_is_one_request(parquet: bytes) -> None:
    store = CountingStore()
    store.put("f", parquet)
    with open_input(store, "f") as file:
        assert pq.read_metadata(file).num_row_groups == 4
    assert store.reads == [(len(parquet) - PIECE_BYTES, None)]


def test_a_whole_table_is_a_request_or_so_per_row_group(parquet: bytes) -> None:
    store = CountingStore()
    store.put("f", parquet)
    with open_input(store, "f") as file:
        assert pq.ParquetFile(file, pre_buffer=True).read().num_rows == 600_000
    assert len(store.reads) <= 6


def test_one_column_does_not_read_the_others(parquet: bytes) -> None:
    store = CountingStore()
    store.put("f", parquet)
    with open_input(store, "f") as file:
        assert pq.ParquetFile(file, pre_buffer=True).read(columns=["b"]).num_rows == 600_000
    fetched = sum(PIECE_BYTES if length is None else length for _, length in store.reads)
    assert fetched < len(parquet) // 2


def test_a_small_file_is_one_request() -> None:
    store = CountingStore()
    store.put("f", b"x" * PIECE_BYTES)
    with open_input(store, "f") as file:
        file.seek(5)
        assert file.read(3) == b"xxx"
        assert file.read(1) == b"x"
    assert store.reads == [(0, None)]


def test_a_local_file_is_mapped(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    store.put("f", b"12345")
    with open_input(store, "f") as file:
        assert isinstance(file, pa.MemoryMappedFile)
        assert file.read_buffer(5).to_pybytes() == b"12345"


@given(st.lists(st.tuples(st.integers(0, 3 * PIECE_BYTES + 9), st.integers(0, 2 * PIECE_BYTES)), max_size=8))
def test_every_read_gives_the_bytes_of_its_range(ranges: list[tuple[int, int]]) -> None:
    reader = RangeReader(_LARGE, "f", len(_CONTENT))
    for start, length in ranges:
        reader.seek(start)
        assert reader.read(length) == _CONTENT[start : start + length]
        assert reader.tell() == min(start + length, max(start, len(_CONTENT)))


_CONTENT = b"".join(n.to_bytes(4, "big") for n in range((3 * PIECE_BYTES + 4) // 4))
_LARGE = MemoryStore()
_LARGE.put("f", _CONTENT)
