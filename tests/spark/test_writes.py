"""A PySpark user writes, and every reader finds exactly those rows: on the ordinary session, and on an object store."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from servers.s3 import S3Server
from spark.orders import Place
from spark.write_scenarios import SCENARIOS, TABLE_TYPES, Scenario

pytestmark = [pytest.mark.spark, pytest.mark.shows("S1", "S2", "S3", "S5", "X3")]

every_scenario = pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)


@every_scenario
@pytest.mark.parametrize("table_type", TABLE_TYPES)
def test_a_session_in_this_process_writes(
    scenario: Scenario, table_type: str, spark: SparkSession, tmp_path: Path
) -> None:
    scenario(Place(spark, str(tmp_path)), table_type)


@pytest.mark.s3
@every_scenario
@pytest.mark.parametrize("table_type", TABLE_TYPES)
def test_a_session_writes_to_an_object_store(
    scenario: Scenario, table_type: str, spark: SparkSession, s3_server: S3Server
) -> None:
    scenario(Place(spark, f"s3://{s3_server.bucket}/writes", s3_server.options), table_type)
