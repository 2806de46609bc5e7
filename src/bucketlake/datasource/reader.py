"""`spark.read.format("bucketlake")`: a Python Data Source that reads Hudi tables.

Options: `as_of`, `begin`, `end`, `query` (`snapshot` or `read_optimized`), `columns` (comma-separated),
`meta_columns`, `buckets`, `hash_fields`, `partition_rules`; `storage.<name>` goes to the store.

The Data Source API hands filters down but not the wanted columns, so every
column is read unless `columns` says otherwise; `Table.read` prunes both.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import datasource as spark_source
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from bucketlake.errors import ConfigError, FilterError
from bucketlake.read import Filter, Op, ReadPlan, pack_slices, parse_filters, read_slice
from bucketlake.spark import ddl, settle_worker
from bucketlake.table import Table

PARTITION_BYTES = 32 * 1024 * 1024

OPTIONS = frozenset(
    {
        "path",
        "as_of",
        "begin",
        "end",
        "query",
        "columns",
        "meta_columns",
        "buckets",
        "hash_fields",
        "partition_rules",
    }
)


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """The options of one read, parsed and checked."""

    path: str
    table: Mapping[str, Any]
    """Keyword arguments of `Table.open`."""
    query: Mapping[str, Any]
    """Keyword arguments of `Table.plan`."""

    @classmethod
    def parse(cls, raw: Mapping[str, str]) -> SourceOptions:
        options = {key.lower(): value for key, value in raw.items()}
        unknown = sorted(k for k in options if k not in OPTIONS and not k.startswith("storage."))
        if unknown:
            raise ConfigError(
                f"unknown option {', '.join(map(repr, unknown))}; bucketlake reads with {', '.join(sorted(OPTIONS))} "
                f"and storage.<name>."
            )
        if "path" not in options:
            raise ConfigError('no path: spark.read.format("bucketlake").load("/path/of/the/table").')
        kind = options.get("query", "snapshot")
        if kind not in ("snapshot", "read_optimized"):
            raise ConfigError(f"query is {kind!r}; expected 'snapshot' or 'read_optimized'.")
        return cls(
            path=options["path"],
            table={
                "storage_options": {k[8:]: v for k, v in options.items() if k.startswith("storage.")} or None,
                "buckets": _integer(options, "buckets"),
                "hash_fields": _names(options, "hash_fields"),
                "partition_rules": options.get("partition_rules"),
            },
            query={
                "as_of": options.get("as_of"),
                "begin": options.get("begin"),
                "end": options.get("end"),
                "read_optimized": kind == "read_optimized",
                "columns": _names(options, "columns"),
                "meta_columns": _boolean(options, "meta_columns", default=True),
            },
        )


def _names(options: Mapping[str, str], key: str) -> tuple[str, ...] | None:
    return tuple(name.strip() for name in options[key].split(",")) if key in options else None


def _integer(options: Mapping[str, str], key: str) -> int | None:
    if key not in options:
        return None
    try:
        return int(options[key])
    except ValueError:
        raise ConfigError(f"option {key} is {options[key]!r}; expected a number.") from None


def _boolean(options: Mapping[str, str], key: str, *, default: bool) -> bool:
    words = {"true": True, "false": False}
    if key not in options:
        return default
    if options[key].lower() not in words:
        raise ConfigError(f"option {key} is {options[key]!r}; expected true or false.")
    return words[options[key].lower()]


class BucketlakeSource(DataSource):
    """A Hudi table, read without Hudi."""

    @classmethod
    def name(cls) -> str:
        return "bucketlake"

    def schema(self) -> str:
        options = SourceOptions.parse(self.options)
        return ddl(Table.open(options.path, **options.table).query(**options.query).schema)

    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002 - Spark hands back what `schema` said
        options = SourceOptions.parse(self.options)
        return (PushingReader if _filters_are_pushed() else Reader)(options)


def _filters_are_pushed() -> bool:
    """Say whether Spark asks for pushed filters.

    With `spark.sql.python.filterPushdown.enabled` off, Spark refuses a reader that has `pushFilters`, and it tells
    nobody about the setting: but it plans in another worker module when it is on.
    """
    module = "pyspark.sql.worker.data_source_pushdown_filters"
    main = sys.modules["__main__"].__spec__
    return module in sys.modules or (main is not None and main.name == module)


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
