"""Rows before and after a write, without those in which nothing has changed.

Most updates leave most columns alone. Whoever keeps an index of values need not spell those.
"""

from __future__ import annotations

from functools import reduce
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from bucketlake.schema import RECORD_KEY_COLUMN


def changed_values(before: pa.Table, after: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Leave out of both the rows that are in both, of one key and with the same values.

    Where a key stands twice in one of them, as in what others have loaded without looking, all rows stay.

    >>> before = pa.table({"_hoodie_record_key": ["a", "b"], "city": ["Rome", None]})
    >>> after = pa.table({"_hoodie_record_key": ["b", "a"], "city": ["Oslo", "Rome"]})
    >>> [rows.to_pydict() for rows in changed_values(before, after)]
    [{'_hoodie_record_key': ['b'], 'city': [None]}, {'_hoodie_record_key': ['b'], 'city': ['Oslo']}]
    """
    if not before.num_rows or not after.num_rows:
        return before, after
    before, after = before.combine_chunks(), after.combine_chunks()
    keys = [_column(rows, RECORD_KEY_COLUMN) for rows in (before, after)]
    if any(pc.count_distinct(column).as_py() < len(column) for column in keys):
        return before, after
    found = pc.index_in(keys[1], value_set=keys[0])
    places = pc.fill_null(found, 0)
    names = [name for name in after.column_names if name != RECORD_KEY_COLUMN]
    is_same = [pc.is_valid(found)]
    is_same += [_same(_column(before, name).take(places), _column(after, name)) for name in names]
    same: npt.NDArray[np.bool_] = reduce(pc.and_, is_same).to_numpy(zero_copy_only=False)
    stays = np.ones(before.num_rows, np.bool_)
    stays[places.to_numpy()[same]] = False
    return before.filter(pa.array(stays)), after.filter(pa.array(~same))


def _column(rows: pa.Table, name: str) -> pa.Array:
    return rows.column(name).combine_chunks()


def _same(one: Any, other: Any) -> Any:
    """Tell where two columns have the same value, nulls too."""
    if pa.types.is_float32(one.type) or pa.types.is_float64(one.type):
        # Bit for bit: -0.0 equals 0.0, and is spelled otherwise.
        bits = pa.int32() if pa.types.is_float32(one.type) else pa.int64()
        one, other = one.view(bits), other.view(bits)
    are_null = pc.and_(pc.is_null(one), pc.is_null(other))
    return pc.or_(pc.fill_null(pc.equal(one, other), False), are_null)
