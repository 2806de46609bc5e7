"""A stream, as one process upserts it: each of its batches once, whatever was begun before and by whom.

    finish     what was decided of this stream is published; what it had begun and not decided is taken back
    look       the mark: up to which batch the table has it
    skip       a batch at the mark, or below: it comes again because its sender does not know that it was written
    write      all others; the commit says which batch it is
    note       how far the stream is now

Nothing here needs Spark: rows may be a frame, or an Arrow table.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Lock, Thread
from time import perf_counter, sleep
from typing import TYPE_CHECKING, TypeAlias

import pyarrow as pa

from bucketlake.arguments import WriteArguments
from bucketlake.commit.operation import TRANSACTIONS
from bucketlake.commit.publishing import settle
from bucketlake.commit.stream import (
    Batch,
    Mark,
    Marks,
    Seen,
    keep_seen,
    load_seen,
    take_back_unfinished,
)
from bucketlake.config import TableProperties, load_properties
from bucketlake.errors import CommitConflictError, ConcurrentWriteError, ConfigError
from bucketlake.index import IndexValue
from bucketlake.storage import Store
from bucketlake.streaming.progress import line_of
from bucketlake.timeline import Timeline
from bucketlake.write import ArrowRows, CommitSummary, Operation
from bucketlake.write.replayed import check_replayed
from bucketlake.write.state import is_without_hudi
from bucketlake.writes import rows_by_tasks, write_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    BatchRows: TypeAlias = DataFrame | pa.Table

PAUSES = (1.0, 2.0, 5.0, 10.0, 20.0)
"""A batch that other writers keep from being committed is tried again after so many seconds, and then fails."""
_BEFORE_ALL = "0" * 17

_log = logging.getLogger("bucketlake.stream")

# A batch that was given up, because its query was stopped, may still be under way in this process.
_turns: dict[tuple[str, str], Lock] = {}
_turns_guard = Lock()


@dataclass(slots=True, kw_only=True)
class Stream:
    """Upserts the batches of one stream, and remembers how far it is."""

    store: Store
    id: str
    """The query id of its checkpoint."""
    told: IndexValue | None = None
    checkpoint: str = ""
    name: str = ""
    identifier: str = ""
    verify_replay: bool = False
    accept_checkpoint: bool = False
    pipelined: bool = False
    options: WriteArguments = field(default_factory=WriteArguments)
    behind: float | None = None
    """How far services were behind when somebody last looked: the next commits say so."""
    _marks: Marks | None = None
    _seen: Seen | None = None

    def upsert(self, rows: BatchRows, number: int) -> CommitSummary | None:
        """Write a batch; None if the table has it."""
        with _turn(self.store, self.id):
            batch = Batch(
                stream=self.id,
                number=number,
                name=self.name,
                identifier=self.identifier,
                behind=self.behind,
            )
            return self._upsert(rows, batch)

    def _upsert(self, rows: BatchRows, batch: Batch) -> CommitSummary | None:
        start = perf_counter()
        properties = load_properties(self.store)
        if self.pipelined:
            check_pipelined(properties, self.store)
        timeline = _finished(self.store, properties, batch)
        if self._marks is None or self._marks.properties != properties:
            self._marks = Marks(self.store, properties)  # it may be another table by now
        mark = self._marks.find(batch, timeline)
        self._note_begin(batch, mark, timeline)
        if mark is not None and batch.number <= mark.batch:
            self._skip(rows, batch, mark, properties, timeline)
            return None
        summary = self._write(rows, batch, self._marks)
        if summary.instant is not None:
            self._seen = Seen(stream=self.id, name=self.name, batch=batch.number, instant=summary.instant)
            self._keep(self._seen)
        _log.info("%s", line_of(batch, summary, seconds=perf_counter() - start))
        return summary

    def _write(self, rows: BatchRows, batch: Batch, marks: Marks) -> CommitSummary:
        options: WriteArguments = {"progress": False, **self.options}
        for pause in (*PAUSES, None):
            try:
                return write_rows(
                    self.store,
                    rows,
                    Operation.UPSERT,
                    self.told,
                    options,
                    batch=batch,
                    marks=marks,
                    later=self._publish_later if self.pipelined else None,
                )
            except (CommitConflictError, ConcurrentWriteError) as conflict:
                if pause is None:
                    raise
                _log.warning("batch %d is tried again in %g s: %s", batch.number, pause, conflict)
                sleep(pause)
        raise AssertionError("the last attempt returns or raises")

    def _publish_later(self, put: Callable[[], None]) -> None:
        """Publish a decided commit beside the next batch; at once if somebody has let Hudi's writers in meanwhile."""
        if is_without_hudi(load_properties(self.store)):
            _in_background(put)
        else:
            put()

    def _note_begin(self, batch: Batch, mark: Mark | None, timeline: Timeline) -> None:
        """Compare what the table has with what is known of the stream, and keep what was not known."""
        here = -1 if mark is None else mark.batch
        if self._seen is None or here < self._seen.batch:
            self._seen = load_seen(self.store, self.id)  # it may be another table by now
        if self._seen is None and mark is None and batch.number > 0 and not self.accept_checkpoint:
            raise ConfigError(
                f"the checkpoint {self.checkpoint!r} has {batch.number} batches behind it, and {self.store.uri} has "
                f"none of them: it is the checkpoint of a stream into another table, or into one that was here before. "
                f"Start the query with a new checkpoint, which sends all rows; or, if the table has the rows of those "
                f"batches, give accept_checkpoint=True."
            )
        if self._seen is not None and here < self._seen.batch:
            _log.warning(
                "%s: of the stream %s the batches after %d up to %d are gone: a rollback or a restore took them back. "
                "Spark sends them again only if its checkpoint is taken back too; this is batch %d.",
                self.store.uri,
                self.name or self.id,
                here,
                self._seen.batch,
                batch.number,
            )
        if self._seen is None or self._seen.batch != here:
            newest = max((i.requested for i in timeline.instants), default=_BEFORE_ALL)
            self._seen = Seen(
                stream=self.id,
                name=self.name,
                batch=here,
                instant=newest if mark is None else mark.instant,
            )
            keep_seen(self.store, self._seen)

    def _keep(self, seen: Seen) -> None:
        """Keep how far the stream is. The batch is committed, so nothing here may fail it."""
        try:
            keep_seen(self.store, seen)
        except Exception as fault:
            _log.warning("%s: how far the stream is was not noted: %s", self.store.uri, fault)

    def _skip(
        self, rows: BatchRows, batch: Batch, mark: Mark, properties: TableProperties, timeline: Timeline
    ) -> None:
        if self.verify_replay:
            assert self._marks is not None
            own = self._marks.find_own(batch, timeline)
            if own is not None or mark.told:
                taken = ArrowRows(rows) if isinstance(rows, pa.Table) else rows_by_tasks(rows, False)
                check_replayed(taken, properties, batch, own)
        if batch.number < mark.batch:
            # A restart sends the newest batch again, and no earlier one.
            _log.warning(
                "%s: batch %d of the stream %s is passed over, and so are its rows: batch %d was committed by %s. The "
                "checkpoint was taken back, or is a copy, or emptied. To write the rows, start the query with a new "
                "checkpoint.",
                self.store.uri,
                batch.number,
                self.name or self.id,
                mark.batch,
                mark.instant,
            )
            return
        _log.info("%s: batch %d is in the table, by %s", self.store.uri, batch.number, mark.instant)


def check_pipelined(properties: TableProperties, store: Store) -> None:
    """Refuse what would be inflight for a while where Hudi writes too: it would take it for dead, and roll it back."""
    if not is_without_hudi(properties):
        raise ConfigError(
            f"a pipelined stream leaves a decided commit inflight for a while, and a writer of Hudi's beside it would "
            f"roll that back. If nobody writes to {store.uri} with Hudi, say so: table.alter(hudi_writes=False). Or "
            f"leave pipelined out."
        )


def _in_background(put: Callable[[], None]) -> None:
    """Publish a commit that is decided. What fails here is done by whoever writes next.

    A process does not end before it is done: else readers would wait for the next write, which may come tomorrow.
    """

    def run() -> None:
        try:
            put()
        except Exception as fault:
            _log.warning("a decided commit is not published yet, the next write does it: %s", fault)

    # Said, because it would be as the thread is that Spark calls us in, and that is a daemon.
    Thread(target=run, name="publishing of a stream's batch", daemon=False).start()


def _turn(store: Store, stream: str) -> Lock:
    """Return the lock of a stream: who has it is at a batch, in this process."""
    with _turns_guard:
        return _turns.setdefault((store.uri, stream), Lock())


def _finished(store: Store, properties: TableProperties, batch: Batch) -> Timeline:
    """Finish what was decided, take back what this stream did not decide, and return the timeline then."""
    _, timeline = settle(store, properties)
    if timeline.pending(*TRANSACTIONS) and take_back_unfinished(store, properties, batch.stream):
        _, timeline = settle(store, properties)
    return timeline
