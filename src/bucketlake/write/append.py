"""A write whose rows nobody brings together: each task logs what it holds.

Spark's Data Source API hands a sink the rows as they are spread, and runs its
three steps in three processes that share nothing but values:

    begin_append     on the driver      begin, check, plan
    append_rows      in every task      a log file per file group that the task has rows of
    complete_append  on the driver      prove, commit; or `abort_append`

Two tasks may hold rows of one file group, and versions of one key. So

1. a task's log files are numbered by the task, not by the attempt: attempts of a task meet in one name, as
   everywhere in this package, and two tasks never do;
2. a bucket without a file group gets one that is made of logs: its id is a function of the instant, so tasks agree;
3. of two versions the ordering columns decide, wherever they are. A table ordered by commit time is refused: there
   the later version wins, and among tasks there is no later;
4. a table that is copy-on-write is refused: its file group would have to be rewritten by one task.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from bucketlake.commit.operation import Operation
from bucketlake.commit.transaction import Heartbeat, Transaction, abort, begin
from bucketlake.config import MergeMode, TableType
from bucketlake.errors import UnsupportedError
from bucketlake.index import Index
from bucketlake.index.listed import listed_indexes
from bucketlake.state import TableState, look_at_files
from bucketlake.storage import Store
from bucketlake.write.exchange import KeySum
from bucketlake.write.finish import Prepared, finish
from bucketlake.write.job import ArrowRows, WriteOptions, check_files, columns_after
from bucketlake.write.report import CommitSummary, check_proof
from bucketlake.write.state import WriteState, plan_write
from bucketlake.write.task import GroupWritten


@dataclass(frozen=True, slots=True, kw_only=True)
class Append:
    """An append that has begun; travels between processes."""

    transaction: Transaction
    plan: WriteState


@dataclass(frozen=True, slots=True)
class Appended:
    """What one task did."""

    sent: KeySum
    written: tuple[GroupWritten, ...]


def begin_append(store: Store, schema: pa.Schema, options: WriteOptions) -> Append:
    """Begin an append of rows with this schema; what cannot be appended to is refused first."""

    def check(state: TableState) -> None:
        _check_appendable(state)
        columns_after(schema, state, Operation.UPSERT, options)

    def index_of(state: TableState) -> Index:
        index = options.index_of(state)
        if index.recorded is not None:
            raise UnsupportedError(
                subject=f"{state.store.uri}",
                found=f"a table with a {index}",
                supported='mode("append") for tables with buckets: keys must be brought together to be looked up',
                remedy=f'Call Table.open("{state.store.uri}").upsert(df): it brings them together.',
            )
        return index

    transaction, state = begin(store, operation=Operation.UPSERT, index_of=index_of, check=check)
    try:
        files, unmarked = look_at_files(state)
        plan = plan_write(
            state,
            transaction.index,
            files,
            instant=transaction.instant,
            operation=Operation.UPSERT,
            schema=columns_after(schema, state, Operation.UPSERT, options),
            cores=1,
            log_format=options.log_format,
            unmarked=unmarked,
        )
    except BaseException:
        abort(transaction)
        raise
    return Append(transaction=transaction, plan=replace(plan, appends=True))


def append_rows(append: Append, rows: pa.Table, *, task: int) -> Appended:
    """Write the rows that task number `task`, from 0, holds. Every attempt of it writes the same files."""
    plan = replace(append.plan, log_version=task + 1)
    # Nobody else beats: the process that began is gone, and the one that completes is not there yet.
    with Heartbeat(plan, is_another=True):
        return Appended(*ArrowRows(rows).run(plan)[:2])


def complete_append(append: Append, done: Sequence[Appended]) -> CommitSummary:
    """Commit what the tasks wrote."""
    transaction = append.transaction
    sent = KeySum(
        sum(task.sent.rows for task in done), sum(task.sent.key_hash_sum for task in done) % (1 << 64)
    )
    written = [group for task in done for group in task.written]
    try:
        with Heartbeat(transaction):
            check_proof(sent, written)
            check_files(transaction, written)
            return finish(
                Prepared(
                    transaction=transaction,
                    sent=sent,
                    written=written,
                    replaced={},
                    schema=append.plan.schema,
                )
            )
    except BaseException:
        abort(transaction)
        raise


def abort_append(append: Append) -> None:
    """Take back what tasks wrote."""
    abort(append.transaction)


def _check_appendable(state: TableState) -> None:
    properties, remedy = (
        state.properties,
        f'Call Table.open("{state.store.uri}").upsert(df): it brings them together.',
    )
    if properties.table_type is TableType.COPY_ON_WRITE:
        raise UnsupportedError(
            subject=f"{state.store.uri}",
            found="a copy-on-write table",
            supported='mode("append") for merge-on-read: rows of a file group come from several tasks here',
            remedy=remedy,
        )
    listed = listed_indexes(properties)
    if listed:
        raise UnsupportedError(
            subject=f"{state.store.uri}",
            found=f"a table that lists the index {listed[0].word}",
            supported='mode("append") without: several tasks may bring a key, and none knows whether it is new',
            remedy=remedy,
        )
    if properties.merge_mode is MergeMode.COMMIT_TIME_ORDERING:
        raise UnsupportedError(
            subject=f"{state.store.uri}",
            found="a table without ordering columns",
            supported='mode("append") with them: versions of a key come from several tasks here, and none is the later',
            remedy=remedy,
        )
