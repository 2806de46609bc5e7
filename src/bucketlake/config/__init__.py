"""What a table is: its properties, typed and checked once."""

from bucketlake.config.java_properties import parse_java_properties, render_java_properties
from bucketlake.config.persist import create_properties, update_properties
from bucketlake.config.properties import (
    BACKUP_PATH,
    PROPERTIES_PATH,
    BucketEngine,
    KeyGeneratorType,
    MergeMode,
    TableProperties,
    TableType,
    TimelineTimezone,
    TimestampKeyConfig,
    TimestampType,
    load_properties,
    parse_engine,
    table_checksum,
)

__all__ = [
    "BACKUP_PATH",
    "PROPERTIES_PATH",
    "BucketEngine",
    "KeyGeneratorType",
    "MergeMode",
    "TableProperties",
    "TableType",
    "TimelineTimezone",
    "TimestampKeyConfig",
    "TimestampType",
    "create_properties",
    "load_properties",
    "parse_engine",
    "parse_java_properties",
    "render_java_properties",
    "table_checksum",
    "update_properties",
]
