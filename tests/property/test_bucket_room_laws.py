"""New keys fill buckets in order; another opens only when an assigner's are full: else files stay small for ever."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bucketlake import UnsupportedError
from bucketlake.index.bucket_room import BUCKETS_LIMIT, Assigner, Room

pytestmark = pytest.mark.shows("D2")

BUCKETS = st.dictionaries(st.integers(0, 30), st.integers(0, 6), max_size=12)
"""Bucket -> room."""


def one_by_one(keys: int, room: dict[int, int], owner: Assigner, capacity: int) -> dict[int, int]:
    """Place every key by itself: in the lowest own bucket that has room, or else in a new one, the lowest there is."""
    left = dict(room)
    given: dict[int, int] = {}
    for _ in range(keys):
        bucket = min((b for b, r in left.items() if r > 0 and b % owner.count == owner.number), default=None)
        if bucket is None:
            bucket = next(b for b in range(1_000) if b % owner.count == owner.number and b not in left)
            left[bucket] = capacity
        left[bucket] -= 1
        given[bucket] = given.get(bucket, 0) + 1
    return given


@given(st.integers(0, 60), BUCKETS, st.integers(1, 6), st.integers(0, 5), st.integers(1, 9))
def test_keys_are_shared_out_as_if_placed_one_by_one(
    keys: int, room: dict[int, int], assigners: int, number: int, capacity: int
) -> None:
    owner = Assigner(number % assigners, assigners)
    own = [Room(bucket, left) for bucket, left in room.items() if owner.owns(bucket)]
    shares = owner.share_out(keys, own, capacity=capacity, taken=room.keys())
    assert dict(shares) == one_by_one(keys, room, owner, capacity)
    assert len(dict(shares)) == len(shares)
    opened = [bucket for bucket, _ in shares if bucket not in room]
    assert sum(count for _, count in shares) == keys
    assert all(count == capacity for bucket, count in shares if bucket in opened[:-1]), (
        "only the last is part-filled"
    )


@given(st.integers(1, 40), st.integers(0, 50))
def test_a_partition_has_no_more_buckets_than_their_numbers_allow(assigners: int, free: int) -> None:
    taken = range(BUCKETS_LIMIT - free)
    for number in range(assigners):
        owner = Assigner(number, assigners)
        left = sum(owner.owns(bucket) for bucket in range(BUCKETS_LIMIT - free, BUCKETS_LIMIT))
        shares = owner.share_out(left, [], capacity=1, taken=taken)
        assert [count for _, count in shares] == [1] * left
        with pytest.raises(UnsupportedError, match="keys for more than 65,535 buckets"):
            owner.share_out(left + 1, [], capacity=1, taken=taken, partition="p")
