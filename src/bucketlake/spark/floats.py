"""Floats that Spark's Parquet reader returns, and skips nothing by.

Spark hands conditions down to its reader, which leaves out row groups by the range and the dictionary of a column.
Of floats neither can be trusted. Most writers leave NaN out of a range, which to Spark is above every number; and
`x = 0` finds no 0 in a dictionary that has -0.0, which to Spark is the same. What stands in an expression is not
handed down: here each float goes through one that changes nothing.
"""

from __future__ import annotations

import math

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as fn

from bucketlake.spark.types import quoted


def shield_floats(frame: DataFrame, schema: pa.Schema) -> DataFrame:
    """Return the same rows, in a frame whose conditions on floats are not handed down; `schema` has its types."""
    columns = [frame[quoted(name)] for name in frame.columns]
    kinds = [schema.field(name).type for name in frame.columns]
    if not any(map(_has_floats, kinds)):
        return frame
    return frame.select(
        *(
            _shielded(column, kind).alias(name) if _has_floats(kind) else column
            for name, column, kind in zip(frame.columns, columns, kinds, strict=True)
        )
    )


def _has_floats(kind: pa.DataType) -> bool:
    """Say whether there are floats that a condition can name: not those in lists and maps."""
    if pa.types.is_struct(kind):
        return any(_has_floats(field.type) for field in kind)
    return bool(pa.types.is_floating(kind))


def _shielded(column: Column, kind: pa.DataType) -> Column:
    if pa.types.is_floating(kind):
        return fn.nanvl(column, fn.lit(math.nan).cast("float" if pa.types.is_float32(kind) else "double"))
    # The fields that stay are still read alone, where only they are asked for.
    for field in kind:
        if _has_floats(field.type):
            column = column.withField(quoted(field.name), _shielded(column.getField(field.name), field.type))
    return column
