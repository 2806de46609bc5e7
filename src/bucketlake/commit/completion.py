"""How an instant is scheduled, kept alive and completed: a write's and a service's alike.

    schedule    a claim; T.<action>.requested, with the plan
    alive       .hoodie/.heartbeat/T while a service runs; a second process that comes along is refused
    complete    what the engine keeps; the body into T.<action>.inflight; a claim; T_C.<action>
    tidy        markers and heartbeat away

Cut off before its claim, a write is rolled back by the next and a service run again by whoever calls it next; cut off
after it, it is published by the next comer of any kind.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from bucketlake.commit.claims import Claim, Claims, Outcome, forget_old, latest_time, list_claims, packed
from bucketlake.commit.commit_lock import commit_lock
from bucketlake.commit.heartbeat import (
    Heartbeat,
    beat,
    is_alive,
    list_heartbeats,
    start_heartbeat,
    stop_heartbeat,
)
from bucketlake.commit.locks import table_lock
from bucketlake.commit.markers import delete_markers
from bucketlake.commit.metadata_table import latest_metadata_time
from bucketlake.commit.publishing import Decision, completed_time, decide, plan_of, publish_claim, settle
from bucketlake.config import TableProperties
from bucketlake.errors import CommitConflictError, ConcurrentWriteError
from bucketlake.index.keeper import Change, carry_out
from bucketlake.index.keepers import keepers_of
from bucketlake.metadata.step import load_metadata_timeline
from bucketlake.state import TableState, load_state
from bucketlake.storage import Store
from bucketlake.timeline import Action, Clock, InstantName, State, Timeline, instant_path, process_clock

_log = logging.getLogger("bucketlake.commit")


class Begun(Protocol):
    """An instant that this process is at: a `Transaction` or a `Service`."""

    @property
    def store(self) -> Store: ...

    @property
    def properties(self) -> TableProperties: ...

    @property
    def instant(self) -> str: ...

    @property
    def action(self) -> Action: ...


@dataclass(frozen=True, slots=True)
class Said:
    """What an instant says when it is completed."""

    body: bytes
    change: Change | None = None
    """What it changes that the engine keeps something of; None for what only rewrites, or deletes, files."""


Say = Callable[[Claims, Timeline], Said]
"""Makes the body of an instant, from what is there when nothing is left open; may refuse by raising."""


def complete(begun: Begun, say: Say, *, clock: Clock | None = None, publishes_later: bool = False) -> str:
    """Complete an instant; return its completion time, which may be another process's.

    What `say` sees of the table is all there is: nobody completes anything in between. Who `publishes_later` has it
    decided here, once and for all, and calls `finish_decided`; whoever comes before does the same.
    """
    clock = clock or process_clock(begun.properties.timeline_timezone)
    with commit_lock(begun.store, begun.properties, begun.instant, clock):
        done = _complete(begun, say, clock, publishes_later=publishes_later)
    completed = done.completed if isinstance(done, Claim) else done
    if not publishes_later:
        tidy(begun, done if isinstance(done, Claim) else None)
    return completed


def finish_decided(begun: Begun) -> None:
    """Publish an instant that was decided, unless somebody has."""
    claims, _ = settle(begun.store, begun.properties)
    newest = claims.newest
    tidy(begun, newest if newest is not None and newest.instant == begun.instant else None)


def _complete(begun: Begun, say: Say, clock: Clock, *, publishes_later: bool) -> Claim | str:
    store, properties = begun.store, begun.properties
    already: str | None = None

    def look(claims: Claims, timeline: Timeline) -> Decision | None:
        nonlocal already
        already = completed_time(timeline, begun.instant, begun.action)
        if already is not None:
            return None
        said = say(claims, timeline)
        if said.change is not None:
            for keeper in keepers_of(properties):
                carry_out(store, keeper.before_commit(store, properties, timeline, said.change))
        _store_body(begun, said.body)
        return Decision(instant=begun.instant, action=begun.action, outcome=Outcome.COMMIT)

    claim = decide(store, properties, clock, look)
    if claim is None:
        assert already is not None
        return already
    if not publishes_later:
        publish_claim(store, properties, claim, is_just_taken=True)
    return claim


def _store_body(begun: Begun, body: bytes) -> None:
    """Put the body into the inflight file, from where others can publish it, unless the file is gone."""
    path = instant_path(begun.properties, InstantName(begun.instant, begun.action, State.INFLIGHT))
    try:
        version = begun.store.stat(path).version
    except FileNotFoundError:
        raise taken_for_dead(begun) from None
    if not begun.store.replace_if(path, body, version):
        raise taken_for_dead(begun)


def tidy(begun: Begun, claim: Claim | None) -> None:
    """Remove what a completed instant needs no more. It is completed, so nothing here may fail it."""
    try:
        delete_markers(begun.store, begun.instant)
        stop_heartbeat(begun.store, begun.instant)
        if claim is not None:
            forget_old(begun.store, claim)
    except Exception as fault:
        _log.warning("%s is completed, but its markers may still be there: %s", begun.instant, fault)


def taken_for_dead(begun: Begun) -> CommitConflictError:
    return CommitConflictError(
        f"the {begun.action} of {begun.instant} cannot commit: somebody has taken it for dead and rolled it back. "
        f"Nothing of it is visible. Run it again; if its process slept for minutes, find out why."
    )


def schedule(
    store: Store,
    *,
    action: Action,
    say: Callable[[TableState, str], bytes | None],
    clock: Clock | None = None,
    is_of_metadata: bool = False,
) -> str | None:
    """Put a plan on the timeline and return its instant; None if there is nothing to plan.

    `say` makes the plan of the table as it is, with nothing left open, for the instant it is given. A plan that
    `is_of_metadata` goes on the metadata table's timeline, and is later than all on either.
    """
    with table_lock(store):
        state = load_state(store)
        properties = state.properties
        clock = clock or process_clock(properties.timeline_timezone)
        drawn: str | None = None

        def look(claims: Claims, timeline: Timeline) -> Decision | None:
            nonlocal drawn
            _refuse_undoing(store, timeline)
            if drawn is not None:
                stop_heartbeat(store, drawn)
            # While the heartbeat is there, no writer draws the same time.
            latest = latest_time(timeline, claims)
            if is_of_metadata:
                latest = max(latest, latest_metadata_time(load_metadata_timeline(store, properties)))
            drawn = _draw(store, clock, after=latest)
            # The claims before the table: see `claims`.
            body = say(load_state(store), drawn)
            if body is None:
                return None
            return Decision(
                instant=drawn,
                action=action,
                outcome=Outcome.SCHEDULE,
                plan=packed(body),
                is_of_metadata=is_of_metadata,
            )

        try:
            claim = decide(store, properties, clock, look)
            if claim is not None:
                publish_claim(store, properties, claim)
        finally:
            if drawn is not None:
                stop_heartbeat(store, drawn)
    return None if claim is None else claim.instant


def _refuse_undoing(store: Store, timeline: Timeline) -> None:
    """Refuse to plan on what somebody is taking back: whoever does may have lost the lock."""
    completed = {i.requested for i in timeline.writes}
    for undoing in timeline.pending(Action.ROLLBACK, Action.RESTORE):
        plan = plan_of(store, undoing) if undoing.action is Action.ROLLBACK else None
        if undoing.action is Action.RESTORE or (plan is not None and plan.target in completed):
            raise ConcurrentWriteError(
                f"the {undoing.action} of {undoing.requested} takes committed writes back. Nothing is planned beside "
                f"it. Try again when it is done; if its process died, the next write finishes it."
            )


def _draw(store: Store, clock: Clock, *, after: str) -> str:
    instant = clock.next_instant(after=after)
    while not start_heartbeat(store, instant):
        instant = clock.next_instant(after=after)
    return instant


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """An instant of a service that this process runs."""

    store: Store
    properties: TableProperties
    instant: str
    action: Action
    since: int
    """The number of the newest claim when it began: who rolls it back after that takes a later one."""

    def complete(self, say: Callable[[], Said], *, clock: Clock) -> str:
        """Complete it, unless somebody has rolled it back; see `complete`."""

        def checked(claims: Claims, timeline: Timeline) -> Said:
            undone = claims.rollback_of(self.instant)
            if undone is not None and undone.number > self.since:
                raise taken_for_dead(self)
            if all(i.requested != self.instant for i in timeline.pending(self.action)):
                raise taken_for_dead(self)
            return say()

        return complete(self, checked, clock=clock)


@contextmanager
def alive(
    store: Store, properties: TableProperties, *, instant: str, action: Action, clock: Clock
) -> Iterator[Service]:
    """Run a service's instant: nobody else of ours does while the block runs.

    Two that do all the same, because one of them was taken for dead, do no harm: they put the same files, and one
    of them completes. What somebody has decided to take back, plan and all, is never run.
    """
    if not start_heartbeat(store, instant):
        if is_alive(list_heartbeats(store).get(instant), now_ms=clock.now_ms()):
            raise ConcurrentWriteError(
                f"the {action} of {instant} is under way: the heartbeat of its process is fresh. Wait for it to end; "
                f"if the process is dead, it counts as such two minutes after its last beat: then run it again."
            )
        beat(store, instant)
    claims = list_claims(store)
    undone = claims.rollback_of(instant)
    if undone is not None and not undone.keeps_plan:
        stop_heartbeat(store, instant)
        raise CommitConflictError(
            f"the {action} of {instant} is not run: it was decided to take it back, with its plan. The next write "
            f"finishes that. Plan another."
        )
    service = Service(
        store=store,
        properties=properties,
        instant=instant,
        action=action,
        since=claims.newest.number if claims.newest is not None else 0,
    )
    with Heartbeat(service):
        yield service
