"""An index of values, as small as one can be: it keeps what it is told of a column, as it is told it.

.hoodie/.value_list/<column>/<instant>/<shard>.json    [["[value, record key]", true if it came], ...]
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bucketlake import Table
from bucketlake.config import load_properties, update_properties
from bucketlake.index.keeper import Keeper, Upkeep
from bucketlake.index.listed import (
    ENTRIES,
    LISTED_INDEXES,
    EntryFile,
    KeyRecords,
    RowsChanged,
    register_listed_index,
)
from bucketlake.layout.names import split_path
from bucketlake.storage import Store
from bucketlake.timeline import Action

FOLDER = ".hoodie/.value_list"
WORD = "VALUES_OF_"
KEY = "_hoodie_record_key"


@dataclass(frozen=True, slots=True)
class ValueList(KeyRecords):
    column: str
    shards: int = 2

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.column,)

    def told(self, changed: RowsChanged) -> pa.RecordBatch:
        """Slow, and meant to be read: what is there no more has gone, what was not there has come."""
        before, after = (set(self.texts_of(rows)) for rows in (changed.before, changed.after))
        gone, came = sorted(before - after), sorted(after - before)
        rows = [(text, "", None) for text in gone] + [(text, "", "") for text in came]
        return pa.RecordBatch.from_pylist(
            [dict(zip(ENTRIES.names, row, strict=True)) for row in rows], ENTRIES
        )

    def texts_of(self, rows: pa.Table | None) -> Iterator[str]:
        if rows is not None:
            for row in rows.to_pylist():
                yield text_of(row[self.column], row[KEY])

    def shard_of(self, partitions: Any, record_keys: Any) -> npt.NDArray[np.int64]:
        values = [json.loads(text)[0] for text in record_keys.to_pylist()]
        return np.array([zlib.crc32(repr(v).encode()) % self.shards for v in values], np.int64)

    def entry_files(self, shard: int, entries: pa.Table, *, instant: str) -> dict[str, EntryFile]:
        lines = [[entry["key"], entry["file_id"] is not None] for entry in entries.to_pylist()]
        path = f"{FOLDER}/{self.column}/{instant}/{shard}.json"
        return {path: EntryFile(json.dumps(lines).encode(), entries)}


class ValueListKeeper(Keeper):
    """What was told goes with its instant."""

    def after_taking_back(self, store: Store, *, instant: str, action: Action) -> Upkeep:
        files = store.list(FOLDER, recursive=True).files
        return Upkeep(deletes=tuple(f.path for f in files if f"/{instant}/" in f.path))


def text_of(value: Any, key: str) -> str:
    return json.dumps([value, key])


def listing_values(table: Table, *columns: str) -> Table:
    """Let a table list an index of each of these columns from now on."""
    words = [table.properties.raw.get(LISTED_INDEXES, "")]
    for column in columns:
        word = f"{WORD}{column}".upper()
        register_listed_index(word, lambda _, column=column: ValueList(column), keeper=ValueListKeeper())
        words.append(word)
    listed = ",".join(word for word in words if word)
    return Table(table.store, update_properties(table.store, {LISTED_INDEXES: listed}))


def told_values(store: Store, column: str, instant: str) -> tuple[set[str], set[str]]:
    """Return what went and what came with a commit, on the whole."""
    lines = [
        line
        for file in store.list(f"{FOLDER}/{column}/{instant}", recursive=True).files
        for line in json.loads(store.read(file.path))
    ]
    came = {text for text, has_come in lines if has_come}
    gone = {text for text, has_come in lines if not has_come}
    return gone - came, came - gone


def values_kept(store: Store, column: str, *, is_exact: bool = True) -> set[str]:
    """Return what the index has, told in the order of the instants; nothing that is there comes, or goes twice."""
    instants = {
        split_path(f.path)[0].rpartition("/")[2]
        for f in store.list(f"{FOLDER}/{column}", recursive=True).files
    }
    kept: set[str] = set()
    for instant in sorted(instants):
        gone, came = told_values(store, column, instant)
        if is_exact:
            assert gone <= kept, f"{instant} tells that {gone - kept} went, which was not there"
            assert not came & kept, f"{instant} tells that {came & kept} came, which was there"
        kept = (kept - gone) | came
    return kept


def check_values(store: Store, *columns: str, is_exact: bool = True) -> None:
    """Compare what the indexes have with what a reader finds."""
    table = Table(store, load_properties(store))
    rows = table.to_arrow(meta_columns=True).to_pylist()
    for column in columns:
        found = {text_of(row[column], row[KEY]) for row in rows}
        kept = values_kept(store, column, is_exact=is_exact)
        assert kept == found, f"{column}: too much {kept - found}, lacking {found - kept}"
