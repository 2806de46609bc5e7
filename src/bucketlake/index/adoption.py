"""What a table that Hudi made is to be taken for: what it keeps itself, and what the caller says of it.

A key with the hash h in bucket b fits n buckets exactly if n divides h - b, so the greatest common divisor of these
differences tells the right count, or a multiple of it, after a few keys (`CountGuess`).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from bucketlake.errors import ConfigError, LayoutMismatchError, UnsupportedError
from bucketlake.index.consistent import list_rings
from bucketlake.index.dynamic import DynamicBuckets, has_dynamic_buckets, stored_dynamic
from bucketlake.index.engines import IndexValue
from bucketlake.index.fingerprint import copy_instead, is_found_by_record_index
from bucketlake.index.hashing_arrow import buckets_of
from bucketlake.index.index import Index
from bucketlake.index.partition import list_versions
from bucketlake.index.record_level import RecordIndex, RecordLevelIndex
from bucketlake.index.resolve import resolve_index, said_count, said_rules
from bucketlake.index.rings import ConsistentBuckets, RingIndex
from bucketlake.index.rule_types import declare_rules
from bucketlake.index.ruled import PartitionBuckets, RuledIndex
from bucketlake.index.rules import BUCKETS_MAX
from bucketlake.index.simple import SimpleBuckets, SimpleIndex
from bucketlake.index.told import differs, refuse_unlike_files
from bucketlake.state import TableState

_ALL_HASHES = 1 << 31
_SHOWN = 5


@dataclass(frozen=True, slots=True)
class LayoutToAdopt:
    """Where the keys of a table are said to live."""

    index: Index
    value: IndexValue
    """The same, as it is to be kept with the table."""
    keeps_rules: bool = False
    """Whether the table has versions of its rules already."""


def layout_to_adopt(state: TableState, said: IndexValue | None) -> LayoutToAdopt:
    """Take what a table says of its buckets, and a caller where it is silent; ConfigError if that is too little.

    Nothing need be said where the table has rings, versions of its rules, or a record-level index and no buckets.
    `LayoutMismatchError` if its files say otherwise.
    """
    if said is not None:
        refuse_unlike_files(said, state)
    if has_dynamic_buckets(state.properties):
        return LayoutToAdopt(resolve_index(state), stored_dynamic(state.properties))
    if isinstance(said, RecordIndex | DynamicBuckets) or (said is None and is_found_by_record_index(state)):
        return _recorded_layout(state, said)
    buckets, rules = said_count(said), said_rules(said)
    if list_rings(state.store, state.timeline) is not None:
        index = resolve_index(state, said)
        assert isinstance(index, RingIndex)
        return LayoutToAdopt(index, ConsistentBuckets(_first_count(index, buckets), index.hash_fields))
    has_versions = bool(list_versions(state.store, with_archived=False))
    stored = state.properties.bucket_count
    if not has_versions:
        if buckets is None and stored is None:
            raise ConfigError(
                f"{state.store.uri} does not say how many buckets a partition has. Give the count that its writer was "
                f"given: buckets=N (hoodie.bucket.index.num.buckets)."
            )
        if stored is not None and buckets is not None and stored != buckets:
            raise LayoutMismatchError(
                f"{state.store.uri} says it has {stored} buckets, and is to be adopted with {buckets}. A table's "
                f"layout is kept once; drop the option to keep {stored}."
            )
        if rules is not None:
            declare_rules(rules, buckets or stored or 1)
    index = resolve_index(state, said)
    if isinstance(index, SimpleIndex):
        return LayoutToAdopt(index, SimpleBuckets(index.count, index.hash_fields))
    if isinstance(index, RuledIndex):
        by = index.rules
        value = PartitionBuckets(by.expressions, by.default_count, index.hash_fields, by.rule_type)
        return LayoutToAdopt(index, value, keeps_rules=bool(index.version))
    raise UnsupportedError(
        subject=f"the index of {state.store.uri}",
        found=str(index),
        supported="adopting tables with buckets",
        remedy=copy_instead(state),
    )


def _recorded_layout(state: TableState, said: RecordIndex | DynamicBuckets | None) -> LayoutToAdopt:
    """Take over Hudi's record-level index, as it is."""
    index = resolve_index(state)
    if not isinstance(index, RecordLevelIndex) or not is_found_by_record_index(state):
        raise LayoutMismatchError(
            f"{state.store.uri} is to be adopted with {said}, and has "
            + ("buckets beside it" if isinstance(index, RecordLevelIndex) else "none")
            + f". Nothing was changed. {_instead(state)}"
        )
    fault = index.fault
    if fault is not None:
        raise LayoutMismatchError(
            f"the record-level index of {state.store.uri} cannot be relied on: {fault}. Nothing was changed. Build it "
            f"anew, then adopt the table: `bucketlake metadata rebuild {state.store.uri}`."
        )
    # Hudi gives a partition that is new the least number of shards.
    has = RecordIndex(per_partition=not index.is_global, shards=min(index.shard_counts.values()))
    if said is None:
        return LayoutToAdopt(index, has)
    if isinstance(said, DynamicBuckets):
        # Its file groups are read and updated, and get no new keys.
        if index.is_global:
            raise differs(state.store.uri, has, said)
        return LayoutToAdopt(index, said)
    if said.per_partition != has.per_partition or said.shards not in (None, has.shards):
        raise differs(state.store.uri, has, said)
    value = replace(has, update_partition=said.update_partition, verify_hits=said.verify_hits)
    return LayoutToAdopt(replace(index, keeps_partition=not said.update_partition), value)


def _instead(state: TableState) -> str:
    """Say what a table of Hudi's without a record-level index is to be adopted with."""
    if list_versions(state.store, with_archived=False) or list_rings(state.store, state.timeline) is not None:
        return "Its files say what buckets it has: leave index= and buckets= out."
    return "Give the buckets that its writer was given: buckets=N."


def _first_count(index: RingIndex, asked: int | None) -> int:
    """Return the bucket count of new partitions, which the rings all tell."""
    counts = {index.rings[partition].initial_count for partition in index.rings}
    if asked is not None and counts - {asked}:
        raise LayoutMismatchError(
            f"the table is to be adopted with {asked} buckets for new partitions, and its rings began with "
            f"{', '.join(map(str, sorted(counts)))}. Drop the option. Nothing was changed."
        )
    if asked is None and len(counts) != 1:
        raise ConfigError(
            f"the rings of the table began with {', '.join(map(str, sorted(counts))) or 'nothing'}; say how many "
            f"buckets new partitions get: buckets=N (hoodie.bucket.index.num.buckets)."
        )
    return asked if asked is not None else counts.pop()


@dataclass(slots=True)
class CountGuess:
    """Remembers what the keys of a table tell about its counts: one for all, or one for each partition."""

    hash_fields: tuple[str, ...]
    _highest: dict[str, int] = field(default_factory=dict, init=False)
    """By partition, the highest bucket that has a file group."""
    _divisors: dict[str, int] = field(default_factory=dict, init=False)
    """By partition, the greatest common divisor of hash - bucket over its keys."""

    def look_at(self, record_keys: Any, partition: str, bucket: int) -> None:
        """Take in keys that lie in a bucket."""
        hashes = buckets_of(record_keys, self.hash_fields, _ALL_HASHES).astype(np.int64)
        before = self._divisors.get(partition, 0)
        self._divisors[partition] = int(np.gcd.reduce(np.append(np.abs(hashes - bucket), before)))
        self._highest[partition] = max(bucket, self._highest.get(partition, 0))

    @property
    def count(self) -> int | None:
        """The count that all keys agree with, None if there is none."""
        divisor = int(np.gcd.reduce([*self._divisors.values(), 0]))
        return divisor if max(self._highest.values(), default=0) < divisor <= BUCKETS_MAX else None

    @property
    def counts(self) -> dict[str, int]:
        """The count that the keys of each partition agree with; empty if those of one agree with none."""
        fits = {p: n for p, n in self._divisors.items() if self._highest[p] < n <= BUCKETS_MAX}
        return fits if len(fits) == len(self._divisors) else {}

    def advice(self) -> str:
        """Say what to give instead."""
        if self.count is not None:
            return f"All its keys agree with {self.count} buckets: buckets={self.count}."
        if self.counts:
            shown = [f"{p or '(the table)'}: {n}" for p, n in sorted(self.counts.items())]
            more = f" and {len(shown) - _SHOWN:,} more" if len(shown) > _SHOWN else ""
            return (
                f"No one count fits all partitions; their keys agree with {', '.join(shown[:_SHOWN])}{more}, or "
                f"divisors of these. Give the rules that its writer was given: index=PartitionBuckets(rules, "
                f"default=N) (hoodie.bucket.index.partition.expressions)."
            )
        return (
            "Its keys agree with no count, hashed so. Give the count and the hash fields that its writer was given "
            "(hoodie.bucket.index.num.buckets, hoodie.bucket.index.hash.field)."
        )
