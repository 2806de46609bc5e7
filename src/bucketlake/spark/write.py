"""Rows to be written by Spark: packed by file group, shuffled, and handed to the writing tasks.

    rows  ── pack ──> pieces, each of one file group: its rows as Arrow bytes, their number and key sum
          ── shuffle ──> pieces of a file group in one task, in one run
          ── write_groups ──> one file per file group, one report each

A frame is evaluated once, and its rows are held nowhere whole. They cross from rows to columns once, on their way
to the tagger; from there on Spark moves pieces, and a piece costs it what a row does.
"""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import pairwise
from threading import Lock
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as F  # noqa: N812 # the name everybody gives it

from bucketlake import errors
from bucketlake.spark.progress import watched
from bucketlake.spark.types import arrow_schema, quoted
from bucketlake.spark.worker import settle_worker
from bucketlake.write import (
    CODE_COLUMN,
    GROUP_BITS,
    GroupWritten,
    KeySum,
    WriteState,
    columns_to_write,
    received_sum,
    sort_by_code,
    write_groups,
)

CHUNK_BYTES = 16 << 20
"""Rows are tagged and sorted so many bytes at a time."""
PIECE_BYTES = 128 << 10
SENT_BYTES = 4 << 20
"""Pieces are sent so many bytes at a time."""
BATCH_ROWS = 1_000
"""Rows of a frame that are sent to a task at once."""

# What sessions had before; several writes of one session may be under way.
_before: dict[int, tuple[int, dict[str, str | None]]] = {}
_before_guard = Lock()

PIECE = "code BIGINT, rows BIGINT, high BIGINT, low BIGINT, data BINARY"
_OWN_ERROR = re.compile(r"bucketlake\.errors\.(\w+): (.*)")


class SparkRows(ABC):
    """Rows that Spark's tasks write: a subclass says where they come from."""

    batch_limits: ClassVar[Mapping[str, str]]
    """Spark's settings for how much is sent to a task at once."""

    def __init__(self, session: SparkSession, schema: pa.Schema, *, progress: bool | None) -> None:
        self.session = session
        self._progress = progress
        self.schema = schema

    @abstractmethod
    def distinct(self, columns: Sequence[str]) -> pa.Table:
        """Return the distinct values of some columns."""

    @abstractmethod
    def packed(self, columns: Sequence[str], state: WriteState) -> DataFrame:
        """Return these columns of the rows as a frame of pieces, by `pack_rows`."""

    @property
    def cores(self) -> int:
        return cores_of(self.session)

    def run(self, plan: WriteState) -> tuple[KeySum, tuple[GroupWritten, ...]]:
        # Tagging needs no file groups, and they are most of what there is to send.
        for_tags = replace(plan, groups={}, partitions=frozenset())
        pieces = self.packed(columns_to_write(self.schema.names, plan), for_tags)
        observation = Observation()
        together = (
            pieces.observe(observation, *_sums())
            .select("code", "data")
            .repartitionById(plan.tasks, F.shiftright(F.col("code"), GROUP_BITS).cast("int"))
            .sortWithinPartitions("code")
        )
        watch = watched(self.session, plan.operation.lower(), show=self._progress)
        with own_errors(), _settings(self.session, self.batch_limits), watch:
            reports = together.mapInArrow(partial(_write_pieces, state=plan), "report STRING").collect()
            written = tuple(GroupWritten(**json.loads(report[0])) for report in reports)
            # Spark drops an observation with the plan of a frame that it knows to be empty.
            sent = _key_sum(observation.get) if written else None
            if sent != received_sum(written):
                # A task that ran again, because an executor was lost, was observed twice: count anew, and exactly.
                counted = pieces.agg(*_sums()).first()
                assert counted is not None
                sent = _key_sum(counted.asDict())
        return sent, written


class FrameRows(SparkRows):
    """The rows of a frame."""

    batch_limits: ClassVar = {
        # By rows alone: Spark weighs every row otherwise, which costs more than to convert it. Few rows make a batch
        # then, so that wide ones stay within bounds, and pieces, which have a size of their own.
        "spark.sql.execution.arrow.maxBytesPerBatch": str((1 << 31) - 1),
        "spark.sql.execution.arrow.maxRecordsPerBatch": str(BATCH_ROWS),
    }

    def __init__(self, frame: DataFrame, *, progress: bool | None = None) -> None:
        super().__init__(frame.sparkSession, arrow_schema(frame.schema.jsonValue()), progress=progress)
        self._frame = frame

    def distinct(self, columns: Sequence[str]) -> pa.Table:
        with own_errors():
            return self._frame.select(*(F.col(quoted(name)) for name in columns)).distinct().toArrow()

    def packed(self, columns: Sequence[str], state: WriteState) -> DataFrame:
        rows = self._frame.select(*(F.col(quoted(name)) for name in columns))
        return rows.mapInArrow(partial(pack_rows, state=state), PIECE)


def pack_rows(batches: Iterable[pa.RecordBatch], *, state: WriteState) -> Iterator[pa.RecordBatch]:
    """Turn a task's rows into pieces, a chunk of rows at a time."""
    settle_worker()
    pending: list[pa.RecordBatch] = []
    size_bytes = 0
    for batch in batches:
        if not batch.num_rows:
            continue
        pending.append(batch)
        size_bytes += batch.nbytes
        if size_bytes > CHUNK_BYTES:
            yield from _a_few(pack(pa.Table.from_batches(pending), state))
            pending, size_bytes = [], 0
    if pending:
        yield from _a_few(pack(pa.Table.from_batches(pending), state))


def _a_few(pieces: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Cut pieces into batches that Spark has memory for from its pool: it fetches, and gives back, more each time."""
    at_once = SENT_BYTES // PIECE_BYTES
    for start in range(0, pieces.num_rows, at_once):
        yield pieces.slice(start, at_once)


def pack(rows: pa.Table, state: WriteState, *, piece_bytes: int = PIECE_BYTES) -> pa.RecordBatch:
    """Cut rows into pieces of one file group each."""
    tagged = sort_by_code(rows, state)
    count = len(tagged.codes)
    rows_at_once = max(1, piece_bytes * count // max(1, tagged.rows.nbytes))
    changes = np.flatnonzero(tagged.codes[1:] != tagged.codes[:-1]) + 1
    starts: list[int] = []
    for start, stop in pairwise([0, *changes.tolist(), count]):
        starts += range(start, stop, rows_at_once)
    stops = [*starts[1:], count]
    high, low = tagged.hashes >> np.uint64(32), tagged.hashes & np.uint64(0xFFFFFFFF)
    pieces = (tagged.rows.slice(start, stop - start) for start, stop in zip(starts, stops, strict=True))
    return pa.RecordBatch.from_arrays(
        [
            pa.array(tagged.codes[starts]),
            pa.array(np.subtract(stops, starts, dtype=np.int64)),
            pa.array(np.add.reduceat(high, starts).astype(np.int64) if starts else [], pa.int64()),
            pa.array(np.add.reduceat(low, starts).astype(np.int64) if starts else [], pa.int64()),
            _as_bytes(pieces),
        ],
        names=["code", "rows", "high", "low", "data"],
    )


def _as_bytes(pieces: Iterable[pa.RecordBatch]) -> pa.BinaryArray:
    """Write pieces one behind the other into one buffer: many that grow cost the system more than they hold."""
    sink = pa.BufferOutputStream()
    ends = [0]
    for rows in pieces:
        with pa.ipc.new_stream(sink, rows.schema) as stream:
            stream.write_batch(rows)
        ends.append(sink.tell())
    offsets = pa.py_buffer(np.array(ends, np.int32))
    return pa.BinaryArray.from_buffers(pa.binary(), len(ends) - 1, [None, offsets, sink.getvalue()])


def _write_pieces(batches: Iterable[pa.RecordBatch], *, state: WriteState) -> Iterator[pa.RecordBatch]:
    settle_worker()
    for group in write_groups(unpack(batches), state):
        yield pa.RecordBatch.from_pydict({"report": [json.dumps(group.as_dict())]})


def unpack(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Turn pieces back into rows, each with its code."""
    for batch in batches:
        for code, piece in zip(batch.column("code"), batch.column("data"), strict=True):
            for rows in pa.ipc.open_stream(piece.as_buffer()):
                yield rows.append_column(CODE_COLUMN, pa.repeat(code, rows.num_rows))


@contextmanager
def _settings(session: SparkSession, limits: Mapping[str, str]) -> Iterator[None]:
    """Change settings of a session for as long as a write runs; of two at once, both get the later one's."""
    with _before_guard:
        users, before = _before.get(id(session), (0, {name: session.conf.get(name, None) for name in limits}))
        _before[id(session)] = users + 1, before
        for name, value in limits.items():
            session.conf.set(name, value)
    try:
        yield
    finally:
        with _before_guard:
            users, before = _before.pop(id(session))
            if users > 1:
                _before[id(session)] = users - 1, before
            else:
                _restore(session, before)


def _restore(session: SparkSession, settings: Mapping[str, str | None]) -> None:
    for name, value in settings.items():
        if value is None:
            session.conf.unset(name)
        else:
            session.conf.set(name, value)


def cores_of(session: SparkSession) -> int:
    """Spark Connect does not tell how many tasks run at once; its setting for shuffles must do."""
    try:
        return int(session.sparkContext.defaultParallelism)
    except (PySparkException, AttributeError):
        return min(int(session.conf.get("spark.sql.shuffle.partitions", None) or 8), 16)


def _sums() -> list[Column]:
    """The rows, and the sum of their keys' hashes in two halves: Spark refuses a sum of longs that overflows."""
    return [F.sum(name).alias(name) for name in ("rows", "high", "low")]


def _key_sum(sums: Mapping[str, Any]) -> KeySum:
    total = ((sums["high"] or 0) << 32) + (sums["low"] or 0)
    return KeySum(sums["rows"] or 0, total % (1 << 64))


@contextmanager
def own_errors() -> Iterator[None]:
    """Raise an error of ours that a task met as itself, instead of as a page of Spark's."""
    try:
        yield
    except PySparkException as error:
        found = _OWN_ERROR.findall(str(error))
        kind = getattr(errors, found[-1][0], None) if found else None
        if kind is None:
            raise
        own: Exception = kind.__new__(kind)
        Exception.__init__(own, found[-1][1])
        raise own from None
