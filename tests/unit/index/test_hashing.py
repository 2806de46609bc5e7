"""Buckets must match the JVM bit for bit: a miss is a silent duplicate, or a lost row."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from bucketlake.index import (
    bucket_of,
    buckets_of,
    cannot_disturb,
    hash_pieces,
    pieces_from_hash_values,
    ring_hash_of,
    ring_hashes_of,
)
from bucketlake.keygen import KeyGenerator

# Made by BucketIdentifier, KeyGenUtils and HashID of Hudi 1.2.0.
VECTORS: list[dict[str, Any]] = [
    json.loads(line)
    for line in (Path(__file__).parents[2] / "golden" / "bucket_vectors.jsonl")
    .read_text("utf-8")
    .splitlines()
]
# Asked of KeyGenUtils.extractRecordKeysByFields afterwards, for the odd ones.
ODD_KEYS = [
    ("k1:a,k2:x,k1:b", ["k1"], ["a", "b"]),
    ("k1:a,k2:x,zz:b,k3:c", ["k1", "k3"], ["a", "c"]),
    ("k1:p,q:r,k2:c", ["k1"], ["p"]),
    ("k1:p,q:r,k2:c", ["k2"], ["c"]),
    ("k1:a,k2:10:30", ["k1", "k2"], ["a", "10:30"]),
    ("a,b:c", ["id"], ["a,b:c"]),
    (",:", ["id"], [",:"]),
    ("x:1,,y:2", ["y"], ["2"]),
    (",k1:a", ["k1"], [",k1:a"]),
]
TWO_FIELDS = KeyGenerator(record_key_fields=("k1", "k2"), encodes_field_names=True)


@pytest.mark.shows("S1")
def test_pieces_and_buckets_match_the_jvm() -> None:
    for vector in VECTORS:
        pieces = hash_pieces(vector["record_key"], vector["hash_fields"])
        assert list(pieces) == vector["pieces"], vector
        for count in (4, 10, 256):
            assert bucket_of(pieces, count) == vector[f"bucket_{count}"], vector


@pytest.mark.shows("C3")
def test_ring_hashes_match_the_jvm() -> None:
    for vector in VECTORS:
        pieces = hash_pieces(vector["record_key"], vector["hash_fields"])
        assert ring_hash_of(pieces) == vector["consistent_hash"], vector


@pytest.mark.shows("S1", "C3")
def test_kernels_match_the_jvm() -> None:
    for vector in VECTORS:
        keys = pa.array([vector["record_key"]])
        assert buckets_of(keys, vector["hash_fields"], 256)[0] == vector["bucket_256"], vector
        assert ring_hashes_of(keys, vector["hash_fields"])[0] == vector["consistent_hash"], vector


@pytest.mark.parametrize(("key", "fields", "pieces"), ODD_KEYS)
def test_odd_keys_are_cut_as_on_the_jvm(key: str, fields: list[str], pieces: list[str]) -> None:
    assert list(hash_pieces(key, fields)) == pieces


def test_a_key_on_which_hudi_never_returns_is_read_to_its_end() -> None:
    assert hash_pieces("k1:a,k2:10:30", ["k1"]) == ("a",)


def test_no_hash_fields_means_all_of_them() -> None:
    assert hash_pieces("k1:a,k2:b", []) == hash_pieces("k1:a,k2:b", [""]) == ("a", "b")


@pytest.mark.parametrize(
    "keys",
    [
        pa.array(["a", None, "ü"]),
        pa.array(["a", None, "ü"], pa.large_string()),
        pa.array(["a", None, "ü"]).cast(pa.string_view()),
        pa.array(["a", None, "ü"]).dictionary_encode(),
        pa.array(["x", "y", "a", None, "ü", "z"]).slice(2, 3),
        pa.chunked_array([["a", None], [], ["ü"]], pa.string()),
    ],
)
def test_every_layout_of_a_column_gives_the_same_buckets_and_minus_one_for_null(keys: Any) -> None:
    expected = [bucket_of(["a"], 97), -1, bucket_of(["ü"], 97)]
    assert buckets_of(keys, ["id"], 97).tolist() == expected
    assert ring_hashes_of(keys, ["id"]).tolist() == [ring_hash_of(["a"]), -1, ring_hash_of(["ü"])]


@pytest.mark.parametrize(
    "keys",
    [pa.array([], pa.string()), pa.chunked_array([], pa.string()), pa.nulls(0), pa.array([""]).slice(1)],
)
def test_no_keys_give_no_buckets(keys: Any) -> None:
    assert buckets_of(keys, ["id"], 4).tolist() == []
    assert ring_hashes_of(keys, ["id"]).tolist() == []


@pytest.mark.shows("S4")
def test_pinning_every_key_field_gives_the_pieces_whatever_the_values() -> None:
    values = {"k1": "a", "k2": "x,k1:b", "other": 1}
    pieces = pieces_from_hash_values(TWO_FIELDS, ["k1"], values, other_fields_are_safe=False)
    assert pieces == ("a", "b")
    assert pieces == hash_pieces(TWO_FIELDS.record_key_of(values), ["k1"])


@pytest.mark.shows("S4")
def test_pinning_the_hash_fields_alone_prunes_only_if_the_others_are_safe() -> None:
    ask = {"k1": "a"}
    assert pieces_from_hash_values(TWO_FIELDS, ["k1"], ask, other_fields_are_safe=True) == ("a",)
    assert pieces_from_hash_values(TWO_FIELDS, ["k1"], ask, other_fields_are_safe=False) is None
    # What the promise is about: this row has k1 = a, and lies in another bucket.
    disturbed = TWO_FIELDS.record_key_of({"k1": "a", "k2": "x,k1:b"})
    assert hash_pieces(disturbed, ["k1"]) != ("a",)


@pytest.mark.shows("S4")
@pytest.mark.parametrize(
    ("hash_fields", "values"),
    [
        (["k1"], {"k2": "a"}),
        (["k1", "k2"], {"k1": "a"}),
        ([], {"k1": "a", "k2": "b"}),
        (["k1"], {"k1": 1.5, "k2": "b"}),
        (["k1"], {"k1": b"a", "k2": "b"}),
        (["k1"], {"k1": pa.scalar(0, pa.timestamp("us")), "k2": "b"}),
        (["k1"], {"k1": None, "k2": None}),
        (["k1"], {"k1": [1], "k2": "a"}),
    ],
)
def test_values_that_do_not_settle_the_key_give_no_pieces(
    hash_fields: list[str], values: dict[str, object]
) -> None:
    assert pieces_from_hash_values(TWO_FIELDS, hash_fields, values, other_fields_are_safe=True) is None


def test_a_null_hash_value_is_a_null_piece() -> None:
    values = {"k1": None, "k2": 7}
    assert pieces_from_hash_values(TWO_FIELDS, ["k1"], values, other_fields_are_safe=False) == (None,)


def test_a_one_field_key_that_names_its_field_is_hashed_with_the_name() -> None:
    generator = KeyGenerator(record_key_fields=("id",), encodes_field_names=True)
    pieces = pieces_from_hash_values(generator, ["id"], {"id": 1}, other_fields_are_safe=False)
    assert pieces == ("id:1",)


def test_only_the_name_of_a_hash_field_between_comma_and_colon_disturbs() -> None:
    for value in ("a,b:c", "k1:b", "a:k1,b", "k1", ",k1", "x, k1:b"):
        assert cannot_disturb(value, ["k1"])
        assert hash_pieces(f"k1:a,k2:{value},k3:z", ["k1", "k3"]) == ("a", "z")
    assert not cannot_disturb("a,k1:b", ["k1"])
