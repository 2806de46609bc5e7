"""Keyed upserts into Apache Hudi tables from PySpark, without Hudi's jar.

from bucketlake import Table

table = Table.open("/data/orders")
table.read(spark, columns=["order_id", "amount"], filters=[("dt", "=", "2026-06-18")])
table.get("o-0000000000000001")
"""

from importlib.metadata import version as _version

from bucketlake.checkup import doctor
from bucketlake.errors import (
    BucketlakeError,
    CommitConflictError,
    ConcurrentWriteError,
    ConfigError,
    ConflictError,
    CorruptTableError,
    DamagedFileError,
    FilterError,
    InstantError,
    LayoutMismatchError,
    NotATableError,
    ProofError,
    SchemaError,
    SetupError,
    TableExistsError,
    UnsafePathError,
    UnsupportedError,
)
from bucketlake.index import (
    ConsistentBuckets,
    DynamicBuckets,
    ExtendibleBuckets,
    PartitionBuckets,
    RecordIndex,
    SimpleBuckets,
    register_engine,
    register_rule_type,
)
from bucketlake.read import Filter, Op
from bucketlake.services import CompactionTrigger, Maintenance, ResizeTrigger, Retention
from bucketlake.spark import SPARK_SETTINGS
from bucketlake.sql import sql
from bucketlake.storage import memory_in_use, set_index_cache, set_memory_budget
from bucketlake.table import Table, advise, create_table, parquet_files

__all__ = [
    "SPARK_SETTINGS",
    "BucketlakeError",
    "CommitConflictError",
    "CompactionTrigger",
    "ConcurrentWriteError",
    "ConfigError",
    "ConflictError",
    "ConsistentBuckets",
    "CorruptTableError",
    "DamagedFileError",
    "DynamicBuckets",
    "ExtendibleBuckets",
    "Filter",
    "FilterError",
    "InstantError",
    "LayoutMismatchError",
    "Maintenance",
    "NotATableError",
    "Op",
    "PartitionBuckets",
    "ProofError",
    "RecordIndex",
    "ResizeTrigger",
    "Retention",
    "SchemaError",
    "SetupError",
    "SimpleBuckets",
    "Table",
    "TableExistsError",
    "UnsafePathError",
    "UnsupportedError",
    "advise",
    "create_table",
    "doctor",
    "memory_in_use",
    "parquet_files",
    "register_engine",
    "register_rule_type",
    "set_index_cache",
    "set_memory_budget",
    "sql",
]

__version__ = _version("bucketlake")
