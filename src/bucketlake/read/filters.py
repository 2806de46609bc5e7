"""What a caller asks of a column, checked against the table once.

A filter is a column, an operator and a value; a list of them means *and*.
They mean what Spark SQL means: a null satisfies only `is null`, and NaN
equals itself and is above every number.

This module decides what a filter says of values. Which files can hold such
values is `prune`.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import ROUND_FLOOR, Context, Decimal
from enum import StrEnum
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bucketlake.errors import FilterError


class Op(StrEnum):
    """What a filter may ask of a column. The text will do: `("amount", ">=", 100)`."""

    EQ = "="
    NE = "!="
    LT = "<"
    LE = "<="
    GT = ">"
    GE = ">="
    IN = "in"
    NOT_IN = "not in"
    IS_NULL = "is null"
    IS_NOT_NULL = "is not null"
    STARTS_WITH = "starts with"


@dataclass(frozen=True, slots=True)
class Filter:
    """One condition on one column: `Filter("amount", Op.GE, 100)`. A tuple of the three does the same.

    `value` is a tuple for `in` and `not in`, and None for the null tests.
    """

    column: str
    op: Op
    value: Any = None

    def __str__(self) -> str:
        if self.op in _NULL_TESTS:
            return f"{self.column} {self.op}"
        return f"{self.column} {self.op} {self.value!r}"


RawFilter = Filter | tuple[str, str] | tuple[str, str, Any]

_NULL_TESTS = frozenset({Op.IS_NULL, Op.IS_NOT_NULL})
_LISTS = frozenset({Op.IN, Op.NOT_IN})
_SPELLINGS = {op.value: op for op in Op} | {
    "==": Op.EQ,
    "<>": Op.NE,
    "startswith": Op.STARTS_WITH,
    "starts_with": Op.STARTS_WITH,
    "not_in": Op.NOT_IN,
    "is_null": Op.IS_NULL,
    "is_not_null": Op.IS_NOT_NULL,
}


def parse_filters(raw: Iterable[RawFilter], schema: pa.Schema) -> tuple[Filter, ...]:
    """Check filters against the columns of a table, before anything is read.

    >>> parse_filters([("id", "==", 7)], pa.schema([("id", pa.int64())]))
    (Filter(column='id', op=<Op.EQ: '='>, value=7),)
    """
    if isinstance(raw, str | Mapping) or not isinstance(raw, Iterable):
        raise FilterError(f"filters is {raw!r}; expected a list such as [('id', '=', 7)].")
    return tuple(_parse_filter(item, schema) for item in raw)


def _parse_filter(raw: RawFilter, schema: pa.Schema) -> Filter:
    column, op, value = _parts(raw)
    if column not in schema.names:
        raise FilterError(f"a filter names the column {column!r}; the table has {', '.join(schema.names)}.")
    kind = schema.field(column).type
    if op in _NULL_TESTS:
        return Filter(column, op)
    if pa.types.is_nested(kind):
        raise FilterError(f"column {column!r} is a {kind}; only 'is null' and 'is not null' apply to it.")
    if op in _LISTS:
        if isinstance(value, str | bytes) or not isinstance(value, Iterable):
            raise FilterError(f"the filter {column} {op} takes a list of values and got {value!r}.")
        value = tuple(value)
        if op is Op.NOT_IN and None in value:
            raise FilterError(
                f"the filter {column} not in (…, null) matches nothing in SQL; leave the null out."
            )
        values = tuple(check_value(v, kind, column) for v in value if v is not None)
        return _fitted(Filter(column, op, values), kind)
    if op is Op.STARTS_WITH and not pa.types.is_string(kind):
        raise FilterError(f"column {column!r} is a {kind}; 'starts with' applies to strings.")
    if value is None:
        raise FilterError(f"the filter {column} {op} None matches nothing; use (column, 'is null').")
    return _fitted(Filter(column, op, check_value(value, kind, column)), kind)


def _fitted(condition: Filter, kind: pa.DataType) -> Filter:
    """Say a condition with values that the column can hold, so that nobody has to round or widen to compare."""
    column, op, value = condition.column, condition.op, condition.value
    if pa.types.is_decimal(kind):
        if op in _LISTS:
            value = tuple(held for v in value if (held := _floor(v, kind)) == v)
            condition = Filter(column, op, value)
        else:
            condition = _compared_at_scale(condition, kind)
    # Spark finds null in no empty list, and so not in it; here a null satisfies only `is null`.
    return Filter(column, Op.IS_NOT_NULL) if op is Op.NOT_IN and not value else condition


def _compared_at_scale(condition: Filter, kind: pa.DataType) -> Filter:
    """Compare with the next lower number of the column's scale: x < 1.555 is x <= 1.55 if there are two places."""
    column, op, value = condition.column, condition.op, condition.value
    lower = _floor(value, kind)
    if lower == value:
        return Filter(column, op, lower)
    if lower is not None and op in (Op.LT, Op.LE, Op.GT, Op.GE):
        return Filter(column, Op.LE if op in (Op.LT, Op.LE) else Op.GT, lower)
    is_true = op is Op.NE or op in ((Op.LT, Op.LE) if value > 0 else (Op.GT, Op.GE))
    return Filter(column, Op.IS_NOT_NULL) if is_true else Filter(column, Op.IN, ())


def _floor(value: Decimal, kind: pa.DataType) -> Decimal | None:
    """Return the greatest number of a decimal type that is not above `value`; None if that lies outside of the type.

    >>> _floor(Decimal("-1.555"), pa.decimal128(9, 2)), _floor(Decimal("1E+20"), pa.decimal128(9, 2))
    (Decimal('-1.56'), None)
    """
    unit = Decimal((0, (1,), -kind.scale))
    most = Decimal((0, (9,) * kind.precision, -kind.scale))
    if not most.copy_negate() <= value <= most:
        return None
    return value.quantize(unit, rounding=ROUND_FLOOR, context=Context(prec=kind.precision + 1))


def _parts(raw: RawFilter) -> tuple[str, Op, Any]:
    match raw:
        case Filter(column, op, value):
            return column, op, value
        case (str(column), str(word)):
            value = None
        case (str(column), str(word), value):
            pass
        case _:
            raise FilterError(f"a filter is (column, operator, value) and got {raw!r}.")
    known = _SPELLINGS.get(" ".join(word.lower().split()))
    if known is None:
        raise FilterError(f"unknown operator {word!r} on column {column!r}; use one of {', '.join(Op)}.")
    return column, known, value


_INTEGER_BOUND = {8: 2**7, 16: 2**15, 32: 2**31, 64: 2**63}


def check_value(value: object, kind: pa.DataType, column: str) -> Any:
    """Return `value` as a column of this type has it; a near miss is an error, never a cast."""
    found, value = value, _plain(value, kind)
    fits, expected = _fits(value, kind)
    if fits and pa.types.is_floating(kind):
        fits, value = _as_float(value)
    if not fits:
        raise FilterError(
            f"column {column!r} is a {kind} and the value {found!r} is a {type(found).__name__}: expected {expected}."
        )
    return Decimal(value) if pa.types.is_decimal(kind) else value  # type: ignore[arg-type]  # `_fits` says so


def _as_float(value: Any) -> tuple[bool, float]:
    try:
        return True, float(value)
    except OverflowError:
        return False, value


def _plain(value: Any, kind: pa.DataType) -> Any:
    """Return the Python value that numpy's, Arrow's or a whole Decimal stands for."""
    if isinstance(value, np.datetime64):
        value = pa.array(np.array([value]))[0]  # `pa.scalar` takes no day
    if isinstance(value, pa.Scalar):
        return value.as_py()
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Decimal) and pa.types.is_integer(kind) and value == value.to_integral_value():
        return int(value)
    return value


def _fits(value: object, kind: pa.DataType) -> tuple[bool, str]:
    is_int = isinstance(value, int) and not isinstance(value, bool)
    if pa.types.is_boolean(kind):
        return isinstance(value, bool), "True or False"
    if pa.types.is_integer(kind):
        bound = _INTEGER_BOUND[kind.bit_width]
        return is_int and -bound <= value < bound, f"an int of {kind.bit_width} bits"  # type: ignore[operator]  # is_int says so
    if pa.types.is_floating(kind):
        return is_int or isinstance(value, float), "a number within the range of floats"
    if pa.types.is_decimal(kind):
        return is_int or (
            isinstance(value, Decimal) and value.is_finite()
        ), "a decimal.Decimal, neither NaN nor infinite"
    if pa.types.is_string(kind):
        if not isinstance(value, str):
            return False, "a str"
        return _is_unicode(value), "a str without lone surrogates, which no file can hold"
    if pa.types.is_binary(kind) or pa.types.is_fixed_size_binary(kind):
        return isinstance(value, bytes), "bytes"
    if pa.types.is_date(kind):
        return isinstance(value, datetime.date) and not isinstance(
            value, datetime.datetime
        ), "a datetime.date"
    if pa.types.is_timestamp(kind):
        aware = isinstance(value, datetime.datetime) and value.tzinfo is not None
        if kind.tz is None:
            return isinstance(value, datetime.datetime) and not aware, "a datetime.datetime without time zone"
        return aware, "a datetime.datetime with its time zone"
    return False, "a column of another type: filters on this one are not supported"


def _is_unicode(text: str) -> bool:
    """Tell whether a text has no half of a surrogate pair that stands alone, as Python lets it."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def apply_filters(batch: pa.RecordBatch, filters: Sequence[Filter]) -> pa.RecordBatch:
    """Keep the rows that satisfy all filters."""
    for condition in filters:
        if batch.num_rows == 0:
            break
        batch = batch.filter(satisfied(batch.column(condition.column), condition))
    return batch


def satisfied(values: pa.Array, condition: Filter) -> pa.Array:
    """Say of each value whether it satisfies the filter; null where SQL says null."""
    op, wanted = condition.op, condition.value
    match op:
        case Op.IS_NULL:
            return pc.is_null(values)
        case Op.IS_NOT_NULL:
            return pc.is_valid(values)
        case Op.STARTS_WITH:
            return pc.starts_with(values, pattern=wanted)
        case Op.IN | Op.NOT_IN:
            found = _among(values, wanted)
            return found if op is Op.IN else pc.invert(found)
    if pa.types.is_floating(values.type):
        return _compare_floats(values, op, wanted)
    return _COMPARE[op](values, pa.scalar(wanted, type=values.type))


_COMPARE = {
    Op.EQ: pc.equal,
    Op.NE: pc.not_equal,
    Op.LT: pc.less,
    Op.LE: pc.less_equal,
    Op.GT: pc.greater,
    Op.GE: pc.greater_equal,
}


def _among(values: pa.Array, wanted: tuple[Any, ...]) -> pa.Array:
    found = pa.array(np.zeros(len(values), dtype=bool))
    if pa.types.is_floating(values.type):
        for value in wanted:
            found = pc.or_(found, pc.fill_null(satisfied(values, Filter("", Op.EQ, value)), False))
    elif wanted:
        found = pc.is_in(values, value_set=pa.array(wanted, type=values.type))
    return pc.if_else(pc.is_valid(values), found, pa.scalar(None, pa.bool_()))


def _compare_floats(values: pa.Array, op: Op, wanted: float) -> pa.Array:
    """Compare as Spark does: NaN equals NaN and is above every number."""
    if pa.types.is_float32(values.type):
        values = values.cast(pa.float64())
    nan = pc.is_nan(values)
    if wanted != wanted:
        match op:
            case Op.EQ | Op.GE:
                return nan
            case Op.NE | Op.LT:
                return pc.invert(nan)
            case _:
                return pc.if_else(nan, op is Op.LE, op is Op.LE)
    plain = _COMPARE[op](values, pa.scalar(wanted, pa.float64()))
    return pc.if_else(nan, op in (Op.NE, Op.GT, Op.GE), plain)
