"""What others take away between a look at the timeline and a look at what it names."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from bucketlake.errors import CommitConflictError, CorruptTableError
from bucketlake.state import TableState
from bucketlake.timeline import Action, Timeline, load_timeline


@contextmanager
def gives_way(state: TableState, what: str) -> Iterator[None]:
    """Say that others were in the way where what was read does not fit together, because they took some of it away.

    If nobody has taken anything since `state` was loaded, the table is damaged, and the error stands.
    """
    try:
        yield
    except (CorruptTableError, FileNotFoundError) as fault:
        if not _has_lost(state.timeline, load_timeline(state.store, state.properties)):
            raise
        raise CommitConflictError(
            f"others have changed the table while {what}, and what was read does not fit together ({fault}). Nothing "
            f"of it is visible. Run it again."
        ) from fault


def _has_lost(before: Timeline, now: Timeline) -> bool:
    """Tell whether somebody may have taken files away: archived, cleaned, rolled back, or is at it."""
    known = {(i.requested, i.action) for i in before.completed()}
    gone = known - {(i.requested, i.action) for i in now.completed()}
    takers = {i for i in now.instants if i.action in (Action.CLEAN, Action.ROLLBACK, Action.RESTORE)}
    return bool(gone or takers.difference(before.instants))
