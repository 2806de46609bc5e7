"""One action on the timeline: what, when, how far; and the file that says so.

In layout 2 (table versions 8 and 9) a file is named

    requested      T.<action>.requested
    inflight       T.<action>.inflight        but T.inflight for a commit
    completed      T_C.<action>               T requested, C completed

with three actions that end under another name: a compaction as `commit`, a
log compaction as `deltacommit`, a clustering as `replacecommit`. Layout 1
(table version 6) has no `_C`, and its pending clusterings are named
`replacecommit` from the start. A completed name without `_C` in layout 2 is
an instant from before the table was upgraded, and is read as in layout 1.

A name that fits none of this (a temporary file, a folder of something else)
is no instant, and is passed over.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache


class Action(StrEnum):
    """What an instant does, as its requested file names it."""

    COMMIT = "commit"
    DELTA_COMMIT = "deltacommit"
    REPLACE_COMMIT = "replacecommit"
    CLUSTERING = "clustering"
    COMPACTION = "compaction"
    LOG_COMPACTION = "logcompaction"
    CLEAN = "clean"
    ROLLBACK = "rollback"
    RESTORE = "restore"
    SAVEPOINT = "savepoint"
    INDEXING = "indexing"
    SCHEMA_COMMIT = "schemacommit"

    @property
    def when_completed(self) -> Action:
        """The action its completed file names."""
        return _COMPLETED_AS.get(self, self)


_COMPLETED_AS = {
    Action.COMPACTION: Action.COMMIT,
    Action.LOG_COMPACTION: Action.DELTA_COMMIT,
    Action.CLUSTERING: Action.REPLACE_COMMIT,
}

WRITE_ACTIONS = frozenset(
    {
        Action.COMMIT,
        Action.DELTA_COMMIT,
        Action.REPLACE_COMMIT,
        Action.COMPACTION,
        Action.LOG_COMPACTION,
        Action.CLUSTERING,
    }
)
"""Actions that add data files."""


class State(StrEnum):
    REQUESTED = "requested"
    INFLIGHT = "inflight"
    COMPLETED = "completed"

    @property
    def rank(self) -> int:
        """How far an instant is; more is further."""
        return _RANKS[self]


_RANKS = {state: rank for rank, state in enumerate(State)}


@dataclass(frozen=True, slots=True, order=True)
class Instant:
    """One action on the timeline, at the furthest state its files show.

    A completed compaction shows as `commit`, a completed clustering as `replacecommit`, a completed log
    compaction as `deltacommit`: that is how their files are named.
    """

    requested: str
    """The requested time, 17 digits: the instant's identity."""
    action: Action
    state: State
    completed: str | None
    """The completion time; set if and only if the state is COMPLETED."""
    path: str
    """The file of that state, relative to the table's root; for an archived instant the history file."""
    version: str = field(default="", compare=False)
    """The file's version, as a store lists it; empty if it was not listed."""

    @property
    def is_completed(self) -> bool:
        return self.state is State.COMPLETED

    @property
    def is_write(self) -> bool:
        """Whether it adds data files, as opposed to cleaning, rolling back, and so on."""
        return self.action in WRITE_ACTIONS


@dataclass(frozen=True, slots=True)
class InstantName:
    """What a file name of the timeline says. `completed` is None for a completed instant of layout 1."""

    requested: str
    action: Action
    state: State
    completed: str | None = None


_NAME = re.compile(r"(?a:(\d+)(?:_(\d+))?\.(\w+)(?:\.(\w+))?)")


# A write lists the timeline several times, and most names are those of the listing before.
@lru_cache(maxsize=8192)
def parse_instant_name(name: str, *, layout: int) -> InstantName | None:
    """Read a file name of the timeline folder; None if it is not an instant's.

    >>> parse_instant_name("20240102030405678_20240102030406000.commit", layout=2)
    ... # doctest: +NORMALIZE_WHITESPACE
    InstantName(requested='20240102030405678', action=<Action.COMMIT: 'commit'>,
                state=<State.COMPLETED: 'completed'>, completed='20240102030406000')
    >>> parse_instant_name("20240102030405678.commit.7c9e6679", layout=2) is None
    True
    """
    found = _NAME.fullmatch(name)
    if not found:
        return None
    requested, completed, word, suffix = found.groups()
    if (word, suffix) == (State.INFLIGHT, None):
        parsed = InstantName(requested, Action.COMMIT, State.INFLIGHT)
    elif word in _ACTIONS and (suffix is None or suffix in _PENDING):
        parsed = InstantName(requested, Action(word), State(suffix or State.COMPLETED), completed)
    else:
        return None
    # A name is an instant's exactly if we would write it: commit.inflight, compaction and the like are not.
    valid = _is_valid(parsed.action, parsed.state, layout) and (completed is None or layout == 2)
    return parsed if valid and render_instant_name(parsed) == name else None


def render_instant_name(name: InstantName) -> str:
    """Return the file name for `name`; the mirror of `parse_instant_name`.

    >>> render_instant_name(InstantName("20240102030405678", Action.COMMIT, State.INFLIGHT))
    '20240102030405678.inflight'
    """
    match name.state:
        case State.COMPLETED:
            times = name.requested if name.completed is None else f"{name.requested}_{name.completed}"
            return f"{times}.{name.action.when_completed}"
        case State.INFLIGHT if name.action is Action.COMMIT:
            return f"{name.requested}.inflight"
        case _:
            return f"{name.requested}.{name.action}.{name.state}"


_ACTIONS = frozenset(Action)
_PENDING = frozenset({State.REQUESTED, State.INFLIGHT})


def _is_valid(action: Action, state: State, layout: int) -> bool:
    if layout == 1 and action is Action.CLUSTERING:
        return False
    if state is State.COMPLETED:
        return action not in _COMPLETED_AS
    return not (state is State.REQUESTED and action is Action.SAVEPOINT)
