"""Columns decoded by the kernel equal rows decoded by fastavro, and bad bytes never crash."""

from __future__ import annotations

import io
import json
import struct
from typing import Any

import fastavro
from hypothesis import given, settings
from hypothesis import strategies as st

from bucketlake.errors import CorruptTableError, UnsupportedError
from bucketlake.logfile import avro_columns, avro_rows

INT = st.integers(-(2**31), 2**31 - 1)
LONG = st.integers(-(2**63), 2**63 - 1)
MILLIS = st.integers(-(10**14), 10**14)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)

Typed = tuple[Any, st.SearchStrategy[Any]]
"""A declaration, and the values that fastavro encodes under it once logical types are left out."""


def decimals(digits: int) -> st.SearchStrategy[int]:
    return st.integers(-(10**digits) + 1, 10**digits - 1)


def signed(number: int, size: int) -> bytes:
    return number.to_bytes(size, signed=True)


class Names:
    """Named types need names of their own."""

    def __init__(self) -> None:
        self._count = 0

    def next(self) -> str:
        self._count += 1
        return f"n{self._count}"


@st.composite
def leaves(draw: st.DrawFn, names: Names) -> Typed:
    digits = draw(st.integers(1, 38))
    decimal = {"logicalType": "decimal", "precision": digits, "scale": draw(st.integers(0, digits))}
    size = (digits * 10 + 5) // 24 + 2
    symbols = ["A", "B", "C"][: draw(st.integers(1, 3))]
    return draw(
        st.sampled_from(
            [
                ("boolean", st.booleans()),
                ("int", INT),
                ("long", LONG),
                ("float", st.floats(width=32, allow_nan=False)),
                ("double", st.floats(allow_nan=False)),
                ("bytes", st.binary(max_size=12)),
                ("string", TEXT),
                ({"type": "string", "logicalType": "uuid"}, TEXT),
                ({"type": "int", "logicalType": "date"}, st.integers(-700_000, 2_900_000)),
                ({"type": "int", "logicalType": "time-millis"}, INT),
                ({"type": "long", "logicalType": "time-micros"}, LONG),
                ({"type": "long", "logicalType": "timestamp-micros"}, LONG),
                ({"type": "long", "logicalType": "timestamp-millis"}, MILLIS),
                ({"type": "long", "logicalType": "local-timestamp-micros"}, LONG),
                ({"type": "long", "logicalType": "local-timestamp-millis"}, MILLIS),
                (
                    {"type": "bytes", **decimal},
                    st.builds(signed, decimals(digits), st.sampled_from([size, 17, 20])),
                ),
                (
                    {"type": "fixed", "name": names.next(), "size": size, **decimal},
                    decimals(digits).map(lambda number: signed(number, size)),
                ),
                ({"type": "fixed", "name": names.next(), "size": 3}, st.binary(min_size=3, max_size=3)),
                ({"type": "enum", "name": names.next(), "symbols": symbols}, st.sampled_from(symbols)),
            ]
        )
    )


@st.composite
def typed(draw: st.DrawFn, names: Names, depth: int) -> Typed:
    kind = draw(st.sampled_from(["leaf"] * 3 + (["array", "map", "record"] if depth else [])))
    match kind:
        case "array":
            items, values = draw(typed(names, depth - 1))
            result: Typed = {"type": "array", "items": items}, st.lists(values, max_size=3)
        case "map":
            items, values = draw(typed(names, depth - 1))
            result = {"type": "map", "values": items}, st.dictionaries(TEXT, values, max_size=3)
        case "record":
            result = draw(records(names, depth - 1, max_fields=3))
        case _:
            result = draw(leaves(names))
    declared, values = result
    match draw(st.sampled_from(["plain", "null first", "null last"])):
        case "null first":
            return ["null", declared], st.none() | values
        case "null last":
            return [declared, "null"], st.none() | values
    return declared, values


@st.composite
def records(draw: st.DrawFn, names: Names, depth: int, max_fields: int) -> Typed:
    fields = [draw(typed(names, depth)) for _ in range(draw(st.integers(1, max_fields)))]
    declared = {
        "type": "record",
        "name": names.next(),
        "fields": [{"name": f"f{index}", "type": field} for index, (field, _) in enumerate(fields)],
    }
    return declared, st.fixed_dictionaries({f"f{index}": values for index, (_, values) in enumerate(fields)})


def without_logical_types(declared: Any) -> Any:
    if isinstance(declared, list):
        return [without_logical_types(part) for part in declared]
    if isinstance(declared, dict):
        return {key: without_logical_types(part) for key, part in declared.items() if key != "logicalType"}
    return declared


def block(declared: Any, rows: list[Any]) -> bytes:
    schema = fastavro.parse_schema(without_logical_types(declared))
    parts = [struct.pack(">ii", 3, len(rows))]
    for row in rows:
        stream = io.BytesIO()
        fastavro.schemaless_writer(stream, schema, row)
        parts += (struct.pack(">i", stream.tell()), stream.getvalue())
    return b"".join(parts)


@st.composite
def blocks(draw: st.DrawFn) -> tuple[str, bytes, list[str]]:
    declared, values = draw(records(Names(), depth=3, max_fields=5))
    content = block(declared, draw(st.lists(values, max_size=6)))
    return json.dumps(declared), content, [field["name"] for field in declared["fields"]]


@settings(max_examples=200)
@given(blocks(), st.data())
def test_columns_equal_rows(written: tuple[str, bytes, list[str]], data: st.DataObject) -> None:
    schema, content, names = written
    wanted = data.draw(st.none() | st.lists(st.sampled_from(names), min_size=1, unique=True))
    columns = avro_columns.decode_records(memoryview(content), schema, wanted, path="f")
    rows = avro_rows.decode_records(memoryview(content), schema, wanted, path="f")
    columns.validate(full=True)
    assert columns.schema == rows.schema
    assert columns.equals(rows)


@settings(max_examples=200)
@given(blocks(), st.data())
def test_bad_bytes_give_rows_or_an_error_of_ours(
    written: tuple[str, bytes, list[str]], data: st.DataObject
) -> None:
    schema, content, names = written
    mangled = bytearray(content)
    for _ in range(data.draw(st.integers(0, 4))):
        mangled[data.draw(st.integers(0, len(mangled) - 1))] = data.draw(
            st.sampled_from([0, 1, 2, 127, 128, 255])
        )
    del mangled[data.draw(st.integers(len(mangled) // 2, len(mangled))) :]
    wanted = data.draw(st.none() | st.just(names[:1]))
    try:
        decoded = avro_columns.decode_records(memoryview(mangled), schema, wanted, path="f")
    except (CorruptTableError, UnsupportedError):
        return
    decoded.validate(full=True)
