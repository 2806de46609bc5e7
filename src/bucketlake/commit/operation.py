"""What a write does, and which action that is on the timeline."""

from __future__ import annotations

from enum import StrEnum

from bucketlake.config import TableType
from bucketlake.timeline import Action


class Operation(StrEnum):
    """What a write does, in the words a commit keeps."""

    UPSERT = "UPSERT"
    BULK_INSERT = "BULK_INSERT"
    DELETE = "DELETE"
    INSERT_OVERWRITE = "INSERT_OVERWRITE"
    INSERT_OVERWRITE_TABLE = "INSERT_OVERWRITE_TABLE"
    DELETE_PARTITION = "DELETE_PARTITION"

    @property
    def replaces(self) -> bool:
        """Whether file groups that are there give way, instead of being written on."""
        return self in _REPLACING


_REPLACING = frozenset(
    {Operation.INSERT_OVERWRITE, Operation.INSERT_OVERWRITE_TABLE, Operation.DELETE_PARTITION}
)


def action_of(operation: Operation, table_type: TableType) -> Action:
    """Return the action that `operation` is on the timeline."""
    if operation.replaces:
        return Action.REPLACE_COMMIT
    return Action.COMMIT if table_type is TableType.COPY_ON_WRITE else Action.DELTA_COMMIT


TRANSACTIONS = (Action.COMMIT, Action.DELTA_COMMIT, Action.REPLACE_COMMIT)
"""Pending instants of these are writes that only their writer can finish."""

PLANNED = (Action.COMPACTION, Action.LOG_COMPACTION, Action.CLUSTERING)
"""Pending instants of these have a plan that anybody can run, and run again."""
