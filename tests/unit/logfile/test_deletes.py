"""Deletes are compared by ordering value: a wrong class or unit lets deleted rows live."""

from __future__ import annotations

import datetime
import struct
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from bucketlake.errors import CorruptTableError, UnsupportedError
from bucketlake.logfile.deletes import decode_deletes

UTC_MICROS = pa.timestamp("us", tz="UTC")


def zigzag(number: int) -> bytes:
    bits = (number << 1) ^ (number >> 63)
    out = bytearray()
    while bits > 0x7F:
        out.append(bits & 0x7F | 0x80)
        bits >>= 7
    return bytes((*out, bits))


def content(*ordering: bytes, version: int = 3) -> memoryview:
    """Deletes of the keys "0", "1"... in partition "p", each with a union value given in bytes."""
    body = b"".join(
        b"\x02\x02" + str(index).encode() + b"\x02\x02p" + value for index, value in enumerate(ordering)
    )
    listed = zigzag(len(ordering)) + body + b"\x00" if ordering else b"\x00"
    return memoryview(struct.pack(">ii", version, len(listed)) + listed)


def wrapped(branch: int, value: bytes) -> bytes:
    return zigzag(branch) + value


def test_the_bytes_hudi_writes_are_one_commit_time_delete() -> None:
    data = memoryview(bytes.fromhex("000000030000000b0202023202047031040000"))
    keys, ordering, is_commit_time = decode_deletes(data, {"ts": pa.int64()}, path="f")
    assert keys.to_pylist() == ["2"]
    assert keys.type == pa.string()
    assert is_commit_time.to_pylist() == [True]
    assert ordering is not None
    assert ordering.to_pylist() == [None]


@pytest.mark.parametrize(
    ("value", "is_commit_time"),
    [
        (wrapped(0, b""), True),
        (wrapped(2, zigzag(0)), True),
        (wrapped(12, zigzag(1) + zigzag(1) + wrapped(2, zigzag(0)) + b"\x00"), True),
        (wrapped(2, zigzag(1)), False),
        (wrapped(3, zigzag(0)), False),
        (wrapped(12, zigzag(1) + zigzag(1) + wrapped(3, zigzag(0)) + b"\x00"), False),
    ],
)
def test_only_null_and_the_int_zero_mean_commit_time(value: bytes, is_commit_time: bool) -> None:
    _, ordering, flags = decode_deletes(content(value), {"ts": pa.int64()}, path="f")
    assert flags.to_pylist() == [is_commit_time]
    assert ordering is not None
    assert ordering.is_null().to_pylist() == [is_commit_time]


@pytest.mark.parametrize(
    ("value", "type_", "expected"),
    [
        (wrapped(1, b"\x01"), pa.bool_(), True),
        (wrapped(2, zigzag(-7)), pa.int32(), -7),
        (wrapped(2, zigzag(7)), pa.int64(), 7),
        (wrapped(2, zigzag(7)), pa.date32(), datetime.date(1970, 1, 8)),
        (wrapped(3, zigzag(7)), pa.int64(), 7),
        (wrapped(3, zigzag(7)), UTC_MICROS, datetime.datetime(1970, 1, 1, 0, 0, 0, 7, datetime.UTC)),
        (wrapped(3, zigzag(7)), pa.timestamp("us"), datetime.datetime(1970, 1, 1, 0, 0, 0, 7)),
        (wrapped(4, struct.pack("<f", 0.5)), pa.float32(), 0.5),
        (wrapped(5, struct.pack("<d", 0.1)), pa.float64(), 0.1),
        (wrapped(6, b"\x02\xff"), pa.binary(), b"\xff"),
        (wrapped(7, b"\x02a"), pa.string(), "a"),
        (wrapped(8, zigzag(0)), pa.date32(), datetime.date(1970, 1, 1)),
        (
            wrapped(9, b"\x10" + (15 * 10**14).to_bytes(8, signed=True)),
            pa.decimal128(10, 2),
            Decimal("1.50"),
        ),
        (wrapped(10, zigzag(7)), pa.int64(), 7),
        (wrapped(11, zigzag(7)), UTC_MICROS, datetime.datetime(1970, 1, 1, 0, 0, 0, 7, datetime.UTC)),
    ],
)
def test_an_ordering_value_has_the_type_of_its_column(
    value: bytes, type_: pa.DataType, expected: Any
) -> None:
    _, ordering, _ = decode_deletes(content(value, wrapped(0, b"")), {"o": type_}, path="f")
    assert ordering is not None
    assert ordering.type == pa.struct([("o", type_)])
    assert ordering.to_pylist() == [{"o": expected}, None]


def test_several_ordering_values_make_one_struct() -> None:
    array = zigzag(1) + zigzag(3) + wrapped(3, zigzag(5)) + wrapped(0, b"") + wrapped(12, zigzag(1)) + b"\x00"
    types = {"ts": pa.int64(), "note": pa.string(), "day": pa.date32()}
    _, ordering, flags = decode_deletes(content(wrapped(12, array), wrapped(2, zigzag(0))), types, path="f")
    assert ordering is not None
    assert ordering.to_pylist() == [{"ts": 5, "note": None, "day": datetime.date(1970, 1, 2)}, None]
    assert flags.to_pylist() == [False, True]


def test_a_long_in_a_column_of_milliseconds_is_milliseconds() -> None:
    _, ordering, _ = decode_deletes(
        content(wrapped(3, zigzag(7))), {"ts": UTC_MICROS}, path="f", millis=frozenset({"ts"})
    )
    assert ordering is not None
    assert ordering.field("ts").to_pylist() == [datetime.datetime(1970, 1, 1, 0, 0, 0, 7000, datetime.UTC)]


def test_a_table_without_ordering_fields_gets_no_ordering_values() -> None:
    keys, ordering, _ = decode_deletes(content(wrapped(3, zigzag(7)), wrapped(0, b"")), {}, path="f")
    assert keys.to_pylist() == ["0", "1"]
    assert ordering is None


def test_an_empty_delete_block_has_typed_columns() -> None:
    keys, ordering, flags = decode_deletes(content(), {"a": pa.int64(), "b": pa.string()}, path="f")
    assert (len(keys), len(flags)) == (0, 0)
    assert ordering is not None
    assert ordering.type == pa.struct([("a", pa.int64()), ("b", pa.string())])


@pytest.mark.parametrize(
    ("version", "words"), [(1, "Java objects"), (2, "Java objects"), (0, "version 0"), (4, "version 4")]
)
def test_a_delete_block_of_another_version_is_refused(version: int, words: str) -> None:
    with pytest.raises(UnsupportedError, match=words) as caught:
        decode_deletes(content(version=version), {}, path="some.log")
    assert "some.log" in str(caught.value)


@pytest.mark.parametrize(
    ("data", "types"),
    [
        (memoryview(b""), {}),
        (memoryview(struct.pack(">ii", 3, 100)), {}),
        (memoryview(struct.pack(">ii", 3, -1)), {}),
        (content(wrapped(13, b"")), {}),
        (content(wrapped(7, b"\x02a")), {"ts": pa.int64()}),
        (content(wrapped(3, zigzag(7))), {"a": pa.int64(), "b": pa.int64()}),
        (content(wrapped(12, zigzag(0))), {"a": pa.int64()}),
        (content(wrapped(9, b"\x02\x01")), {"d": pa.decimal128(5, 2)}),
        (memoryview(struct.pack(">ii", 3, 5) + b"\x02\x00\x00\x00\x00"), {}),
    ],
)
def test_a_delete_block_that_breaks_the_format_is_an_error(
    data: memoryview, types: dict[str, pa.DataType]
) -> None:
    with pytest.raises(CorruptTableError, match=r"some\.log"):
        decode_deletes(data, types, path="some.log")
