"""Drop a table's metadata table.

First it is delisted in `hoodie.properties`, in one step, and from then on nobody looks at it; then its files are
deleted. Cut off in between, a second run deletes the rest.

Hudi's writers make it anew at their next write, unless they are told hoodie.metadata.enable=false.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from bucketlake.commit.locks import table_lock
from bucketlake.commit.metadata_table import LISTED, LISTED_INFLIGHT
from bucketlake.commit.transaction import refuse_live_writers
from bucketlake.config import update_properties
from bucketlake.errors import CorruptTableError
from bucketlake.layout.names import (
    INDEX_DEFINITIONS_PATH,
    META_FOLDER,
    METADATA_TABLE_FOLDER,
    split_path,
)
from bucketlake.metadata.places import GROWING, SECONDARY_BUILT, WANTED
from bucketlake.state import TableState, load_state
from bucketlake.storage import FileStat, Store, in_parallel

_INDEX_DEFINITIONS = "hoodie.table.index.defs.path"
_TOLD = (LISTED, LISTED_INFLIGHT, WANTED, GROWING)


@dataclass(frozen=True, slots=True, kw_only=True)
class DropMetadataTable:
    """What dropping the metadata table means; prints as a few lines."""

    table: str
    partitions: tuple[str, ...] = ()
    """What it has, as the properties list it: files, column_stats, record_index..."""
    properties: tuple[str, ...] = ()
    """Properties to remove."""
    files: tuple[FileStat, ...] = ()
    """Files to delete, after that."""

    @property
    def size_bytes(self) -> int:
        return sum(file.size_bytes for file in self.files)

    @property
    def is_empty(self) -> bool:
        return not self.properties and not self.files

    def __str__(self) -> str:
        if self.is_empty:
            return f"{self.table} has no metadata table"
        listed = ", ".join(self.partitions) or "nothing listed"
        return (
            f"metadata table of {self.table}: {listed}\n"
            f"  {len(self.properties)} properties to remove, then {len(self.files):,} files, "
            f"{self.size_bytes:,} bytes to delete"
        )


def plan_drop_metadata_table(state: TableState) -> DropMetadataTable:
    """Find what there is of a metadata table, listed or left over."""
    raw, store = state.properties.raw, state.store
    files = store.list(METADATA_TABLE_FOLDER, recursive=True).files
    listed = [key for key in (*_TOLD, SECONDARY_BUILT) if key in raw]
    if not files and not any(raw[key].strip() for key in listed):
        return DropMetadataTable(table=store.uri)
    path = raw.get(_INDEX_DEFINITIONS, "").strip()
    path = path if path.startswith(META_FOLDER) else INDEX_DEFINITIONS_PATH
    definitions = tuple(file for file in store.list(split_path(path)[0]).files if file.path == path)
    if definitions and _serves_it_only(store, path):
        files += definitions
        listed += [key for key in (_INDEX_DEFINITIONS,) if key in raw]
    return DropMetadataTable(
        table=store.uri,
        partitions=state.properties.metadata_partitions,
        properties=tuple(listed),
        files=files,
    )


def run_drop_metadata_table(plan: DropMetadataTable, store: Store) -> None:
    """Delist the metadata table, then delete it. Raises `ConcurrentWriteError` while a write is under way.

    Who builds one meanwhile waits for the lock: its files have the names of those that go.
    """
    with table_lock(store) as held:
        refuse_live_writers(load_state(store))
        update_properties(held, dict.fromkeys([*plan.properties, *_TOLD]))
        in_parallel(held.delete, [file.path for file in plan.files], store)


def _serves_it_only(store: Store, path: str) -> bool:
    """Tell whether all index definitions are of parts of the metadata table, as all that Hudi has are."""
    try:
        definitions = json.loads(store.read(path))["indexDefinitions"]
        return all(name in _PARTS or name.startswith(_PARTS_NAMED) for name in definitions)
    except (ValueError, KeyError, TypeError) as fault:
        raise CorruptTableError(
            path=path,
            found=f"text that is no list of index definitions ({fault})",
            expected='{"indexDefinitions": {...}}',
            remedy="Restore the file, or delete it if no index is to be kept.",
        ) from fault


_PARTS = frozenset({"files", "column_stats", "partition_stats", "bloom_filters", "record_index"})
_PARTS_NAMED = ("secondary_index_", "expr_index_")
