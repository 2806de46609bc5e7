"""One file slice -> Arrow batches: what an executor does, and nothing else.

The task reads the base file, the logs over it, merges, filters and projects.
It lists nothing and decides nothing; all it needs is in its two arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from bucketlake.basefile import read_base_file
from bucketlake.errors import UnsupportedError
from bucketlake.keygen import KeyGenerator
from bucketlake.layout import FileSlice, TimelineView
from bucketlake.logfile import read_log_files
from bucketlake.merge import MergeRules, merge_slice
from bucketlake.read.filters import Filter, apply_filters
from bucketlake.read.path_columns import fill_path_columns, told_by_path
from bucketlake.read.virtual_keys import (
    KEY_FIELD,
    key_columns_of,
    logs_with_virtual_keys,
    only_record_keys,
    with_virtual_keys,
)
from bucketlake.schema import COMMIT_TIME_COLUMN, RECORD_KEY_COLUMN
from bucketlake.storage import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadContext:
    """What every slice of one query is read with. Frozen and picklable."""

    store: Store
    table_schema: pa.Schema
    columns: tuple[str, ...]
    filters: tuple[Filter, ...]
    rules: MergeRules
    keys: KeyGenerator
    path_columns: tuple[str, ...]
    """Partition columns whose values come from the path."""
    path_columns_are_dropped: bool
    """And which the files do not have."""
    up_to: str | None
    """Log blocks of later instants do not count."""
    commit_times: frozenset[str] | None
    """Only rows these instants wrote, or None for all."""
    blocks_of: TimelineView | None
    """Where the log's name does not tell its instant (table version 6): which blocks are committed."""

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([self.table_schema.field(name) for name in self.columns])

    @property
    def has_virtual_keys(self) -> bool:
        """Whether files leave Hudi's meta columns empty, so that record keys are made of columns."""
        return RECORD_KEY_COLUMN not in self.table_schema.names

    @property
    def shown(self) -> frozenset[str]:
        """The columns that somebody looks at after merging."""
        return frozenset([*self.columns, *(f.column for f in self.filters)])

    def reading_schema(self, *, merging: bool, told: Container[str] = ()) -> pa.Schema:
        """The columns a slice is read with: those asked for, and those that filters and merging look at.

        Columns that are `told` are known without reading.
        """
        needed = {name for name in self.shown if name not in told}
        if self.commit_times is not None:
            needed.add(COMMIT_TIME_COLUMN)
        if merging:
            identity = key_columns_of(self.keys) if self.has_virtual_keys else {RECORD_KEY_COLUMN}
            needed |= {*identity, *self.rules.columns(self.table_schema)}
        # Without a column a batch would not say how many rows it has.
        return pa.schema([f for f in self.table_schema if f.name in (needed or self.shown)])


KeysSeen = Callable[[pa.ChunkedArray], object]


def read_slice(
    file_slice: FileSlice,
    context: ReadContext,
    *,
    record_keys: pa.Array | None = None,
    on_keys: KeysSeen | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of one slice; with `record_keys`, only the rows that have one of them.

    `on_keys` is shown the stored keys that were searched for those.
    """
    shown = context.shown
    told = told_by_path(
        file_slice.partition,
        tuple(name for name in context.path_columns if name in shown),
        context.keys,
        context.table_schema,
        are_dropped=context.path_columns_are_dropped,
    )
    merged = _merged_and_searched if context.has_virtual_keys else _merged
    for batch in merged(file_slice, context, told, record_keys, on_keys):
        batch = apply_filters(fill_path_columns(batch, told), context.filters)
        if batch.num_rows:
            yield batch.select(list(context.columns))


def _merged_and_searched(
    file_slice: FileSlice,
    context: ReadContext,
    told: Container[str],
    record_keys: pa.Array | None,
    on_keys: KeysSeen | None,
) -> Iterable[pa.RecordBatch]:
    """Do what `_merged` does where no file has record keys to search."""
    if record_keys is None:
        return _merged(file_slice, context, told, None, None)
    of_key = key_columns_of(context.keys)
    lacking = of_key.intersection(context.path_columns) if context.path_columns_are_dropped else ()
    if lacking:
        raise UnsupportedError(
            subject=f"the key column {', '.join(sorted(lacking))}",
            found="in no file: the table stores neither partition columns nor record keys",
            supported="looking up keys whose columns are stored",
            remedy="Read with filters=[...] instead.",
        )
    # Keys are made of what files hold, also where the result takes a column from the path.
    columns = tuple(dict.fromkeys([*context.columns, *sorted(of_key)]))
    rows = _merged(file_slice, replace(context, columns=columns), (), None, None)
    return only_record_keys(rows, record_keys, context.keys, on_keys)


def _merged(
    file_slice: FileSlice,
    context: ReadContext,
    told: Container[str],
    record_keys: pa.Array | None,
    on_keys: KeysSeen | None,
) -> Iterable[pa.RecordBatch]:
    """Yield the live rows of a slice, without columns that are `told` by its path wherever they are of no use."""
    schema = context.reading_schema(merging=bool(file_slice.log_files), told=told)
    base: Iterable[pa.RecordBatch] = ()
    if file_slice.base_file is not None:
        path = file_slice.base_file.path
        base = read_base_file(context.store, path, schema, keys=record_keys, on_keys=on_keys)
    if context.commit_times is not None:
        base = _of_instants(base, context.commit_times)
    if not file_slice.log_files:
        return base
    logs = read_log_files(
        context.store,
        [log.path for log in file_slice.log_files],
        schema,
        ordering_fields=context.rules.ordering_fields,
        table_schema=context.table_schema,
        up_to=context.up_to,
        instants=context.commit_times,
        is_committed=context.blocks_of.is_committed if context.blocks_of else None,
        keys=record_keys,
        whole=frozenset(log.path for log in file_slice.log_files if log.is_whole),
    )
    if context.has_virtual_keys:
        base, logs = with_virtual_keys(base, context.keys), logs_with_virtual_keys(logs, context.keys)
        schema = schema.append(KEY_FIELD)
    shown = [name for name in schema.names if name in context.shown and name not in told]
    # Without a column a batch would not say how many rows it has.
    return merge_slice(base, logs, context.rules, schema, shown=shown or [RECORD_KEY_COLUMN])


def _of_instants(batches: Iterable[pa.RecordBatch], commit_times: frozenset[str]) -> Iterator[pa.RecordBatch]:
    """Keep the rows these instants wrote.

    Before merging, not after: a late change that loses to an older row is still a change, and Hudi reports it.
    """
    wanted = pa.array(sorted(commit_times), pa.string())
    for batch in batches:
        yield batch.filter(pc.is_in(batch.column(COMMIT_TIME_COLUMN), value_set=wanted))
