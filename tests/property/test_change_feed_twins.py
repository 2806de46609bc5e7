"""What a feed tells of keys, a column at a time and row by row: the two agree."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bucketlake.config import MergeMode
from bucketlake.errors import ConfigError
from bucketlake.merge import MergeRules
from bucketlake.write.change_feed import KNOWN_WORDS, ROW_CHANGE, ChangeFeed, RowChange
from bucketlake.write.newest_changes import newest_changes

pytestmark = pytest.mark.shows("R9")

SCHEMA = pa.schema([("id", pa.string()), ("ts", pa.int64()), pa.field("n", pa.int32(), nullable=False)])
WORDS = st.sampled_from([*KNOWN_WORDS, "C", "UPDATE_before", "X"])
Told = tuple[str, int, RowChange]
ROWS = st.lists(
    st.tuples(st.sampled_from("abc"), st.integers(0, 3), st.sampled_from(list(RowChange))), max_size=12
)


@given(
    words=st.lists(st.one_of(WORDS, st.sampled_from(["strange", None])), max_size=8), cut=st.integers(0, 8)
)
def test_words_of_a_column_mean_what_each_of_them_means(words: list[str | None], cut: int) -> None:
    feed = ChangeFeed.of("op", {"x": "delete"})
    column = pa.chunked_array([pa.array(words[:cut], pa.string()), pa.array(words[cut:], pa.string())])
    expected = [feed.meaning(word) for word in words]
    if None in expected:
        with pytest.raises(ConfigError, match=f"in at least {expected.count(None)} row"):
            feed.numbers(column)
    else:
        assert feed.numbers(column).tolist() == expected


def slow(rows: list[Told], *, is_ordered: bool) -> tuple[set[int], set[int]]:
    """The numbers of the rows that stay, and of those that go."""
    newest: dict[str, int] = {}
    numbers = list(range(len(rows)))
    if is_ordered:
        numbers.sort(key=lambda number: rows[number][2] != RowChange.UPDATE_BEFORE)
    for number in numbers:
        key, ts, _ = rows[number]
        if key not in newest or not is_ordered or ts >= rows[newest[key]][1]:
            newest[key] = number
    going = {n for n in newest.values() if rows[n][2] in (RowChange.UPDATE_BEFORE, RowChange.DELETE)}
    return set(newest.values()) - going, going


@given(rows=ROWS, is_ordered=st.booleans())
def test_the_row_of_a_key_that_counts_is_the_one_that_is_found_row_by_row(
    rows: list[Told], is_ordered: bool
) -> None:
    mode = MergeMode.EVENT_TIME_ORDERING if is_ordered else MergeMode.COMMIT_TIME_ORDERING
    state: Any = SimpleNamespace(
        schema=SCHEMA, rules=MergeRules(mode, ("ts",) if is_ordered else ()), instant="20260101000000000"
    )
    keys, values, changes = ([row[place] for row in rows] for place in range(3))
    table = pa.table(
        {
            "id": pa.array(keys, pa.string()),
            "ts": pa.array(values, pa.int64()),
            ROW_CHANGE: pa.array(changes, pa.int8()),
        }
    )
    found = newest_changes(table, pa.array(keys, pa.string()), state)
    assert (set(found.staying.tolist()), set(found.going.tolist())) == slow(rows, is_ordered=is_ordered)
    assert sorted(found.order.tolist()) == list(range(len(rows)))
    for part in (found.staying, found.going, found.lost):
        assert part.tolist() == sorted(part.tolist())
