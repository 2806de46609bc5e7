"""What an instant says in `column_stats` and `partition_stats`.

Every data file that it adds gets a record per column, and every partition that it adds files to gets one that widens
what was known of it. Of files that go, the records go. A file may not be without: Hudi makes the range of a partition
from what it finds of its files.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence

from bucketlake.layout.names import (
    parse_index_base_file_name,
    parse_log_file_name,
    path_in_partition,
    split_path,
)
from bucketlake.metadata.change import Change
from bucketlake.metadata.column_stats import (
    ColumnRange,
    ValueType,
    are_comparable,
    column_key,
    encode_range,
    file_key,
    partition_key,
    shards_of,
    widened,
)
from bucketlake.metadata.delta import ShardChange
from bucketlake.metadata.file_ranges import ranges_of
from bucketlake.metadata.indexed_columns import described_columns
from bucketlake.metadata.listing import slice_of
from bucketlake.metadata.places import COLUMN_STATS, PARTITION_STATS, folder_of
from bucketlake.metadata.stats_shard import kinds_in
from bucketlake.metadata.step import Step
from bucketlake.schema import parse_avro
from bucketlake.storage import FileStat, Store, in_parallel


def stats_of(
    store: Store,
    change: Change,
    *,
    partitions: Collection[str],
    columns: Sequence[str],
    avro_schema: str | None,
    path: str,
) -> list[ShardChange]:
    """Describe a change in those of the two partitions that are named, given the columns that are indexed.

    `avro_schema` is that of the files which it adds, and `path` names the instant in errors.
    """
    if COLUMN_STATS not in partitions:
        return []
    ranges: Mapping[str, list[ColumnRange]] = {}
    described: Mapping[str, ValueType] = {}
    if change.added and avro_schema is not None:
        described = described_columns(columns, parse_avro(avro_schema, path=path))
        ranges = _ranges_of_files(store, change, described)
    said = {
        file_key(r.column, partition, r.name): encode_range(r, of_partition=False)
        for partition, found in ranges.items()
        for r in found
    }
    gone = [
        file_key(column, partition, name)
        for partition, names in change.removed.items()
        for name in names
        for column in columns
    ]
    changes = _sharded(store, COLUMN_STATS, said, gone)
    if PARTITION_STATS in partitions:
        said = {
            partition_key(r.column, partition): encode_range(r, of_partition=True)
            for partition, found in ranges.items()
            for r in _ranges_of_partition(partition, found, described)
        }
        changes += _sharded(store, PARTITION_STATS, said, [])
    return changes


def changed_types(
    store: Store, step: Step, *, columns: Sequence[str], avro_schema: str, path: str
) -> list[str]:
    """Name the columns of which `partition_stats` has ranges that those of files with this schema cannot widen.

    A column that was an int and is a long now is one: Hudi's reader would fail on the two. Hudi itself never widens.
    """
    described = described_columns(columns, parse_avro(avro_schema, path=path))
    files = store.list(folder_of(PARTITION_STATS)).files
    known = [kinds_in(store, slice_of(files, step, file_id=shard)) for shard in _shards_in(files)]
    return [
        column
        for column, type in described.items()
        if not all(
            are_comparable(kind, type.kind)
            for kinds in known
            for kind in kinds.get(column_key(column), frozenset())
        )
    ]


def _ranges_of_files(
    store: Store, change: Change, described: Mapping[str, ValueType]
) -> dict[str, list[ColumnRange]]:
    files = [(partition, name) for partition, names in change.added.items() for name in sorted(names)]
    found = in_parallel(lambda file: ranges_of(store, path_in_partition(*file), described), files, store)
    ranges: dict[str, list[ColumnRange]] = defaultdict(list)
    for (partition, _), of_file in zip(files, found, strict=True):
        ranges[partition] += of_file
    return ranges


def _ranges_of_partition(
    partition: str, of_files: Iterable[ColumnRange], described: Mapping[str, ValueType]
) -> list[ColumnRange]:
    """Return what holds of all files; not tight, for there are others."""
    found = {
        column: ColumnRange(
            name=partition, column=column, type=type, least=None, most=None, values=0, nulls=0
        )
        for column, type in described.items()
    }
    for said in of_files:
        found[said.column] = widened(said, found[said.column])
    return list(found.values())


def _sharded(
    store: Store, partition: str, said: Mapping[str, bytes], gone: Sequence[str]
) -> list[ShardChange]:
    """Put keys into the shards that there are: how many is nowhere written down."""
    if not said and not gone:
        return []
    shards = _shards_in(store.list(folder_of(partition)).files)
    if not shards:
        return []  # somebody has just deleted it
    values: list[dict[str, bytes]] = [{} for _ in shards]
    deleted: list[list[str]] = [[] for _ in shards]
    keys = [*said, *gone]
    for place, (key, shard) in enumerate(zip(keys, shards_of(keys, len(shards)), strict=True)):
        if place < len(said):
            values[shard][key] = said[key]
        else:
            deleted[shard].append(key)
    return [
        ShardChange(partition, file_id, some, tuple(sorted(keys_gone)))
        for file_id, some, keys_gone in zip(shards, values, deleted, strict=True)
        if some or keys_gone
    ]


def _shards_in(files: Iterable[FileStat]) -> list[str]:
    names = (split_path(file.path)[1] for file in files)
    parsed = (parse_index_base_file_name(name) or parse_log_file_name(name) for name in names)
    return sorted({name.file_id for name in parsed if name is not None})
