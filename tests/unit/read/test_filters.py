"""Filters must mean what Spark SQL means, and a wrong one must be refused before a file is opened."""

import datetime
import math
import operator
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from bucketlake.errors import FilterError
from bucketlake.read.filters import Filter, Op, apply_filters, parse_filters, satisfied

SCHEMA = pa.schema(
    [
        ("id", pa.int32()),
        ("name", pa.string()),
        ("price", pa.decimal128(10, 2)),
        ("ratio", pa.float64()),
        ("small", pa.float32()),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", tz="UTC")),
        ("at_local", pa.timestamp("us")),
        ("raw", pa.binary()),
        ("ok", pa.bool_()),
        ("tags", pa.list_(pa.string())),
    ]
)


@pytest.mark.parametrize(
    ("raw", "parsed"),
    [
        (("id", "==", 7), Filter("id", Op.EQ, 7)),
        (("id", "<>", 7), Filter("id", Op.NE, 7)),
        (("id", "IN", [1, None, 2]), Filter("id", Op.IN, (1, 2))),
        (("name", "starts with", "a"), Filter("name", Op.STARTS_WITH, "a")),
        (("tags", "is null"), Filter("tags", Op.IS_NULL)),
        (Filter("id", Op.GT, 1), Filter("id", Op.GT, 1)),
        (("ratio", ">", 1), Filter("ratio", Op.GT, 1)),
        (("id", "not in", []), Filter("id", Op.IS_NOT_NULL)),
        (("price", "<", Decimal("1.555")), Filter("price", Op.LE, Decimal("1.55"))),
        (("price", ">=", Decimal("-1.555")), Filter("price", Op.GT, Decimal("-1.56"))),
        (("price", ">", 10**8), Filter("price", Op.IN, ())),
        (("price", ">", -(10**30)), Filter("price", Op.IS_NOT_NULL)),
        (("price", "=", Decimal("0.001")), Filter("price", Op.IN, ())),
        (("price", "not in", [Decimal("0.001")]), Filter("price", Op.IS_NOT_NULL)),
    ],
)
def test_a_filter_is_parsed_once(raw: Any, parsed: Filter) -> None:
    assert parse_filters([raw], SCHEMA) == (parsed,)


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (("nope", "=", 1), "nope"),
        (("id", "like", "x"), "unknown operator 'like'"),
        (("id", "=", "7"), "an int of 32 bits"),
        (("id", "=", 2**31), "an int of 32 bits"),
        (("id", "=", True), "an int of 32 bits"),
        (("id", "=", 1.5), "an int of 32 bits"),
        (("id", "=", None), "use (column, 'is null')"),
        (("id", "in", 7), "takes a list"),
        (("id", "in", ["a"]), "an int of 32 bits"),
        (("id", "not in", [1, None]), "null"),
        (("name", "=", 7), "a str"),
        (("name", "=", "a\ud800"), "without lone surrogates"),
        (("name", "in", ["a", "\ud800"]), "without lone surrogates"),
        (("name", "in", "abc"), "takes a list"),
        (("raw", "=", "text"), "bytes"),
        (("ok", "=", 1), "True or False"),
        (("day", "=", "2024-01-01"), "a datetime.date"),
        (("day", "=", datetime.datetime(2024, 1, 1)), "a datetime.date"),
        (("at", "=", datetime.datetime(2024, 1, 1)), "with its time zone"),
        (("at_local", "=", datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC)), "without time zone"),
        (("price", "=", 1.5), "a decimal.Decimal"),
        (("price", "=", Decimal("NaN")), "neither NaN nor infinite"),
        (("ratio", "<", 10**400), "the range of floats"),
        (("tags", "=", ["a"]), "only 'is null'"),
        (("id", "starts with", 1), "applies to strings"),
        (("id",), "(column, operator, value)"),
    ],
)
def test_a_filter_that_does_not_fit_is_refused(raw: Any, message: str) -> None:
    with pytest.raises(FilterError) as refused:
        parse_filters([raw], SCHEMA)
    assert message in str(refused.value)


def test_a_day_may_be_numpys() -> None:
    (found,) = parse_filters([("day", "=", np.datetime64("2024-01-01"))], SCHEMA)
    assert found.value == datetime.date(2024, 1, 1)
    with pytest.raises(FilterError, match=r"datetime64: expected a datetime\.date"):
        parse_filters([("day", "=", np.datetime64("NaT", "D"))], SCHEMA)


NAN = math.nan


@pytest.mark.parametrize(
    ("op", "value", "verdicts"),
    [
        (Op.EQ, 1.0, [True, False, False, None]),
        (Op.NE, 1.0, [False, True, True, None]),
        (Op.GT, 1.0, [False, True, True, None]),
        (Op.LE, 1.0, [True, False, False, None]),
        (Op.EQ, NAN, [False, False, True, None]),
        (Op.NE, NAN, [True, True, False, None]),
        (Op.LT, NAN, [True, True, False, None]),
        (Op.GE, NAN, [False, False, True, None]),
        (Op.LE, NAN, [True, True, True, None]),
        (Op.GT, NAN, [False, False, False, None]),
        (Op.IN, (1.0, NAN), [True, False, True, None]),
        (Op.NOT_IN, (1.0, NAN), [False, True, False, None]),
    ],
)
@pytest.mark.parametrize("kind", [pa.float64(), pa.float32()])
def test_nan_equals_itself_and_is_above_every_number(
    kind: pa.DataType, op: Op, value: object, verdicts: list[bool | None]
) -> None:
    values = pa.array([1.0, 2.0, NAN, None], kind)
    assert satisfied(values, Filter("x", op, value)).to_pylist() == verdicts


TEXTS = [
    "0",
    "1.5",
    "1.56",
    "-1.5",
    "-1.56",
    "1.555",
    "-1.555",
    "1E+2",
    "99999999.99",
    "1E+9",
    "-1E+30",
    "1E-400",
]


@pytest.mark.parametrize("op", ["=", "!=", "<", "<=", ">", ">=", "in", "not in"])
def test_a_decimal_is_compared_exactly_even_with_what_its_column_cannot_hold(op: str) -> None:
    kind = SCHEMA.field("price").type
    values = [Decimal(text) for text in ("0", "1.5", "1.56", "-1.5", "-1.56", "99999999.99", "-99999999.99")]
    compare = {
        "=": "eq",
        "!=": "ne",
        "<": "lt",
        "<=": "le",
        ">": "gt",
        ">=": "ge",
        "in": "eq",
        "not in": "ne",
    }
    for wanted in map(Decimal, TEXTS):
        (condition,) = parse_filters([("price", op, [wanted] if op.endswith("in") else wanted)], SCHEMA)
        batch = pa.record_batch({"price": pa.array([*values, None], kind)})
        found = apply_filters(batch, [condition]).column(0).to_pylist()
        assert found == [value for value in values if getattr(operator, compare[op])(value, wanted)]


def test_rows_satisfy_all_filters_or_are_dropped() -> None:
    batch = pa.record_batch({"id": [1, 2, None, 4], "name": ["a", "ab", "abc", None]})
    kept = apply_filters(batch, [Filter("id", Op.GE, 1), Filter("name", Op.STARTS_WITH, "a")])
    assert kept.to_pylist() == [{"id": 1, "name": "a"}, {"id": 2, "name": "ab"}]
