"""A write: decided on the driver, done by tasks, proven and committed."""

from bucketlake.commit.operation import Operation
from bucketlake.write.append import (
    Append,
    Appended,
    abort_append,
    append_rows,
    begin_append,
    complete_append,
)
from bucketlake.write.change_feed import ChangeFeed
from bucketlake.write.computed import Computation, Computed
from bucketlake.write.create import BUCKETS_DEFAULT, TableSpec, alter, create, name_for_path, options_of
from bucketlake.write.exchange import GROUP_BITS, Coded, Cut, Exchange, InProcess, KeySum, Last, Piece, Stage
from bucketlake.write.job import (
    ArrowRows,
    Rows,
    WriteOptions,
    columns_after,
    evolution,
    names_partitions,
    run_add_columns,
    run_delete_partitions,
    run_write,
)
from bucketlake.write.report import CommitSummary, Ran, check_proof, received_sum
from bucketlake.write.state import WriteState, plan_write
from bucketlake.write.tag import columns_to_write, key_columns, sort_by_code, tops_of
from bucketlake.write.task import GroupWritten, write_groups
from bucketlake.write.through import write_through

__all__ = [
    "BUCKETS_DEFAULT",
    "GROUP_BITS",
    "Append",
    "Appended",
    "ArrowRows",
    "ChangeFeed",
    "Coded",
    "CommitSummary",
    "Computation",
    "Computed",
    "Cut",
    "Exchange",
    "GroupWritten",
    "InProcess",
    "KeySum",
    "Last",
    "Operation",
    "Piece",
    "Ran",
    "Rows",
    "Stage",
    "TableSpec",
    "WriteOptions",
    "WriteState",
    "abort_append",
    "alter",
    "append_rows",
    "begin_append",
    "check_proof",
    "columns_after",
    "columns_to_write",
    "complete_append",
    "create",
    "evolution",
    "key_columns",
    "name_for_path",
    "names_partitions",
    "options_of",
    "plan_write",
    "received_sum",
    "run_add_columns",
    "run_delete_partitions",
    "run_write",
    "sort_by_code",
    "tops_of",
    "write_groups",
    "write_through",
]
