"""The kernels give every key the bucket that the readable functions give it."""

from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
import pyarrow as pa
import xxhash
from hypothesis import given

from bucketlake.index import (
    Node,
    Ring,
    bucket_of,
    buckets_of,
    cannot_disturb,
    hash_pieces,
    pieces_from_hash_values,
    ring_hash_of,
    ring_hashes_of,
    shard_of,
    shards_of,
)
from bucketlake.keygen import KeyGenerator

text = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
"""Any text but lone surrogates, which UTF-8 cannot hold."""
odd_text = st.lists(
    st.sampled_from([",", ":", "k1", "k2", "a", "é", "日", "😀", "__null__", "__empty__", "", " "]),
    max_size=12,
).map("".join)
names = st.sampled_from(["k1", "k2", "k3", "é", ""])
composite = st.lists(st.tuples(names, text | odd_text), min_size=1, max_size=4).map(
    lambda pairs: ",".join(f"{name}:{value}" for name, value in pairs)
)
keys = text | odd_text | composite
fields = st.lists(names, max_size=3)


@given(st.lists(st.none() | keys), fields, st.integers(1, 2**31 - 1), st.booleans())
def test_buckets_of_a_column_are_the_buckets_of_its_keys(
    record_keys: list[str | None], hash_fields: list[str], count: int, is_large: bool
) -> None:
    column = pa.array(record_keys, pa.large_string() if is_large else pa.string())
    expected = [-1 if key is None else bucket_of(hash_pieces(key, hash_fields), count) for key in record_keys]
    assert buckets_of(column, hash_fields, count).tolist() == expected


@given(st.lists(st.none() | keys), fields)
def test_ring_hashes_of_a_column_are_the_ring_hashes_of_its_keys(
    record_keys: list[str | None], hash_fields: list[str]
) -> None:
    column = pa.array(record_keys, pa.string())
    expected = [-1 if key is None else ring_hash_of(hash_pieces(key, hash_fields)) for key in record_keys]
    assert ring_hashes_of(column, hash_fields).tolist() == expected


@given(st.lists(st.none() | keys), st.integers(1, 2**31 - 1), st.booleans())
def test_shards_of_a_column_are_the_shards_of_its_keys(
    record_keys: list[str | None], count: int, is_large: bool
) -> None:
    column = pa.array(record_keys, pa.large_string() if is_large else pa.string())
    expected = [-1 if key is None else shard_of(key, count) for key in record_keys]
    assert shards_of(column, count).tolist() == expected


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters=",:"), max_size=200))
def test_the_ring_hash_of_a_plain_key_is_xxh32(key: str) -> None:
    expected = xxhash.xxh32_intdigest(key.encode(), seed=0) & 0x7FFFFFFF
    assert ring_hashes_of(pa.array([key]), ["id"]).tolist() == [expected]


@given(st.lists(keys, min_size=1), st.integers(0, 5), st.integers(0, 5))
def test_a_slice_hashes_like_a_copy(record_keys: list[str], start: int, length: int) -> None:
    sliced = pa.array(record_keys).slice(start, length)
    copied = pa.array(sliced.to_pylist(), pa.string())
    assert buckets_of(sliced, ["k1"], 97).tolist() == buckets_of(copied, ["k1"], 97).tolist()
    assert ring_hashes_of(sliced, ["k1"]).tolist() == ring_hashes_of(copied, ["k1"]).tolist()


@given(st.sets(st.integers(0, 2**31 - 1), min_size=1), st.lists(st.integers(0, 2**31 - 1)))
def test_a_ring_finds_a_column_of_hashes_where_it_finds_each(values: set[int], hashes: list[int]) -> None:
    ring = Ring(tuple(Node(value, str(value)) for value in values))
    places = ring.nodes_of(np.array(hashes, np.int32))
    assert [ring.nodes[place] for place in places] == [ring.node_of(ring_hash) for ring_hash in hashes]


@given(text | odd_text, text | odd_text, st.sampled_from([["k1"], ["k3"], ["k1", "k3"]]))
def test_a_value_that_cannot_disturb_leaves_the_pieces_of_the_hash_fields(
    hash_value: str, other_value: str, hash_fields: list[str]
) -> None:
    generator = KeyGenerator(record_key_fields=("k1", "k2", "k3"), encodes_field_names=True)
    row = {"k1": hash_value, "k2": other_value, "k3": hash_value}
    pinned = dict.fromkeys(hash_fields, hash_value)
    pieces = pieces_from_hash_values(generator, hash_fields, pinned, other_fields_are_safe=True)
    others = [row[field] for field in row if field not in hash_fields]
    if all(cannot_disturb(value, hash_fields) for value in others) and any(row.values()):
        assert pieces == hash_pieces(generator.record_key_of(row), hash_fields)
