"""The laws of a directory of extendible hashing: a hash without a bucket, or with two, is a row lost or doubled."""

from __future__ import annotations

import pickle
from functools import partial

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from bucketlake.errors import CorruptTableError
from bucketlake.index import Bucket, Directory, DirectoryMetadata, Tag, derived_prefix
from bucketlake.index.directory import DEPTH_MAX, base_of, bits_of
from bucketlake.index.ring import HASH_MAX
from bucketlake.services.resize_plan import POLICIES, at_the_middle, draw

HASHES = st.integers(0, HASH_MAX)
COUNTS = st.integers(1, 40) | st.sampled_from([1000, 1024])


def initial(count: int) -> Directory:
    return DirectoryMetadata.initial("p", count).directory


@st.composite
def directories(draw: st.DrawFn) -> Directory:
    """A directory after some splits and merges."""
    count = draw(st.integers(1, 12))
    found = initial(count)
    for number in range(draw(st.integers(0, 8))):
        place = draw(st.integers(0, len(found.nodes) - 1))
        keys = np.array(sorted(draw(st.lists(HASHES, min_size=2, max_size=6))), np.int32)
        inside = np.sort(found.positions(keys[found.owners(keys) == place]))
        at = at_the_middle(found, place, inside) if len(inside) else None
        if at is not None:
            children = found.split_into(place, at, partial(derived_prefix, number))
            found = found.with_children(children)  # type: ignore[assignment] # a Directory's is one
    return found


def owner_by_remainder(directory: Directory, key_hash: int) -> Bucket:
    """The slow twin: what the words say."""
    (owner,) = (one for one in directory.buckets if key_hash % (directory.base << one.depth) == one.number)
    return owner


@given(COUNTS, st.lists(HASHES, min_size=1, max_size=30))
def test_a_directory_that_never_split_is_simple_buckets(count: int, hashes: list[int]) -> None:
    directory = initial(count)
    base, depth = base_of(count)
    assert (base << depth, base % 2) == (count, 1)
    assert len(directory.nodes) == count
    places = directory.owners(np.array(hashes, np.int32))
    assert [directory.number_of(place) for place in places] == [key_hash % count for key_hash in hashes]
    assert [directory.owner(key_hash).file_id_prefix for key_hash in hashes] == [
        f"{key_hash % count:08d}" for key_hash in hashes
    ]


@pytest.mark.parametrize("count", [65_521, 65_536])
def test_as_many_buckets_as_a_partition_can_have_make_a_directory(count: int) -> None:
    directory = initial(count)
    hashes = np.array([0, 1, 65_520, 70_000, HASH_MAX], np.int32)
    found = [directory.number_of(place) for place in directory.owners(hashes)]
    assert found == (hashes % count).tolist()
    assert int(directory.positions(hashes).max()) < directory.span <= HASH_MAX + 1


@given(directories(), st.lists(HASHES, min_size=1, max_size=30))
def test_every_hash_has_one_bucket_whoever_looks_for_it(directory: Directory, hashes: list[int]) -> None:
    column = np.array([*hashes, -1], np.int32)
    by_table, by_line = directory.owners(column)[:-1], directory.nodes_of(directory.positions(column))[:-1]
    assert by_table.tolist() == by_line.tolist()
    for key_hash, place in zip(hashes, by_table, strict=True):
        owner = owner_by_remainder(directory, key_hash)
        assert (directory.number_of(place), directory.depth_of(place)) == (owner.number, owner.depth)
        assert directory.owner(key_hash).file_id_prefix == owner.file_id_prefix
    assert directory.positions(column)[-1] == -1


@given(directories())
def test_a_directory_comes_back_from_its_file_and_from_its_buckets(directory: Directory) -> None:
    assert Directory.of(directory.base, directory.buckets) == directory
    stored = DirectoryMetadata(
        partition="p", instant="1", initial_count=directory.base, sequence=3, nodes=directory.nodes
    )
    assert DirectoryMetadata.parse(stored.render(), path="x") == stored
    again = pickle.loads(pickle.dumps(directory))
    assert (again, type(again)) == (directory, Directory)
    assert draw(directory, dict.fromkeys(directory.prefixes, 1)).endswith("]")


@given(directories(), st.data())
def test_a_split_parts_a_buckets_keys_and_nobody_elses(directory: Directory, data: st.DataObject) -> None:
    keys = np.array(data.draw(st.lists(HASHES, min_size=2, max_size=20)), np.int32)
    place = int(directory.owners(keys[:1])[0])
    inside = np.sort(directory.positions(keys[directory.owners(keys) == place]))
    policy = POLICIES[data.draw(st.sampled_from(sorted(POLICIES)))]
    at = policy(directory, place, inside)
    if at is None:
        assert inside[0] == inside[-1]
        return
    assert directory.can_split(place, at)
    children = directory.split_into(place, at, lambda end: derived_prefix("new", end))
    after = directory.with_children(children)
    assert isinstance(after, Directory)
    come = {child.file_id_prefix for child in children}
    before_owners = [directory.nodes[p].file_id_prefix for p in directory.owners(keys)]
    after_owners = [after.nodes[p].file_id_prefix for p in after.owners(keys)]
    old = directory.nodes[place].file_id_prefix
    assert all((b == old) == (a in come) and (a in come or a == b)
               for b, a in zip(before_owners, after_owners, strict=True))  # fmt: skip
    used = {a for a in after_owners if a in come}
    assert len(used) == 2 if len(inside) == 2 else len(used) >= 2
    assert Directory.of(after.base, after.buckets) == after, "every hash has one bucket still"


@given(directories(), st.data(), st.integers(0, 20), st.integers(0, 5))
def test_only_what_was_one_bucket_becomes_one(
    directory: Directory, data: st.DataObject, limit: int, spare: int
) -> None:
    size = st.none() | st.integers(0, 8)
    sizes = data.draw(st.lists(size, min_size=len(directory.nodes), max_size=len(directory.nodes)))
    runs = list(directory.runs_to_merge(sizes, limit=limit, spare=spare))
    children = [
        child for run in runs for child in directory.merge_into(run, lambda end: derived_prefix("new", end))
    ]
    after = directory.with_children(children)
    assert isinstance(after, Directory)
    assert Directory.of(after.base, after.buckets) == after
    assert len(directory.nodes) - len(after.nodes) == sum(len(run) - 1 for run in runs) <= spare
    for run in runs:
        found = [sizes[place] for place in run]
        assert None not in found and sum(one or 0 for one in found) <= limit
    gone = [child for child in children if child.tag is Tag.DELETE]
    assert len(gone) == sum(len(run) - 1 for run in runs)


@given(st.integers(1, 12))
def test_a_directory_whose_buckets_are_all_small_comes_down_to_its_base(count: int) -> None:
    directory = initial(count)
    runs = directory.runs_to_merge([1] * count, limit=1_000, spare=count - 1)
    merged = sum(len(run) - 1 for run in runs)
    assert count - merged == base_of(count)[0]


@given(st.integers(0, 1 << 7))
def test_keys_that_are_equal_in_all_bits_have_no_point_between_them(number: int) -> None:
    assume(number)
    directory = initial(4)
    bits = bits_of(directory.base)
    assert bits == DEPTH_MAX
    one = np.array([5, 5 + (number % 127 << bits)], np.int32)
    position = np.sort(directory.positions(one))
    place = int(directory.owners(one[:1])[0])
    assert position[0] == position[1]
    assert [policy(directory, place, position) for policy in POLICIES.values()] == [None, None]


@pytest.mark.parametrize(
    ("buckets", "fault"),
    [
        ([Bucket(0, 25, "00000000")], "depth from 0 to 24"),
        ([Bucket(2, 1, "00000002")], "number below"),
        ([Bucket(0, 1, "00000000")], "share out all hashes"),
        ([Bucket(0, 1, "00000000"), Bucket(0, 1, "00000000")], "share out all hashes"),
        ([Bucket(0, 0, "00000000"), Bucket(1, 1, "00000001")], "no bucket, or two|share out"),
        ([Bucket(0, 1, "00000000"), Bucket(1, 2, "00000001")], "no bucket, or two|share out"),
    ],
)
def test_a_directory_that_leaves_hashes_out_is_refused_with_its_file(
    buckets: list[Bucket], fault: str
) -> None:
    with pytest.raises(ValueError, match=fault):
        Directory.of(1, buckets)
    body = ", ".join(
        f'{{"number": {one.number}, "depth": {one.depth}, "fileIdPrefix": "{one.file_id_prefix}"}}'
        for one in buckets
    )
    data = f'{{"version": 0, "partitionPath": "p", "instant": "1", "seqNo": 0, "firstBuckets": 1, "buckets": [{body}]}}'
    with pytest.raises(CorruptTableError, match="the/path"):
        DirectoryMetadata.parse(data.encode(), path="the/path")
