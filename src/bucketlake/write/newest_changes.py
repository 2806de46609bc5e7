"""What a feed tells of a key, more than once perhaps, comes down to one row or one delete.

Ordering values decide, and where there are none, or they are equal, the later row does. What a row was before an update
is told for the sake of keys that change: such a row deletes its key unless another one says what the key is now. So it
is a delete; but where ordering values decide, of equals it loses to whatever else is told, for the two halves of an
update may have one value, and come in any order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from bucketlake.logfile import LogDeletes, LogRecords
from bucketlake.merge import fold_logs
from bucketlake.merge.ordering import codes_of, is_java_integer
from bucketlake.merge.rules import IS_DELETED_COLUMN
from bucketlake.schema import RECORD_KEY_COLUMN, all_nullable, fit_rows
from bucketlake.write.change_feed import FIRST_WITHOUT_VALUES, ROW_CHANGE, RowChange
from bucketlake.write.state import WriteState
from bucketlake.write.tag import nested_column

Numbers = npt.NDArray[np.int64]
_STAYS, _GOES, _LOST = range(3)


@dataclass(frozen=True, slots=True, eq=False)
class NewestChanges:
    """The rows that count, one of each key, by their numbers, in their order."""

    staying: Numbers
    """Rows that the table is to have."""
    going: Numbers
    """Rows whose keys are to go."""
    lost: Numbers
    """Rows that lost to another one of their key."""

    @property
    def is_staying(self) -> npt.NDArray[np.bool_]:
        mask = np.zeros(len(self.order), np.bool_)
        mask[self.staying] = True
        return mask

    @property
    def order(self) -> Numbers:
        return np.concatenate([self.staying, self.going, self.lost])


def newest_changes(rows: pa.Table, identity: Any, state: WriteState) -> NewestChanges:
    """Find the rows that count. `identity` says of each row which one of the table it is about."""
    change = rows.column(ROW_CHANGE).to_numpy()
    looked_at = loosely_fitted(rows, state, state.rules.columns(state.schema))
    is_delete = change >= FIRST_WITHOUT_VALUES
    if IS_DELETED_COLUMN in looked_at.column_names:
        is_delete = is_delete | pc.fill_null(looked_at.column(IS_DELETED_COLUMN), False).to_numpy()
        looked_at = looked_at.drop_columns([IS_DELETED_COLUMN])
    looked_at = looked_at.append_column(IS_DELETED_COLUMN, pa.array(is_delete))
    looked_at = looked_at.append_column(RECORD_KEY_COLUMN, identity)
    order = np.arange(len(change))
    if not state.rules.by_commit_time:
        # Of equals the later wins, so those come first that lose to all others.
        order = np.argsort(change != RowChange.UPDATE_BEFORE, kind="stable")
        looked_at = looked_at.take(pa.array(order))
    winners = fold_logs([LogRecords(looked_at, False, state.instant)], state.rules, looked_at.schema)
    fate = np.full(len(change), _LOST, np.int8)
    fate[order[winners.entries]] = np.where(winners.is_record, _STAYS, _GOES)
    return NewestChanges(*(np.flatnonzero(fate == one) for one in (_STAYS, _GOES, _LOST)))


def deletes_of(rows: pa.Table, keys: pa.Array, state: WriteState) -> LogDeletes:
    """Return rows that go as a log tells of them: with their ordering values, where these decide.

    A single one that is the Int 0 is Hudi's word for none.
    """
    if state.rules.by_commit_time or not (state.feed is None or state.feed.dates_deletes):
        return LogDeletes(keys, None, pa.repeat(pa.scalar(True), len(keys)), state.instant)
    names = state.rules.ordering_fields
    columns = [nested_column(rows, name) for name in names]
    undated = np.zeros(len(keys), np.bool_)
    if len(columns) == 1 and is_java_integer(columns[0].type):
        undated = codes_of(columns[0]) == 0
    ordering = pa.StructArray.from_arrays(columns, names=list(names))
    return LogDeletes(keys, ordering, pa.array(undated), state.instant)


def loosely_fitted(rows: pa.Table, state: WriteState, names: Sequence[str] | None = None) -> pa.Table:
    """Return rows with columns of the table's, these or all: of its types, but with nulls, which rows that go may have.

    What they lack is null.
    """
    schema = state.schema if names is None else pa.schema([state.schema.field(name) for name in names])
    return fit_rows(rows, all_nullable(schema))
