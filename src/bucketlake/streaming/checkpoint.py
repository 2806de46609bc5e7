"""A checkpoint says which stream it is of: Spark writes the id of the query there before the first batch.

    <checkpoint>/metadata    {"id": "2f9d7a3e-…"}

It is the same after every restart, and another in every new checkpoint, whatever the query is called. Where Spark says
which query a batch is of, it must be that one: by the numbers of another query's batches, rows would be passed over.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from bucketlake.errors import ConfigError, UnsupportedError
from bucketlake.storage import open_store

METADATA = "metadata"
_RUNNING = "sql.streaming.queryId"
"""Spark's name, among the local properties of a query's thread."""


def query_id(checkpoint: str, session: SparkSession, storage_options: Mapping[str, str] | None = None) -> str:
    """Return the id of the query whose checkpoint this is."""
    text = _read(checkpoint, session, storage_options)
    try:
        return str(json.loads(text)["id"])
    except (ValueError, KeyError, TypeError):
        raise ConfigError(
            f"the file metadata of the checkpoint {checkpoint!r} holds {text[:80]!r}; expected the id of a query, as "
            f"Spark writes it. Give the folder that the query has as its checkpointLocation."
        ) from None


def check_query(stream: str, checkpoint: str, session: SparkSession) -> None:
    """Refuse a batch of another query than the one that the checkpoint is of."""
    running = _running_query(session)
    if running is not None and running != stream:
        raise ConfigError(
            f"this batch is one of the query {running}, and the checkpoint {checkpoint!r} is that of the query "
            f"{stream}. Give the folder that the query has as its checkpointLocation, and a path that is not relative: "
            f"Spark may take that from another working directory."
        )


def _running_query(session: SparkSession) -> str | None:
    """Return the id of the query that this thread is at a batch of; None if Spark does not say it."""
    try:
        found = session.sparkContext.getLocalProperty(_RUNNING)
    except (PySparkException, AttributeError):  # Spark Connect has no such properties
        return None
    return None if found is None else str(found)


def _read(checkpoint: str, session: SparkSession, storage_options: Mapping[str, str] | None) -> str:
    try:
        return open_store(checkpoint, storage_options).read(METADATA).decode()
    except UnsupportedError:
        return _read_by_spark(checkpoint, session)  # a file system that only Spark knows
    except FileNotFoundError:
        if ":" in checkpoint.partition("/")[0]:
            raise _no_checkpoint(checkpoint) from None
        # Spark may take the path for one of its default file system, or from another working directory.
        return _read_by_spark(checkpoint, session)
    except (OSError, UnicodeDecodeError) as fault:
        raise _not_read(checkpoint, fault) from fault


def _read_by_spark(checkpoint: str, session: SparkSession) -> str:
    try:
        lines = session.read.text(f"{checkpoint.rstrip('/')}/{METADATA}").collect()
    except Exception as fault:  # of a client, of Spark, or of the JVM below it, in classes of its own each
        if isinstance(fault, PySparkException) and fault.getCondition() == "PATH_NOT_FOUND":
            raise _no_checkpoint(checkpoint) from fault
        raise _not_read(checkpoint, fault) from fault
    return "\n".join(line[0] for line in lines)


def _no_checkpoint(checkpoint: str) -> ConfigError:
    return ConfigError(
        f"{checkpoint!r} is no checkpoint: it has no file metadata. Give the folder that the query has as its "
        f"checkpointLocation; by it, and by the number of a batch, a batch is known that was written before."
    )


def _not_read(checkpoint: str, fault: Exception) -> ConfigError:
    reason = str(fault).strip().partition("\n")[0][:300]
    return ConfigError(
        f"the file metadata of the checkpoint {checkpoint!r} could not be read: {reason or type(fault).__name__}. It "
        f"says which stream this is. Nothing was written; see that this process may read it, and start the query again."
    )
