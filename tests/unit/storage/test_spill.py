"""A spill holds what a task writes: memory must stay bounded, and no temporary file be left behind."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bucketlake.storage import MemoryStore, Spill


def content(spill: Spill) -> bytes:
    held = spill.content
    return held.read_bytes() if isinstance(held, Path) else held


@given(st.lists(st.binary(max_size=20)), st.integers(0, 60))
def test_what_was_written_is_there_however_much_it_is(pieces: list[bytes], limit: int) -> None:
    with Spill(limit_bytes=limit) as spill:
        for piece in pieces:
            assert spill.write(piece) == len(piece)
        whole = b"".join(pieces)
        assert content(spill) == whole
        assert spill.tell() == spill.size_bytes == len(whole)
        assert isinstance(spill.content, Path) == (len(whole) > limit)


def test_the_temporary_file_is_gone_afterwards(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), Spill(limit_bytes=2, folder=tmp_path) as spill:
        spill.write(b"abc")
        assert list(tmp_path.iterdir()) == [spill.content]
        raise ZeroDivisionError
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("limit", [10, 1 << 20])
def test_a_parquet_writer_writes_to_it_and_a_store_takes_it(limit: int, tmp_path: Path) -> None:
    table = pa.table({"n": range(1000)})
    store = MemoryStore()
    with Spill(limit_bytes=limit, folder=tmp_path) as spill:
        pq.write_table(table, spill)
        spill.close()
        assert store.put_new("f.parquet", spill.content)
    assert pq.read_table(pa.BufferReader(store.read("f.parquet"))).equals(table)


def test_arrow_buffers_and_views_are_bytes_too() -> None:
    with Spill() as spill:
        spill.write(pa.py_buffer(b"ab"))
        spill.write(memoryview(b"cd"))
        spill.write(bytearray(b"ef"))
        assert spill.content == b"abcdef"
