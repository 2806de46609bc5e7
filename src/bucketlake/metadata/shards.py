"""The shards of a metadata table: which there are, what each is made of, and what it becomes when it is compacted.

How many shards a partition has is written nowhere: it is as many as there are file ids in its folder.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from bucketlake.config import TableProperties
from bucketlake.layout.names import parse_index_base_file_name, parse_log_file_name, split_path
from bucketlake.metadata.delta import encode_records, encode_values
from bucketlake.metadata.files import ALL_PARTITIONS, Entries
from bucketlake.metadata.growth import growth_of, kept_partitions
from bucketlake.metadata.listing import Records, ShardSlice, read_slice, slice_of
from bucketlake.metadata.places import FILES, RECORD_INDEX, SECONDARY_PREFIX, STATISTICS, folder_of
from bucketlake.metadata.record_shard import compacted_shard
from bucketlake.metadata.secondary_shard import encode_secondary_base, read_entries
from bucketlake.metadata.stats_shard import read_stats
from bucketlake.metadata.step import Step
from bucketlake.storage import FileStat, Store, in_parallel

ShardId = tuple[str, str]
"""Partition of the metadata table, and file id."""


@dataclass(frozen=True, slots=True)
class Shards:
    """The files of a metadata table by shard, and the timelines that say which of them count."""

    step: Step
    files: Mapping[ShardId, tuple[FileStat, ...]]
    """Sorted by shard."""

    def slice_of(self, shard: ShardId, *, before: str | None = None) -> ShardSlice:
        return slice_of(self.files.get(shard, ()), self.step, file_id=shard[1], before=before)

    def slices(self, *, before: str | None = None) -> dict[ShardId, ShardSlice]:
        return {shard: self.slice_of(shard, before=before) for shard in self.files}

    def counts(self) -> dict[str, int]:
        """Return how many shards each partition has."""
        found: dict[str, int] = {}
        for partition, _ in self.files:
            found[partition] = found.get(partition, 0) + 1
        return found


def list_shards(
    store: Store, step: Step, properties: TableProperties, partitions: Iterable[str] | None = None
) -> Shards:
    """List the files of all partitions of the metadata table that are kept, or of some; of an index that grows, those
    of the set that counts."""
    wanted = sorted(kept_partitions(properties) if partitions is None else partitions)
    growth = growth_of(properties)
    completions = {i.requested: i.completed or "" for i in step.metadata.writes}
    listings = in_parallel(store.list, [folder_of(partition) for partition in wanted], store)
    found: dict[ShardId, list[FileStat]] = {}
    for partition, listing in zip(wanted, listings, strict=True):
        is_growing = growth is not None and partition == RECORD_INDEX
        files = growth.counting(listing.files, completions) if growth and is_growing else listing.files
        for file in files:
            name = split_path(file.path)[1]
            parsed = parse_index_base_file_name(name) or parse_log_file_name(name)
            if parsed is not None:
                found.setdefault((partition, parsed.file_id), []).append(file)
    return Shards(step, {shard: tuple(files) for shard, files in sorted(found.items())})


def compacted_base(store: Store, partition: str, shard: ShardSlice) -> tuple[bytes, int]:
    """Return the base file that a slice becomes, and how many records it has. The same slice gives the same bytes."""
    if partition == FILES:
        records = settled_records(read_slice(store, shard))
        return encode_records(records), len(records)
    if partition == RECORD_INDEX:
        return compacted_shard(store, shard)
    if partition.startswith(SECONDARY_PREFIX):
        keys = read_entries(store, shard)
        return encode_secondary_base(keys), len(keys)
    assert partition in STATISTICS, f"nobody has said how to merge {partition}"
    values = read_stats(store, shard)
    return encode_values(values), len(values)


def settled_records(records: Records) -> dict[str, Entries]:
    """Leave out what is deleted: there is nothing older that it would have to hide.

    >>> from bucketlake.metadata.files import FileEntry
    >>> settled_records({"__all_partitions__": {"p": FileEntry(0)}, "p": {"a": FileEntry(0, is_deleted=True)}})
    {'__all_partitions__': {'p': FileEntry(size_bytes=0, is_deleted=False)}, 'p': {}}
    """
    kept: dict[str, Entries] = {
        key: {name: entry for name, entry in entries.items() if not entry.is_deleted}
        for key, entries in records.items()
    }
    live = {ALL_PARTITIONS, *kept.get(ALL_PARTITIONS, {})}
    return {key: entries for key, entries in kept.items() if entries or key in live}
