"""`spark.read.format("bucketlake")`: how a Python Data Source reads Hudi tables.

The Data Source API hands filters down but not the columns that a query wants:
up to Spark 4.1 its scans of Python sources do not take part in the pruning of
columns. So every column of the frame is read, whatever is selected from it,
unless the caller says which: the option `columns`, or `schema`, with fewer
columns than the table has.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa
from pyspark.sql import datasource as spark_source
from pyspark.sql.datasource import DataSourceReader, InputPartition

from bucketlake.datasource.options import SourceOptions
from bucketlake.errors import FilterError, SchemaError
from bucketlake.read import Filter, Op, ReadPlan, pack_slices, parse_filters, read_slice
from bucketlake.spark import ddl, settle_worker
from bucketlake.table import Table

PARTITION_BYTES = 32 * 1024 * 1024


class Reader(DataSourceReader):
    def __init__(self, options: SourceOptions, schema: pa.Schema) -> None:
        self.options = options
        self.schema = schema
        """What the frame has: the columns that are read, and no others."""
        self.filters: tuple[Filter, ...] = ()

    def partitions(self) -> list[InputPartition]:
        plan = self._plan()
        return [InputPartition((pack, plan.context)) for pack in pack_slices(plan.slices, PARTITION_BYTES)]

    def _plan(self) -> ReadPlan:
        table = Table.open(self.options.path, **self.options.table)
        plan = table.plan(filters=self.filters, **{**self.options.query, "columns": self.schema.names})
        found, wanted = plan.context.schema, self.schema
        for one in range(len(wanted)):
            theirs, ours = (ddl(pa.schema([schema.field(one)])) for schema in (wanted, found))
            if theirs != ours:
                raise SchemaError(
                    f"the schema that was given says {theirs}, and in the table it is {ours}. Give it the table's "
                    f"type, and cast the column of the frame."
                )
        return plan

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        if partition is None:  # how Spark says that the plan is empty
            return
        settle_worker()
        slices, context = partition.value
        for file_slice in slices:
            yield from read_slice(file_slice, context)


class PushingReader(Reader):
    def pushFilters(self, filters: list[spark_source.Filter]) -> Iterable[spark_source.Filter]:  # noqa: N802 - Spark's name
        """Take the filters that prune and mean here what they mean in Spark; the rest goes back."""
        query = Table.open(self.options.path, **self.options.table).query(**self.options.query)
        taken: list[Filter] = []
        left: list[spark_source.Filter] = []
        for condition in filters:
            ours = translate(condition)
            try:
                if ours is None or not _means_the_same(query.table_schema.field(ours.column).type):
                    raise FilterError("left to Spark")
                taken += parse_filters([ours], query.table_schema)
            except (FilterError, KeyError):
                left.append(condition)
        self.filters = tuple(taken)
        return left


def _means_the_same(kind: pa.DataType) -> bool:
    """Filters on other types cannot prune, and arrive in shapes that lose precision or time zone."""
    return bool(pa.types.is_string(kind) or pa.types.is_integer(kind) or pa.types.is_boolean(kind))


_COMPARISONS: dict[type, Op] = {
    spark_source.EqualTo: Op.EQ,
    spark_source.EqualNullSafe: Op.EQ,
    spark_source.LessThan: Op.LT,
    spark_source.LessThanOrEqual: Op.LE,
    spark_source.GreaterThan: Op.GT,
    spark_source.GreaterThanOrEqual: Op.GE,
    spark_source.StringStartsWith: Op.STARTS_WITH,
}
_NEGATED = {Op.EQ: Op.NE, Op.IN: Op.NOT_IN, Op.IS_NULL: Op.IS_NOT_NULL, Op.IS_NOT_NULL: Op.IS_NULL}


def translate(condition: spark_source.Filter) -> Filter | None:
    """Say a Spark filter in our words, or None if it has none there."""
    if isinstance(condition, spark_source.Not):
        inner = translate(condition.child)
        if (
            inner is None
            or inner.op not in _NEGATED
            or isinstance(condition.child, spark_source.EqualNullSafe)
        ):
            return None
        if inner.op is Op.IN and None in inner.value:
            return None
        return Filter(inner.column, _NEGATED[inner.op], inner.value)
    path: tuple[str, ...] = getattr(condition, "attribute", ())
    if len(path) != 1:
        return None
    match condition:
        case spark_source.IsNull():
            return Filter(path[0], Op.IS_NULL)
        case spark_source.IsNotNull():
            return Filter(path[0], Op.IS_NOT_NULL)
        case spark_source.In(value=values):
            return Filter(path[0], Op.IN, tuple(values))
    value = getattr(condition, "value", None)
    if type(condition) in _COMPARISONS and value is not None:
        return Filter(path[0], _COMPARISONS[type(condition)], value)
    return None
