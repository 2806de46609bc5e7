"""Several versions of a record become one, by Hudi's rules.

`merge_slice` does it for a file slice, columns at a time. `twin` does the same
record by record, for people and for tests.
"""

from bucketlake.merge.rules import MergeRules
from bucketlake.merge.slice import merge_slice

__all__ = ["MergeRules", "merge_slice"]
