"""Hold a table's record-level index against its rows: every key has an entry, and no entry is of anything else."""

from __future__ import annotations

from typing import Any

from bucketlake import Table
from bucketlake.config import load_properties
from bucketlake.index import RecordLevelIndex, resolve_index
from bucketlake.state import load_state
from bucketlake.storage import Store

Place = tuple[str, str]


def is_in_step(store: Store) -> bool:
    """Tell whether a reader may go by the index."""
    index = resolve_index(load_state(store))
    assert isinstance(index, RecordLevelIndex), index
    return index.is_in_step


def entries_of(store: Store) -> dict[tuple[str, str], Place]:
    """Read what the index has: (key, "" or the partition for which it is) -> partition and file id."""
    index = resolve_index(load_state(store))
    assert isinstance(index, RecordLevelIndex), index
    assert index.is_in_step
    found: dict[tuple[str, str], Place] = {}
    for shard in range(index.shards_there):
        for entry in index.entries(shard).to_pylist():
            name = entry["key"], "" if index.is_global else entry["partition"]
            assert name not in found, f"{name} is in two shards"
            found[name] = entry["partition"], entry["file_id"]
    return found


def places_of(store: Store, *, is_global: bool) -> dict[tuple[str, str], Place]:
    """Read the same from the rows."""
    rows: list[dict[str, Any]] = Table(store, load_properties(store)).to_arrow(meta_columns=True).to_pylist()
    found = {
        (row["_hoodie_record_key"], "" if is_global else row["_hoodie_partition_path"]): (
            row["_hoodie_partition_path"],
            row["_hoodie_file_name"].partition("_")[0],
        )
        for row in rows
    }
    assert len(found) == len(rows), "a key is there twice"
    return found


def check_record_index(store: Store) -> int:
    """Compare the two; return how many keys there are."""
    index = resolve_index(load_state(store))
    assert isinstance(index, RecordLevelIndex), index
    entries, places = entries_of(store), places_of(store, is_global=index.is_global)
    lacking = {key: place for key, place in places.items() if entries.get(key) != place}
    assert not lacking, f"rows whose entry is missing or wrong: {lacking}"
    surplus = entries.keys() - places.keys()
    assert not surplus, f"entries of keys that are not there: {surplus}"
    return len(places)
