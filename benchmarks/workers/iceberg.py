"""Apache Iceberg on Spark 4.1, by MERGE on key and partition; merge-on-read with deletion vectors."""

from __future__ import annotations

from typing import ClassVar

from pyspark.sql import DataFrame

from benchmarks.workers.pipe import serve
from benchmarks.workers.spark import COLUMNS, SparkWorker

_MODES = {"MERGE_ON_READ": ("merge-on-read", "3"), "COPY_ON_WRITE": ("copy-on-write", "2")}
"""How it writes, and the version of its format: the third has deletion vectors."""


class Iceberg(SparkWorker):
    settings: ClassVar = {
        "spark.jars.packages": "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0",
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
    }

    def load(self, table: str, rows: str, table_type: str) -> None:
        mode, version = _MODES[table_type]
        self.session.sql(
            f"CREATE TABLE {self._name(table)} (order_id STRING, customer_id BIGINT, status STRING, amount DOUBLE, "
            "quantity INT, sku STRING, note STRING, updated_at BIGINT, dt STRING) USING iceberg PARTITIONED BY (dt) "
            f"TBLPROPERTIES ('format-version' = '{version}', 'write.merge.mode' = '{mode}', "
            "'write.parquet.compression-codec' = 'zstd')"
        )
        self.session.read.parquet(rows).select(*COLUMNS).writeTo(self._name(table)).append()

    def upsert(self, table: str, rows: str, table_type: str) -> None:
        self.session.read.parquet(rows).createOrReplaceTempView("changes")
        self.session.sql(
            f"MERGE INTO {self._name(table)} t USING changes s ON t.order_id = s.order_id AND t.dt = s.dt "
            "WHEN MATCHED AND s.updated_at >= t.updated_at THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
        ).collect()

    def compact(self, table: str) -> None:
        """Write anew what has deletes, and what lies in several small files."""
        catalog, place = self._name(table).split(".", 1)
        self.session.sql(
            f"CALL {catalog}.system.rewrite_data_files(table => '{place}', "
            "options => map('delete-file-threshold', '1', 'min-input-files', '2'))"
        ).collect()

    def frame(self, table: str, columns: list[str]) -> DataFrame:
        return self.session.table(self._name(table)).select(*columns)

    def frame_of_key(self, table: str, order_id: str, dt: str | None) -> DataFrame:
        frame = self.frame(table, COLUMNS).filter(f"order_id = '{order_id}'")
        return frame if dt is None else frame.filter(f"dt = '{dt}'")

    def _name(self, table: str) -> str:
        """Return the name of a table, in a catalog whose warehouse is its folder."""
        return f"{self.catalog_of(table, 'org.apache.iceberg.spark.SparkCatalog', type='hadoop')}.db.orders"


if __name__ == "__main__":
    serve(Iceberg())
