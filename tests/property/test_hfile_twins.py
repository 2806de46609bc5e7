"""Fast HFiles say what slow ones say; a key that an index does not find would be written a second time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bucketlake.errors import DamagedFileError, UnsupportedError
from bucketlake.hfile import Codec, HFile, InMemory, ascending, encode, twin
from bucketlake.hfile.block import HEADER
from bucketlake.hfile.columns import as_bytes
from bucketlake.hfile.kernels import KEY_START, RECORD_OVERHEAD, VALUE_START, parse_block
from bucketlake.hfile.twin import Record
from stand_ins.hbase_file import HbaseStyle, hbase_file

# Few characters, so that keys share prefixes; those whose order differs between UTF-8 and UTF-16 among them.
TEXT = st.text("ab\0ü日\ud7ff\ue000ｆ\uffff😀\U0010ffff", max_size=6) | st.text("ab", max_size=20)
KEYS = TEXT.map(str.encode)
VALUES = st.binary(max_size=9)
RECORDS = st.dictionaries(KEYS, VALUES, max_size=40).map(lambda found: sorted(found.items()))
CODECS = st.sampled_from(list(Codec))

STYLES = st.builds(
    HbaseStyle,
    codec=CODECS,
    block_records=st.integers(1, 6),
    fan_out=st.integers(1, 4),
    levels=st.integers(1, 4),
    family=st.binary(max_size=3),
    qualifier=st.binary(max_size=3),
    timestamp=st.integers(0, 2**63 - 1),
    # Hadoop's vints of 0, 127, 200, 2**40 and -1000
    version=st.sampled_from([b"\0", b"\x7f", b"\x8f\xc8", b"\x8a\x01\0\0\0\0\0", b"\x86\x03\xe7"]),
)


def columns(records: list[Record], kind: Any = None) -> tuple[pa.Array, pa.Array]:
    keys = pa.array([key for key, _ in records], pa.binary())
    return keys.cast(kind or pa.binary()), pa.array([value for _, value in records], pa.binary())


def scanned(file: HFile) -> list[Record]:
    entries = file.scan()
    return list(zip(entries.keys.to_pylist(), entries.values.to_pylist(), strict=True))


def opened(data: bytes) -> HFile:
    return HFile.open(InMemory(data, "a/file.hfile"))


def check_searches(file: HFile, records: list[Record], asked: list[bytes]) -> None:
    found = file.look_up(pa.array(asked, pa.binary()))
    assert list(zip(found.at.tolist(), found.values.to_pylist(), strict=True)) == twin.look_up(records, asked)
    entries = file.with_prefixes(pa.array(asked, pa.binary()))
    pairs = list(zip(entries.keys.to_pylist(), entries.values.to_pylist(), strict=True))
    assert pairs == twin.with_prefixes(records, asked)


@given(
    RECORDS,
    CODECS,
    st.integers(1, 300),
    st.sampled_from([pa.binary(), pa.string(), pa.large_binary(), pa.large_string(), pa.string_view()]),
    st.booleans(),
    st.integers(0, 3),
)
def test_a_file_decodes_to_the_columns_it_was_made_of(
    records: list[Record], codec: Codec, block_bytes: int, kind: Any, is_dictionary: bool, cut: int
) -> None:
    keys, values = columns(records, kind)
    if is_dictionary:
        values = values.dictionary_encode()
    records, keys, values = records[cut:], keys[cut:], values[cut:]
    data = encode(keys, values, codec=codec, block_bytes=block_bytes, info={"schema": b"{}"})
    assert data == encode(keys, values, codec=codec, block_bytes=block_bytes, info={"schema": b"{}"})
    file = opened(data)
    assert file.entries == len(records)
    assert file.info["schema"] == b"{}"
    assert scanned(file) == records


@given(RECORDS, st.integers(1, 300))
def test_blocks_are_those_of_the_twin(records: list[Record], block_bytes: int) -> None:
    data = encode(*columns(records), codec=Codec.NONE, block_bytes=block_bytes)
    index = opened(data).index
    payloads = [
        data[offset + HEADER.size : offset + size - 4]
        for offset, size in zip(index.offsets.tolist(), index.sizes.tolist(), strict=True)
    ]
    assert payloads == twin.encode_blocks(records, block_bytes)
    assert [index.keys[number] for number in range(len(index.keys))] == [
        next(iter(twin.decode_block(payload)))[0] for payload in payloads
    ]


@given(st.lists(st.tuples(KEYS, VALUES), max_size=5), st.data())
def test_bytes_that_are_no_records_are_told_apart_as_the_twin_does(
    records: list[Record], data: st.DataObject
) -> None:
    block = bytearray(b"".join(twin.encode_record(key, value) for key, value in records))
    for _ in range(data.draw(st.integers(0, 3)) if block else 0):
        at = data.draw(st.integers(0, len(block) - 1))
        block[at] = data.draw(st.sampled_from([0, 1, 4, 0x7F, 0x80, 0x8F, 0xFF]) | st.integers(0, 255))
    block = block[: data.draw(st.integers(0, len(block)) | st.just(len(block)))]
    spans = np.empty((len(block) // RECORD_OVERHEAD, 4), np.int32)
    count, key_bytes, value_bytes = parse_block(as_bytes(bytes(block)), spans)
    try:
        expected = list(twin.decode_block(bytes(block)))
    except ValueError:
        assert count == -1
        return
    parts = [
        (
            bytes(block[line[KEY_START] : line[KEY_START + 1]]),
            bytes(block[line[VALUE_START] : line[VALUE_START + 1]]),
        )
        for line in spans[:count]
    ]
    assert parts == expected
    assert (key_bytes, value_bytes) == (sum(len(k) for k, _ in parts), sum(len(v) for _, v in parts))


@given(RECORDS, CODECS, st.integers(1, 200), st.lists(KEYS, max_size=12), st.data())
def test_searches_in_our_files_find_what_a_dict_would(
    records: list[Record], codec: Codec, block_bytes: int, others: list[bytes], data: st.DataObject
) -> None:
    known = data.draw(st.lists(st.sampled_from([key for key, _ in records]), max_size=12)) if records else []
    asked = data.draw(st.permutations(known + others))
    file = opened(encode(*columns(records), codec=codec, block_bytes=block_bytes))
    check_searches(file, records, asked)


@given(RECORDS, STYLES, st.lists(KEYS, max_size=12), st.data())
@example(
    sorted(
        {text.encode(): b"v" for text in ["a", "\ue000", "ｆ", "\uffff", "😀", "😀b", "\U0010ffff"]}.items()
    ),
    HbaseStyle(block_records=1),
    [],
    None,
)
def test_searches_in_files_in_javas_order_find_what_a_dict_would(
    records: list[Record], style: HbaseStyle, others: list[bytes], data: st.DataObject | None
) -> None:
    records = sorted(records, key=lambda record: twin.utf16_order(record[0]))
    asked = [key for key, _ in records] + others
    if data is not None:
        asked = data.draw(st.lists(st.sampled_from(asked), max_size=20)) if asked else []
    file = opened(hbase_file(records, style))
    assert scanned(file) == records
    check_searches(file, records, asked)


@given(RECORDS, STYLES, st.booleans(), st.lists(KEYS, max_size=12))
def test_searches_in_files_of_hbase_find_what_a_dict_would(
    records: list[Record], style: HbaseStyle, shortens: bool, others: list[bytes]
) -> None:
    style = HbaseStyle(
        **{name: getattr(style, name) for name in HbaseStyle.__slots__} | {"shortens_keys": shortens}
    )
    file = opened(hbase_file(records, style, info={"schema": b"s"}))
    assert scanned(file) == records
    check_searches(file, records, [key for key, _ in records][::2] + others)


@given(
    st.lists(KEYS | st.binary(max_size=12), max_size=60)
    | st.lists(st.sampled_from([b"a", b"a\0", b"b"]), max_size=80),
    st.sampled_from([b"", b"customer-", b"\0" * 9]),
    st.integers(0, 2),
)
@example([b"same"] * 40 + [b"other"], b"", 0)
def test_keys_are_sorted_by_their_bytes_and_equal_ones_stay_in_order(
    keys: list[bytes], prefix: bytes, cut: int
) -> None:
    column = pa.array([prefix + key for key in keys], pa.binary())[cut:]
    order = ascending(column)
    expected = sorted(range(len(column)), key=lambda number: (column[number].as_py(), number))
    assert (list(range(len(column))) if order is None else order.tolist()) == expected


Ask = Callable[[HFile], Any]
ASKS: dict[str, Ask] = {
    "scan": scanned,
    "look_up": lambda file: file.look_up(pa.array([b"a", b"ab", "\ue000".encode(), b""])).values.to_pylist(),
    "with_prefixes": lambda file: file.with_prefixes(pa.array([b"a", "😀".encode()])).keys.to_pylist(),
}


@pytest.mark.parametrize("ask", ASKS.values(), ids=list(ASKS))
@given(RECORDS, STYLES, st.booleans(), st.data())
def test_damaged_files_are_answered_right_or_refused(
    ask: Ask, records: list[Record], style: HbaseStyle, is_ours: bool, data: st.DataObject
) -> None:
    if is_ours:
        whole = encode(*columns(records), codec=style.codec, block_bytes=60)
    else:
        whole = hbase_file(records, style)
    damaged = bytearray(whole)
    # Most of a small file is the zeros of its trailer, which say nothing.
    places = st.integers(0, len(whole) - 3900) | st.integers(0, len(whole) - 1)
    for _ in range(data.draw(st.integers(1, 3))):
        damaged[data.draw(places)] = data.draw(
            st.sampled_from([0, 1, 0x7F, 0x80, 0xFF]) | st.integers(0, 255)
        )
    start, stop = data.draw(st.sampled_from([(0, None)] * 3 + [(0, -1), (1, None), (0, -4096), (7, -7)]))
    try:
        answer = ask(opened(bytes(damaged[start:stop])))
    except (DamagedFileError, UnsupportedError):
        return
    # Bytes that are not compressed have no checksum: a changed one may be a change of a value.
    if style.codec is Codec.GZIP:
        assert answer == ask(opened(whole))
