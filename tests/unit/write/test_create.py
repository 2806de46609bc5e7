"""What a table is is written once and never again: a mistake here is there to stay."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from bucketlake.commit.writable import check_writable
from bucketlake.config import KeyGeneratorType, MergeMode, TableType, load_properties, table_checksum
from bucketlake.errors import (
    ConfigError,
    LayoutMismatchError,
    TableExistsError,
    UnsupportedError,
)
from bucketlake.index import IndexValue, RuledIndex, SimpleBuckets, SimpleIndex
from bucketlake.index.fingerprint import KEY_ENCODING, fingerprint, is_adopted, key_encoding, writing_index
from bucketlake.schema import avro_to_arrow
from bucketlake.state import load_state, table_schema
from bucketlake.storage import LocalStore, MemoryStore
from bucketlake.testing.faulty_store import FaultyStore, InjectedError
from bucketlake.write.create import BUCKETS_MAX, TableSpec, create, key_generator_of, properties_of

Golden = Callable[[str], Path]

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("k2", pa.string()),
        ("dt", pa.string()),
        ("hh", pa.int32()),
        ("ts", pa.timestamp("us", "UTC")),
        ("price", pa.decimal128(10, 2)),
        ("x", pa.float64()),
        ("raw", pa.binary()),
        ("day", pa.date32()),
        ("tags", pa.list_(pa.string())),
        ("address", pa.struct([("city", pa.string()), ("zip", pa.float32())])),
    ]
)
SPEC = TableSpec(
    name="orders", schema=SCHEMA, key=("id",), partition=("dt",), ordering=("ts",), index=SimpleBuckets(8)
)


def test_a_new_table_opens_as_it_was_described() -> None:
    store = MemoryStore()
    create(store, SPEC)
    state = load_state(store)
    properties = state.properties
    assert properties.name == "orders"
    assert properties.table_type is TableType.COPY_ON_WRITE
    assert (properties.table_version, properties.timeline_layout) == (9, 2)
    assert properties.key_generator is KeyGeneratorType.SIMPLE
    assert properties.merge_mode is MergeMode.EVENT_TIME_ORDERING
    assert properties.ordering_fields == ("ts",)
    assert properties.timeline_timezone == "UTC"
    assert properties.raw["hoodie.table.checksum"] == str(table_checksum(database=None, name="orders"))
    assert properties.raw["bucketlake.version"] == "1"
    assert table_schema(state) == avro_to_arrow(properties.create_schema or "", path="x")
    assert [field.name for field in table_schema(state)] == SCHEMA.names
    assert writing_index(state) == SimpleIndex(8, ("id",))
    check_writable(state)


def test_it_has_every_property_that_hudi_writes(golden_table: Golden) -> None:
    theirs = load_properties(LocalStore(golden_table("cow_simple_bucket"))).raw
    ours = properties_of(replace(SPEC, name="cow_simple_bucket"))
    # Which Java class reads a path back is Hive's business, and no class name goes into a table of ours.
    missing = (
        theirs.keys() - ours.keys() - {"hoodie.table.checksum", "hoodie.table.partition_extractor_class"}
    )
    assert missing == set()
    differing = {key for key in theirs.keys() & ours.keys() if theirs[key] != ours[key]}
    assert differing == {"hoodie.table.timeline.timezone"}


@pytest.mark.parametrize(
    ("key", "partition", "kind", "encoding"),
    [
        (("id",), ("dt",), KeyGeneratorType.SIMPLE, "value"),
        (("id", "k2"), ("dt",), KeyGeneratorType.COMPLEX, "field:value"),
        (("id",), ("dt", "hh"), KeyGeneratorType.COMPLEX, "field:value"),
        (("id",), (), KeyGeneratorType.NON_PARTITION, "value"),
        (("id", "k2"), (), KeyGeneratorType.NON_PARTITION, "field:value"),
    ],
)
def test_the_key_generator_is_the_one_that_hudi_infers(
    key: tuple[str, ...], partition: tuple[str, ...], kind: KeyGeneratorType, encoding: str
) -> None:
    assert key_generator_of(key, partition) is kind
    properties = properties_of(replace(SPEC, key=key, partition=partition))
    assert properties["hoodie.table.keygenerator.type"] == kind
    assert properties[KEY_ENCODING] == encoding


def test_without_an_ordering_the_later_write_wins_and_no_ordering_field_is_named() -> None:
    properties = properties_of(replace(SPEC, ordering=()))
    assert properties["hoodie.record.merge.mode"] == "COMMIT_TIME_ORDERING"
    assert "hoodie.table.ordering.fields" not in properties, "Hudi's next write would refuse the table"


def test_every_choice_of_the_spec_is_kept() -> None:
    spec = replace(
        SPEC,
        key=("id", "address.city"),
        index=SimpleBuckets(8, ("address.city",)),
        table_type=TableType.MERGE_ON_READ,
        hive_style=True,
        url_encode=True,
        database="sales",
        options={"bucketlake.allow.null.elements": "true"},
    )
    store = MemoryStore()
    properties = create(store, spec)
    assert properties == load_properties(store)
    assert properties.hash_fields == ("address.city",)
    assert properties.table_type is TableType.MERGE_ON_READ
    assert properties.hive_style_partitioning and properties.url_encode_partitioning
    assert properties.database == "sales"
    assert properties.raw["bucketlake.allow.null.elements"] == "true"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"name": ""}, "the table name is ''"),
        ({"name": "a b"}, "the table name is 'a b'"),
        ({"name": "../x"}, "the table name is"),
        ({"schema": pa.schema([])}, "no columns"),
        ({"schema": pa.schema([("id", pa.int64()), ("a b", pa.string())])}, "column 'a b'"),
        ({"schema": pa.schema([("id", pa.int64()), ("_hoodie_file_name", pa.string())])}, "meta columns"),
        ({"schema": pa.schema([("id", pa.int64()), ("_Hoodie_File_Name", pa.string())])}, "meta columns"),
        (
            {"schema": pa.schema([("id", pa.int64()), ("ID", pa.int64())])},
            "'ID' differs from 'id' in case only",
        ),
        (
            {
                "schema": pa.schema(
                    [("id", pa.int64()), ("a", pa.list_(pa.struct([("x", pa.int8()), ("X", pa.int8())])))]
                )
            },
            "'a.element.X' differs from 'a.element.x' in case only",
        ),
        ({"key": ()}, "needs a record key"),
        ({"key": ("nope",)}, "key column 'nope'"),
        ({"key": ("address.street",)}, r"key column 'address\.street'"),
        ({"key": ("id", "id")}, "'id' twice"),
        ({"key": ("x",)}, "key column 'x' is a double"),
        ({"key": ("ts",)}, "key column 'ts' is a timestamp"),
        ({"key": ("raw",)}, "key column 'raw' is a binary"),
        ({"key": ("price",)}, "key column 'price' is a decimal"),
        ({"key": ("tags",)}, "key column 'tags' is a list"),
        ({"partition": ("nope",)}, "partition column 'nope'"),
        ({"partition": ("ts",)}, "partition column 'ts' is a timestamp"),
        ({"partition": ("x",)}, "partition column 'x' is a double"),
        ({"ordering": ("nope",)}, "ordering column 'nope'"),
        ({"ordering": ("tags",)}, "ordering column 'tags' is a list"),
        ({"ordering": ("raw",)}, "ordering column 'raw' is a binary"),
        ({"ordering": ("address.city",)}, "inside a struct"),
        ({"index": SimpleBuckets(8, ("k2",))}, "'k2' is not a key column"),
        ({"index": SimpleBuckets(0)}, "bucket count is 0"),
        ({"index": SimpleBuckets(BUCKETS_MAX + 1)}, f"bucket count is {BUCKETS_MAX + 1}"),
        ({"options": {"hoodie.table.version": "8"}}, r"hoodie\.table\.version"),
        ({"options": {"hoodie.table.checksum": "8"}}, r"hoodie\.table\.checksum"),
    ],
)
def test_what_makes_no_sense_is_refused_before_anything_is_written(
    change: dict[str, Any], message: str
) -> None:
    store = MemoryStore()
    with pytest.raises(ConfigError, match=message):
        create(store, replace(SPEC, **change))
    assert store.list("", recursive=True).files == ()


@pytest.mark.parametrize("column", ["id", "k2", "hh", "day", "address.city"])
def test_types_that_every_writer_spells_alike_make_keys_and_partitions(column: str) -> None:
    properties_of(replace(SPEC, key=(column,), partition=(column,)))


@pytest.mark.parametrize("column", ["id", "k2", "ts", "price", "x", "day"])
def test_types_with_an_order_make_orderings(column: str) -> None:
    properties_of(replace(SPEC, ordering=(column,)))


def test_a_table_is_not_created_over_another() -> None:
    store = MemoryStore()
    create(store, SPEC)
    before = {file.path: file.version for file in store.list("", recursive=True).files}
    with pytest.raises(TableExistsError):
        create(store, replace(SPEC, name="other"))
    assert {file.path: file.version for file in store.list("", recursive=True).files} == before


def test_a_broken_table_is_not_created_over_either() -> None:
    store = MemoryStore()
    store.put(".hoodie/hoodie.properties", b"hoodie.table.version=nine")
    with pytest.raises(TableExistsError):
        create(store, SPEC)


def test_a_creation_that_is_cut_off_is_none_or_whole_and_can_be_repeated() -> None:
    counting = FaultyStore(MemoryStore())
    create(counting, SPEC)
    for number in range(1, len(counting.operations) + 1):
        for took_effect in (False, True):
            store = MemoryStore()
            with pytest.raises(InjectedError):
                create(FaultyStore(store, fails_at=number, took_effect=took_effect), SPEC)
            try:
                create(store, SPEC)
            except TableExistsError:
                assert took_effect
            assert load_properties(store).name == "orders"


def test_a_new_table_has_the_folder_without_which_hudi_does_not_open_it(tmp_path: Path) -> None:
    create(LocalStore(tmp_path), SPEC)
    assert (tmp_path / ".hoodie/timeline").is_dir()
    assert load_state(LocalStore(tmp_path)).timeline.instants == ()


def made(**changes: str | None) -> MemoryStore:
    """A table with some properties changed or, with None, removed; `_` stands for `.` in their names."""
    properties = properties_of(SPEC)
    for name, value in changes.items():
        key = name.replace("__", ".")
        properties.pop(key, None)
        if value is not None:
            properties[key] = value
    store = MemoryStore()
    text = "".join(f"{key}={value}\n" for key, value in properties.items() if "schema" not in key)
    store.put(".hoodie/hoodie.properties", text.encode())
    return store


@pytest.mark.shows("X1")
@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (SimpleBuckets(4), r"num\.buckets: the table says '8', and this write '4'"),
        (SimpleBuckets(8, ("k2",)), r"hash\.field: the table says 'id', and this write 'k2'"),
    ],
)
def test_a_writer_with_another_idea_of_the_layout_is_refused(asked: IndexValue, message: str) -> None:
    state = load_state(made())
    with pytest.raises(LayoutMismatchError, match=message):
        writing_index(state, asked)
    assert writing_index(state, SimpleBuckets(8, ("id",))) == SimpleIndex(8, ("id",))


@pytest.mark.shows("X1")
@pytest.mark.parametrize(
    "missing",
    [
        "hoodie__index__type",
        "hoodie__bucket__index__num__buckets",
        "hoodie__bucket__index__hash__field",
        "bucketlake__key__encoding",
    ],
)
def test_a_table_that_does_not_say_its_layout_is_refused_and_adopt_is_named(missing: str) -> None:
    state = load_state(made(**{missing: None}))
    assert not is_adopted(state.properties)
    with pytest.raises(LayoutMismatchError, match=r"Table\.adopt"):
        writing_index(state)


@pytest.mark.shows("X1")
def test_keys_in_another_spelling_are_refused() -> None:
    state = load_state(made(hoodie__table__keygenerator__type="COMPLEX"))
    with pytest.raises(LayoutMismatchError, match=r"'value'.*COMPLEX.*'field:value'"):
        writing_index(state)


@pytest.mark.shows("X1")
def test_an_index_that_we_do_not_write_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="BLOOM"):
        writing_index(load_state(made(hoodie__index__type="BLOOM")))


def test_stored_rules_make_a_table_no_simple_one() -> None:
    store = made()
    rules = {"expressions": "a,2", "defaultBucketNumber": 8, "rule": "regex", "version": 1, "instant": "0"}
    path = ".hoodie/.bucket_index/partition_bucket_index_meta/configs/00000000000000.hashing_config"
    store.put(path, json.dumps(rules).encode())
    index = writing_index(load_state(store))
    assert isinstance(index, RuledIndex)
    assert (index.bucket_count("a"), index.bucket_count("b")) == (2, 8)


def test_the_fingerprint_says_all_six() -> None:
    properties = load_properties(made())
    kept = fingerprint(SimpleBuckets(8), key=("id",), encoding=key_encoding(properties))
    assert len(kept) == 6
    assert kept.items() <= properties.raw.items()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hoodie__table__version": "8"}, "table version.*8.*Upgrade"),
        ({"hoodie__table__metadata__partitions": "column_stats,files"}, "bucketlake metadata delist"),
        ({"hoodie__table__metadata__partitions__inflight": "files"}, "indexer is done"),
        ({"hoodie__table__recordkey__fields": ""}, r"recordkey\.fields is empty"),
        ({"hoodie__table__keygenerator__type": "USER_PROVIDED"}, "key generator is USER_PROVIDED"),
        ({"hoodie__table__keygenerator__type": "TIMESTAMP"}, r"timebased\.timezone"),
        ({"hoodie__table__cdc__enabled": "true"}, "cdc"),
        ({"hoodie__datasource__write__drop__partition__columns": "true"}, "drop.partition.columns"),
        ({"hoodie__allow__operation__metadata__field": "TRUE"}, "operation.metadata.field"),
    ],
)
def test_a_table_that_others_would_misread_is_not_written(changes: dict[str, str], message: str) -> None:
    state = load_state(made(**changes))
    with pytest.raises(UnsupportedError, match=message):
        check_writable(state)
