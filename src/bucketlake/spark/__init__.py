"""Where frames meet the core: reads planned below become DataFrames here, and frames become writes."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

from bucketlake.spark.ddl_parser import parse_ddl
from bucketlake.spark.python import name_this_python
from bucketlake.spark.settings import SPARK_SETTINGS
from bucketlake.spark.types import arrow_schema, ddl
from bucketlake.spark.worker import settle_worker
from bucketlake.spark.zones import in_zone_of

if TYPE_CHECKING:
    from bucketlake.spark import (
        conditions,
        files,
        fitting,
        local,
        lookup,
        merge,
        merge_reads,
        plain_reads,
        read,
        services,
        snapshot,
        write,
    )

__all__ = [
    "SPARK_SETTINGS",
    "arrow_schema",
    "conditions",
    "ddl",
    "files",
    "fitting",
    "in_zone_of",
    "local",
    "lookup",
    "merge",
    "merge_reads",
    "parse_ddl",
    "plain_reads",
    "read",
    "services",
    "settle_worker",
    "snapshot",
    "write",
]

name_this_python()  # before a session is made, which is when Spark asks

_NEED_PYSPARK = frozenset(
    {
        "conditions",
        "files",
        "fitting",
        "local",
        "lookup",
        "merge",
        "merge_reads",
        "plain_reads",
        "read",
        "services",
        "snapshot",
        "write",
    }
)


def __getattr__(name: str) -> ModuleType:
    """Import what needs pyspark when it is first asked for: fetching one row should not."""
    if name in _NEED_PYSPARK:
        return import_module(f"bucketlake.spark.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
