"""Bytes that break the format are named by file and place, and never read as rows."""

from __future__ import annotations

import json
import struct
from typing import Any

import pyarrow as pa
import pytest

from bucketlake.errors import CorruptTableError, UnsupportedError
from bucketlake.logfile.avro_columns import decode_records


def schema(*types: Any) -> str:
    fields = [{"name": f"f{index}", "type": type_} for index, type_ in enumerate(types)]
    return json.dumps({"type": "record", "name": "row", "fields": fields})


def content(*records: bytes, version: int = 3, count: int | None = None) -> memoryview:
    framed = b"".join(struct.pack(">i", len(record)) + record for record in records)
    return memoryview(struct.pack(">ii", version, len(records) if count is None else count) + framed)


def test_the_spec_example_of_an_array_in_blocks_decodes() -> None:
    """Blocks of one and two items; the second gives its size in bytes, as Avro allows."""
    data = content(b"\x02\x06\x03\x04\x36\x38\x00", b"\x00")
    batch = decode_records(data, schema({"type": "array", "items": "long"}), None, path="f")
    assert batch.to_pylist() == [{"f0": [3, 27, 28]}, {"f0": []}]


def test_no_wanted_column_still_counts_the_rows() -> None:
    batch = decode_records(content(b"\x02", b"\x04"), schema("int"), [], path="f")
    assert (batch.num_rows, batch.num_columns) == (2, 0)


def test_a_block_without_records_has_typed_columns() -> None:
    batch = decode_records(content(), schema("int", ["null", "string"]), None, path="f")
    assert batch.schema == pa.schema([pa.field("f0", pa.int32(), nullable=False), ("f1", pa.string())])
    assert batch.num_rows == 0


def test_a_union_of_one_type_is_read() -> None:
    assert decode_records(content(b"\x00\x02"), schema(["int"]), None, path="f").to_pylist() == [{"f0": 1}]


@pytest.mark.parametrize(
    ("type_", "record", "words"),
    [
        ("int", b"", "number that never ends"),
        ("int", b"\x80", "number that never ends"),
        ("int", b"\xff\xff\xff\xff\x7f", "too large"),
        ("long", b"\xff" * 11, "too large"),
        ("double", bytes(7), "end inside a value"),
        ("float", bytes(3), "end inside a value"),
        ("boolean", b"", "end inside a value"),
        ("boolean", b"\x02", "neither 0 nor 1"),
        ("string", b"\x0aab", "length beyond"),
        ("string", b"\x01", "length beyond"),
        ("string", b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01", "length beyond"),
        ("string", b"\x02\xff", "can't hold"),
        (["null", "int"], b"\x04", "union branch"),
        (["null", "int"], b"\x01", "union branch"),
        (["int"], b"\x02\x02", "union branch"),
        ({"type": "enum", "name": "e", "symbols": ["A"]}, b"\x02", "enum symbol"),
        ({"type": "fixed", "name": "x", "size": 4}, bytes(3), "length beyond"),
        ({"type": "array", "items": "int"}, b"\x02", "length beyond"),
        ({"type": "array", "items": "int"}, b"\x80\x80\x80\x80\x20\x02", "length beyond"),
        ({"type": "array", "items": "int"}, b"\x02\x02", "number that never ends"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 2}, b"\x04\x10\x00", "can't hold"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 38}, b"\x22\x01" + bytes(16), "38 digits"),
        ("int", b"\x02\x02", "shorter than its length"),
    ],
)
def test_a_value_that_breaks_the_format_is_named_by_file_and_place(
    type_: Any, record: bytes, words: str
) -> None:
    with pytest.raises(CorruptTableError, match=words) as caught:
        decode_records(content(record), schema(type_), None, path="some.log", offset=1000)
    assert "some.log" in str(caught.value)
    assert "at byte 10" in str(caught.value)


@pytest.mark.parametrize(
    "data",
    [
        memoryview(b""),
        memoryview(b"\x00\x00\x00\x03"),
        content(count=-1),
        content(count=1),
        content(b"\x02", count=2),
        content(b"\x02")[:-1],
        memoryview(struct.pack(">iii", 3, 1, -1)),
        memoryview(struct.pack(">iii", 3, 1, 2**31 - 1)),
        memoryview(bytes(content(b"\x02")) + b"more"),
    ],
)
def test_a_block_whose_counts_are_wrong_is_an_error(data: memoryview) -> None:
    with pytest.raises(CorruptTableError, match=r"some\.log"):
        decode_records(data, schema("int"), None, path="some.log")


def test_a_data_block_of_another_version_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="version 4"):
        decode_records(content(version=4), schema("int"), None, path="f")


def test_text_after_the_last_wanted_column_is_not_looked_at() -> None:
    batch = decode_records(content(b"\x02\x02\xff"), schema("int", "string"), ["f0"], path="f")
    assert batch.to_pylist() == [{"f0": 1}]
