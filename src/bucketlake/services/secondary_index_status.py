"""The secondary indexes of a table, for who asks: also those that cannot be relied on, and why."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from bucketlake.commit.metadata_table import is_listed, wanted_partitions
from bucketlake.errors import CommitConflictError, CorruptTableError, UnsupportedError
from bucketlake.index.secondary import SecondaryIndex
from bucketlake.layout.names import INDEX_BUILDS_FOLDER, split_path
from bucketlake.metadata.growth import growth_of
from bucketlake.metadata.index_definitions import definitions
from bucketlake.metadata.places import RECORD_INDEX, SECONDARY_PREFIX
from bucketlake.metadata.secondary_index import defined_indexes
from bucketlake.services.index_draft import load_draft
from bucketlake.services.index_kind import SecondaryKind
from bucketlake.services.secondary_index_build import why_not_buildable
from bucketlake.state import TableState
from bucketlake.storage import Store

_UNREADABLE = (CommitConflictError, CorruptTableError, UnsupportedError, FileNotFoundError)


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexStatus:
    """A secondary index, as it is; prints as a line."""

    name: str
    column: str | None
    """None if its definition does not say."""
    shards: int = 0
    entries: int = 0
    """Of base files; what logs add and take away is not counted."""
    size_bytes: int = 0
    is_listed: bool = False
    is_in_step: bool = False
    """Whether readers go by it."""
    state: str
    """`in step`, or why not."""

    def __str__(self) -> str:
        shards = f"{self.shards:,} shard{'' if self.shards == 1 else 's'}"
        return (
            f"{self.name} of {self.column or 'no known column'}: {self.entries:,} entries in {shards}, "
            f"{self.size_bytes:,} bytes; {self.state}"
        )


def list_indexes(state: TableState) -> tuple[IndexStatus, ...]:
    """Look at every secondary index that a table lists, defines, is to have again, or is being built."""
    store, properties = state.store, state.properties
    said = definitions(store)
    begun = _begun(store)
    named = {*properties.metadata_partitions, *wanted_partitions(properties), *said, *begun}
    known = defined_indexes(store)
    found = []
    for partition in sorted(one for one in named if one.startswith(SECONDARY_PREFIX)):
        if partition in properties.metadata_partitions and partition in known:
            found.append(_listed(SecondaryIndex(store, properties, state.timeline, known[partition])))
        else:
            column = begun.get(partition) or _column(said.get(partition))
            why = _why_not(state, partition, column, is_begun=partition in begun)
            name = partition.removeprefix(SECONDARY_PREFIX)
            is_listed_there = partition in properties.metadata_partitions
            found.append(IndexStatus(name=name, column=column, is_listed=is_listed_there, state=why))
    return tuple(found)


def _listed(index: SecondaryIndex) -> IndexStatus:
    found = IndexStatus(name=index.definition.name, column=index.definition.column, is_listed=True, state="")
    if RECORD_INDEX not in index.properties.metadata_partitions:
        why = (
            "not relied on: the record-level index was dropped, and it finds record keys only. Build that: "
            "table.metadata.build(record_index=True), which builds this one again too"
        )
        return replace(found, state=why)
    try:
        size, fault = index.size(), index.fault
    except _UNREADABLE as error:
        return replace(found, state=f"not relied on: {error}")
    return replace(
        found,
        shards=size.shards,
        entries=size.entries,
        size_bytes=size.size_bytes,
        is_in_step=fault is None,
        state="in step" if fault is None else f"not relied on: {fault}",
    )


def _why_not(state: TableState, partition: str, column: str | None, *, is_begun: bool) -> str:
    store, properties = state.store, state.properties
    name = partition.removeprefix(SECONDARY_PREFIX)
    if partition in properties.metadata_partitions:
        return (
            "not kept: it is of another kind or version than bucketlake keeps. Drop it with Hudi, or: "
            f"bucketlake metadata delist {store.uri}"
        )
    fault = None if column is None else why_not_buildable(state, column)
    if fault is not None:
        return f"not listed, and not built again: {fault} Or drop it: table.drop_index({name!r})"
    if is_begun:
        return "being built, or cut off: table.create_index goes on with it"
    if not is_listed(properties):
        return "not listed: the metadata table was delisted. Build it again: table.metadata.build()"
    if growth_of(properties) is not None:
        return "not listed while the record-level index grows, and built again then"
    if partition in wanted_partitions(properties):
        return "not listed, and to be built again: table.metadata.build()"
    return (
        "not listed: somebody has dropped it, and left its definition. Create it again with table.create_index, or "
        f"forget it: table.drop_index({name!r})"
    )


def _begun(store: Store) -> dict[str, str]:
    """Return the columns of the indexes that are being built, or whose build was cut off, by their partitions."""
    names = (split_path(folder)[1] for folder in store.list(INDEX_BUILDS_FOLDER).folders)
    drafts = (load_draft(store, name).draft for name in names if name.startswith(SECONDARY_PREFIX))
    kinds = (draft.kind for draft in drafts if draft is not None)
    return {kind.partition: kind.definition.column for kind in kinds if isinstance(kind, SecondaryKind)}


def _column(said: Any) -> str | None:
    columns = said.get("sourceFields") if isinstance(said, Mapping) else None
    is_list = isinstance(columns, list) and columns and all(isinstance(one, str) for one in columns)
    return ", ".join(columns) if is_list and columns else None
