"""A query from files into a table, and its checkpoint from one start to the next."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from bucketlake import SimpleBuckets, Table, create_table
from bucketlake.index.told import IndexValue
from bucketlake.testing.invariants import check_invariants
from stand_ins.arriving import DDL, put_file
from stand_ins.clicks import SCHEMA, batch, commits_of, rows_of, truth


def clicks_table(path: Path, *, index: IndexValue | None = None, table_type: str = "MERGE_ON_READ") -> Table:
    return create_table(
        path,
        SCHEMA,
        key="id",
        partition="dt",
        ordering="ts",
        index=index or SimpleBuckets(2),
        table_type=table_type,
    )


class Job:
    """Each file is a batch of `stand_ins.clicks`."""

    def __init__(self, spark: SparkSession, folder: Path, table: Table | None = None) -> None:
        self.spark, self.folder = spark, folder
        self.source, self.checkpoint = folder / "source", folder / "checkpoint"
        self.source.mkdir(parents=True, exist_ok=True)
        self.table = table or clicks_table(folder / "table")

    def arrives(self, *numbers: int) -> None:
        for number in numbers:
            put_file(self.source, number, batch(number))

    def frame(self) -> DataFrame:
        reader = self.spark.readStream.schema(DDL).option("maxFilesPerTrigger", 1)
        return reader.parquet(str(self.source))

    def start(self, *, trigger: str | None = None, write: Any = None, **how: Any) -> StreamingQuery:
        """Start the query, into a table, or into a function of batches."""
        checkpoint = how.pop("checkpoint", self.checkpoint)
        if write is None:
            table: Table = how.pop("table", self.table)
            return table.upsert_stream(self.frame(), checkpoint=checkpoint, trigger=trigger, **how)
        started = self.frame().writeStream.foreachBatch(write).trigger(availableNow=True)
        return started.option("checkpointLocation", str(checkpoint)).start()

    def run(self, **how: Any) -> None:
        """Write all that has arrived."""
        assert self.start(trigger="available now", **how).awaitTermination(180)

    def fails(self, error: str, **how: Any) -> str:
        """Run, and return what the query fails with."""
        with pytest.raises(StreamingQueryException, match=error) as found:
            self.run(**how)
        return str(found.value)

    def rewind(self, count: int) -> None:
        """Take the checkpoint back by so many batches, its source's own log with it."""
        newest = max(int(path.name) for path in (self.checkpoint / "commits").glob("[0-9]*"))
        for number in range(newest - count + 1, newest + 1):
            for log in ("offsets", "commits", "sources/0"):
                (self.checkpoint / log / str(number)).unlink()
                (self.checkpoint / log / f".{number}.crc").unlink(missing_ok=True)

    def check(self, *numbers: int) -> None:
        assert rows_of(self.table.store) == truth(numbers)
        assert commits_of(self.table.store) == list(numbers), "every batch is one commit"
        check_invariants(self.table)
