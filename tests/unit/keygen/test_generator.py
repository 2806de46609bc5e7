"""Keys and paths at their edges: what is refused, by name, and what can be read back from a path."""

from __future__ import annotations

import pickle
from typing import Any

import pyarrow as pa
import pytest

from bucketlake.config import KeyGeneratorType, TableProperties
from bucketlake.errors import ConfigError, UnsupportedError
from bucketlake.keygen import KeyGenerator, PartitionField, is_certain, never_holds_a_comma


def generator(*, fields: tuple[str, ...] = ("dt",), **more: Any) -> KeyGenerator:
    partition_fields = tuple(PartitionField(name) for name in fields)
    return KeyGenerator(
        record_key_fields=("id",), encodes_field_names=False, partition_fields=partition_fields, **more
    )


def from_properties(**more: str) -> KeyGenerator:
    raw = {
        "hoodie.table.name": "t",
        "hoodie.table.type": "MERGE_ON_READ",
        "hoodie.table.version": "9",
        "hoodie.timeline.layout.version": "2",
        "hoodie.record.merge.mode": "COMMIT_TIME_ORDERING",
        **{key.replace("__", "."): value for key, value in more.items()},
    }
    return KeyGenerator.from_properties(TableProperties.parse(raw, path="hoodie.properties"))


@pytest.mark.parametrize("value", [None, ""])
def test_a_null_or_empty_record_key_is_refused_with_its_column(value: str | None) -> None:
    with pytest.raises(ConfigError, match="'id'"):
        generator().record_key_of({"id": value})
    with pytest.raises(ConfigError, match="'id' is null or empty in row 1"):
        generator().record_keys(pa.table({"id": pa.array(["a", value])}))


def test_a_key_of_several_columns_may_have_nulls_but_not_only_nulls() -> None:
    two = KeyGenerator(record_key_fields=("a", "b"), encodes_field_names=True)
    table = pa.table({"a": pa.array([None, "", "x"]), "b": pa.array([1, None, None])})
    assert two.record_keys(table.slice(0, 1)).to_pylist() == ["a:__null__,b:1"]
    assert two.record_keys(table.slice(2, 1)).to_pylist() == ["a:x,b:__null__"]
    with pytest.raises(ConfigError, match="'a', 'b' is null or empty in row 1"):
        two.record_keys(table)


def test_a_missing_column_is_named_with_those_that_are_there() -> None:
    for ask in (
        lambda: generator().record_key_of({"x": 1}),
        lambda: generator().record_keys(pa.table({"x": [1]})),
        lambda: generator(fields=("id.x",)).partition_paths(pa.table({"id": [1], "x": [1]})),
        lambda: generator(fields=("id.x",)).partition_path_of({"id": 1, "x": 1}),
    ):
        with pytest.raises(ConfigError, match=r"has no such column: it has .*x"):
            ask()


@pytest.mark.parametrize(
    "values",
    [
        pa.array([[1]]),
        pa.array([1], pa.uint8()),
        pa.array([0], pa.timestamp("ns")),
        pa.array([0], pa.date64()),
    ],
)
def test_a_type_without_a_java_text_is_refused_with_column_and_type(values: Any) -> None:
    with pytest.raises(
        UnsupportedError, match=r"'id'.*" + str(values.type).replace("[", r"\[").split("<")[0]
    ):
        generator().record_keys(pa.table({"id": values}))
    with pytest.raises(UnsupportedError, match="'id'"):
        generator().record_key_of({"id": values[0]})


def test_columns_inside_structs_are_named_with_dots() -> None:
    nested = KeyGenerator(
        record_key_fields=("a.b",), encodes_field_names=False, partition_fields=(PartitionField("a.c"),)
    )
    table = pa.table({"a": [{"b": 7, "c": "x"}]})
    assert nested.record_keys(table).to_pylist() == ["7"]
    assert nested.partition_paths(table).to_pylist() == ["x"]
    assert nested.record_key_of({"a": {"b": 7}}) == "7"
    assert nested.record_key_of({"a": table.column("a")[0]}) == "7"
    with pytest.raises(ConfigError):
        nested.record_key_of({"a": None})


def test_no_rows_make_no_keys_and_no_paths() -> None:
    table = pa.table({"id": pa.array([], pa.int64()), "dt": pa.array([], pa.string())})
    assert len(generator().record_keys(table)) == 0
    assert len(generator().partition_paths(table)) == 0
    assert len(generator(fields=()).partition_paths(table)) == 0


def test_chunked_and_dictionary_columns_are_read_like_plain_ones() -> None:
    chunks = pa.chunked_array([["a", "b"], ["c"]])
    table = pa.table({"id": chunks, "dt": chunks.combine_chunks().dictionary_encode()})
    assert generator().record_keys(table).to_pylist() == ["a", "b", "c"]
    assert generator().partition_paths(table).to_pylist() == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("kind", "message"), [("USER_PROVIDED", "USER_PROVIDED"), ("SPARK_SQL_UUID", "SPARK_SQL_UUID")]
)
def test_a_generator_we_do_not_have_says_so_at_the_first_key(kind: str, message: str) -> None:
    made = from_properties(
        hoodie__table__keygenerator__type=kind,
        hoodie__table__recordkey__fields="id",
        hoodie__table__partition__fields="dt",
    )
    with pytest.raises(UnsupportedError, match=message):
        made.record_key_of({"id": 1})
    with pytest.raises(UnsupportedError, match=message):
        made.partition_paths(pa.table({"dt": ["x"]}))
    assert made.partition_values("x") is None
    assert made.certain_record_key_of({"id": 1}) is None


def test_generated_keys_cannot_be_made_from_columns() -> None:
    made = from_properties(hoodie__table__keygenerator__type="SIMPLE", hoodie__table__partition__fields="dt")
    with pytest.raises(ConfigError, match="_hoodie_record_key"):
        made.record_key_of({"id": 1})


def test_a_generator_of_one_column_with_several_is_refused() -> None:
    made = KeyGenerator(kind=KeyGeneratorType.SIMPLE, record_key_fields=("a", "b"), encodes_field_names=True)
    with pytest.raises(ConfigError, match="a, b"):
        made.record_key_of({"a": 1, "b": 2})


def test_a_timestamp_path_without_its_configuration_is_refused() -> None:
    made = from_properties(
        hoodie__table__keygenerator__type="TIMESTAMP",
        hoodie__table__recordkey__fields="id",
        hoodie__table__partition__fields="ts",
    )
    with pytest.raises(ConfigError, match=r"timestamp\.type"):
        made.partition_path_of({"ts": 1})


@pytest.mark.parametrize(
    ("made", "path", "values"),
    [
        (generator(), "2024-01-02", {"dt": "2024-01-02"}),
        (generator(), "2024/01/02", {"dt": "2024/01/02"}),
        (generator(), "__HIVE_DEFAULT_PARTITION__", {"dt": None}),
        (generator(), "", None),
        (generator(), "a%2Fb", {"dt": "a%2Fb"}),
        (generator(url_encode=True), "a%2Fb", {"dt": "a/b"}),
        (generator(url_encode=True), "a/b", None),
        (generator(hive_style=True), "dt=x=y", {"dt": "x=y"}),
        (generator(hive_style=True), "dt=__HIVE_DEFAULT_PARTITION__", {"dt": None}),
        (generator(hive_style=True), "x", None),
        (generator(hive_style=True), "other=x", None),
        (generator(hive_style=True), "dt=", None),
        (generator(fields=("a", "b")), "x/y", {"a": "x", "b": "y"}),
        (generator(fields=("a", "b")), "x/y/z", None),
        (generator(fields=("a", "b")), "x", None),
        (generator(fields=("a", "b")), "x/", None),
        (generator(fields=()), "", {}),
        (generator(fields=()), "x", None),
    ],
)
def test_a_path_is_read_back_or_not_at_all(
    made: KeyGenerator, path: str, values: dict[str, str | None] | None
) -> None:
    assert made.partition_values(path) == values


def test_slashed_dates_are_read_back_only_where_slashes_can_be_nothing_else() -> None:
    slashed = (PartitionField("dt", slashes_dates=True),)
    plain = KeyGenerator(record_key_fields=("id",), encodes_field_names=False, partition_fields=slashed)
    encoded = KeyGenerator(
        record_key_fields=("id",), encodes_field_names=False, partition_fields=slashed, url_encode=True
    )
    assert plain.partition_values("2024/01/02") is None
    assert plain.partition_values("2024") == {"dt": "2024"}
    assert encoded.partition_values("2024/01/02") == {"dt": "2024-01-02"}


def test_a_timestamp_path_is_never_read_back() -> None:
    moment = (PartitionField("ts", is_timestamp=True),)
    made = KeyGenerator(record_key_fields=("id",), encodes_field_names=False, partition_fields=moment)
    assert made.partition_values("2024") is None


@pytest.mark.parametrize(
    ("value", "fault"),
    [
        ("a/b", "slash"),
        ("..", "dot"),
        (".hoodie", "dot"),
        ("a\nb", "control character"),
        ("a:b", "colon"),
        ("a\\b", "backslash"),
        ("%41", "escaped character"),
        ("dt=1", "equals sign"),
        ("x" * 256, "255 bytes"),
    ],
)
def test_a_partition_value_that_no_folder_or_no_other_reader_can_hold_is_refused(
    value: str, fault: str
) -> None:
    made = generator(fields=("city",))
    with pytest.raises(ConfigError, match=fault):
        made.check_partition_path(made.partition_path_of({"city": value}))


@pytest.mark.parametrize("value", ["a/b", "a\nb", "a:b", "a\\b", "%41", "dt=1", "a*b", "[a]", "?"])
def test_url_encoding_makes_a_path_of_any_value(value: str) -> None:
    made = generator(fields=("city",), url_encode=True)
    path = made.partition_path_of({"city": value})
    made.check_partition_path(path)
    assert made.partition_values(path) == {"city": value}


@pytest.mark.parametrize(
    "value", ["", "a b", " ", "é", "日本", "\N{WATER WAVE}", "100%", "a*b", "[a]", "?", "_a", "{a,b}"]
)
def test_other_values_make_a_path_as_they_are(value: str) -> None:
    made = generator(fields=("city",))
    made.check_partition_path(made.partition_path_of({"city": value}))


def test_an_equals_sign_may_stand_behind_the_name_of_a_column() -> None:
    made = generator(fields=("city",), hive_style=True)
    made.check_partition_path(made.partition_path_of({"city": "a=b"}))


def test_types_on_which_writers_differ_are_not_certain() -> None:
    certain = [pa.string(), pa.int8(), pa.int64(), pa.bool_(), pa.date32()]
    uncertain = [
        pa.float32(),
        pa.timestamp("us"),
        pa.timestamp("ms", "UTC"),
        pa.binary(),
        pa.decimal128(10, 2),
    ]
    assert all(is_certain(data_type) for data_type in certain)
    assert not any(is_certain(data_type) for data_type in uncertain)
    assert not never_holds_a_comma(pa.string())
    assert all(never_holds_a_comma(data_type) for data_type in [*certain[1:], *uncertain])


def test_a_generator_travels_to_executors() -> None:
    made = generator(hive_style=True)
    assert pickle.loads(pickle.dumps(made)) == made


def test_a_path_that_two_values_make_stands_once_in_the_encoded_paths() -> None:
    keys = KeyGenerator(
        record_key_fields=("id",), encodes_field_names=False, partition_fields=(PartitionField("dt"),)
    )
    rows = pa.table({"dt": ["a", None, "", "__HIVE_DEFAULT_PARTITION__", "a"]})
    paths = keys.encoded_partition_paths(rows)
    assert paths.dictionary.to_pylist() == ["a", "__HIVE_DEFAULT_PARTITION__"]
    assert paths.indices.to_pylist() == [0, 1, 1, 1, 0]
    assert keys.partition_paths(rows) == paths.dictionary_decode()
