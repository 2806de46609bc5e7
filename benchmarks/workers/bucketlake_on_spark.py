"""bucketlake on Spark 4.1, through `Table.read`, `Table.bulk_insert` and `Table.upsert`."""

from __future__ import annotations

from typing import Any, ClassVar

from pyspark.sql import DataFrame
from pyspark.sql.streaming import DataStreamWriter

from benchmarks.tables import SHAPE
from benchmarks.workers.pipe import serve
from benchmarks.workers.spark import COLUMNS, SparkWorker
from bucketlake import SPARK_SETTINGS, Table, create_table
from bucketlake.streaming.batch_writer import BatchWriter


class BucketlakeOnSpark(SparkWorker):
    settings: ClassVar = SPARK_SETTINGS
    shape: ClassVar[dict[str, Any]] = SHAPE
    told: ClassVar[dict[str, Any]] = {"buckets": 4}
    """What the tables that Hudi wrote do not say."""
    is_pipelined: ClassVar = False
    _writer: BatchWriter | None = None

    def frame(self, table: str, columns: list[str]) -> DataFrame:
        return Table.open(table).read(self.session, columns=columns)

    def frame_of_key(self, table: str, order_id: str, dt: str | None) -> DataFrame:
        filters = [("order_id", "=", order_id)] + ([] if dt is None else [("dt", "=", dt)])
        return Table.open(table, **self.told).read(self.session, columns=COLUMNS, filters=filters)

    def rows(self, path: str) -> DataFrame:
        return self.session.read.parquet(path)

    def load(self, table: str, rows: str, table_type: str) -> None:
        frame = self.rows(rows)
        made = create_table(table, frame, table_type=table_type, **self.shape, spark=self.session)
        made.bulk_insert(frame)

    def upsert(self, table: str, rows: str, table_type: str) -> None:
        Table.open(table).upsert(self.rows(rows))

    def sink(self, frame: DataFrame, table: str, checkpoint: str) -> DataStreamWriter:
        self._writer = Table.open(table).batch_writer(checkpoint=checkpoint, pipelined=self.is_pipelined)
        return frame.writeStream.foreachBatch(self._writer)

    def end_stream(self) -> None:
        assert self._writer is not None
        self._writer.join()

    def compact(self, table: str) -> None:
        Table.open(table).compact(spark=self.session)

    def rescale(self, table: str) -> None:
        Table.open(table).buckets.overwrite("2026-06-18,8", spark=self.session)

    def clean(self, table: str) -> None:
        Table.open(table).clean(spark=self.session, retain_versions=1)


if __name__ == "__main__":
    serve(BucketlakeOnSpark())
