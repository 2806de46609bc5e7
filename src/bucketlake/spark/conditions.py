"""What conditions say of single columns, where that is plain: it makes a read leave out what cannot be wanted.

Whoever asks applies the whole condition again. So a condition that is not understood costs a read, and nothing else.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from bucketlake.read import RawFilter

_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")
_COMPARISONS: Mapping[type[exp.Expr], tuple[str, str]] = {
    # And what it is with the sides swapped.
    exp.EQ: ("=", "="),
    exp.LT: ("<", ">"),
    exp.LTE: ("<=", ">="),
    exp.GT: (">", "<"),
    exp.GTE: (">=", "<="),
}


@dataclass(frozen=True, slots=True)
class Comparison:
    """A condition on one column that every row of the result satisfies."""

    column: str
    """In lower case."""
    operator: str
    values: tuple[Any, ...]
    """Texts and numbers; none for `is null`."""


@dataclass(frozen=True, slots=True)
class Matching:
    """What the ON of a MERGE says."""

    pairs: Mapping[str, str] = field(default_factory=dict)
    """Columns of the table that are equal to columns of the source, both in lower case."""
    comparisons: tuple[Comparison, ...] = ()
    """On columns of the table."""
    is_all: bool = False
    """Whether it says nothing but the pairs."""


def conditions_of(text: object, qualifiers: Collection[str] = ("",)) -> tuple[Comparison, ...]:
    """Return what a condition says of single columns, which it calls by one of the qualifiers.

    >>> conditions_of("dt = 'x' AND n + 1 > 2")
    (Comparison(column='dt', operator='=', values=('x',)),)
    """
    tree = _parsed(text)
    return () if tree is None else tuple(comparisons_in(tree, qualifiers))


def matching_of(on: object, target: str, source: str) -> Matching:
    """Read the ON of a MERGE.

    >>> matching_of("t.id = s.key AND t.dt = 'x'", "t", "s").pairs
    {'id': 'key'}
    """
    tree = _parsed(on)
    if tree is None:
        return Matching()
    pairs: dict[str, str] = {}
    conjuncts = list(tree.flatten()) if isinstance(tree, exp.And) else [tree]
    for conjunct in (part.unnest() for part in conjuncts):
        if not isinstance(conjunct, exp.EQ | exp.NullSafeEQ):
            continue
        for one, other in ((conjunct.left, conjunct.right), (conjunct.right, conjunct.left)):
            ours, theirs = _column(one, {target.lower()}), _column(other, {source.lower()})
            if ours is not None and theirs is not None:
                pairs.setdefault(ours, theirs)
    return Matching(pairs, tuple(comparisons_in(tree, {target.lower()})), len(pairs) == len(conjuncts))


def source_column(expression: object, source: str) -> str | None:
    """Return the column of the source that an expression is, in lower case; None if it is more than that."""
    tree = _parsed(expression)
    return None if tree is None else _column(tree, {source.lower(), ""})


def _parsed(text: object) -> exp.Expr | None:
    """Read a condition; None if it is a column of PySpark's, or cannot be read."""
    if not isinstance(text, str):
        return None
    try:
        return sqlglot.parse_one(text, dialect="spark").unnest()
    except SqlglotError:
        return None


def filters_for(conditions: Collection[Comparison], schema: pa.Schema) -> list[RawFilter]:
    """Return those conditions that mean to `Table.read` just what they mean to Spark.

    A text is compared with texts and a whole number with whole numbers; a date with a text that spells one. All else,
    such as a number with a text, is up to Spark's casts, and left to Spark.
    """
    by_name = {name.lower(): name for name in schema.names}
    filters: list[RawFilter] = []
    if len(by_name) < len(schema.names):
        return filters
    for condition in conditions:
        column = by_name.get(condition.column)
        if column is None:
            continue
        if condition.operator == "is null":
            filters.append((column, condition.operator))
            continue
        values = [_as_stored(value, schema.field(column).type) for value in condition.values]
        if None in values:
            continue
        is_list = condition.operator == "in"
        filters.append((column, condition.operator, values if is_list else values[0]))
    return filters


def comparisons_in(condition: exp.Expr, qualifiers: Collection[str]) -> Iterator[Comparison]:
    condition = condition.unnest()
    if isinstance(condition, exp.And):
        yield from comparisons_in(condition.left, qualifiers)
        yield from comparisons_in(condition.right, qualifiers)
    elif isinstance(condition, exp.In) and not condition.args.get("query"):
        column = _column(condition.this, qualifiers)
        values = tuple(_literal(value) for value in condition.expressions)
        if column is not None and values and None not in values:
            yield Comparison(column, "in", values)
    elif isinstance(condition, exp.Is) and isinstance(condition.expression, exp.Null):
        column = _column(condition.this, qualifiers)
        if column is not None:
            yield Comparison(column, "is null", ())
    elif type(condition) in _COMPARISONS and isinstance(condition, exp.Binary):
        as_is, swapped = _COMPARISONS[type(condition)]
        for operator, side, other in (
            (as_is, condition.left, condition.right),
            (swapped, condition.right, condition.left),
        ):
            column, value = _column(side, qualifiers), _literal(other)
            if column is not None and value is not None:
                yield Comparison(column, operator, (value,))


def _column(node: exp.Expr, qualifiers: Collection[str]) -> str | None:
    if not isinstance(node, exp.Column) or not isinstance(node.this, exp.Identifier) or node.args.get("db"):
        return None
    return node.name.lower() if node.table.lower() in qualifiers else None


def _literal(node: exp.Expr) -> str | int | None:
    """Return a plain text or whole number; None for what Spark could read in another way than we do."""
    sign = 1
    if isinstance(node, exp.Neg):
        sign, node = -1, node.this
    if not isinstance(node, exp.Literal):
        return None
    text = str(node.this)
    if node.is_string:
        return None if sign < 0 or "\\" in text or "'" in text or not text.isprintable() else text
    return sign * int(text) if text.isascii() and text.isdigit() else None


def _as_stored(value: str | int, kind: pa.DataType) -> Any:
    """Return the value as a column of this type has it; None if that takes a cast."""
    if pa.types.is_string(kind) and isinstance(value, str):
        return value
    if pa.types.is_integer(kind) and isinstance(value, int):
        bound = 2 ** (kind.bit_width - 1)
        return value if -bound <= value < bound else None
    if pa.types.is_date(kind) and isinstance(value, str) and _DATE.fullmatch(value):
        try:
            return datetime.date.fromisoformat(value)
        except ValueError:
            return None
    return None
