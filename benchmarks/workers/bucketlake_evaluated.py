"""bucketlake on Spark 4.1, given Parquet files and not frames of them."""

from __future__ import annotations

from benchmarks.workers.bucketlake_on_spark import BucketlakeOnSpark
from benchmarks.workers.pipe import serve
from bucketlake import Table, create_table, parquet_files


class BucketlakeFiles(BucketlakeOnSpark):
    def load(self, table: str, rows: str, table_type: str) -> None:
        files = parquet_files(self.session, rows)
        create_table(self.session, table, files, table_type=table_type, **self.shape).bulk_insert(files)

    def upsert(self, table: str, rows: str, table_type: str) -> None:
        Table.open(table).upsert(parquet_files(self.session, rows))


if __name__ == "__main__":
    serve(BucketlakeFiles())
