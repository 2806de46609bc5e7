"""What a pending write has recorded, read again of some file groups, is what it was told of these, and nothing else."""

from __future__ import annotations

from functools import cache

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bucketlake import RecordIndex, Table, create_table
from bucketlake.index import ENTRIES, RecordLevelIndex, resolve_index
from bucketlake.layout import FileGroupId
from bucketlake.state import load_state

pytestmark = pytest.mark.shows("R1", "X3")

SCHEMA = pa.schema([("id", pa.string()), ("dt", pa.string())])
KEYS = [f"k{n}" for n in range(24)]
INSTANT = "20990101000000000"
Told = tuple[str, str, str | None]
"""A key, the partition that it came to or went from, and the file group it came to."""


@cache
def a_table(*, per_partition: bool) -> Table:
    """Half of the keys are there, in three partitions."""
    table = create_table(
        f"memory://entries-again-{per_partition}",
        SCHEMA,
        key="id",
        partition="dt",
        index=RecordIndex(per_partition=per_partition, shards=2),
        maintenance="off",
    )
    table.upsert(pa.table({"id": KEYS[:12], "dt": [partition_of(key) for key in KEYS[:12]]}, SCHEMA))
    return table


def partition_of(key: str) -> str:
    return f"p{int(key[1:]) % 3}"


def index_of(table: Table) -> RecordLevelIndex:
    index = resolve_index(load_state(table.store))
    assert isinstance(index, RecordLevelIndex)
    return index


def homes(index: RecordLevelIndex) -> dict[str, FileGroupId]:
    found = [entry for shard in range(index.shards_there) for entry in index.entries(shard).to_pylist()]
    return {entry["key"]: (entry["partition"], entry["file_id"]) for entry in found}


@settings(max_examples=max(20, settings().max_examples // 5), deadline=None)
@given(
    per_partition=st.booleans(),
    going=st.sets(st.sampled_from(KEYS[:12])),
    coming=st.dictionaries(st.sampled_from(KEYS[12:]), st.sampled_from(["old", "one", "other"])),
    chosen=st.sets(st.integers(0, 8)),
)
def test_entries_read_again_of_some_groups_are_those_that_were_told_of_them(
    per_partition: bool, going: set[str], coming: dict[str, str], chosen: set[int]
) -> None:
    table = a_table(per_partition=per_partition)
    index = index_of(table)
    living = homes(index)
    of_group: dict[FileGroupId, list[Told]] = {group: [] for group in living.values()}
    for key in going:
        of_group[living[key]].append((key, living[key][0], None))
    for key, name in coming.items():
        partition = partition_of(key)
        group = living[f"k{int(key[1:]) % 3}"] if name == "old" else (partition, name)
        of_group.setdefault(group, []).append((key, *group))
    told = pa.Table.from_pylist(
        [dict(zip(ENTRIES.names, entry, strict=True)) for entries in of_group.values() for entry in entries],
        ENTRIES,
    )
    shards = index.shard_of(told["partition"], told["key"])
    files = {
        path: file.data
        for shard in set(shards.tolist())
        for path, file in index.entry_files(
            shard, told.filter(pa.array(shards == shard)), instant=INSTANT
        ).items()
    }
    groups = {group for number, group in enumerate(sorted(of_group)) if number in chosen}
    try:
        for path, data in files.items():
            table.store.put(path, data)
        again = [entry for path in files for entry in index.entries_in(path, groups).to_pylist()]
    finally:
        for path in files:
            table.store.delete(path)
    found = sorted(tuple(entry.values()) for entry in again)
    assert found == sorted(entry for group in groups for entry in of_group[group])


@pytest.mark.parametrize("per_partition", [False, True])
def test_a_file_that_says_nothing_has_no_entries(per_partition: bool) -> None:
    table = a_table(per_partition=per_partition)
    index = index_of(table)
    path = next(iter(index.entry_files(0, index.entries(0), instant=INSTANT)))
    table.store.put(path, index.no_entries(instant=INSTANT))
    assert index.entries_in(path, set(homes(index).values())).num_rows == 0
    table.store.delete(path)
