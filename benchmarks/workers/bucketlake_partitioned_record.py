"""bucketlake on Spark 4.1, with a record-level index of each partition."""

from __future__ import annotations

from typing import ClassVar

from benchmarks.workers.bucketlake_record import BucketlakeRecord
from benchmarks.workers.pipe import serve
from bucketlake import RecordIndex


class BucketlakePartitionedRecord(BucketlakeRecord):
    shape: ClassVar = {**BucketlakeRecord.shape, "index": RecordIndex(per_partition=True)}


if __name__ == "__main__":
    serve(BucketlakePartitionedRecord())
