"""Files are cut into parts: a row group in two of them is written twice, one in none is lost."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from bucketlake.spark.files import PART_BYTES, cut

SIZES = st.lists(
    st.lists(st.sampled_from([0, 1, 1_000, PART_BYTES // 2, 3 * PART_BYTES]), max_size=9), max_size=5
)


@given(SIZES, st.integers(1, 8))
def test_every_row_group_is_in_one_part(sizes: list[list[int]], tasks: int) -> None:
    parts = cut(sizes, tasks=tasks)
    assert [(file, group) for file, groups in parts for group in groups] == [
        (file, group) for file, of_groups in enumerate(sizes) for group in range(len(of_groups))
    ]


@given(SIZES, st.integers(1, 8))
def test_a_part_is_no_larger_than_it_must_be(sizes: list[list[int]], tasks: int) -> None:
    for file, groups in cut(sizes, tasks=tasks):
        taken = [sizes[file][group] for group in groups]
        assert len(groups) == 1 or sum(taken) - taken[-1] / 2 <= PART_BYTES


def test_a_file_of_many_row_groups_is_read_by_every_task() -> None:
    assert len(cut([[100] * 40], tasks=8)) == 8
