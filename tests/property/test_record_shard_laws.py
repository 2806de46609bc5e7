"""A shard says what a dict would: a key that it loses is written a second time, in another file group."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bucketlake import hfile
from bucketlake.hfile import twin as hfile_twin
from bucketlake.metadata.listing import ShardSlice
from bucketlake.metadata.record_index import Location, Locations, encode_location
from bucketlake.metadata.record_shard import (
    ShardEntries,
    compacted_shard,
    encode_entry_log,
    look_up_shard,
    read_shard,
)
from bucketlake.metadata.shard_ranges import NO_RANGE, ShardRanges
from bucketlake.storage import FileStat, MemoryStore
from stand_ins.hbase_file import HbaseStyle, hbase_file

INSTANT = "20240102030405678"

Places = dict[str, Location]


@dataclass(frozen=True)
class Step:
    """What one write to a shard says."""

    came: Places = field(default_factory=dict)
    gone: tuple[str, ...] = ()


Log = list[Step]
"""Steps that share a file: their blocks follow each other."""


def read_slowly(base: Places | None, logs: Sequence[Log]) -> Places:
    """The twin: what a shard says in the end, one key after the other."""
    found = dict(base or {})
    for log in logs:
        for step in log:
            found.update(step.came)
            for key in step.gone:
                found.pop(key, None)
    return found


# Few characters and few keys, so that steps meet: prefixes of each other, and those that UTF-8 and UTF-16 order
# differently, among them.
KEYS = st.text("ab$\0", max_size=3) | st.text("a\0$ü\ud7ff\ue000ｆ\uffff😀\U0010ffff", max_size=3)
PLACES = st.builds(
    Location,
    st.sampled_from(["", "p0", "dt=2024-01-02/eu"]),
    st.sampled_from(
        ["6f1c1f52-0dd4-4a3c-8d7e-0d6a5f0f3e11-0", "00000002-2b54-4c3e-9a7e-6f0d5e8c1a22-0", "no uuid", ""]
    ),
    st.integers(0, 3),
)
ENTRIES = st.dictionaries(KEYS, PLACES, max_size=12)


@st.composite
def steps(draw: st.DrawFn) -> Step:
    came = draw(ENTRIES)
    gone = draw(st.lists(KEYS.filter(lambda key: key not in came), max_size=6))
    return Step(came, tuple(gone))


BASES = st.none() | st.dictionaries(KEYS, PLACES, max_size=30)
LOGS = st.lists(st.lists(steps(), min_size=1, max_size=3), max_size=4)
STYLES = st.none() | st.builds(
    HbaseStyle, block_records=st.integers(1, 5), fan_out=st.integers(1, 4), levels=st.integers(1, 3)
)


def column(places: Places, *, kind: pa.DataType | None = None) -> ShardEntries:
    distinct = sorted(set(places.values()), key=repr)
    codes = np.array([distinct.index(place) for place in places.values()], np.int32)
    return ShardEntries(pa.array(list(places), kind or pa.string()), Locations(codes, tuple(distinct)))


def base_image(places: Places, style: HbaseStyle | None) -> bytes:
    """A base file: ours, of tiny blocks; or one as others write it, sorted as Java sorts texts."""
    records = [(key.encode(), encode_location(place)) for key, place in places.items()]
    if style is not None:
        return hbase_file(sorted(records, key=lambda record: hfile_twin.utf16_order(record[0])), style)
    records.sort()
    return hfile.encode(
        pa.array([key for key, _ in records], pa.binary()),
        pa.array([value for _, value in records], pa.binary()),
        block_bytes=150,
    )


def log_image(log: Log) -> bytes:
    return b"".join(
        encode_entry_log(INSTANT, column(step.came), pa.array(step.gone, pa.string())) for step in log
    )


def stored(store: MemoryStore, path: str, data: bytes) -> FileStat:
    store.put(path, data)
    return store.stat(path)


def shard_of(
    store: MemoryStore, base: Places | None, logs: Sequence[Log], style: HbaseStyle | None = None
) -> ShardSlice:
    return ShardSlice(
        None if base is None else stored(store, "base.hfile", base_image(base, style)),
        tuple(stored(store, f".log.{number}", log_image(log)) for number, log in enumerate(logs)),
    )


def read(store: MemoryStore, shard: ShardSlice) -> Places:
    """Read a shard, and check what a column of entries promises beside being right."""
    entries = read_shard(store, shard)
    keys = entries.keys.to_pylist()
    assert [key.encode() for key in keys] == sorted({key.encode() for key in keys})
    distinct = entries.locations.distinct
    assert set(entries.locations.codes.tolist()) == set(range(len(distinct)))
    assert len(set(distinct)) == len(distinct)
    return {key: distinct[code] for key, code in zip(keys, entries.locations.codes.tolist(), strict=True)}


def looked_up(store: MemoryStore, shard: ShardSlice, keys: pa.Array) -> list[Location | None]:
    found = look_up_shard(store, shard, keys)
    assert len(found.codes) == len(keys)
    assert found.codes.dtype == np.int32
    return [None if code < 0 else found.distinct[code] for code in found.codes.tolist()]


ANYWHERE = Location("p0", "no uuid", 1)
ELSEWHERE = Location("p1", "no uuid", 2)


@given(BASES, LOGS, STYLES)
@example(None, [], None)
@example({}, [[Step()]], None)
@example({"a": ANYWHERE}, [[Step(gone=("a", "a"))], [Step({"a": ELSEWHERE})]], None)
@example({"a": ANYWHERE}, [[Step({"a": ELSEWHERE}), Step(gone=("a",))]], None)
@example(dict.fromkeys(["\ue000", "\uffff", "😀", "\U0010ffff"], ANYWHERE), [[Step()]], HbaseStyle())
def test_a_shard_says_what_its_twin_says(
    base: Places | None, logs: list[Log], style: HbaseStyle | None
) -> None:
    store = MemoryStore()
    shard = shard_of(store, base, logs, style)
    assert read(store, shard) == read_slowly(base, logs)


@given(BASES, LOGS, STYLES, st.lists(KEYS, max_size=8), st.booleans(), st.data())
def test_keys_are_looked_up_as_in_the_twin(
    base: Places | None,
    logs: list[Log],
    style: HbaseStyle | None,
    others: list[str],
    is_large: bool,
    data: st.DataObject,
) -> None:
    store = MemoryStore()
    shard = shard_of(store, base, logs, style)
    told = [key for log in logs for step in log for key in (*step.came, *step.gone)]
    known = sorted({*(base or {}), *told, *others})
    asked = data.draw(st.lists(st.sampled_from(known), max_size=40)) if known else []
    keys = pa.array(asked, pa.large_string() if is_large else pa.string())
    expected = read_slowly(base, logs)
    assert looked_up(store, shard, keys) == [expected.get(key) for key in asked]
    everything = pa.array(known, pa.string())
    assert looked_up(store, shard, everything) == [expected.get(key) for key in known]


@given(BASES, LOGS, STYLES, st.data())
def test_a_compaction_changes_nothing_whenever_it_happens(
    base: Places | None, logs: list[Log], style: HbaseStyle | None, data: st.DataObject
) -> None:
    store = MemoryStore()
    shard = shard_of(store, base, logs, style)
    cut = data.draw(st.integers(0, len(logs)))
    before = ShardSlice(shard.base, shard.logs[:cut])
    image, count = compacted_shard(store, before)
    assert (image, count) == compacted_shard(store, before)
    assert count == len(read_slowly(base, logs[:cut])) == hfile.HFile.open(hfile.InMemory(image)).entries
    after = ShardSlice(stored(store, "compacted.hfile", image), shard.logs[cut:])
    assert read(store, after) == read_slowly(base, logs)


@given(steps(), st.booleans(), st.data())
def test_a_log_is_the_same_in_whatever_order_its_keys_come(
    step: Step, is_large: bool, data: st.DataObject
) -> None:
    image = log_image([step])
    came = dict(data.draw(st.permutations(list(step.came.items()))))
    gone = data.draw(st.permutations(step.gone))
    kind = pa.large_string() if is_large else pa.string()
    assert encode_entry_log(INSTANT, column(came, kind=kind), pa.array(gone, kind)) == image


@given(ENTRIES, st.integers(0, 12), st.integers(0, 12))
def test_a_slice_of_a_column_is_written_as_the_column_it_is(places: Places, start: int, length: int) -> None:
    whole = column(places)
    keys = whole.keys[start : start + length]
    codes = whole.locations.codes[start : start + length]
    store = MemoryStore()
    part = ShardEntries(keys, Locations(codes, whole.locations.distinct))
    log = stored(store, ".log", encode_entry_log(INSTANT, part, None))
    expected = dict(list(places.items())[start : start + length])
    assert read(store, ShardSlice(None, (log,))) == expected


@pytest.mark.shows("R5")
@given(BASES, LOGS, STYLES, st.integers(1, 12), st.integers(1, 9), st.lists(KEYS, max_size=12))
@example(
    # Java has the second before the third, bytes have them the other way round.
    {"a": ANYWHERE, "😀": ANYWHERE, "\uffff": ANYWHERE},
    [],
    HbaseStyle(block_records=1),
    1,
    9,
    ["a", "\uffff", "😀", "\ue000", "b"],
)
def test_a_range_says_of_its_keys_what_the_shard_does(
    base: Places | None,
    logs: list[Log],
    style: HbaseStyle | None,
    keys: int,
    most: int,
    others: list[str],
) -> None:
    store = MemoryStore()
    shard = shard_of(store, base, logs, style)
    ranges = ShardRanges.of(store, shard, keys=keys, most=most)
    assert 1 <= ranges.count <= most
    blocks = [block for number in range(ranges.count) for block in ranges.blocks_in(number)]
    assert blocks == list(range(ranges.blocks))
    expected = read_slowly(base, logs)
    asked = [*expected, *others, *(base or {})]
    numbers = ranges.numbers_of(pa.array(asked, pa.string())).tolist()
    parts = [ranges.read(number) for number in range(ranges.count)]
    found = [
        {
            k: p.locations.distinct[c]
            for k, c in zip(p.keys.to_pylist(), p.locations.codes.tolist(), strict=True)
        }
        for p in parts
    ]
    for key, number in zip(asked, numbers, strict=True):
        if number == NO_RANGE:
            assert ranges.count > 1
            assert any(byte >= 0xEE for byte in key.encode())
        else:
            assert found[number].get(key) == expected.get(key), key
