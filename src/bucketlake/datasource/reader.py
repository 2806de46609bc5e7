"""`spark.read.format("bucketlake")`: how a Python Data Source reads Hudi tables.

Up to Spark 4.1 scans of Python sources do not take part in the pruning of
columns: every column of the frame is read, whatever is selected from it,
unless the caller says which: the option `columns`, or `schema`, with fewer
columns than the table has. Filters Spark would hand down, and none are taken:
it keeps the files that a reader chose for one query, and reads no others in
the next query of the same frame, nor in the other half of a union.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from bucketlake.datasource.options import SourceOptions
from bucketlake.errors import SchemaError
from bucketlake.read import ReadPlan, pack_slices, read_slice
from bucketlake.spark import ddl, settle_worker
from bucketlake.table import Table

PARTITION_BYTES = 32 * 1024 * 1024


class Reader(DataSourceReader):
    def __init__(self, options: SourceOptions, schema: pa.Schema) -> None:
        self.options = options
        self.schema = schema
        """What the frame has: the columns that are read, and no others."""

    def partitions(self) -> list[InputPartition]:
        plan = self._plan()
        return [InputPartition((pack, plan.context)) for pack in pack_slices(plan.slices, PARTITION_BYTES)]

    def _plan(self) -> ReadPlan:
        table = Table.open(self.options.path, **self.options.table)
        plan = table.plan(**{**self.options.query, "columns": self.schema.names})
        check_types(plan.context.schema, self.schema)
        return plan

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        if partition is None:  # how Spark says that the plan is empty
            return
        settle_worker()
        slices, context = partition.value
        for file_slice in slices:
            yield from read_slice(file_slice, context)


def check_types(found: pa.Schema, wanted: pa.Schema) -> None:
    """Refuse types that a frame has and the table has not. `found` has the columns of `wanted`, in their order."""
    for one in range(len(wanted)):
        theirs, ours = (ddl(pa.schema([schema.field(one)])) for schema in (wanted, found))
        if theirs != ours:
            raise SchemaError(
                f"the schema that was given says {theirs}, and in the table it is {ours}. Give it the table's "
                f"type, and cast the column of the frame."
            )
