"""`format("bucketlake")`: the Python Data Source that Spark finds by its name."""

from __future__ import annotations

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from bucketlake.datasource.options import SinkOptions, SourceOptions, StreamOptions
from bucketlake.datasource.reader import Reader
from bucketlake.datasource.stream import StreamReader, stream_schema
from bucketlake.datasource.writer import LogWriter
from bucketlake.errors import ConfigError
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

    has_every_column = False
    """Whether the frame has the columns that the table had when it was made. Spark keeps what `schema` says of it."""

    def schema(self) -> str:
        if StreamOptions.are_meant(self.options):
            stream = StreamOptions.parse(self.options)
            self.has_every_column = stream.columns is None
            return ddl(stream_schema(stream))
        self.has_every_column = "columns" not in self.options
        options = SourceOptions.parse(self.options)
        return ddl(Table.open(options.path, **options.table).query(**options.query).schema)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return what reads the columns that `schema` said, or those of a schema that the caller gave instead."""
        options, columns = SourceOptions.parse(self.options), arrow_schema(schema.jsonValue())
        return Reader(options, columns)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """Return what reads the table as a stream."""
        options, columns = StreamOptions.parse(self.options), arrow_schema(schema.jsonValue())
        return StreamReader(options, columns, has_every_column=self.has_every_column)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: ARG002, N802
        """Refuse: rows of a batch cannot be brought to their buckets here."""
        raise ConfigError(
            'writeStream.format("bucketlake") cannot upsert: Spark does not let a Python data source bring the rows of '
            "a key together. Use table.upsert_stream(frame, checkpoint=...), which writes every batch exactly once."
        )

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        return LogWriter.begin(SinkOptions.parse(self.options), schema, overwrite=overwrite)
