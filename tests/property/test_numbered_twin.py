"""The texts that number the rows of a commit are those that anybody would spell."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from bucketlake.schema import numbered

PREFIXES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=40)


@given(PREFIXES, st.integers(0, 1200))
@example("20260101000000000_1_", 0)
@example("20260101000000000_1_", 10_001)
def test_numbered_texts_are_prefix_and_number(prefix: str, count: int) -> None:
    column = numbered(prefix, count)
    column.validate(full=True)
    assert column.to_pylist() == [f"{prefix}{number}" for number in range(count)]
