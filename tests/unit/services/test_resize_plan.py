"""Which buckets are split and merged. Wrong, a table is rewritten for ever, or its skew is never mended."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bucketlake.errors import ConfigError
from bucketlake.index import HashingMetadata, Node, Ring, Tag, decode_children, encode_children
from bucketlake.index.ring import HASH_MAX, RANGE, halving_point, split
from bucketlake.layout import FileSlice
from bucketlake.layout.file_slice import BaseFile
from bucketlake.services.resize_plan import (
    ResizeTrigger,
    RingState,
    at_the_middle,
    draw,
    evenly,
    offset,
    plan_resize,
)

TRIGGER = ResizeTrigger(file_bytes=100, split_threshold=2.0, merge_threshold=0.5)
"""Split above 200 bytes, merge up to 50."""


def ring_of(count: int, partition: str = "p") -> Ring:
    return HashingMetadata.initial(partition, count).ring


def state_of(sizes: list[int | None], *, partition: str = "p", **more: object) -> RingState:
    ring = ring_of(len(sizes), partition)
    slices = {
        node.file_id_prefix: slice_of(partition, node.file_id_prefix, size)
        for node, size in zip(ring.nodes, sizes, strict=True)
        if size is not None
    }
    return RingState(partition=partition, ring=ring, sequence=0, slices=slices, **more)  # type: ignore[arg-type]


def slice_of(partition: str, prefix: str, size: int) -> FileSlice:
    base = BaseFile(f"{partition}/{prefix}-0_1-0-1_1.parquet", f"{prefix}-0", "1-0-1", "1", size)
    return FileSlice(partition, f"{prefix}-0", "1", base, ())


def spread(state: RingState, count: int = 64) -> dict[tuple[str, str], np.ndarray]:
    """Hashes that lie evenly in every bucket."""
    found = {}
    for place, node in enumerate(state.ring.nodes):
        start, width = state.ring.before(place).value + 1, state.ring.width(place)
        hashes = (start + np.arange(count) * (width // count)) % RANGE
        found[state.partition, node.file_id_prefix] = np.sort(hashes).astype(np.int32)
    return found


def plan(*states: RingState, trigger: ResizeTrigger = TRIGGER) -> list[tuple[str, tuple[int, ...], bool]]:
    hashes: dict[tuple[str, str], np.ndarray] = {}
    for state in states:
        hashes |= spread(state)
    found = plan_resize(states, hashes, trigger)
    return [(change.partition, change.places, change.at is not None) for change in found.changes]


@pytest.mark.shows("C4")
@pytest.mark.parametrize(
    ("sizes", "changes"),
    [
        ([100, 200, 51, 51], []),
        ([201, 100], [((0,), True)]),
        ([250, 300, 40], [((1,), True), ((0,), True)]),
        ([20, 20, 20, 100], [((0, 1), False)]),
        ([10, 10, 10, 10], [((0, 1, 2, 3), False)]),
        ([10, 100, 10, 10], [((2, 3), False)]),
        ([10, None, 10, 10], [((0, 1, 2, 3), False)]),
        ([None, 10, None, 100, None, None], [((0, 1, 2), False)]),
        ([None] * 31 + [12] + [None] * 32, [(tuple(range(64)), False)]),
        ([300, None], [((0,), True)]),
        ([10, 10, 500, 10, 10], [((2,), True), ((0, 1), False), ((3, 4), False)]),
        ([10, 10, 500, 30, 30], [((2,), True), ((0, 1), False)]),
        ([None, None], []),
    ],
)
def test_large_buckets_split_and_small_neighbours_merge(
    sizes: list[int | None], changes: list[tuple[tuple[int, ...], bool]]
) -> None:
    assert plan(state_of(sizes)) == [("p", places, is_split) for places, is_split in changes]


@pytest.mark.shows("C4")
def test_the_number_of_buckets_stays_within_its_bounds() -> None:
    few = ResizeTrigger(file_bytes=100, merge_threshold=0.5, max_buckets=3)
    assert plan(state_of([300, 250]), trigger=few) == [("p", (0,), True)]
    many = ResizeTrigger(file_bytes=100, merge_threshold=0.5, min_buckets=3)
    assert plan(state_of([10, 10, 10, 10]), trigger=many) == [("p", (0, 1), False)]
    assert plan(state_of([10, 10, 10]), trigger=many) == []


def test_what_others_have_taken_is_left_to_them() -> None:
    ring = ring_of(3)
    held = frozenset({ring.nodes[0].file_id_prefix})
    assert plan(state_of([300, 10, 10], held=held)) == [("p", (1, 2), False)]
    busy = plan_resize([state_of([300, 10, 10], is_resizing=True)], {}, TRIGGER)
    assert busy.is_empty
    assert busy.left_alone == ("p is being resized already",)


@pytest.mark.shows("C7")
def test_a_round_is_bounded_by_bytes_first_and_by_partitions() -> None:
    states = [state_of([300, 300], partition=f"p{number}") for number in range(4)]
    by_bytes = ResizeTrigger(file_bytes=100, bytes_at_once=900)
    assert [change[0] for change in plan(*states, trigger=by_bytes)] == ["p0", "p0", "p1"]
    by_partitions = ResizeTrigger(file_bytes=100, partitions_at_once=2)
    assert [change[0] for change in plan(*states, trigger=by_partitions)] == ["p0", "p0", "p1", "p1"]
    both = ResizeTrigger(file_bytes=100, partitions_at_once=3, bytes_at_once=600)
    assert [change[0] for change in plan(*states, trigger=both)] == ["p0", "p0"]
    tiny = ResizeTrigger(file_bytes=100, bytes_at_once=1)
    assert [change[0] for change in plan(*states, trigger=tiny)] == ["p0"], "one is done in any case"
    left = plan_resize(states, {k: v for s in states for k, v in spread(s).items()}, by_bytes)
    assert left.later == 5
    assert "5 more changes are left to the next rounds" in str(left)


def test_one_hash_that_fills_a_bucket_is_named_and_not_split_for_ever() -> None:
    state = state_of([500, 100])
    prefix = state.ring.nodes[0].file_id_prefix
    hot = {("p", prefix): np.full(100, 12345, np.int32)}
    for policy in (at_the_middle, evenly):
        found = plan_resize([state], hot, ResizeTrigger(file_bytes=100, policy=policy))
        assert found.is_empty
        (line,) = found.left_alone
        assert prefix in line
        assert "all have one hash" in line
        assert "Hash more fields" in line


@pytest.mark.parametrize(
    ("wrong", "match"),
    [
        ({"split_threshold": 1.0, "merge_threshold": 0.6}, "for ever"),
        ({"min_buckets": 5, "max_buckets": 4}, "contradict"),
        ({"min_buckets": 0}, "contradict"),
        ({"max_buckets": 1 << 30}, "contradict"),
        ({"file_bytes": 0}, "positive"),
        ({"merge_threshold": -1.0}, "positive"),
        ({"bytes_at_once": 0}, "one byte"),
    ],
)
def test_triggers_that_make_no_sense_are_refused(wrong: dict[str, float], match: str) -> None:
    with pytest.raises(ConfigError, match=match):
        ResizeTrigger(**wrong)  # type: ignore[arg-type] # some are floats


def test_an_unknown_partition_is_refused() -> None:
    with pytest.raises(ConfigError, match="'q'"):
        plan(state_of([300]), trigger=ResizeTrigger(file_bytes=100, partitions=("q",)))


@pytest.mark.shows("C4")
def test_the_middle_is_hudis_and_narrows_down_where_all_keys_are_on_one_side() -> None:
    ring = ring_of(4)
    before, last = ring.nodes[0].value, ring.nodes[1].value
    everywhere = np.array([before + 1, last], np.int32)
    assert at_the_middle(ring, 1, everywhere) == (before + last) >> 1
    narrow = np.array([before + 1_000, before + 1_001], np.int32)
    at = at_the_middle(ring, 1, narrow)
    assert at == before + 1_000


@pytest.mark.shows("C4")
@pytest.mark.parametrize("count", [1, 4])
@pytest.mark.parametrize(
    "chosen",
    [
        lambda first, last: first - 1,
        lambda first, last: last,
        lambda first, last: last + 1,
        lambda first, last: -1,
        lambda first, last: HASH_MAX + 1,
        lambda first, last: first + 0.5,
        lambda first, last: True,
        lambda first, last: str(first),
    ],
    ids=["before", "last", "after", "negative", "no hash", "half", "flag", "text"],
)
def test_a_split_point_outside_of_the_buckets_range_is_refused_and_its_policy_named(
    count: int, chosen: Callable[[int, int], Any]
) -> None:
    """It would take the place of another bucket's end, and with it that bucket's keys."""
    state = state_of([500] + (count - 1) * [100])
    first = (state.ring.before(0).value + 1) % RANGE

    def my_policy(ring: Ring, place: int, hashes: np.ndarray) -> Any:
        return chosen(first, ring.nodes[place].value)

    with pytest.raises(
        ConfigError, match=r"policy 'my_policy' chose .* of p; expected a hash.*Mend the policy"
    ):
        plan(state, trigger=ResizeTrigger(file_bytes=100, policy=my_policy))


@given(st.data())
def test_a_split_point_inside_of_the_buckets_range_is_taken(data: st.DataObject) -> None:
    ring = data.draw(rings)
    place = data.draw(st.integers(0, len(ring.nodes) - 1))
    start, width = ring.before(place).value + 1, ring.width(place)
    reach = data.draw(st.integers(0, width - 1))
    at = (start + reach) % RANGE
    assert ring.can_split(place, at) == (reach < width - 1)
    if reach < width - 1:
        after = ring.with_children(split(ring, place, at, ("first", "second")))
        assert len(after.nodes) == len(ring.nodes) + 1
        assert [node for node in after.nodes if node.file_id_prefix in ring.prefixes] == [
            node for node in ring.nodes if node != ring.nodes[place]
        ]


rings = st.sets(st.integers(0, HASH_MAX), min_size=1, max_size=8).map(
    lambda values: Ring(tuple(Node(value, f"n{value}") for value in values))
)


@pytest.mark.shows("C4")
@given(rings, st.data())
def test_every_policy_leaves_keys_on_both_sides(ring: Ring, data: st.DataObject) -> None:
    place = data.draw(st.integers(0, len(ring.nodes) - 1))
    offsets = data.draw(st.lists(st.integers(0, ring.width(place) - 1), min_size=1, max_size=20))
    start = ring.before(place).value + 1
    hashes = np.sort(np.array([(start + number) % RANGE for number in offsets])).astype(np.int32)
    for policy in (at_the_middle, evenly):
        at = policy(ring, place, np.sort(hashes))
        if len(set(offsets)) == 1:
            assert at is None
            continue
        if at is None:
            assert policy is at_the_middle
            continue
        after = ring.with_children(
            [Node(at, "first", Tag.REPLACE), Node(ring.nodes[place].value, "second", Tag.REPLACE)]
        )
        owners = {after.node_of(int(ring_hash)).file_id_prefix for ring_hash in hashes}
        assert owners == {"first", "second"}
        others = [node for node in ring.nodes if node != ring.nodes[place]]
        assert all(node in after.nodes for node in others)


@given(rings, st.data())
def test_the_halving_point_halves(ring: Ring, data: st.DataObject) -> None:
    place = data.draw(st.integers(0, len(ring.nodes) - 1))
    offsets = data.draw(
        st.sets(st.integers(0, ring.width(place) - 1), min_size=min(2, ring.width(place)), max_size=30)
    )
    start = ring.before(place).value + 1
    hashes = np.array([(start + number) % RANGE for number in sorted(offsets)], np.int32)
    at = halving_point(ring, place, hashes)
    if len(offsets) < 2:
        assert at is None
        return
    assert at is not None
    first = sum(offset(ring, place, h) <= offset(ring, place, at) for h in hashes)
    assert abs(2 * first - len(hashes)) <= 1


@given(rings, st.data())
def test_children_move_the_keys_of_the_buckets_they_replace_and_no_others(
    ring: Ring, data: st.DataObject
) -> None:
    hashes = data.draw(st.lists(st.integers(0, HASH_MAX), max_size=30))
    count = len(ring.nodes)
    first = data.draw(st.integers(0, count - 1))
    places = [(first + n) % count for n in range(data.draw(st.integers(1, count)))]
    nodes = [Node(ring.nodes[place].value, "", Tag.DELETE) for place in places[:-1]]
    nodes.append(Node(ring.nodes[places[-1]].value, "merged", Tag.REPLACE))
    after = ring.with_children(decode_children(encode_children(nodes), path="plan"))
    touched = {ring.nodes[place].file_id_prefix for place in places}
    for ring_hash in hashes:
        owner = ring.node_of(ring_hash).file_id_prefix
        assert after.node_of(ring_hash).file_id_prefix == ("merged" if owner in touched else owner)


def test_a_plan_draws_the_rings() -> None:
    state = state_of([10, 10, 10, 500])
    found = plan_resize([state], spread(state), TRIGGER)
    lines = str(found).splitlines()
    assert lines[0] == "p: 4 -> 3 buckets, 1 to split, 1 to merge, 530 bytes to rewrite"
    assert lines[1].startswith("  before [") and lines[2].startswith("  after  [")
    assert lines[1].count("|") == 3 and lines[2].count("|") == 2
    assert lines[3] == "2 changes, 530 bytes to rewrite"


def test_a_drawn_ring_shows_where_the_bytes_are() -> None:
    sizes: Mapping[str, int] = {"a": 1, "b": 100}
    bar = draw(Ring((Node(HASH_MAX // 2, "a"), Node(HASH_MAX, "b"))), sizes)
    assert "▁" in bar and "█" in bar and bar.index("▁") < bar.index("█")
