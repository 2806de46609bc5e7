"""Rows to be written by Spark: packed by file group, brought to the writing tasks, written.

    rows  ── pack ──> pieces, each of one file group: its rows as Arrow bytes, their number and key sum
          ── shuffle, or direct ──> pieces of a file group in one task, in one run
          ── write_groups ──> one file per file group, one report each

A frame is evaluated once, and its rows are held nowhere whole. They cross from rows to columns once, on their way
to the tagger; from there on there are pieces. Where tasks share a disk, pieces stay on it, and the driver directs the
writing tasks to theirs; elsewhere Spark shuffles them, and a piece costs it what a row does.
"""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from threading import Lock
from typing import Any, ClassVar

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as F  # noqa: N812 # the name everybody gives it

from bucketlake import errors
from bucketlake.errors import ConfigError
from bucketlake.layout.names import pieces_folder
from bucketlake.spark.pieces import SUMS, carried, fetching, leave, pack_rows, share_out_pieces, unpack
from bucketlake.spark.progress import watched
from bucketlake.spark.python import WORKERS_PYTHON, settle_python
from bucketlake.spark.types import arrow_schema, quoted
from bucketlake.spark.worker import settle_worker
from bucketlake.storage import Handover, handover_in
from bucketlake.write import (
    GROUP_BITS,
    GroupWritten,
    KeySum,
    WriteState,
    columns_to_write,
    received_sum,
    write_groups,
)

BATCH_ROWS = 1_000
"""Rows of a frame that are sent to a task at once."""

# What sessions had before; several writes of one session may be under way.
_before: dict[int, tuple[int, dict[str, str | None]]] = {}
_before_guard = Lock()

REPORT = "report STRING"
_WRONG_PYTHON = re.compile(
    r"No module named '(bucketlake|pyarrow|numba)[^']*'|\[PYTHON_VERSION_MISMATCH\][^\n]*|Cannot run program [^\n]*"
)
_OWN_ERROR = re.compile(r"bucketlake\.errors\.(\w+): (.*)")


class SparkRows(ABC):
    """Rows that Spark's tasks write: a subclass says where they come from."""

    are_at_hand = False
    batch_limits: ClassVar[Mapping[str, str]]
    """Spark's settings for how much is sent to a task at once."""

    def __init__(self, session: SparkSession, schema: pa.Schema, *, progress: bool | None) -> None:
        settle_python(session)
        self.session = session
        self._progress = progress
        self.schema = schema

    @abstractmethod
    def frame(self, columns: Sequence[str]) -> DataFrame:
        """Return some columns of the rows as a frame."""

    def distinct(self, columns: Sequence[str]) -> pa.Table:
        with own_errors():
            return self.frame(columns).distinct().toArrow()

    @abstractmethod
    def packed(self, columns: Sequence[str], state: WriteState, handover: Handover | None) -> DataFrame:
        """Return a frame of what `pack_rows` makes of these columns of the rows."""

    @property
    def cores(self) -> int:
        return cores_of(self.session)

    def run(self, plan: WriteState) -> tuple[KeySum, tuple[GroupWritten, ...]]:
        # Tagging needs no file groups, and they are most of what there is to send.
        for_tags = replace(plan, groups={}, partitions=frozenset())
        handover = handover_in(plan.store, pieces_folder(plan.instant))
        pieces = self.packed(columns_to_write(self.schema.names, plan), for_tags, handover)
        watch = watched(self.session, plan.operation.lower(), show=self._progress)
        with own_errors(), _settings(self.session, self.batch_limits), watch:
            if handover is None:
                return _shuffle_and_write(pieces, plan)
            with handover.opened():
                return _direct_and_write(self.session, pieces, plan, handover)


def _shuffle_and_write(pieces: DataFrame, plan: WriteState) -> tuple[KeySum, tuple[GroupWritten, ...]]:
    """Let Spark carry the pieces to the tasks that write them."""
    observation = Observation()
    together = (
        pieces.observe(observation, *_sums())
        .select("code", "partition", "file_id", "data")
        .repartitionById(plan.tasks, F.shiftright(F.col("code"), GROUP_BITS).cast("int"))
        .sortWithinPartitions("code")
    )
    written = _reports(together.mapInArrow(partial(_write_pieces, state=plan), REPORT))
    # Spark drops an observation with the plan of a frame that it knows to be empty.
    sent = _key_sum(observation.get) if written else None
    if sent != received_sum(written):
        # A task that ran again, because an executor was lost, was observed twice: count anew, and exactly.
        counted = pieces.agg(*_sums()).first()
        assert counted is not None
        sent = _key_sum(counted.asDict())
    return sent, written


def _direct_and_write(
    session: SparkSession, lists: DataFrame, plan: WriteState, handover: Handover
) -> tuple[KeySum, tuple[GroupWritten, ...]]:
    """Let tasks leave the pieces on the disk; then tell those that write where theirs are."""
    lines = lists.collect()
    sent = _key_sum({name: sum(line[name] for line in lines) for name in SUMS})
    if not lines:
        return sent, ()
    pieces = pa.Table.from_batches(map(fetching(handover), [line["place"] for line in lines]))
    places = leave(share_out_pieces(pieces), handover).to_pylist()
    numbers = session.range(0, len(places), 1, len(places))
    write = partial(_write_shares, places=places, state=plan, handover=handover)
    return sent, _reports(numbers.mapInArrow(write, REPORT))


def _reports(frame: DataFrame) -> tuple[GroupWritten, ...]:
    return tuple(GroupWritten(**json.loads(report[0])) for report in frame.collect())


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

    def frame(self, columns: Sequence[str]) -> DataFrame:
        return self._frame.select(*(F.col(quoted(name)) for name in columns))

    def packed(self, columns: Sequence[str], state: WriteState, handover: Handover | None) -> DataFrame:
        pack = partial(pack_rows, state=state, handover=handover)
        return self.frame(columns).mapInArrow(pack, carried(handover))


def _write_pieces(
    batches: Iterable[pa.RecordBatch], *, state: WriteState, handover: Handover | None = None
) -> Iterator[pa.RecordBatch]:
    settle_worker()
    for group in write_groups(unpack(batches, handover), state):
        yield pa.RecordBatch.from_pydict({"report": [json.dumps(group.as_dict())]})


def _write_shares(
    batches: Iterable[pa.RecordBatch],
    *,
    places: Sequence[bytes],
    state: WriteState,
    handover: Handover,
) -> Iterator[pa.RecordBatch]:
    """Write the shares whose numbers arrive: one number, one task."""
    for batch in batches:
        for number in batch.column(0).to_pylist():
            share = fetching(handover)(places[number])
            yield from _write_pieces([share], state=state, handover=handover)


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
    return [F.sum(name).alias(name) for name in SUMS]


def _key_sum(sums: Mapping[str, Any]) -> KeySum:
    total = ((sums["high"] or 0) << 32) + (sums["low"] or 0)
    return KeySum(sums["rows"] or 0, total % (1 << 64))


@contextmanager
def own_errors() -> Iterator[None]:
    """Raise an error of ours that a task met as itself, instead of as a page of Spark's."""
    try:
        yield
    except PySparkException as error:
        if wrong := _WRONG_PYTHON.search(str(error)):
            raise ConfigError(
                f"Spark's executors cannot run bucketlake: {wrong[0]}. They need a Python that has it, of the version "
                f"that the driver has. Set PYSPARK_PYTHON to its path there before the session is made, or "
                f'spark.conf.set("{WORKERS_PYTHON}", path).'
            ) from error
        found = _OWN_ERROR.findall(str(error))
        kind = getattr(errors, found[-1][0], None) if found else None
        if kind is None:
            raise
        own: Exception = kind.__new__(kind)
        Exception.__init__(own, found[-1][1])
        raise own from None
