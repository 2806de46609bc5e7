"""A planned read as a Spark DataFrame.

A slice without logs is a Parquet file, and Spark's own reader is the best
reader of those; every other slice is read by `read_slice` in Arrow, on the
executors. The two halves have one schema and are united.

Only methods of the session and of frames are used, so that a classic session
and a Spark Connect one do the same.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable, Iterator
from functools import partial, reduce

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 # the name everybody gives it

from bucketlake.basefile import check_footer, read_footer
from bucketlake.keygen import NO_VALUE
from bucketlake.layout import FileSlice
from bucketlake.read import Filter, Op, ReadContext, ReadPlan, pack_slices, read_slice, values_of_path
from bucketlake.schema import COMMIT_TIME_COLUMN, PARTITION_PATH_COLUMN
from bucketlake.spark.floats import shield_floats
from bucketlake.spark.python import settle_python
from bucketlake.spark.set_for_a_while import set_for_a_while
from bucketlake.spark.types import ddl, escaped_for_glob, path_for_spark, quoted
from bucketlake.spark.worker import settle_worker
from bucketlake.storage import LocalStore

TASK_BYTES = 64 * 1024 * 1024
"""How much a task reads: small enough to spread over cores, large enough to pay for a Python worker's start."""

_STRICT = {
    "parquet.page.verify-checksum.enabled": "true",
    "ignoreCorruptFiles": "false",
    "ignoreMissingFiles": "false",
}
"""Whatever the session says: a file that is passed over is rows that are missing."""

_LISTED_HERE = {"spark.sql.sources.parallelPartitionDiscovery.threshold": str((1 << 31) - 1)}
"""Spark looks at each path that it is given; at more than 32, by a job with a task for each. Of 1,000 files on a disk
that took nine times the CPU of looking at them in the driver."""


def scan(session: SparkSession, plan: ReadPlan) -> DataFrame:
    """Turn a plan into a frame: plain files by Spark, the others by tasks."""
    plain, merged = split_by_reader(plan)
    frames: list[DataFrame] = []
    if plain:
        frames.append(_read_plain(session, plain, plan.context))
    if merged or not plain:
        frames.append(_read_merged(session, merged, plan.context))
    return reduce(lambda a, b: a.unionByName(b), frames)


def _read_merged(session: SparkSession, slices: tuple[FileSlice, ...], context: ReadContext) -> DataFrame:
    settle_python(session)
    packs = pack_slices(slices, TASK_BYTES)
    rows = session.range(0, len(packs), 1, max(1, len(packs)))
    return rows.mapInArrow(partial(_read_packs, packs=packs, context=context), ddl(context.schema))


def _read_packs(
    batches: Iterable[pa.RecordBatch], *, packs: tuple[tuple[FileSlice, ...], ...], context: ReadContext
) -> Iterator[pa.RecordBatch]:
    """Read the packs whose numbers arrive: one number, one task."""
    settle_worker()
    for batch in batches:
        for number in batch.column(0).to_pylist():
            for file_slice in packs[number]:
                yield from read_slice(file_slice, context)


def _read_plain(session: SparkSession, slices: tuple[FileSlice, ...], context: ReadContext) -> DataFrame:
    store = context.store
    assert isinstance(store, LocalStore)
    bases = [s.base_file.path for s in slices if s.base_file is not None]
    for base in bases:
        check_footer(store, base)  # Spark verifies pages only
    reader = session.read.schema(ddl(_plain_schema(context))).options(**_STRICT)
    with set_for_a_while(session, _LISTED_HERE):
        frame = reader.parquet(*(path_for_spark(store.local_path(base)) for base in bases))
    frame = frame.selectExpr(*(_from_path(name, context) or quoted(name) for name in frame.columns))
    frame = shield_floats(frame, context.table_schema)
    if context.commit_times is not None:
        frame = frame.filter(frame[COMMIT_TIME_COLUMN].isin(sorted(context.commit_times)))
    for condition in context.filters:
        frame = frame.filter(_spark_condition(frame, condition))
    return frame.select(*(quoted(name) for name in context.columns))


def _plain_schema(context: ReadContext) -> pa.Schema:
    """The columns to read from a file: in place of partition columns, the path they come from."""
    wanted = context.reading_schema(merging=False)
    if not set(context.path_columns).intersection(wanted.names) or PARTITION_PATH_COLUMN in wanted.names:
        return wanted
    return wanted.append(context.table_schema.field(PARTITION_PATH_COLUMN))


def _from_path(name: str, context: ReadContext) -> str | None:
    """Spell how a partition column is read out of the row's own partition path."""
    if name not in context.path_columns:
        return None
    fields = [field.name for field in context.keys.partition_fields]
    part = quoted(PARTITION_PATH_COLUMN)
    if len(fields) > 1:
        part = f"split_part({part}, '/', {fields.index(name) + 1})"
    if context.keys.hive_style:
        part = f"substring({part}, {len(name) + 2})"
    kind = ddl(pa.schema([context.table_schema.field(name)])).removeprefix(quoted(name))
    return f"CAST(nullif({part}, '{NO_VALUE}') AS {kind}) AS {quoted(name)}"


_CONDITIONS: dict[Op, Callable[..., Column]] = {
    Op.EQ: lambda column, value: column == value,
    Op.NE: lambda column, value: column != value,
    Op.LT: lambda column, value: column < value,
    Op.LE: lambda column, value: column <= value,
    Op.GT: lambda column, value: column > value,
    Op.GE: lambda column, value: column >= value,
    Op.IN: lambda column, value: column.isin(list(value)),
    Op.NOT_IN: lambda column, value: ~column.isin(list(value)),
    Op.IS_NULL: lambda column, _: column.isNull(),
    Op.IS_NOT_NULL: lambda column, _: column.isNotNull(),
    Op.STARTS_WITH: lambda column, value: column.startswith(value),
}


def _spark_condition(frame: DataFrame, condition: Filter) -> Column:
    value = condition.value
    meant = [_literal(item) for item in value] if isinstance(value, tuple) else _literal(value)
    return _CONDITIONS[condition.op](frame[quoted(condition.column)], meant)


def _literal(value: object) -> object:
    """Return a value as Spark is to take it: days and times as text that is cast, which means the same everywhere.

    PySpark would make Java objects of them: a time without a zone becomes a moment in this process's zone, which is
    then compared in the session's, and days before 1582 are counted by another calendar.
    """
    if isinstance(value, datetime.datetime):
        if value.tzinfo is None:
            return F.lit(value.isoformat(" ")).cast("timestamp_ntz")
        return F.lit(value.astimezone(datetime.UTC).isoformat(" ")).cast("timestamp")
    if isinstance(value, datetime.date):
        return F.lit(value.isoformat()).cast("date")
    return value


def split_by_reader(plan: ReadPlan) -> tuple[tuple[FileSlice, ...], tuple[FileSlice, ...]]:
    """Split the slices into those Spark's Parquet reader can take as they are, and the others."""
    context = plan.context
    if not isinstance(context.store, LocalStore) or context.path_columns_are_dropped:
        return (), plan.slices
    if context.has_virtual_keys and context.shown.intersection(context.path_columns):
        return (), plan.slices  # rows do not say in which partition they are
    wanted = _plain_schema(context)
    plain_partitions = {
        partition: _spark_reads_path(partition, context) for partition in {s.partition for s in plan.slices}
    }
    plain_instants: dict[str, bool] = {}
    plain: list[FileSlice] = []
    merged: list[FileSlice] = []
    for file_slice in plan.slices:
        base = file_slice.base_file
        if base is None or file_slice.log_files or not plain_partitions[file_slice.partition]:
            merged.append(file_slice)
            continue
        # The files of one instant share their writer's schema, so one footer speaks for all of them.
        if base.instant not in plain_instants:
            footer = read_footer(context.store, base.path)
            plain_instants[base.instant] = _spark_reads_as(footer.arrow_schema, wanted)
        (plain if plain_instants[base.instant] else merged).append(file_slice)
    if len(plain) == 1 and _looks_like_a_pattern(plain[0].partition, context.store):
        # Spark would look for a path that is alone as it is spelled too, and log at length that it is not there.
        return (), plan.slices
    return tuple(plain), tuple(merged)


def _spark_reads_path(partition: str, context: ReadContext) -> bool:
    """Say whether Spark finds files under a path, and reads its columns as we do."""
    assert isinstance(context.store, LocalStore)
    path = f"{context.store.root}/{partition}"
    if (
        ":" in path and escaped_for_glob(path) != path
    ):  # which Hadoop takes for a URI when it looks for a pattern
        return False
    if context.keys.url_encode and "%" in partition:
        return False
    return not context.path_columns or (
        values_of_path(partition, context.path_columns, context.keys, context.table_schema) is not None
    )


def _looks_like_a_pattern(partition: str, store: LocalStore) -> bool:
    path = f"{store.root}/{partition}"
    return escaped_for_glob(path) != path


def _spark_reads_as(stored: pa.Schema, wanted: pa.Schema) -> bool:
    """Say whether no column needs more than what Spark's reader does: missing columns become nulls."""
    by_name = {field.name: field.type for field in stored}
    return all(field.name not in by_name or _same(by_name[field.name], field.type) for field in wanted)


def _same(stored: pa.DataType, wanted: pa.DataType) -> bool:
    if pa.types.is_list(stored) and pa.types.is_list(wanted):
        return _same(stored.value_type, wanted.value_type)
    if pa.types.is_map(stored) and pa.types.is_map(wanted):
        return _same(stored.key_type, wanted.key_type) and _same(stored.item_type, wanted.item_type)
    if pa.types.is_struct(stored) and pa.types.is_struct(wanted):
        names = [f.name for f in stored]
        return names == [f.name for f in wanted] and all(
            _same(a.type, b.type) for a, b in zip(stored, wanted, strict=True)
        )
    return bool(stored == wanted)
