"""An old file must read like a new one: a wrong cast here is wrong data in every query."""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from bucketlake.errors import CorruptTableError
from bucketlake.schema import align


def column(values: list[Any], source: pa.DataType, target: pa.DataType) -> list[Any]:
    batch = pa.record_batch([pa.array(values, source)], names=["c"])
    aligned = align(batch, pa.schema([("c", target)]), path="f")
    aligned.validate(full=True)
    assert aligned.schema == pa.schema([("c", target)])
    result: list[Any] = aligned.column(0).to_pylist()
    return result


def test_data_that_fits_already_is_passed_on_as_it_is() -> None:
    table = pa.table({"a": [1, 2]})
    assert align(table, table.schema, path="f") is table


def test_a_column_that_fits_is_not_copied() -> None:
    batch = pa.record_batch({"a": [1, 2], "b": ["x", "y"]})
    aligned = align(batch, pa.schema([("b", pa.string())]), path="f")
    assert aligned.column(0).buffers()[2].address == batch.column(1).buffers()[2].address


def test_columns_are_found_by_name_and_missing_ones_are_null() -> None:
    table = pa.table({"a": [1, 2], "b": ["x", "y"]})
    target = pa.schema([("b", pa.string()), ("new", pa.list_(pa.int32())), ("a", pa.int64())])
    aligned = align(table, target, path="f")
    assert aligned.schema == target
    assert aligned.to_pylist()[0] == {"b": "x", "new": None, "a": 1}


def test_a_schema_without_columns_keeps_the_rows() -> None:
    assert align(pa.table({"a": [1, 2]}), pa.schema([]), path="f").num_rows == 2


@pytest.mark.parametrize(
    ("values", "source", "target", "expected"),
    [
        ([1, None], pa.int32(), pa.int64(), [1, None]),
        ([1], pa.int32(), pa.float32(), [1.0]),
        ([2**53 + 1], pa.int64(), pa.float64(), [float(2**53)]),
        ([0.1, None], pa.float32(), pa.float64(), [0.1, None]),
        ([7], pa.int32(), pa.string(), ["7"]),
        ([1.0, 1e10, None], pa.float64(), pa.string(), ["1.0", "1.0E10", None]),
        ([Decimal("1.50")], pa.decimal128(5, 2), pa.string(), ["1.50"]),
        ([datetime.date(2024, 1, 2)], pa.date32(), pa.string(), ["2024-01-02"]),
        (["2024-01-02"], pa.string(), pa.date32(), [datetime.date(2024, 1, 2)]),
        (["é"], pa.string(), pa.binary(), ["é".encode()]),
        (["é".encode()], pa.binary(), pa.string(), ["é"]),
        ([b"ab"], pa.binary(2), pa.binary(), [b"ab"]),
        (["x"], pa.large_string(), pa.string(), ["x"]),
        (["x", None, "x"], pa.dictionary(pa.int32(), pa.string()), pa.string(), ["x", None, "x"]),
        ([7, None], pa.int32(), pa.decimal128(5, 2), [Decimal("7.00"), None]),
        ([1.005], pa.float64(), pa.decimal128(5, 2), [Decimal("1.01")]),
        (["1.5"], pa.string(), pa.decimal128(5, 2), [Decimal("1.50")]),
        ([Decimal("1.50")], pa.decimal128(5, 2), pa.decimal128(10, 3), [Decimal("1.500")]),
        ([5], pa.time32("ms"), pa.int32(), [5]),
        ([None], pa.null(), pa.int32(), [None]),
        ([[1], None], pa.list_(pa.int32()), pa.list_(pa.int64()), [[1], None]),
        ([[1]], pa.large_list(pa.int32()), pa.list_(pa.int32()), [[1]]),
        ([[1]], pa.list_(pa.field("array", pa.int32(), False)), pa.list_(pa.int32()), [[1]]),
        ([[("k", 1)]], pa.map_(pa.string(), pa.int32()), pa.map_(pa.string(), pa.int64()), [[("k", 1)]]),
        (
            [{"x": 1, "gone": 2}, None],
            pa.struct([("gone", pa.int32()), ("x", pa.int32())]),
            pa.struct([("x", pa.int64()), ("new", pa.string())]),
            [{"x": 1, "new": None}, None],
        ),
    ],
)
def test_a_narrower_type_widens_as_in_hudi(
    values: list[Any], source: pa.DataType, target: pa.DataType, expected: list[Any]
) -> None:
    assert column(values, source, target) == expected


def test_times_keep_their_point_in_time() -> None:
    noon = datetime.datetime(2024, 1, 2, 12, tzinfo=datetime.UTC)
    utc_micros = pa.timestamp("us", tz="UTC")
    assert column([noon], pa.timestamp("ms", tz="UTC"), utc_micros) == [noon]
    assert column([noon.replace(tzinfo=None)], pa.timestamp("us"), utc_micros) == [noon]
    micros = int(noon.timestamp()) * 1_000_000
    assert column([micros], pa.int64(), pa.timestamp("us")) == [noon.replace(tzinfo=None)]


@pytest.mark.parametrize(
    ("source", "target"),
    [
        (pa.int64(), pa.int32()),
        (pa.float64(), pa.float32()),
        (pa.string(), pa.int32()),
        (pa.bool_(), pa.int32()),
        (pa.int32(), pa.bool_()),
        (pa.int32(), pa.date32()),
        (pa.list_(pa.int32()), pa.int32()),
        (pa.list_(pa.int64()), pa.list_(pa.int32())),
        (pa.struct([("x", pa.int64())]), pa.struct([("x", pa.int32())])),
        (pa.map_(pa.string(), pa.int64()), pa.map_(pa.string(), pa.int32())),
    ],
)
def test_any_other_change_of_type_is_an_error_that_names_file_and_column(
    source: pa.DataType, target: pa.DataType
) -> None:
    with pytest.raises(CorruptTableError, match=r"some\.parquet.*column 'c"):
        batch = pa.record_batch([pa.nulls(1, source)], names=["c"])
        align(batch, pa.schema([("c", target)]), path="some.parquet")


@pytest.mark.parametrize(
    ("value", "source", "target"),
    [
        ("yesterday", pa.string(), pa.date32()),
        ("a lot", pa.string(), pa.decimal128(5, 2)),
        (12345, pa.int32(), pa.decimal128(5, 2)),
        (Decimal("12345.67"), pa.decimal128(7, 2), pa.decimal128(5, 2)),
        (b"\xff", pa.binary(), pa.string()),
    ],
)
def test_a_value_that_does_not_fit_is_an_error(value: Any, source: pa.DataType, target: pa.DataType) -> None:
    with pytest.raises(CorruptTableError, match="column 'c'"):
        column([value], source, target)


def test_a_required_column_that_is_missing_or_null_is_an_error() -> None:
    target = pa.schema([pa.field("c", pa.int64(), nullable=False)])
    with pytest.raises(CorruptTableError, match="no column 'c'"):
        align(pa.table({"a": [1]}), target, path="f")
    with pytest.raises(CorruptTableError, match="a null in column 'c'"):
        align(pa.table({"c": pa.array([1, None], pa.int64())}), target, path="f")


def test_a_required_field_missing_in_a_struct_is_named_by_its_path() -> None:
    batch = pa.record_batch([pa.array([{"x": 1}])], names=["c"])
    target = pa.schema([("c", pa.struct([pa.field("y", pa.int64(), nullable=False)]))])
    with pytest.raises(CorruptTableError, match=r"'c\.y'"):
        align(batch, target, path="f")


@pytest.mark.parametrize("start", [0, 1, 2])
def test_a_slice_of_nested_data_aligns_like_the_whole(start: int) -> None:
    values = pa.array(
        [{"l": [1], "m": [("a", 1)]}, None, {"l": None, "m": None}, {"l": [2, None, 3], "m": [("b", None)]}],
        pa.struct([("l", pa.list_(pa.int32())), ("m", pa.map_(pa.string(), pa.int32()))]),
    )
    target = pa.schema(
        [("c", pa.struct([("m", pa.map_(pa.string(), pa.int64())), ("l", pa.list_(pa.int64()))]))]
    )
    whole = align(pa.record_batch([values], names=["c"]), target, path="f")
    part = align(pa.record_batch([values.slice(start)], names=["c"]), target, path="f")
    part.validate(full=True)
    assert part.to_pylist() == whole.to_pylist()[start:]
