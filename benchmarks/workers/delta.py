"""Delta Lake on Spark 4.1, by MERGE on the key of the whole table, with deletion vectors."""

from __future__ import annotations

from typing import ClassVar

from pyspark.sql import DataFrame
from pyspark.sql.streaming import DataStreamWriter

from benchmarks.workers.pipe import serve
from benchmarks.workers.spark import COLUMNS, SparkWorker


class Delta(SparkWorker):
    settings: ClassVar = {
        "spark.jars.packages": "io.delta:delta-spark_4.1_2.13:4.4.0",
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.databricks.delta.snapshotPartitions": "4",  # 50 by default: many tiny tasks
    }

    def load(self, table: str, rows: str, table_type: str) -> None:  # it has one type
        self.session.sql(
            f"CREATE TABLE delta.`{table}` (order_id STRING, customer_id BIGINT, status STRING, amount DOUBLE, "
            "quantity INT, sku STRING, note STRING, updated_at BIGINT, dt STRING) USING delta PARTITIONED BY (dt) "
            "TBLPROPERTIES ('delta.enableDeletionVectors' = 'true', 'delta.autoOptimize.optimizeWrite' = 'true')"
        )
        frame = self.session.read.parquet(rows).select(*COLUMNS)
        frame.write.format("delta").mode("append").save(table)

    def upsert(self, table: str, rows: str, table_type: str) -> None:
        self._merge(table, self.session.read.parquet(rows))

    def sink(self, frame: DataFrame, table: str, checkpoint: str) -> DataStreamWriter:
        return frame.writeStream.foreachBatch(lambda batch, _: self._merge(table, batch))

    def _merge(self, table: str, changes: DataFrame) -> None:
        changes.createOrReplaceTempView("changes")
        changes.sparkSession.sql(
            f"MERGE INTO delta.`{table}` t USING changes s ON t.order_id = s.order_id "
            "WHEN MATCHED AND s.updated_at >= t.updated_at THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
        ).collect()

    def frame(self, table: str, columns: list[str]) -> DataFrame:
        return self.session.read.format("delta").load(table).select(*columns)

    def frame_of_key(self, table: str, order_id: str, dt: str | None) -> DataFrame:
        frame = self.frame(table, COLUMNS).filter(f"order_id = '{order_id}'")
        return frame if dt is None else frame.filter(f"dt = '{dt}'")


if __name__ == "__main__":
    serve(Delta())
