"""A streaming query as Spark 4.1 runs it, in this process: which calls a reader gets, in which order, and what is kept.

Found by trying: a new query asks for the latest offset, and where the stream begins once that is logged; a query that
is started again first plans an empty batch at the last offset of the log, and then again a batch that was logged and
not committed. `tests/spark/test_streaming_source.py` does the same with Spark.
"""

from __future__ import annotations

import json
import pickle
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from bucketlake import Table
from bucketlake.datasource.options import StreamOptions
from bucketlake.datasource.stream import StreamReader, stream_schema

Rows = list[dict[str, Any]]


@dataclass
class Checkpoint:
    offsets: list[str] = field(default_factory=list)
    committed: int = 0


class Query:
    """One run of a query; make another one with the same checkpoint to start it again."""

    def __init__(self, table: Table, checkpoint: Checkpoint | None = None, **options: object) -> None:
        raw = {name: str(value) for name, value in options.items()}
        parsed = StreamOptions.parse({"path": table.store.uri, **raw})
        self.reader = StreamReader(parsed, stream_schema(parsed), has_every_column=parsed.columns is None)
        self.checkpoint = checkpoint or Checkpoint()
        if self.checkpoint.offsets:
            last = json.loads(self.checkpoint.offsets[-1])
            assert self.reader.partitions(last, last) == []

    def batch(self, *, commits: bool = True) -> Rows | None:
        """Run a batch; None if there is nothing new."""
        log = self.checkpoint.offsets
        if len(log) == self.checkpoint.committed:
            latest = json.dumps(self.reader.latestOffset())
            if log and log[-1] == latest:
                return None
            log.append(latest)
        found = self.replay(len(log) - 1)
        if commits:
            self.checkpoint.committed = len(log)
        return found

    def replay(self, number: int) -> Rows:
        """Give the rows of a batch that is in the log."""
        log = self.checkpoint.offsets
        start = json.loads(log[number - 1]) if number else self.reader.initialOffset()
        found = []
        for partition in self.reader.partitions(start, json.loads(log[number])):
            reader, task = pickle.loads(pickle.dumps((self.reader, partition)))
            found += [batch for batch in reader.read(task) if batch.num_rows]
        return pa.Table.from_batches(found).to_pylist() if found else []

    def batches(self) -> list[Rows]:
        """Run batches until there is nothing new."""
        found = []
        while (rows := self.batch()) is not None:
            found.append(rows)
        return found
