"""A driver that upserts streams into tables, a query for each: started by a test, which kills it.

    python -m spark.stream_until_killed '<tables as JSON>' <folder for flags>

A query may be told to stop at a step of a batch: it says that it is there, and waits to be killed. Without one it goes
on until all files are written. Files are put by the test beforehand; each is a batch.

At its step the thread of a batch waits. Others go on: where batches are pipelined, that may be the next batch, until it
comes to the same operation.
"""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

from pyspark.sql import SparkSession

from bucketlake import Table
from bucketlake.config import load_properties
from bucketlake.layout.names import CLAIM_FOLDER
from bucketlake.storage import Store, open_store
from bucketlake.streaming.batch_writer import BatchWriter
from stand_ins.arriving import DDL

READY = "ready"
DATA, METADATA = ".hoodie/timeline/", ".hoodie/metadata/.hoodie/timeline/"

STEPS: dict[str, tuple[str, str, tuple[str, ...], bool]] = {
    # the operation, how its path begins and ends, and whether it took effect
    "begun": ("put", DATA, (".inflight",), True),
    "before the claim": ("put_new", CLAIM_FOLDER, ("",), False),
    "claimed": ("put_new", CLAIM_FOLDER, ("",), True),
    "before the metadata table has it": ("put", METADATA, (".deltacommit",), False),
    "between metadata and data": ("put", METADATA, (".deltacommit",), True),
    "published": ("put", DATA, (".commit", ".deltacommit"), True),
}
TOLD = "before Spark notes that it is done"
"""The last step: the batch is committed, and of Spark's checkpoint the file commits/N is missing."""


@dataclass(frozen=True, kw_only=True)
class Streamed:
    """A stream into a table."""

    name: str
    uri: str
    source: str
    checkpoint: str
    options: Mapping[str, str] = field(default_factory=dict)
    pipelined: bool = False
    step: str | None = None
    nth: int = 1
    """It stops when it is at the step for the n-th time."""
    is_let_go: bool = False
    """It goes on when it is told to, and is not killed."""

    @property
    def flag(self) -> str:
        return f"at {self.name}"

    @property
    def go(self) -> str:
        return f"go {self.name}"


def as_text(streams: list[Streamed]) -> str:
    return json.dumps([asdict(stream) for stream in streams])


class Stop:
    """Where a query waits to be killed."""

    def __init__(self, stream: Streamed, flags: Path) -> None:
        self.step, self.left, self.flag = stream.step, stream.nth, flags / stream.flag
        self.go = flags / stream.go if stream.is_let_go else None

    def at(self, step: str) -> None:
        if step != self.step:
            return
        self.left -= 1
        if self.left <= 0:
            self.step = None
            self.flag.touch()
            while self.go is None or not self.go.exists():
                time.sleep(0.02)


class StoppingStore:
    """A store whose operations are steps of a batch. Tasks get the store that it is around."""

    def __init__(self, inner: Store, stop: Stop) -> None:
        self._inner, self._stop = inner, stop

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def __reduce__(self) -> tuple[Any, ...]:
        return _same, (self._inner,)

    def put(self, path: str, data: bytes | Path) -> None:
        self._do("put", path, lambda: self._inner.put(path, data))

    def put_new(self, path: str, data: bytes | Path) -> bool:
        return bool(self._do("put_new", path, lambda: self._inner.put_new(path, data)))

    def _do(self, verb: str, path: str, act: Callable[[], object]) -> object:
        steps = [
            (name, is_after)
            for name, (of, begins, ends, is_after) in STEPS.items()
            if verb.startswith(of) and path.startswith(begins) and path.endswith(ends)
        ]
        for name, is_after in steps:
            if not is_after:
                self._stop.at(name)
        done = act()
        for name, is_after in steps:
            if is_after:
                self._stop.at(name)
        return done


def _same(store: Store) -> Store:
    return store


def start(spark: SparkSession, stream: Streamed, flags: Path) -> Any:
    store = open_store(stream.uri, stream.options or None)
    stopping = StoppingStore(store, Stop(stream, flags))
    table = Table(stopping, load_properties(store))  # type: ignore[arg-type] # it is one
    arriving = spark.readStream.schema(DDL).option("maxFilesPerTrigger", 1).parquet(stream.source)
    return table.upsert_stream(
        arriving,
        checkpoint=stream.checkpoint,
        trigger="available now",
        name=stream.name,
        pipelined=stream.pipelined,
    )


def main(streams: list[Streamed], flags: Path) -> None:
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.log.level", "OFF")
        .config("spark.sql.shuffle.partitions", "2")
        .config(
            "spark.driver.extraJavaOptions", "-Duser.timezone=UTC -XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
        )
        .getOrCreate()
    )
    written = BatchWriter.__call__

    def write(self: BatchWriter, frame: Any, number: int) -> None:
        written(self, frame, number)
        store: Any = self.store
        store._stop.at(TOLD)

    with mock.patch.object(BatchWriter, "__call__", write):
        queries = {stream.flag: start(spark, stream, flags) for stream in streams}
        (flags / READY).touch()
        while queries:
            for flag in [flag for flag, query in queries.items() if query.awaitTermination(0.05)]:
                del queries[flag]
                (flags / flag).touch()  # all is written: it will not come to its step


if __name__ == "__main__":
    try:
        main([Streamed(**told) for told in json.loads(sys.argv[1])], Path(sys.argv[2]))
    except Exception:
        traceback.print_exc()
        os._exit(1)  # the threads of other queries may wait to be killed
