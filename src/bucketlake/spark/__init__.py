"""Where frames meet the core: reads planned below become DataFrames here."""

from bucketlake.spark.read import scan, split_by_reader
from bucketlake.spark.types import ddl

__all__ = ["ddl", "scan", "split_by_reader"]
