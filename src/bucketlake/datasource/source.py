"""`format("bucketlake")`: the Python Data Source that Spark finds by its name."""

from __future__ import annotations

import sys

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceWriter
from pyspark.sql.types import StructType

from bucketlake.datasource.options import SinkOptions, SourceOptions
from bucketlake.datasource.reader import PushingReader, Reader
from bucketlake.datasource.writer import LogWriter
from bucketlake.spark import ddl
from bucketlake.table import Table


class BucketlakeSource(DataSource):
    """A Hudi table, read and written without Hudi."""

    @classmethod
    def name(cls) -> str:
        return "bucketlake"

    def schema(self) -> str:
        options = SourceOptions.parse(self.options)
        return ddl(Table.open(options.path, **options.table).query(**options.query).schema)

    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002 - Spark hands back what `schema` said
        options = SourceOptions.parse(self.options)
        return (PushingReader if _filters_are_pushed() else Reader)(options)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        return LogWriter.begin(SinkOptions.parse(self.options), schema, overwrite=overwrite)


def _filters_are_pushed() -> bool:
    """Say whether Spark asks for pushed filters.

    With `spark.sql.python.filterPushdown.enabled` off, Spark refuses a reader that has `pushFilters`, and it tells
    nobody about the setting: but it plans in another worker module when it is on.
    """
    module = "pyspark.sql.worker.data_source_pushdown_filters"
    main = sys.modules["__main__"].__spec__
    return module in sys.modules or (main is not None and main.name == module)
