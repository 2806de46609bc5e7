"""Key hashes prove that no row was lost; they are XXH64 to the bit, or two machines would not agree."""

from __future__ import annotations

import pyarrow as pa
import pytest
import xxhash
from hypothesis import example, given
from hypothesis import strategies as st

from bucketlake.schema import key_hash_sum, key_hashes

TEXT = st.text(st.characters(exclude_categories=["Cs"]))
KEYS = st.lists(TEXT | st.builds(lambda text, times: text * times, TEXT, st.integers(2, 30)), max_size=8)
TYPES = st.sampled_from([pa.string(), pa.large_string()])


@given(KEYS, TYPES, st.integers(0, 3), st.integers(0, 3))
@example(["x" * size for size in range(70)], pa.string(), 0, 0)
def test_key_hashes_are_those_of_the_xxhash_library(
    keys: list[str], kind: pa.DataType, start: int, cut: int
) -> None:
    column = pa.array(keys, kind)[start : max(start, len(keys) - cut)]
    expected = [xxhash.xxh64_intdigest(key.encode()) for key in column.to_pylist()]
    assert key_hashes(column).tolist() == expected
    assert key_hash_sum(column) == sum(expected) % 2**64


@given(KEYS, KEYS)
def test_sums_of_parts_add_up_to_the_sum_of_the_whole(some: list[str], others: list[str]) -> None:
    parts = [pa.array(some, pa.string()), pa.array(others, pa.string())]
    whole = pa.chunked_array(parts)
    assert key_hash_sum(whole) == (key_hash_sum(parts[0]) + key_hash_sum(parts[1])) % 2**64


def test_a_null_key_is_a_mistake_of_the_caller() -> None:
    with pytest.raises(AssertionError, match="no place in a table"):
        key_hashes(pa.array(["a", None]))
