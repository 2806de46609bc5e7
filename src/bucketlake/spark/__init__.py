"""Where frames meet the core: reads planned below become DataFrames here."""

from bucketlake.spark.read import scan, split_by_reader
from bucketlake.spark.types import ddl
from bucketlake.spark.worker import settle_worker

__all__ = ["ddl", "scan", "settle_worker", "split_by_reader"]
