"""A person who watches a long write sees it move; and no bar is worth a failed write."""

from __future__ import annotations

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from bucketlake.spark.progress import watched
from spark.progress_cases import a_bar_counts_tasks, a_bar_that_breaks_does_not_break_the_work, run_slow_tasks

pytestmark = pytest.mark.spark


def test_a_bar_counts_tasks(spark: SparkSession) -> None:
    a_bar_counts_tasks(spark)


def test_a_bar_that_breaks_does_not_break_the_work(spark: SparkSession) -> None:
    a_bar_that_breaks_does_not_break_the_work(spark)


def test_jobs_stay_in_the_group_that_their_caller_cancels_them_by(spark: SparkSession) -> None:
    context = spark.sparkContext
    context.setLocalProperty("spark.jobGroup.id", "callers")
    try:
        before = context.statusTracker().getJobIdsForGroup("callers")
        with watched(spark, "test", show=True):
            run_slow_tasks(spark)
        assert len(context.statusTracker().getJobIdsForGroup("callers")) > len(before)
        assert context.getLocalProperty("spark.jobGroup.id") == "callers"
    finally:
        context.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type] # None removes it


def test_an_error_of_the_work_passes_through_the_bar(spark: SparkSession) -> None:
    with pytest.raises(PySparkException), watched(spark, "test", show=True):
        spark.sql("select raise_error('of the work')").collect()
    assert spark.sparkContext.getLocalProperty("spark.jobGroup.id") is None
