"""Python Data Source: `spark.read.format("bucketlake")`."""

from bucketlake.datasource.reader import BucketlakeSource

__all__ = ["BucketlakeSource"]
