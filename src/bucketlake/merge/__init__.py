"""Several versions of a record become one, by Hudi's rules.

`merge_slice` does it for a file slice, columns at a time. `twin` does the same
record by record, for people and for tests.
"""

from bucketlake.merge.rules import MergeRules
from bucketlake.merge.slice import SliceMerge, merge_slice
from bucketlake.merge.winners import Winners, fold_logs

__all__ = ["MergeRules", "SliceMerge", "Winners", "fold_logs", "merge_slice"]
