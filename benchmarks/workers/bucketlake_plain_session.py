"""bucketlake in a Spark session that has none of `SPARK_SETTINGS`."""

from __future__ import annotations

from typing import ClassVar

from benchmarks.workers.bucketlake_on_spark import BucketlakeOnSpark
from benchmarks.workers.pipe import serve


class BucketlakePlainSession(BucketlakeOnSpark):
    settings: ClassVar = {}


if __name__ == "__main__":
    serve(BucketlakePlainSession())
