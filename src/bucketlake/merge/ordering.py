"""Ordering values as numbers that compare as Hudi compares the values.

Hudi compares boxed Java values: numbers by value, floating point in Java's
total order (-0.0 below 0.0, NaN above all), text by its UTF-8 bytes, false
below true. A number per value makes that one integer comparison.

A null is Hudi's default ordering value, the Java Integer 0. In a column of
ints or dates that is a value like any other. In a column of another type Hudi
fails when it has to compare the two; we let null be older than every value
(where values fill all 64 bits, as old as the smallest of them).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from bucketlake.errors import UnsupportedError

Codes = npt.NDArray[np.int64]

_SMALLEST = np.iinfo(np.int64).min
_SIGN_OFF = np.int64(0x7FFFFFFFFFFFFFFF)
_INT64_DIGITS = 18
"""Decimals of this many digits fit an int64."""


def is_java_integer(kind: pa.DataType) -> bool:
    """Tell whether Hudi on Spark holds such a value as a Java Integer.

    Then null, which it replaces by Integer 0, is the same as 0; and a delete
    whose value is 0 cannot be told from one without a value.
    """
    return bool(pa.types.is_date32(kind) or (pa.types.is_signed_integer(kind) and kind.bit_width <= 32))


def comparable_alone(kind: pa.DataType) -> bool:
    """Tell whether codes of two columns of this type, made at different times, compare."""
    return not (
        pa.types.is_string(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
        or pa.types.is_fixed_size_binary(kind)
        or (pa.types.is_decimal(kind) and kind.precision > _INT64_DIGITS)
    )


def codes_of(values: pa.Array) -> Codes:
    """Return a code per value, comparable with each other; see `comparable_alone` for more.

    >>> codes_of(pa.array([3, None, -1], pa.int32())).tolist()
    [3, 0, -1]
    >>> zero, minus_zero, nan, infinity = codes_of(pa.array([0.0, -0.0, float("nan"), float("inf")]))
    >>> bool(minus_zero < zero < infinity < nan)
    True
    >>> codes_of(pa.array(["b", None, "a", "b"])).tolist()
    [1, -1, 0, 1]
    """
    kind = values.type
    if not comparable_alone(kind):
        return _ranks(values)
    if pa.types.is_floating(kind):
        numbers = _total_order(values)
    elif pa.types.is_decimal(kind):
        numbers = _unscaled(values)
    elif pa.types.is_signed_integer(kind) or pa.types.is_temporal(kind) or pa.types.is_boolean(kind):
        return _fill(_as_int64(values), 0 if is_java_integer(kind) else _SMALLEST)
    else:
        raise UnsupportedError(
            subject="the type of an ordering field",
            found=str(kind),
            supported="numbers, decimals, booleans, dates, times, timestamps, strings and binary",
            remedy="Hudi cannot order by it either; set hoodie.table.ordering.fields to another column.",
        )
    if values.null_count:
        numbers[~_validity(values)] = _SMALLEST
    return numbers


def codes_side_by_side(left: pa.Array, right: pa.Array) -> tuple[Codes, Codes]:
    """Return codes of two columns of one type that compare with each other."""
    codes = codes_of(pa.concat_arrays([left, right]))
    return codes[: len(left)], codes[len(left) :]


def not_older(newer: Sequence[Codes], older: Sequence[Codes]) -> npt.NDArray[np.bool_]:
    """Tell, row by row, whether `newer` is at least `older`; the first field counts most."""
    result = np.ones(len(newer[0]), dtype=np.bool_)
    for new, old in zip(reversed(newer), reversed(older), strict=True):
        result = (new > old) | ((new == old) & result)
    return result


def _fill(values: pa.Array, null: int) -> Codes:
    filled = values.fill_null(pa.scalar(null, pa.int64())) if values.null_count else values
    return np.asarray(filled.to_numpy(zero_copy_only=False), dtype=np.int64)


def _as_int64(values: pa.Array) -> pa.Array:
    if pa.types.is_temporal(values.type) and values.type.bit_width == 32:
        return values.cast(pa.int32()).cast(pa.int64())
    return values.cast(pa.int64())


def _validity(values: pa.Array) -> npt.NDArray[np.bool_]:
    return np.asarray(values.is_valid().to_numpy(zero_copy_only=False), dtype=np.bool_)


def _total_order(values: pa.Array) -> Codes:
    filled = values.cast(pa.float64()).fill_null(0.0)
    numbers = np.array(filled.to_numpy(zero_copy_only=False), dtype=np.float64)
    numbers[np.isnan(numbers)] = np.nan  # every NaN is one NaN
    bits = numbers.view(np.int64)
    return np.asarray(bits ^ ((bits >> 63) & _SIGN_OFF), dtype=np.int64)


def _unscaled(values: pa.Array) -> Codes:
    """Read the low word of each decimal: two's complement, so it is the whole number."""
    wide = values.cast(pa.decimal128(values.type.precision, values.type.scale))
    words = np.frombuffer(wide.buffers()[1], dtype=np.int64).reshape(-1, 2)
    return words[wide.offset : wide.offset + len(wide), 0].copy()


def _ranks(values: pa.Array) -> Codes:
    encoded = values.dictionary_encode()
    order = pc.sort_indices(encoded.dictionary).to_numpy()
    ranks = np.empty(len(order), dtype=np.int64)
    ranks[order] = np.arange(len(order))
    indices = encoded.indices
    if not indices.null_count:
        return np.asarray(ranks[indices.to_numpy()], dtype=np.int64)
    codes = np.full(len(values), -1, dtype=np.int64)
    valid = _validity(values)
    codes[valid] = ranks[indices.drop_null().to_numpy()]
    return codes
