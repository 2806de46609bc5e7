"""Python Data Source: `spark.read.format("bucketlake")`, and `df.write` for appending to merge-on-read tables."""

from bucketlake.datasource.source import BucketlakeSource

__all__ = ["BucketlakeSource"]
