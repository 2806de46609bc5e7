"""Apache Paimon 0.9 on Spark 3.5, fixed buckets. Runs under Hudi's interpreter: it has that Spark."""

from __future__ import annotations

from typing import ClassVar

from pyspark.sql import DataFrame

from benchmarks.workers.pipe import serve
from benchmarks.workers.spark import COLUMNS, SparkWorker


class Paimon(SparkWorker):
    bucket: ClassVar = "4"
    settings: ClassVar = {
        "spark.jars.packages": "org.apache.paimon:paimon-spark-3.5:0.9.0",
        "spark.sql.extensions": "org.apache.paimon.spark.extensions.PaimonSparkSessionExtensions",
    }

    def load(self, table: str, rows: str, table_type: str) -> None:  # it merges on read
        name = self._name(table)
        self.session.sql(f"CREATE DATABASE IF NOT EXISTS {name.rpartition('.')[0]}")
        self.session.sql(
            f"CREATE TABLE {name} (order_id STRING, customer_id BIGINT, status STRING, amount DOUBLE, quantity INT, "
            "sku STRING, note STRING, updated_at BIGINT, dt STRING) PARTITIONED BY (dt) TBLPROPERTIES ("
            f"'primary-key' = 'order_id,dt', 'bucket' = '{self.bucket}', 'sequence.field' = 'updated_at', "
            "'file.format' = 'parquet', 'file.compression' = 'zstd')"
        )
        self.upsert(table, rows, table_type)

    def upsert(self, table: str, rows: str, table_type: str) -> None:
        self.session.read.parquet(rows).createOrReplaceTempView("changes")
        self.session.sql(
            f"INSERT INTO {self._name(table)} SELECT {', '.join(COLUMNS)} FROM changes"
        ).collect()

    def compact(self, table: str) -> None:
        catalog, place = self._name(table).split(".", 1)
        self.session.sql(f"CALL {catalog}.sys.compact(table => '{place}')").collect()

    def frame(self, table: str, columns: list[str]) -> DataFrame:
        return self.session.table(self._name(table)).select(*columns)

    def frame_of_key(self, table: str, order_id: str, dt: str | None) -> DataFrame:
        frame = self.frame(table, COLUMNS).filter(f"order_id = '{order_id}'")
        return frame if dt is None else frame.filter(f"dt = '{dt}'")

    def _name(self, table: str) -> str:
        """Return the name of a table, in a catalog whose warehouse is its folder."""
        return f"{self.catalog_of(table, 'org.apache.paimon.spark.SparkCatalog')}.db.orders"


if __name__ == "__main__":
    serve(Paimon())
