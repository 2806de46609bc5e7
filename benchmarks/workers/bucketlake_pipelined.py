"""bucketlake with the record-level index, and batches of a stream that end when their commit is decided."""

from __future__ import annotations

from typing import ClassVar

from benchmarks.workers.bucketlake_record import BucketlakeRecord
from benchmarks.workers.pipe import serve
from bucketlake import Table


class BucketlakePipelined(BucketlakeRecord):
    is_pipelined: ClassVar = True

    def load(self, table: str, rows: str, table_type: str) -> None:
        super().load(table, rows, table_type)
        Table.open(table).alter(hudi_writes=False)


if __name__ == "__main__":
    serve(BucketlakePipelined())
