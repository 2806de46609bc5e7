"""Adopt: a table that Hudi made learns to say how its keys are spread over buckets.

Hudi keeps no bucket count, so the caller says one. `plan_adopt` looks at every key of the table, in the columns of a
snapshot, and fails on the first that does not lie where the count puts it, or is not spelled as we would spell it:
a row like that would be written a second time by the next upsert. `run_adopt` then keeps the layout in
`hoodie.properties`, where Hudi leaves it alone.

A key with the hash h in bucket b fits n buckets exactly if n divides h - b, so the greatest common divisor of these
differences tells the right count, or a multiple of it, after a few keys.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bucketlake.config import TableProperties, update_properties
from bucketlake.errors import ConfigError, LayoutMismatchError, UnsupportedError
from bucketlake.index import NoIndex, SimpleBuckets, buckets_of, resolve_index
from bucketlake.keygen import KeyGenerator
from bucketlake.layout import FileSlice
from bucketlake.read import ReadPlan, make_query, plan_read, read_slice
from bucketlake.state import TableState, load_state
from bucketlake.storage import Store
from bucketlake.write.create import BUCKETS_MAX, FORMAT_VERSION, FORMAT_VERSION_KEY
from bucketlake.write.fingerprint import KeyEncoding, fingerprint, key_encoding

_KEY_COLUMN = "_hoodie_record_key"
_ALL_HASHES = 1 << 31

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

    @property
    def properties(self) -> dict[str, str]:
        """What is kept with the table."""
        layout = fingerprint(
            key=self.key, buckets=self.buckets, hash_fields=self.hash_fields, encoding=self.encoding
        )
        return layout | {FORMAT_VERSION_KEY: FORMAT_VERSION}

    def __str__(self) -> str:
        return (
            f"{self.rows:,} rows in {self.file_groups:,} file groups of {self.partitions:,} partitions agree with "
            f"{self.buckets} buckets hashed from {', '.join(self.hash_fields)}, keys written as {self.encoding}"
        )


def adopt(
    store: Store,
    *,
    buckets: int,
    hash_fields: Sequence[str] | None = None,
    on_progress: Progress | None = None,
) -> AdoptPlan:
    """Check a table's layout and keep it with the table; `LayoutMismatchError` if a key does not agree with it."""
    plan = plan_adopt(load_state(store), buckets=buckets, hash_fields=hash_fields, on_progress=on_progress)
    run_adopt(store, plan)
    return plan


def plan_adopt(
    state: TableState,
    *,
    buckets: int,
    hash_fields: Sequence[str] | None = None,
    on_progress: Progress | None = None,
) -> AdoptPlan:
    """Check every key of a table against a bucket count. Reads the key columns of all rows; writes nothing."""
    index = _claimed_index(state, buckets, hash_fields)
    generator = KeyGenerator.from_properties(state.properties)
    columns = dict.fromkeys([_KEY_COLUMN, *_columns_of(generator)])
    plan = plan_read(state, make_query(state, columns=list(columns)), NoIndex())
    check = _Check(index, generator)
    bucket_by_group = _buckets_of_groups(plan, index)
    check.highest_bucket = max(bucket_by_group.values(), default=0)
    rows = 0
    for number, file_slice in enumerate(plan.slices):
        if on_progress is not None:
            on_progress(number, len(plan.slices))
        bucket = bucket_by_group[file_slice.partition, file_slice.file_id]
        for batch in read_slice(file_slice, plan.context):
            check.look_at(batch, file_slice, bucket)
            rows += batch.num_rows
    if on_progress is not None:
        on_progress(len(plan.slices), len(plan.slices))
    return AdoptPlan(
        key=state.properties.record_key_fields,
        buckets=buckets,
        hash_fields=index.hash_fields,
        encoding=key_encoding(state.properties),
        rows=rows,
        file_groups=len(plan.slices),
        partitions=len({file_slice.partition for file_slice in plan.slices}),
    )


def run_adopt(store: Store, plan: AdoptPlan) -> TableProperties:
    """Keep a checked layout with the table."""
    return update_properties(store, plan.properties)


def _claimed_index(state: TableState, buckets: int, hash_fields: Sequence[str] | None) -> SimpleBuckets:
    if not 1 <= buckets <= BUCKETS_MAX:
        raise ConfigError(f"the bucket count is {buckets}; expected 1 to {BUCKETS_MAX} per partition.")
    stored = state.properties.bucket_count
    if stored is not None and stored != buckets:
        raise LayoutMismatchError(
            f"{state.store.uri} says it has {stored} buckets, and is to be adopted with {buckets}. A table's layout "
            f"is kept once; drop the option to keep {stored}."
        )
    index = resolve_index(state, buckets=buckets, hash_fields=hash_fields)
    if not isinstance(index, SimpleBuckets):
        raise UnsupportedError(
            subject=f"the index of {state.store.uri}",
            found=str(index),
            supported="adopting simple buckets",
            remedy="Its layout is kept in files of its own; there is nothing to adopt.",
        )
    return index


def _columns_of(generator: KeyGenerator) -> list[str]:
    names = [*generator.record_key_fields, *(column.name for column in generator.partition_fields)]
    return [name.partition(".")[0] for name in names]


def _buckets_of_groups(plan: ReadPlan, index: SimpleBuckets) -> dict[tuple[str, str], int]:
    """Find the bucket of every file group, by its id: there is one, below the count, and nobody shares it."""
    buckets: dict[tuple[str, str], int] = {}
    owners: dict[tuple[str, str], str] = {}
    for file_slice in plan.slices:
        partition, file_id = file_slice.partition, file_slice.file_id
        prefix = index.prefix_of_file(partition, file_id)
        if prefix is None:
            raise LayoutMismatchError(
                f"the file group {file_id} of partition {partition!r} is none of {index.count} buckets: its id does "
                f"not begin with the eight digits of one. The table has more buckets, or was not written with Hudi's "
                f"simple bucket index. Nothing was changed."
            )
        other = owners.setdefault((partition, prefix), file_id)
        if other != file_id:
            raise LayoutMismatchError(
                f"the file groups {other} and {file_id} of partition {partition!r} are both of bucket {int(prefix)}; "
                f"keys may be twice. Nothing was changed. Rewrite the partition with Hudi first (insert overwrite)."
            )
        buckets[partition, file_id] = int(prefix)
    return buckets


@dataclass(slots=True)
class _Check:
    """Looks at keys, and remembers what they tell about the count."""

    index: SimpleBuckets
    generator: KeyGenerator
    highest_bucket: int = 0
    divisor: int = field(default=0, init=False)
    """The greatest common divisor of hash - bucket over all keys seen."""

    def look_at(self, batch: pa.RecordBatch, file_slice: FileSlice, bucket: int) -> None:
        keys = batch.column(_KEY_COLUMN)
        hashes = buckets_of(keys, self.index.hash_fields, _ALL_HASHES).astype(np.int64)
        self.divisor = int(np.gcd.reduce(np.append(np.abs(hashes - bucket), self.divisor)))
        is_stray = hashes % self.index.count != bucket
        if is_stray.any():
            raise self._stray(str(keys[int(is_stray.argmax())]), file_slice)
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
        fits = self.divisor if self.highest_bucket < self.divisor <= BUCKETS_MAX else None
        advice = (
            f"All keys looked at so far agree with {fits} buckets: try that."
            if fits
            else "Give the count and the hash fields that its writer was given (hoodie.bucket.index.num.buckets, "
            "hoodie.bucket.index.hash.field)."
        )
        return LayoutMismatchError(
            f"the record key {key!r} of partition {file_slice.partition!r} lies in the file group "
            f"{file_slice.file_id}, where {self.index} would not put it. Nothing was changed. {advice}"
        )
