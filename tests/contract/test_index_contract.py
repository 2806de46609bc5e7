"""Every engine keeps the promises of `Index`: an engine that breaks one loses rows silently."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bucketlake.index import (
    HashingMetadata,
    Index,
    Node,
    NoIndex,
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
    def index(self) -> Index:
        return SimpleIndex(7, ("id",))

    def partition(self) -> str:
        return "dt=2024-01-02"

    def file_ids(self) -> list[str]:
        return bucket_file_ids(7)


class TestSimpleBucketsOnSeveralHashFields(TestSimpleBuckets):
    def index(self) -> Index:
        return SimpleIndex(7, ("other", "id"))


@pytest.mark.shows("P10")
class TestPartitionBuckets(IndexContract):
    def index(self) -> Index:
        return RuledIndex(Rules(parse_rules("2024-01-.*,5;2024,3"), 2), ("id",))

    def partition(self) -> str:
        return "dt=2024-01-02"

    def file_ids(self) -> list[str]:
        return bucket_file_ids(5)


@pytest.mark.shows("C2", "C3")
class TestConsistentBuckets(IndexContract):
    def index(self) -> Index:
        return RingIndex({"p0": HashingMetadata.initial("p0", 6)}, ("id",))

    def partition(self) -> str:
        return "p0"

    def file_ids(self) -> list[str]:
        return [f"{node.file_id_prefix}-0" for node in HashingMetadata.initial("p0", 6).nodes]


class TestConsistentBucketsOnARingThatWrapsAround(TestConsistentBuckets):
    def index(self) -> Index:
        nodes = (Node(536870912, "b-b"), Node(268435455, "a-a"))
        merged = replace(HashingMetadata.initial("p0", 6), nodes=nodes)
        return RingIndex({"p0": merged}, ("id",))

    def file_ids(self) -> list[str]:
        return ["a-a-0", "b-b-0"]


class TestStoredConsistentBuckets(TestConsistentBuckets):
    def index(self) -> Index:
        store = MemoryStore("index-contract")
        store.put("ring", HashingMetadata.initial("p0", 6).render())
        return RingIndex(StoredRings(store, {"p0": "ring"}), ("id",))


class TestConsistentBucketsOfAPartitionWithoutARing(TestConsistentBuckets):
    def partition(self) -> str:
        return "elsewhere"


class TestNoIndex(IndexContract):
    def index(self) -> Index:
        return NoIndex(("id",))

    def partition(self) -> str:
        return ""

    def file_ids(self) -> list[str]:
        return ["8f3d1c2e-159a-4953-a3c4-b777b847ae7f-0", "00000001-159a-4953-a3c4-b777b847ae7f-0"]
