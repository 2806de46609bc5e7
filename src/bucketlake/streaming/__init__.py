"""Streams into a table, each batch once.

checkpoint.py     which stream a checkpoint is of
stream.py         a stream, each of its batches once
batch_writer.py   what Spark calls for every batch
upkeep.py         services beside a stream, and how far behind they may be
query.py          a query that upserts into a table, started
progress.py       what became of each batch: a line, a frame, figures for Prometheus
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

from bucketlake.streaming import progress

if TYPE_CHECKING:
    from bucketlake.streaming import batch_writer, query

__all__ = ["batch_writer", "progress", "query"]

_NEED_PYSPARK = frozenset({"batch_writer", "query"})


def __getattr__(name: str) -> ModuleType:
    """Import what needs pyspark when it is first asked for, as `bucketlake.spark` does."""
    if name in _NEED_PYSPARK:
        return import_module(f"bucketlake.streaming.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
