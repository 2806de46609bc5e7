"""From what a caller asks to Arrow batches: query, prune, plan, task."""

from bucketlake.read.filters import Filter, Op, RawFilter, parse_filters
from bucketlake.read.lookup import Key, lookup, read_all, record_keys_of
from bucketlake.read.path_columns import values_of_path
from bucketlake.read.plan import ReadPlan, pack_slices, plan_lookup, plan_read
from bucketlake.read.query import Query, make_query
from bucketlake.read.settled import changes_until, unpublished_commit
from bucketlake.read.task import ReadContext, read_slice
from bucketlake.read.verify import check_buckets

__all__ = [
    "Filter",
    "Key",
    "Op",
    "Query",
    "RawFilter",
    "ReadContext",
    "ReadPlan",
    "changes_until",
    "check_buckets",
    "lookup",
    "make_query",
    "pack_slices",
    "parse_filters",
    "plan_lookup",
    "plan_read",
    "read_all",
    "read_slice",
    "record_keys_of",
    "unpublished_commit",
    "values_of_path",
]
