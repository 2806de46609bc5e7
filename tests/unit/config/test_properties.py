"""A table opened with a guessed property is a table read wrongly: every value is understood or refused."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path

import pytest

from bucketlake.config import (
    BucketEngine,
    KeyGeneratorType,
    MergeMode,
    TableProperties,
    TableType,
    TimelineTimezone,
    TimestampType,
    load_properties,
    render_java_properties,
    table_checksum,
)
from bucketlake.errors import CorruptTableError, NotATableError, UnsupportedError
from bucketlake.storage import LocalStore, MemoryStore

MINIMAL = {
    "hoodie.table.name": "orders",
    "hoodie.table.type": "MERGE_ON_READ",
    "hoodie.table.version": "9",
    "hoodie.timeline.layout.version": "2",
    "hoodie.table.recordkey.fields": "id",
    "hoodie.table.partition.fields": "dt",
    "hoodie.record.merge.mode": "COMMIT_TIME_ORDERING",
    "hoodie.table.keygenerator.type": "SIMPLE",
}
V8 = MINIMAL | {"hoodie.table.version": "8"}
V6 = MINIMAL | {"hoodie.table.version": "6", "hoodie.timeline.layout.version": "1"}


def without(pairs: dict[str, str], *keys: str) -> dict[str, str]:
    return {key: value for key, value in pairs.items() if key not in keys}


def stored(pairs: dict[str, str], path: str = ".hoodie/hoodie.properties") -> MemoryStore:
    store = MemoryStore()
    store.put(path, render_java_properties(pairs))
    return store


def test_a_minimal_file_gives_typed_values() -> None:
    found = TableProperties.parse(MINIMAL)
    assert (found.name, found.database, found.table_type) == ("orders", None, TableType.MERGE_ON_READ)
    assert (found.table_version, found.timeline_layout) == (9, 2)
    assert (found.timeline_folder, found.history_folder) == (".hoodie/timeline", ".hoodie/timeline/history")
    assert (found.record_key_fields, found.partition_fields, found.ordering_fields) == (("id",), ("dt",), ())
    assert found.merge_mode is MergeMode.COMMIT_TIME_ORDERING
    assert found.timeline_timezone is TimelineTimezone.LOCAL
    assert (found.index_type, found.bucket_engine, found.bucket_count, found.hash_fields) == (None,) * 4
    assert found.raw == MINIMAL


def test_layout_one_keeps_its_timeline_in_the_meta_folder() -> None:
    found = TableProperties.parse(V6)
    assert (found.timeline_folder, found.history_folder) == (".hoodie", ".hoodie/archived")


def test_what_a_writer_persists_is_typed() -> None:
    found = TableProperties.parse(
        MINIMAL
        | {
            "hoodie.table.recordkey.fields": "a, b,",
            "hoodie.table.ordering.fields": "ts,seq",
            "hoodie.datasource.write.hive_style_partitioning": "TRUE",
            "hoodie.table.metadata.partitions": "files,record_index",
            "hoodie.record.merge.property.hoodie.payload.delete.field": "op",
            "hoodie.record.merge.property.hoodie.payload.delete.marker": "D",
            "hoodie.index.type": "BUCKET",
            "hoodie.index.bucket.engine": "SIMPLE_HASHING",
            "hoodie.bucket.index.num.buckets": "16",
            "hoodie.bucket.index.hash.field": "a",
            "hoodie.table.timeline.timezone": "utc",
        }
    )
    assert found.record_key_fields == ("a", "b")
    assert found.ordering_fields == ("ts", "seq")
    assert found.hive_style_partitioning
    assert found.metadata_partitions == ("files", "record_index")
    assert (found.delete_field, found.delete_marker) == ("op", "D")
    assert (found.bucket_engine, found.bucket_count, found.hash_fields) == (BucketEngine.SIMPLE, 16, ("a",))
    assert found.timeline_timezone is TimelineTimezone.UTC


def test_the_older_name_of_the_ordering_field_is_read() -> None:
    assert TableProperties.parse(MINIMAL | {"hoodie.table.precombine.field": "ts"}).ordering_fields == ("ts",)


def test_timestamp_keys_are_read_under_both_prefixes() -> None:
    found = TableProperties.parse(
        MINIMAL
        | {
            "hoodie.table.keygenerator.type": "TIMESTAMP_AVRO",
            "hoodie.keygen.timebased.timestamp.type": "SCALAR",
            "hoodie.keygen.timebased.timestamp.scalar.time.unit": "days",
            "hoodie.keygen.timebased.input.dateformat": "yyyy-MM-dd,yyyyMMdd",
            "hoodie.deltastreamer.keygen.timebased.output.dateformat": "yyyy/MM/dd",
            "hoodie.keygen.timebased.timezone": "GMT+8",
            "hoodie.keygen.timebased.input.timezone": "UTC",
        }
    )
    assert found.key_generator is KeyGeneratorType.TIMESTAMP
    key = found.timestamp_key
    assert key is not None
    assert (key.type, key.scalar_unit) == (TimestampType.SCALAR, "DAYS")
    assert (key.input_formats, key.output_format) == (("yyyy-MM-dd", "yyyyMMdd"), "yyyy/MM/dd")
    assert (key.input_timezone, key.output_timezone) == ("GMT+8", "GMT+8")


@pytest.mark.parametrize(
    ("keys", "partitions", "kind"),
    [
        ("id", "", KeyGeneratorType.NON_PARTITION),
        ("a,b", "", KeyGeneratorType.NON_PARTITION),
        ("id", "dt", KeyGeneratorType.SIMPLE),
        ("a,b", "dt", KeyGeneratorType.COMPLEX),
        ("id", "dt,hh", KeyGeneratorType.COMPLEX),
        ("id", "dt:simple,ts:timestamp", KeyGeneratorType.CUSTOM),
    ],
)
def test_an_unnamed_key_generator_is_inferred_as_hudi_does(
    keys: str, partitions: str, kind: KeyGeneratorType
) -> None:
    pairs = without(MINIMAL, "hoodie.table.keygenerator.type")
    found = TableProperties.parse(
        pairs | {"hoodie.table.recordkey.fields": keys, "hoodie.table.partition.fields": partitions}
    )
    assert found.key_generator is kind


def test_a_key_generator_class_is_named_by_its_type_and_never_loaded() -> None:
    key = "hoodie.table.keygenerator.class"
    known = TableProperties.parse(MINIMAL | {key: "org.apache.hudi.keygen.ComplexKeyGenerator"})
    foreign = TableProperties.parse(MINIMAL | {key: "com.example.Mine"})
    assert known.key_generator is KeyGeneratorType.COMPLEX
    assert foreign.key_generator is KeyGeneratorType.USER_PROVIDED


@pytest.mark.parametrize(
    "key",
    [
        "hoodie.table.name",
        "hoodie.table.type",
        "hoodie.table.version",
        "hoodie.timeline.layout.version",
        "hoodie.record.merge.mode",
    ],
)
def test_a_missing_key_is_an_error_that_names_it(key: str) -> None:
    with pytest.raises(CorruptTableError, match=f"no value for {key}"):
        TableProperties.parse(without(MINIMAL, key))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("hoodie.table.version", "abc"),
        ("hoodie.table.type", "FOO"),
        ("hoodie.timeline.layout.version", "1"),
        ("hoodie.record.merge.mode", "WHICHEVER"),
        ("hoodie.populate.meta.fields", "yes"),
        ("hoodie.datasource.write.hive_style_partitioning", "1"),
        ("hoodie.table.timeline.timezone", "CET"),
        ("hoodie.table.keygenerator.type", "MAGIC"),
        ("hoodie.keygen.timebased.timestamp.type", "SUNDIAL"),
        ("hoodie.bucket.index.num.buckets", "0"),
        ("hoodie.bucket.index.num.buckets", "four"),
        ("hoodie.table.checksum", "x"),
    ],
)
def test_a_value_that_makes_no_sense_is_an_error_and_never_a_default(key: str, value: str) -> None:
    with pytest.raises(CorruptTableError) as caught:
        TableProperties.parse(MINIMAL | {key: value}, path="where")
    assert caught.value.path == "where"
    assert f"{key}={value}" in str(caught.value)


@pytest.mark.parametrize("version", ["1", "5", "7", "10"])
def test_other_table_versions_are_refused(version: str) -> None:
    with pytest.raises(
        UnsupportedError, match=f"is {version}, and bucketlake supports table versions 6, 8 and 9"
    ):
        TableProperties.parse(MINIMAL | {"hoodie.table.version": version})


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("hoodie.table.base.file.format", "ORC"),
        ("hoodie.table.log.file.format", "PARQUET"),
        ("hoodie.table.multiple.base.file.formats.enable", "true"),
        ("hoodie.bootstrap.base.path", "s3://elsewhere/table"),
        ("hoodie.table.format", "iceberg"),
        ("hoodie.table.partial.update.mode", "IGNORE_DEFAULTS"),
        ("hoodie.table.partial.update.mode", "FILL_UNAVAILABLE"),
        ("hoodie.record.merge.mode", "CUSTOM"),
    ],
)
def test_what_would_be_read_wrongly_is_refused_by_name(key: str, value: str) -> None:
    with pytest.raises(UnsupportedError) as caught:
        TableProperties.parse(MINIMAL | {key: value})
    assert key in str(caught.value)
    assert value in str(caught.value)


def test_a_table_that_keeps_change_data_is_read() -> None:
    assert TableProperties.parse(MINIMAL | {"hoodie.table.cdc.enabled": "true"}).name == "orders"


EVENT_TIME_ID = "eeb8d96f-b1e4-49fd-bbf8-28ac514178e5"
COMMIT_TIME_ID = "ce9acb64-bde0-424c-9b91-f6ebba25356d"
DEFAULT_PAYLOAD = "org.apache.hudi.common.model.DefaultHoodieRecordPayload"
LATEST_PAYLOAD = "org.apache.hudi.common.model.OverwriteWithLatestAvroPayload"
EVENT, COMMIT = MergeMode.EVENT_TIME_ORDERING, MergeMode.COMMIT_TIME_ORDERING


# After HoodieTableConfig.inferMergingConfigsForPreV9Table.
@pytest.mark.parametrize(
    ("table", "payload", "strategy", "ordering", "mode"),
    [
        (V6, "", "", "", COMMIT),
        (V6, "", "", "ts", EVENT),
        (V6, DEFAULT_PAYLOAD, "", "ts", EVENT),
        (V6, LATEST_PAYLOAD, "", "ts", COMMIT),
        (V6, LATEST_PAYLOAD, EVENT_TIME_ID, "ts", COMMIT),
        (V6, "", EVENT_TIME_ID, "", EVENT),
        (V8, DEFAULT_PAYLOAD, EVENT_TIME_ID, "ts", EVENT),
        (V8, "", COMMIT_TIME_ID, "ts", COMMIT),
        (V8, DEFAULT_PAYLOAD, "", "", EVENT),
    ],
)
def test_older_versions_say_the_merge_mode_in_other_words(
    table: dict[str, str], payload: str, strategy: str, ordering: str, mode: MergeMode
) -> None:
    found = TableProperties.parse(
        without(table, "hoodie.record.merge.mode")
        | {
            "hoodie.compaction.payload.class": payload,
            "hoodie.record.merge.strategy.id": strategy,
            "hoodie.table.ordering.fields": ordering,
        }
    )
    assert found.merge_mode is mode


@pytest.mark.parametrize(
    ("table", "key", "value"),
    [
        (V6, "hoodie.compaction.payload.class", "org.apache.hudi.common.model.PartialUpdateAvroPayload"),
        (V8, "hoodie.record.merge.strategy.id", "00000000-0000-0000-0000-000000000000"),
        (V8, "hoodie.record.merge.strategy.id", "1897ef5f-18bc-4557-939c-9d6a8afd1519"),
    ],
)
def test_a_merge_by_a_java_class_is_refused(table: dict[str, str], key: str, value: str) -> None:
    with pytest.raises(UnsupportedError, match="no code found in a table is run") as caught:
        TableProperties.parse(without(table, "hoodie.record.merge.mode") | {key: value})
    assert value in str(caught.value)


def test_words_about_merging_that_disagree_are_an_error() -> None:
    with pytest.raises(CorruptTableError, match=r"COMMIT_TIME_ORDERING.*expected EVENT_TIME_ORDERING"):
        TableProperties.parse(V8 | {"hoodie.record.merge.strategy.id": EVENT_TIME_ID})
    both = {
        "hoodie.record.merge.strategy.id": EVENT_TIME_ID,
        "hoodie.compaction.payload.class": LATEST_PAYLOAD,
    }
    with pytest.raises(CorruptTableError, match=rf"{EVENT_TIME_ID}, expected the same as"):
        TableProperties.parse(V8 | both)


def test_a_complex_key_of_one_field_names_it_unless_an_older_table_says_otherwise() -> None:
    new_encoding = {"hoodie.write.complex.keygen.new.encoding": "true"}
    assert TableProperties.parse(MINIMAL | new_encoding).complex_key_encodes_field_name
    assert TableProperties.parse(V8).complex_key_encodes_field_name
    assert not TableProperties.parse(V8 | new_encoding).complex_key_encodes_field_name


def test_a_wrong_checksum_is_refused_with_both_values_and_the_remedy() -> None:
    right = table_checksum(database=None, name="orders")
    assert TableProperties.parse(MINIMAL | {"hoodie.table.checksum": str(right)}).name == "orders"
    with pytest.raises(
        CorruptTableError, match=rf"found hoodie\.table\.checksum=7, expected {right}.*renamed"
    ):
        TableProperties.parse(MINIMAL | {"hoodie.table.checksum": "7"})


def test_the_backup_is_read_while_the_file_is_being_replaced() -> None:
    assert load_properties(stored(MINIMAL, ".hoodie/hoodie.properties.backup")).name == "orders"


def test_the_backup_is_read_when_the_file_is_torn() -> None:
    store = stored(MINIMAL, ".hoodie/hoodie.properties.backup")
    store.put(".hoodie/hoodie.properties", b"hoodie.table.na")
    assert load_properties(store).name == "orders"


def test_a_torn_file_without_a_backup_is_an_error() -> None:
    store = MemoryStore()
    store.put(".hoodie/hoodie.properties", b"hoodie.table.na")
    with pytest.raises(CorruptTableError, match=r"\.hoodie/hoodie\.properties: found no value"):
        load_properties(store)


def test_a_folder_without_properties_is_not_a_table() -> None:
    store = MemoryStore()
    with pytest.raises(NotATableError, match=r"memory://.*neither"):
        load_properties(store)


def test_properties_travel_to_executors() -> None:
    found = TableProperties.parse(MINIMAL)
    assert pickle.loads(pickle.dumps(found)) == found


def test_every_golden_table_opens(golden_table: Callable[[str], Path]) -> None:
    archives = sorted((Path(__file__).parents[2] / "golden").glob("*.tar.gz"))
    names = [archive.name.removesuffix(".tar.gz") for archive in archives]
    versions = {}
    for name in names:
        found = load_properties(LocalStore(golden_table(name)))
        versions[name] = found.table_version
        assert "hoodie.table.checksum" in found.raw, "or the checksum of this table was not tested"
    assert (versions["mor_v6"], versions["mor_v8"], versions["mor_partial_update"]) == (6, 8, 9)
