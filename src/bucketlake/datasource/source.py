"""`format("bucketlake")`: the Python Data Source that Spark finds by its name."""

from __future__ import annotations

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceWriter
from pyspark.sql.types import StructType

from bucketlake.datasource.options import SinkOptions, SourceOptions
from bucketlake.datasource.reader import Reader
from bucketlake.datasource.writer import LogWriter
from bucketlake.spark import arrow_schema, ddl
from bucketlake.table import Table


class BucketlakeSource(DataSource):
    """A Hudi table, read and written without Hudi.

    All files are read, and columns as far as the frame has them, for Spark does not tell which of them a query wants:
    name them by the option `columns`, or by a `schema` that leaves the others out. `Table.read` reads less.
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
        return Reader(options, columns)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        return LogWriter.begin(SinkOptions.parse(self.options), schema, overwrite=overwrite)
