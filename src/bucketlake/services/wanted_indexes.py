"""The indexes that a table is to have again: delisted by a rollback or restore, or beside a record-level index that is
made anew. The record-level index comes first: secondary ones are nothing without."""

from __future__ import annotations

from bucketlake.commit.metadata_table import is_listed
from bucketlake.config import load_properties
from bucketlake.metadata.places import RECORD_INDEX
from bucketlake.services.record_index_build import BuiltRecordIndex, build_wanted_index, is_index_wanted
from bucketlake.services.secondary_index_build import (
    BuiltSecondaryIndex,
    build_wanted_secondary,
    wanted_secondary,
)
from bucketlake.services.tasks import Tasks, here
from bucketlake.state import TableState
from bucketlake.storage import Store
from bucketlake.timeline import Clock

BuiltAgain = BuiltRecordIndex | BuiltSecondaryIndex


def wanted_again(state: TableState) -> tuple[str, ...]:
    """Name the partitions of the metadata table that are to be built, in that order."""
    properties = state.properties
    first = (RECORD_INDEX,) if is_index_wanted(properties) else ()
    if not first and RECORD_INDEX not in properties.metadata_partitions:
        return ()
    return (*first, *(one.partition for one in wanted_secondary(state)))


def build_wanted_indexes(
    store: Store, *, tasks: Tasks = here, clock: Clock | None = None
) -> tuple[BuiltAgain, ...]:
    """Build them, as far as that is possible. It fails nobody: what the caller was about is done."""
    if not is_listed(load_properties(store)):
        return ()
    first = build_wanted_index(store, tasks=tasks, clock=clock)
    others = build_wanted_secondary(store, tasks=tasks, clock=clock)
    return (*(() if first is None else (first,)), *others)
