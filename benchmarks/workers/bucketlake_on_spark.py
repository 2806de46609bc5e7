"""bucketlake on Spark 4.1, through `Table.read`."""

from __future__ import annotations

from typing import ClassVar

from pyspark.sql import DataFrame

from benchmarks.workers.pipe import serve
from benchmarks.workers.spark import COLUMNS, SparkWorker
from bucketlake import Table


class BucketlakeOnSpark(SparkWorker):
    settings: ClassVar = {"spark.sql.python.filterPushdown.enabled": "true"}

    def frame(self, table: str, columns: list[str]) -> DataFrame:
        return Table.open(table, buckets=4).read(self.session, columns=columns)

    def frame_of_key(self, table: str, order_id: str, dt: str | None) -> DataFrame:
        filters = [("order_id", "=", order_id)] + ([] if dt is None else [("dt", "=", dt)])
        return Table.open(table, buckets=4).read(self.session, columns=COLUMNS, filters=filters)


if __name__ == "__main__":
    serve(BucketlakeOnSpark())
