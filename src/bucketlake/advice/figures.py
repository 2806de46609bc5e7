"""What one engine would make of the keys: file groups, sizes, memory, what a batch and a read cost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from bucketlake.advice import rates
from bucketlake.advice.keys import Keys
from bucketlake.advice.replay import Spread, replay
from bucketlake.index import ConsistentBuckets, DynamicBuckets, IndexValue, PartitionBuckets, SimpleBuckets
from bucketlake.services.resize_plan import FILE_BYTES, SPLIT_THRESHOLD

TOO_LARGE_BYTES = int(FILE_BYTES * SPLIT_THRESHOLD)
"""A file group with more should be divided."""


@dataclass(frozen=True, slots=True)
class Bar:
    """How many file groups have at least so many bytes, and less than the next bar begins with."""

    from_bytes: int
    to_bytes: int
    groups: int
    rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteCost:
    """Of one batch."""

    seconds: float
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """An engine at one size of the table."""

    factor: float
    """How many times the rows that were given."""
    file_groups: int
    smallest_bytes: int
    median_bytes: int
    largest_bytes: int
    skew: float
    """How much larger the largest file group is than the average one."""
    memory_bytes: int
    """Rings and rules, and an index if all of it is kept."""
    touched: float
    """File groups that a batch goes to."""
    copy_on_write: WriteCost
    merge_on_read: WriteCost
    saved_by_cache_seconds: float
    """What a batch takes less where all of the index is kept on the machine's disk, as it is if somebody says so."""
    read_seconds: float
    logged_read_seconds: float
    """Of a merge-on-read table, after one batch."""
    key_seconds: float
    """A look-up of a key whose partition nobody names."""
    key_in_partition_seconds: float
    histogram: tuple[Bar, ...]
    needs: str = ""
    """What somebody has to do at this size."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """One engine, as the table is and as it grows."""

    index: IndexValue
    now: Figures
    grown: tuple[Figures, ...]


def figures_of(index: IndexValue, keys: Keys, *, batch_rows: int, factor: float = 1.0) -> Figures:
    """Replay the keys through an engine, and say what that costs."""
    spread = replay(index, keys, factor)
    rows, total = spread.rows, float(spread.rows.sum())
    likely = rates.touched(rows / total, batch_rows)
    groups = float(likely.sum())
    new = batch_rows / 2
    rewritten = float((likely * rows).sum()) + new
    sizes = np.sort(rows) * keys.row_bytes
    asked = _index_seconds(spread, keys, batch_rows, is_kept=False)
    saved = asked - _index_seconds(spread, keys, batch_rows, is_kept=True)
    told = int(rates.INDEX_BYTES_PER_KEY * new) if spread.indexed else 0
    log_bytes = int(batch_rows * keys.row_bytes)
    of_typical_key = float((rows * rows).sum()) / total
    return Figures(
        factor=factor,
        file_groups=len(rows),
        smallest_bytes=int(sizes[0]),
        median_bytes=int(np.median(sizes)),
        largest_bytes=int(sizes[-1]),
        skew=float(sizes[-1] / sizes.mean()),
        memory_bytes=spread.layout_bytes + int(rates.INDEX_BYTES_PER_KEY * spread.indexed),
        touched=groups,
        copy_on_write=WriteCost(
            seconds=rates.copy_on_write_seconds(rows=batch_rows, groups=groups, rewritten=rewritten) + asked,
            size_bytes=int(rewritten * keys.row_bytes) + told,
        ),
        merge_on_read=WriteCost(
            seconds=rates.merge_on_read_seconds(rows=batch_rows, groups=groups) + asked,
            size_bytes=log_bytes + told,
        ),
        saved_by_cache_seconds=saved,
        read_seconds=rates.read_seconds(rows=total, groups=len(rows)),
        logged_read_seconds=rates.read_seconds(rows=total, groups=len(rows), logs=groups),
        key_seconds=_key_seconds(spread, of_typical_key, len(keys.partitions)),
        key_in_partition_seconds=_key_seconds(spread, of_typical_key, 1),
        histogram=histogram(rows, keys.row_bytes),
        needs=_needs(index, int(sizes[-1])),
    )


def _index_seconds(spread: Spread, keys: Keys, batch_rows: int, *, is_kept: bool) -> float:
    if not spread.indexed:
        return 0.0
    asked = 0.0
    if not spread.is_global:
        share = np.repeat(keys.rows_of_partitions / spread.shards, spread.shards)
        asked = float(rates.touched(share / share.sum(), batch_rows).sum())
    blocks = 0.0 if is_kept else rates.blocks_read(rows=batch_rows, keys=spread.indexed)
    return rates.index_seconds(rows=batch_rows, shards=asked, blocks=blocks)


def _key_seconds(spread: Spread, group_rows: float, partitions: int) -> float:
    if not spread.indexed:
        return rates.key_seconds(group_rows=group_rows, groups=partitions)
    return rates.key_seconds(group_rows=group_rows, shards=1 if spread.is_global else partitions)


def _needs(index: IndexValue, largest: int) -> str:
    if largest <= TOO_LARGE_BYTES:
        return ""
    times = buckets_for(largest)
    match index:
        case SimpleBuckets():
            return f"rescale to {index.count * times} buckets"
        case PartitionBuckets():
            return f"rescale with counts {times} times as large"
        case ConsistentBuckets() | DynamicBuckets():
            return "some keys are too many for one file"
    return ""


def buckets_for(size_bytes: float) -> int:
    """How many buckets keep so many bytes in files of at most 120 MiB: a power of two.

    >>> [buckets_for(mib << 20) for mib in (1, 120, 121, 1000)]
    [1, 1, 2, 16]
    """
    count = 1
    while count * FILE_BYTES < size_bytes:
        count *= 2
    return count


def histogram(rows: Any, row_bytes: float) -> tuple[Bar, ...]:
    """Count file groups by their bytes, in steps of powers of two; of four, of eight, if there are too many.

    >>> [(bar.from_bytes, bar.to_bytes, bar.groups) for bar in histogram(np.array([10, 12, 100]), 10.0)]
    [(64, 128, 2), (128, 256, 0), (256, 512, 0), (512, 1024, 1)]
    """
    sizes = np.maximum(1.0, rows * row_bytes)
    powers = np.floor(np.log2(sizes)).astype(np.int64)
    low, high = int(powers.min()), int(powers.max())
    step = -(-(high - low + 1) // _BARS_MAX)
    numbers = (powers - low) // step
    count = (high - low) // step + 1
    groups = np.bincount(numbers, minlength=count).tolist()
    held = np.bincount(numbers, weights=rows, minlength=count).tolist()
    return tuple(
        Bar(1 << (low + step * n), 1 << (low + step * (n + 1)), groups[n], round(held[n]))
        for n in range(count)
    )


_BARS_MAX = 8
