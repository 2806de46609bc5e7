"""bucketlake on Spark 4.1, with the record-level index of the whole table."""

from __future__ import annotations

from typing import Any, ClassVar

from benchmarks.tables import SHAPE
from benchmarks.workers.bucketlake_on_spark import BucketlakeOnSpark
from benchmarks.workers.pipe import serve
from bucketlake import RecordIndex, Table


class BucketlakeRecord(BucketlakeOnSpark):
    shape: ClassVar = {**SHAPE, "buckets": None, "index": RecordIndex()}
    told: ClassVar = {}

    def create_index(self, table: str, column: str) -> None:
        Table.open(table).create_index(f"by_{column}", on=column, spark=self.session)

    def by_value(self, table: str, column: str, value: str) -> list[Any]:
        return self.timed_rows(
            lambda: Table.open(table).read(
                self.session, columns=["order_id", "amount"], filters=[(column, "=", value)]
            )
        )


if __name__ == "__main__":
    serve(BucketlakeRecord())
