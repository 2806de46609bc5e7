"""From what a caller asks to Arrow batches: query, prune, plan, task."""

from bucketlake.read.as_completed import BEGINNING, oldest_begin, place_of, plan_completed
from bucketlake.read.by_values import AskedIndex, check_indexed
from bucketlake.read.changed import (
    Change,
    ChangeKinds,
    ChangePlan,
    Comparison,
    is_service,
    plan_comparisons,
    read_comparison,
    with_change,
)
from bucketlake.read.filters import Filter, Op, RawFilter, parse_filters
from bucketlake.read.lookup import Key, lookup, read_all, read_by_keys, record_keys_of
from bucketlake.read.path_columns import values_of_path
from bucketlake.read.plan import ReadPlan, pack_slices, plan_lookup, plan_read
from bucketlake.read.query import Query, make_query
from bucketlake.read.settled import changes_until, unpublished_commit
from bucketlake.read.task import ReadContext, read_slice
from bucketlake.read.verify import check_buckets

__all__ = [
    "BEGINNING",
    "AskedIndex",
    "Change",
    "ChangeKinds",
    "ChangePlan",
    "Comparison",
    "Filter",
    "Key",
    "Op",
    "Query",
    "RawFilter",
    "ReadContext",
    "ReadPlan",
    "changes_until",
    "check_buckets",
    "check_indexed",
    "is_service",
    "lookup",
    "make_query",
    "oldest_begin",
    "pack_slices",
    "parse_filters",
    "place_of",
    "plan_comparisons",
    "plan_completed",
    "plan_lookup",
    "plan_read",
    "read_all",
    "read_by_keys",
    "read_comparison",
    "read_slice",
    "record_keys_of",
    "unpublished_commit",
    "values_of_path",
    "with_change",
]
