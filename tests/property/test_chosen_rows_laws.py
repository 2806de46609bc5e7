"""Chosen rows leave a table in slices where they stand together, and through a filter where they do not."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from bucketlake.merge.winners import _only

RUNS = st.lists(st.tuples(st.booleans(), st.sampled_from([1, 2, 255, 300, 2_000])), min_size=1, max_size=12)


@given(RUNS, st.integers(1, 3))
def test_both_ways_give_the_same_rows(runs: list[tuple[bool, int]], chunks: int) -> None:
    chosen = np.concatenate([np.full(length, is_chosen) for is_chosen, length in runs])
    if not chosen.any():
        chosen[0] = True
    numbers = pa.chunked_array(np.array_split(np.arange(len(chosen)), chunks))
    table = pa.table({"n": numbers, "text": numbers.cast(pa.string())})
    assert _only(table, chosen).combine_chunks() == table.filter(pa.array(chosen)).combine_chunks()
