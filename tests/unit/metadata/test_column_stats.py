"""Ranges of columns, as Hudi stores them: keys, bytes, shards, and what two records of one key become."""

from __future__ import annotations

import json
import math
import tarfile
from pathlib import Path

import pytest

from bucketlake import hfile
from bucketlake.errors import DamagedFileError
from bucketlake.metadata.column_stats import (
    NOTHING,
    ColumnRange,
    Kind,
    Value,
    ValueType,
    decode_range,
    encode_range,
    file_key,
    merge_values,
    merged,
    partition_key,
    shards_of,
)

GOLDEN = Path(__file__).parents[2] / "golden"
LONG, DECIMAL = ValueType(Kind.LONG), ValueType(Kind.DECIMAL, "10,2")


def a_range(
    least: Value | None = 1, most: Value | None = 5, type: ValueType = LONG, **more: object
) -> ColumnRange:
    facts = {"name": "p1", "column": "c", "values": 4, "nulls": 1, "size_bytes": 10, "raw_bytes": 20} | more
    return ColumnRange(type=type, least=least, most=most, **facts)  # type: ignore[arg-type] # as they come


def golden_images(name: str) -> dict[str, bytes]:
    with tarfile.open(GOLDEN / f"{name}.tar.gz") as archive:
        return {
            member.name: file.read()
            for member in archive
            if "_stats/" in member.name and Path(member.name).match("*.hfile")
            if not Path(member.name).name.startswith(".")
            if (file := archive.extractfile(member))
        }


@pytest.mark.shows("M2")
def test_records_of_hudi_have_the_keys_shards_and_bytes_that_we_give_them() -> None:
    seen = 0
    images = golden_images("svc_mor")
    partitions: set[str] = set()
    for path, image in sorted(images.items(), reverse=True):  # partitions first, which say their names
        entries = hfile.HFile.open(hfile.InMemory(image, name=path)).scan()
        keys = [key.decode() for key in entries.keys.to_pylist()]
        is_of_files = "column_stats" in path
        expected = int(path.split("stats-")[-1][:4])
        assert set(shards_of(keys, 2 if is_of_files else 1)) == {expected}
        for key, value in zip(keys, entries.values.to_pylist(), strict=True):
            kind, said = decode_range(value, path=path)
            assert kind == (3 if is_of_files else 6)
            assert encode_range(said, of_partition=not is_of_files) == value
            if is_of_files:
                assert key in {file_key(said.column, partition, said.name) for partition in partitions}
            else:
                assert key == partition_key(said.column, said.name)
                partitions.add(said.name)
            seen += 1
    assert seen > 50


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (Kind.BOOLEAN, True),
        (Kind.INT, -7),
        (Kind.LONG, 1 << 62),
        (Kind.FLOAT, 0.5),
        (Kind.DOUBLE, -math.inf),
        (Kind.STRING, "grün 🌍"),
        (Kind.BYTES, b"\0\xff"),
        (Kind.FIXED, b"abc"),
        (Kind.UUID, "159a4953-a3c4-b777-b847-ae7f00000000"),
        (Kind.DATE, 20_000),
        (Kind.TIME_MILLIS, 1),
        (Kind.TIME_MICROS, 2),
        (Kind.TIMESTAMP_MILLIS, -3),
        (Kind.TIMESTAMP_MICROS, 4),
        (Kind.TIMESTAMP_NANOS, 5),
        (Kind.LOCAL_TIMESTAMP_MILLIS, 6),
        (Kind.LOCAL_TIMESTAMP_MICROS, 7),
        (Kind.LOCAL_TIMESTAMP_NANOS, 8),
    ],
)
def test_a_range_of_any_type_comes_back(kind: Kind, value: Value) -> None:
    said = a_range(value, value, ValueType(kind))
    for of_partition in (True, False):
        encoded = encode_range(said, of_partition=of_partition)
        assert decode_range(encoded, path="x") == (6 if of_partition else 3, said)


def test_a_decimal_says_its_digits_and_is_ordered_by_its_number() -> None:
    older, newer = a_range(b"\xff", b"\x01", DECIMAL), a_range(b"\x00\x80", b"\x00\x80", DECIMAL)
    assert decode_range(encode_range(older, of_partition=True), path="x")[1] == older
    both = merged(older, newer)
    assert (both.least, both.most) == (b"\xff", b"\x00\x80")


def test_a_newer_range_widens_unless_it_is_tight_or_one_is_deleted() -> None:
    older, newer = a_range(1, 5), a_range(3, 9)
    both = merged(older, newer)
    assert (both.least, both.most, both.values, both.nulls, both.size_bytes) == (1, 9, 8, 2, 20)
    assert merged(older, a_range(3, 9, is_tight=True)) == a_range(3, 9, is_tight=True)
    assert merged(a_range(1, 5, is_deleted=True), newer) == newer
    assert merged(older, a_range(None, None, NOTHING, is_deleted=True)).is_deleted


def test_nulls_leave_a_range_as_it_is_and_nan_is_above_all() -> None:
    assert merged(a_range(1, 5), a_range(None, None)).least == 1
    double = ValueType(Kind.DOUBLE)
    both = merged(a_range(2.0, math.nan, double), a_range(-0.0, 7.0, double))
    assert both.least == 0.0
    assert math.copysign(1, both.least) == -1
    assert isinstance(both.most, float)
    assert math.isnan(both.most)


def test_records_of_a_shard_are_merged_in_their_order_and_what_is_deleted_is_gone() -> None:
    def value(**facts: object) -> bytes:
        return encode_range(a_range(**facts), of_partition=True)  # type: ignore[arg-type] # as they come

    base = {"kept": value(), "widened": value(least=1, most=5), "gone": value(), "back": value(least=1)}
    first = {"widened": value(least=3, most=9), "tomb": value(is_deleted=True)}
    again = {"back": value(least=4)}
    found = merge_values([(base, []), (first, []), ({}, ["gone", "back"]), (again, [])], path="x")
    assert set(found) == {"kept", "widened", "back"}
    assert found["kept"] is base["kept"]
    assert found["back"] == value(least=4)
    said = decode_range(found["widened"], path="x")[1]
    assert (said.least, said.most) == (1, 9)


def test_a_tombstone_with_a_detail_is_one_too() -> None:
    tombstone = encode_range(a_range(None, None, DECIMAL, is_deleted=True), of_partition=False)
    assert merge_values([({"k": tombstone}, [])], path="x") == {}


def test_shards_are_those_of_hudi() -> None:
    vectors = json.loads((GOLDEN / "shard_vectors.json").read_text())
    ascii_only = [(key, shards) for key, shards in vectors if key.isascii() and key]
    keys = [key for key, _ in ascii_only]
    for place, count in enumerate((1, 2, 10, 256)):
        assert shards_of(keys, count) == [shards[place] for _, shards in ascii_only]


@pytest.mark.parametrize("cut", range(0, 60, 7))
def test_a_record_that_was_cut_is_told_apart(cut: int) -> None:
    whole = encode_range(a_range("least", "most", ValueType(Kind.STRING)), of_partition=False)
    with pytest.raises(DamagedFileError, match="describes no column"):
        decode_range(whole[: min(cut, len(whole) - 3)], path="x")
