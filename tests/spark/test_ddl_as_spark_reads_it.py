"""Spark's own parser is the judge of ours."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from bucketlake.spark import arrow_schema, parse_ddl

pytestmark = pytest.mark.spark


@pytest.mark.parametrize(
    "text",
    [
        "id STRING, amount DECIMAL(10,2), tags ARRAY<STRING>",
        "a BOOLEAN, b TINYINT, c BYTE, d SMALLINT, e SHORT, f INT, g INTEGER, h BIGINT, i LONG",
        "a FLOAT, b REAL, c DOUBLE, d DECIMAL, e DEC(5), f NUMERIC(38,18), g BINARY, h DATE",
        "a TIMESTAMP, b TIMESTAMP_LTZ, c TIMESTAMP_NTZ",
        "`order id` INT NOT NULL COMMENT 'the key', `a``b`: STRING, date DATE",
        "m MAP<STRING, ARRAY<STRUCT<x: INT, y: MAP<STRING, BIGINT>>>>",
        "s STRUCT<`a b`: INT NOT NULL, c STRING COMMENT 'it is', d STRUCT<e: DOUBLE>>",
    ],
)
def test_columns_mean_to_us_what_they_mean_to_spark(spark: SparkSession, text: str) -> None:
    assert parse_ddl(text) == arrow_schema(StructType.fromDDL(text).jsonValue())
