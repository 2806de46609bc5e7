"""The content of a delete block: keys, and the ordering value each delete carries.

    content := int32 version (3), int32 length, Avro record HoodieDeleteRecordList

An ordering value is a union of small wrapper records, one per type, and of
ArrayWrapper for tables with several ordering fields. The column decoder reads
the list as it is; here the wrapped values become one struct column with the
types of the table's ordering fields.

A delete counts as made by commit time, so that it wins over all that is older
and loses to all that is newer, if its ordering value is null or the Int 0
(`OrderingValues.isDefault` compares with Java's Integer 0). A Long 0, a
Date 0 or an array of zeros is an ordinary value.

We write what Hudi's readers can compare with a row's own value, which in Java
is a Long for a timestamp and an Integer for a date: a TimestampMicros or Date
wrapper would come back as an object of another class.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from bucketlake.errors import CorruptTableError, UnsupportedError
from bucketlake.logfile.avro_columns import decode_record
from bucketlake.logfile.avro_encoder import Column, encode_columns
from bucketlake.schema import AvroKind

DELETE_BLOCK_VERSION = 3


def _wrapper(name: str, value: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": "value", "type": value}]}


_HEADER = struct.Struct(">ii")
_DECIMAL_DIGITS, _DECIMAL_SCALE = 30, 15
_DECIMAL = {
    "type": "bytes",
    "logicalType": "decimal",
    "precision": _DECIMAL_DIGITS,
    "scale": _DECIMAL_SCALE,
}
_SCALARS = {
    "BooleanWrapper": "boolean",
    "IntWrapper": "int",
    "LongWrapper": "long",
    "FloatWrapper": "float",
    "DoubleWrapper": "double",
    "BytesWrapper": "bytes",
    "StringWrapper": "string",
    "DateWrapper": {"type": "int", "logicalType": "date"},
    "DecimalWrapper": _DECIMAL,
    "TimeMicrosWrapper": "long",
    "TimestampMicrosWrapper": {"type": "long", "logicalType": "timestamp-micros"},
}
_SCALAR_NAMES = tuple(_SCALARS)
_INT, _ARRAY = _SCALAR_NAMES.index("IntWrapper"), len(_SCALARS)

DELETE_LIST_SCHEMA = json.dumps(
    {
        "type": "record",
        "name": "HoodieDeleteRecordList",
        "fields": [
            {
                "name": "deleteRecordList",
                "type": {
                    "type": "array",
                    "items": {
                        "type": "record",
                        "name": "HoodieDeleteRecord",
                        "fields": [
                            {"name": "recordKey", "type": ["null", "string"]},
                            {"name": "partitionPath", "type": ["null", "string"]},
                            {
                                "name": "orderingVal",
                                "type": [
                                    "null",
                                    *(_wrapper(name, value) for name, value in _SCALARS.items()),
                                    {
                                        "type": "record",
                                        "name": "ArrayWrapper",
                                        "fields": [
                                            {
                                                "name": "wrappedValues",
                                                "type": [
                                                    "null",
                                                    {
                                                        "type": "array",
                                                        "items": [
                                                            "null",
                                                            *_SCALAR_NAMES,
                                                            _wrapper(
                                                                "LocalDateWrapper",
                                                                {"type": "int", "logicalType": "date"},
                                                            ),
                                                        ],
                                                    },
                                                ],
                                            }
                                        ],
                                    },
                                ],
                            },
                        ],
                    },
                },
            }
        ],
    }
)
"""Hudi's schema of a delete list, with the logical types its wrappers imply written out."""


def decode_deletes(
    content: memoryview,
    ordering_types: Mapping[str, pa.DataType],
    *,
    path: str,
    offset: int = 0,
    millis: Container[str] = (),
) -> tuple[pa.Array, pa.StructArray | None, pa.BooleanArray]:
    """Return keys, ordering values and commit-time flags of the deletes in a block.

    `ordering_types` gives the table's type of each ordering field, in order; without any, no ordering values
    are returned. A timestamp field in `millis` is one whose writer counted milliseconds.
    """
    deletes = delete_records(content, path=path, offset=offset)
    keys = deletes.field("recordKey")
    if keys.null_count:
        raise _corrupt(path, offset, "a delete without a record key")
    wrapped = deletes.field("orderingVal")
    arrays = wrapped.field(_ARRAY).flatten()[0]
    elements = [_elements(arrays, index) for index in range(max(1, len(ordering_types)))]
    lengths = pc.list_value_length(arrays)
    # Java unwraps an array of one value to the value itself.
    is_single = pc.fill_null(pc.equal(lengths, 1), False)
    is_zero = pc.or_(_is_int_zero(wrapped), pc.and_(is_single, _is_int_zero(elements[0])))
    is_commit_time = pc.or_(wrapped.is_null(), is_zero)
    if not ordering_types:
        return keys, None, is_commit_time
    _check_counts(wrapped, lengths, is_commit_time, len(ordering_types), path, offset)
    columns = []
    for (name, type_), element in zip(ordering_types.items(), elements, strict=True):
        sources = [wrapped, element] if len(ordering_types) == 1 else [element]
        columns.append(_unwrap(sources, is_commit_time, name, type_, name in millis, path, offset))
    ordering = pa.StructArray.from_arrays(
        columns,
        fields=[pa.field(name, type_) for name, type_ in ordering_types.items()],
        mask=is_commit_time,
    )
    return keys, ordering, is_commit_time


def delete_records(content: memoryview, *, path: str, offset: int = 0) -> pa.StructArray:
    """Return the records of a delete block as they are: key, partition and the union of wrapped values."""
    if len(content) < 8:
        raise _corrupt(path, offset, f"a delete block of {len(content)} bytes")
    version, length = _HEADER.unpack_from(content)
    if version != DELETE_BLOCK_VERSION:
        raise UnsupportedError(
            subject=f"the delete block at byte {offset} of {path}",
            found=f"of version {version}, serialized Java objects"
            if version in (1, 2)
            else f"of version {version}",
            supported=f"version {DELETE_BLOCK_VERSION}",
            remedy="Compact the table with the Hudi release that wrote it.",
        )
    if not 0 < length <= len(content) - 8:
        raise _corrupt(
            path, offset, f"a delete list of {length} bytes in a block that has {len(content) - 8}"
        )
    batch = decode_record(content[8 : 8 + length], DELETE_LIST_SCHEMA, path=path, offset=offset + 8)
    return batch.column(0).values


@dataclass(frozen=True, slots=True)
class Deletes:
    """Keys to delete in a partition."""

    keys: pa.Array
    partition: str
    ordering: pa.StructArray | None
    """One field per ordering field; None for deletes by commit time. A null value deletes by commit time too."""


def encode_deletes(deletes: Deletes) -> bytes:
    """Return the content of a delete block.

    >>> block = encode_deletes(Deletes(pa.array(["2"]), "p1", None))
    >>> block.hex(" ")
    '00 00 00 03 00 00 00 0b 02 02 02 32 02 04 70 31 04 00 00'
    """
    count = len(deletes.keys)
    assert count and not deletes.keys.null_count, "a delete block is made of keys"
    partition = deletes.partition.encode()
    columns = [
        Column(AvroKind.BYTES, deletes.keys.cast(pa.string()), value_branch=1),
        Column.literal(_varint(1) + _varint(len(partition)) + partition),
        *_ordering_columns(deletes.ordering),
    ]
    listed = encode_columns(columns, count, header=_varint(count), is_framed=False)
    return b"".join((_HEADER.pack(DELETE_BLOCK_VERSION, len(listed) + 1), listed, b"\0"))


def _ordering_columns(ordering: pa.StructArray | None) -> list[Column]:
    if ordering is None or not ordering.type.num_fields:
        return [Column.literal(_varint(_INT + 1) + _varint(0))]
    values = [
        _wrapped(column, field.name) for column, field in zip(ordering.flatten(), ordering.type, strict=True)
    ]
    if len(values) == 1:
        return values
    return [
        Column.literal(_varint(_ARRAY + 1) + _varint(1) + _varint(len(values))),
        *values,
        Column.literal(_varint(0)),
    ]


def _wrapped(values: pa.Array, name: str) -> Column:
    """Make the column of an ordering field: a wrapper is a branch of a union, and adds nothing else."""
    kind = values.type
    assert not types.is_timestamp(kind) or kind.unit == "us", "a table's timestamps are microseconds"
    found = next((written for matches, *written in _WRITTEN_AS if matches(kind)), None)
    if found is None:
        raise UnsupportedError(
            subject=f"ordering field {name!r}",
            found=f"of type {kind}",
            supported="deletes ordered by numbers, text, binary, booleans, dates and timestamps",
            remedy="Order the table by a field of another type, or delete by key.",
        )
    wrapper, op, wire = found
    try:
        # Timestamps and dates are the numbers beneath them.
        numbers = values.view(wire) if types.is_temporal(kind) else values.cast(wire)
    except pa.ArrowInvalid as error:
        raise UnsupportedError(
            subject=f"ordering field {name!r}",
            found=f"a {kind} that no delete can carry ({error})",
            supported=f"values of up to {_DECIMAL_DIGITS} digits, {_DECIMAL_SCALE} of them fractions",
            remedy="Delete by key, or order the table by a narrower decimal.",
        ) from error
    return Column(op, numbers, null_branch=0, value_branch=_SCALAR_NAMES.index(wrapper) + 1)


# Which types go into which wrapper, as which kind of value.
_WRITTEN_AS: tuple[tuple[Callable[[pa.DataType], bool], str, AvroKind, pa.DataType], ...] = (
    (types.is_boolean, "BooleanWrapper", AvroKind.BOOLEAN, pa.bool_()),
    (types.is_int64, "LongWrapper", AvroKind.LONG, pa.int64()),
    (types.is_signed_integer, "IntWrapper", AvroKind.INT, pa.int32()),
    (types.is_float32, "FloatWrapper", AvroKind.FLOAT, pa.float32()),
    (types.is_float64, "DoubleWrapper", AvroKind.DOUBLE, pa.float64()),
    (types.is_binary, "BytesWrapper", AvroKind.BYTES, pa.binary()),
    (types.is_string, "StringWrapper", AvroKind.BYTES, pa.string()),
    (types.is_date32, "IntWrapper", AvroKind.INT, pa.int32()),
    (types.is_timestamp, "LongWrapper", AvroKind.LONG, pa.int64()),
    (
        types.is_decimal128,
        "DecimalWrapper",
        AvroKind.DECIMAL_BYTES,
        pa.decimal128(_DECIMAL_DIGITS, _DECIMAL_SCALE),
    ),
)


def _varint(number: int) -> bytes:
    """Encode a number that is not negative, as Avro does.

    >>> _varint(0), _varint(100)
    (b'\\x00', b'\\xc8\\x01')
    """
    rest = number << 1
    encoded = bytearray()
    while rest >= 0x80:
        encoded.append(rest & 0x7F | 0x80)
        rest >>= 7
    encoded.append(rest)
    return bytes(encoded)


def _elements(arrays: pa.ListArray, index: int) -> pa.StructArray:
    """Return the element at `index` of every list that has one, null otherwise."""
    starts = arrays.offsets.to_numpy()
    positions = starts[:-1] + index
    return arrays.values.take(pa.array(positions, mask=positions >= starts[1:]))


def _is_int_zero(wrapped: pa.StructArray) -> pa.BooleanArray:
    return pc.fill_null(pc.equal(wrapped.field(_INT).flatten()[0], 0), False)


def _check_counts(
    wrapped: pa.StructArray,
    lengths: pa.Array,
    is_commit_time: pa.BooleanArray,
    field_count: int,
    path: str,
    offset: int,
) -> None:
    counts = lengths if field_count > 1 else pc.if_else(wrapped.field(_ARRAY).is_valid(), lengths, 1)
    is_right = pc.or_(is_commit_time, pc.fill_null(pc.equal(counts, field_count), False))
    if not pc.all(is_right, min_count=0).as_py():
        raise _corrupt(path, offset, f"a delete whose ordering value has not {field_count} parts")


def _unwrap(
    sources: Sequence[pa.StructArray],
    is_left_out: pa.BooleanArray,
    name: str,
    type_: pa.DataType,
    is_millis: bool,
    path: str,
    offset: int,
) -> pa.Array:
    """Return the values of an ordering field, whatever wrappers they are in, as the table's type."""
    found = []
    for source in sources:
        for member in source.flatten():
            if types.is_list(member.type.field(0).type):
                continue
            (wrapped,) = member.flatten()
            # The Int 0 of a commit-time delete says nothing about the column, which may be text.
            values = pc.if_else(is_left_out, pa.scalar(None, wrapped.type), wrapped)
            if values.null_count == len(values):
                continue
            try:
                found.append(_as_type(values, type_, is_millis))
            except pa.ArrowException as error:
                raise _corrupt(
                    path, offset, f"a delete with {name!r} as {values.type} ({error})", f"a {type_}"
                ) from error
    return pc.coalesce(*found) if found else pa.nulls(len(is_left_out), type_)


def _as_type(values: pa.Array, type_: pa.DataType, is_millis: bool) -> pa.Array:
    if types.is_timestamp(type_) and types.is_int64(values.type):
        return values.view(pa.timestamp("ms" if is_millis else "us", tz=type_.tz)).cast(type_)
    if types.is_date32(type_) and types.is_int32(values.type):
        return values.view(type_)
    return values.cast(type_)


def _corrupt(
    path: str, position: int, found: str, expected: str = "a list of deleted keys"
) -> CorruptTableError:
    return CorruptTableError(
        path=path,
        found=f"{found}, in the block at byte {position}",
        expected=expected,
        remedy="Restore the file from a copy, or roll back the commit that wrote it.",
    )
