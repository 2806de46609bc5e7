"""Streams: which of a stream's batches a table has already.

    .hoodie/.bucketlake/streams/<stream>    the newest batch that a writer saw committed, and its instant

Spark sends a batch again with the same number if it cannot be sure that it was written. So every commit of a stream
says which batch it is, in two marks: ours, and the one of Hudi's sink, under an identifier. A batch with the number of
a mark, or a lower one, is in the table.

A stream is the query id of a checkpoint: a new checkpoint is a new stream, whatever it is called. A mark counts as long
as its commit does. So it goes back with a rollback or a restore, and nobody has to see to that. It is looked for in the
active timeline, newest first, and then in the history. The file says how far back to look there; it has no say itself,
but for telling that a mark was higher once.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from bucketlake.commit.heartbeat import list_heartbeats, owner_of
from bucketlake.commit.operation import TRANSACTIONS, Operation, action_of
from bucketlake.commit.recovery import look_for_leftovers, recover_from
from bucketlake.config import TableProperties
from bucketlake.errors import StreamConflictError
from bucketlake.layout.names import stream_path
from bucketlake.storage import Store
from bucketlake.timeline import (
    CommitMetadata,
    Instant,
    Timeline,
    decode_commit_metadata,
    load_timeline,
    process_clock,
    read_commit_metadata,
)
from bucketlake.timeline.history import archived_bodies_with

STREAM_KEY = "bucketlake.stream"
"""Where a commit's extra metadata says which batch of which stream it is, and what became of its rows."""
HUDI_KEY = "_hudi_streaming_sink_checkpoint"
"""Where Hudi's sink says it: JSON, from an identifier to the number of the batch, as a text."""

_FILE_NAME = re.compile(r"[A-Za-z0-9-]{1,64}")
_log = logging.getLogger("bucketlake.stream")


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """A batch of a stream that is to be written."""

    stream: str
    """The query id of its checkpoint."""
    number: int
    name: str = ""
    """What people call the stream."""
    identifier: str = ""
    """By which Hudi's sink knows the stream: the query id, unless something else was chosen."""
    behind: float | None = None
    """How far services were behind when that was last looked at; None if it was not."""

    def marks(self, told: Mapping[str, Any]) -> dict[str, str]:
        """Say in a commit's extra metadata that it is this batch; and what is `told` of it."""
        ours = {"stream": self.stream, "name": self.name, "batch": self.number, **told}
        if self.behind is not None:
            ours["behind"] = round(self.behind, 2)
        return {
            STREAM_KEY: json.dumps(ours),
            HUDI_KEY: json.dumps({self.identifier or self.stream: str(self.number)}),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """The newest batch of a stream that a table has."""

    batch: int
    instant: str
    told: Mapping[str, Any] = field(default_factory=dict)
    """What the commit says of it; nothing if Hudi wrote it."""


def mark_of(extra: Mapping[str, str], instant: str, batch: Batch) -> Mark | None:
    """Read the mark of a batch's stream in a commit; None if the commit is not of the stream.

    Hudi's mark counts only where there is none of ours. Its identifier may be that of another stream, one whose
    checkpoint was deleted: a commit of ours tells which stream it was.
    """
    told = stream_record(extra)
    if told is not None:
        return (
            Mark(batch=told["batch"], instant=instant, told=told) if told["stream"] == batch.stream else None
        )
    number = _hudi_marks(extra).get(batch.identifier or batch.stream)
    return None if number is None else Mark(batch=number, instant=instant)


def stream_record(extra: Mapping[str, str]) -> dict[str, Any] | None:
    """Return what a commit of ours says of the batch it is; None if it is none."""
    try:
        told = json.loads(extra.get(STREAM_KEY, "null"))
        if not isinstance(told, dict):
            return None
        return {**told, "stream": str(told["stream"]), "batch": int(told["batch"])}
    except (ValueError, KeyError, TypeError):
        return None


def batches_in(commits: Iterable[CommitMetadata]) -> tuple[str, ...]:
    """Say which batches of which streams some commits are, a line for each stream; for who takes them back."""
    numbers: dict[str, list[int]] = {}
    for commit in commits:
        told = stream_record(commit.extra)
        if told is not None:
            name = str(told.get("name", ""))
            stream = f"the stream {name} ({told['stream']})" if name else f"the stream {told['stream']}"
            numbers.setdefault(stream, []).append(told["batch"])
            continue
        for identifier, number in _hudi_marks(commit.extra).items():
            numbers.setdefault(f"Hudi's stream {identifier}", []).append(number)
    return tuple(
        (f"batch {found[0]:,}" if len(found) == 1 else f"batches {min(found):,} to {max(found):,}")
        + f" of {stream}: sent again only if its checkpoint is taken back too"
        for stream, found in numbers.items()
    )


def _hudi_marks(extra: Mapping[str, str]) -> dict[str, int]:
    """Return the marks of Hudi's sink in a commit, by identifier; what makes no sense is none."""
    try:
        said = json.loads(extra.get(HUDI_KEY, "{}"))
    except (ValueError, TypeError):
        return {}
    found = {}
    for name, number in said.items() if isinstance(said, dict) else ():
        with suppress(ValueError, TypeError):
            found[str(name)] = int(number)
    return found


@dataclass(slots=True)
class Marks:
    """Finds the mark of a stream. Remembers what commits say, which does not change."""

    store: Store
    properties: TableProperties
    _said: dict[str, Mark | None] = field(default_factory=dict)
    _archived: tuple[str | None, Mark | None] | None = None

    def find(self, batch: Batch, timeline: Timeline) -> Mark | None:
        """Return the mark of a batch's stream, None if the table has no batch of it."""
        action = action_of(Operation.UPSERT, self.properties.table_type)
        newest_first = sorted(timeline.completed(action), key=_completed, reverse=True)
        said: dict[str, Mark | None] = {}
        for instant in newest_first:
            said[instant.path] = mark = self._said_by(instant, batch)
            if mark is not None:
                self._said = said
                return mark
        self._said = said
        return self._in_history(batch, timeline)

    def find_own(self, batch: Batch, timeline: Timeline) -> Mark | None:
        """Return the mark of just this batch, as long as anything tells of it."""
        action = action_of(Operation.UPSERT, self.properties.table_type)
        marks = [self._said_by(instant, batch) for instant in timeline.completed(action)]
        marks += _archived_marks(self.store, self.properties, batch, None)
        return next((mark for mark in marks if mark is not None and mark.batch == batch.number), None)

    def _said_by(self, instant: Instant, batch: Batch) -> Mark | None:
        if instant.path not in self._said:
            try:
                extra = read_commit_metadata(self.store, instant).extra
            except FileNotFoundError:
                self._archived = None  # taken back, or archived, since the timeline was listed
                return None
            self._said[instant.path] = mark_of(extra, instant.requested, batch)
        return self._said[instant.path]

    def _in_history(self, batch: Batch, timeline: Timeline) -> Mark | None:
        """Look in the history, which is looked through again only when it has grown."""
        if self._archived is None or self._archived[0] != timeline.start:
            seen = load_seen(self.store, batch.stream)
            since = None if seen is None else seen.instant
            marks = _archived_marks(self.store, self.properties, batch, since)
            if not marks and since is not None:
                marks = _archived_marks(self.store, self.properties, batch, None)
            self._archived = (timeline.start, marks[0] if marks else None)
        return self._archived[1]


def _completed(instant: Instant) -> tuple[str, str]:
    return instant.completed or "", instant.requested


def _archived_marks(store: Store, properties: TableProperties, batch: Batch, since: str | None) -> list[Mark]:
    """Find the marks of a stream in the history, from the instant `since` on; the last to be completed comes first."""
    names = {batch.stream, batch.identifier or batch.stream}
    found = [
        one for name in sorted(names) for one in archived_bodies_with(store, properties, name, since=since)
    ]
    marks = []
    for archived, body in sorted(found, key=lambda one: one[0].completed, reverse=True):
        path = f"{archived.instant.path} (instant {archived.requested})"
        mark = mark_of(decode_commit_metadata(body, path=path).extra, archived.requested, batch)
        if mark is not None:
            marks.append(mark)
    return marks


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """The newest batch of a stream that a writer of it saw in the table; -1 before there was one."""

    stream: str
    name: str
    batch: int
    instant: str
    """Of its commit; before there is one, of the newest then."""


def load_seen(store: Store, stream: str) -> Seen | None:
    """Read the file of a stream; None if there is none of any use."""
    try:
        said = json.loads(store.read(stream_path(file_name_of(stream))))
        return Seen(
            stream=str(said["stream"]),
            name=str(said["name"]),
            batch=int(said["batch"]),
            instant=str(said["instant"]),
        )
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError):
        return None  # it is put anew after the next batch


def keep_seen(store: Store, seen: Seen) -> None:
    said = {"stream": seen.stream, "name": seen.name, "batch": seen.batch, "instant": seen.instant}
    store.put(stream_path(file_name_of(seen.stream)), json.dumps(said).encode())


def file_name_of(stream: str) -> str:
    """Return what a stream's file is called: its id, unless that could be no file name.

    >>> file_name_of("2f9d7a3e-0d0b-4b4e-9d3c-1f1f6f0a7c11"), file_name_of("a/b")
    ('2f9d7a3e-0d0b-4b4e-9d3c-1f1f6f0a7c11', 'a7e86136543b019d72468ceebf71fb8e')
    """
    if _FILE_NAME.fullmatch(stream):
        return stream
    return hashlib.md5(stream.encode(), usedforsecurity=False).hexdigest()


def take_back_unfinished(store: Store, properties: TableProperties, stream: str) -> tuple[str, ...]:
    """Take back what a stream has begun and not decided, and name these instants. What was decided is published.

    A stream writes one batch at a time, so who begins the next knows that nobody is at an earlier one, however fresh
    the heartbeat of a process that was killed may be.
    """
    left = look_for_leftovers(store)
    timeline = load_timeline(store, properties)
    pending = {i.requested for i in timeline.pending(*TRANSACTIONS)}
    dead = {
        instant for instant in pending & list_heartbeats(store).keys() if owner_of(store, instant) == stream
    }
    if not dead:
        return ()
    clock = process_clock(properties.timeline_timezone)
    found, _, _ = recover_from(store, properties, left, timeline, clock=clock, dead=dead)
    done = tuple(one.instant for one in found.rolled_back if one.instant in dead)
    if done:
        _log.warning(
            "%s: took back %s, which the stream %s had begun and not committed",
            store.uri,
            ", ".join(done),
            stream,
        )
    return done


def refuse_other_query(metadata: CommitMetadata, other: Instant, batch: Batch) -> None:
    """Refuse to commit a batch that somebody else has committed meanwhile, or a later one."""
    mark = mark_of(metadata.extra, other.requested, batch)
    if mark is not None and mark.batch >= batch.number:
        raise overtaken(batch, mark)


def overtaken(batch: Batch, mark: Mark) -> StreamConflictError:
    return StreamConflictError(
        f"batch {batch.number} of the stream {batch.name or batch.stream} cannot be committed: batch {mark.batch} of "
        f"the same stream was, by {mark.instant}, while this one was being written. Nothing of it is visible. Two "
        f"queries run on one checkpoint, or on a copy of it. Stop one of them, and give it a checkpoint of its own."
    )
