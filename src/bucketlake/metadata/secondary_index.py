"""The secondary indexes of a table: what each is called, which column it is of, and the names of its shards.

    secondary_index_by_city              its partition of the metadata table, and its name in `index.json`
    secondary-index-by-city-0003-0       its shard 3

Two indexes whose names differ in `-` and `_` only have shards of the same names, in folders of their own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from bucketlake.config import TableProperties, load_properties
from bucketlake.errors import CommitConflictError
from bucketlake.metadata.index_definitions import definitions
from bucketlake.metadata.places import SECONDARY_BUILT, SECONDARY_PREFIX
from bucketlake.storage import Store

_TYPE = "secondary_index"
_VERSION = "V2"
"""Since this version the shard of an entry follows from its value alone."""
_SHARD = re.compile(r".*-(\d{4,})-0")


@dataclass(frozen=True, slots=True)
class SecondaryIndexDefinition:
    """An index of the values of one column."""

    name: str
    """As people call it."""
    column: str

    @property
    def partition(self) -> str:
        """The partition of the metadata table that has its entries."""
        return f"{SECONDARY_PREFIX}{self.name}"

    def shard_file_id(self, number: int) -> str:
        """Return the file id of a shard.

        >>> SecondaryIndexDefinition("by_city", "city").shard_file_id(3)
        'secondary-index-by-city-0003-0'
        """
        return f"{self.partition.replace('_', '-')}-{number:04d}-0"

    def as_json(self) -> dict[str, Any]:
        """Return what `index.json` says of it."""
        return {
            "indexName": self.partition,
            "indexType": _TYPE,
            "indexFunction": "identity",
            "sourceFields": [self.column],
            "indexOptions": {},
            "version": _VERSION,
        }


def shard_number(file_id: str) -> int | None:
    """Return the number of a shard, None if a file id is not that of a shard.

    >>> shard_number("secondary-index-by-city-0003-0")
    3
    """
    found = _SHARD.fullmatch(file_id)
    return None if found is None else int(found[1])


def secondary_indexes(store: Store, properties: TableProperties) -> dict[str, SecondaryIndexDefinition]:
    """Return the indexes that a table lists and that can be kept, by their partitions."""
    listed = [name for name in properties.metadata_partitions if name.startswith(SECONDARY_PREFIX)]
    if not listed:
        return {}
    known = definitions(store)
    found = ((name, _read(name, known.get(name))) for name in sorted(listed))
    return {name: index for name, index in found if index is not None}


def refuse_dropped(store: Store, partitions: Iterable[str]) -> None:
    """Refuse to judge indexes whose definitions are missing, if they have been dropped since the properties were read.

    Who drops one delists it before its definition goes.
    """
    doubtful = [name for name in partitions if name.startswith(SECONDARY_PREFIX)]
    gone = set(doubtful).difference(load_properties(store).metadata_partitions) if doubtful else set()
    if gone:
        raise CommitConflictError(
            f"somebody has delisted {min(gone)} of {store.uri} since this call looked at the table. Nothing was "
            f"written. Run it again."
        )


def defined_indexes(store: Store) -> dict[str, SecondaryIndexDefinition]:
    """Return the indexes that could be kept of those that `index.json` defines, listed or not, by their partitions."""
    said = definitions(store).items()
    found = ((name, _read(name, one)) for name, one in sorted(said) if name.startswith(SECONDARY_PREFIX))
    return {name: index for name, index in found if index is not None}


def _read(partition: str, said: Any) -> SecondaryIndexDefinition | None:
    """Read the definition of an index; None for one that is of another kind, or older, or of a nested column."""
    if not isinstance(said, Mapping) or said.get("indexType") != _TYPE or said.get("version") != _VERSION:
        return None
    columns = said.get("sourceFields")
    if not isinstance(columns, list) or len(columns) != 1 or not isinstance(columns[0], str):
        return None
    if "." in columns[0]:
        return None  # inside of a struct, where nobody tells us of changes
    return SecondaryIndexDefinition(partition.removeprefix(SECONDARY_PREFIX), columns[0])


@dataclass(frozen=True, slots=True)
class SecondaryBuild:
    """How an index was built that we built."""

    instant: str
    """Of the metadata table."""
    completed: str
    """When it was listed."""
    shards: int


def builds_of(properties: TableProperties) -> dict[str, SecondaryBuild]:
    """Return how the secondary indexes were built that we built, by their partitions; also of those that were delisted.

    What does not parse says nothing of any index.
    """
    found: dict[str, SecondaryBuild] = {}
    for one in properties.raw.get(SECONDARY_BUILT, "").split(","):
        name, _, said = one.strip().rpartition("=")
        parts = said.split("_")
        if (
            name
            and len(parts) == len(fields(SecondaryBuild))
            and all(p.isascii() and p.isdigit() for p in parts)
        ):
            found[f"{SECONDARY_PREFIX}{name}"] = SecondaryBuild(parts[0], parts[1], int(parts[2]))
    return found


def render_builds(builds: Mapping[str, SecondaryBuild]) -> str:
    return ",".join(
        f"{partition.removeprefix(SECONDARY_PREFIX)}={one.instant}_{one.completed}_{one.shards}"
        for partition, one in sorted(builds.items())
    )
