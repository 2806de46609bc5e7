"""Every engine keeps the promises of `Index`: an engine that breaks one loses rows silently."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest

from bucketlake.index import (
    Bucket,
    Directory,
    DirectoryIndex,
    DirectoryMetadata,
    HashingMetadata,
    Node,
    NoIndex,
    PlacedIndex,
    RingIndex,
    RuledIndex,
    Rules,
    SimpleIndex,
    StoredRings,
    parse_rules,
)
from bucketlake.storage import MemoryStore
from bucketlake.testing.index_contract import IndexContract


def bucket_file_ids(count: int) -> list[str]:
    return [f"{bucket:08d}-159a-4953-a3c4-b777b847ae7f-0" for bucket in range(count)]


@pytest.mark.shows("S1", "S4")
class TestSimpleBuckets(IndexContract):
    def index(self) -> PlacedIndex:
        return SimpleIndex(7, ("id",))

    def partition(self) -> str:
        return "dt=2024-01-02"

    def file_ids(self) -> list[str]:
        return bucket_file_ids(7)


class TestSimpleBucketsOnSeveralHashFields(TestSimpleBuckets):
    def index(self) -> PlacedIndex:
        return SimpleIndex(7, ("other", "id"))


@pytest.mark.shows("P10")
class TestPartitionBuckets(IndexContract):
    def index(self) -> PlacedIndex:
        return RuledIndex(Rules(parse_rules("2024-01-.*,5;2024,3"), 2), ("id",))

    def partition(self) -> str:
        return "dt=2024-01-02"

    def file_ids(self) -> list[str]:
        return bucket_file_ids(5)


@pytest.mark.shows("C2", "C3")
class TestConsistentBuckets(IndexContract):
    def index(self) -> PlacedIndex:
        return RingIndex({"p0": HashingMetadata.initial("p0", 6)}, ("id",))

    def partition(self) -> str:
        return "p0"

    def file_ids(self) -> list[str]:
        return [f"{node.file_id_prefix}-0" for node in HashingMetadata.initial("p0", 6).nodes]


class TestConsistentBucketsOnARingThatWrapsAround(TestConsistentBuckets):
    def index(self) -> PlacedIndex:
        nodes = (Node(536870912, "b-b"), Node(268435455, "a-a"))
        merged = replace(HashingMetadata.initial("p0", 6), nodes=nodes)
        return RingIndex({"p0": merged}, ("id",))

    def file_ids(self) -> list[str]:
        return ["a-a-0", "b-b-0"]


class TestStoredConsistentBuckets(TestConsistentBuckets):
    def index(self) -> PlacedIndex:
        store = MemoryStore("index-contract")
        store.put("ring", HashingMetadata.initial("p0", 6).render())
        return RingIndex(StoredRings(store, {"p0": "ring"}), ("id",))


@pytest.mark.shows("C1", "C3")
class TestExtendibleBuckets(IndexContract):
    def index(self) -> PlacedIndex:
        return DirectoryIndex({"p0": DirectoryMetadata.initial("p0", 6)}, ("id",))

    def partition(self) -> str:
        return "p0"

    def file_ids(self) -> list[str]:
        return bucket_file_ids(6)


class TestExtendibleBucketsOfSeveralDepths(TestExtendibleBuckets):
    def index(self) -> PlacedIndex:
        buckets = [(0, 2), (1, 2), (2, 2), (3, 3), (7, 4), (15, 4)]
        directory = Directory.of(1, [Bucket(n, d, f"{n:08d}-a-a") for n, d in buckets])
        stored = replace(DirectoryMetadata.initial("p0", 4), nodes=directory.nodes)
        store = MemoryStore("index-contract-extendible")
        store.put("directory", stored.render())
        return DirectoryIndex(StoredRings(store, {"p0": "directory"}, DirectoryMetadata), ("id",))

    def file_ids(self) -> list[str]:
        return [f"{number:08d}-a-a-0" for number in (0, 1, 2, 3, 7, 15)]


class TestConsistentBucketsOfAPartitionWithoutARing(TestConsistentBuckets):
    def partition(self) -> str:
        return "elsewhere"


def test_where_nothing_is_known_every_file_group_may_hold_every_key() -> None:
    file_ids = ["8f3d1c2e-159a-4953-a3c4-b777b847ae7f-0", "00000001-159a-4953-a3c4-b777b847ae7f-0"]
    index = NoIndex(("id",))
    assert index.file_groups("", file_ids, [("key-1",)]) == frozenset(file_ids)
    assert index.slot_of_file("", file_ids[1]) is None
    assert index.stray("", file_ids[0], pa.array(["key-1"])) is None
    assert not index.is_known
    assert (index.placed, index.rescalable, index.resizable) == (None, None, None)


@pytest.mark.shows("C1")
def test_capabilities_are_asked_of_an_index() -> None:
    simple = SimpleIndex(7, ("id",))
    rings = RingIndex({"p0": HashingMetadata.initial("p0", 6)}, ("id",))
    assert (simple.placed, simple.rescalable, simple.resizable) == (simple, simple, None)
    assert (rings.placed, rings.rescalable, rings.resizable) == (rings, None, rings)
