"""The order of keys by their bytes, in which an HFile has them and in which it is searched.

Most keys differ in the eight bytes after those that all have in common. So these are sorted as numbers, which is
several times as fast as sorting strings, and what they leave undecided is settled by comparing strings.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from bucketlake.hfile.columns import ByteColumn
from bucketlake.hfile.kernels import common_prefix, first_descent, put_words, settle_ties

_RUN_MAX = 32
"""How many keys are sorted by comparing each with each; with more of a kind, strings are sorted after all."""


def ascending(keys: pa.Array | pa.ChunkedArray) -> npt.NDArray[np.int64] | None:
    """Return the positions of keys in the order of their unsigned bytes, equal ones as they come.

    None says that keys are in order already.

    >>> ascending(pa.array(["b", "a"])).tolist()
    [1, 0]
    """
    return order_of(ByteColumn.of(keys, "keys"))


def order_of(column: ByteColumn) -> npt.NDArray[np.int64] | None:
    data, offsets = column.data, column.offsets
    if first_descent(data, offsets, False) < 0:
        return None
    words = np.empty(len(column), np.uint64)
    put_words(data, offsets, common_prefix(data, offsets), words)
    order = np.argsort(words)
    if settle_ties(data, offsets, words, order, _RUN_MAX):
        return order
    settled: npt.NDArray[np.int64] = pc.sort_indices(column.to_arrow()).to_numpy().astype(np.int64)
    return settled
