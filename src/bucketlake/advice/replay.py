"""Keys through every engine, by the engines' own functions: how many rows each file group gets.

A table that has grown has the same keys, each for several: new keys are scattered as the ones that are there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from bucketlake.advice.keys import Keys
from bucketlake.index import (
    BUCKETS_MAX,
    ConsistentBuckets,
    DynamicBuckets,
    HashingMetadata,
    IndexValue,
    NewKeys,
    Node,
    PartitionBuckets,
    RecordIndex,
    Ring,
    SimpleBuckets,
    declare_rules,
    split,
)
from bucketlake.index.bucket_room import Assigner
from bucketlake.index.room import GROUP_BYTES, fill_groups
from bucketlake.services.resize_plan import FILE_BYTES, SPLIT_THRESHOLD, at_the_middle
from bucketlake.write.recorded import SHARE_BYTES, STORED_PART

Floats = npt.NDArray[np.float64]
_NODE_BYTES = 150
"""Of a node of a ring in memory: its end, and the prefix of its file ids."""
_DIRECTORY_BYTES = 4 * 4097
_SHARES_MAX = 20_000


@dataclass(frozen=True, slots=True)
class Spread:
    """Where rows are: those of each file group that has some."""

    rows: Floats
    partitions: npt.NDArray[np.int64]
    """The partition of each, by its place among the keys'."""
    layout_bytes: int = 0
    """What rings or rules take in memory."""
    indexed: float = 0.0
    """Keys that an index holds; none for engines that work places out."""
    shards: int = 0
    """Of the index: in the whole table, or in each partition."""
    is_global: bool = False


def _spread(counts: Floats, of_partition: npt.NDArray[np.int64], **more: Any) -> Spread:
    there = counts > 0
    return Spread(counts[there], of_partition[there], **more)


def _simple(value: Any, keys: Keys, factor: float) -> Spread:
    return _counted(value, np.full(len(keys.partitions), value.count, np.int64), keys, factor)


def _ruled(value: Any, keys: Keys, factor: float) -> Spread:
    rules = declare_rules(value.rules, value.default, rule_type=value.rule_type)
    counts = np.array(rules.counts_of(list(keys.partitions)), np.int64)
    return _counted(value, counts, keys, factor, layout_bytes=64 * len(keys.partitions))


def _counted(value: Any, counts: npt.NDArray[np.int64], keys: Keys, factor: float, **more: Any) -> Spread:
    """Spread keys over as many buckets as each partition has."""
    starts = np.cumsum(counts) - counts
    places = starts[keys.codes] + keys.bucket_hashes(value.hash_fields) % counts[keys.codes]
    rows = np.bincount(places, minlength=int(counts.sum())).astype(np.float64) * (keys.every * factor)
    return _spread(rows, np.repeat(np.arange(len(counts)), counts), **more)


def _ringed(value: Any, keys: Keys, factor: float) -> Spread:
    """Spread keys over rings whose large buckets were split, as the resize service does."""
    first = HashingMetadata.initial("", value.count).ring
    partitions = len(keys.partitions)
    weight = keys.every * factor
    most = SPLIT_THRESHOLD * FILE_BYTES / keys.row_bytes
    all_hashes = keys.ring_hashes(value.hash_fields)
    places = keys.codes * value.count + first.nodes_of(all_hashes)
    rows = (np.bincount(places, minlength=partitions * value.count) * weight).reshape(partitions, -1)
    large = np.flatnonzero((rows > most).any(axis=1))
    small = np.ones(partitions, np.bool_)
    small[large] = False
    counts = [rows[small].ravel()]
    owners = [np.repeat(np.flatnonzero(small), value.count)]
    nodes = int(small.sum()) * value.count
    for partition in large.tolist():
        hashes = np.sort(all_hashes[keys.places_of(partition)])
        ring, found = _split_up(first, hashes, weight, most)
        nodes += len(ring.nodes)
        counts.append(found)
        owners.append(np.full(len(found), partition))
    memory = nodes * _NODE_BYTES + partitions * _DIRECTORY_BYTES
    return _spread(np.concatenate(counts), np.concatenate(owners), layout_bytes=memory)


def _split_up(ring: Ring, hashes: npt.NDArray[np.int32], weight: float, most: float) -> tuple[Ring, Floats]:
    """Split the large buckets of a ring, round by round; return it, and the rows of its nodes."""
    while True:
        places = ring.nodes_of(hashes)
        rows = np.bincount(places, minlength=len(ring.nodes)).astype(np.float64) * weight
        children: list[Node] = []
        for place in np.flatnonzero(rows > most).tolist():
            at = at_the_middle(ring, place, hashes[places == place])
            if at is not None and len(ring.nodes) + len(children) < BUCKETS_MAX:
                node = ring.nodes[place]
                children += split(ring, place, at, (f"{node.file_id_prefix}0", f"{node.file_id_prefix}1"))
        if not children:
            return ring, rows
        ring = ring.with_children(children)


def _dynamic(value: Any, keys: Keys, factor: float) -> Spread:
    """Open buckets as they fill."""
    lots = keys.codes * value.assigners + keys.shard_hashes % value.assigners
    rows = np.bincount(lots) * (keys.every * factor)
    capacity = max(1, min(value.keys_per_bucket, int(value.bytes_per_bucket // keys.row_bytes)))
    counts: list[int] = []
    owners: list[int] = []
    for lot in np.flatnonzero(rows).tolist():
        assigner = Assigner(lot % value.assigners, value.assigners)
        shares = assigner.share_out(round(rows[lot]), [], capacity=capacity, taken=())
        counts += [taken for _, taken in shares]
        owners += [lot // value.assigners] * len(shares)
    return _spread(
        np.array(counts, np.float64),
        np.array(owners, np.int64),
        indexed=keys.rows * factor,
        shards=value.assigners,
    )


def _recorded(value: Any, keys: Keys, factor: float) -> Spread:
    """Fill file groups with the keys of a shard and partition together, as one load does."""
    of_table = not value.per_partition
    codes = keys.codes[keys.newest] if of_table else keys.codes
    hashes = keys.shard_hashes[keys.newest] if of_table else keys.shard_hashes
    shards = value.shard_count
    rows = np.bincount(codes * shards + hashes % shards) * (keys.every * factor)
    share = max(1, int(SHARE_BYTES * STORED_PART / keys.row_bytes))
    new: list[NewKeys] = []
    counts: list[float] = []
    owners: list[int] = []
    by_partition = np.bincount(np.arange(len(rows)) // shards, weights=rows)
    for partition in np.flatnonzero(by_partition).tolist():
        if by_partition[partition] > _SHARES_MAX * share:  # full ones, but for the last
            groups = -int(-by_partition[partition] * keys.row_bytes // GROUP_BYTES)
            counts += [by_partition[partition] / groups] * groups
            owners += [partition] * groups
            continue
        for count in rows[partition * shards : (partition + 1) * shards].tolist():
            whole, rest = divmod(round(count), share)
            new += [NewKeys(str(partition), share)] * whole
            new += [NewKeys(str(partition), rest)] if rest else []
    names = fill_groups(new, {}, instant="", row_bytes=max(1, round(keys.row_bytes)))
    by_group: dict[tuple[str, str], int] = {}
    for one, name in zip(new, names, strict=True):
        by_group[one.partition, name] = by_group.get((one.partition, name), 0) + one.count
    return _spread(
        np.array([*counts, *by_group.values()], np.float64),
        np.array([*owners, *(int(partition) for partition, _ in by_group)], np.int64),
        indexed=float(len(codes)) * keys.every * factor,
        shards=shards,
        is_global=of_table,
    )


REPLAYS: Mapping[type, Callable[[Any, Keys, float], Spread]] = {
    SimpleBuckets: _simple,
    PartitionBuckets: _ruled,
    ConsistentBuckets: _ringed,
    DynamicBuckets: _dynamic,
    RecordIndex: _recorded,
}
"""By the kind of an index's value. Another engine takes its place here, and in `choice.candidates`."""


def replay(value: IndexValue, keys: Keys, factor: float = 1.0) -> Spread:
    """Place the keys of a table that has so many times the rows."""
    return REPLAYS[type(value)](value, keys, factor)
