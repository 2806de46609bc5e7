"""Rows that a caller hands over, written: by this process, or by Spark's tasks."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, cast

import pyarrow as pa

from bucketlake import given, services
from bucketlake import spark as on_spark
from bucketlake.arguments import ComputedArguments, WriteArguments, change_feed, parsed_log_format
from bucketlake.commit.stream import Batch, Marks
from bucketlake.commit.writable import check_writable
from bucketlake.index import IndexValue
from bucketlake.logfile import LogFormat
from bucketlake.looks import look_at
from bucketlake.schema import all_nullable
from bucketlake.state import TableState, table_schema
from bucketlake.storage import Store
from bucketlake.write import (
    ArrowRows,
    CommitSummary,
    Computation,
    Operation,
    WriteOptions,
    columns_after,
    run_write,
)
from bucketlake.write.finish import Later

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from bucketlake.arguments import Rows, Schema
    from bucketlake.spark.files import Files
    from bucketlake.spark.write import SparkRows


def write_rows(
    store: Store,
    rows: Rows,
    operation: Operation,
    told: IndexValue | None,
    options: WriteArguments,
    *,
    batch: Batch | None = None,
    marks: Marks | None = None,
    later: Later | None = None,
) -> CommitSummary:
    """Write rows to a table, then run the services that were asked for.

    `told` is what the caller takes the table's index for; another one than the table has is refused. `batch` says
    which batch of a stream the rows are, if they are one, and `marks` which ones there are already; `later` takes what
    publishes them, if that is not to be done here.
    """
    checked = replace(_options_of(told, options, operation), batch=batch, marks=marks, later=later)
    maintenance = services.asked_maintenance(options.get("maintenance"))
    progress = given.flag_if_given(options.get("progress"), "progress")
    taken = given.rows_of(rows, lambda: look_at(store, table_schema))
    if isinstance(taken, pa.Table):
        return services.look_after(store, run_write(ArrowRows(taken), store, operation, checked), maintenance)
    by_tasks = rows_by_tasks(taken, progress)
    summary = run_write(by_tasks, store, operation, checked)
    tasks = given.tasks_of(by_tasks.session, progress)
    return services.look_after(store, summary, maintenance, tasks=tasks)


def write_computed(
    store: Store,
    computation: Computation,
    operation: Operation,
    told: IndexValue | None,
    options: ComputedArguments,
    *,
    session: SparkSession,
    op: str | None = None,
    merge_schema: bool | None = None,
) -> CommitSummary:
    """Write rows that are computed from the table, then run the services that were asked for.

    `op` is the column of theirs that says what becomes of each, if there is one. `merge_schema` tells whether they may
    change the table's columns.
    """
    more = {"merge_schema": merge_schema, **({} if op is None else {"op": op})}
    chosen = cast("WriteArguments", {**options, **more})
    checked = _options_of(told, chosen, operation)
    if checked.feed is not None:
        # What it deletes was looked at: there is nothing newer.
        checked = replace(checked, feed=replace(checked.feed, dates_deletes=False))
    maintenance = services.asked_maintenance(options.get("maintenance"))
    tasks = given.tasks_of(session, given.flag_if_given(options.get("progress"), "progress"))
    summary = run_write(computation, store, operation, checked)
    return services.look_after(store, summary, maintenance, tasks=tasks)


def _options_of(told: IndexValue | None, options: WriteArguments, operation: Operation) -> WriteOptions:
    given.known(options, WriteArguments)
    return WriteOptions(
        log_format=parsed_log_format(options.get("log_format", LogFormat.PARQUET)),
        merge_schema=given.flag_if_given(options.get("merge_schema"), "merge_schema"),
        feed=change_feed(options, operation),
        index=told,
    )


def check_rows_fit(
    store: Store, columns: pa.Schema, told: IndexValue | None, options: WriteArguments
) -> None:
    """Refuse rows with these columns as an upsert of them would, before there are any."""
    checked = _options_of(told, options, Operation.UPSERT)

    def look(state: TableState) -> None:
        check_writable(state)
        checked.index_of(state)
        columns_after(columns, state, Operation.UPSERT, checked)

    look_at(store, look)


def rows_by_tasks(rows: DataFrame | Files, progress: bool | None) -> SparkRows:
    """Let Spark's tasks write a frame, or read and write its files if it is nothing but files."""
    files = (
        rows if given.is_files(rows) else on_spark.plain_reads.files_read_by_frame(cast("DataFrame", rows))
    )
    if files is not None:
        return on_spark.files.FileRows(files, progress=progress)
    return on_spark.write.FrameRows(cast("DataFrame", rows), progress=progress)


def columns_of(schema: Schema, spark: SparkSession | None) -> pa.Schema:
    """Return the columns of a schema, of rows or of a DDL text."""
    if isinstance(schema, str):
        # The session decides what the word means.
        asked = None if spark is None else spark.conf.get("spark.sql.timestampType", None)
        return on_spark.parse_ddl(schema, has_zones=asked != "TIMESTAMP_NTZ")
    taken = given.schema_of(schema)
    columns = taken if isinstance(taken, pa.Schema) else on_spark.arrow_schema(taken.jsonValue())
    # That a column of a frame has no nulls is what Spark worked out, of a literal say: no rule for rows to come.
    return columns if taken is schema else all_nullable(columns)
