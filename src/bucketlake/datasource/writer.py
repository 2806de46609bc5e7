"""`df.write.format("bucketlake").mode("append")`: an upsert into a merge-on-read table, without a shuffle.

Spark calls `begin` in one process, `write` in every task, and `commit` or `abort` in a third process; a writer is
pickled on its way between them, and is nothing but a value. What it may write, and why no more, is in
`write/append.py`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from bucketlake.config import MaintenanceMode, load_properties
from bucketlake.datasource.options import SinkOptions
from bucketlake.errors import UnsupportedError
from bucketlake.index.hints import refuse_hints
from bucketlake.index.told import refuse_other
from bucketlake.services import look_after
from bucketlake.spark import arrow_schema, settle_worker
from bucketlake.state import load_state
from bucketlake.storage import open_store
from bucketlake.write import Append, Appended, abort_append, append_rows, begin_append, complete_append

_log = logging.getLogger("bucketlake.datasource")


@dataclass
class Message(WriterCommitMessage):
    """What a task tells the driver."""

    done: Appended


class LogWriter(DataSourceArrowWriter):
    """Appends log files to the file groups of a merge-on-read table."""

    def __init__(self, append: Append, schema: pa.Schema, maintenance: MaintenanceMode | None = None) -> None:
        self.append = append
        self.schema = schema
        self.maintenance = maintenance

    @classmethod
    def begin(cls, options: SinkOptions, schema: StructType, *, overwrite: bool) -> LogWriter:
        store = open_store(options.path, options.storage)
        if overwrite:
            raise UnsupportedError(
                subject=f"the mode of a write to {store.uri}",
                found='"overwrite"',
                supported='mode("append")',
                remedy=f'Call Table.open("{store.uri}").overwrite(df): it replaces the partitions that df has rows in, '
                f"or with whole_table=True all of them.",
            )
        columns = arrow_schema(schema.jsonValue())
        if options.hints:
            refuse_hints(options.hints, load_state(store))
        if options.write.index is not None:
            refuse_other(options.write.index, load_properties(store), store.uri)
        return cls(begin_append(store, columns, options.write), columns, options.maintenance)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        settle_worker()
        context = TaskContext.get()
        assert context is not None, "Spark runs this in a task"
        batches = [batch for batch in iterator if batch.num_rows]
        rows = pa.Table.from_batches(batches) if batches else self.schema.empty_table()
        return Message(append_rows(self.append, rows, task=context.partitionId()))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        done = [message.done for message in messages if isinstance(message, Message)]
        assert len(done) == len(messages), "Spark commits when every task has reported"
        summary = complete_append(self.append, done)
        _log.info("%s", look_after(self.append.transaction.store, summary, self.maintenance))

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:  # noqa: ARG002 - the markers tell more
        abort_append(self.append)
