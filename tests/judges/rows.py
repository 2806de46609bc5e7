"""Rows as plain values, so that tables from different readers can be compared.

Two forms, because Spark's JSON is what the golden files hold and is coarser than the data:

    exact   every bit of every value: what two Arrow tables are compared by
    json    what Spark's `toJSON` keeps: timestamps cut to milliseconds, nulls left out, binary as base64,
            floats as their shortest decimal

A comparison ignores the order of rows, the order of columns and the physical type (`string` or `large_string`);
it does not ignore how often a row occurs, nor whether a column exists.
"""

from __future__ import annotations

import base64
import datetime
import json
import math
import struct
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

Row = Mapping[str, Any]

META_COLUMNS = (
    "_hoodie_commit_time",
    "_hoodie_commit_seqno",
    "_hoodie_record_key",
    "_hoodie_partition_path",
    "_hoodie_file_name",
)
KEY_COLUMNS = ("_hoodie_partition_path", "_hoodie_record_key")

DIFFERENCES_SHOWN = 10


def exact_rows(table: pa.Table, *, without: Iterable[str] = ()) -> list[Row]:
    """Return rows whose values are equal exactly when the data are, NaN and minus zero included."""
    return _rows(table, _exact_value, frozenset(without))


def json_rows(table: pa.Table, *, without: Iterable[str] = ()) -> list[Row]:
    """Return rows as Spark's `toJSON` would print and Python would parse them."""
    dropped = frozenset(without)
    return [_without_nulls(row) for row in _rows(table, _json_value, dropped)]


def parse_json_rows(lines: Iterable[str], *, without: Iterable[str] = ()) -> list[Row]:
    """Parse lines of Spark's `toJSON`; a number keeps its digits as a `Decimal` when it is no integer."""
    dropped = frozenset(without)
    rows = [json.loads(line, parse_float=Decimal) for line in lines if line.strip()]
    return [{name: value for name, value in row.items() if name not in dropped} for row in rows]


def load_json_rows(path: Path, *, without: Iterable[str] = ()) -> list[Row]:
    return parse_json_rows(path.read_text(encoding="utf-8").splitlines(), without=without)


def assert_same_rows(
    found: pa.Table | Iterable[Row],
    expected: pa.Table | Iterable[Row],
    *,
    key: Sequence[str] = KEY_COLUMNS,
    without: Iterable[str] = (),
) -> None:
    """Fail with a readable difference unless both hold the same rows.

    Tables are compared exactly. `key` only decides which rows the message sets side by side.
    """
    dropped = frozenset(without)
    found_rows, expected_rows = _as_rows(found, dropped), _as_rows(expected, dropped)
    if Counter(map(_text, found_rows)) != Counter(map(_text, expected_rows)):
        raise AssertionError(describe_difference(found_rows, expected_rows, key=key))


def describe_difference(
    found: Sequence[Row], expected: Sequence[Row], *, key: Sequence[str] = KEY_COLUMNS
) -> str:
    """Say which rows are missing, which are too many, and which columns of the others differ."""
    surplus = Counter(map(_text, found))
    surplus.subtract(map(_text, expected))
    only_found = _pick(found, surplus, wanted=1)
    only_expected = _pick(expected, surplus, wanted=-1)
    lines: list[str] = []
    for row in only_expected:
        twin = next((other for other in only_found if _key(other, key) == _key(row, key)), None)
        if twin is None:
            lines.append(f"missing    {_text(row)}")
            continue
        only_found.remove(twin)
        lines.append(f"differs    {_key(row, key)}")
        for name in sorted({*row, *twin}):
            if _text(row.get(name)) != _text(twin.get(name)) or (name in row) != (name in twin):
                lines.append(f"             {name}: found {_shown(twin, name)}, expected {_shown(row, name)}")
    lines += [f"unexpected {_text(row)}" for row in only_found]
    head = f"found {len(found)} rows, expected {len(expected)}"
    shown = lines[: 4 * DIFFERENCES_SHOWN]
    more = [f"... and {len(lines) - len(shown)} more lines"] if len(lines) > len(shown) else []
    return "\n".join([head, *shown, *more])


def _as_rows(source: pa.Table | Iterable[Row], without: frozenset[str]) -> list[Row]:
    if isinstance(source, pa.Table):
        return exact_rows(source, without=without)
    return [{name: value for name, value in row.items() if name not in without} for row in source]


def _rows(table: pa.Table, convert: Callable[[pa.DataType, Any], Any], without: frozenset[str]) -> list[Row]:
    names = [name for name in table.column_names if name not in without]
    columns = [
        [convert(table.schema.field(name).type, value) for value in _values(table.column(name))]
        for name in names
    ]
    return [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]


def _values(column: pa.ChunkedArray) -> list[Any]:
    """Python values, with timestamps as integers: `datetime` would need a zone database and lose nanoseconds."""
    return [_unwrap(scalar) for scalar in column]


def _unwrap(scalar: pa.Scalar) -> Any:
    if not scalar.is_valid:
        return None
    type_ = scalar.type
    if pa.types.is_dictionary(type_):
        return _unwrap(scalar.value)
    if pa.types.is_timestamp(type_):
        return scalar.value
    if pa.types.is_struct(type_):
        return {field.name: _unwrap(scalar[field.name]) for field in type_}
    if pa.types.is_map(type_):
        return {_unwrap(entry["key"]): _unwrap(entry["value"]) for entry in scalar.values}
    if pa.types.is_list(type_) or pa.types.is_large_list(type_):
        return [_unwrap(item) for item in scalar.values]
    return scalar.as_py()


def _exact_value(type_: pa.DataType, value: Any) -> Any:
    if value is None:
        return None
    if pa.types.is_timestamp(type_):
        zone = "Z" if type_.tz is not None else ""
        return _timestamp_text(type_, value, digits=9) + zone
    if pa.types.is_floating(type_):
        # The bits, beside the number for the reader; every NaN is one NaN, as in Spark.
        bits = "nan" if math.isnan(value) else struct.pack(">d", value).hex()
        return f"{value!r} ({bits})"
    if pa.types.is_decimal(type_):
        return f"{value:f}"
    return _nested(type_, value, _exact_value) if pa.types.is_nested(type_) else value


def _json_value(type_: pa.DataType, value: Any) -> Any:
    if value is None:
        return None
    if pa.types.is_timestamp(type_):
        return _timestamp_text(type_, value, digits=3) + ("Z" if type_.tz is not None else "")
    if pa.types.is_date(type_):
        return value.isoformat()
    if pa.types.is_binary(type_) or pa.types.is_large_binary(type_) or pa.types.is_fixed_size_binary(type_):
        return base64.b64encode(value).decode()
    if pa.types.is_floating(type_):
        return _json_float(type_, value)
    if pa.types.is_nested(type_):
        nested = _nested(type_, value, _json_value)
        return _without_nulls(nested) if pa.types.is_struct(type_) else nested
    return value


def _json_float(type_: pa.DataType, value: float) -> Decimal | str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return Decimal(str(np.float32(value)) if pa.types.is_float32(type_) else repr(value))


def _nested(type_: pa.DataType, value: Any, convert: Callable[[pa.DataType, Any], Any]) -> Any:
    if pa.types.is_dictionary(type_):
        return convert(type_.value_type, value)
    if pa.types.is_struct(type_):
        return {field.name: convert(field.type, value[field.name]) for field in type_}
    if pa.types.is_map(type_):
        return {convert(type_.key_type, key): convert(type_.item_type, item) for key, item in value.items()}
    return [convert(type_.value_type, item) for item in value]


def _timestamp_text(type_: pa.DataType, value: int, *, digits: int) -> str:
    per_second = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[type_.unit]
    seconds, rest = divmod(value, per_second)
    moment = datetime.datetime(1970, 1, 1) + datetime.timedelta(seconds=seconds)
    nanoseconds = rest * (10**9 // per_second)
    return f"{moment.isoformat()}.{nanoseconds:09d}"[: 20 + digits]


def _without_nulls(fields: Row) -> Row:
    """Spark leaves out null fields of rows and structs, and keeps null items of lists and maps."""
    return {name: value for name, value in fields.items() if value is not None}


def _pick(rows: Sequence[Row], surplus: Counter[str], *, wanted: int) -> list[Row]:
    left = Counter({text: abs(count) for text, count in surplus.items() if count * wanted > 0})
    picked: list[Row] = []
    for row in sorted(rows, key=_text):
        if left[_text(row)] > 0:
            left[_text(row)] -= 1
            picked.append(row)
    return picked


def _key(row: Row, key: Sequence[str]) -> tuple[Any, ...]:
    return tuple(row.get(name) for name in key)


def _shown(row: Row, name: str) -> str:
    return _text(row[name]) if name in row else "no such column"


def _text(value: Any) -> str:
    """A text that is equal exactly when two values are; also what a failing test prints."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{name}: {_text(value[name])}" for name in sorted(value, key=str)) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_text, value)) + "]"
    if isinstance(value, Decimal):
        return f"{value.normalize():f}"  # 1.50 and 1.5 are one number in JSON
    return repr(value)
