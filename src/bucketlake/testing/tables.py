"""Random tables for property tests: every type a table can hold, nested, with nulls where they may be.

`tables` draws schema and rows together. Rows come as Arrow hands them around:
in several chunks, and cut out of larger ones.
"""

from __future__ import annotations

import datetime
import decimal
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=9)

Typed = tuple[pa.DataType, st.SearchStrategy[Any]]
"""A type, and values of it as Python has them."""

_UTC_TIMES = st.datetimes(timezones=st.just(datetime.UTC))
_PLAIN: list[Typed] = [
    (pa.bool_(), st.booleans()),
    (pa.int32(), st.integers(-(2**31), 2**31 - 1)),
    (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    (pa.float32(), st.floats(width=32, allow_nan=False)),
    (pa.float64(), st.floats(allow_nan=False)),
    (pa.string(), TEXT),
    (pa.binary(), st.binary(max_size=9)),
    (pa.date32(), st.dates()),
    (pa.timestamp("us", tz="UTC"), _UTC_TIMES),
    (pa.timestamp("us"), st.datetimes()),
]


@st.composite
def decimals(draw: st.DrawFn) -> Typed:
    precision = draw(st.integers(1, 38))
    scale = draw(st.integers(0, precision))
    unscaled = st.integers(-(10**precision) + 1, 10**precision - 1)
    with decimal.localcontext(prec=80):
        return pa.decimal128(precision, scale), unscaled.map(
            lambda number: decimal.Decimal(number).scaleb(-scale, decimal.Context(prec=80))
        )


@st.composite
def leaves(draw: st.DrawFn) -> Typed:
    """Draw a type without anything inside it."""
    return draw(st.sampled_from(_PLAIN) | decimals())


@st.composite
def fields(draw: st.DrawFn, name: str, depth: int) -> tuple[pa.Field, st.SearchStrategy[Any]]:
    kind: pa.DataType
    match draw(st.sampled_from(["leaf"] * 3 + (["list", "map", "struct"] if depth else []))):
        case "list":
            element, values = draw(fields("element", depth - 1))
            kind, values = pa.list_(element), st.lists(values, max_size=3)
        case "map":
            value, values = draw(fields("value", depth - 1))
            kind = pa.map_(pa.field("key", pa.string(), nullable=False), value)
            values = st.dictionaries(TEXT, values, max_size=3).map(lambda entries: list(entries.items()))
        case "struct":
            inner = [draw(fields(f"f{index}", depth - 1)) for index in range(draw(st.integers(1, 3)))]
            kind = pa.struct([field for field, _ in inner])
            values = st.fixed_dictionaries({field.name: values for field, values in inner})
        case _:
            kind, values = draw(leaves())
    is_nullable = draw(st.booleans())
    return pa.field(name, kind, nullable=is_nullable), (st.none() | values) if is_nullable else values


@st.composite
def schemas(draw: st.DrawFn, *, depth: int = 2, columns_max: int = 5) -> pa.Schema:
    """Draw the schema of a table, columns `c0` and on."""
    drawn = [draw(fields(f"c{index}", depth)) for index in range(draw(st.integers(1, columns_max)))]
    return pa.schema([field for field, _ in drawn])


@st.composite
def tables(draw: st.DrawFn, *, depth: int = 2, columns_max: int = 5, rows_max: int = 8) -> pa.Table:
    """Draw a table, columns `c0` and on."""
    drawn = [draw(fields(f"c{index}", depth)) for index in range(draw(st.integers(1, columns_max)))]
    schema = pa.schema([field for field, _ in drawn])
    rows = st.lists(st.fixed_dictionaries({field.name: values for field, values in drawn}), max_size=rows_max)
    chunks = [pa.Table.from_pylist(part, schema) for part in draw(st.lists(rows, min_size=1, max_size=2))]
    whole = pa.concat_tables(chunks)
    start = draw(st.integers(0, whole.num_rows))
    return whole.slice(start, draw(st.integers(0, whole.num_rows - start)))
