"""The keys of file groups that give way: who is told of keys learns that these are gone, unless they come again.

Tasks read what gives way, merged, and of it the columns that merging looks at.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from bucketlake.basefile import read_base_file
from bucketlake.layout import FileGroupId, FileSlice
from bucketlake.logfile import read_log_files
from bucketlake.merge import MergeRules, merge_slice
from bucketlake.schema import RECORD_KEY_COLUMN
from bucketlake.storage import Store
from bucketlake.write.exchange import GROUP_BITS, Coded, Piece
from bucketlake.write.state import TASKS_PER_CORE, WriteState, place_groups
from bucketlake.write.task import KeysChanged


def share_out_replaced(partitions: Collection[str], plan: WriteState) -> Coded | None:
    """Make a piece for each file group that gives way with these partitions; None if there is none."""
    groups = {p: slices for p, slices in plan.giving_way.items() if p in partitions}
    _, places = place_groups(groups, max(1, plan.tasks // TASKS_PER_CORE))
    if not places:
        return None
    by_code: dict[int, FileGroupId | None] = {
        task << GROUP_BITS | number: group for number, (group, task) in enumerate(places.items())
    }
    codes = np.sort(np.array(list(by_code), np.int64))
    rows = pa.RecordBatch.from_arrays([pa.nulls(len(codes))], names=["replaced"])
    return Coded(rows, codes, np.zeros(len(codes), np.uint64), by_code)


def replaced_keys(pieces: Iterator[Piece], state: WriteState) -> Iterator[KeysChanged]:
    """Read the keys of the file groups that pieces are of."""
    schema = pa.schema([state.file_schema.field(name) for name in state.rules.columns(state.file_schema)])
    for piece in pieces:
        assert piece.group is not None, "made for one each"
        partition, file_id = piece.group
        part = state.giving_way[partition][file_id]
        went = merged_keys(state.store, part, state.rules, schema, table_schema=state.file_schema)
        yield KeysChanged(partition, file_id, came=pa.array([], pa.string()), went=went)


def merged_keys(
    store: Store,
    part: FileSlice,
    rules: MergeRules,
    schema: pa.Schema,
    *,
    table_schema: pa.Schema,
    keys: Any = None,
) -> pa.Array:
    """Return the keys that a reader finds in a slice, or those of `keys`; `schema` has what merging looks at."""
    base = () if part.base_file is None else read_base_file(store, part.base_file.path, schema, keys=keys)
    logs = read_log_files(
        store,
        [log.path for log in part.log_files],
        schema,
        ordering_fields=rules.ordering_fields,
        table_schema=table_schema,
        keys=keys,
        whole=frozenset(log.path for log in part.log_files if log.is_whole),
    )
    rows = merge_slice(base, list(logs), rules, schema, shown=[RECORD_KEY_COLUMN])
    return pa.chunked_array([batch.column(0) for batch in rows], pa.string()).combine_chunks()
