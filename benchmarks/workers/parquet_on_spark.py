"""The floor of a scan on Spark: its own Parquet reader on the base files, no table format around them."""

from __future__ import annotations

from pyspark.sql import DataFrame

from benchmarks.tables import base_files
from benchmarks.workers.pipe import serve
from benchmarks.workers.spark import COLUMNS, SparkWorker


class ParquetOnSpark(SparkWorker):
    def frame(self, table: str, columns: list[str]) -> DataFrame:
        return self.session.read.parquet(*base_files(table)).select(*columns)

    def frame_of_key(self, table: str, order_id: str, dt: str | None) -> DataFrame:
        files = base_files(table, dt or "*")
        return self.session.read.parquet(*files).select(*COLUMNS).filter(f"order_id = '{order_id}'")


if __name__ == "__main__":
    serve(ParquetOnSpark())
