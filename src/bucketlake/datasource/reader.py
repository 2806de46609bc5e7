"""`spark.read.format("bucketlake")`: how a Python Data Source reads Hudi tables.

The Data Source API hands filters down but not the wanted columns, so every
column is read unless `columns` says otherwise; `Table.read` prunes both.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa
from pyspark.sql import datasource as spark_source
from pyspark.sql.datasource import DataSourceReader, InputPartition

from bucketlake.datasource.options import SourceOptions
from bucketlake.errors import FilterError
from bucketlake.read import Filter, Op, ReadPlan, pack_slices, parse_filters, read_slice
from bucketlake.spark import settle_worker
from bucketlake.table import Table

PARTITION_BYTES = 32 * 1024 * 1024


class Reader(DataSourceReader):
    def __init__(self, options: SourceOptions) -> None:
        self.options = options
        self.filters: tuple[Filter, ...] = ()

    def partitions(self) -> list[InputPartition]:
        plan = self._plan()
        return [InputPartition((pack, plan.context)) for pack in pack_slices(plan.slices, PARTITION_BYTES)]

    def _plan(self) -> ReadPlan:
        table = Table.open(self.options.path, **self.options.table)
        return table.plan(filters=self.filters, **self.options.query)

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
