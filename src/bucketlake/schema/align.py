"""Fit the columns of a file to the columns a reader wants.

A file was written under the schema of its day. Since then columns may have
been added, moved, dropped, or given a wider type. `align` answers with
exactly the wanted schema:

    missing column        nulls, if it may be null
    extra column          dropped
    other position        found by its name, at every depth
    narrower type         widened by the table below
    anything else         an error that names file and column

Which widenings exist is Hudi's decision (`SchemaChangeUtils` and
`HoodieAvroUtils.rewritePrimaryTypeWithDiffSchemaType`), and so are three odd
results: a float becomes the double with the same decimal digits (0.1f is
0.1), a number becomes text as Java prints it, and a fraction becomes a
decimal rounded half up.
"""

from __future__ import annotations

import decimal
import math
from collections.abc import Callable
from typing import TypeVar

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from bucketlake.errors import CorruptTableError

_CHECK_WRITER = "The table's schema says the column is required; check which writer made the file."

Batch = TypeVar("Batch", pa.RecordBatch, pa.Table)


def align(data: Batch, target: pa.Schema, *, path: str) -> Batch:
    """Return `data` with exactly the columns and types of `target`; `path` names the file in errors.

    Columns that fit already are passed on without a copy. A column that may not be null and is missing, or
    holds a null, is an error: rows without a required value are not the table's rows.
    """
    if data.schema.equals(target):
        return data
    positions = {name: index for index, name in enumerate(data.schema.names)}
    columns = []
    for field in target:
        if field.name in positions:
            column = _fit(data.column(positions[field.name]), field.type, field.name, path)
            if not field.nullable and column.null_count:
                raise CorruptTableError(
                    path=path,
                    found=f"a null in column {field.name!r}",
                    expected="a value in every row",
                    remedy=_CHECK_WRITER,
                )
        else:
            column = _absent(field, data.num_rows, field.name, path)
            if isinstance(data, pa.Table):
                column = pa.chunked_array([column])
        columns.append(column)
    if not columns:
        return data.select([])
    return type(data).from_arrays(columns, schema=target)


def _absent(field: pa.Field, length: int, column: str, path: str) -> pa.Array:
    if not field.nullable:
        raise CorruptTableError(
            path=path,
            found=f"no column {column!r}",
            expected=f"a column of type {field.type}, which may not be null",
            remedy=_CHECK_WRITER,
        )
    return pa.nulls(length, field.type)


def _fit(
    values: pa.Array | pa.ChunkedArray, target: pa.DataType, column: str, path: str
) -> pa.Array | pa.ChunkedArray:
    if values.type == target:
        return values
    if isinstance(values, pa.ChunkedArray):
        return pa.chunked_array([_fit(chunk, target, column, path) for chunk in values.chunks], type=target)
    if types.is_dictionary(values.type):
        return _fit(_decoded(values), target, column, path)
    source = values.type
    if types.is_struct(source) and types.is_struct(target):
        return _fit_struct(values, target, column, path)
    if _is_list(source) and types.is_list(target):
        return _fit_list(values, target, column, path)
    if types.is_map(source) and types.is_map(target):
        return _fit_map(values, target, column, path)
    widen = _widening(source, target)
    if widen is None:
        raise CorruptTableError(
            path=path,
            found=f"column {column!r} of type {source}",
            expected=f"{target}, or a type that widens to it",
            remedy="The file does not belong to this table's schema history; restore it from a copy.",
        )
    try:
        return widen(values, target)
    except (pa.ArrowInvalid, decimal.InvalidOperation) as error:
        raise CorruptTableError(
            path=path,
            found=f"column {column!r} of type {source} with a value that is no {target} ({error})",
            expected=f"values that fit {target}",
            remedy="The column's type was changed; check the values written before the change.",
        ) from error


def _decoded(values: pa.DictionaryArray) -> pa.Array:
    """Look dictionary values up. With no words there is no value, whatever indices lie hidden under a null struct."""
    if len(values.dictionary) == 0:
        return pa.nulls(len(values), values.type.value_type)
    return values.dictionary_decode()


def _fit_struct(values: pa.StructArray, target: pa.StructType, column: str, path: str) -> pa.Array:
    source = values.type
    children = []
    for field in target:
        index = source.get_field_index(field.name)
        inner = f"{column}.{field.name}"
        if index >= 0:
            children.append(_fit(values.field(index), field.type, inner, path))
        else:
            children.append(_absent(field, len(values), inner, path))
    mask = values.is_null() if values.null_count else None
    return pa.StructArray.from_arrays(children, fields=list(target), mask=mask)


def _fit_list(values: pa.ListArray, target: pa.ListType, column: str, path: str) -> pa.Array:
    if not types.is_list(values.type):  # 64-bit offsets, or views: rare, so a copy is fine
        values = values.cast(pa.list_(values.type.value_field))
    elements = _fit(values.values, target.value_type, f"{column}.{target.value_field.name}", path)
    validity, offsets = values.buffers()[:2]
    return pa.Array.from_buffers(
        target, len(values), [validity, offsets], offset=values.offset, children=[elements]
    )


def _fit_map(values: pa.MapArray, target: pa.MapType, column: str, path: str) -> pa.Array:
    keys = _fit(values.keys, target.key_type, f"{column}.key", path)
    items = _fit(values.items, target.item_type, f"{column}.value", path)
    entries = pa.StructArray.from_arrays([keys, items], fields=[target.key_field, target.item_field])
    validity, offsets = values.buffers()[:2]
    return pa.Array.from_buffers(
        target, len(values), [validity, offsets], offset=values.offset, children=[entries]
    )


Widening = Callable[[pa.Array, pa.DataType], pa.Array]


def _widening(source: pa.DataType, target: pa.DataType) -> Widening | None:
    """Return how values of `source` become `target`; None where Hudi has no such step."""
    if types.is_null(source):
        return _cast
    if types.is_string(target):
        return _to_text(source)
    if types.is_binary(target):
        return _cast if _is_bytes(source) or _is_text(source) else None
    if types.is_integer(target):
        if types.is_time(source) and source.bit_width == target.bit_width:
            return _view
        return _cast if types.is_integer(source) and source.bit_width <= target.bit_width else None
    if types.is_floating(target):
        if types.is_integer(source):
            return _cast_rounding
        if types.is_floating(source) and source.bit_width < target.bit_width:
            return _float_to_double
        return None
    if types.is_decimal(target):
        return _to_decimal(source)
    if types.is_date32(target):
        return _cast if _is_text(source) else None
    if types.is_timestamp(target):
        if types.is_int64(source):
            # Files from before Hudi knew local timestamps hold them as plain longs (`HoodieSchemaRepair`).
            return _view
        # A timestamp without a zone is a UTC one here: INT96 columns have no place to say so.
        return _cast_rounding if types.is_timestamp(source) else None
    return None


def _to_text(source: pa.DataType) -> Widening | None:
    if _is_text(source) or _is_bytes(source) or types.is_integer(source) or types.is_date(source):
        return _cast
    if types.is_floating(source):
        return _float_to_text
    if types.is_decimal(source):
        return _decimal_to_text
    return None


def _to_decimal(source: pa.DataType) -> Widening | None:
    if types.is_decimal(source):
        return _cast
    if types.is_integer(source) or types.is_floating(source) or _is_text(source):
        return _text_to_decimal
    return None


def _cast(values: pa.Array, target: pa.DataType) -> pa.Array:
    return pc.cast(values, target)


def _cast_rounding(values: pa.Array, target: pa.DataType) -> pa.Array:
    return pc.cast(values, target, safe=False)


def _view(values: pa.Array, target: pa.DataType) -> pa.Array:
    return values.view(target)


def _float_to_double(values: pa.Array, target: pa.DataType) -> pa.Array:
    return pc.cast(pc.cast(values, pa.string()), target)


def _float_to_text(values: pa.Array, target: pa.DataType) -> pa.Array:
    digits = pc.cast(values, pa.string()).to_pylist()
    return pa.array([None if text is None else _java_text(float(text)) for text in digits], target)


def _decimal_to_text(values: pa.Array, target: pa.DataType) -> pa.Array:
    return pa.array([None if value is None else str(value) for value in values.to_pylist()], target)


def _text_to_decimal(values: pa.Array, target: pa.DataType) -> pa.Array:
    step = decimal.Decimal(1).scaleb(-target.scale)
    with decimal.localcontext(prec=2 * target.precision, rounding=decimal.ROUND_HALF_UP):
        rounded = [
            None if text is None else decimal.Decimal(text).quantize(step)
            for text in pc.cast(values, pa.string()).to_pylist()
        ]
    return pa.array(rounded, target)


def _java_text(number: float) -> str:
    """Return what Java's `Double.toString` prints.

    >>> [_java_text(number) for number in (1.0, 0.1, 1e7, 1.5e-4, -123456.25)]
    ['1.0', '0.1', '1.0E7', '1.5E-4', '-123456.25']
    """
    if math.isnan(number):
        return "NaN"
    if math.isinf(number):
        return "Infinity" if number > 0 else "-Infinity"
    if number == 0 or 1e-3 <= abs(number) < 1e7:
        text = format(decimal.Decimal(repr(number)), "f")
        return text if "." in text else f"{text}.0"
    sign, digits, _ = decimal.Decimal(repr(number)).normalize().as_tuple()
    mantissa = f"{digits[0]}.{''.join(map(str, digits[1:])) or '0'}"
    exponent = decimal.Decimal(repr(number)).adjusted()
    return f"{'-' if sign else ''}{mantissa}E{exponent}"


def _is_list(kind: pa.DataType) -> bool:
    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


def _is_text(kind: pa.DataType) -> bool:
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


def _is_bytes(kind: pa.DataType) -> bool:
    return bool(
        types.is_binary(kind)
        or types.is_large_binary(kind)
        or types.is_binary_view(kind)
        or types.is_fixed_size_binary(kind)
    )
