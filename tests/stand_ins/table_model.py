"""What a table must be, told from its timeline: a dict of rows and the rules of its buckets.

A model knows what every call was to do. The completed writes that are on the timeline, or were archived from it,
replayed in the order of their completion, say what readers see (P4, P7, H2): what a rollback or a restore has taken
back is not among them, and everything else is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from bucketlake.config import TableProperties, load_properties
from bucketlake.storage import Store
from bucketlake.timeline import WRITE_ACTIONS, load_history, load_timeline
from stand_ins.actors import Task

Rows = dict[int, tuple[str, int]]
"""Key -> name and ordering value. A name is given once; the partition follows from the key."""
Times = Mapping[str, str]
"""Requested -> completed, of writes."""

PARTITIONS = ("p0", "p1")


@dataclass(frozen=True)
class Rules:
    """How many buckets a partition has: the first expression found in its name decides."""

    expressions: str
    default: int

    def count(self, partition: str) -> int:
        for rule in filter(None, self.expressions.split(";")):
            expression, _, count = rule.rpartition(",")
            if re.search(expression, partition):
                return int(count)
        return self.default

    @property
    def counts(self) -> tuple[int, ...]:
        return tuple(map(self.count, PARTITIONS))


@dataclass
class Call(Task):
    """A task, and what it is to change."""

    change: Callable[[Rows], None] | None = None
    rows: Rows = field(default_factory=dict)
    """What it writes."""
    rules: Callable[[Rules], Rules] | None = None
    undoes: set[str] = field(default_factory=set)
    """The instants that may be gone because of it."""

    @property
    def is_write(self) -> bool:
        return self.change is not None or self.rules is not None


def completed_in(store: Store) -> dict[str, str]:
    """Return all writes that a table has, archived ones too."""
    properties = _properties_of(store.uri, store)
    files = store.list(f"{properties.timeline_folder}/history").files
    archived = _archived_in(tuple((file.path, file.version) for file in files), store)
    active = load_timeline(store, properties).writes
    return {**archived, **{i.requested: i.completed or "" for i in active}}


_PROPERTIES: dict[str, TableProperties] = {}
_ARCHIVED: dict[object, dict[str, str]] = {}


def _properties_of(uri: str, store: Store) -> TableProperties:
    """Where the timeline is never changes."""
    if uri not in _PROPERTIES:
        _PROPERTIES.clear()
        _PROPERTIES[uri] = load_properties(store)
    return _PROPERTIES[uri]


def _archived_in(files: tuple[object, ...], store: Store) -> dict[str, str]:
    """Read the history; what does not change is read once."""
    if (store.uri, files) not in _ARCHIVED:
        _ARCHIVED.clear()
        found = load_history(store, _properties_of(store.uri, store))
        _ARCHIVED[store.uri, files] = {a.requested: a.completed for a in found if a.action in WRITE_ACTIONS}
    return _ARCHIVED[store.uri, files]


class Model:
    """The calls so far, and what follows from them."""

    def __init__(self, rules: Rules) -> None:
        self.calls: list[Call] = []
        self._rules = rules

    def call_of(self, instant: str) -> Call | None:
        return next((call for call in self.calls if instant in call.instants), None)

    def rows(self, times: Times, *, until: str | None = None) -> Rows:
        rows: Rows = {}
        for call in self._in_order(times, until):
            if call.change is not None:
                call.change(rows)
        return rows

    def rules(self, times: Times) -> Rules:
        rules = self._rules
        for call in self._in_order(times, None):
            if call.rules is not None:
                rules = call.rules(rules)
        return rules

    def changes(self, times: Times, begin: str, end: str) -> tuple[Rows, set[tuple[int, str]]]:
        """Return what an incremental read of (begin, end] must show, and all that it may show.

        It must show the rows of that interval's writes that a reader sees at its end; and it may show others that they
        have written, and that lost against older or newer ones.
        """
        names = {
            (key, name)
            for instant, completed in times.items()
            if begin < completed <= end and (call := self.call_of(instant)) is not None
            for key, (name, _) in call.rows.items()
        }
        seen = self.rows(times, until=end)
        return {key: row for key, row in seen.items() if (key, row[0]) in names}, names

    def _in_order(self, times: Times, until: str | None) -> Iterable[Call]:
        for instant, completed in sorted(times.items(), key=lambda item: item[1]):
            call = self.call_of(instant)  # none of a compaction or clustering
            if call is not None and (until is None or completed <= until):
                yield call


def upserted(given: Mapping[int, tuple[str, int]]) -> Callable[[Rows], None]:
    def change(table: Rows) -> None:
        for key, (name, ts) in given.items():
            if key not in table or table[key][1] <= ts:
                table[key] = (name, ts)

    return change


def deleted(is_gone: Callable[[int], bool]) -> Callable[[Rows], None]:
    def change(table: Rows) -> None:
        for key in [key for key in table if is_gone(key)]:
            del table[key]

    return change


def replaced(is_gone: Callable[[int], bool], given: Mapping[int, tuple[str, int]]) -> Callable[[Rows], None]:
    def change(table: Rows) -> None:
        deleted(is_gone)(table)
        table.update(given)

    return change
