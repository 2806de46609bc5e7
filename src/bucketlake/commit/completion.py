"""How a service's instant begins, is kept alive, and is completed: as a write's, by a claim.

    schedule    a claim; T.<action>.requested, with the plan
    alive       .hoodie/.heartbeat/T while it runs; a second process that comes along is refused
    complete    the body into T.<action>.inflight; a claim; T_C.<action>; markers and heartbeat away

Cut off before its claim, a service is run again by whoever calls it next; cut off after it, it is published by the
next comer of any kind.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from bucketlake.commit.claims import Claim, Claims, Outcome, forget_old, list_claims, packed, take
from bucketlake.commit.commit_lock import commit_lock
from bucketlake.commit.heartbeat import (
    Heartbeat,
    beat,
    is_alive,
    list_heartbeats,
    start_heartbeat,
    stop_heartbeat,
)
from bucketlake.commit.markers import delete_markers
from bucketlake.commit.recovery import latest_time, settle
from bucketlake.config import TableProperties
from bucketlake.errors import CommitConflictError, ConcurrentWriteError
from bucketlake.state import TableState
from bucketlake.storage import Store
from bucketlake.timeline import Action, Clock, Timeline, publish, write_inflight, write_requested

_log = logging.getLogger("bucketlake.services")


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """An instant of a service that this process runs."""

    store: Store
    properties: TableProperties
    instant: str
    action: Action
    since: int
    """The number of the newest claim when it began: who rolls it back after that takes a later one."""


def schedule(state: TableState, claims: Claims, *, action: Action, body: bytes, clock: Clock) -> str | None:
    """Put a plan on the timeline and return its instant; None if somebody was faster, and all must be looked at again.

    The claims were read before the state, and the plan was made of the state: see `claims`.
    """
    store, latest = state.store, latest_time(state.timeline, claims)
    instant = clock.next_instant(after=latest)
    # While the heartbeat is there, no writer draws the same time.
    while not start_heartbeat(store, instant):
        instant = clock.next_instant(after=latest)
    claim = Claim(
        number=claims.next_number,
        instant=instant,
        action=action,
        outcome=Outcome.SCHEDULE,
        completed=instant,
        plan=packed(body),
    )
    is_taken = take(store, claim)
    if is_taken:
        write_requested(store, state.properties, instant=instant, action=action, body=body)
    stop_heartbeat(store, instant)
    return instant if is_taken else None


@contextmanager
def alive(
    store: Store, properties: TableProperties, *, instant: str, action: Action, clock: Clock
) -> Iterator[Service]:
    """Run a service's instant: nobody else of ours does while the block runs.

    Two that do all the same, because one of them was taken for dead, do no harm: they put the same files, and one
    of them completes.
    """
    if not start_heartbeat(store, instant):
        if is_alive(list_heartbeats(store).get(instant), now_ms=clock.now_ms()):
            raise ConcurrentWriteError(
                f"the {action} of {instant} is under way: the heartbeat of its process is fresh. Wait for it to end; "
                f"if the process is dead, it counts as such two minutes after its last beat: then run it again."
            )
        beat(store, instant)
    newest = list_claims(store).newest
    service = Service(
        store=store,
        properties=properties,
        instant=instant,
        action=action,
        since=newest.number if newest is not None else 0,
    )
    with Heartbeat(service):
        yield service


def complete(
    service: Service,
    say: Callable[[], bytes],
    *,
    clock: Clock,
    before_publishing: Callable[[], object] = lambda: None,
) -> str:
    """Complete a service's instant; return its completion time, which may be another process's.

    `say` makes its body, and may refuse by raising. What it sees of the table is all there is: nobody completes
    anything in between. `before_publishing` is done once it is decided that the instant completes, and before anybody
    sees it; should this process die in between, it is not done.
    """
    with commit_lock(service.store, service.properties, service.instant, clock):
        completed = _complete(service, say, clock, before_publishing)
    _tidy(service)
    return completed


def _complete(
    service: Service, say: Callable[[], bytes], clock: Clock, before_publishing: Callable[[], object]
) -> str:
    store, properties = service.store, service.properties
    while True:
        claims, timeline = settle(store, properties)
        completed = completion_of(timeline, service.instant, service.action)
        if completed is not None:
            return completed
        undone = claims.rollback_of(service.instant)
        if (undone is not None and undone.number > service.since) or not _is_pending(timeline, service):
            raise CommitConflictError(
                f"the {service.action} of {service.instant} cannot complete: somebody has taken it for dead and "
                f"rolled it back. Nothing of it is visible. Run it again."
            )
        body = say()
        write_inflight(store, properties, instant=service.instant, action=service.action, body=body)
        claim = Claim(
            number=claims.next_number,
            instant=service.instant,
            action=service.action,
            outcome=Outcome.COMMIT,
            completed=clock.next_instant(after=latest_time(timeline, claims)),
        )
        if take(store, claim):
            completed = claim.completed
            before_publishing()
            publish(
                store,
                properties,
                instant=service.instant,
                action=service.action,
                completed=completed,
                body=body,
            )
            _forget(store, claim)
            return completed


def completion_of(timeline: Timeline, instant: str, action: Action) -> str | None:
    """Return when the instant of a service was completed, None if it was not."""
    done = timeline.completed(action.when_completed)
    return next((i.completed for i in done if i.requested == instant), None)


def _is_pending(timeline: Timeline, service: Service) -> bool:
    return any(i.requested == service.instant for i in timeline.pending(service.action))


def _forget(store: Store, claim: Claim) -> None:
    try:
        forget_old(store, claim)
    except Exception as fault:
        _log.warning("old claims are still there: %s", fault)


def _tidy(service: Service) -> None:
    """Remove what a completed service needs no more. It is completed, so nothing here may fail it."""
    try:
        delete_markers(service.store, service.instant)
    except Exception as fault:
        _log.warning("%s is completed, but its markers may still be there: %s", service.instant, fault)
