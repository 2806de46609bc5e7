"""bucketlake on Spark 4.1, with consistent hashing."""

from __future__ import annotations

from typing import ClassVar

from benchmarks.tables import SHAPE
from benchmarks.workers.bucketlake_on_spark import BucketlakeOnSpark
from benchmarks.workers.pipe import serve


class BucketlakeRing(BucketlakeOnSpark):
    shape: ClassVar = {**SHAPE, "engine": "consistent_hashing"}
    told: ClassVar = {}


if __name__ == "__main__":
    serve(BucketlakeRing())
