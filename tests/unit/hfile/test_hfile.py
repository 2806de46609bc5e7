"""What an HFile promises to those who write and read it."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

from bucketlake.errors import ConfigError, UnsupportedError
from bucketlake.hfile import Codec, HFile, InMemory, encode, writer
from bucketlake.hfile.source import Range
from stand_ins.hbase_file import HbaseStyle, hbase_file


class Counted:
    """A source that remembers what was read."""

    name = "counted.hfile"

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.size = len(data)
        self.requests: list[list[Range]] = []

    def read(self, ranges: Sequence[Range]) -> list[bytes]:
        self.requests.append(list(ranges))
        return [self.data[offset : offset + length] for offset, length in ranges]


def large_file(count: int = 30_000) -> tuple[pa.Array, bytes]:
    chance = random.Random(1)
    keys = pa.array([f"k-{number:06d}" for number in range(count)])
    return keys, encode(keys, pa.array([chance.randbytes(40) for _ in range(count)]))


def test_a_small_file_is_read_by_one_request() -> None:
    source = Counted(encode(pa.array(["a", "b"]), pa.array([b"1", b"2"])))
    file = HFile.open(source)
    assert file.scan().values.to_pylist() == [b"1", b"2"]
    assert file.look_up(pa.array(["b"])).values.to_pylist() == [b"2"]
    assert source.requests == [[(0, source.size)]]


def test_an_index_that_is_not_in_the_tail_costs_one_request_more() -> None:
    keys = pa.array([f"{number:05d}" + random.Random(number).randbytes(150).hex() for number in range(700)])
    source = Counted(encode(keys, pa.array([b""] * 700), codec=Codec.NONE, block_bytes=1))
    file = HFile.open(source)
    assert len(source.requests) == 2
    assert file.scan().keys.cast(pa.string()).equals(keys)


def test_a_look_up_reads_the_blocks_that_can_hold_its_keys_and_adjacent_ones_at_once() -> None:
    _, data = large_file()
    source = Counted(data)
    file = HFile.open(source)
    places = list(zip(file.index.offsets.tolist(), file.index.sizes.tolist(), strict=True))
    first_keys = [file.index.keys[number].decode() for number in range(len(places))]
    assert len(places) > 20
    source.requests.clear()

    asked = [first_keys[3], first_keys[4], first_keys[9], first_keys[9] + "!", "", "a", "z"]
    found = file.look_up(pa.array(asked))

    assert found.at.tolist() == [0, 1, 2]
    together = (places[3][0], places[3][1] + places[4][1])
    assert source.requests == [[together, places[9], places[-1]]], "the last block could hold z"


def test_a_scan_reads_all_blocks_as_one_range() -> None:
    _, data = large_file()
    source = Counted(data)
    file = HFile.open(source)
    source.requests.clear()
    file.scan()
    ((only,),) = source.requests
    assert only == (0, int(file.index.sizes.sum()))


def test_prefixes_that_span_blocks_and_contain_each_other_give_every_entry_once() -> None:
    keys, data = large_file()
    file = HFile.open(InMemory(data))
    entries = file.with_prefixes(pa.array(["k-02", "k-01", "k-012", "k-029999", "x"]))
    assert entries.keys.cast(pa.string()).equals(keys[10_000:30_000])


def test_the_index_tells_about_how_many_keys_start_alike_at_the_least() -> None:
    keys, data = large_file()
    file = HFile.open(InMemory(data))
    block = file.entries // len(file.index.offsets)
    for prefixes in (
        ["k-0"],
        ["k-01"],
        ["k-01", "k-03"],
        ["k-000007"],
        ["x"],
        [""],
        ["a", "k-02", "k-029999"],
    ):
        exact = sum(key.startswith(tuple(prefixes)) for key in keys.to_pylist())
        least = file.least_with_prefixes(pa.array(prefixes))
        assert max(0, exact - 3 * block * len(prefixes)) <= least <= exact, prefixes
    assert (
        HFile.open(
            InMemory(encode(pa.array([], pa.string()), pa.array([], pa.binary())))
        ).least_with_prefixes(pa.array(["a"]))
        == 0
    )


def test_keys_may_be_asked_for_in_any_order_and_several_times() -> None:
    _, data = large_file()
    file = HFile.open(InMemory(data))
    found = file.look_up(pa.chunked_array([["k-000007", "none", "k-000001"], ["k-000007"]]))
    assert found.at.tolist() == [0, 2, 3]
    first, second, third = found.values.to_pylist()
    assert first == third != second


def test_a_file_without_records_is_a_file() -> None:
    file = HFile.open(InMemory(encode(pa.array([], pa.string()), pa.array([], pa.binary()))))
    assert file.entries == 0
    assert len(file.scan().keys) == 0
    assert len(file.look_up(pa.array(["a"])).at) == 0
    assert len(file.with_prefixes(pa.array([""])).keys) == 0


def test_values_of_a_dictionary_give_the_same_file() -> None:
    keys = pa.array([f"{number:04d}" for number in range(3000)])
    values = pa.array([b"east", b"west", b""] * 1000)
    for kind in (pa.int8(), pa.int32(), pa.uint16()):
        encoded = values.cast(pa.dictionary(kind, pa.binary()))
        assert encode(keys, encoded) == encode(keys, values)
    chunks = pa.chunked_array([encoded[:7], values[7:].dictionary_encode().cast(encoded.type)])
    assert encode(keys, chunks) == encode(keys, values)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        (["a", "c", "b"], r"position 2, b'b', is below the one before it, b'c'"),
        (["a", "a"], r"position 1, b'a', is equal to the one before it"),
        (["😀", "ｆ"], r"position 1, .* is below"),
        (["a", None], r"keys of an HFile must not be null, and position 1 is"),
        (["a", "b" * 32_768], r"position 1 has 32768 bytes, and an HFile holds keys of at most 32767"),
    ],
)
def test_keys_that_no_hfile_can_hold_are_refused(keys: list[Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        encode(pa.array(keys), pa.array([b""] * len(keys)))


def test_the_longest_key_is_found_again() -> None:
    keys = pa.array(["b" * 32_767, "c"])
    file = HFile.open(InMemory(encode(keys, pa.array([b"1", b"2"]))))
    assert file.look_up(keys).values.to_pylist() == [b"1", b"2"]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (pa.array([b"1"]), "a value per key, and got 1 for 2 keys"),
        (pa.array([b"1", None]), "values of an HFile must not be null"),
        (pa.array([b"1", None]).dictionary_encode(), "values of an HFile must not be null"),
        (pa.array([1, 2]), "values of an HFile are int64, and must be binary or string"),
    ],
)
def test_values_that_no_hfile_can_hold_are_refused(values: pa.Array, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        encode(pa.array(["a", "b"]), values)


def test_a_file_that_hudi_could_not_read_is_not_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "FILE_BYTES_MAX", 100_000)
    with pytest.raises(ConfigError, match="2 GiB or more"):
        large_file()


def test_another_codec_is_named() -> None:
    data = hbase_file([(b"a", b"1")], HbaseStyle(codec=Codec.NONE))
    codec_field = b"\x60\x02"
    assert data.count(codec_field) == 1
    with pytest.raises(UnsupportedError, match=r"the codec of it\.hfile is ZSTD \(number 6\)"):
        HFile.open(InMemory(data.replace(codec_field, b"\x60\x06"), "it.hfile"))


def test_another_version_and_records_with_tags_are_refused() -> None:
    data = encode(pa.array(["a"]), pa.array([b"1"]))
    with pytest.raises(UnsupportedError, match="HFile version 2"):
        HFile.open(InMemory(data[:-1] + b"\2"))
    with pytest.raises(UnsupportedError, match="records have tags"):
        HFile.open(InMemory(hbase_file([(b"a", b"1")], info={"hfile.MAX_TAGS_LEN": b"\0\0\0\1"})))
