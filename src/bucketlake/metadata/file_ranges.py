"""The ranges of the columns of data files that bucketlake wrote, as Hudi describes them.

    base file    from its footer; a column without a range there, as one of long texts, is read
    log file     from the footers of its blocks, and of those that it refers to, or their rows; deletes have no values

Both are as exact as the footer is: a column that holds a NaN has the open range that the footer has. What is read is
exact.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from decimal import Context, Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import types

from bucketlake.basefile.footer import open_parquet
from bucketlake.layout.names import parse_log_file_name, split_path
from bucketlake.logfile.reader import DataBlock, data_blocks
from bucketlake.metadata.column_stats import NOTHING, ColumnRange, Kind, Value, ValueType, widened
from bucketlake.storage import Store


def ranges_of(store: Store, path: str, columns: Mapping[str, ValueType]) -> tuple[ColumnRange, ...]:
    """Describe columns of a data file, given the types that they have in the table."""
    name = split_path(path)[1]
    if parse_log_file_name(name) is None:
        return tuple(_base_ranges(store, path, name, columns))
    return tuple(_log_ranges(store, path, name, columns))


def _base_ranges(
    store: Store, path: str, name: str, columns: Mapping[str, ValueType]
) -> Iterator[ColumnRange]:
    with open_parquet(store, path) as file:
        parts = _parquet_ranges(file, name, columns)
    yield from parts.values()


def _parquet_ranges(
    file: pq.ParquetFile, name: str, columns: Mapping[str, ValueType]
) -> dict[str, ColumnRange]:
    schema = file.metadata.schema
    places = {schema.column(n).path: n for n in range(file.metadata.num_columns)}
    found: dict[str, ColumnRange] = {}
    for group in range(file.metadata.num_row_groups):
        chunks = file.metadata.row_group(group)
        for column in columns:
            if column in places:
                type = _stored_type(schema.column(places[column]))
                chunk = chunks.column(places[column])
                part = _chunk_range(file, group, chunk, name=name, column=column, type=type)
                found[column] = widened(found[column], part) if column in found else part
    return found


def _chunk_range(
    file: pq.ParquetFile,
    group: int,
    chunk: pq.ColumnChunkMetaData,
    *,
    name: str,
    column: str,
    type: ValueType,
) -> ColumnRange:
    said = chunk.statistics
    nulls = said.null_count if said is not None and said.has_null_count else None
    least = most = None
    if said is not None and said.has_min_max:
        least, most = (_from_footer(value, type) for value in (said.min_raw, said.max_raw))
    elif nulls != chunk.num_values:
        values = file.read_row_group(group, columns=[column], use_threads=False).column(column)
        nulls, (least, most) = values.null_count, _ends(values, type)
    return ColumnRange(
        name=name,
        column=column,
        type=type,
        least=least,
        most=most,
        values=chunk.num_values,
        nulls=chunk.num_values if nulls is None else nulls,
        size_bytes=chunk.total_compressed_size,
        raw_bytes=chunk.total_uncompressed_size,
    )


def _stored_type(column: pq.ColumnSchema) -> ValueType:
    """Return the type of a Parquet column, as Hudi calls it: it asks the file, not the table."""
    logical = column.logical_type
    match logical.type:
        case "STRING":
            return ValueType(Kind.STRING)
        case "DATE":
            return ValueType(Kind.DATE)
        case "DECIMAL":
            return ValueType(Kind.DECIMAL, f"{column.precision},{column.scale}")
        case "TIMESTAMP":
            said = json.loads(logical.to_json())
            assert said["timeUnit"] == "microseconds", "base files have microseconds"
            is_moment = said["isAdjustedToUTC"]
            return ValueType(Kind.TIMESTAMP_MICROS if is_moment else Kind.LOCAL_TIMESTAMP_MICROS)
    return ValueType(_PHYSICAL[column.physical_type])


_PHYSICAL: Mapping[str, Kind] = {
    "BOOLEAN": Kind.BOOLEAN,
    "INT32": Kind.INT,
    "INT64": Kind.LONG,
    "FLOAT": Kind.FLOAT,
    "DOUBLE": Kind.DOUBLE,
    "BYTE_ARRAY": Kind.BYTES,
    "FIXED_LEN_BYTE_ARRAY": Kind.FIXED,
}


def _from_footer(value: Value, type: ValueType) -> Value:
    if type.kind is Kind.DECIMAL:
        return _unscaled_bytes(int.from_bytes(value, signed=True) if isinstance(value, bytes) else int(value))
    if type.kind is Kind.STRING:
        assert isinstance(value, bytes)
        return value.decode()
    return value


def _log_ranges(
    store: Store, path: str, name: str, columns: Mapping[str, ValueType]
) -> Iterator[ColumnRange]:
    """Describe a log. Hudi says nothing of its bytes, and of one without rows not even a type."""
    parts = [_block_ranges(block, name, columns) for block in data_blocks(store, path)]
    for column, type in columns.items():
        found = ColumnRange(
            name=name,
            column=column,
            type=type if parts else NOTHING,
            least=None,
            most=None,
            values=0,
            nulls=0,
        )
        for part in parts:
            found = widened(part[column], found)
        yield replace(found, size_bytes=0, raw_bytes=0)


def _block_ranges(block: DataBlock, name: str, columns: Mapping[str, ValueType]) -> dict[str, ColumnRange]:
    file = block.parquet()
    if file is not None and _has_statistics(file.metadata):
        return _parquet_ranges(file, name, columns)
    rows = block.rows(tuple(columns))
    found: dict[str, ColumnRange] = {}
    for column, type in columns.items():
        values = rows.column(column)
        least, most = _ends(values, type)
        found[column] = ColumnRange(
            name=name,
            column=column,
            type=type,
            least=least,
            most=most,
            values=len(values),
            nulls=values.null_count,
        )
    return found


def _has_statistics(footer: pq.FileMetaData) -> bool:
    """Tell whether a footer has ranges at all: a block without is read at once, not column by column."""
    return footer.num_row_groups > 0 and bool(footer.row_group(0).column(0).is_stats_set)


def _ends(values: pa.ChunkedArray, type: ValueType) -> tuple[Value | None, Value | None]:
    """Return the least and the greatest value, as they are stored; NaN is above all numbers."""
    if types.is_dictionary(values.type):
        values = values.cast(values.type.value_type)
    if type.kind in (Kind.FLOAT, Kind.DOUBLE):
        numbers = values.drop_null().to_numpy()
        if not len(numbers):
            return None, None
        return float(np.fmin.reduce(numbers)), float(numbers.max())
    if type.kind is Kind.DATE:
        values = values.cast(pa.int32())
    elif types.is_timestamp(values.type):
        values = values.cast(pa.timestamp("us", values.type.tz)).cast(pa.int64())
    ends = pc.min_max(values)
    least, most = (_stored(ends[name].as_py(), type) for name in ("min", "max"))
    return least, most


def _stored(value: Value | Decimal | None, type: ValueType) -> Value | None:
    if isinstance(value, Decimal):
        return _unscaled_bytes(int(value.scaleb(type.scale, Context(prec=100))))
    if type.kind in (Kind.TIMESTAMP_MILLIS, Kind.LOCAL_TIMESTAMP_MILLIS) and value is not None:
        assert isinstance(value, int)
        return value // 1000
    return value


def _unscaled_bytes(number: int) -> bytes:
    """Spell a number as Java's BigInteger does: in as few bytes as hold it and its sign.

    >>> _unscaled_bytes(-300), _unscaled_bytes(128), _unscaled_bytes(-128)
    (b'\\xfe\\xd4', b'\\x00\\x80', b'\\x80')
    """
    bits = (number if number >= 0 else ~number).bit_length() + 1
    return number.to_bytes(-(-bits // 8), signed=True)
