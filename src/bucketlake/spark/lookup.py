"""Rows of a table by the keys of other rows, on the cluster: where those are too many for one process to look up."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial

import pyarrow as pa
from pyspark.sql import DataFrame

from bucketlake.keygen import KeyGenerator
from bucketlake.schema import RECORD_KEY_COLUMN
from bucketlake.spark.types import ddl
from bucketlake.spark.worker import settle_worker
from bucketlake.spark.write import SparkRows
from bucketlake.write import tops_of

_SPELLED = pa.schema([(RECORD_KEY_COLUMN, pa.string())])


def rows_with_keys(stored: DataFrame, wanted: SparkRows, keys: KeyGenerator) -> DataFrame:
    """Return the rows of `stored`, which is of a table and has their record keys, whose key a row of `wanted` has too.

    Keys are compared as the table spells them: Spark would take a text and a number for the same, and two nulls not.
    """
    columns = wanted.frame(tops_of(keys.record_key_fields))
    spelled = columns.mapInArrow(partial(_spell, keys=keys), ddl(_SPELLED))
    return stored.join(spelled, RECORD_KEY_COLUMN, "left_semi").drop(RECORD_KEY_COLUMN)


def _spell(batches: Iterable[pa.RecordBatch], *, keys: KeyGenerator) -> Iterator[pa.RecordBatch]:
    settle_worker()
    for batch in batches:
        yield pa.RecordBatch.from_arrays([keys.record_keys(batch)], schema=_SPELLED)
