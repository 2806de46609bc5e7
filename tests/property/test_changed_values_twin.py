"""Rows that did not change are left out, and no others: a value left out wrongly is a row that no query finds."""

from __future__ import annotations

import struct
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bucketlake.write.changed_values import changed_values

KEY = "_hoodie_record_key"
SCHEMA = pa.schema([(KEY, pa.string()), ("city", pa.string()), ("x", pa.float64())])
Row = tuple[str | None, float | None]
VALUES = st.tuples(st.sampled_from([None, "", "a"]), st.sampled_from([None, 0.0, -0.0, 1.5, float("nan")]))
ROWS = st.dictionaries(st.sampled_from("abcdef"), VALUES)


def slow(before: dict[str, Row], after: dict[str, Row]) -> tuple[set[str], set[str]]:
    """The keys of the rows that are left, of each."""

    def same(key: str) -> bool:
        return key in before and key in after and _bits(before[key]) == _bits(after[key])

    return {key for key in before if not same(key)}, {key for key in after if not same(key)}


def _bits(row: Row) -> tuple[str | None, bytes | None]:
    return row[0], None if row[1] is None else struct.pack("d", row[1])


def table(rows: dict[str, Row]) -> pa.Table:
    found = [dict(zip(SCHEMA.names, (key, *values), strict=True)) for key, values in rows.items()]
    whole = pa.Table.from_pylist(found, SCHEMA)
    return pa.concat_tables([whole.slice(0, 1), whole.slice(1)])


@pytest.mark.shows("R11")
@given(before=ROWS, after=ROWS)
def test_what_is_left_are_the_rows_that_differ(before: dict[str, Row], after: dict[str, Row]) -> None:
    found = changed_values(table(before), table(after))
    left: Any = tuple(set(rows.column(KEY).to_pylist()) for rows in found)
    assert left == slow(before, after)
    for rows, given_rows in zip(found, (before, after), strict=True):
        assert [repr((row["city"], row["x"])) for row in rows.to_pylist()] == [
            repr(given_rows[row[KEY]]) for row in rows.to_pylist()
        ]


KEYED = st.lists(st.tuples(st.sampled_from("abc"), VALUES))


@given(before=KEYED, after=KEYED)
def test_of_keys_that_stand_twice_the_difference_is_the_same(
    before: list[tuple[str, Row]], after: list[tuple[str, Row]]
) -> None:
    def made(rows: list[tuple[str, Row]]) -> pa.Table:
        return pa.Table.from_pylist(
            [dict(zip(SCHEMA.names, (key, *values), strict=True)) for key, values in rows], SCHEMA
        )

    def texts(rows: pa.Table) -> set[str]:
        return {repr(tuple(row.values())) for row in rows.to_pylist()}

    whole = made(before), made(after)
    left = changed_values(*whole)
    for one, other in ((0, 1), (1, 0)):
        assert texts(left[one]) - texts(left[other]) == texts(whole[one]) - texts(whole[other])
