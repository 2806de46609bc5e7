"""Adopt: a table that Hudi made learns to say how its keys are spread over buckets.

Hudi keeps no bucket count, so the caller says one; a table with versions of bucket rules says it itself, and rules
that Hudi's writer was only told of are kept as its first version. `plan_adopt` looks at every key of the table, in
the columns of a snapshot, and fails on the first that does not lie where the count puts it, or is not spelled as we
would spell it: a row like that would be written a second time by the next upsert. `run_adopt` then keeps the layout
in `hoodie.properties`, where Hudi leaves it alone.

A key with the hash h in bucket b fits n buckets exactly if n divides h - b, so the greatest common divisor of these
differences tells the right count, or a multiple of it, after a few keys.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bucketlake.commit.locks import table_lock
from bucketlake.config import BucketEngine, TableProperties, update_properties
from bucketlake.errors import ConfigError, LayoutMismatchError, UnsupportedError
from bucketlake.index import (
    BUCKETS_MAX,
    INITIAL_INSTANT,
    HashingConfig,
    NoIndex,
    RingIndex,
    RuledIndex,
    SimpleIndex,
    buckets_of,
    declare_rules,
    list_rings,
    list_versions,
    resolve_index,
    write_config,
)
from bucketlake.index.fingerprint import BUCKET_COUNT, KeyEncoding, copy_instead, fingerprint, key_encoding
from bucketlake.keygen import KeyGenerator
from bucketlake.layout import FileSlice
from bucketlake.read import ReadPlan, make_query, plan_read, read_slice
from bucketlake.schema import RECORD_KEY_COLUMN
from bucketlake.state import TableState, load_state
from bucketlake.storage import Store
from bucketlake.write.create import FORMAT_VERSION, FORMAT_VERSION_KEY

_ALL_HASHES = 1 << 31

_Buckets = SimpleIndex | RuledIndex | RingIndex

Progress = Callable[[int, int], None]
"""Called with the number of file groups that were checked, and of all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AdoptPlan:
    """A layout that every key of the table was found to agree with; prints as a line."""

    key: tuple[str, ...]
    buckets: int
    hash_fields: tuple[str, ...]
    encoding: KeyEncoding
    rows: int
    file_groups: int
    partitions: int
    engine: BucketEngine = BucketEngine.SIMPLE
    rule_type: str | None = None
    """Of the table's rules, if partitions have their counts by rules."""
    rules: str = ""
    new_rules: HashingConfig | None = None
    """The rules as the table's first version, if it has none."""

    @property
    def properties(self) -> dict[str, str]:
        """What is kept with the table."""
        layout = fingerprint(
            key=self.key,
            buckets=self.buckets,
            hash_fields=self.hash_fields,
            encoding=self.encoding,
            rule_type=self.rule_type,
            engine=self.engine,
        )
        return layout | {FORMAT_VERSION_KEY: FORMAT_VERSION}

    @property
    def _layout(self) -> str:
        if self.engine is not BucketEngine.SIMPLE:
            return f"their rings, of {self.buckets} buckets where they are new,"
        return f"{f'the rules {self.rules}, otherwise ' if self.rule_type else ''}{self.buckets} buckets"

    def __str__(self) -> str:
        return (
            f"{self.rows:,} rows in {self.file_groups:,} file groups of {self.partitions:,} partitions agree with "
            f"{self._layout} hashed from {', '.join(self.hash_fields)}, keys written as {self.encoding}"
        )


def adopt(
    store: Store,
    *,
    buckets: int | None = None,
    hash_fields: Sequence[str] | None = None,
    partition_rules: str | None = None,
    on_progress: Progress | None = None,
) -> AdoptPlan:
    """Check a table's layout and keep it with the table; `LayoutMismatchError` if a key does not agree with it."""
    plan = plan_adopt(
        load_state(store),
        buckets=buckets,
        hash_fields=hash_fields,
        partition_rules=partition_rules,
        on_progress=on_progress,
    )
    run_adopt(store, plan)
    return plan


def plan_adopt(
    state: TableState,
    *,
    buckets: int | None = None,
    hash_fields: Sequence[str] | None = None,
    partition_rules: str | None = None,
    on_progress: Progress | None = None,
) -> AdoptPlan:
    """Check every key of a table against a bucket count, or rules. Reads the key columns of all rows; writes nothing.

    Both may be left out where the table has versions of its rules.
    """
    index = _claimed_index(state, buckets, hash_fields, partition_rules)
    generator = KeyGenerator.from_properties(state.properties)
    columns = dict.fromkeys([RECORD_KEY_COLUMN, *_columns_of(generator)])
    plan = plan_read(state, make_query(state, columns=list(columns)), NoIndex())
    check = _Check(index, generator)
    prefix_by_group = _prefixes_of_groups(plan, index)
    if not isinstance(index, RingIndex):
        check.highest_bucket = max(map(int, prefix_by_group.values()), default=0)
    rules = index.rules if isinstance(index, RuledIndex) else None
    rows = 0
    for number, file_slice in enumerate(plan.slices):
        if on_progress is not None:
            on_progress(number, len(plan.slices))
        prefix = prefix_by_group[file_slice.partition, file_slice.file_id]
        for batch in read_slice(file_slice, plan.context):
            check.look_at(batch, file_slice, prefix)
            rows += batch.num_rows
    if on_progress is not None:
        on_progress(len(plan.slices), len(plan.slices))
    return AdoptPlan(
        key=state.properties.record_key_fields,
        buckets=rules.default_count if rules is not None else _first_count(index, buckets),
        engine=BucketEngine.CONSISTENT_HASHING if isinstance(index, RingIndex) else BucketEngine.SIMPLE,
        hash_fields=index.hash_fields,
        encoding=key_encoding(state.properties),
        rule_type=rules.rule_type if rules is not None else None,
        rules=rules.expressions if rules is not None else "",
        new_rules=_first_version(index),
        rows=rows,
        file_groups=len(plan.slices),
        partitions=len({file_slice.partition for file_slice in plan.slices}),
    )


def run_adopt(store: Store, plan: AdoptPlan) -> TableProperties:
    """Keep a checked layout with the table: its rules first, so that it is never said to have some and has none."""
    with table_lock(store):
        if plan.new_rules is not None:
            if list_versions(store):
                raise LayoutMismatchError(
                    f"{store.uri} got rules of its own while its keys were checked. Nothing was changed: try again."
                )
            write_config(store, plan.new_rules)
        # Of a table that had one count and has rules now, the count goes.
        return update_properties(store, {BUCKET_COUNT: None, **plan.properties})


def _claimed_index(
    state: TableState, buckets: int | None, hash_fields: Sequence[str] | None, rules: str | None
) -> _Buckets:
    if buckets is not None and not 1 <= buckets <= BUCKETS_MAX:
        raise ConfigError(f"the bucket count is {buckets}; expected 1 to {BUCKETS_MAX} per partition.")
    if list_rings(state.store, state.timeline) is not None:
        index = resolve_index(state, hash_fields=hash_fields, rules=rules)
        assert isinstance(index, RingIndex)
        return index
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
    index = resolve_index(state, buckets=buckets, hash_fields=hash_fields, rules=rules)
    if not isinstance(index, _Buckets):
        raise UnsupportedError(
            subject=f"the index of {state.store.uri}",
            found=str(index),
            supported="adopting tables with buckets",
            remedy=copy_instead(state),
        )
    return index


def _first_count(index: _Buckets, asked: int | None) -> int:
    """Return the bucket count to keep; of consistent hashing, that of new partitions, which the rings all tell."""
    if not isinstance(index, RingIndex):
        return _count(index, "")
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


def _first_version(index: _Buckets) -> HashingConfig | None:
    """Return the rules as a version to be written, unless they are from one."""
    if not isinstance(index, RuledIndex) or index.version:
        return None
    return HashingConfig(
        expressions=index.rules.expressions,
        default_count=index.rules.default_count,
        rule_type=index.rules.rule_type,
        instant=INITIAL_INSTANT,
    )


def _count(index: _Buckets, partition: str) -> int:
    count = index.bucket_count(partition)
    assert count is not None
    return count


def _columns_of(generator: KeyGenerator) -> list[str]:
    names = [*generator.record_key_fields, *(column.name for column in generator.partition_fields)]
    return [name.partition(".")[0] for name in names]


def _prefixes_of_groups(plan: ReadPlan, index: _Buckets) -> dict[tuple[str, str], str]:
    """Find the bucket of every file group, by its id: there is one, and nobody shares it."""
    prefixes: dict[tuple[str, str], str] = {}
    owners: dict[tuple[str, str], str] = {}
    index.foresee(sorted({file_slice.partition for file_slice in plan.slices}))
    for file_slice in plan.slices:
        partition, file_id = file_slice.partition, file_slice.file_id
        prefix = index.slot_of_file(partition, file_id)
        if prefix is None:
            raise LayoutMismatchError(
                f"the file group {file_id} of partition {partition!r} is none of {index.bucket_count(partition)} "
                f"buckets: its id does not begin as one of theirs. The table has other buckets, or was not written "
                f"with Hudi's bucket index. Nothing was changed."
            )
        other = owners.setdefault((partition, prefix), file_id)
        if other != file_id:
            raise LayoutMismatchError(
                f"the file groups {other} and {file_id} of partition {partition!r} are both of bucket {prefix}; "
                f"keys may be twice. Nothing was changed. Rewrite the partition with Hudi first (insert overwrite)."
            )
        prefixes[partition, file_id] = prefix
    return prefixes


@dataclass(slots=True)
class _Check:
    """Looks at keys, and remembers what they tell about the count."""

    index: _Buckets
    generator: KeyGenerator
    highest_bucket: int = 0
    """In the table; tells nothing where partitions have counts of their own."""
    divisor: int = field(default=0, init=False)
    """The greatest common divisor of hash - bucket over all keys seen."""

    def look_at(self, batch: pa.RecordBatch, file_slice: FileSlice, prefix: str) -> None:
        keys = batch.column(RECORD_KEY_COLUMN)
        if isinstance(self.index, SimpleIndex):
            hashes = buckets_of(keys, self.index.hash_fields, _ALL_HASHES).astype(np.int64)
            self.divisor = int(np.gcd.reduce(np.append(np.abs(hashes - int(prefix)), self.divisor)))
        stray = self.index.stray(file_slice.partition, file_slice.file_id, keys)
        if stray is not None:
            raise self._stray(stray, file_slice)
        self._check_spelling(batch, keys, file_slice)

    def _check_spelling(self, batch: pa.RecordBatch, keys: pa.Array, file_slice: FileSlice) -> None:
        """The key, and the partition, must be the ones that we would give the row."""
        made = self.generator.record_keys(batch)
        odd = pc.index(pc.equal(made, keys), False).as_py()
        if odd >= 0:
            raise LayoutMismatchError(
                f"the row with the record key {keys[odd].as_py()!r} in the file group {file_slice.file_id} would get "
                f"the key {made[odd].as_py()!r} from us, and be written a second time. Its writer had another key "
                f"generator or other options for it. Nothing was changed."
            )
        paths = self.generator.partition_paths(batch)
        odd = pc.index(pc.equal(paths, file_slice.partition), False).as_py()
        if odd >= 0:
            raise LayoutMismatchError(
                f"the row with the record key {keys[odd].as_py()!r} is in the partition {file_slice.partition!r}, and "
                f"we would write it to {paths[odd].as_py()!r}, a second time. Its writer had other options for "
                f"partition paths. Nothing was changed."
            )

    def _stray(self, key: str, file_slice: FileSlice) -> LayoutMismatchError:
        is_one_count = isinstance(self.index, SimpleIndex)
        fits = self.divisor if is_one_count and self.highest_bucket < self.divisor <= BUCKETS_MAX else None
        advice = (
            f"All keys looked at so far agree with {fits} buckets: try that."
            if fits
            else "Give the count and the hash fields that its writer was given (hoodie.bucket.index.num.buckets, "
            "hoodie.bucket.index.hash.field, hoodie.bucket.index.partition.expressions)."
        )
        return LayoutMismatchError(
            f"the record key {key!r} of partition {file_slice.partition!r} lies in the file group "
            f"{file_slice.file_id}, where {self.index} would not put it. Nothing was changed. {advice}"
        )
