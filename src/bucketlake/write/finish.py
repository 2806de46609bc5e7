"""A write whose files are there: committed, and reported. The same for rows, appends and partitions that go."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import pyarrow as pa

from bucketlake.commit.completion import finish_decided
from bucketlake.commit.conflicts import COMPUTED
from bucketlake.commit.transaction import Committed, Transaction, abort, commit
from bucketlake.errors import CommitConflictError
from bucketlake.layout import FileGroupId
from bucketlake.metadata.change import IndexFile
from bucketlake.timeline import CommitMetadata
from bucketlake.write.exchange import KeySum
from bucketlake.write.report import CommitSummary, commit_metadata, summarize, told_of
from bucketlake.write.rounds import LookedUp
from bucketlake.write.task import GroupWritten

Later = Callable[[Callable[[], None]], None]
"""Takes what is left to do for a write that is decided."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """All that is left to do for a write is to commit it."""

    transaction: Transaction
    sent: KeySum
    written: Sequence[GroupWritten]
    replaced: Mapping[str, tuple[str, ...]]
    schema: pa.Schema
    """The table's columns once it is committed."""
    changes_columns: bool = False
    """Whether it is to be committed without rows, too, because the table's columns change."""
    recorded: Sequence[IndexFile] | None = None
    """What was put to say which keys came and went; None if nobody is told."""
    looked_up: LookedUp | None = None
    """What another round of the write has to know of this one; None where keys are not looked up."""
    seconds: Mapping[str, float] = field(default_factory=dict)
    """Wall time by stage, as it grows."""

    @property
    def is_empty(self) -> bool:
        return not (self.changes_columns or self.replaced or any(group.path for group in self.written))

    @property
    def room(self) -> Mapping[FileGroupId, int]:
        return {(g.partition, g.file_id): g.room for g in self.written if g.room is not None}

    @property
    def metadata(self) -> CommitMetadata:
        metadata = commit_metadata(
            self.written,
            operation=self.transaction.operation,
            schema=self.schema,
            table=self.transaction.properties.name,
            sent=self.sent,
            replaced=self.replaced,
            recorded=self.recorded,
        )
        if self.transaction.read is not None:
            metadata = replace(metadata, extra={**metadata.extra, COMPUTED: "true"})
        batch = self.transaction.batch
        if batch is None:
            return metadata
        return replace(metadata, extra={**metadata.extra, **batch.marks(self._told_of_batch())})

    def _told_of_batch(self) -> dict[str, Any]:
        """Say what becomes of the rows of a batch, for its commit: how many were given, and the sum of their keys."""
        given = self.sent if self.looked_up is None else self.looked_up.arrived
        summary = self.summary(Committed("", 0))
        return {
            **told_of(summary),
            "rows": given.rows,
            "key_hash_sum": given.key_hash_sum,
            "seconds": {stage: round(taken, 3) for stage, taken in self.seconds.items()},
        }

    def summary(self, done: Committed) -> CommitSummary:
        return summarize(
            self.written,
            operation=self.transaction.operation,
            instant=self.transaction.instant,
            completed=done.completed,
            number=done.number,
            replaced=self.replaced,
            seconds=self.seconds,
            looked_up=self.looked_up,
        )


def finish(prepared: Prepared, *, later: Later | None = None) -> CommitSummary:
    """Commit a write and say what it did; one that has nothing to commit is taken back.

    With `later` it is decided, and `later` gets what publishes it.

    A failure after the decision fell is none: the write is published. After any other the write is gone, unless the
    error is a conflict that `is_partial`: then most of what was written may stay.
    """
    transaction = replace(prepared.transaction, room=prepared.room)
    operation = transaction.operation
    if prepared.is_empty:
        abort(transaction)
        looked_up = prepared.looked_up
        return CommitSummary(
            operation=str(operation),
            rows=prepared.sent.rows,
            outdated=sum(group.outdated for group in prepared.written),
            looked_up=0 if looked_up is None else looked_up.keys,
            cache_hits=0 if looked_up is None else looked_up.cache_hits,
            seconds=prepared.seconds,
        )
    try:
        done = commit(transaction, prepared.metadata, publishes_later=later is not None)
    except BaseException as fault:
        if isinstance(fault, CommitConflictError) and fault.is_partial:
            raise
        decided = abort(transaction)
        if decided is None or not isinstance(fault, Exception):
            raise
        done = Committed(decided, 0)
    if later is not None and done.number:
        later(partial(finish_decided, transaction))
    return prepared.summary(done)
