"""On Spark, too, a file that is not what its commit says is an error that names it, by every way in.

Also for a frame that was planned before, in a session that is told to pass over lost files.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import bucketlake
from bucketlake import BucketlakeError
from stand_ins.orders_table import orders, written_table

pytestmark = pytest.mark.spark

IGNORING = ["spark.sql.files.ignoreMissingFiles", "spark.sql.files.ignoreCorruptFiles"]


@pytest.mark.shows("X3")
@pytest.mark.parametrize("table_type", ["COPY_ON_WRITE", "MERGE_ON_READ"])
def test_a_lost_file_is_an_error_by_every_way_in(
    table_type: str, spark: SparkSession, tmp_path: Path
) -> None:
    table = written_table(tmp_path, table_type=table_type)
    part = table.plan().slices[0]
    lost = (part.log_files or [part.base_file])[-1]
    assert lost is not None
    planned = table.read(spark)
    (tmp_path / lost.path).unlink()
    ways = {
        "read": lambda: table.read(spark),
        "sql": lambda: bucketlake.sql(spark, f"SELECT * FROM bucketlake.`{tmp_path}`"),
        "source": lambda: spark.read.format("bucketlake").load(str(tmp_path)).collect(),
        "upsert": lambda: table.upsert(spark.createDataFrame(orders(range(4), "x", 50).to_pandas())),
    }
    for way, run in ways.items():
        with pytest.raises((BucketlakeError, PySparkException)) as error:
            run()
        assert lost.path in str(error.value), way
    for name in IGNORING:
        spark.conf.set(name, "true")
    try:
        with pytest.raises((PySparkException, Py4JJavaError), match=lost.path.rpartition("/")[2]):
            planned.collect()
    finally:
        for name in IGNORING:
            spark.conf.unset(name)
