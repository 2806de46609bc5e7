"""Phase 2: base rows meet the log's winners, and each key leaves once.

Base batches stream through. A base row whose log version wins is dropped from
its batch; the rows of all winners, updates and inserts alike, leave at the end
in the order the logs have them. So a batch is filtered at most once and no
value is moved in place. The order of rows is not part of the format.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from bucketlake.logfile.records import LogDeletes, LogRecords
from bucketlake.merge.rules import MergeRules
from bucketlake.merge.winners import Indices, Winners, base_keys, fold_logs


def merge_slice(
    base: Iterable[pa.RecordBatch],
    logs: Sequence[LogRecords | LogDeletes],
    rules: MergeRules,
    schema: pa.Schema,
    *,
    shown: Sequence[str] | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield the live rows of a file slice, as Hudi 1.2.0 merges them.

    `base` has batches of `schema`, `logs` the blocks in the order they apply.
    Of their columns those `shown` leave (None: all): what only merging looks at
    need not be copied.
    Without logs the base passes through untouched: what a base file holds was
    merged before, and Hudi returns it even where a row says it is deleted.
    """
    logs = [log for log in logs if len(log.records if isinstance(log, LogRecords) else log.keys)]
    if not logs:
        yield from base if shown is None else (batch.select(list(shown)) for batch in base)
        return
    yield from SliceMerge(fold_logs(logs, rules, schema)).over(base, shown)


class SliceMerge:
    """The winners of the logs on their way through a base file, and what became of them.

    The counts are complete when `over` is exhausted.
    """

    def __init__(self, winners: Winners, *, noted: Sequence[str] = ()) -> None:
        self._winners = winners
        self._noted = list(noted)
        self.inserted = 0
        """Winners whose key no base row has."""
        self.updated = 0
        """Base rows that a winner replaced."""
        self.deleted = 0
        """Base rows that a delete took away."""
        self.outdated = 0
        """Winners, deletes too, that lost to a base row."""
        self.was_new = winners.is_record.copy()
        """Which winners were inserted."""
        self.has_deleted = np.zeros(len(winners.is_record), dtype=np.bool_)
        """Which winners took a base row away."""
        self.has_lost = np.zeros(len(winners.is_record), dtype=np.bool_)
        """Which winners lost to a base row."""
        self.gone: list[pa.RecordBatch] = []
        """The base rows that a winner replaced or took away, of their columns those that are to be noted."""

    def over(
        self, base: Iterable[pa.RecordBatch], shown: Sequence[str] | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Yield the live rows, of their columns those `shown` (None: all).

        If a key stands in the base twice, its log version meets the first of the
        two and the second passes, as in Hudi.
        """
        winners = self._winners
        met = np.zeros(winners.keys.count, dtype=np.bool_)
        pending = winners.is_record.copy()
        columns = list(winners.schema.names if shown is None else shown)
        for batch in base:
            rows, numbers = winners.keys.match(base_keys(batch), met)
            wins = winners.beat(batch, rows, numbers)
            self.outdated += len(wins) - int(wins.sum())
            pending[numbers[~wins]] = False
            self.has_lost[numbers[~wins]] = True
            rows, numbers = rows[wins], numbers[wins]
            self.has_deleted[numbers] = ~winners.is_record[numbers]
            if self._noted and len(rows):
                self.gone.append(batch.select(self._noted).take(pa.array(rows)))
            updates = int(winners.is_record[numbers].sum())
            self.updated += updates
            self.deleted += len(numbers) - updates
            partial = winners.lacks_columns(numbers)
            if partial.any():
                pending[numbers[partial]] = False
                yield winners.complete(batch, rows[partial], numbers[partial]).select(columns)
            yield from _without(batch if shown is None else batch.select(columns), rows)
        self.was_new &= ~met
        self.inserted = int(self.was_new.sum())
        yield from winners.rows(pending, columns)


def _without(batch: pa.RecordBatch, rows: Indices) -> Iterator[pa.RecordBatch]:
    if len(rows) == 0:
        yield batch
    elif len(rows) < batch.num_rows:
        keep = np.ones(batch.num_rows, dtype=np.bool_)
        keep[rows] = False
        yield _filtered(batch, pa.array(keep))


def _filtered(batch: pa.RecordBatch, keep: pa.BooleanArray) -> pa.RecordBatch:
    """Filter each column by itself if it is text, and the others together.

    Arrow turns the filter of a batch into indices and takes row after row, which is the fastest for numbers; the filter
    of a single column copies runs of rows, which is faster for text.
    """
    is_text = [pa.types.is_string(field.type) for field in batch.schema]
    others = batch.select([position for position, text in enumerate(is_text) if not text])
    filtered = iter(others.filter(keep).columns if others.num_columns else ())
    columns = [
        column.filter(keep) if text else next(filtered)
        for column, text in zip(batch.columns, is_text, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=batch.schema)
