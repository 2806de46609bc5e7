"""Which rows would move to another partition although the table has a newer version of them.

A row that moves is written in one file group and deleted in another, so no merge ever holds the two versions against
each other. Where ordering values decide, the stored row is looked at before anything is written: key and ordering
columns, and of these the rows that are to move.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from bucketlake.layout import FileSlice
from bucketlake.logfile import LogRecords
from bucketlake.schema import COMMIT_TIME_COLUMN, RECORD_KEY_COLUMN
from bucketlake.write.state import WriteState
from bucketlake.write.stored_rows import read_stored


def is_late(rows: pa.Table, keys: Any, where: Any, ids: Any, state: WriteState) -> npt.NDArray[np.bool_]:
    """Tell of rows with known keys which lose to what the file groups have that the index names."""
    late = np.zeros(len(keys), np.bool_)
    if state.rules.by_commit_time or not len(keys):
        return late
    both = pc.binary_join_element_wise(where, ids, "\0").dictionary_encode()
    numbers = both.indices.to_numpy()
    for number, text in enumerate(both.dictionary.to_pylist()):
        chosen = np.flatnonzero(numbers == number)
        partition, file_id = text.split("\0")
        taken = pa.array(chosen)
        late[chosen] = _loses(rows.take(taken), keys.take(taken), state.groups[partition][file_id], state)
    return late


def _loses(rows: pa.Table, keys: Any, present: FileSlice, state: WriteState) -> npt.NDArray[np.bool_]:
    stored = read_stored(
        state.store,
        present,
        state.rules,
        table_schema=state.file_schema,
        columns=[COMMIT_TIME_COLUMN],
        keys=keys,
    )
    columns = {
        name: keys
        if name == RECORD_KEY_COLUMN
        else pa.repeat(pa.scalar(state.instant), len(keys))
        if name == COMMIT_TIME_COLUMN
        else rows.column(name)
        for name in stored.schema.names
    }
    new = LogRecords(pa.table(columns, schema=stored.schema), False, state.instant)
    merged = stored.merged([RECORD_KEY_COLUMN, COMMIT_TIME_COLUMN], new=[new])
    # A key that is not there any more was deleted by the row, or before it.
    losers = merged.column(0).filter(pc.not_equal(merged.column(1), state.instant)).combine_chunks()
    is_loser: npt.NDArray[np.bool_] = pc.is_in(keys, value_set=losers).to_numpy(zero_copy_only=False)
    return is_loser
