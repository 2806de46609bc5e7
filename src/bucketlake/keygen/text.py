"""The text of a value, as Java writes it into keys and paths.

A record key is text, and so is a partition path. Which text a value has is decided by Java's `toString` of
the value that Hudi holds in Avro, and it must be met exactly: `1.0E10`, not `10000000000.0`.

    Arrow type        text                           example
    string            itself                         ü
    int8 ... int64    decimal                        -7
    bool              true, false
    date32            ISO, signed beyond 4 digits    2024-01-02, +10000-01-01
    timestamp us, ms  the number in its own unit     1704164645123456
    decimal           as `BigDecimal.toString`       12.50, 1E-8
    binary            lower-case hex                 00ff10
    float, double     as `Double.toString`           0.1, 1.0E10

These are the texts of Hudi's Avro writers. Not every writer agrees, and `is_certain` tells the types on which
all do:

- floating point: JDK 17 and older write some numbers with more digits than needed (2e23 as
  `1.9999999999999998E23`), JDK 19 and newer the shortest ones, as we do;
- timestamps: Spark's bulk insert by rows writes `2024-01-02 03:04:05.123`, in the zone of its JVM. With
  `...consistent.logical.timestamp.enabled` all writers do (read here as UTC), where the type has a zone;
- binary: the same bulk insert writes Java's name of the array in memory, which means nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from bucketlake.errors import UnsupportedError

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def text_of(value: object, *, field: str, logical_timestamps: bool = False) -> str | None:
    """Return the text of one value, None for a null.

    A plain Python value is taken as the Arrow type it suggests (`int` as int64, `float` as double); pass a
    `pa.Scalar` to say the type.

    >>> text_of(1e10, field="x"), text_of(True, field="x"), text_of(b"\\xff", field="x")
    ('1.0E10', 'true', 'ff')
    """
    scalar = value if isinstance(value, pa.Scalar) else pa.scalar(value)
    write = _writer(scalar.type, field=field, logical_timestamps=logical_timestamps)
    if not scalar.is_valid:
        return None
    return write(_raw(scalar))


def texts_of(column: Any, *, field: str, logical_timestamps: bool = False) -> Any:
    """Return the texts of a column (`pa.Array` or `pa.ChunkedArray`) as one `pa.StringArray`, nulls kept."""
    column = _plain(column)
    write = _writer(column.type, field=field, logical_timestamps=logical_timestamps)
    if pa.types.is_string(column.type):
        return column
    if pa.types.is_large_string(column.type) or pa.types.is_string_view(column.type):
        return column.cast(pa.string())
    if pa.types.is_null(column.type):
        return pa.nulls(len(column), pa.string())
    if pa.types.is_signed_integer(column.type) or pa.types.is_boolean(column.type):
        return column.cast(pa.string())
    if pa.types.is_timestamp(column.type) and not _is_logical(column.type, logical_timestamps):
        return column.cast(pa.int64()).cast(pa.string())
    return distinct_texts(column, lambda scalar: write(_raw(scalar)))


def distinct_texts(column: Any, write: Callable[[Any], str]) -> Any:
    """Write every distinct value once, and nulls not at all: partition columns have few of them."""
    encoded = column.dictionary_encode()
    texts = pa.array([write(scalar) for scalar in encoded.dictionary], pa.string())
    return texts.take(encoded.indices)


def is_certain(data_type: Any) -> bool:
    """Tell whether every writer gives the values of this type the same text, so that it may prune.

    A decimal's text has the scale its column had when the row was written, and scales may grow.
    """
    return bool(
        pa.types.is_string(data_type)
        or pa.types.is_large_string(data_type)
        or pa.types.is_string_view(data_type)
        or pa.types.is_signed_integer(data_type)
        or pa.types.is_boolean(data_type)
        or pa.types.is_date32(data_type)
        or pa.types.is_null(data_type)
    )


def never_holds_a_comma(data_type: Any) -> bool:
    """Tell whether no text of this type can hold a comma: true for all but text and what we cannot write."""
    return bool(
        pa.types.is_integer(data_type)
        or pa.types.is_boolean(data_type)
        or pa.types.is_date(data_type)
        or pa.types.is_timestamp(data_type)
        or pa.types.is_decimal(data_type)
        or pa.types.is_floating(data_type)
        or pa.types.is_binary(data_type)
        or pa.types.is_large_binary(data_type)
    )


def _writer(data_type: Any, *, field: str, logical_timestamps: bool) -> Callable[[Any], str]:
    if _is_logical(data_type, logical_timestamps):
        per_milli = 1000 if data_type.unit == "us" else 1
        return lambda number: _timestamp_text(truncated_quotient(number, per_milli))
    for matches, write in _WRITERS:
        if matches(data_type):
            return write
    raise UnsupportedError(
        subject=f"the type of column {field!r}, which makes a key or a partition path,",
        found=str(data_type),
        supported="strings, integers, booleans, dates, timestamps in us or ms, decimals, binary, floats",
        remedy="Make the key or the partition from a column of one of these types.",
    )


def _is_logical(data_type: Any, logical_timestamps: bool) -> bool:
    return logical_timestamps and pa.types.is_timestamp(data_type) and data_type.tz is not None


def _plain(column: Any) -> Any:
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column


def _raw(scalar: Any) -> Any:
    """Return days, microseconds or milliseconds as numbers: Python's dates end at the year 9999."""
    if pa.types.is_date(scalar.type) or pa.types.is_timestamp(scalar.type):
        return scalar.value
    if pa.types.is_float32(scalar.type):
        return np.float32(scalar.as_py())
    return scalar.as_py()


def _date_text(days: int) -> str:
    """`LocalDate.toString`."""
    year, month, day = civil_of(days)
    if 0 <= year <= 9999:
        return f"{year:04d}-{month:02d}-{day:02d}"
    return f"{'-' if year < 0 else ''}{'+' if year > 9999 else ''}{abs(year):04d}-{month:02d}-{day:02d}"


def _timestamp_text(millis: int) -> str:
    """`java.sql.Timestamp.toString`: the fraction without its closing zeros, but one digit of it at least."""
    moment = _EPOCH + timedelta(milliseconds=millis)
    fraction = f"{moment.microsecond // 1000:03d}".rstrip("0") or "0"
    return f"{moment:%Y-%m-%d %H:%M:%S}.{fraction}"


def _float_text(number: Any) -> str:
    """`Double.toString` and `Float.toString` as the JDK defines them since version 19."""
    if math.isnan(number):
        return "NaN"
    if math.isinf(number):
        return "Infinity" if number > 0 else "-Infinity"
    if number == 0:
        return "-0.0" if math.copysign(1, number) < 0 else "0.0"
    kind = type(number) if isinstance(number, np.float32) else float
    shortest = np.format_float_scientific(number, unique=True, trim="-")
    mantissa, _, exponent = shortest.partition("e")
    if len(mantissa.lstrip("-")) == 1:
        # Java never writes fewer than two digits, and takes the nearest number that has two: 4.9E-324.
        nearest = f"{number:.1e}"
        if kind(nearest) == number:
            mantissa, _, exponent = nearest.partition("e")
    sign = "-" if mantissa.startswith("-") else ""
    digits = mantissa.lstrip("-").replace(".", "").rstrip("0") or "0"
    power = int(exponent)
    if -3 <= power < 0:
        return f"{sign}0.{'0' * (-power - 1)}{digits}"
    if 0 <= power < 7:
        digits = digits.ljust(power + 1, "0")
        return f"{sign}{digits[: power + 1]}.{digits[power + 1 :] or '0'}"
    return f"{sign}{digits[0]}.{digits[1:] or '0'}E{power}"


def truncated_quotient(number: int, divisor: int) -> int:
    """Divide as Java does, towards zero.

    >>> truncated_quotient(-1, 1000)
    0
    """
    return -(-number // divisor) if number < 0 else number // divisor


def civil_of(days: int) -> tuple[int, int, int]:
    """Return year, month and day of a day since 1970-01-01, for any year.

    The calendar repeats every 400 years, so a day that Python's dates cannot hold is moved into those they
    can.

    >>> civil_of(-719529)
    (-1, 12, 31)
    """
    cycles, day_of_cycle = divmod(days + _EPOCH_ORDINAL - 1, _DAYS_PER_CYCLE)
    moved = date.fromordinal(day_of_cycle + 1)
    return moved.year + 400 * cycles, moved.month, moved.day


def days_of(year: int, month: int, day: int) -> int:
    """Return the day since 1970-01-01; ValueError for one that is not in the calendar.

    >>> days_of(1970, 1, 2), days_of(-1, 12, 31)
    (1, -719529)
    """
    cycles, year_of_cycle = divmod(year - 1, 400)
    return date(year_of_cycle + 1, month, day).toordinal() - _EPOCH_ORDINAL + cycles * _DAYS_PER_CYCLE


_EPOCH_ORDINAL = date(1970, 1, 1).toordinal()
_DAYS_PER_CYCLE = 146_097

_WRITERS: tuple[tuple[Callable[[Any], bool], Callable[[Any], str]], ...] = (
    (lambda t: pa.types.is_string(t) or pa.types.is_large_string(t) or pa.types.is_string_view(t), str),
    (pa.types.is_null, str),
    (pa.types.is_signed_integer, str),
    (pa.types.is_boolean, lambda flag: "true" if flag else "false"),
    (pa.types.is_date32, _date_text),
    (lambda t: pa.types.is_timestamp(t) and t.unit in ("us", "ms"), str),
    (pa.types.is_decimal, lambda number: str(Decimal(number))),
    (lambda t: pa.types.is_binary(t) or pa.types.is_large_binary(t), lambda data: data.hex()),
    (lambda t: pa.types.is_float32(t) or pa.types.is_float64(t), _float_text),
)
