"""Rows to be written by Spark: where they come from, and through which exchange they go.

A frame is evaluated once, and its rows are held nowhere whole. They cross from rows to columns once, on their way to
the task that gives them codes; from there on there are pieces (`spark/exchange.py`).
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from typing import ClassVar

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 # the name everybody gives it

from bucketlake import errors
from bucketlake.errors import ConfigError
from bucketlake.layout.names import pieces_folder
from bucketlake.spark.exchange import ByFiles, ByShuffle
from bucketlake.spark.pieces import SUMS, carried, pack_rows
from bucketlake.spark.progress import watched
from bucketlake.spark.python import WORKERS_PYTHON, settle_python
from bucketlake.spark.set_for_a_while import set_for_a_while
from bucketlake.spark.types import arrow_schema, quoted
from bucketlake.storage import Handover, handover_in
from bucketlake.write import Cut, KeySum, Ran, WriteState, write_through

BATCH_ROWS = 1_000
"""Rows of a frame that are sent to a task at once."""

_WRONG_PYTHON = re.compile(
    r"No module named '(bucketlake|pyarrow|numba)[^']*'|\[PYTHON_VERSION_MISMATCH\][^\n]*|Cannot run program [^\n]*"
)
_OWN_ERROR = re.compile(r"bucketlake\.errors\.(\w+): (.*?)(?= SQLSTATE: \w+$|$)", re.MULTILINE)


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
    def packed(self, columns: Sequence[str], cut: Cut, handover: Handover | None) -> DataFrame:
        """Return a frame of what `pack_rows` makes of these columns of the rows."""

    @property
    def cores(self) -> int:
        return cores_of(self.session)

    def run(self, plan: WriteState) -> Ran:
        handover = handover_in(plan.store, pieces_folder(plan.instant))
        watch = watched(self.session, plan.operation.lower(), show=self._progress)
        with own_errors(), set_for_a_while(self.session, self.batch_limits), watch, ExitStack() as stack:
            if handover is None:
                shuffle = stack.enter_context(closing(ByShuffle(self.session, self.packed)))
                return write_through(shuffle, self.schema.names, plan)
            stack.enter_context(handover.opened())
            return write_through(ByFiles(self.session, self.packed, handover), self.schema.names, plan)

    def key_sum(self, columns: Sequence[str], cut: Cut) -> KeySum:
        with own_errors(), set_for_a_while(self.session, self.batch_limits):
            sums = self.packed(columns, cut, None).agg(*(F.sum(name) for name in SUMS)).first()
        rows, high, low = (int(value or 0) for value in sums or (0, 0, 0))
        return KeySum(rows, ((high << 32) + low) % (1 << 64))


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

    def packed(self, columns: Sequence[str], cut: Cut, handover: Handover | None) -> DataFrame:
        pack = partial(pack_rows, cut=cut, handover=handover)
        return self.frame(columns).mapInArrow(pack, carried(handover))


def cores_of(session: SparkSession) -> int:
    """Spark Connect does not tell how many tasks run at once; its setting for shuffles must do."""
    try:
        return int(session.sparkContext.defaultParallelism)
    except (PySparkException, AttributeError):
        return min(int(session.conf.get("spark.sql.shuffle.partitions", None) or 8), 16)


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
