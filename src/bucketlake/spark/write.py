"""A frame to be written: tagged, shuffled, and handed to the writing tasks.

    frame ── tag ──> task and key hash of every row       key columns only cross to Python
          ── shuffle ──> rows of a file group in one task, in one run
          ── write_groups ──> one file per file group, one report each

The frame is evaluated once, and its rows are held nowhere whole.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as F  # noqa: N812 # the name everybody gives it

from bucketlake import errors
from bucketlake.schema import META_COLUMNS
from bucketlake.spark.progress import watched
from bucketlake.spark.types import arrow_schema, quoted
from bucketlake.spark.worker import settle_worker
from bucketlake.write import (
    CODE_COLUMN,
    GROUP_BITS,
    NULL_FLAG_PREFIX,
    PASSED_OVER,
    GroupWritten,
    KeySum,
    Operation,
    WriteState,
    columns_without_null,
    key_columns,
    received_sum,
    tag,
    write_groups,
)

_TAG = "_bucketlake_tag"
_OWN_ERROR = re.compile(r"bucketlake\.errors\.(\w+): (.*)")


class FrameRows:
    """The rows of a frame, written by Spark's tasks."""

    def __init__(self, frame: DataFrame, *, progress: bool | None = None) -> None:
        self._frame = frame
        self._progress = progress
        self.schema = arrow_schema(frame.schema.jsonValue())

    @property
    def cores(self) -> int:
        return cores_of(self._frame.sparkSession)

    def distinct(self, columns: Sequence[str]) -> pa.Table:
        with own_errors():
            return self._frame.select(*(F.col(quoted(name)) for name in columns)).distinct().toArrow()

    def run(self, plan: WriteState) -> tuple[KeySum, tuple[GroupWritten, ...]]:
        tagged = _tagged(self._frame, self.schema, plan)
        if plan.only is not None:
            tagged = tagged.where(F.col(f"{_TAG}.code") != PASSED_OVER)
        columns = [F.col(quoted(name)) for name in tagged.columns if name != _TAG]
        observation = Observation()
        together = (
            tagged.observe(observation, *_sums())
            .select(*columns, F.col(f"{_TAG}.code").alias(CODE_COLUMN))
            .repartitionById(plan.tasks, F.shiftright(F.col(CODE_COLUMN), GROUP_BITS).cast("int"))
            .sortWithinPartitions(CODE_COLUMN)
        )
        session = self._frame.sparkSession
        with own_errors(), watched(session, plan.operation.lower(), show=self._progress):
            reports = together.mapInArrow(partial(_write_rows, state=plan), "report STRING").collect()
            written = tuple(GroupWritten(**json.loads(report[0])) for report in reports)
            sent = _key_sum(observation.get)
            if sent != received_sum(written):
                # A task that ran again, because an executor was lost, was observed twice: count anew, and exactly.
                counted = tagged.agg(*_sums()).first()
                assert counted is not None
                sent = _key_sum(counted.asDict())
        return sent, written


def cores_of(session: SparkSession) -> int:
    """Spark Connect does not tell how many tasks run at once; its setting for shuffles must do."""
    try:
        return int(session.sparkContext.defaultParallelism)
    except (PySparkException, AttributeError):
        return min(int(session.conf.get("spark.sql.shuffle.partitions", None) or 8), 16)


def _tagged(frame: DataFrame, schema: pa.Schema, plan: WriteState) -> DataFrame:
    """Add the tag to every row; only what keys are made from crosses to Python."""
    key_names = list(dict.fromkeys(name.partition(".")[0] for name in key_columns(plan.keys)))
    kept = [name for name in frame.columns if name not in META_COLUMNS]
    if plan.operation is Operation.DELETE:
        kept = key_names
    flags = [
        F.col(quoted(name) if name in schema.names else name).isNull().alias(NULL_FLAG_PREFIX + name)
        for name in columns_without_null(schema, plan)
    ]
    # Tagging needs no file groups, and they are most of what there is to send.
    for_tags = replace(plan, groups={}, partitions=frozenset())

    def tag_keys(columns: pa.Array) -> pa.Array:
        settle_worker()
        return tag(columns, for_tags)

    tagger = F.arrow_udf(tag_keys, "code BIGINT, key_hash BIGINT")  # type: ignore[attr-defined] # not in its stubs
    keys = F.struct(*(F.col(quoted(name)) for name in key_names), *flags)
    return frame.select(*(F.col(quoted(name)) for name in kept)).withColumn(_TAG, tagger(keys))


def _write_rows(batches: Iterable[pa.RecordBatch], *, state: WriteState) -> Iterator[pa.RecordBatch]:
    settle_worker()
    for group in write_groups(batches, state):
        yield pa.RecordBatch.from_pydict({"report": [json.dumps(group.as_dict())]})


def _sums() -> list[Column]:
    """The rows, and the sum of their keys' hashes in two halves: Spark refuses a sum of longs that overflows."""
    key_hash = F.col(f"{_TAG}.key_hash")
    return [
        F.count(F.lit(1)).alias("rows"),
        F.sum(F.shiftrightunsigned(key_hash, 32)).alias("high"),
        F.sum(key_hash.bitwiseAND(0xFFFFFFFF)).alias("low"),
    ]


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
