"""A table's keys and paths are those of its rows, one by one; and a path that can be read back, is."""

from __future__ import annotations

import string
from typing import Any

import hypothesis.strategies as st
import pyarrow as pa
from hypothesis import given

from bucketlake.config import KeyGeneratorType, TimestampKeyConfig, TimestampType
from bucketlake.errors import ConfigError
from bucketlake.keygen import KeyGenerator, PartitionField

text = st.text(st.characters(exclude_categories=["Cs"]), max_size=8) | st.text(
    "-/%=:,'\x00\x7f a", max_size=6
)
COLUMNS: dict[Any, st.SearchStrategy[Any]] = {
    pa.string(): text,
    pa.int32(): st.integers(-(2**31), 2**31 - 1),
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.bool_(): st.booleans(),
    pa.float32(): st.floats(width=32),
    pa.float64(): st.floats(),
    pa.binary(): st.binary(max_size=5),
    pa.date32(): st.dates(),
    pa.timestamp("us", "UTC"): st.integers(-(2**60), 2**60),
    pa.timestamp("ms"): st.integers(-(2**50), 2**50),
    pa.decimal128(20, 8): st.decimals(places=8, allow_nan=False, min_value=-(10**11), max_value=10**11),
}


@st.composite
def columns(draw: st.DrawFn, length: int) -> Any:
    data_type, values = draw(st.sampled_from(list(COLUMNS.items())))
    drawn = draw(st.lists(st.none() | values, min_size=length, max_size=length))
    if pa.types.is_timestamp(data_type):
        return pa.array(drawn, pa.int64()).view(data_type)
    return pa.array(drawn, data_type)


@st.composite
def tables(draw: st.DrawFn) -> Any:
    length = draw(st.integers(0, 6))
    return pa.table({name: draw(columns(length)) for name in ("a", "b", "p", "q")})


def rows_of(table: Any) -> list[dict[str, Any]]:
    return [{name: table.column(name)[row] for name in table.schema.names} for row in range(table.num_rows)]


generators = st.builds(
    KeyGenerator,
    record_key_fields=st.sampled_from([("a",), ("a", "b"), ("b", "a")]),
    encodes_field_names=st.booleans(),
    partition_fields=st.sampled_from(
        [
            (),
            (PartitionField("p"),),
            (PartitionField("p", slashes_dates=True),),
            (PartitionField("p"), PartitionField("q")),
        ]
    ),
    hive_style=st.booleans(),
    url_encode=st.booleans(),
).map(
    # Keys of several columns are always written with their names.
    lambda made: KeyGenerator(
        record_key_fields=made.record_key_fields,
        encodes_field_names=made.encodes_field_names or len(made.record_key_fields) > 1,
        partition_fields=made.partition_fields,
        hive_style=made.hive_style,
        url_encode=made.url_encode,
    )
)


@given(tables(), generators)
def test_the_record_keys_of_a_table_are_those_of_its_rows(table: Any, generator: KeyGenerator) -> None:
    try:
        one_by_one: list[str] | None = [generator.record_key_of(row) for row in rows_of(table)]
    except ConfigError:
        one_by_one = None
    try:
        by_column = generator.record_keys(table).to_pylist()
    except ConfigError:
        by_column = None
    assert by_column == one_by_one


@given(tables(), generators)
def test_the_partition_paths_of_a_table_are_those_of_its_rows(table: Any, generator: KeyGenerator) -> None:
    one_by_one = [generator.partition_path_of(row) for row in rows_of(table)]
    assert generator.partition_paths(table).to_pylist() == one_by_one


@given(st.none() | text, st.none() | text, generators)
def test_a_path_read_back_gives_the_values_it_was_made_from(
    p: str | None, q: str | None, generator: KeyGenerator
) -> None:
    values = {"p": p, "q": q}
    read = generator.partition_values(generator.partition_path_of(values))
    if read is not None:
        nothing = (None, "", "__HIVE_DEFAULT_PARTITION__")
        for name, value in read.items():
            assert value == values[name] or (value is None and values[name] in nothing)
    elif generator.url_encode and not any(field.slashes_dates for field in generator.partition_fields):
        raise AssertionError("an encoded path can always be read back")


@given(st.lists(st.none() | st.integers(-(2**60), 2**60)), st.data())
def test_the_timestamp_paths_of_a_table_are_those_of_its_rows(
    values: list[int | None], data: st.DataObject
) -> None:
    config = TimestampKeyConfig(
        type=data.draw(st.sampled_from([TimestampType.EPOCHMICROSECONDS, TimestampType.EPOCHMILLISECONDS])),
        output_format=data.draw(
            st.sampled_from(["yyyy/MM/dd", "yyyyMMddHHmmss", "yyyy-MM-dd HH:mm:ss.SSS", "HHZZ"])
        ),
        output_timezone=data.draw(
            st.sampled_from(["", "UTC", "Asia/Kolkata", "America/New_York", "Africa/Monrovia", "GMT+8:00"])
        ),
    )
    generator = KeyGenerator(
        kind=KeyGeneratorType.TIMESTAMP,
        record_key_fields=("a",),
        encodes_field_names=False,
        partition_fields=(PartitionField("p", is_timestamp=True),),
        timestamp=config,
    )
    small = [None if value is None else value >> data.draw(st.integers(8, 24)) for value in values]
    table = pa.table({"p": pa.array(small, pa.int64())})
    assert generator.partition_paths(table).to_pylist() == [
        generator.partition_path_of(row) for row in rows_of(table)
    ]


@given(st.lists(st.text(string.digits + "-", min_size=1, max_size=11) | st.dates().map(str)))
def test_date_strings_of_a_table_are_read_like_those_of_its_rows(values: list[str]) -> None:
    generator = KeyGenerator(
        kind=KeyGeneratorType.TIMESTAMP,
        record_key_fields=("a",),
        encodes_field_names=False,
        partition_fields=(PartitionField("p", is_timestamp=True),),
        timestamp=TimestampKeyConfig(
            type=TimestampType.DATE_STRING, input_formats=("yyyy-MM-dd",), output_format="yyyy/MM"
        ),
    )
    for value in values:
        table = pa.table({"p": [value]})
        try:
            one = generator.partition_path_of({"p": value})
        except ConfigError:
            one = None
        try:
            column = generator.partition_paths(table)[0].as_py()
        except ConfigError:
            column = None
        assert column == one
