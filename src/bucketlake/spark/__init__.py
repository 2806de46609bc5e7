"""Where frames meet the core: reads planned below become DataFrames here, and frames become writes."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from types import ModuleType
from typing import TYPE_CHECKING

from bucketlake.errors import SetupError
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
        workers,
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
    "workers",
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
        "workers",
        "write",
    }
)


@cache
def _check_pyspark() -> None:
    try:
        found = version("pyspark")
    except PackageNotFoundError:
        raise SetupError("PySpark is not installed. Install it: pip install 'pyspark>=4.1,<4.2'") from None
    if tuple(int(number) for number in found.split(".")[:2]) < (4, 1):
        raise SetupError(
            f"PySpark is {found}, and bucketlake needs 4.1 or newer: pip install 'pyspark>=4.1,<4.2'. Rows in memory "
            f"are written and read without Spark."
        )


def __getattr__(name: str) -> ModuleType:
    """Import what needs pyspark when it is first asked for: fetching one row should not."""
    if name in _NEED_PYSPARK:
        _check_pyspark()
        return import_module(f"bucketlake.spark.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
