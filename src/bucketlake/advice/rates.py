"""What things cost, as the benchmarks measured it: one table of rates, and the sums that are made of them.

CPU seconds of one process without Spark, on a local disk with a warm page cache. `docs/benchmarks.md` and
`docs/limits.md` have the measured rows; a test holds these sums within a factor of two of them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

MEASURED = "2026-11-19 on 2 cores, x86_64, Python 3.11.7, in one process without Spark"

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Rate:
    """One measured number."""

    seconds: float
    per: str
    source: str


_GROWTH = "docs/benchmarks.md, Growth"
_LIMITS = "docs/limits.md, Latency of a batch"
_KEYS = "docs/benchmarks.md, one key and partition, one key alone"

RATES: Mapping[str, Rate] = {
    "commit": Rate(8e-3, "commit", _GROWTH),
    "row": Rate(0.5e-6, "row of a batch", _GROWTH),
    "logged group": Rate(3.6e-3, "file group that a batch appends a log to", _GROWTH),
    "rewritten group": Rate(5.2e-3, "file group that a batch writes anew", _GROWTH),
    "rewritten row": Rate(0.41e-6, "row that is written anew", _GROWTH),
    "index": Rate(10e-3, "commit that asks an index", _LIMITS),
    "index row": Rate(1.3e-6, "row that is looked up and told to an index", _LIMITS),
    "index shard": Rate(7e-3, "shard of a partition's index that a batch asks", _LIMITS),
    "index block": Rate(54e-6, "block of an index that is read, where none is kept on the disk", _LIMITS),
    "read row": Rate(0.08e-6, "row of a base file, some columns", "docs/benchmarks.md, Cold"),
    "read group": Rate(0.5e-3, "file group of a read", "docs/benchmarks.md, Many file groups"),
    "read log": Rate(0.6e-3, "log that a read merges", "docs/benchmarks.md, Cold"),
    "key": Rate(9e-3, "look-up of a key", _KEYS),
    "key row": Rate(0.17e-6, "row of the file group that a key is looked for in", _KEYS),
    "key group": Rate(0.6e-3, "further file group that may have a key", _KEYS),
    "key index": Rate(1.2e-3, "look-up that asks an index", "docs/limits.md, Look-ups"),
    "key shard": Rate(0.5e-3, "further shard that is asked", "docs/limits.md, Look-ups"),
}

INDEX_BYTES_PER_KEY = 10
"""On disk, and in the cache; `docs/limits.md`, What a table costs."""
BLOCK_KEYS = 1000
"""Keys in a block of an index: what one random look-up reads."""


def _of(name: str) -> float:
    return RATES[name].seconds


def copy_on_write_seconds(*, rows: float, groups: float, rewritten: float) -> float:
    """A batch of `rows` that writes `groups` anew, which have so many rows afterwards.

    >>> round(copy_on_write_seconds(rows=10_000, groups=32, rewritten=5_000_000), 1)
    2.2
    """
    return (
        _of("commit") + _of("row") * rows + _of("rewritten group") * groups + _of("rewritten row") * rewritten
    )


def merge_on_read_seconds(*, rows: float, groups: float) -> float:
    """A batch of `rows` that appends a log to each of `groups`."""
    return _of("commit") + _of("row") * rows + _of("logged group") * groups


def index_seconds(*, rows: float, shards: float = 0, blocks: float = 0) -> float:
    """What an index adds to a batch: `shards` of partitions' indexes are asked, and `blocks` read from the store."""
    return _of("index") + _of("index row") * rows + _of("index shard") * shards + _of("index block") * blocks


def blocks_read(*, rows: float, keys: float) -> float:
    """How many blocks of an index a batch reads whose keys come from anywhere.

    >>> round(blocks_read(rows=100_000, keys=5_000_000))
    5000
    """
    blocks = max(1.0, keys / BLOCK_KEYS)
    return -blocks * math.expm1(-rows / blocks)


def read_seconds(*, rows: float, groups: float, logs: float = 0) -> float:
    """A read of some columns of all rows."""
    return _of("read row") * rows + _of("read group") * groups + _of("read log") * logs


def key_seconds(*, group_rows: float, groups: float = 1, shards: float = 0) -> float:
    """A look-up of a key: in `groups` file groups, after `shards` of an index were asked."""
    asked = _of("key index") + _of("key shard") * (shards - 1) if shards else 0.0
    return _of("key") + asked + _of("key row") * group_rows + _of("key group") * max(0.0, groups - 1)


def touched(shares: Floats, rows: float) -> Floats:
    """How likely a batch of `rows` goes to each file group, by the share of all rows that it has."""
    likely: Floats = -np.expm1(-rows * shares)
    return likely
