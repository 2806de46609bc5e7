"""Rows in pieces, on their way from the tasks that have them to the tasks that write them.

    rows ── pack ──> pieces, each of one file group: its rows as Arrow bytes, their number and key sum
         ── unpack ──> the same, in the task that writes the group

Where tasks share a disk, a piece's bytes stay in the file that its task has put them into, and the list of the task's
pieces beside it. The driver reads the lists, and leaves every writing task a share of them. So Spark carries no more
than where lists and shares lie; elsewhere it carries the pieces:

    data  := the piece, a stream of Arrow's         elsewhere
           | place                                  in a `Handover`
    place := file " " offset " " length             the file is a stream, and what lies there a message of it
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import lru_cache
from itertools import count, pairwise
from typing import Protocol

import numpy as np
import pyarrow as pa
from pyspark import TaskContext

from bucketlake.schema import bytes_of
from bucketlake.spark.worker import settle_worker
from bucketlake.storage import Handover
from bucketlake.write import GROUP_BITS, Coded, Cut, Piece

CHUNK_BYTES = 16 << 20
"""Rows are tagged and sorted so many bytes at a time."""
PIECE_BYTES = 128 << 10
"""About the most of a piece that Spark carries."""
SENT_BYTES = 4 << 20
"""Pieces are sent so many bytes at a time."""
FILES_OPEN_MAX = 64
"""Of other tasks, in one that writes."""

SUMS = ("rows", "high", "low")
"""Rows, and the sum of their keys' hashes in two halves, in which a sum of them does not overflow."""
_PIECE = f"code BIGINT, partition STRING, file_id STRING, {' BIGINT, '.join(SUMS)} BIGINT, data BINARY, number BIGINT"
_LIST = "rows BIGINT, high BIGINT, low BIGINT, place BINARY"


def carried(handover: Handover | None) -> str:
    """Name the columns of what Spark carries of a task's rows: a line for each piece, or one for their list."""
    return _PIECE if handover is None else _LIST


def pack_rows(
    batches: Iterable[pa.RecordBatch], *, cut: Cut, handover: Handover | None
) -> Iterator[pa.RecordBatch]:
    """Turn a task's rows into pieces, a chunk of rows at a time; yield what Spark is to carry."""
    settle_worker()
    yield from carry((cut(rows) for rows in _chunks(batches)), handover)


def carry(stages: Iterable[Coded], handover: Handover | None) -> Iterator[pa.RecordBatch]:
    """Cut rows that have codes into pieces; yield what Spark is to carry of them."""
    numbers = count(_task_number() << 32)
    if handover is None:
        for coded in stages:
            yield from _a_few(pack(coded, Sent(), numbers))
        return
    with ExitStack() as stack:
        left: dict[pa.Schema, Left] = {}
        pieces = []
        for coded in stages:
            schema = coded.rows.schema
            if schema not in left:
                left[schema] = stack.enter_context(Left(handover, schema))
            pieces.append(pack(coded, left[schema], numbers))
    if any(batch.num_rows for batch in pieces):  # some tasks have only rows that are passed over
        yield _listed(pa.Table.from_batches(pieces), handover)


def _task_number() -> int:
    context = TaskContext.get()
    return 0 if context is None else context.partitionId()


def _listed(pieces: pa.Table, handover: Handover) -> pa.RecordBatch:
    """Leave the list of a task's pieces; return where it lies, and what they sum up to."""
    sums = {name: pa.array([sum(pieces[name].to_pylist())], pa.int64()) for name in SUMS}
    place = leave(pieces.combine_chunks().to_batches(), handover)
    return pa.RecordBatch.from_pydict({**sums, "place": place})


def _chunks(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    pending: list[pa.RecordBatch] = []
    size_bytes = 0
    for batch in batches:
        if not batch.num_rows:
            continue
        pending.append(batch)
        size_bytes += bytes_of(batch)
        if size_bytes > CHUNK_BYTES:
            yield pa.Table.from_batches(pending)
            pending, size_bytes = [], 0
    if pending:
        yield pa.Table.from_batches(pending)


def _a_few(pieces: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Cut pieces into batches that Spark has memory for from its pool: it fetches, and gives back, more each time."""
    at_once = SENT_BYTES // PIECE_BYTES
    for start in range(0, pieces.num_rows, at_once):
        yield pieces.slice(start, at_once)


def pack(coded: Coded, outlet: Outlet, numbers: Iterator[int]) -> pa.RecordBatch:
    """Cut rows into pieces of one code each."""
    rows_max = None
    if outlet.piece_bytes is not None:
        rows_max = max(1, outlet.piece_bytes * len(coded.codes) // max(1, bytes_of(coded.rows)))
    starts = coded.starts(rows_max)
    pieces = list(coded.pieces(starts))
    high, low = coded.hashes >> np.uint64(32), coded.hashes & np.uint64(0xFFFFFFFF)
    return pa.RecordBatch.from_arrays(
        [
            pa.array(coded.codes[starts]),
            pa.array([piece.group and piece.group[0] for piece in pieces], pa.string()),
            pa.array([piece.group and piece.group[1] for piece in pieces], pa.string()),
            pa.array([piece.rows.num_rows for piece in pieces], pa.int64()),
            pa.array(np.add.reduceat(high, starts).astype(np.int64) if starts else [], pa.int64()),
            pa.array(np.add.reduceat(low, starts).astype(np.int64) if starts else [], pa.int64()),
            outlet.put(piece.rows for piece in pieces),
            pa.array([next(numbers) for _ in pieces], pa.int64()),
        ],
        names=["code", "partition", "file_id", "rows", "high", "low", "data", "number"],
    )


class Outlet(Protocol):
    """Where a task puts its pieces."""

    @property
    def piece_bytes(self) -> int | None:
        """About the most that a piece should have."""

    def put(self, pieces: Iterable[pa.RecordBatch]) -> pa.BinaryArray:
        """Return what Spark is to carry of each piece."""


@dataclass(frozen=True, slots=True)
class Sent:
    """Pieces that Spark carries."""

    piece_bytes: int = PIECE_BYTES

    def put(self, pieces: Iterable[pa.RecordBatch]) -> pa.BinaryArray:
        """Write pieces one behind the other into one buffer: many that grow cost the system more than they hold."""
        sink = pa.BufferOutputStream()
        ends = [0]
        for rows in pieces:
            with pa.ipc.new_stream(sink, rows.schema) as stream:
                stream.write_batch(rows)
            ends.append(sink.tell())
        offsets = pa.py_buffer(np.array(ends, np.int32))
        return pa.BinaryArray.from_buffers(pa.binary(), len(ends) - 1, [None, offsets, sink.getvalue()])


class Left:
    """Pieces that stay in a file of the task's."""

    piece_bytes = None

    def __init__(self, handover: Handover, schema: pa.Schema) -> None:
        self._name, self._sink = handover.create()
        self._stream = pa.ipc.new_stream(self._sink, schema)
        # The schema is written with the first batch, and is not to be taken for a part of a piece.
        self._stream.write_batch(pa.RecordBatch.from_pylist([], schema))

    def __enter__(self) -> Left:
        return self

    def __exit__(self, *_: object) -> None:
        self._stream.close()
        self._sink.close()

    def put(self, pieces: Iterable[pa.RecordBatch]) -> pa.BinaryArray:
        ends = [self._sink.tell()]
        for rows in pieces:
            self._stream.write_batch(rows)
            ends.append(self._sink.tell())
        places = [_Place(self._name, start, stop - start) for start, stop in pairwise(ends)]
        return pa.array([place.render() for place in places], pa.binary())


def leave(batches: Sequence[pa.RecordBatch], handover: Handover) -> pa.BinaryArray:
    """Put batches, which have one schema, into a file of their own; return where each of them lies."""
    with Left(handover, batches[0].schema) as left:
        return left.put(batches)


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a piece, or a list of pieces, lies."""

    file: str
    offset: int
    length: int

    def render(self) -> bytes:
        return f"{self.file} {self.offset} {self.length}".encode()

    @classmethod
    def parse(cls, data: bytes) -> _Place:
        file, offset, length = data.decode().split(" ")
        return cls(file, int(offset), int(length))


def share_out_pieces(pieces: pa.Table) -> tuple[pa.RecordBatch, ...]:
    """Sort pieces by their codes, and divide them among the tasks that are to write them."""
    codes = pieces["code"].to_numpy()
    order = np.argsort(codes, kind="stable")
    ordered = pieces.select(["code", "partition", "file_id", "data"]).take(pa.array(order)).combine_chunks()
    changes = np.flatnonzero(np.diff(codes[order] >> GROUP_BITS)) + 1
    bounds = pairwise([0, *changes.tolist(), len(codes)])
    return tuple(batch for start, stop in bounds for batch in ordered.slice(start, stop - start).to_batches())


def unpack(batches: Iterable[pa.RecordBatch], handover: Handover | None) -> Iterator[Piece]:
    """Turn lines that tell of pieces back into these."""
    rows_of = received if handover is None else fetching(handover)
    for batch in batches:
        columns = (batch.column(name).to_pylist() for name in ("code", "partition", "file_id"))
        for code, partition, file_id, data in zip(*columns, batch.column("data"), strict=True):
            yield Piece(code, None if partition is None else (partition, file_id), rows_of(data.as_buffer()))


def received(data: pa.Buffer) -> pa.RecordBatch:
    return pa.ipc.open_stream(data).read_next_batch()


def fetching(handover: Handover) -> Callable[[bytes | pa.Buffer], pa.RecordBatch]:
    """Return what fetches the batch that lies at a place."""

    @lru_cache(FILES_OPEN_MAX)
    def opened(name: str) -> tuple[pa.NativeFile, pa.Schema]:
        file = handover.open(name)
        return file, pa.ipc.open_stream(file).schema

    def fetch(where: bytes | pa.Buffer) -> pa.RecordBatch:
        place = _Place.parse(bytes(where))
        file, schema = opened(place.file)
        file.seek(place.offset)
        return pa.ipc.read_record_batch(file.read_buffer(place.length), schema)

    return fetch
