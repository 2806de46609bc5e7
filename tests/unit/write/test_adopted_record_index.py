"""Hudi's tables with a record-level index are taken over as they are, once every key was held against its entry."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from shutil import copytree

import numpy as np
import pyarrow as pa
import pytest

from bucketlake import RecordIndex, Table
from bucketlake.config import update_properties
from bucketlake.errors import ConfigError, LayoutMismatchError, UnsupportedError
from bucketlake.index.fingerprint import INDEX_TYPE, KEY_ENCODING
from bucketlake.index.record_level import KEEPS_PARTITION, SHARDS_KEY
from bucketlake.metadata.places import RECORD_INDEX, folder_of
from bucketlake.metadata.record_index import Location, Locations
from bucketlake.metadata.record_shard import ShardEntries, encode_entry_log
from bucketlake.metadata.record_shards import shard_file_id
from bucketlake.state import load_state
from stand_ins.record_index_check import check_record_index

Golden = Callable[[str], Path]

pytestmark = pytest.mark.shows("X8")


@pytest.fixture
def hudis(golden_table: Golden, tmp_path: Path) -> Golden:
    """Copies of golden tables, to write to."""

    def copy(name: str) -> Path:
        return Path(copytree(golden_table(name), tmp_path / name))

    return copy


TABLES = {"cow_global_rli": RecordIndex(shards=1), "mor_partitioned_rli": RecordIndex(True, 1)}


@pytest.mark.parametrize("name", TABLES)
def test_one_is_adopted_as_it_is_and_written(hudis: Golden, name: str) -> None:
    path = hudis(name)
    plan = Table.open(path).plan_adopt()
    assert plan.work.index == TABLES[name]
    assert str(plan).startswith("12 rows in 2 file groups of 2 partitions agree with record-level index of ")
    table = Table.adopt(path)
    raw = table.properties.raw
    assert (raw[INDEX_TYPE], raw[SHARDS_KEY], raw[KEY_ENCODING]) == (TABLES[name].engine, "1", "value")
    rows = table.to_arrow(meta_columns=False)
    before = rows.num_rows
    table.upsert(rows)
    at = rows.schema.get_field_index("id")
    new = rows.slice(0, 1).set_column(at, "id", pa.array([4711], rows.schema.field("id").type))
    table.upsert(new)
    assert check_record_index(table.store) == table.to_arrow().num_rows == before + 1
    assert table.fsck().is_sound
    assert table.metadata.grow_record_index(3) is not None
    assert check_record_index(table.store) == before + 1
    Table.adopt(path)  # again is no harm


@pytest.mark.parametrize(
    "said", [RecordIndex(), RecordIndex(shards=1), RecordIndex(update_partition=False)], ids=str
)
def test_what_a_caller_says_of_it_is_kept(hudis: Golden, said: RecordIndex) -> None:
    table = Table.adopt(hudis("cow_global_rli"), index=said)
    assert (KEEPS_PARTITION in table.properties.raw) is not said.update_partition


def test_what_a_caller_says_wrongly_is_refused(hudis: Golden) -> None:
    path = hudis("cow_global_rli")
    for said in (RecordIndex(per_partition=True), RecordIndex(shards=7)):
        with pytest.raises(
            LayoutMismatchError, match="record-level index of the table: 1 shard, and index= says"
        ):
            Table.adopt(path, index=said)
    with pytest.raises(LayoutMismatchError, match=r"the file group .* is none of 4 buckets"):
        Table.adopt(path, buckets=4)
    with pytest.raises(LayoutMismatchError, match=r"has none.*buckets=N"):
        Table.adopt(hudis("cow_simple_bucket"), index=RecordIndex())


def tamper(table: Table, key: str, *, place: Location | None) -> None:
    """Put a log into the index that says something wrong of a key, as if the last commit had said so."""
    last = load_state(table.store).timeline.writes[-1].requested
    keys = pa.array([key])
    came = None if place is None else ShardEntries(keys, Locations(np.zeros(1, np.int32), (place,)))
    data = encode_entry_log(last, came, keys if place is None else None)
    table.store.put(f"{folder_of(RECORD_INDEX)}/.{shard_file_id(0)}_{last}.log.2_9-9-9", data)


@pytest.mark.parametrize(
    ("key", "place", "words"),
    [
        ("1", None, "the record key '1' lies in .* has it elsewhere, or not at all"),
        ("1", Location("p0", "00000000-0000-0000-0000-000000000000-0", 0), "the record key '1' lies in"),
        ("99", Location("p0", "x", 0), "has 13 entries, and the table 12 rows"),
    ],
)
def test_an_index_that_does_not_fit_is_refused_and_can_be_built_anew(
    hudis: Golden, key: str, place: Location | None, words: str
) -> None:
    path = hudis("cow_global_rli")
    table = Table.open(path)
    tamper(table, key, place=place)
    with pytest.raises(LayoutMismatchError, match=words):
        Table.adopt(path)
    assert table.metadata.rebuild() is not None
    adopted = Table.adopt(path)
    assert check_record_index(adopted.store) == 12


def test_one_that_lost_a_file_is_refused(hudis: Golden) -> None:
    path = hudis("cow_global_rli")
    table = Table.open(path)
    logs = [f.path for f in table.store.list(folder_of(RECORD_INDEX)).files if ".log." in f.path]
    table.store.delete(logs[-1])
    with pytest.raises(
        LayoutMismatchError, match=r"cannot be relied on: .* is gone or damaged.*metadata rebuild"
    ):
        Table.adopt(path)


def test_buckets_that_list_one_too_are_still_adopted_as_buckets(hudis: Golden) -> None:
    path = hudis("cow_simple_bucket")
    Table.open(path).metadata.build(record_index=True, shards=2)
    table = Table.open(path)
    with pytest.raises(LayoutMismatchError, match="--buckets N"):
        table.upsert(table.to_arrow(meta_columns=False))
    with pytest.raises(ConfigError, match="does not say how many buckets"):
        Table.adopt(path)
    with pytest.raises(LayoutMismatchError, match="buckets beside it"):
        Table.adopt(path, index=RecordIndex())


def test_one_whose_index_is_not_listed_any_more_is_none(hudis: Golden) -> None:
    path = hudis("cow_global_rli")
    update_properties(Table.open(path).store, {"hoodie.table.metadata.partitions": "files"})
    with pytest.raises(UnsupportedError, match=r"metadata build .* --record-index"):
        Table.adopt(path, index=RecordIndex())


@pytest.mark.parametrize("per_partition", [False, True])
def test_one_without_any_index_gets_one_and_is_adopted_as_its_error_says(
    hudis: Golden, per_partition: bool
) -> None:
    path = hudis("mor_simple_index_positions")
    table = Table.open(path)
    with pytest.raises(UnsupportedError, match="Give it one and adopt it"):
        Table.adopt(path)
    table.metadata.build(record_index=True, per_partition=per_partition)
    adopted = Table.adopt(path)
    adopted.upsert(adopted.to_arrow(meta_columns=False))
    assert check_record_index(adopted.store) == table.to_arrow().num_rows
    assert adopted.fsck().is_sound
