"""bucketlake on Spark 4.1, with the record-level index of the whole table."""

from __future__ import annotations

from typing import ClassVar

from benchmarks.tables import SHAPE
from benchmarks.workers.bucketlake_on_spark import BucketlakeOnSpark
from benchmarks.workers.pipe import serve
from bucketlake import RecordIndex


class BucketlakeRecord(BucketlakeOnSpark):
    shape: ClassVar = {**SHAPE, "buckets": None, "index": RecordIndex()}
    told: ClassVar = {}


if __name__ == "__main__":
    serve(BucketlakeRecord())
