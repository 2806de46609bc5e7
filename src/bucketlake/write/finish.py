"""A write whose files are there: committed, and reported. The same for rows, appends and partitions that go."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from bucketlake.commit.transaction import Committed, Transaction, abort, commit
from bucketlake.errors import CommitConflictError
from bucketlake.metadata.change import IndexFile
from bucketlake.timeline import CommitMetadata
from bucketlake.write.exchange import KeySum
from bucketlake.write.report import CommitSummary, commit_metadata, summarize
from bucketlake.write.task import GroupWritten


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """All that is left to do for a write is to commit it."""

    transaction: Transaction
    sent: KeySum
    written: Sequence[GroupWritten]
    replaced: Mapping[str, tuple[str, ...]]
    schema: pa.Schema
    """The table's columns once it is committed."""
    recorded: Sequence[IndexFile] | None = None
    """What was put to say which keys came and went; None if nobody is told."""
    seconds: Mapping[str, float] = field(default_factory=dict)
    """Wall time by stage, as it grows."""

    @property
    def is_empty(self) -> bool:
        return not (self.replaced or any(group.path for group in self.written))

    @property
    def metadata(self) -> CommitMetadata:
        return commit_metadata(
            self.written,
            operation=self.transaction.operation,
            schema=self.schema,
            table=self.transaction.properties.name,
            sent=self.sent,
            replaced=self.replaced,
            recorded=self.recorded,
        )


def finish(prepared: Prepared) -> CommitSummary:
    """Commit a write and say what it did; one that has nothing to commit is taken back.

    A failure after the decision fell is none: the write is published. After any other the write is gone, unless the
    error is a conflict that `is_partial`: then most of what was written may stay.
    """
    transaction = prepared.transaction
    operation = transaction.operation
    if prepared.is_empty:
        abort(transaction)
        outdated = sum(group.outdated for group in prepared.written)
        return CommitSummary(
            operation=str(operation), rows=prepared.sent.rows, outdated=outdated, seconds=prepared.seconds
        )
    try:
        done = commit(transaction, prepared.metadata)
    except BaseException as fault:
        if isinstance(fault, CommitConflictError) and fault.is_partial:
            raise
        decided = abort(transaction)
        if decided is None or not isinstance(fault, Exception):
            raise
        done = Committed(decided, 0)
    return summarize(
        prepared.written,
        operation=operation,
        instant=transaction.instant,
        completed=done.completed,
        number=done.number,
        replaced=prepared.replaced,
        seconds=prepared.seconds,
    )
