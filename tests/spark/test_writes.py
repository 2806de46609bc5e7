"""A PySpark user writes, and every reader finds exactly those rows: on the ordinary session, and on an object store."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from servers.s3 import S3Server
from spark.orders import Place
from spark.write_scenarios import SCENARIO_CASES, every_kind_of_write, rows_that_cannot_be_written

pytestmark = [pytest.mark.spark, pytest.mark.shows("S1", "S2", "S3", "S5", "X3")]


@pytest.mark.parametrize("case", SCENARIO_CASES)
def test_a_session_in_this_process_writes(case: str, spark: SparkSession, tmp_path: Path) -> None:
    SCENARIO_CASES[case](Place(spark, str(tmp_path)))


@pytest.mark.s3
@pytest.mark.parametrize("table_type", ["COPY_ON_WRITE", "MERGE_ON_READ"])
def test_a_session_writes_to_an_object_store(
    table_type: str, spark: SparkSession, s3_server: S3Server
) -> None:
    every_kind_of_write(Place(spark, f"s3://{s3_server.bucket}/writes", s3_server.options), table_type)


@pytest.mark.parametrize("table_type", ["COPY_ON_WRITE", "MERGE_ON_READ"])
@pytest.mark.parametrize("scenario", [every_kind_of_write, rows_that_cannot_be_written])
def test_a_session_writes_files_that_it_does_not_read(
    scenario: Callable[[Place, str], None], table_type: str, spark: SparkSession, tmp_path: Path
) -> None:
    scenario(Place(spark, str(tmp_path), has_files=True), table_type)


@pytest.mark.s3
def test_files_of_an_object_store_are_written(spark: SparkSession, s3_server: S3Server) -> None:
    root = f"s3://{s3_server.bucket}/files"
    every_kind_of_write(Place(spark, root, s3_server.options, has_files=True), "MERGE_ON_READ")
