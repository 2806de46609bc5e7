"""Columns of byte strings, as the kernels see them: one piece of memory, and where each string starts in it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bucketlake.errors import ConfigError
from bucketlake.hfile.source import BytesLike

Bytes = npt.NDArray[np.uint8]
Offsets = npt.NDArray[np.int64]

_INT32_MAX = (1 << 31) - 1
_FIRST_BYTES = 1 << 16


@dataclass(frozen=True, slots=True, eq=False)
class ByteColumn:
    """String `i` is `data[offsets[i]:offsets[i + 1]]`."""

    data: Bytes
    offsets: Offsets

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @staticmethod
    def of(array: pa.Array | pa.ChunkedArray, what: str) -> ByteColumn:
        """View a column of text or binary; `what` it is appears in errors."""
        if isinstance(array, pa.ChunkedArray):
            array = array.combine_chunks()
        if not _has_offsets(array.type):
            if not _is_bytes(array.type):
                raise ConfigError(f"{what} are {array.type}, and must be binary or string.")
            array = array.cast(pa.large_binary())
        if array.null_count:
            first = array.is_null().index(True).as_py()
            raise ConfigError(f"{what} must not be null, and position {first} is.")
        if len(array) == 0:
            return ByteColumn.of_bytes([])
        _, offset_buffer, data_buffer = array.buffers()
        wide = array.type in (pa.large_binary(), pa.large_string())
        offsets = np.frombuffer(offset_buffer, np.int64 if wide else np.int32)
        offsets = offsets[array.offset : array.offset + len(array) + 1].astype(np.int64, copy=False)
        return ByteColumn(as_bytes(b"" if data_buffer is None else data_buffer), sealed(offsets))

    @staticmethod
    def of_bytes(strings: Sequence[bytes]) -> ByteColumn:
        offsets = np.zeros(len(strings) + 1, np.int64)
        np.cumsum([len(string) for string in strings], out=offsets[1:])
        return ByteColumn(as_bytes(b"".join(strings)), sealed(offsets))

    def to_arrow(self) -> pa.Array:
        return _binary(self.data, self.offsets)

    def __getitem__(self, number: int) -> bytes:
        return self.data[self.offsets[number] : self.offsets[number + 1]].tobytes()


class ByteColumnBuilder:
    """A column that grows as blocks are read: never more than is needed is asked for ahead of the bytes."""

    def __init__(self) -> None:
        self.data: Bytes = np.empty(_FIRST_BYTES, np.uint8)
        self.offsets: Offsets = np.zeros(_FIRST_BYTES // 64, np.int64)
        self.rows = 0
        self.size = 0

    def reserve(self, rows: int, size: int) -> None:
        """Have memory for so many more strings of so many bytes in all."""
        if self.rows + rows + 1 > len(self.offsets):
            self.offsets = _grown(self.offsets, self.rows + 1, self.rows + rows + 1)
        if self.size + size > len(self.data):
            self.data = _grown(self.data, self.size, self.size + size)

    def added(self, rows: int, size: int) -> None:
        self.rows += rows
        self.size += size

    def finish(self) -> pa.Array:
        """Return the column: binary, or large binary if its bytes are too many for that."""
        data = self.data[: self.size]
        if len(self.data) > 2 * self.size:
            data = data.copy()  # who keeps the column should not keep so much memory beyond it
        return _binary(data, self.offsets[: self.rows + 1])


def as_bytes(data: BytesLike) -> Bytes:
    """View bytes as an array, never to be written."""
    return sealed(np.frombuffer(data, np.uint8))


def sealed(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """View an array as one that cannot be written: numba compiles anew for one that can."""
    view = array.view()
    view.flags.writeable = False
    return view


def _grown(array: npt.NDArray[Any], used: int, needed: int) -> npt.NDArray[Any]:
    grown = np.empty(max(needed, len(array) * 3 // 2), array.dtype)
    grown[:used] = array[:used]
    return grown


def _binary(data: Bytes, offsets: Offsets) -> pa.Array:
    kind, width = (pa.binary(), np.int32) if offsets[-1] <= _INT32_MAX else (pa.large_binary(), np.int64)
    buffers = [None, pa.py_buffer(offsets.astype(width)), pa.py_buffer(data)]
    return pa.Array.from_buffers(kind, len(offsets) - 1, buffers)


def _has_offsets(kind: pa.DataType) -> bool:
    return kind in (pa.binary(), pa.string(), pa.large_binary(), pa.large_string())


def _is_bytes(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        return _is_bytes(kind.value_type)
    return _has_offsets(kind) or kind in (pa.string_view(), pa.binary_view())
