"""Columns typed at a prompt must mean what they mean to Spark, or the table has other types than its owner thinks."""

from __future__ import annotations

import pyarrow as pa
import pytest

from bucketlake.errors import ConfigError
from bucketlake.spark import parse_ddl

UTC = pa.timestamp("us", tz="UTC")


@pytest.mark.parametrize(
    ("text", "name", "kind"),
    [
        ("id STRING", "id", pa.string()),
        ("id string", "id", pa.string()),
        ("`order id` INT", "order id", pa.int32()),
        ("`a``b` INT", "a`b", pa.int32()),
        ("date DATE", "date", pa.date32()),
        ("struct STRUCT<a: INT>", "struct", pa.struct([("a", pa.int32())])),
        ("größe DOUBLE", "größe", pa.float64()),
        ("n:BIGINT", "n", pa.int64()),
        ("n LONG", "n", pa.int64()),
        ("n TINYINT", "n", pa.int8()),
        ("n SMALLINT", "n", pa.int16()),
        ("x REAL", "x", pa.float32()),
        ("b BOOLEAN", "b", pa.bool_()),
        ("b BINARY", "b", pa.binary()),
        ("t TIMESTAMP", "t", UTC),
        ("t TIMESTAMP_LTZ", "t", UTC),
        ("t TIMESTAMP_NTZ", "t", pa.timestamp("us")),
        ("d DECIMAL", "d", pa.decimal128(10, 0)),
        ("d DEC(5)", "d", pa.decimal128(5, 0)),
        ("d NUMERIC( 38 , 18 )", "d", pa.decimal128(38, 18)),
        ("v VARCHAR(20)", "v", pa.string()),
        ("c CHAR(2)", "c", pa.string()),
        (
            "a ARRAY<ARRAY<INT>>",
            "a",
            pa.list_(pa.field("element", pa.list_(pa.field("element", pa.int32())))),
        ),
        ("m MAP<STRING,DECIMAL(3,1)>", "m", pa.map_(pa.string(), pa.decimal128(3, 1))),
        (
            "s STRUCT<`a b`: INT NOT NULL, c STRING COMMENT 'it is'>",
            "s",
            pa.struct([pa.field("a b", pa.int32(), nullable=False), ("c", pa.string())]),
        ),
    ],
)
def test_a_column_has_the_type_its_text_says(text: str, name: str, kind: pa.DataType) -> None:
    assert parse_ddl(text) == pa.schema([(name, kind)])


def test_a_timestamp_is_what_the_session_takes_it_for() -> None:
    found = parse_ddl("t TIMESTAMP, s STRUCT<t: timestamp>, l TIMESTAMP_LTZ", has_zones=False)
    assert found.types == [pa.timestamp("us"), pa.struct([("t", pa.timestamp("us"))]), UTC]


def test_columns_keep_their_order_and_what_may_be_null() -> None:
    found = parse_ddl("""
        id BIGINT NOT NULL COMMENT 'the key',
        note STRING COMMENT "may be missing",
        at TIMESTAMP not null
    """)
    assert found == pa.schema(
        [
            pa.field("id", pa.int64(), nullable=False),
            ("note", pa.string()),
            pa.field("at", UTC, nullable=False),
        ]
    )


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "found the end at position 0, expected a column's name"),
        ("id", "found the end at position 2, expected a type"),
        ("id STRING,", "found the end at position 10"),
        ("id TEXT", "found 'TEXT' at position 3, expected a type: BOOLEAN"),
        ("id STRING amount INT", "found 'amount INT' at position 10, expected the end, or a comma"),
        ("id INT; drop", "found '; drop'"),
        ("a ARRAY<INT", "expected '>'"),
        ("a ARRAY", "expected '<'"),
        ("m MAP<STRING>", "expected ','"),
        ("d DECIMAL(39)", "1 to 38 digits"),
        ("d DECIMAL(2,3)", "1 to 38 digits"),
        ("d DECIMAL(a)", "expected a number"),
        ("d DECIMAL(1,2,3)", "expected ')'"),
        ("n INT NOT", "expected NULL"),
        ("n INT COMMENT 5", "a comment in quotes"),
        ("1.5 INT", "found '.5 INT'"),
    ],
)
def test_text_that_makes_no_sense_is_an_error_with_its_place(text: str, words: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parse_ddl(text)
    assert words in str(refused.value)
