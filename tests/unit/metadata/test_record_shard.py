"""Shards of the record-level index say where the rows are, Hudi's and ours; damage is never taken for an answer."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bucketlake import Table, hfile
from bucketlake.errors import CorruptTableError, DamagedFileError, UnsupportedError
from bucketlake.index import shard_of
from bucketlake.layout.names import parse_base_file_name
from bucketlake.logfile.frame import Block, BlockType, HeaderKey, decode_blocks, encode_block
from bucketlake.metadata.listing import ShardSlice
from bucketlake.metadata.places import RECORD_INDEX, folder_of
from bucketlake.metadata.record_index import Location, Locations, encode_location
from bucketlake.metadata.record_schema import STORED_SCHEMA
from bucketlake.metadata.record_shard import (
    ShardEntries,
    compacted_shard,
    encode_entry_log,
    look_up_shard,
    read_shard,
)
from bucketlake.metadata.shards import list_shards
from bucketlake.metadata.step import look_at_step
from bucketlake.state import load_state
from bucketlake.storage import FileStat, MemoryStore, Store
from judges.rows import load_json_rows
from stand_ins.hbase_file import hbase_file

Golden = Callable[[str], Path]
GOLDEN = Path(__file__).parents[2] / "golden"
INDEXED = ("cow_global_rli", "mor_partitioned_rli", "cow_secondary_index")
INSTANT = "20240102030405678"
HERE = Location("p0", "6f1c1f52-0dd4-4a3c-8d7e-0d6a5f0f3e11-0", 1_704_164_645_678)
THERE = Location("p1", "00000002-2b54-4c3e-9a7e-6f0d5e8c1a22-0", 1_704_164_645_999)


def entries(places: dict[str, Location]) -> ShardEntries:
    distinct = tuple(dict.fromkeys(places.values()))
    codes = np.array([distinct.index(place) for place in places.values()], np.int32)
    return ShardEntries(pa.array(list(places), pa.string()), Locations(codes, distinct))


def texts(*keys: str) -> pa.Array:
    return pa.array(keys, pa.string())


def stored(store: Store, path: str, data: bytes) -> FileStat:
    store.put(path, data)
    return store.stat(path)


def as_dict(found: ShardEntries) -> dict[str, Location]:
    codes = found.locations.codes.tolist()
    return {
        key: found.locations.distinct[code] for key, code in zip(found.keys.to_pylist(), codes, strict=True)
    }


def as_list(found: Locations) -> list[Location | None]:
    return [None if code < 0 else found.distinct[code] for code in found.codes.tolist()]


# ------------------------------------------------------------------------------------------------- Hudi's shards


def golden_shards(folder: Path) -> tuple[Store, dict[str, ShardSlice]]:
    """The shards of a golden table's record index, by file id."""
    state = load_state(Table.open(folder).store)
    step = look_at_step(state.store, state.properties, state.timeline)
    slices = list_shards(state.store, step, state.properties, [RECORD_INDEX]).slices()
    assert slices
    return state.store, {file_id: shard for (_, file_id), shard in slices.items()}


def golden_rows(name: str) -> dict[tuple[str, str], str]:
    """Partition and key of every row that Hudi reads -> file id of the file group that holds it."""
    found: dict[tuple[str, str], str] = {}
    for row in load_json_rows(GOLDEN / f"{name}.expected.jsonl"):
        base = parse_base_file_name(row["_hoodie_file_name"])
        file_id = (
            row["_hoodie_file_name"] if base is None else base.file_id
        )  # of a row in a log, it is the id
        found[row["_hoodie_partition_path"], row["_hoodie_record_key"]] = file_id
    return found


@pytest.mark.parametrize("name", INDEXED)
def test_hudis_shards_say_where_the_rows_are(golden_table: Golden, name: str) -> None:
    store, shards = golden_shards(golden_table(name))
    told: dict[tuple[str, str], str] = {}
    for file_id, shard in shards.items():
        for key, place in as_dict(read_shard(store, shard)).items():
            assert (place.partition, key) not in told
            told[place.partition, key] = place.file_id
            of_partition = re.fullmatch(r"record-index-(?:(\w+)-)?(\d{4})-0", file_id)
            assert of_partition is not None
            assert of_partition[1] in (None, place.partition)
            count = sum(other.startswith(file_id[: -len("0000-0")]) for other in shards)
            assert shard_of(key, count) == int(of_partition[2])
    rows = golden_rows(name)
    assert rows and told == rows


@pytest.mark.parametrize("name", INDEXED)
def test_keys_of_hudis_shards_are_looked_up_before_and_after_a_compaction(
    golden_table: Golden, name: str
) -> None:
    store, shards = golden_shards(golden_table(name))
    keys = sorted({key for _, key in golden_rows(name)})
    deleted_in_all = "3" if name != "cow_secondary_index" else "5"
    for shard in shards.values():
        expected = as_dict(read_shard(store, shard))
        asked = texts(*keys, "no such key", deleted_in_all, *keys)
        assert as_list(look_up_shard(store, shard, asked)) == [expected.get(key) for key in asked.to_pylist()]
        image, count = compacted_shard(store, shard)
        assert count == len(expected)
        after = MemoryStore()
        compacted = ShardSlice(stored(after, "base.hfile", image), ())
        assert as_dict(read_shard(after, compacted)) == expected
        assert as_list(look_up_shard(after, compacted, asked)) == [
            expected.get(key) for key in asked.to_pylist()
        ]


def golden_blocks(folder: Path) -> list[tuple[str, Block]]:
    """The log blocks of a golden table's record index, with the names of their files."""
    return [
        (file.name, block)
        for file in sorted((folder / folder_of(RECORD_INDEX)).iterdir())
        if ".log." in file.name
        for block in decode_blocks(file.read_bytes(), path=file.name)
    ]


@pytest.mark.parametrize("name", INDEXED)
def test_our_logs_carry_what_hudis_carry(golden_table: Golden, name: str) -> None:
    kinds = set()
    for file, theirs in golden_blocks(golden_table(name)):
        store = MemoryStore()
        one = encode_block(theirs.type, theirs.header, theirs.content)
        shard = ShardSlice(None, (stored(store, "log", one),))
        instant = theirs.header[HeaderKey.INSTANT_TIME]
        if theirs.type is BlockType.HFILE_DATA:
            kinds.add("came")
            (ours,) = decode_blocks(encode_entry_log(instant, read_shard(store, shard), None), path="ours")
            told, said = (hfile.HFile.open(hfile.InMemory(block.content)).scan() for block in (ours, theirs))
            assert told.keys.equals(said.keys) and told.values.equals(said.values)
        else:
            is_first = HeaderKey.SCHEMA not in theirs.header
            kinds.add("first" if is_first else "gone")
            gone = texts(*([] if is_first else ["5" if name == "cow_secondary_index" else "3"]))
            (ours,) = decode_blocks(encode_entry_log(instant, None, gone), path="ours")
            assert bytes(ours.content) == bytes(theirs.content), file
        assert ours.type is theirs.type
        assert ours.header.keys() == theirs.header.keys()
    assert kinds == {"came", "first", "gone"}


# ---------------------------------------------------------------------------------------------------- our logs


def test_a_log_has_a_block_of_what_came_and_one_of_what_is_gone() -> None:
    log = encode_entry_log(INSTANT, entries({"b": HERE, "a": THERE}), texts("d", "c"))
    came, gone = decode_blocks(log, path="log")
    assert (came.type, gone.type) == (BlockType.HFILE_DATA, BlockType.DELETE)
    for block in (came, gone):
        assert block.header == {HeaderKey.INSTANT_TIME: INSTANT, HeaderKey.SCHEMA: STORED_SCHEMA}
    file = hfile.HFile.open(hfile.InMemory(came.content))
    assert file.info["schema"] == STORED_SCHEMA.encode()
    assert file.scan().keys.to_pylist() == [b"a", b"b"]
    assert file.scan().values.to_pylist() == [encode_location(THERE), encode_location(HERE)]


@pytest.mark.parametrize("came", [None, entries({})])
@pytest.mark.parametrize("gone", [None, texts()])
def test_a_log_that_says_nothing_names_its_instant_only(came: Any, gone: Any) -> None:
    (block,) = decode_blocks(encode_entry_log(INSTANT, came, gone), path="log")
    assert (block.type, block.header) == (BlockType.DELETE, {HeaderKey.INSTANT_TIME: INSTANT})
    store = MemoryStore()
    log = stored(store, "log", encode_entry_log(INSTANT, came, gone))
    shard = ShardSlice(None, (log,))
    assert as_dict(read_shard(store, shard)) == {}
    assert as_list(look_up_shard(store, shard, texts("a"))) == [None]


def test_a_key_cannot_come_and_go_in_one_log() -> None:
    with pytest.raises(AssertionError):
        encode_entry_log(INSTANT, entries({"a": HERE}), texts("b", "a"))


def test_a_key_that_is_gone_is_named_once() -> None:
    assert encode_entry_log(INSTANT, None, texts("b", "a", "b")) == encode_entry_log(
        INSTANT, None, texts("a", "b")
    )


def test_the_base_file_of_an_empty_shard_can_be_read() -> None:
    store = MemoryStore()
    image, count = compacted_shard(store, ShardSlice(None, ()))
    assert count == 0
    shard = ShardSlice(stored(store, "base.hfile", image), ())
    assert as_dict(read_shard(store, shard)) == {}
    assert as_list(look_up_shard(store, shard, texts("a", ""))) == [None, None]
    assert as_list(look_up_shard(store, shard, texts())) == []


# ------------------------------------------------------------------------------------------------ what is read


class CountingStore(MemoryStore):
    """Remembers how many bytes of which files it was asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: dict[str, int] = {}

    def read(self, path: str, *, offset: int = 0, length: int | None = None) -> bytes:
        data = super().read(path, offset=offset, length=length)
        self.asked[path] = self.asked.get(path, 0) + len(data)
        return data


def large_shard(store: Store) -> ShardSlice:
    keys = {f"key-{number * 7919 % 100_000:06}-{number % 977}": HERE for number in range(100_000)}
    log = encode_entry_log(INSTANT, entries(keys), None)
    image, _ = compacted_shard(store, ShardSlice(None, (stored(store, "first", log),)))
    came = encode_entry_log(INSTANT, entries({"new": THERE}), texts("key-000000-0"))
    return ShardSlice(stored(store, "base.hfile", image), (stored(store, "log", came),))


def test_a_look_up_reads_the_blocks_that_can_hold_a_key_and_each_log_once() -> None:
    store = CountingStore()
    shard = large_shard(store)
    assert shard.base is not None and shard.base.size_bytes > 500_000
    store.asked.clear()
    asked = texts("key-000000-0", "new", "key-042000-", "nothing")
    assert as_list(look_up_shard(store, shard, asked)) == [None, THERE, None, None]
    assert store.asked["base.hfile"] < 120_000
    (log,) = shard.logs
    assert store.asked["log"] == log.size_bytes
    look_up_shard(store, shard, asked)
    assert len(read_shard(store, shard)) == 100_000
    assert store.asked["log"] == log.size_bytes


def test_keys_that_logs_tell_of_are_not_looked_for_in_the_base_file() -> None:
    store = CountingStore()
    shard = large_shard(store)
    store.asked.clear()
    assert as_list(look_up_shard(store, shard, texts("new", "key-000000-0"))) == [THERE, None]
    assert "base.hfile" not in store.asked


def test_locations_that_nothing_has_any_more_are_dropped() -> None:
    store = MemoryStore()
    first = stored(store, "1", encode_entry_log(INSTANT, entries({"a": HERE, "b": THERE}), None))
    later = stored(store, "2", encode_entry_log(INSTANT, entries({"a": THERE}), None))
    shard = ShardSlice(None, (first, later))
    assert read_shard(store, shard).locations.distinct == (THERE,)
    assert look_up_shard(store, shard, texts("a", "c")).distinct == (THERE,)


# ------------------------------------------------------------------------------------------------------ damage


REFUSED = (CorruptTableError, UnsupportedError)
"""The second one where the damage reads as a version or a block type of a later Hudi."""

WHOLE_LOG = encode_entry_log(INSTANT, entries({f"key {n}": HERE for n in range(30)}), texts("b", "a"))
BLOCK_END = len(encode_entry_log(INSTANT, entries({f"key {n}": HERE for n in range(30)}), None))


def ask(data: bytes, *, is_base: bool = False) -> tuple[dict[str, Location], list[Location | None]]:
    store = MemoryStore()
    file = stored(store, "the_file", data)
    shard = ShardSlice(file, ()) if is_base else ShardSlice(None, (file,))
    return as_dict(read_shard(store, shard)), as_list(look_up_shard(store, shard, texts("key 7", "a")))


@given(st.integers(0, len(WHOLE_LOG) - 1) | st.integers(len(WHOLE_LOG) - 150, len(WHOLE_LOG) - 1))
def test_a_log_that_was_cut_is_refused(size: int) -> None:
    # Blocks say nothing of those that follow them: only the commit knows that one is gone.
    if size != BLOCK_END:
        with pytest.raises(CorruptTableError, match="the_file"):
            ask(WHOLE_LOG[:size])


@given(st.integers(0, len(WHOLE_LOG) - 1), st.integers(1, 255))
def test_a_log_with_a_changed_byte_is_refused(at: int, change: int) -> None:
    damaged = bytearray(WHOLE_LOG)
    damaged[at] ^= change
    with pytest.raises(REFUSED, match="the_file"):
        ask(bytes(damaged))


@pytest.mark.parametrize("name", INDEXED)
@given(data=st.data())
def test_hudis_damaged_logs_are_refused_or_read(golden_table: Golden, name: str, data: st.DataObject) -> None:
    folder = golden_table(name) / folder_of(RECORD_INDEX)
    path = data.draw(st.sampled_from(sorted(file for file in folder.iterdir() if ".log." in file.name)))
    damaged = bytearray(path.read_bytes())
    # Most of a log is its schema, of which nothing depends here.
    places = st.integers(0, 120) | st.integers(len(damaged) - 6_600, len(damaged) - 1)
    for _ in range(data.draw(st.integers(0, 3))):
        damaged[data.draw(places) % len(damaged)] = data.draw(st.integers(0, 255))
    cut = data.draw(st.just(len(damaged)) | st.integers(0, len(damaged)))
    with suppress(*REFUSED):  # any other error is one that nobody would catch
        ask(bytes(damaged[:cut]))


@given(st.data())
def test_a_damaged_base_file_is_refused_or_read_right(data: st.DataObject) -> None:
    store = MemoryStore()
    places = {f"key {n}": HERE if n % 2 else THERE for n in range(40)}
    log = stored(store, "log", encode_entry_log(INSTANT, entries(places), None))
    whole, _ = compacted_shard(store, ShardSlice(None, (log,)))
    damaged = bytearray(whole)
    damaged[data.draw(st.integers(0, len(whole) - 3_900) | st.integers(0, len(whole) - 1))] ^= data.draw(
        st.integers(1, 255)
    )
    cut = data.draw(st.just(len(whole)) | st.integers(0, len(whole)))
    try:
        found, looked_up = ask(bytes(damaged[:cut]), is_base=True)
    except REFUSED:
        return
    assert (found, looked_up) == (places, [places["key 7"], None])


def test_an_empty_log_is_refused() -> None:
    with pytest.raises(DamagedFileError, match="the_file"):
        ask(b"")


@pytest.mark.parametrize("kind", [BlockType.COMMAND, BlockType.AVRO_DATA, BlockType.PARQUET_DATA])
def test_a_block_that_no_index_has_is_refused(kind: BlockType) -> None:
    block = encode_block(kind, {HeaderKey.INSTANT_TIME: INSTANT}, b"")
    with pytest.raises(CorruptTableError, match=f"type {kind.name}"):
        ask(block)


def log_of(image: bytes) -> bytes:
    return encode_block(BlockType.HFILE_DATA, {HeaderKey.INSTANT_TIME: INSTANT}, image)


def test_a_key_that_is_no_text_is_refused() -> None:
    image = hfile.encode(pa.array([b"\xff"]), pa.array([encode_location(HERE)]))
    with pytest.raises(DamagedFileError, match="no text"):
        ask(log_of(image))
    with pytest.raises(DamagedFileError, match="no text"):
        ask(image, is_base=True)


def test_a_key_that_a_file_has_twice_is_refused() -> None:
    image = hbase_file([(b"a", encode_location(HERE)), (b"a", encode_location(THERE))])
    with pytest.raises(DamagedFileError, match="'a' twice"):
        ask(log_of(image))
    with pytest.raises(DamagedFileError, match="'a' twice"):
        ask(image, is_base=True)


def test_a_value_that_is_no_location_is_refused() -> None:
    image = hfile.encode(pa.array(["a"]), pa.array([b"\0" * 9]))
    with pytest.raises(DamagedFileError, match="the_file"):
        ask(log_of(image))
    with pytest.raises(DamagedFileError, match="the_file"):
        ask(image, is_base=True)
