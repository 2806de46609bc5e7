"""bucketlake on Spark 4.1, with dynamic buckets."""

from __future__ import annotations

from typing import ClassVar

from benchmarks.tables import BUCKETS
from benchmarks.workers.bucketlake_record import BucketlakeRecord
from benchmarks.workers.pipe import serve
from bucketlake import DynamicBuckets


class BucketlakeDynamic(BucketlakeRecord):
    shape: ClassVar = {**BucketlakeRecord.shape, "index": DynamicBuckets(assigners=BUCKETS)}


if __name__ == "__main__":
    serve(BucketlakeDynamic())
