"""Which counts and rules would suit the keys, and which engine."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np

from bucketlake.advice.figures import Engine, buckets_for
from bucketlake.advice.keys import Keys
from bucketlake.index import (
    BUCKETS_MAX,
    ConsistentBuckets,
    DynamicBuckets,
    IndexValue,
    PartitionBuckets,
    RecordIndex,
    SimpleBuckets,
)
from bucketlake.storage import render_bytes

RULES_MAX = 8
"""No more partitions than these are named by rules."""
WIDE = 4
"""Partitions differ widely if the largest needs so many times the buckets of half of them."""
SHARD_KEYS = 5_000_000
"""A shard of an index has about so many keys at most: 50 MB."""
_BEGIN_MAX = 4
_ASSIGNERS_MAX = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidates:
    """A value for each engine, with counts that suit the keys."""

    simple: SimpleBuckets
    ruled: PartitionBuckets | None
    """None where every partition needs the same count, or too many would have to be named."""
    consistent: ConsistentBuckets
    dynamic: DynamicBuckets
    recorded: RecordIndex
    recorded_per_partition: RecordIndex

    @property
    def values(self) -> tuple[IndexValue, ...]:
        every = (
            self.simple,
            self.ruled,
            self.consistent,
            self.dynamic,
            self.recorded_per_partition,
            self.recorded,
        )
        return tuple(value for value in every if value is not None)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What to take, and why: the end of a sentence that begins with `Take`."""

    index: IndexValue
    why: str


def candidates(keys: Keys, *, is_partitioned: bool) -> Candidates:
    """Choose counts: files of the largest partition near 120 MiB, powers of two."""
    needed = _needed(keys)
    most, typical = int(needed.max()), int(np.median(needed))
    largest = float(keys.rows_of_partitions.max())
    return Candidates(
        simple=SimpleBuckets(min(most, BUCKETS_MAX)),
        ruled=_rules(keys, needed) if is_partitioned else None,
        consistent=ConsistentBuckets(min(_BEGIN_MAX, max(typical, min(most, 2)))),
        dynamic=DynamicBuckets(assigners=min(_ASSIGNERS_MAX, most)),
        recorded=RecordIndex(shards=_shards(keys.distinct, least=4)),
        recorded_per_partition=RecordIndex(per_partition=True, shards=_shards(largest, least=1)),
    )


def _needed(keys: Keys) -> np.ndarray:
    """How many buckets each partition needs."""
    return np.array([buckets_for(rows * keys.row_bytes) for rows in keys.rows_of_partitions.tolist()])


def _shards(keys: float, *, least: int) -> int | None:
    """How many shards an index of so many keys needs; None for as many as it has anyway."""
    count = least
    while count * SHARD_KEYS < keys:
        count *= 2
    return None if count == least else count


def _rules(keys: Keys, needed: np.ndarray) -> PartitionBuckets | None:
    """Name the partitions that are far larger than the rest, if they are few."""
    typical = int(np.median(needed))
    order = np.argsort(-keys.rows_of_partitions, kind="stable")
    named = [place for place in order[: RULES_MAX + 1].tolist() if needed[place] > typical]
    if not named or len(named) > RULES_MAX:
        return None
    if any(re.search("[,;\"'\\n]", keys.partitions[place]) for place in named):
        return None  # a rule, or a text with it, cannot say them
    rules = ";".join(f"^{_named(keys.partitions[place])}$,{needed[place]}" for place in named)
    return PartitionBuckets(rules, default=typical)


def _named(partition: str) -> str:
    """Spell a partition as an expression, without backslashes: those have a meaning in SQL texts too.

    >>> _named("v1.2/[a]")
    'v1[.]2/.a.'
    """
    return re.sub(
        r"[^\w /=:@%&~#!<>-]", lambda found: "." if found[0] in "\\[]^" else f"[{found[0]}]", partition
    )


def spelled(index: IndexValue) -> str:
    """Write a value as Python has it, without what is so anyway.

    >>> spelled(RecordIndex(per_partition=True, shards=2)), spelled(SimpleBuckets(4))
    ('RecordIndex(per_partition=True, shards=2)', 'SimpleBuckets(4)')
    """
    words = []
    for field in fields(index):  # type: ignore[arg-type] # all of ours are dataclasses
        value = getattr(index, field.name)
        text = f'"{value}"' if isinstance(value, str) else repr(value)
        if field.name in ("count", "rules"):
            words.append(text)
        elif field.name in ("default", "assigners") or value != field.default:
            words.append(f"{field.name}={text}")
    return f"{type(index).__name__}({', '.join(words)})"


def choose(keys: Keys, possible: Candidates, engines: Sequence[Engine]) -> Verdict:
    """Say which engine suits the keys, and why."""
    needed = _needed(keys)
    most, typical = int(needed.max()), int(np.median(needed))
    simple = next(engine for engine in engines if engine.index == possible.simple)
    if keys.keys_in_several:
        share = 100 * keys.keys_in_several / max(1, keys.distinct)
        return Verdict(
            possible.recorded,
            f"{keys.keys_in_several:,} of {keys.distinct:,} keys ({_percent(share)}) are in several partitions, and "
            f"only an index of the whole table keeps one row for each. If a key may have a row in each partition, "
            f"take {spelled(possible.simple)} instead.",
        )
    if possible.ruled is not None and most >= WIDE * typical:
        count = possible.ruled.rules.count(";") + 1
        return Verdict(
            possible.ruled,
            f"{count} partition{'s are' if count > 1 else ' is'} far larger than the others, and no write looks "
            f"anything up. {_one_count(most)} would make {simple.now.file_groups:,} file groups, half of them "
            f"smaller than {render_bytes(max(1024, simple.now.median_bytes))}.",
        )
    if most >= WIDE * typical:
        return Verdict(
            possible.consistent,
            f"partitions need from {int(needed.min())} to {most} buckets, and too many differ to name them in rules. "
            f"Large buckets split while writers go on.",
        )
    grown = [one for one in simple.grown if one.needs]
    if len(keys.partitions) == 1 and grown and grown[-1].largest_bytes > WIDE * simple.now.largest_bytes:
        return Verdict(
            possible.consistent,
            f"there is one partition, and all growth is its growth: {grown[0].factor:g} times the rows would need "
            f"more than {possible.simple.count} buckets. Large buckets split while writers go on.",
        )
    largest = f"of at most {render_bytes(simple.now.largest_bytes)}"
    where = "every partition fits into" if len(keys.partitions) > 1 else "the rows fit into"
    files = f"one file {largest}" if most == 1 else f"{most} files {largest}"
    return Verdict(possible.simple, f"{where} {files}, and no write looks anything up. Nothing is cheaper.")


def _one_count(count: int) -> str:
    return f"{count} buckets in every partition"


def _percent(share: float) -> str:
    return f"{share:.1f} %" if share >= 0.1 else "less than 0.1 %"
