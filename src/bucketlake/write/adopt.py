"""Adopt: a table that Hudi made learns to say how its keys are spread over buckets.

Hudi keeps no bucket count, so the caller says one; a table with versions of bucket rules says it itself, and rules
that Hudi's writer was only told of are kept as its first version (`index/adoption.py`). `plan_adopt` looks at every key
of the table, in the columns of a snapshot, and fails on the first that does not lie where the count puts it, or is not
spelled as we would spell it: a row like that would be written a second time by the next upsert. A record-level index is
taken over as it is, if it names the file group of every key, and no others. `run_adopt` then keeps the layout in
`hoodie.properties`, where Hudi leaves it alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from bucketlake.commit.locks import table_lock
from bucketlake.commit.writable import check_kind
from bucketlake.config import TableProperties, update_properties
from bucketlake.errors import LayoutMismatchError
from bucketlake.index import Index, IndexValue, NoIndex, RecordedIndex, list_versions
from bucketlake.index.adoption import CountGuess, layout_to_adopt
from bucketlake.index.bucket_numbers import BUCKET_COUNT
from bucketlake.index.fingerprint import KeyEncoding, fingerprint, key_encoding, refuse_without_buckets
from bucketlake.keygen import KeyGenerator
from bucketlake.layout import FileSlice
from bucketlake.read import ReadPlan, make_query, plan_read, read_slice
from bucketlake.schema import RECORD_KEY_COLUMN, key_hash_sum
from bucketlake.state import TableState
from bucketlake.storage import Store
from bucketlake.write.create import FORMAT_VERSION, FORMAT_VERSION_KEY

Progress = Callable[[int, int], None]
"""Called with the number of file groups that were checked, and of all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AdoptPlan:
    """A layout that every key of the table was found to agree with; prints as a line."""

    key: tuple[str, ...]
    index: IndexValue
    encoding: KeyEncoding
    rows: int
    file_groups: int
    partitions: int
    new_files: Mapping[str, bytes]
    """What the table gets beside its properties: the first version of its rules, if it has none."""

    @property
    def properties(self) -> dict[str, str]:
        """What is kept with the table."""
        layout = fingerprint(self.index, key=self.key, encoding=self.encoding)
        return layout | {FORMAT_VERSION_KEY: FORMAT_VERSION}

    def __str__(self) -> str:
        return (
            f"{self.rows:,} rows in {self.file_groups:,} file groups of {self.partitions:,} partitions agree with "
            f"{self.index}; keys are written as {self.encoding}"
        )


def plan_adopt(
    state: TableState, said: IndexValue | None, *, on_progress: Progress | None = None
) -> AdoptPlan:
    """Check every key of a table against an index. Reads the key columns of all rows; writes nothing.

    None will do where the table has rings, or versions of its rules. `UnsupportedError` for a table that could not be
    written even so; its metadata table is left out of account, since adopting writes no row.
    """
    check_kind(state)
    refuse_without_buckets(state)
    layout = layout_to_adopt(state, said)
    index = layout.index
    generator = KeyGenerator.from_properties(state.properties)
    columns = dict.fromkeys([RECORD_KEY_COLUMN, *_columns_of(generator)])
    plan = plan_read(state, make_query(state, columns=list(columns)), NoIndex())
    _check_slots(plan, index)
    check = _Check(index, generator, plan)
    sums = (0, 0)
    for number, file_slice in enumerate(plan.slices):
        if on_progress is not None:
            on_progress(number, len(plan.slices))
        for batch in read_slice(file_slice, plan.context):
            check.look_at(batch, file_slice)
            sums = (
                sums[0] + batch.num_rows,
                (sums[1] + key_hash_sum(batch.column(RECORD_KEY_COLUMN))) % (1 << 64),
            )
    if index.recorded is not None:
        _check_entries(index.recorded, sums, state.store.uri)
    if on_progress is not None:
        on_progress(len(plan.slices), len(plan.slices))
    return AdoptPlan(
        key=state.properties.record_key_fields,
        index=layout.value,
        encoding=key_encoding(state.properties),
        new_files={} if layout.keeps_rules else layout.value.first_files(),
        rows=sums[0],
        file_groups=len(plan.slices),
        partitions=len({file_slice.partition for file_slice in plan.slices}),
    )


def run_adopt(store: Store, plan: AdoptPlan) -> TableProperties:
    """Keep a checked layout with the table: its rules first, so that it is never said to have some and has none."""
    with table_lock(store):
        if plan.new_files and list_versions(store):
            raise LayoutMismatchError(
                f"{store.uri} got rules of its own while its keys were checked. Nothing was changed: try again."
            )
        for path, content in plan.new_files.items():
            store.put(path, content)
        # Of a table that had one count and has rules now, the count goes.
        return update_properties(store, {BUCKET_COUNT: None, **plan.properties})


def _columns_of(generator: KeyGenerator) -> list[str]:
    names = [*generator.record_key_fields, *(column.name for column in generator.partition_fields)]
    return [name.partition(".")[0] for name in names]


def _check_entries(index: RecordedIndex, sums: tuple[int, int], uri: str) -> None:
    """Look for entries of keys that no row has; that every row has its entry was looked at before."""
    found = (0, 0)
    for shard in range(index.shards):
        keys = index.entries(shard)["key"].combine_chunks()
        found = (found[0] + len(keys), (found[1] + key_hash_sum(keys)) % (1 << 64))
    if found != sums:
        raise LayoutMismatchError(
            f"the index of {uri} has {found[0]:,} entries, and the table {sums[0]:,} rows with other keys: rows that "
            f"are there twice, or entries of rows that are gone. Nothing was changed. Check the table with `bucketlake "
            f"fsck {uri}`; to build the index anew: `bucketlake metadata rebuild {uri}`."
        )


def _check_slots(plan: ReadPlan, index: Index) -> None:
    """Look for the bucket of every file group, by its id: there is one, and nobody shares it."""
    owners: dict[tuple[str, str], str] = {}
    index.foresee(sorted({file_slice.partition for file_slice in plan.slices}))
    for file_slice in plan.slices:
        partition, file_id = file_slice.partition, file_slice.file_id
        slot = index.slot_of_file(partition, file_id)
        if slot is None:
            raise LayoutMismatchError(
                f"the file group {file_id} of partition {partition!r} is none of {index.bucket_count(partition)} "
                f"buckets: its id does not begin as one of theirs. The table has other buckets, or was not written "
                f"with Hudi's bucket index. Nothing was changed. {_advice(plan, index)}"
            )
        other = owners.setdefault((partition, slot), file_id)
        if other != file_id:
            raise LayoutMismatchError(
                f"the file groups {other} and {file_id} of partition {partition!r} are both of bucket {slot}; "
                f"keys may be twice. Nothing was changed. Rewrite the partition with Hudi first (insert overwrite)."
            )


def _advice(plan: ReadPlan, index: Index) -> str:
    """Look at every key of the table, to say which buckets would do."""
    guess = CountGuess(index.hash_fields)
    for file_slice in plan.slices:
        number = file_slice.file_id[:8]
        if not number.isdigit():
            return "Its file groups have no bucket numbers."
        for batch in read_slice(file_slice, plan.context):
            guess.look_at(batch.column(RECORD_KEY_COLUMN), file_slice.partition, int(number))
    return guess.advice()


@dataclass(frozen=True, slots=True)
class _Check:
    """Looks at keys, one batch after the other."""

    index: Index
    generator: KeyGenerator
    plan: ReadPlan

    def look_at(self, batch: pa.RecordBatch, file_slice: FileSlice) -> None:
        keys = batch.column(RECORD_KEY_COLUMN)
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
        if self.index.recorded is not None and self.index.recorded.keeps_partition:
            return  # a row whose partition has changed is where it was
        paths = self.generator.partition_paths(batch)
        odd = pc.index(pc.equal(paths, file_slice.partition), False).as_py()
        if odd >= 0:
            more = (
                " If it was to stay in the partition that it was in: index=RecordIndex(update_partition=False)."
                if self.index.recorded is not None and self.index.recorded.is_global
                else ""
            )
            raise LayoutMismatchError(
                f"the row with the record key {keys[odd].as_py()!r} is in the partition {file_slice.partition!r}, and "
                f"we would write it to {paths[odd].as_py()!r}, a second time. Its writer had other options for "
                f"partition paths. Nothing was changed.{more}"
            )

    def _stray(self, key: str, file_slice: FileSlice) -> LayoutMismatchError:
        if self.index.recorded is not None:
            return LayoutMismatchError(
                f"the record key {key!r} lies in the file group {file_slice.file_id} of partition "
                f"{file_slice.partition!r}, and the {self.index} has it elsewhere, or not at all. Nothing was changed. "
                f"Build the index anew, then adopt the table: `bucketlake metadata rebuild TABLE`."
            )
        return LayoutMismatchError(
            f"the record key {key!r} of partition {file_slice.partition!r} lies in the file group "
            f"{file_slice.file_id}, where {self.index} would not put it. Nothing was changed. "
            f"{_advice(self.plan, self.index)}"
        )
