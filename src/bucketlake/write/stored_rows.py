"""What a file group has of some keys, or of all: versions of rows, read and merged, of the columns that are needed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from bucketlake.basefile import read_base_file
from bucketlake.layout import FileSlice
from bucketlake.logfile import LogDeletes, LogRecords, read_log_files
from bucketlake.merge import MergeRules, merge_slice
from bucketlake.schema import RECORD_KEY_COLUMN
from bucketlake.storage import Store


@dataclass(frozen=True, slots=True, eq=False)
class StoredRows:
    """The versions of rows in a file slice."""

    base: Iterable[pa.RecordBatch]
    """Can be gone through again if keys were given."""
    logs: Sequence[LogRecords | LogDeletes]
    rules: MergeRules
    schema: pa.Schema

    def merged(self, shown: Sequence[str], *, new: Sequence[LogRecords | LogDeletes] = ()) -> pa.Table:
        """Return these columns of the rows that a reader finds; with `new`, once these versions are there too."""
        schema = pa.schema([self.schema.field(name) for name in shown])
        rows = merge_slice(self.base, [*self.logs, *new], self.rules, self.schema, shown=list(shown))
        return pa.Table.from_batches(rows, schema)


def read_stored(
    store: Store,
    part: FileSlice | None,
    rules: MergeRules,
    *,
    table_schema: pa.Schema,
    columns: Sequence[str] = (),
    keys: Any = None,
) -> StoredRows:
    """Read versions of rows, or those of `keys`: the columns that merging looks at, and these.

    `table_schema` has meta columns. What a file lacks of it is null.
    """
    names = dict.fromkeys((*rules.columns(table_schema), *columns))
    schema = pa.schema([table_schema.field(name) for name in names])
    if part is None:
        return StoredRows((), (), rules, schema)
    base: Iterable[pa.RecordBatch] = ()
    if part.base_file is not None:
        base = read_base_file(store, part.base_file.path, schema, keys=keys)
    logs = read_log_files(
        store,
        [log.path for log in part.log_files],
        schema,
        ordering_fields=rules.ordering_fields,
        table_schema=table_schema,
        keys=keys,
        whole=frozenset(log.path for log in part.log_files if log.is_whole),
    )
    return StoredRows(base if keys is None else list(base), logs, rules, schema)


def merged_keys(
    store: Store, part: FileSlice, rules: MergeRules, *, table_schema: pa.Schema, keys: Any = None
) -> pa.Array:
    """Return the keys that a reader finds in a slice, or those of `keys`."""
    rows = read_stored(store, part, rules, table_schema=table_schema, keys=keys).merged([RECORD_KEY_COLUMN])
    return rows.column(0).combine_chunks()
