"""Hold the dynamic buckets of a table against its rows: whose keys are in which, how many, and how many may be."""

from __future__ import annotations

from bucketlake import Table
from bucketlake.config import load_properties
from bucketlake.index import DynamicIndex, resolve_index, shard_of
from bucketlake.state import files_of, load_state
from bucketlake.storage import Store
from bucketlake.write.state import groups_of

Bucket = tuple[str, int]
"""Partition and number."""


def buckets_of(store: Store) -> dict[Bucket, list[str]]:
    """Return the keys of every bucket, in any order; those of file groups without numbers under -1."""
    rows = Table(store, load_properties(store)).to_arrow(meta_columns=True).to_pylist()
    index = resolve_index(load_state(store))
    assert isinstance(index, DynamicIndex)
    found: dict[Bucket, list[str]] = {}
    for row in rows:
        partition = row["_hoodie_partition_path"]
        slot = index.heir_slot(partition, row["_hoodie_file_name"].partition("_")[0])
        found.setdefault((partition, -1 if slot is None else int(slot)), []).append(row["_hoodie_record_key"])
    return found


def check_buckets(store: Store) -> dict[Bucket, int]:
    """Raise AssertionError where a bucket is not what it must be; return how many keys each has."""
    state = load_state(store)
    index = resolve_index(state)
    assert isinstance(index, DynamicIndex)
    groups = {
        partition: {part.file_id: part for part in by_slot.values()}
        for partition, by_slot in groups_of(state, index, files_of(state)).items()
    }
    knowing = index.knowing(state, groups)
    found = buckets_of(store)
    actual = {bucket: len(keys) for bucket, keys in found.items()}
    for partition, of_partition in groups.items():
        for part in of_partition.values():
            slot = index.heir_slot(partition, part.file_id)
            if slot is not None:
                assert knowing.keys_in(partition, part) == actual.get((partition, int(slot)), 0), (
                    partition,
                    slot,
                )
    assigners = index.dynamic.assigners
    for (partition, bucket), keys in found.items():
        if bucket >= 0:
            assert len(keys) <= index.dynamic.keys_per_bucket, f"bucket {bucket} of {partition} is too full"
            shards = index.shard_counts[partition]
            owners = {shard_of(key, shards) % assigners for key in keys}
            assert owners == {bucket % assigners}, f"bucket {bucket} of {partition} has keys of others"
    return actual
