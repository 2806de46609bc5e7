"""bucketlake with the record-level index, of which it keeps on a local disk what it has read."""

from __future__ import annotations

import os

from benchmarks.workers.bucketlake_record import BucketlakeRecord
from benchmarks.workers.pipe import serve


class BucketlakeKept(BucketlakeRecord):
    def start(self, driver_memory: str, folder: str) -> dict[str, str]:
        # Before there is a JVM, so that its Python workers know it too.
        os.environ["BUCKETLAKE_INDEX_CACHE"] = "2GB"
        os.environ["BUCKETLAKE_INDEX_CACHE_FOLDER"] = f"{folder}/kept"
        return super().start(driver_memory, folder)


if __name__ == "__main__":
    serve(BucketlakeKept())
