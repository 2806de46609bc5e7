"""A file of a store, opened for pyarrow.

On a local disk a file is mapped into memory. Elsewhere every read is a request, and a request costs more than
the bytes it brings, so small reads fetch a piece around them: reading a Parquet footer fetches the file's end
once (Hudi keeps a Bloom filter there, hundreds of kilobytes), and a file no longer than a piece is fetched
whole. Large reads go straight through. Parquet readers should ask for `pre_buffer`, which merges their reads
first.
"""

from __future__ import annotations

import io
import os

import pyarrow as pa

from bucketlake.storage.local import LocalStore
from bucketlake.storage.store import FileStat, Store

PIECE_BYTES = 1 << 20


def open_input(store: Store, path: str, stat: FileStat | None = None) -> pa.NativeFile:
    """Open a file for random access; who has its `stat` already saves a request."""
    if isinstance(store, LocalStore):
        place = store.local_path(path)
        try:
            return pa.memory_map(str(place))
        except OSError:  # nothing to map, or nothing there
            return pa.BufferReader(store.read(path))
    stat = stat or store.stat(path)
    if stat.size_bytes <= PIECE_BYTES:
        return pa.BufferReader(store.read(path))
    return pa.PythonFile(RangeReader(store, path, stat.size_bytes), mode="r")


class RangeReader(io.RawIOBase):
    """A file of known size, read by ranges; holds at most two pieces, the file's end and the last one
    read."""

    def __init__(self, store: Store, path: str, size_bytes: int) -> None:
        super().__init__()
        self._store = store
        self._path = path
        self._size = size_bytes
        self._position = 0
        self._end_start = max(0, size_bytes - PIECE_BYTES)
        self._end: bytes | None = None
        self._piece_start = 0
        self._piece = b""

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        origin = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._size}[whence]
        self._position = max(0, origin + offset)
        return self._position

    def read(self, size: int | None = -1) -> bytes:
        left = max(0, self._size - self._position)
        length = left if size is None or size < 0 else min(size, left)
        data = self._range(self._position, length) if length else b""
        self._position += len(data)
        return data

    def _range(self, start: int, length: int) -> bytes:
        stop = start + length
        if self._piece_start <= start and stop <= self._piece_start + len(self._piece):
            return self._piece[start - self._piece_start : stop - self._piece_start]
        if start >= self._end_start:
            if self._end is None:
                self._end = self._store.read(self._path, offset=self._end_start)
            return self._end[start - self._end_start : stop - self._end_start]
        if length >= PIECE_BYTES:
            return self._store.read(self._path, offset=start, length=length)
        self._piece_start = start
        self._piece = self._store.read(self._path, offset=start, length=PIECE_BYTES)
        return self._piece[:length]
