"""The module PySpark looks for by its name: it makes `format("bucketlake")` known without registration."""

from bucketlake.datasource import BucketlakeSource as DefaultSource

__all__ = ["DefaultSource"]
