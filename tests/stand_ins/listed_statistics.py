"""A table that lists `column_stats` and `partition_stats`, without a Hudi that made them: empty shards."""

from __future__ import annotations

import json
from collections.abc import Sequence

from bucketlake.commit.metadata_table import LISTED
from bucketlake.config import load_properties, update_properties
from bucketlake.layout.names import INDEX_DEFINITIONS_PATH
from bucketlake.metadata.column_stats import ColumnRange, decode_range
from bucketlake.metadata.listing import slice_of
from bucketlake.metadata.places import COLUMN_STATS, PARTITION_STATS, folder_of
from bucketlake.metadata.stats_shard import read_stats
from bucketlake.metadata.step import look_at_step
from bucketlake.storage import Store

META = ("_hoodie_commit_time", "_hoodie_partition_path", "_hoodie_record_key")
SHARDS = {
    COLUMN_STATS: ("col-stats-0000-0", "col-stats-0001-0"),
    PARTITION_STATS: ("partition-stats-0000-0",),
}


def list_statistics(store: Store, columns: Sequence[str], *, version: str = "V2") -> None:
    """List both, of these columns, on a table that has a metadata table. They know of no file yet."""
    for partition, shards in SHARDS.items():
        for shard in shards:
            store.put(f"{folder_of(partition)}/.{shard}_00000000000000001.log.1_0-0-0", b"")
    said = {"sourceFields": [*META, *columns], "version": version}
    store.put(INDEX_DEFINITIONS_PATH, json.dumps({"indexDefinitions": {COLUMN_STATS: said}}).encode())
    update_properties(store, {LISTED: ",".join(sorted(["files", *SHARDS]))})


def described(store: Store, partition: str) -> dict[tuple[str, str], ColumnRange]:
    """What the metadata table says, by name of file or partition, and column."""
    step = look_at_step(store, load_properties(store))
    files = store.list(folder_of(partition)).files
    found = [
        decode_range(value, path=partition)[1]
        for shard in SHARDS[partition]
        for value in read_stats(store, slice_of(files, step, file_id=shard)).values()
    ]
    return {(said.name, said.column): said for said in found}
