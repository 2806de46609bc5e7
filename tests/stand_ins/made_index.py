"""A secondary index as small as it can be made: by one process, of a table to which nobody writes."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from bucketlake import Table
from bucketlake.commit.metadata_table import LISTED, put_instant
from bucketlake.config import load_properties, update_properties
from bucketlake.index import shards_of
from bucketlake.index.secondary import SecondaryIndex, secondary_indexes_of
from bucketlake.layout.names import (
    INDEX_DEFINITIONS_PATH,
    WRITE_TOKEN,
    BaseFileName,
    partition_metadata_path,
    render_index_base_file_name,
)
from bucketlake.layout.partition_metadata import render_partition_metadata
from bucketlake.metadata.change import IndexFile
from bucketlake.metadata.delta import built_index_commit
from bucketlake.metadata.index_definitions import DEFINITIONS_KEY, define
from bucketlake.metadata.places import SECONDARY_BUILT, folder_of
from bucketlake.metadata.secondary_index import SecondaryIndexDefinition
from bucketlake.metadata.secondary_keys import prefixes_of_entries
from bucketlake.metadata.secondary_shard import encode_secondary_base
from bucketlake.metadata.step import load_metadata_timeline
from bucketlake.schema import key_hash_sum
from bucketlake.state import load_state
from bucketlake.timeline import Action, process_clock


def with_secondary_index(table: Table, name: str, column: str, *, shards: int = 2) -> Table:
    """Give a table an index of a column, of the rows that it has."""
    store, properties = table.store, load_properties(table.store)
    definition = SecondaryIndexDefinition(name, column)
    rows = table.to_arrow(meta_columns=True)
    of_rows = SecondaryIndex(store, properties, load_state(store).timeline, definition).entry_keys_of(rows)
    keys = pa.array(sorted(of_rows.to_pylist(), key=str.encode), pa.string())
    own = load_metadata_timeline(store, properties)
    beginnings = [int(i.requested) for i in own.instants if i.requested.startswith("0" * 14)]
    instant = f"{max(beginnings) + 1:017d}"
    numbers = shards_of(prefixes_of_entries(keys), shards)
    files = []
    for number in range(shards):
        mine = keys.filter(pa.array(numbers == np.int32(number)))
        file_name = render_index_base_file_name(
            BaseFileName(definition.shard_file_id(number), WRITE_TOKEN, instant)
        )
        path, image = f"{folder_of(definition.partition)}/{file_name}", encode_secondary_base(mine)
        store.put(path, image)
        files.append(
            IndexFile(
                path=path, size_bytes=len(image), came=len(mine), gone=0, key_hash_sum=key_hash_sum(mine)
            )
        )
    store.put(partition_metadata_path(folder_of(definition.partition)), render_partition_metadata(instant, 1))
    completed = process_clock(properties.timeline_timezone).next_instant()
    put_instant(
        store,
        properties,
        instant,
        Action.DELTA_COMMIT,
        completed=completed,
        body=built_index_commit(files),
    )
    define(store, definition.partition, definition.as_json())
    listed = ",".join(sorted({*properties.metadata_partitions, definition.partition}))
    changed = {
        LISTED: listed,
        DEFINITIONS_KEY: INDEX_DEFINITIONS_PATH,
        SECONDARY_BUILT: f"{instant}_{completed}",
    }
    return Table(store, update_properties(store, changed))


def check_secondary(table: Table, *, all_in_step: bool = True) -> int:
    """Compare the secondary indexes that a table lists with the rows that a reader finds; return how many entries
    there are. Nobody goes by one that is out of step, as while a rollback has taken its files back and not yet the
    commit."""
    state, count = load_state(table.store), 0
    rows = table.to_arrow(meta_columns=True)
    for index in secondary_indexes_of(state):
        fault = index.fault
        assert fault is None or not all_in_step, fault
        if fault is not None:
            continue
        expected = sorted(index.entry_keys_of(rows).to_pylist())
        found = [key for shard in range(index.shards) for key in index.entries_of(shard).to_pylist()]
        assert sorted(found) == expected, f"{index}: {set(found) ^ set(expected)}"
        count += len(found)
    return count
