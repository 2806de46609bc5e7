"""From rows to advice: keys gathered, every engine asked, one chosen."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from bucketlake.advice.choice import Verdict, candidates, choose, spelled
from bucketlake.advice.figures import Engine, figures_of
from bucketlake.advice.keys import ROWS_MAX, Keys, check_keys, decoded, gather
from bucketlake.advice.page import IndexAdvice
from bucketlake.advice.replay import REPLAYS
from bucketlake.advice.sizes import row_bytes_of
from bucketlake.config import KeyGeneratorType
from bucketlake.errors import ConfigError, UnsupportedError, shown
from bucketlake.index import (
    ConsistentBuckets,
    Index,
    IndexValue,
    PartitionBuckets,
    RecordIndex,
    SimpleBuckets,
)
from bucketlake.keygen import KeyGenerator, PartitionField
from bucketlake.schema import META_COLUMNS
from bucketlake.spark.types import ddl

GROWTH = (2.0, 10.0)
BATCH_SHARE = 0.05
BATCH_ROWS_MAX = 100_000
_GROWTH_MAX = 1e6


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Rows to be replayed, the columns of keys and partitions at least."""

    tables: Iterable[pa.Table]
    rows: int
    """About how many there are."""
    head: pa.Table
    """The first ones, with all their columns: by them a row is weighed."""
    every: int | None = None
    """One of so many keys is here, where somebody has chosen; None for all of them."""


def advise_on_rows(
    source: Source,
    *,
    key: Sequence[str],
    partition: Sequence[str],
    batch_rows: int | None = None,
    growth: Sequence[float] = GROWTH,
    rows_max: int = ROWS_MAX,
) -> IndexAdvice:
    """Say which index a table of these rows should have."""
    check_columns(source.head.schema, key, partition)
    generator = KeyGenerator(
        kind=KeyGeneratorType.COMPLEX if partition else KeyGeneratorType.NON_PARTITION,
        record_key_fields=tuple(key),
        encodes_field_names=len(key) > 1,
        partition_fields=tuple(map(PartitionField, partition)),
    )
    return _advise(source, generator, partition, batch_rows, growth, rows_max)


def advise_on_table(
    source: Source,
    generator: KeyGenerator,
    index: Index,
    *,
    says: IndexValue | None,
    batch_rows: int | None = None,
    growth: Sequence[float] = GROWTH,
) -> IndexAdvice:
    """Say which index a table should have that is there; `says` is what it says itself of the one that it has."""
    partition = [field.name for field in generator.partition_fields]
    advice = _advise(source, generator, partition, batch_rows, growth, ROWS_MAX, _value_of(index, says))
    return replace(advice, has=str(index))


def _value_of(index: Index, says: IndexValue | None) -> IndexValue | None:
    """Return what a new table with such an index would be given; None if it has none that we know."""
    if says is not None:
        return says
    if index.recorded is not None:
        return RecordIndex(per_partition=not index.recorded.is_global)
    rules = index.rescalable.rules if index.rescalable is not None else None
    if rules is None:
        return None
    return PartitionBuckets(rules.expressions, rules.default_count, rule_type=rules.rule_type)


def check_columns(schema: pa.Schema, key: Sequence[str], partition: Sequence[str]) -> None:
    """Refuse keys and partitions that are no columns."""
    if not key:
        raise ConfigError(
            f"no key was named, and rows without one cannot be updated. Name the column that tells rows apart: "
            f"one of {', '.join(schema.names)}."
        )
    for what, names in (("key", key), ("partition", partition)):
        for name in names:
            if name not in schema.names:
                raise ConfigError(
                    f"the {what} is {name!r}, and there is no such column; there are {', '.join(schema.names)}. Name "
                    f"one of them."
                )


def check_growth(growth: Sequence[float]) -> tuple[float, ...]:
    """Take how many times the rows a table is looked at with."""
    listed = [growth] if isinstance(growth, int | float) else growth
    is_listed = isinstance(listed, Sequence) and not isinstance(listed, str)
    if not is_listed or any(isinstance(one, bool) or not isinstance(one, int | float) for one in listed):
        raise ConfigError(f"growth is {shown(growth)}; expected numbers, such as (2, 10).")
    wrong = [one for one in listed if not 1 < one <= _GROWTH_MAX]
    if wrong:
        raise ConfigError(
            f"growth has {wrong[0]:g}; expected numbers above 1, such as (2, 10): how many times the rows."
        )
    return tuple(sorted({float(one) for one in listed}))


def _advise(
    source: Source,
    generator: KeyGenerator,
    partition: Sequence[str],
    batch_rows: int | None,
    growth: Sequence[float],
    rows_max: int,
    has: IndexValue | None = None,
) -> IndexAdvice:
    factors = check_growth(growth)
    if batch_rows is not None and batch_rows <= 0:
        raise ConfigError(f"batch_rows is {batch_rows}; expected the rows of a typical batch, such as 10000.")
    if not source.head.num_rows:
        raise ConfigError(
            "there are no rows, so there are no keys to replay. Give rows, or files that have some."
        )
    head = decoded(source.head)
    check_keys(head, generator.record_key_fields, 0)
    keys = gather(
        source.tables,
        generator,
        rows=source.rows,
        row_bytes=row_bytes_of(head, generator),
        every=source.every,
        rows_max=rows_max,
    )
    batch = batch_rows or max(1, min(BATCH_ROWS_MAX, round(keys.rows * BATCH_SHARE)))
    possible = candidates(keys, is_partitioned=bool(partition))
    values = list(possible.values)
    has = None if has is None else _plain(has, generator.record_key_fields)
    if has is not None and type(has) in REPLAYS and has not in values:
        values.insert(0, has)
    engines = tuple(_engine(value, keys, batch, factors) for value in values)
    verdict = _kept(has, choose(keys, possible, engines), possible.simple)
    return IndexAdvice(
        rows_given=keys.rows_given,
        rows=keys.rows,
        keys=keys.distinct,
        keys_in_several=keys.keys_in_several,
        partitions=len(keys.partitions),
        partition_rows=_quartiles(keys),
        row_bytes=keys.row_bytes,
        every=keys.every,
        batch_rows=batch,
        engines=engines,
        verdict=verdict,
        key=generator.record_key_fields,
        partition=tuple(partition),
        columns=_columns(head.schema),
        is_kept=verdict.index == has,
    )


def _engine(value: IndexValue, keys: Keys, batch_rows: int, factors: Sequence[float]) -> Engine:
    return Engine(
        index=value,
        now=figures_of(value, keys, batch_rows=batch_rows),
        grown=tuple(figures_of(value, keys, batch_rows=batch_rows, factor=factor) for factor in factors),
    )


def _kept(has: IndexValue | None, found: Verdict, simple: IndexValue) -> Verdict:
    """An index of the whole table keeps keys unique, so its table cannot show whether they would be."""
    if not isinstance(has, RecordIndex) or has.per_partition:
        return found
    return Verdict(
        has,
        "the table's index keeps one row for a key in the whole table, which buckets do not. If no key ever changes "
        f"its partition, {spelled(simple)} is cheaper.",
    )


def _plain(value: IndexValue, key: Sequence[str]) -> IndexValue:
    """Leave out what a table says of its index that would be so anyway."""
    if isinstance(value, RecordIndex):
        return (
            replace(value, shards=None)
            if value.shard_count == replace(value, shards=None).shard_count
            else value
        )
    if isinstance(value, SimpleBuckets | ConsistentBuckets) and sorted(value.hash_fields) == sorted(key):
        return replace(value, hash_fields=())
    return value


def _quartiles(keys: Keys) -> tuple[int, int, int]:
    rows = keys.rows_of_partitions[keys.rows_of_partitions > 0]
    return int(rows.min()), int(np.median(rows)), int(rows.max())


def _columns(schema: pa.Schema) -> str:
    """Spell the columns as DDL, without those that Hudi adds; empty if a type has no word in it."""
    schema = pa.schema([field for field in schema if field.name not in META_COLUMNS])
    try:
        return ddl(schema.remove_metadata()).replace("`", "") if _are_plain(schema) else ddl(schema)
    except UnsupportedError:
        return ""


def _are_plain(schema: pa.Schema) -> bool:
    return all(name.isidentifier() and name.isascii() for name in schema.names)
