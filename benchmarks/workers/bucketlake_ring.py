"""bucketlake on Spark 4.1, with consistent hashing."""

from __future__ import annotations

from typing import ClassVar

from benchmarks.tables import BUCKETS, SHAPE
from benchmarks.workers.bucketlake_on_spark import BucketlakeOnSpark
from benchmarks.workers.pipe import serve
from bucketlake import ConsistentBuckets


class BucketlakeRing(BucketlakeOnSpark):
    shape: ClassVar = {**SHAPE, "buckets": None, "index": ConsistentBuckets(BUCKETS)}
    told: ClassVar = {}


if __name__ == "__main__":
    serve(BucketlakeRing())
