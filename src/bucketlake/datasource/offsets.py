"""Where a stream is in the history of a table, and how far its next batch goes: values, and pure functions of them.

An offset says up to which completion time all changes have been given. Where the changes of an interval are more than
one batch takes, it says as well which interval that is, and how many of its pieces (file slices, in order) have been
given. So the rows between two offsets are the same whenever Spark asks for them.

Spark asks where a stream begins again and again, also after a restart, when `now` is later. So that offset says
nothing, and the first offset after it says where it was.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bucketlake.errors import ConfigError

_VERSION = 1
INITIAL: Mapping[str, Any] = {"bucketlake": _VERSION}
"""The offset before the first one."""


@dataclass(frozen=True, slots=True)
class Mark:
    """A moment of a table's history."""

    time: str
    """A completion time; empty: before anything, also before the rows that are there when a stream begins."""
    instant: str = ""
    """The last write to complete until then, by its requested time, as far as it is known."""


NOTHING = Mark("")


@dataclass(frozen=True, slots=True)
class Offset:
    done: Mark
    """All changes until then have been given."""
    upto: Mark | None = None
    """Until when changes are being given piece by piece, if they are."""
    place: int = 0
    """How many pieces of those."""
    with_op: bool = False
    """Whether these pieces are comparisons, and not slices."""
    origin: Mark | None = None
    """Of the first offset: where the stream began."""

    def as_json(self) -> dict[str, Any]:
        found: dict[str, Any] = {"bucketlake": _VERSION, "done": [self.done.time, self.done.instant]}
        if self.upto is not None:
            found |= {"upto": [self.upto.time, self.upto.instant], "place": self.place, "op": self.with_op}
        if self.origin is not None:
            found["origin"] = [self.origin.time, self.origin.instant]
        return found


def parse_offset(found: Mapping[str, Any]) -> Offset | None:
    """Read an offset as `as_json` writes it; None if it is `INITIAL`."""
    if found == INITIAL:
        return None
    try:
        if found["bucketlake"] != _VERSION:
            raise ValueError
        upto, origin = found.get("upto"), found.get("origin")
        return Offset(
            done=Mark(*found["done"]),
            upto=Mark(*upto) if upto is not None else None,
            place=int(found.get("place", 0)),
            with_op=bool(found.get("op", False)),
            origin=Mark(*origin) if origin is not None else None,
        )
    except (KeyError, TypeError, ValueError):
        raise ConfigError(
            f"the checkpoint has the offset {dict(found)!r}; expected one of format('bucketlake'), of version "
            f"{_VERSION}. Is it the checkpoint of another query? If so, choose another checkpointLocation."
        ) from None


@dataclass(frozen=True, slots=True)
class Batch:
    """What lies between two offsets: pieces of an interval, or all of it."""

    begin: Mark
    end: Mark
    first: int = 0
    stop: int | None = None
    """Of the pieces: from the first on, and up to this one if it is set."""


def batch_between(start: Offset | None, end: Offset) -> Batch:
    """Say what was given between two offsets; None is the beginning of the stream."""
    if start is None:
        start = Offset(end.origin if end.origin is not None else end.done)
    first = start.place if start.upto is not None else 0
    if end.upto is not None:
        if end.done == start.done and start.upto in (None, end.upto) and first <= end.place:
            return Batch(end.done, end.upto, first, end.place)
    elif start.upto is None and start.done.time <= end.done.time:
        return Batch(start.done, end.done)
    elif start.upto == end.done:
        return Batch(start.done, end.done, first)
    raise ConfigError(
        f"the stream has got to {start.as_json()}, and is asked to go to {end.as_json()}. With max_instants or "
        f"max_rows, availableNow needs spark.sql.streaming.triggerAvailableNowWrapper.enabled to be false, as it is "
        f"by default: else Spark asks how far a stream can go before it says where it is. Or leave out both options."
    )


@dataclass(frozen=True, slots=True)
class Written:
    """A write, as far as capping needs to know it."""

    mark: Mark
    rows: int
    """It says it inserted, updated or deleted."""
    is_service: bool
    """It changed no row."""


@dataclass(frozen=True, slots=True)
class Chosen:
    mark: Mark
    rows: int


def choose_end(writes: Iterable[Written], *, max_instants: int | None, max_rows: int | None) -> Chosen | None:
    """Choose up to which of these writes the next batch goes; None if none of them changed a row.

    They come in order of completion. The first that changed rows is always taken, and those that completed in the same
    millisecond. Services are taken along.
    """
    chosen: Chosen | None = None
    count = rows = 0
    for write in writes:
        is_apart = chosen is not None and write.mark.time > chosen.mark.time
        if not write.is_service:
            too_many = max_instants is not None and count + 1 > max_instants
            too_large = max_rows is not None and rows + write.rows > max_rows
            if count and is_apart and (too_many or too_large):
                break
            count, rows = count + 1, rows + write.rows
        chosen = Chosen(write.mark, rows)
    return chosen if count else None


def cut(rows: Sequence[int], first: int, max_rows: int | None) -> int:
    """Choose up to which piece a batch goes that begins at `first`, by the rows of all pieces: at least one further.

    >>> cut([5, 5, 5], 0, 10), cut([50, 5], 0, 10), cut([5, 5], 1, None)
    (2, 1, 2)
    """
    if max_rows is None:
        return len(rows)
    taken, place = 0, first
    while place < len(rows) and (place == first or taken + rows[place] <= max_rows):
        taken += rows[place]
        place += 1
    return place
