"""Tables that do not store record keys (`hoodie.populate.meta.fields=false`): rows get their keys while they are read.

Hudi calls them virtual keys. There are two, because Hudi has two: rows are merged by what its reader makes of the key
columns (`KeyGenerator.virtual_keys`), and a key that a caller asks for is spelled as its writer did, which is also what
buckets are hashed from (`KeyGenerator.record_keys`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from bucketlake.keygen import KeyGenerator
from bucketlake.logfile import LogDeletes, LogRecords
from bucketlake.schema import RECORD_KEY_COLUMN

KEY_FIELD = pa.field(RECORD_KEY_COLUMN, pa.string())


def key_columns_of(keys: KeyGenerator) -> frozenset[str]:
    """Name the columns that keys are made of."""
    return frozenset(name.partition(".")[0] for name in keys.record_key_fields)


def with_virtual_keys(batches: Iterable[pa.RecordBatch], keys: KeyGenerator) -> Iterator[pa.RecordBatch]:
    """Give rows of a base file the column that merging looks for."""
    for batch in batches:
        yield _keyed(batch, keys)


def logs_with_virtual_keys(
    logs: Sequence[LogRecords | LogDeletes], keys: KeyGenerator
) -> tuple[LogRecords | LogDeletes, ...]:
    """Give rows of log files the same. Deletes have their keys: there are no columns to make them of."""
    return tuple(
        replace(log, records=_keyed(log.records, keys)) if isinstance(log, LogRecords) else log
        for log in logs
    )


def only_record_keys(
    batches: Iterable[pa.RecordBatch],
    wanted: pa.Array,
    keys: KeyGenerator,
    on_keys: Callable[[pa.ChunkedArray], object] | None,
) -> Iterator[pa.RecordBatch]:
    """Keep the rows with one of the wanted record keys; `on_keys` is shown all that were searched."""
    for batch in batches:
        found = keys.record_keys(batch)
        if on_keys is not None:
            on_keys(pa.chunked_array([found]))
        yield batch.filter(pc.is_in(found, value_set=wanted))


def _keyed(rows: Any, keys: KeyGenerator) -> Any:
    return rows.append_column(KEY_FIELD, keys.virtual_keys(rows))
