"""Arrow columns as Avro records, without an object per record: the mirror of `avro_columns`.

A schema is compiled to a small program (`avro_encode_kernel`), and the buffers
of all columns are laid out in one piece of memory for it to read. `avro_rows`
is the readable twin.

    content of a data block := int32 version, int32 record count, records
    record                  := int32 length, then that many bytes of Avro
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import types

from bucketlake.logfile import avro_encode_kernel as kernel
from bucketlake.schema import AvroKind, AvroNode, parse_avro

DATA_BLOCK_VERSION = 3
_ALIGNMENT = 64
_HEADER = struct.Struct(">ii")
_FRAME_BYTES = 4

_WIDEST = {
    AvroKind.BOOLEAN: 1,
    AvroKind.INT: 5,
    AvroKind.LONG: 10,
    AvroKind.FLOAT: 4,
    AvroKind.DOUBLE: 8,
    AvroKind.BYTES: 5,  # the length; the bytes come on top
    AvroKind.DECIMAL_BYTES: 17,
    AvroKind.DECIMAL_FIXED: 16,
    AvroKind.RECORD: 0,
    AvroKind.ARRAY: 6,  # the count, and the zero at the end
    AvroKind.MAP: 6,
}
"""The most bytes a value takes, the branch of its union aside. Other kinds are read, never written."""


def encode_records(records: pa.Table, schema_json: str) -> memoryview:
    """Return the content of an Avro data block with these rows.

    The columns are those of the schema, in its order and types.
    """
    root = parse_avro(schema_json, path="the schema to write")
    assert records.column_names == [field.name for field in root.children], (
        "columns in the order of the schema"
    )
    columns = [
        Column.of(node, _one_array(records.column(node.name))) for node in root.children if records.num_rows
    ]
    header = _HEADER.pack(DATA_BLOCK_VERSION, records.num_rows)
    return encode_columns(columns, records.num_rows, header=header, is_framed=True)


@dataclass(frozen=True, slots=True)
class Column:
    """One line of a program and what it reads: the values of a node, or a literal."""

    op: int
    array: pa.Array | None
    """None for a literal."""
    null_branch: int = -1
    """Which branch of the union around the value is null; -1 if none is."""
    value_branch: int = -1
    """Which branch the value is; -1 if there is no union."""
    arg: int = 0
    data: bytes = b""
    children: tuple[Column, ...] = ()

    @classmethod
    def of(cls, node: AvroNode, array: pa.Array) -> Column:
        """Make the line of a schema node, with those of what is inside it."""
        assert node.kind in _WIDEST, f"no column of ours is declared {node.kind.name}"
        if types.is_dictionary(array.type):
            array = array.dictionary_decode()
        children: Iterable[Column] = ()
        match node.kind:
            case AvroKind.RECORD:
                children = (cls.of(child, array.field(index)) for index, child in enumerate(node.children))
            case AvroKind.ARRAY:
                children = (cls.of(node.children[0], array.values),)
            case AvroKind.MAP:
                children = (cls.of(node.children[0], array.keys), cls.of(node.children[1], array.items))
            case _ if array.type != node.wire_type:
                array = array.cast(node.wire_type)
        return cls(
            node.kind,
            array,
            null_branch=node.null_branch,
            value_branch=_value_branch(node),
            arg=node.size,
            children=tuple(children),
        )

    @classmethod
    def literal(cls, data: bytes) -> Column:
        """Make a line that writes the same bytes in every row."""
        return cls(kernel.LITERAL, None, arg=len(data), data=data)

    @property
    def bytes_max(self) -> int:
        """The most bytes all values together take, those inside them aside; a literal's in one row."""
        if self.array is None:
            return len(self.data)
        size = len(self.array) * (1 + _WIDEST[AvroKind(self.op)])
        if self.op == AvroKind.BYTES:
            offsets = _offsets(self.array)
            size += int(offsets[-1]) - int(offsets[0])
        return size


def encode_columns(columns: Sequence[Column], rows: int, *, header: bytes, is_framed: bool) -> memoryview:
    """Run the program over `rows` records and return what it wrote, after `header`."""
    lines: list[list[int]] = []
    flat: list[Column] = []
    depth = 0
    for column in columns:
        depth = max(depth, _emit(column, lines, flat))
    arena, slots = _lay_out(flat)
    per_row = (_FRAME_BYTES if is_framed else 0) + sum(
        column.bytes_max for column in flat if column.array is None
    )
    size = rows * per_row + sum(column.bytes_max for column in flat if column.array is not None)
    out = np.empty(len(header) + size, np.uint8)
    out[: len(header)] = np.frombuffer(header, np.uint8)
    end = kernel.run(
        np.array(lines, np.int64).reshape(len(lines), 6),
        slots,
        rows if lines else 0,
        is_framed,
        np.zeros((depth + 1, 5), np.int64),
        arena,
        arena.view(np.int32),
        arena.view(np.int64),
        out,
        len(header),
    )
    assert end >= 0, "rows were checked for nulls before they came here"
    return out.data[:end]


def _emit(column: Column, lines: list[list[int]], flat: list[Column]) -> int:
    """Append the lines of a subtree; return its height in containers."""
    here = len(lines)
    null_byte, value_byte = (
        2 * branch if branch >= 0 else -1 for branch in (column.null_branch, column.value_branch)
    )
    lines.append([column.op, 0, null_byte, value_byte, len(flat), column.arg])
    flat.append(column)
    heights = [_emit(child, lines, flat) for child in column.children]
    lines[here][kernel.NEXT] = len(lines)
    return 1 + max(heights, default=0)


def _lay_out(columns: Sequence[Column]) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Copy what the columns hold into one array; return it, and where each part begins."""
    slots = np.full((len(columns), 4), -1, np.int64)
    parts: list[tuple[int, Any]] = []
    size = 0

    def place(part: Any) -> int:
        nonlocal size
        start = size
        parts.append((start, part))
        size = -(-(start + len(part)) // _ALIGNMENT) * _ALIGNMENT
        return start

    for slot, column in enumerate(columns):
        if column.array is None:
            slots[slot, kernel.DATA] = place(np.frombuffer(column.data, np.uint8))
            slots[slot, kernel.FIRST] = 0
            continue
        array = column.array
        buffers = array.buffers()
        first, stop = array.offset, array.offset + len(array)
        # Of a slice of a long column, only its own part is copied. Bits are shared by eight neighbours.
        start = first // 8 * 8
        slots[slot, kernel.FIRST] = first - start
        if array.null_count:
            slots[slot, kernel.VALIDITY] = place(_bytes(buffers[0])[start // 8 : -(-stop // 8)])
        if column.op == AvroKind.RECORD:
            continue
        if column.op == AvroKind.BOOLEAN:
            slots[slot, kernel.VALUES] = place(_bytes(buffers[1])[start // 8 : -(-stop // 8)])
            continue
        if column.op in (AvroKind.BYTES, AvroKind.ARRAY, AvroKind.MAP):
            width, extra = 4, 1
        else:
            width, extra = array.type.bit_width // 8, 0
        slots[slot, kernel.VALUES] = place(_bytes(buffers[1])[start * width : (stop + extra) * width])
        if column.op == AvroKind.BYTES:
            offsets = _offsets(array)
            begin, end = int(offsets[0]), int(offsets[-1])
            # Offsets count from the start of the whole column.
            slots[slot, kernel.DATA] = place(_bytes(buffers[2])[begin:end]) - begin
    arena = np.zeros(max(size, _ALIGNMENT), np.uint8)
    for start, part in parts:
        arena[start : start + len(part)] = part
    return arena, slots


def _offsets(array: pa.Array) -> np.ndarray[Any, np.dtype[np.int32]]:
    if not len(array):
        return np.zeros(1, np.int32)
    return np.frombuffer(array.buffers()[1], np.int32)[array.offset : array.offset + len(array) + 1]


def _bytes(buffer: pa.Buffer | None) -> np.ndarray[Any, np.dtype[np.uint8]]:
    return np.frombuffer(b"" if buffer is None else buffer, np.uint8)


def _value_branch(node: AvroNode) -> int:
    if not node.branches:
        return -1
    return 1 if node.null_branch == 0 else 0


def _one_array(column: pa.ChunkedArray) -> pa.Array:
    if column.num_chunks != 1:
        return column.combine_chunks()
    array = column.chunk(0)
    # The lists of a slice point into all elements of the column it was cut from; leave the others behind.
    return pa.concat_arrays([array, array[:0]]) if types.is_nested(array.type) and array.offset else array
