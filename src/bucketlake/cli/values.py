"""Words of a command line as typed values, and rows as JSON."""

from __future__ import annotations

import base64
import datetime
import json
import math
import re
from decimal import Decimal, InvalidOperation
from typing import Any

import pyarrow as pa

from bucketlake.errors import FilterError
from bucketlake.read import RawFilter

_FILTER = re.compile(
    r"\s*(?P<column>[^\s=<>!]+)\s*"
    r"(?P<op>==|=|!=|<>|<=|>=|<|>|\bnot in\b|\bin\b|\bstarts with\b|\bis not null\b|\bis null\b)"
    r"\s*(?P<value>.*?)\s*",
    re.IGNORECASE,
)
_WORD = re.compile(r"\s*(?:'(?P<quoted>(?:[^']|'')*)'|(?P<plain>[^',][^,]*?|))\s*(?P<comma>,|$)")
_SECOND_CONDITION = re.compile(
    r"\s(and|or)\s+\S+\s*(=|!=|<|>|not in\b|in\b|is\b|starts with\b)", re.IGNORECASE
)
_FINER_THAN_MICROSECONDS = re.compile(r"[.,][0-9]{7}")


def parse_filter(text: str, schema: pa.Schema) -> RawFilter:
    """Read a filter such as `amount >= 10`, `id in 1,2,3` or `note is null`; a text may stand in quotes, as in SQL.

    >>> parse_filter("id in 1,2", pa.schema([("id", pa.int64())]))
    ('id', 'in', [1, 2])
    >>> parse_filter("city in ('Ulm', 'L''Aquila')", pa.schema([("city", pa.string())]))
    ('city', 'in', ['Ulm', "L'Aquila"])
    """
    match = _FILTER.fullmatch(text)
    if match is None:
        raise _unreadable(text)
    column, op, words = match["column"], match["op"].lower(), match["value"]
    if column not in schema.names or op.endswith("null"):
        return (column, op)  # the reader names the columns there are
    kind = schema.field(column).type
    if op.endswith("in"):
        is_enclosed = words.startswith("(")
        if is_enclosed and not words.endswith(")"):
            raise _unreadable(text)
        listed = _words(words[1:-1] if is_enclosed else words, text)
        return (column, op, [parse_value(word, kind, column) for word in listed])
    if words.startswith("'"):
        listed = _words(words, text)
        if len(listed) > 1:
            raise _unreadable(text)
        (words,) = listed
    elif _SECOND_CONDITION.search(words):
        raise _unreadable(text)
    return (column, op, parse_value(words, kind, column))


def _words(text: str, of: str) -> list[str]:
    """Split a list at its commas; those in quotes are part of a word."""
    found: list[str] = []
    at = 0
    while True:
        match = _WORD.match(text, at)
        if match is None:
            raise _unreadable(of)
        quoted = match["quoted"]
        found.append(match["plain"] if quoted is None else quoted.replace("''", "'"))
        if not match["comma"]:
            return found
        at = match.end()


def _unreadable(text: str) -> FilterError:
    return FilterError(
        f'cannot read the filter {text!r}: it is one condition, such as "amount >= 10", "city = \'Ulm\'" or "id in '
        f"1,2,3\". Repeat --where for more of them, which means and; a text with quotes, 'and' or 'or' in it stands in "
        f"single quotes, those inside doubled."
    )


def parse_key(text: str, schema: pa.Schema, fields: tuple[str, ...]) -> object:
    """Read a key: the column's value, or a JSON object for a key of several columns."""
    if len(fields) == 1:
        return parse_value(text, schema.field(fields[0]).type, fields[0])
    try:
        key = json.loads(text)
    except ValueError:
        key = None
    if not isinstance(key, dict):
        example = json.dumps(dict.fromkeys(fields, "…"), ensure_ascii=False)
        raise FilterError(
            f"the key of this table is ({', '.join(fields)}); give it as JSON, such as '{example}'."
        )
    return key


def parse_value(text: str, kind: pa.DataType, column: str) -> Any:
    """Read a word as a value of the column's type."""
    try:
        return value_of_text(text, kind)
    except (ValueError, InvalidOperation):
        raise FilterError(f"column {column!r} is a {kind} and {text!r} is none.") from None


def value_of_text(text: str, kind: pa.DataType) -> Any:
    """Read a text as a value of a plain type; ValueError, or InvalidOperation, if it is none."""
    if pa.types.is_boolean(kind):
        return {"true": True, "false": False}.get(text.lower(), text)
    if pa.types.is_integer(kind):
        return int(text)
    if pa.types.is_floating(kind):
        return float(text)
    if pa.types.is_decimal(kind):
        return Decimal(text)
    if pa.types.is_date(kind):
        return datetime.date.fromisoformat(text)
    if pa.types.is_timestamp(kind):
        if _FINER_THAN_MICROSECONDS.search(text):
            raise ValueError("what is finer than microseconds would be lost")
        moment = datetime.datetime.fromisoformat(text)
        return moment.replace(tzinfo=moment.tzinfo or datetime.UTC) if kind.tz else moment
    if pa.types.is_binary(kind):
        return base64.b64decode(text, validate=True)
    return text


def json_values(column: pa.ChunkedArray) -> list[Any]:
    """Spell the values of a column as JSON has them.

    >>> json_values(pa.chunked_array([[float("nan"), 1.5, None]]))
    ['NaN', 1.5, None]
    """
    try:
        return [_json_value(value) for value in column.to_pylist()]
    except (
        OverflowError,
        ValueError,
    ):  # days that Python's calendar has not, such as those after the year 9999
        return [_json_scalar(value) for value in column]


def shown(value: Any) -> str:
    """Spell for a person what `json_values` returned.

    >>> shown(None), shown("a"), shown([["k", True]])
    ('-', 'a', '[["k", true]]')
    """
    if value is None:
        return "-"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def _json_value(value: Any) -> Any:
    match value:
        case float() if not math.isfinite(value):
            return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
        case bytes():
            return base64.b64encode(value).decode()
        case datetime.date() | datetime.time():
            return value.isoformat()
        case Decimal():
            return f"{value:f}"
        case dict():
            return {name: _json_value(item) for name, item in value.items()}
        case list() | tuple():  # a tuple is an entry of a map
            return [_json_value(item) for item in value]
    return value


def _json_scalar(scalar: pa.Scalar) -> Any:
    """Spell a value that may have no like in Python."""
    kind = scalar.type
    if not scalar.is_valid:
        return None
    if pa.types.is_map(kind):
        entries = scalar.values
        pairs = zip(entries.field(0), entries.field(1), strict=True)
        return [[_json_scalar(key), _json_scalar(item)] for key, item in pairs]
    if pa.types.is_struct(kind):
        return {field.name: _json_scalar(scalar[field.name]) for field in kind}
    if pa.types.is_list(kind):
        return [_json_scalar(item) for item in scalar.values]
    if pa.types.is_temporal(kind):
        try:
            return _json_value(scalar.as_py())
        except (OverflowError, ValueError):
            text = pa.array([scalar]).cast(pa.string())[0].as_py()
            return text.replace(" ", "T").replace("Z", "+00:00")
    return _json_value(scalar.as_py())
