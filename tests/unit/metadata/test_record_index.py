"""Entries of the record-level index say what Hudi's say, byte by byte."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import hypothesis.strategies as st
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given

from bucketlake import Table, hfile
from bucketlake.errors import DamagedFileError
from bucketlake.index import shard_of, shards_of
from bucketlake.layout.names import parse_base_file_name
from bucketlake.logfile.frame import BlockType, decode_blocks
from bucketlake.metadata.record_index import (
    Location,
    Locations,
    decode_location,
    decode_locations,
    encode_location,
    encode_locations,
)

Golden = Callable[[str], Path]
VECTORS = Path(__file__).parents[2] / "golden" / "shard_vectors.json"

uuids = st.uuids().map(str)
file_ids = uuids | st.builds("{}-{}".format, uuids, st.integers(0, 9)) | st.text(max_size=50)
locations = st.builds(Location, st.text(max_size=20), file_ids, st.integers(-(2**62), 2**62))


def test_shards_are_hudis() -> None:
    for key, shards in json.loads(VECTORS.read_text()):
        for count, shard in zip((1, 2, 10, 256), shards, strict=True):
            assert shard_of(key, count) == shard
            assert shards_of(pa.array([key]), count).tolist() == [shard]


def golden_entries(folder: Path) -> list[tuple[bytes, bytes]]:
    """All entries of a golden table's record index, as Hudi wrote them."""
    found: list[tuple[bytes, bytes]] = []
    for file in sorted((folder / ".hoodie/metadata/record_index").iterdir()):
        if file.suffix == ".hfile":
            images = [memoryview(file.read_bytes())]
        elif ".log." in file.name and not file.name.endswith(".crc"):
            blocks = decode_blocks(file.read_bytes(), path=file.name)
            images = [block.content for block in blocks if block.type is BlockType.HFILE_DATA]
        else:
            continue
        for image in images:
            entries = hfile.HFile.open(hfile.InMemory(image, name=file.name)).scan()
            found += zip(entries.keys.to_pylist(), entries.values.to_pylist(), strict=True)
    return found


@pytest.mark.parametrize("name", ["cow_global_rli", "mor_partitioned_rli", "cow_secondary_index"])
def test_what_hudi_recorded_is_read_and_would_be_written_alike(golden_table: Golden, name: str) -> None:
    folder = golden_table(name)
    rows = Table.open(folder).to_arrow(meta_columns=True)
    live = {
        (row["_hoodie_partition_path"], row["_hoodie_record_key"]): row["_hoodie_file_name"]
        for row in rows.select(
            ["_hoodie_partition_path", "_hoodie_record_key", "_hoodie_file_name"]
        ).to_pylist()
    }
    entries = golden_entries(folder)
    assert entries
    told: dict[tuple[str, str], str] = {}
    for key, value in entries:
        place = decode_location(value, path=name)
        assert encode_location(place) == value
        told[place.partition, key.decode()] = place.file_id
    for (partition, key), file_name in live.items():
        base = parse_base_file_name(file_name)
        assert told[partition, key] == (base.file_id if base else file_name)


@given(locations)
def test_a_location_comes_back(place: Location) -> None:
    assert decode_location(encode_location(place), path="x") == place


@given(st.lists(locations, min_size=1, max_size=4), st.data())
def test_a_column_of_locations_comes_back(few: list[Location], data: st.DataObject) -> None:
    codes = data.draw(st.lists(st.integers(0, len(few) - 1), max_size=30))
    column = Locations(np.array(codes, np.int32), tuple(few))
    found = decode_locations(encode_locations(column).dictionary_decode(), path="x")
    assert [found.distinct[code] for code in found.codes] == [few[code] for code in codes]
    assert found.file_ids().to_pylist() == [few[code].file_id for code in codes]
    assert found.partitions().to_pylist() == [few[code].partition for code in codes]


@given(locations, st.data())
def test_a_damaged_entry_is_named(place: Location, data: st.DataObject) -> None:
    value = encode_location(place)
    cut = value[: data.draw(st.integers(0, len(value) - 3))]
    with pytest.raises(DamagedFileError, match="the_file"):
        decode_location(cut, path="the_file")
