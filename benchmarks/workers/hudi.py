"""Apache Hudi 1.2.0 on its own Spark 3.5. Runs under Hudi's interpreter.

It also makes the tables: a contestant reads better what it wrote itself, and everybody reads the same files.
"""

from __future__ import annotations

from typing import ClassVar

from pyspark.sql import DataFrame
from pyspark.sql.streaming import DataStreamWriter

from benchmarks.workers.pipe import serve
from benchmarks.workers.spark import COLUMNS, SparkWorker

READ_OPTIONS = {
    "hoodie.metadata.enable": "false",  # the tables have none
    # Both are needed for Hudi to prune buckets: a table does not say that it has any.
    "hoodie.index.type": "BUCKET",
    "hoodie.bucket.index.num.buckets": "4",
    "hoodie.bucket.index.hash.field": "order_id",
    "hoodie.enable.data.skipping": "true",
}


WRITE_OPTIONS = {
    "hoodie.table.name": "orders",
    "hoodie.datasource.write.recordkey.field": "order_id",
    "hoodie.datasource.write.partitionpath.field": "dt",
    "hoodie.table.ordering.fields": "updated_at",
    "hoodie.record.merge.mode": "EVENT_TIME_ORDERING",
    "hoodie.index.type": "BUCKET",
    "hoodie.index.bucket.engine": "SIMPLE",
    "hoodie.bucket.index.hash.field": "order_id",
    "hoodie.bucket.index.num.buckets": "4",
    "hoodie.metadata.enable": "false",
    "hoodie.datasource.write.row.writer.enable": "true",  # a bulk insert without Avro
    "hoodie.combine.before.upsert": "false",  # keys are unique inside a batch; it saves Hudi a shuffle
    "hoodie.parquet.compression.codec": "zstd",  # gzip is Hudi's default and nobody's choice
    "hoodie.compact.inline": "false",
    "hoodie.bulkinsert.shuffle.parallelism": "4",
    "hoodie.upsert.shuffle.parallelism": "4",
}
"""For measured writes; the tables that everybody reads have theirs in `tables`."""


class Hudi(SparkWorker):
    read_options: ClassVar = READ_OPTIONS
    write_options: ClassVar = WRITE_OPTIONS
    settings: ClassVar = {
        "spark.jars.packages": "org.apache.hudi:hudi-spark3.5-bundle_2.12:1.2.0",
        "spark.kryo.registrator": "org.apache.spark.HoodieSparkKryoRegistrar",
        "spark.sql.extensions": "org.apache.spark.sql.hudi.HoodieSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.hudi.catalog.HoodieCatalog",
        "spark.driver.extraJavaOptions": "-Duser.timezone=UTC",  # instant times are written in the JVM's zone
    }

    def write(self, path: str, rows: str, options: dict[str, str], operation: str, mode: str) -> None:
        """Write the rows of a Parquet file into the table at `path`."""
        writer = self.session.read.parquet(rows).write.format("hudi").options(**options)
        writer.option("hoodie.datasource.write.operation", operation).mode(mode).save(path)

    def load(self, table: str, rows: str, table_type: str) -> None:
        self.write(table, rows, self._options(table_type), "bulk_insert", "overwrite")

    def upsert(self, table: str, rows: str, table_type: str) -> None:
        self.write(table, rows, self._options(table_type), "upsert", "append")

    def sink(self, frame: DataFrame, table: str, checkpoint: str) -> DataStreamWriter:
        """Hudi's own sink. It compacts logs beside the stream, which is its default."""
        writer = frame.writeStream.format("hudi").options(**self._options("MERGE_ON_READ"))
        return writer.option("hoodie.datasource.write.operation", "upsert").option("path", table)

    def compact(self, table: str) -> None:
        options = self._in_one_text("MERGE_ON_READ") + ",hoodie.compact.inline.max.delta.commits=1"
        self.session.sql(
            f"call run_compaction(op => 'scheduleAndExecute', path => '{table}', options => '{options}')"
        ).collect()

    def clean(self, table: str) -> None:
        options = self._in_one_text("MERGE_ON_READ")
        self._name(table)
        self.session.sql(
            "call run_clean(table => 'named', clean_policy => 'KEEP_LATEST_FILE_VERSIONS', "
            f"file_versions_retained => 1, options => '{options}')"
        ).collect()

    def rescale(self, table: str) -> None:
        options = self._in_one_text("COPY_ON_WRITE")
        self._name(table)
        self.session.sql(
            "call partition_bucket_index_manager(table => 'named', overwrite => '2026-06-18,8', bucket_number => 4, "
            f"dry_run => false, options => '{options}')"
        ).collect()

    def _name(self, table: str) -> None:
        """Some procedures want a name."""
        self.session.sql("drop table if exists named")
        self.session.sql(f"create table named using hudi location '{table}'")

    def _in_one_text(self, table_type: str) -> str:
        return ",".join(f"{key}={value}" for key, value in self._options(table_type).items())

    def frame(self, table: str, columns: list[str]) -> DataFrame:
        return self.session.read.format("hudi").options(**self.read_options).load(table).select(*columns)

    def frame_of_key(self, table: str, order_id: str, dt: str | None) -> DataFrame:
        frame = self.frame(table, COLUMNS).filter(f"order_id = '{order_id}'")
        return frame if dt is None else frame.filter(f"dt = '{dt}'")

    def _options(self, table_type: str) -> dict[str, str]:
        return {**self.write_options, "hoodie.datasource.write.table.type": table_type}


if __name__ == "__main__":
    serve(Hudi())
