"""bucketlake on Spark 4.1, through `spark.read.format("bucketlake")`.

Spark does not tell a Python data source which columns a query wants, so every column crosses to Spark.
"""

from __future__ import annotations

from typing import ClassVar

from pyspark.sql import DataFrame

from benchmarks.workers.pipe import serve
from benchmarks.workers.spark import COLUMNS, SparkWorker
from bucketlake import SPARK_SETTINGS


class BucketlakeSource(SparkWorker):
    settings: ClassVar = SPARK_SETTINGS

    def frame(self, table: str, columns: list[str]) -> DataFrame:
        return self.session.read.format("bucketlake").load(table).select(*columns)

    def frame_of_key(self, table: str, order_id: str, dt: str | None) -> DataFrame:
        frame = self.frame(table, COLUMNS).filter(f"order_id = '{order_id}'")
        return frame if dt is None else frame.filter(f"dt = '{dt}'")


if __name__ == "__main__":
    serve(BucketlakeSource())
