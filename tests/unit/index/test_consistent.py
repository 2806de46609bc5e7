"""Rings: which version counts, and who owns a hash. Wrong either way, a row is not found."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from bucketlake.errors import CorruptTableError
from bucketlake.index import HashingMetadata, Node, Ring, RingIndex, choose_ring, list_rings
from bucketlake.layout.names import CONSISTENT_METADATA_FOLDER as RING_FOLDER
from bucketlake.storage import LocalStore, MemoryStore
from bucketlake.timeline import Action, Instant, State, Timeline

# Made by HoodieConsistentHashingMetadata and ConsistentBucketIdentifier of Hudi 1.2.0.
VECTORS: list[dict[str, Any]] = json.loads(
    (Path(__file__).parents[2] / "golden" / "consistent_vectors.json").read_text("utf-8")
)
T1, T2, T3 = (f"2024010100000000{n}" for n in range(1, 4))
ZERO = "00000000000000"


def timeline(*pairs: tuple[str, Action, State]) -> Timeline:
    return Timeline(
        tuple(
            Instant(t, action, state, t if state is State.COMPLETED else None, "")
            for t, action, state in pairs
        )
    )


def metas(*instants: str) -> list[str]:
    return [f"{instant}.hashing_meta" for instant in instants]


@pytest.mark.shows("C2")
@pytest.mark.parametrize(
    "vector", VECTORS, ids=lambda vector: f"{vector['partition']}-{vector['num_buckets']}"
)
def test_the_first_ring_is_the_one_hudi_derives(vector: dict[str, Any]) -> None:
    ours = HashingMetadata.initial(vector["partition"], vector["num_buckets"])
    assert json.loads(ours.render()) == vector["json"]
    assert vector.get("text", ours.render().decode()) == ours.render().decode()
    assert HashingMetadata.parse(ours.render(), path="x") == ours


@pytest.mark.shows("C3")
@pytest.mark.parametrize(
    "vector", VECTORS, ids=lambda vector: f"{vector['partition']}-{vector['num_buckets']}"
)
def test_keys_are_found_where_hudi_finds_them(vector: dict[str, Any]) -> None:
    partition = vector["partition"]
    first = HashingMetadata.initial(partition, vector["num_buckets"])
    index = RingIndex({partition: first}, ("id",))
    located = index.locate(partition, pa.array(list(vector["lookups"])))
    assert located.to_pylist() == list(vector["lookups"].values())


@pytest.mark.shows("C3")
def test_hashes_above_the_top_node_wrap_around_to_the_smallest() -> None:
    ring = Ring((Node(20, "b"), Node(10, "a")))
    hashes = [0, 10, 11, 20, 21, 2**31 - 1]
    owners = ["a", "a", "b", "b", "a", "a"]
    assert [ring.node_of(ring_hash).file_id_prefix for ring_hash in hashes] == owners
    assert [ring.prefixes[n] for n in ring.nodes_of(np.array(hashes, np.int32))] == owners


def test_of_two_nodes_with_one_value_the_last_counts() -> None:
    assert Ring((Node(10, "a"), Node(10, "b"))).prefixes == ("b",)


@pytest.mark.shows("C2")
@pytest.mark.parametrize(
    ("names", "line", "chosen"),
    [
        (metas(ZERO), timeline(), ZERO),
        (metas(ZERO, T2), timeline((T1, Action.DELTA_COMMIT, State.COMPLETED)), ZERO),
        (metas(ZERO, T2), timeline((T2, Action.CLUSTERING, State.INFLIGHT)), ZERO),
        (metas(ZERO, T2), timeline((T2, Action.REPLACE_COMMIT, State.COMPLETED)), T2),
        ([*metas(ZERO, T2), f"{T2}.commit"], timeline((T1, Action.DELTA_COMMIT, State.COMPLETED)), T2),
        (metas(ZERO, T1), timeline((T2, Action.DELTA_COMMIT, State.COMPLETED)), T1),
        (metas(ZERO, T1, T2), timeline((T2, Action.REPLACE_COMMIT, State.INFLIGHT)), T1),
        ([f"{T1}.commit"], timeline(), None),
        ([*metas(ZERO), "x.hashing_meta", f"{T1}.hashing_meta.tmp"], timeline(), ZERO),
        (metas(T2), timeline((T1, Action.DELTA_COMMIT, State.COMPLETED)), None),
    ],
)
def test_the_newest_version_that_is_committed_counts(
    names: list[str], line: Timeline, chosen: str | None
) -> None:
    assert choose_ring(names, line, lambda _: True) == chosen


@pytest.mark.shows("C2")
def test_as_of_leaves_later_rings_out() -> None:
    line = timeline(
        (T1, Action.REPLACE_COMMIT, State.COMPLETED), (T3, Action.REPLACE_COMMIT, State.COMPLETED)
    )
    assert choose_ring(metas(ZERO, T1, T3), line, lambda _: True, as_of=T2) == T1
    assert choose_ring(metas(T1, T3), line, lambda _: True, as_of=ZERO) is None


def test_a_ring_that_is_half_written_and_uncommitted_is_never_read() -> None:
    store = MemoryStore()
    store.put(
        f"{RING_FOLDER}/dt=1/hh=2/{ZERO}.hashing_meta", HashingMetadata.initial("dt=1/hh=2", 2).render()
    )
    store.put(f"{RING_FOLDER}/dt=1/hh=2/{T2}.hashing_meta", b'{"ver')
    rings = list_rings(store, timeline((T1, Action.DELTA_COMMIT, State.COMPLETED)))
    assert rings is not None
    assert len(rings["dt=1/hh=2"].nodes) == 2
    assert [
        file.path for file in store.list(RING_FOLDER, recursive=True).files if ".commit" in file.path
    ] == []


def test_a_table_without_partitions_keeps_its_ring_in_the_folder_itself() -> None:
    store = MemoryStore()
    store.put(f"{RING_FOLDER}/{ZERO}.hashing_meta", HashingMetadata.initial("", 3).render())
    rings = list_rings(store, timeline())
    assert rings is not None
    assert list(rings) == [""]
    assert len(rings[""].nodes) == 3


def test_a_table_of_another_kind_has_no_rings() -> None:
    assert list_rings(MemoryStore(), timeline()) is None


GOOD = json.loads(HashingMetadata.initial("p0", 1).render())


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ({"nodes": []}, "nodes"),
        ({"nodes": None}, "nodes"),
        ({"nodes": [5]}, "nodes"),
        ({"nodes": [{"value": -1, "fileIdPrefix": "a", "tag": "NORMAL"}]}, "value"),
        ({"nodes": [{"value": 1, "fileIdPrefix": None, "tag": "DELETE"}]}, "fileIdPrefix"),
        ({"nodes": [{"value": 1, "fileIdPrefix": "", "tag": "NORMAL"}]}, "fileIdPrefix"),
        ({"nodes": [{"value": 1, "fileIdPrefix": "a", "tag": "ODD"}]}, "tag"),
        ({"seqNo": "1"}, "seqNo"),
        ({"partitionPath": 5}, "partitionPath"),
    ],
)
def test_a_broken_ring_names_file_and_key(change: dict[str, object], key: str) -> None:
    with pytest.raises(CorruptTableError, match=key) as error:
        HashingMetadata.parse(json.dumps(GOOD | change).encode(), path="f")
    assert error.value.path == "f"


@pytest.mark.parametrize("data", [b"", b"{", b"\xff\xfe", b"7"])
def test_bytes_that_are_no_ring_are_corruption(data: bytes) -> None:
    with pytest.raises(CorruptTableError):
        HashingMetadata.parse(data, path="f")


@pytest.mark.shows("C2")
def test_every_ring_that_hudi_wrote_is_written_as_it_was_read(golden_table: Callable[[str], Path]) -> None:
    store = LocalStore(golden_table("mor_consistent_4_after_merge"))
    paths = [
        file.path
        for file in store.list(RING_FOLDER, recursive=True).files
        if file.path.endswith(".hashing_meta")
    ]
    assert len(paths) > 2
    for path in paths:
        assert HashingMetadata.parse(store.read(path), path=path).render() == store.read(path)
