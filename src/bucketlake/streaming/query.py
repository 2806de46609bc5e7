"""A query that upserts into a table: checked before it starts, and started."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from bucketlake import spark as on_spark
from bucketlake.errors import ConfigError, shown
from bucketlake.streaming.batch_writer import BatchWriter
from bucketlake.writes import check_rows_fit

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

Trigger: TypeAlias = str | Mapping[str, object] | None
"""When batches begin: `10 seconds`, `available now`, `once`, or what Spark's `trigger` takes, as a mapping."""

_KNOWN = ("processingTime", "availableNow", "once")


def start_query(frame: DataFrame, writer: BatchWriter, trigger: Trigger) -> StreamingQuery:
    """Start a query that gives every batch of `frame` to `writer`."""
    if not getattr(frame, "isStreaming", False):
        raise ConfigError(
            "the frame is not a stream; expected one of spark.readStream. table.upsert(frame) writes a frame that is "
            "all there."
        )
    check_rows_fit(writer.store, on_spark.arrow_schema(frame.schema.jsonValue()), writer.told, writer.options)
    started = frame.writeStream.foreachBatch(writer).option("checkpointLocation", writer.checkpoint)
    if writer.name:
        started = started.queryName(writer.name)
    words = trigger_of(trigger)
    if words:
        started = started.trigger(**words)
    return started.start()


def trigger_of(trigger: Trigger) -> dict[str, Any]:
    """Turn a caller's word for a trigger into what Spark takes.

    >>> trigger_of("10 seconds"), trigger_of("available now"), trigger_of(None)
    ({'processingTime': '10 seconds'}, {'availableNow': True}, {})
    """
    if trigger is None:
        return {}
    if isinstance(trigger, str):
        word = trigger.strip().lower().replace("_", " ").replace("availablenow", "available now")
        if word == "available now":
            return {"availableNow": True}
        if word == "once":
            return {"once": True}
        return {"processingTime": trigger.strip()}
    if isinstance(trigger, Mapping) and len(trigger) == 1 and set(trigger) <= set(_KNOWN):
        return dict(trigger)
    raise ConfigError(
        f"trigger is {shown(trigger)}; expected a text such as '10 seconds' or 'available now', or one of "
        f"{', '.join(_KNOWN)} as a mapping. Continuous and real-time queries have no batches to commit."
    )
