"""Where the metadata table's parts are, and what they are called.

    .hoodie/metadata/.hoodie/timeline    its own timeline
    .hoodie/metadata/<partition>         the shards of one of its partitions, a file group each

It lives in the folder of the table that it tells of, so it is reached through the same store.
"""

from __future__ import annotations

from dataclasses import replace

from bucketlake.config import TableProperties, TableType
from bucketlake.layout.names import METADATA_HISTORY_FOLDER, METADATA_TABLE_FOLDER, METADATA_TIMELINE_FOLDER

FILES = "files"
"""The partition that lists data files."""
FILES_SHARD = "files-0000-0"
"""Its one shard."""
COLUMN_STATS = "column_stats"
"""The partition with the range of every column of a data file."""
PARTITION_STATS = "partition_stats"
"""The partition with the range of every column of a partition."""
STATISTICS = frozenset({COLUMN_STATS, PARTITION_STATS})
RECORD_INDEX = "record_index"
"""The partition that says in which file group a record key lives."""
SECONDARY_PREFIX = "secondary_index_"
"""Begins the names of the partitions that say which record keys have a value."""
MAINTAINED = STATISTICS | {FILES, RECORD_INDEX}
"""The partitions that bucketlake keeps in step, beside those of secondary indexes."""

WANTED = "bucketlake.metadata.partitions"
"""A table property: the parts of the metadata table to list again once they are rebuilt. Default: none. We set it."""

INDEX_BUILT = "bucketlake.record.index.built"
"""A table property: the instant that built the record-level index, and when it was listed. A write that began by
another one does not commit. Default: none. We set it."""
SECONDARY_BUILT = "bucketlake.secondary.index.built"
"""A table property: for each secondary index, the instant that built it, when it was listed, and how many shards it
has. A write that began by others does not commit. Default: none. We set it."""
GROWING = "bucketlake.record.index.growing"
"""A table property: the record-level index is getting another number of shards. Default: none. We set it.

See `metadata/growth.py`.
"""

FIRST_INSTANT = "0" * 17
"""When `files` was made: Hudi counts the beginnings of partitions from zero."""


def folder_of(partition: str) -> str:
    return f"{METADATA_TABLE_FOLDER}/{partition}"


def is_index(partition: str) -> bool:
    """Tell whether a partition of the metadata table has entries of keys, which a write records before it commits."""
    return partition == RECORD_INDEX or partition.startswith(SECONDARY_PREFIX)


def timeline_properties(properties: TableProperties) -> TableProperties:
    """Return a table's properties with the metadata table's timeline in place of its own."""
    return replace(
        properties,
        table_type=TableType.MERGE_ON_READ,
        timeline_folder=METADATA_TIMELINE_FOLDER,
        history_folder=METADATA_HISTORY_FOLDER,
    )


def is_own_instant(instant: str) -> bool:
    """Tell whether an instant made a partition of the metadata table: no instant of the table has its time.

    >>> is_own_instant("00000000000000002"), is_own_instant("20240102030405678")
    (True, False)
    """
    return instant.startswith("0" * 14)
