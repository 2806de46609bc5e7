"""CREATE TABLE is read in Spark's form and in Flink's, and says where it cannot be."""

from __future__ import annotations

import pytest

from bucketlake import ConsistentBuckets, DynamicBuckets, PartitionBuckets, RecordIndex, SimpleBuckets
from bucketlake.config import TableType
from bucketlake.errors import ConfigError, UnsupportedError
from bucketlake.sql.create import CreateTable
from bucketlake.sql.parse import PassThrough, parse

pytestmark = pytest.mark.shows("P1")


def create(text: str) -> CreateTable:
    made = parse(text, ())
    assert isinstance(made, CreateTable)
    return made


def test_the_form_of_spark_with_names_of_hudi() -> None:
    made = create(
        """-- orders, by day
        CREATE TABLE IF NOT EXISTS Orders (
          id BIGINT NOT NULL COMMENT 'a, b', amount DECIMAL(10, 2), tags MAP<STRING, ARRAY<INT>>,
          `a ) b` STRING, dt STRING
        ) USING hudi
        PARTITIONED BY (dt)
        TBLPROPERTIES (
          primaryKey = 'id', preCombineField = 'amount', type = 'mor',
          hoodie.index.type = 'BUCKET', 'hoodie.index.bucket.engine' = 'SIMPLE',
          hoodie.bucket.index.num.buckets = 8, hoodie.bucket.index.hash.field = 'id',
          hoodie.bucket.index.partition.expressions = '\\d{4}-(06-(01|17|18)),256;2024-.*,16',
          hoodie.bucket.index.partition.rule.type = 'regex',
          hoodie.datasource.write.hive_style_partitioning = true
        )
        LOCATION '/data/it''s here';"""
    )
    assert made == CreateTable(
        name="Orders",
        if_not_exists=True,
        columns="id BIGINT NOT NULL COMMENT 'a, b', amount DECIMAL(10, 2), tags MAP<STRING, ARRAY<INT>>, "
        "`a ) b` STRING, dt STRING",
        location="/data/it's here",
        partition=("dt",),
        key=("id",),
        ordering=("amount",),
        table_type=TableType.MERGE_ON_READ,
        index=PartitionBuckets(r"\d{4}-(06-(01|17|18)),256;2024-.*,16", 8, ("id",)),
        hive_style=True,
    )


def test_the_form_of_flink_as_the_design_of_partition_level_buckets_has_it() -> None:
    made = create(
        r"""CREATE TABLE hudi_table(id BIGINT, name STRING, dt STRING, PRIMARY KEY (id, name) NOT ENFORCED)
        PARTITIONED BY (dt) WITH (
          'connector' = 'hudi', 'path' = 'file:///tmp/hudi_table', 'table.type' = 'MERGE_ON_READ',
          'index.type' = 'BUCKET', 'precombine.field' = 'name',
          'hoodie.bucket.index.partition.expressions' = '\\d{4}-(06-(01|17|18)|11-(01|10|11)),256',
          'hoodie.bucket.index.partition.rule' = 'regex',
          'hoodie.bucket.index.num.buckets' = '10')"""
    )
    assert made == CreateTable(
        name="hudi_table",
        columns="id BIGINT, name STRING, dt STRING",
        location="file:///tmp/hudi_table",
        partition=("dt",),
        key=("id", "name"),
        ordering=("name",),
        table_type=TableType.MERGE_ON_READ,
        index=PartitionBuckets(r"\d{4}-(06-(01|17|18)|11-(01|10|11)),256", 10),
    )


def test_a_key_may_stand_beside_its_column_and_partition_columns_may_bring_their_types() -> None:
    made = create(
        "CREATE TABLE t (id INT PRIMARY KEY NOT ENFORCED, n INT) USING bucketlake PARTITIONED BY (dt DATE)"
    )
    assert (made.key, made.columns, made.partition) == (("id",), "id INT, n INT, dt DATE", ("dt",))
    options = create("CREATE EXTERNAL TABLE t (id INT) USING `bucketlake` OPTIONS (primaryKey = 'id')")
    assert (options.key, options.index, options.table_type) == (("id",), None, TableType.COPY_ON_WRITE)


def test_a_table_that_is_there_gets_a_name() -> None:
    made = create("CREATE TABLE t USING hudi LOCATION '/data/t'")
    assert (made.columns, made.location) == (None, "/data/t")


@pytest.mark.parametrize(
    "text",
    [
        "CREATE TABLE t (using INT) USING parquet",
        "CREATE TABLE t (a INT)",
        "CREATE TABLE t (a INT) WITH ('connector' = 'kafka')",
        "CREATE VIEW v AS WITH x AS (SELECT 1) SELECT * FROM x",
        "CREATE TABLE t AS SELECT 1",
        "CREATE TABLE t (a INT USING hudi",  # a parenthesis that never closes is for Spark to tell
        "CREATE TABLE t (hudi STRING COMMENT 'USING hudi') USING csv",
    ],
)
def test_other_tables_are_left_to_spark(text: str) -> None:
    found = parse(text, ())
    assert isinstance(found, PassThrough) and found.text == text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("CREATE TABLE (a INT) USING hudi", r"found '\(' at position 13 .*expected the table's name"),
        ("CREATE TABLE a.b (a INT) USING hudi", r"found '\.' at position 14 .*no databases"),
        ("CREATE OR REPLACE TABLE t (a INT) USING hudi", r"found 'OR' at position 7 .*expected TABLE"),
        ("CREATE TABLE t (a) USING hudi", r"found '\)' at position 17 .*expected the type of column 'a'"),
        ("CREATE TABLE t (a INT, ) USING hudi", r"found '\)' at position 23 .*expected a column's name"),
        ("CREATE TABLE t (a INT) USING hudi", r"'t' has no key"),
        (
            "CREATE TABLE t (a INT) USING hudi\nAS SELECT 1",
            r"line 2, column 1\), expected the end .*INSERT INTO",
        ),
        ("CREATE TABLE t USING hudi", r"'t' has no columns"),
        ("CREATE TABLE t USING hudi TBLPROPERTIES (type = 'mor') LOCATION '/t'", r"Leave out type"),
        ("CREATE TABLE t (a INT) USING hudi LOCATION /t", r"found '/' .*expected the location in quotes"),
        (
            "CREATE TABLE t (a INT) USING hudi TBLPROPERTIES (hoodie.compact.inline = true)",
            r"unknown property 'hoodie.compact.inline' at position 49 .*primaryKey, .*hoodie.bucket.index.num.buckets",
        ),
        ("CREATE TABLE t (a INT) USING hudi TBLPROPERTIES (type)", r"expected '=' and the value of type"),
        ("CREATE TABLE t (a INT) USING hudi TBLPROPERTIES (type = mor)", r"found 'mor' .*in quotes"),
        (
            "CREATE TABLE t (a INT) USING hudi TBLPROPERTIES (primaryKey = 'a', type = 'mow')",
            r"type, at position 67 .*'mow'; expected 'cow', 'mor'",
        ),
        (
            "CREATE TABLE t (a INT) USING hudi TBLPROPERTIES (primaryKey = 'a', type = 'cow', table.type = 'mor')",
            r"type is 'cow' and table.type, at position 81 .*Give one",
        ),
        (
            "CREATE TABLE t (a INT PRIMARY KEY, b INT) USING hudi TBLPROPERTIES (primaryKey = 'b')",
            r"PRIMARY KEY is \('a',\) and primaryKey is \('b',\)",
        ),
        (
            "CREATE TABLE t (a INT PRIMARY KEY, b INT PRIMARY KEY) USING hudi",
            r"position 41 .*one PRIMARY KEY",
        ),
        (
            "CREATE TABLE t (a INT PRIMARY KEY) USING hudi OPTIONS (hoodie.bucket.index.num.buckets = 'x')",
            r"is 'x'; expected a number",
        ),
        (
            "CREATE TABLE t (a INT PRIMARY KEY) USING hudi OPTIONS (hoodie.bucket.index.hash.field = 'a,')",
            r"expected names of columns",
        ),
        (
            "CREATE TABLE t (a INT PRIMARY KEY) USING hudi OPTIONS (hoodie.bucket.index.partition.rule = 'regex')",
            r"partition.rule, at position 55 .*no rules",
        ),
        (
            "CREATE TABLE t (a INT PRIMARY KEY) USING hudi "
            "OPTIONS (hoodie.datasource.write.hive_style_partitioning = 1)",
            r"is '1'; expected 'true' or 'false'",
        ),
    ],
)
def test_a_mistake_is_told_with_its_place(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=f"(?s){message}"):
        parse(text, ())


@pytest.mark.parametrize(
    "pair", ["hoodie.index.type = 'BLOOM'", "hoodie.index.bucket.engine = 'LINEAR_HASHING'"]
)
def test_an_index_that_new_tables_cannot_have_is_refused(pair: str) -> None:
    with pytest.raises(UnsupportedError, match="position 55"):
        parse(f"CREATE TABLE t (a INT PRIMARY KEY) USING hudi OPTIONS ({pair})", ())


@pytest.mark.shows("C1")
@pytest.mark.parametrize("word", ["CONSISTENT_HASHING", "consistent_hashing", "SIMPLE_HASHING"])
def test_a_table_is_made_with_the_engine_that_is_named(word: str) -> None:
    pair = f"hoodie.index.bucket.engine = '{word}'"
    made = parse(f"CREATE TABLE t (a INT PRIMARY KEY) USING hudi OPTIONS ({pair})", ())
    assert isinstance(made, CreateTable)
    assert made.index == (SimpleBuckets() if word == "SIMPLE_HASHING" else ConsistentBuckets())


@pytest.mark.shows("H1")
def test_a_statement_may_say_who_maintains_the_table() -> None:
    text = "CREATE TABLE t (id INT) USING bucketlake TBLPROPERTIES (primaryKey = 'id'{})"
    assert create(text.format(", maintenance = 'off'")).maintenance == "off"
    assert create(text.format(", 'bucketlake.maintenance' = 'service'")).maintenance == "service"
    assert create(text.format("")).maintenance is None


def with_index(*pairs: str) -> CreateTable:
    return create(f"CREATE TABLE t (a INT PRIMARY KEY) USING hudi TBLPROPERTIES ({', '.join(pairs)})")


DYNAMIC = "hoodie.index.bucket.engine = 'dynamic'"


@pytest.mark.shows("H4", "D2", "C1")
@pytest.mark.parametrize(
    ("pairs", "index"),
    [
        ([DYNAMIC], DynamicBuckets()),
        ([DYNAMIC, "assigners = '3'", "keysPerBucket = '500'"], DynamicBuckets(3, 500)),
        ([DYNAMIC, "bucketlake.dynamic.bytes.per.bucket = '9'"], DynamicBuckets(bytes_per_bucket=9)),
        ([DYNAMIC, "hoodie.index.type = 'RECORD_LEVEL_INDEX'"], DynamicBuckets()),
        (["index = 'DynamicBuckets(assigners=3)'", "index.type = 'RECORD_LEVEL_INDEX'"], DynamicBuckets(3)),
        ([DYNAMIC, "hoodie.metadata.record.level.index.enable = 'true'"], DynamicBuckets()),
    ],
)
def test_dynamic_buckets_are_named_in_words_or_in_one_text(pairs: list[str], index: DynamicBuckets) -> None:
    assert with_index(*pairs).index == index


@pytest.mark.parametrize(
    ("pairs", "says"),
    [
        ([DYNAMIC, "assigners = '0'"], "assigners is 0; expected 1 to"),
        ([DYNAMIC, "assigners = 'some'"], "assigners, at .* is 'some'; expected a number"),
        ([DYNAMIC, "hoodie.bucket.index.num.buckets = 4"], "whose buckets grow by themselves"),
        (["keysPerBucket = '4'"], "keysPerBucket, at .*is SIMPLE; expected DYNAMIC"),
        (["hoodie.index.type = 'GLOBAL_RECORD_LEVEL_INDEX'", DYNAMIC], "has no buckets"),
        (["index = 'DynamicBuckets()'", "assigners = '4'"], "Give one of them"),
        (
            ["index = 'DynamicBuckets()'", "hoodie.metadata.enable = 'false'"],
            "kept there: RECORD_LEVEL_INDEX",
        ),
    ],
)
def test_dynamic_buckets_are_not_mixed_with_others(pairs: list[str], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        with_index(*pairs)


GLOBAL = "hoodie.index.type = 'GLOBAL_RECORD_LEVEL_INDEX'"
PARTITIONS = "'index.type' = 'record_level_index'"


@pytest.mark.shows("H4", "R1", "R2")
@pytest.mark.parametrize(
    ("pairs", "index"),
    [
        ([GLOBAL], RecordIndex()),
        (["hoodie.index.type = 'RECORD_INDEX'"], RecordIndex()),
        ([PARTITIONS], RecordIndex(per_partition=True)),
        ([GLOBAL, "hoodie.metadata.global.record.level.index.enable = 'true'"], RecordIndex()),
        (
            [GLOBAL, "hoodie.metadata.record.index.enable = 'true'", "hoodie.metadata.enable = true"],
            RecordIndex(),
        ),
        ([PARTITIONS, "hoodie.metadata.record.level.index.enable = true"], RecordIndex(per_partition=True)),
        (
            [GLOBAL, "hoodie.record.index.update.partition.path = 'false'"],
            RecordIndex(update_partition=False),
        ),
        ([GLOBAL, "hoodie.record.index.update.partition.path = 'true'"], RecordIndex()),
        ([GLOBAL, "index = 'RecordIndex(shards=8)'"], RecordIndex(shards=8)),
        (["index = 'RecordIndex(per_partition=True)'"], RecordIndex(per_partition=True)),
        (["hoodie.index.type = 'BUCKET'", "index = 'ConsistentBuckets(4)'"], ConsistentBuckets(4)),
        (["hoodie.metadata.global.record.level.index.enable = false"], None),
    ],
)
def test_a_record_level_index_is_named_in_hudis_words_or_in_ours(
    pairs: list[str], index: RecordIndex | None
) -> None:
    assert with_index(*pairs).index == index


@pytest.mark.parametrize(
    ("pairs", "says"),
    [
        ([GLOBAL, "hoodie.bucket.index.num.buckets = 4"], "num.buckets, at .*has no buckets"),
        ([GLOBAL, "index = 'SimpleBuckets(4)'"], "index, at .*'SimpleBuckets.4.', and hoodie.index.type"),
        ([PARTITIONS, "index = 'RecordIndex()'"], "and index.type, at"),
        (["hoodie.index.type = 'BUCKET'", "index = 'RecordIndex()'"], "and hoodie.index.type, at"),
        (
            ["hoodie.metadata.global.record.level.index.enable = true"],
            r"hoodie.index.type = 'GLOBAL_RECORD_LEVEL_INDEX'.*CALL metadata.build\(record_index => true\)",
        ),
        (
            [GLOBAL, "hoodie.metadata.record.level.index.enable = true"],
            r"hoodie.index.type = 'RECORD_LEVEL_INDEX'.*per_partition => true",
        ),
        ([GLOBAL, "hoodie.metadata.global.record.level.index.enable = false"], "is 'false', and"),
        ([GLOBAL, "hoodie.metadata.enable = false"], "is 'false', and"),
        (
            [PARTITIONS, "hoodie.record.index.update.partition.path = false"],
            "goes with an index of the whole table",
        ),
        (["hoodie.record.index.update.partition.path = true"], "says what becomes of rows in an index"),
    ],
)
def test_what_is_said_of_a_record_level_index_must_agree(pairs: list[str], says: str) -> None:
    with pytest.raises(ConfigError, match=f"(?s){says}"):
        with_index(*pairs)
