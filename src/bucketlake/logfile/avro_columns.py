"""Avro records as Arrow columns, without an object per record.

The writer's schema is compiled once to a small program (`avro_kernel`), which
runs over the bytes and fills the buffers of all wanted columns; this module
wraps the buffers as Arrow arrays. `avro_rows` is the readable twin.

    content of a data block := int32 version, int32 record count, records
    record                  := int32 length, then that many bytes of Avro

The results have the types of `schema.avro_to_arrow`.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa

from bucketlake.errors import CorruptTableError, UnsupportedError
from bucketlake.logfile import avro_kernel
from bucketlake.schema import AvroKind, AvroNode, parse_avro

DATA_BLOCK_VERSIONS = (1, 2, 3)
"""Hudi changed what other blocks hold when it raised the number; Avro data stayed the same."""

_ALIGNMENT = 64
_CONTENT_BYTES_MAX = 2**31 - 1

_PROBLEMS = {
    avro_kernel.TRUNCATED: "bytes that end inside a value",
    avro_kernel.BAD_NUMBER: "a number that never ends or is too large",
    avro_kernel.BAD_LENGTH: "a length beyond the bytes that are there",
    avro_kernel.BAD_BRANCH: "a union branch the schema does not have",
    avro_kernel.BAD_BOOLEAN: "a boolean that is neither 0 nor 1",
    avro_kernel.BAD_SYMBOL: "an enum symbol the schema does not have",
    avro_kernel.BAD_DECIMAL: "a decimal of more than 38 digits",
    avro_kernel.BAD_RECORD_LENGTH: "a record that is shorter than its length says",
}


def decode_records(
    content: memoryview, schema_json: str, wanted: Collection[str] | None, *, path: str, offset: int = 0
) -> pa.RecordBatch:
    """Decode the content of an Avro data block, only the columns in `wanted` (None: all).

    The columns come in the writer's order; what the writer did not have is absent. `offset` is where the
    content stands in the file `path`; errors name both.
    """
    count = record_count(content, path=path, offset=offset)
    names = None if wanted is None else frozenset(wanted)
    parse_avro(schema_json, path=path)  # so that what is wrong with it is said of this file
    program = _compile(schema_json, names)
    return program.run(content, 8, count, is_framed=True, path=path, offset=offset)


def decode_record(content: memoryview, schema_json: str, *, path: str, offset: int = 0) -> pa.RecordBatch:
    """Decode a single record that fills `content`."""
    parse_avro(schema_json, path=path)
    program = _compile(schema_json, None)
    return program.run(content, 0, 1, is_framed=False, path=path, offset=offset)


def record_count(content: memoryview, *, path: str, offset: int) -> int:
    """Return how many records a data block says it has, after a look at its version."""
    if len(content) < 8:
        raise _corrupt(path, offset, f"a data block of {len(content)} bytes")
    version, count = struct.unpack_from(">ii", content)
    if version not in DATA_BLOCK_VERSIONS:
        raise UnsupportedError(
            subject=f"the data block at byte {offset} of {path}",
            found=f"of version {version}",
            supported=f"versions {DATA_BLOCK_VERSIONS[0]} to {DATA_BLOCK_VERSIONS[-1]}",
            remedy="Compact the table with the Hudi release that wrote it.",
        )
    if not 0 <= count <= (len(content) - 8) // 4:
        raise _corrupt(path, offset, f"a data block of {len(content)} bytes that counts {count} records")
    return int(count)


@dataclass(frozen=True, slots=True)
class _Column:
    """A wanted node and the slot its values go to."""

    node: AvroNode
    slot: int
    children: tuple[_Column, ...]


@dataclass(frozen=True, slots=True, eq=False)
class _Program:
    lines: np.ndarray[Any, np.dtype[np.int64]]
    columns: tuple[_Column, ...]
    slots: tuple[AvroNode, ...]
    depth: int
    is_whole: bool
    """Whether the lines reach the end of the record: those after the last wanted column are left out."""

    def run(
        self, content: memoryview, start: int, rows: int, *, is_framed: bool, path: str, offset: int
    ) -> pa.RecordBatch:
        if len(content) > _CONTENT_BYTES_MAX:
            raise UnsupportedError(
                subject=f"the data block at byte {offset} of {path}",
                found=f"of {len(content)} bytes",
                supported="blocks of less than 2 GiB",
                remedy="Compact the table with the engine that wrote it.",
            )
        data = np.frombuffer(content, np.uint8)
        data.flags.writeable = False  # the kernel is compiled for bytes it can't change
        slots = np.full((len(self.slots), 3), -1, np.int64)
        totals = np.zeros((len(self.slots), 3), np.int64)
        stack = np.zeros((self.depth + 1, 3), np.int64)
        status, position = avro_kernel.run(
            self.lines,
            slots,
            totals,
            data,
            start,
            rows,
            is_framed,
            self.is_whole,
            stack,
            *avro_kernel.no_arena(),
            False,
        )
        if status == avro_kernel.OK and self.is_whole and position != len(data):
            status = avro_kernel.BAD_RECORD_LENGTH
        if status != avro_kernel.OK:
            raise _corrupt(path, offset + position, _PROBLEMS[status])
        arena, bytes_ = self._allocate(slots, totals)
        totals[:] = 0
        avro_kernel.run(
            self.lines,
            slots,
            totals,
            data,
            start,
            rows,
            is_framed,
            self.is_whole,
            stack,
            bytes_,
            bytes_.view(np.int32),
            bytes_.view(np.int64),
            True,
        )
        fields = [column.node.field for column in self.columns]
        try:
            # Lists, because to take a number out of an array costs more than all else here.
            places, counts = slots.tolist(), totals.tolist()
            arrays = [_wrap(column, arena, places, counts) for column in self.columns]
            for array in arrays:
                array.validate(full=True)  # text that is not UTF-8, decimals beyond their precision
        except pa.ArrowInvalid as error:
            raise _corrupt(path, offset, f"a value its column can't hold ({error})") from error
        if not arrays:
            return pa.RecordBatch.from_struct_array(pa.StructArray.from_buffers(pa.struct([]), rows, [None]))
        return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))

    def _allocate(
        self, slots: np.ndarray[Any, Any], totals: np.ndarray[Any, Any]
    ) -> tuple[pa.Buffer, np.ndarray[Any, Any]]:
        """Lay the parts of all columns out in one buffer, and prepare those that are not overwritten."""
        size = 0
        ones: list[tuple[int, int]] = []
        zeros: list[tuple[int, int]] = []
        for slot, (node, counts) in enumerate(zip(self.slots, totals.tolist(), strict=True)):
            entries, data_bytes, nulls = counts
            if node.nullable and nulls:
                slots[slot, avro_kernel.VALIDITY] = size
                ones.append((size, size + (entries + 7) // 8))
                size = _aligned(ones[-1][1])
            slots[slot, avro_kernel.VALUES] = size
            width = _values_bytes(node.kind, entries)
            # Packed bits are set one by one, and offsets begin with a zero.
            zeros.append((size, size + (width if node.kind is AvroKind.BOOLEAN else min(width, 4))))
            size = _aligned(size + width)
            slots[slot, avro_kernel.DATA] = size
            size = _aligned(size + data_bytes)
        arena = pa.allocate_buffer(_aligned(size))
        bytes_ = np.frombuffer(arena, np.uint8)
        for start, end in zeros:
            bytes_[start:end] = 0
        for start, end in ones:
            bytes_[start:end] = 0xFF
        return arena, bytes_


@lru_cache(maxsize=128)
def _compile(schema_json: str, wanted: frozenset[str] | None) -> _Program:
    root = parse_avro(schema_json, path="")
    fields = list(root.children)
    keep = [wanted is None or field.name in wanted for field in fields]
    last = max((index for index, kept in enumerate(keep) if kept), default=-1)
    lines: list[list[int]] = []
    slots: list[AvroNode] = []
    columns = []
    depth = 0
    for field, kept in zip(fields[: last + 1], keep, strict=False):
        column, height = _emit(field, kept, lines, slots)
        depth = max(depth, height)
        if kept:
            columns.append(column)
    table = np.array(lines, np.int64).reshape(len(lines), 6)
    return _Program(table, tuple(columns), tuple(slots), depth, last == len(fields) - 1)


def _emit(
    node: AvroNode, is_wanted: bool, lines: list[list[int]], slots: list[AvroNode]
) -> tuple[_Column, int]:
    """Append the lines of a subtree; return its column and its height in containers."""
    slot = -1
    if is_wanted:
        slot = len(slots)
        slots.append(node)
    here = len(lines)
    lines.append([node.kind, 0, node.branches, node.null_branch, slot, node.size])
    inner = [_emit(child, is_wanted, lines, slots) for child in node.children]
    lines[here][avro_kernel.NEXT] = len(lines)
    height = 1 + max((child_height for _, child_height in inner), default=0)
    return _Column(node, slot, tuple(column for column, _ in inner)), height


_WIDTHS = {
    AvroKind.INT: 4,
    AvroKind.LONG: 8,
    AvroKind.FLOAT: 4,
    AvroKind.DOUBLE: 8,
    AvroKind.ENUM: 4,
    AvroKind.DECIMAL_BYTES: 16,
    AvroKind.DECIMAL_FIXED: 16,
}


def _values_bytes(kind: AvroKind, entries: int) -> int:
    match kind:
        case AvroKind.BOOLEAN:
            return (entries + 7) // 8
        case AvroKind.RECORD | AvroKind.UNION:
            return 0
        case AvroKind.BYTES | AvroKind.FIXED | AvroKind.ARRAY | AvroKind.MAP:
            return 4 * (entries + 1)
    return _WIDTHS[kind] * entries


def _aligned(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT


def _wrap(
    column: _Column, arena: pa.Buffer, slots: Sequence[Sequence[int]], totals: Sequence[Sequence[int]]
) -> pa.Array:
    node = column.node
    entries, data_bytes, nulls = totals[column.slot]
    validity_at, values_at, data_at = slots[column.slot]
    validity = arena.slice(validity_at, (entries + 7) // 8) if validity_at >= 0 else None
    null_count = nulls if validity_at >= 0 else 0
    values = arena.slice(values_at, _values_bytes(node.kind, entries))
    children = [_wrap(child, arena, slots, totals) for child in column.children]
    match node.kind:
        case AvroKind.RECORD | AvroKind.UNION:
            buffers = [validity]
        case AvroKind.ARRAY:
            buffers = [validity, values]
        case AvroKind.MAP:
            entries_type = pa.struct([node.type.key_field, node.type.item_field])
            children = [pa.Array.from_buffers(entries_type, len(children[0]), [None], children=children)]
            buffers = [validity, values]
        case AvroKind.BYTES | AvroKind.FIXED:
            buffers = [validity, values, arena.slice(data_at, data_bytes)]
        case _:
            buffers = [validity, values]
    array = pa.Array.from_buffers(
        node.wire_type, entries, buffers, null_count=null_count, children=children or None
    )
    if node.kind is AvroKind.ENUM:
        return pa.array(node.symbols, pa.string()).take(array)
    return array if node.wire_type == node.type else array.cast(node.type)


def _corrupt(path: str, position: int, found: str) -> CorruptTableError:
    return CorruptTableError(
        path=path,
        found=f"{found}, at byte {position}",
        expected="records of the schema in the block's header",
        remedy="Restore the file from a copy, or roll back the commit that wrote it.",
    )
