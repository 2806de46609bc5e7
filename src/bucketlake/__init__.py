"""Keyed upserts into Apache Hudi tables from PySpark, without Hudi's jar.

from bucketlake import Table

table = Table.open("/data/orders")
table.read(spark, columns=["order_id", "amount"], filters=[("dt", "=", "2026-06-18")])
table.get("o-0000000000000001")
"""

from bucketlake.errors import (
    BucketlakeError,
    ConfigError,
    CorruptTableError,
    FilterError,
    NotATableError,
    UnsafePathError,
    UnsupportedError,
)
from bucketlake.read import Filter, Op
from bucketlake.table import Table

__all__ = [
    "BucketlakeError",
    "ConfigError",
    "CorruptTableError",
    "Filter",
    "FilterError",
    "NotATableError",
    "Op",
    "Table",
    "UnsafePathError",
    "UnsupportedError",
]
