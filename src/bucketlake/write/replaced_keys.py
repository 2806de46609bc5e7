"""The keys of file groups that give way: who is told of keys learns that these are gone, unless they come again.

Tasks read what gives way, merged: of it the columns that merging looks at, and those that somebody asks for.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

import numpy as np
import pyarrow as pa

from bucketlake.index.listed import RowsChanged
from bucketlake.layout import FileGroupId
from bucketlake.schema import RECORD_KEY_COLUMN
from bucketlake.write.exchange import GROUP_BITS, Coded, Piece
from bucketlake.write.state import TASKS_PER_CORE, WriteState, place_groups
from bucketlake.write.stored_rows import read_stored


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


def replaced_keys(pieces: Iterator[Piece], state: WriteState) -> Iterator[RowsChanged]:
    """Read the keys of the file groups that pieces are of, and the values that are asked for."""
    asked = state.asked_columns
    for piece in pieces:
        assert piece.group is not None, "made for one each"
        partition, file_id = piece.group
        stored = read_stored(
            state.store,
            state.giving_way[partition][file_id],
            state.rules,
            table_schema=state.file_schema,
            columns=asked,
        )
        rows = stored.merged([RECORD_KEY_COLUMN, *asked])
        yield RowsChanged(
            partition,
            file_id,
            came=pa.array([], pa.string()),
            went=rows.column(0).combine_chunks(),
            before=rows if asked else None,
        )
