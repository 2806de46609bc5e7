"""bucketlake on Spark 4.1, given frames that Spark has to evaluate: its rows become rows, and columns again."""

from __future__ import annotations

from pyspark.sql import DataFrame

from benchmarks.workers.bucketlake_on_spark import BucketlakeOnSpark
from benchmarks.workers.pipe import serve


class BucketlakeEvaluated(BucketlakeOnSpark):
    def rows(self, path: str) -> DataFrame:
        """Return all rows, by a condition that every one of them meets."""
        return super().rows(path).filter("quantity > 0")


if __name__ == "__main__":
    serve(BucketlakeEvaluated())
