"""Up to when the changes of a table are known for good.

A claim decides that a write is committed, and when; then its completed file is put, by its writer or, if that died, by
the next one. In between, readers do not see a commit whose completion time has passed. Who reads changes up to a later
time, and goes on from there, never sees it. So an incremental read does not reach past such a commit.

Claims are read before the timeline. A commit that is claimed later completes later than any that is on the timeline
and was claimed; and a number is claimed only after the one before it is published. So the newest claim tells it all.
"""

from __future__ import annotations

from bucketlake.commit.claims import Claim, Claims, Outcome
from bucketlake.errors import ConfigError
from bucketlake.timeline import Action, Timeline, shift_instant

_WRITES = (Action.COMMIT, Action.DELTA_COMMIT, Action.REPLACE_COMMIT)
"""Services are left out: they change no row, so nobody misses them."""


def unpublished_commit(claims: Claims, timeline: Timeline) -> Claim | None:
    """Return the write that was committed, and that readers of the timeline do not see yet; None if there is none."""
    newest = claims.newest
    if newest is None or newest.outcome is not Outcome.COMMIT or newest.action not in _WRITES:
        return None
    is_pending = any(i.requested == newest.instant for i in timeline.pending(newest.action))
    return newest if is_pending else None


def changes_until(timeline: Timeline, unpublished: Claim | None) -> str | None:
    """Return the newest completion time up to which all changes are there; None if nothing was ever completed.

    Savepoints do not count: they change nothing, and Hudi draws their times without regard to others.
    """
    completed = (i.completed for i in timeline.completed() if i.action is not Action.SAVEPOINT)
    before = unpublished.completed if unpublished is not None else None
    return max((time for time in completed if time and (before is None or time < before)), default=None)


def settled_end(end: str | None, unpublished: Claim | None) -> str | None:
    """Return where an incremental read ends that may go up to `end`, or as far as it can if that is None.

    Raises `ConfigError` if changes would be missing before `end`.
    """
    if unpublished is None or (end is not None and end < unpublished.completed):
        return end
    before = shift_instant(unpublished.completed, -1)
    if end is None:
        return before
    raise ConfigError(
        f"the changes up to {end} are not all there yet: the {unpublished.action} of {unpublished.instant} was "
        f"committed at {unpublished.completed}, and is about to become visible. Leave the end out, end at {before}, or "
        f"read again in a moment; if its writer died, the next write or `bucketlake clean` makes it visible."
    )
