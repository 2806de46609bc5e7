"""A delete block says the same in columns and in rows; a wrong value here brings deleted rows back."""

from __future__ import annotations

import io
import json
import struct
from typing import Any

import fastavro
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from bucketlake.logfile.avro_rows import decode_delete_rows
from bucketlake.logfile.deletes import DELETE_LIST_SCHEMA, decode_deletes

INT = st.integers(-(2**31), 2**31 - 1)
LONG = st.integers(-(2**63), 2**63 - 1)

# Wrapper -> values, and the type of a column they fit.
WRAPPERS: dict[str, tuple[st.SearchStrategy[Any], pa.DataType]] = {
    "BooleanWrapper": (st.booleans(), pa.bool_()),
    "IntWrapper": (st.just(0) | INT, pa.int32()),
    "LongWrapper": (st.just(0) | LONG, pa.int64()),
    "FloatWrapper": (st.floats(width=32, allow_nan=False), pa.float32()),
    "DoubleWrapper": (st.floats(allow_nan=False), pa.float64()),
    "BytesWrapper": (st.binary(max_size=9), pa.binary()),
    "StringWrapper": (st.text(st.characters(exclude_categories=["Cs"]), max_size=9), pa.string()),
    "DateWrapper": (st.integers(-700_000, 2_900_000), pa.date32()),
    "TimestampMicrosWrapper": (LONG, pa.timestamp("us", tz="UTC")),
}
PLAIN_LIST = fastavro.parse_schema(
    json.loads(DELETE_LIST_SCHEMA.replace('"logicalType"', '"left_out"')), named_schemas={}
)

Delete = tuple[str, str | None, Any]


def delete_block(deletes: list[Delete]) -> bytes:
    stream = io.BytesIO()
    listed = [
        {"recordKey": key, "partitionPath": partition, "orderingVal": wrap(value)}
        for key, partition, value in deletes
    ]
    fastavro.schemaless_writer(stream, PLAIN_LIST, {"deleteRecordList": listed})
    return struct.pack(">ii", 3, stream.tell()) + stream.getvalue()


def wrap(value: Any) -> Any:
    if value is None:
        return None
    name, inner = value
    if name == "ArrayWrapper":
        return name, {"wrappedValues": [wrap(element) for element in inner]}
    return name, {"value": inner}


def is_default(value: Any) -> bool:
    return value is None or value in (("IntWrapper", 0), ("ArrayWrapper", [("IntWrapper", 0)]))


@st.composite
def delete_lists(draw: st.DrawFn) -> tuple[dict[str, pa.DataType], list[Delete]]:
    wrappers = draw(st.lists(st.sampled_from(list(WRAPPERS)), max_size=3))
    parts = [st.tuples(st.just(name), WRAPPERS[name][0]) for name in wrappers]
    arrays = st.tuples(st.just("ArrayWrapper"), st.tuples(*parts).map(list))
    values = st.none() | st.just(("IntWrapper", 0)) | (arrays if parts else st.nothing())
    if len(parts) == 1:
        values |= parts[0]
    keys = st.text(st.characters(exclude_categories=["Cs"]), max_size=9)
    deletes = draw(st.lists(st.tuples(keys, st.none() | keys, values), max_size=8))
    return {f"o{index}": WRAPPERS[name][1] for index, name in enumerate(wrappers)}, deletes


@given(delete_lists())
def test_deletes_in_columns_equal_deletes_in_rows(
    written: tuple[dict[str, pa.DataType], list[Delete]],
) -> None:
    types, deletes = written
    content = memoryview(delete_block(deletes))
    assert decode_delete_rows(content) == deletes

    keys, ordering, is_commit_time = decode_deletes(content, types, path="f")
    assert keys.to_pylist() == [key for key, _, _ in deletes]
    assert is_commit_time.to_pylist() == [is_default(value) for _, _, value in deletes]
    if not types:
        assert ordering is None
        return
    expected: list[dict[str, Any] | None] = []
    for _, _, value in deletes:
        if is_default(value):
            expected.append(None)
        else:
            parts = value[1] if value[0] == "ArrayWrapper" else [value]
            expected.append({name: part[1] for name, part in zip(types, parts, strict=True)})
    assert ordering is not None
    assert ordering.type == pa.struct(list(types.items()))
    assert ordering.equals(pa.array(expected, pa.struct(list(types.items()))))
