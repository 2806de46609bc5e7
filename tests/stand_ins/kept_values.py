"""Two indexes of values that are held to the same laws: a stand-in that is easy to read, and Hudi's secondary index."""

from __future__ import annotations

from typing import Protocol

import pyarrow as pa

from bucketlake import Table, hfile
from bucketlake.config import RECORD_LEVEL, load_properties
from bucketlake.index.secondary import SecondaryIndex, secondary_indexes_of
from bucketlake.layout.names import parse_index_base_file_name, parse_log_file_name, split_path
from bucketlake.metadata.places import folder_of
from bucketlake.metadata.secondary_keys import prefixes_of_entries, record_keys_of_entries
from bucketlake.metadata.secondary_shard import decode_secondary_log
from bucketlake.state import load_state
from bucketlake.storage import Store
from stand_ins.made_index import check_secondary
from stand_ins.record_index_check import check_record_index
from stand_ins.value_list import FOLDER, check_values, listing_values, text_of, told_values


class KeptValues(Protocol):
    """Indexes of columns, and what they were told."""

    def of(self, table: Table, *columns: str) -> Table:
        """Let a table have an index of each of these columns from now on."""

    def told(self, store: Store, column: str, instant: str) -> tuple[set[str], set[str]]:
        """Return what went and what came with a commit, on the whole."""

    def files(self, store: Store, column: str) -> set[str]:
        """Return where an index of a column keeps what it is told."""

    def check(self, store: Store, *columns: str, is_exact: bool = True) -> None:
        """Compare what the indexes have with what a reader finds; `is_exact`: and each was told once."""


class ListedValues(KeptValues):
    """The stand-in."""

    def of(self, table: Table, *columns: str) -> Table:
        return listing_values(table, *columns)

    def told(self, store: Store, column: str, instant: str) -> tuple[set[str], set[str]]:
        return told_values(store, column, instant)

    def files(self, store: Store, column: str) -> set[str]:
        return {file.path for file in store.list(f"{FOLDER}/{column}", recursive=True).files}

    def check(self, store: Store, *columns: str, is_exact: bool = True) -> None:
        check_values(store, *columns, is_exact=is_exact)


class SecondaryIndexes(KeptValues):
    """Indexes in the metadata table, beside a record-level index of the whole table."""

    def of(self, table: Table, *columns: str) -> Table:
        for column in columns:
            table.create_index(f"by_{column}", on=column, shards=2, record_index=True)
        return Table(table.store, load_properties(table.store))

    def told(self, store: Store, column: str, instant: str) -> tuple[set[str], set[str]]:
        """An entry that goes in one file group and comes in another is written again, which changes nothing."""
        before, after = (self._entries(store, column, until) for until in (instant, f"{instant}~"))
        return before - after, after - before

    def _entries(self, store: Store, column: str, until: str) -> set[str]:
        """Read what files say that are older, one after the other: slow, and meant to be read."""
        found: dict[str, bool] = {}
        for instant, path in sorted((_instant_of(path), path) for path in self.files(store, column)):
            if not instant or instant >= until:
                continue
            data = store.read(path)
            if path.endswith(".hfile"):
                keys = hfile.HFile.open(hfile.InMemory(data, name=path)).scan().keys.cast(pa.string())
                found.update(dict.fromkeys(_texts(keys), True))
            else:
                said = decode_secondary_log(data, path)
                found.update(zip(_texts(said.keys), said.is_there.tolist(), strict=True))
        return {text for text, is_there in found.items() if is_there}

    def files(self, store: Store, column: str) -> set[str]:
        return {
            file.path for file in store.list(folder_of(_index_of(store, column).definition.partition)).files
        }

    def check(self, store: Store, *columns: str, is_exact: bool = True) -> None:
        table = Table(store, load_properties(store))
        assert {index.definition.column for index in secondary_indexes_of(load_state(store))} >= set(columns)
        check_secondary(table)
        if table.properties.engine in RECORD_LEVEL:
            check_record_index(store)


def _index_of(store: Store, column: str) -> SecondaryIndex:
    found = secondary_indexes_of(load_state(store))
    return next(index for index in found if index.definition.column == column)


def _instant_of(path: str) -> str:
    name = split_path(path)[1]
    found = parse_index_base_file_name(name) or parse_log_file_name(name)
    return "" if found is None else found.instant


def _texts(keys: pa.Array) -> list[str]:
    """Write entries as the stand-in does. Values have no letters that are escaped."""
    both = zip(prefixes_of_entries(keys).to_pylist(), record_keys_of_entries(keys).to_pylist(), strict=True)
    return [text_of(None if value == "\0$" else value[:-1], key) for value, key in both]


BOTH = {"list": ListedValues(), "secondary": SecondaryIndexes()}
