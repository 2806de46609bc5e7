"""`format("bucketlake")`: the Python Data Source that Spark finds by its name."""

from __future__ import annotations

import sys

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceWriter
from pyspark.sql.types import StructType

from bucketlake.datasource.options import SinkOptions, SourceOptions
from bucketlake.datasource.reader import PushingReader, Reader
from bucketlake.datasource.writer import LogWriter
from bucketlake.spark import arrow_schema, ddl
from bucketlake.table import Table


class BucketlakeSource(DataSource):
    """A Hudi table, read and written without Hudi.

    Filters prune partitions and files. Columns are read as far as the frame has them, for Spark does not tell which of
    them a query wants: name them by the option `columns`, or by a `schema` that leaves the others out.
    """

    @classmethod
    def name(cls) -> str:
        return "bucketlake"

    def schema(self) -> str:
        options = SourceOptions.parse(self.options)
        return ddl(Table.open(options.path, **options.table).query(**options.query).schema)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return what reads the columns that `schema` said, or those of a schema that the caller gave instead."""
        options, columns = SourceOptions.parse(self.options), arrow_schema(schema.jsonValue())
        return (PushingReader if _filters_are_pushed() else Reader)(options, columns)

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
