"""A table on an object store reads like the same table on a disk, by every road."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from bucketlake import NotATableError, Table
from bucketlake.storage import open_store
from judges.rows import assert_same_rows, exact_rows
from servers.s3 import S3Server

pytestmark = [pytest.mark.s3, pytest.mark.spark, pytest.mark.shows("S5")]

Golden = Callable[[str], Path]


def uploaded(folder: Path, server: S3Server) -> str:
    uri = f"s3://{server.bucket}/{folder.name}"
    store = open_store(uri, server.options)
    for file in sorted(path for path in folder.rglob("*") if path.is_file()):
        store.put(file.relative_to(folder).as_posix(), file.read_bytes())
    return uri


@pytest.mark.parametrize(
    "name", ["cow_composite_keys", "mor_simple_bucket_avro", "mor_all_types_parquet_log", "svc_mor"]
)
def test_a_table_on_s3_reads_like_one_on_disk(
    name: str, golden_table: Golden, s3_server: S3Server, spark: SparkSession
) -> None:
    on_disk = exact_rows(Table.open(golden_table(name)).to_arrow())
    uri = uploaded(golden_table(name), s3_server)
    table = Table.open(uri, storage_options=s3_server.options)
    assert_same_rows(exact_rows(table.to_arrow()), on_disk)
    assert_same_rows(exact_rows(table.read(spark).toArrow()), on_disk)
    options = {f"storage.{key}": value for key, value in s3_server.options.items()}
    by_name = spark.read.format("bucketlake").options(**options).load(uri)
    assert_same_rows(exact_rows(by_name.toArrow()), on_disk)


def test_a_key_is_fetched_from_s3(golden_table: Golden, s3_server: S3Server) -> None:
    uri = uploaded(golden_table("mor_simple_bucket_parquet_log"), s3_server)
    table = Table.open(uri, storage_options=s3_server.options, buckets=4)
    assert table.get(1).column("name").to_pylist() == ["n1-u"]


def test_a_prefix_without_a_table_is_not_a_table(s3_server: S3Server) -> None:
    with pytest.raises(NotATableError):
        Table.open(f"s3://{s3_server.bucket}/nothing-here", storage_options=s3_server.options)
