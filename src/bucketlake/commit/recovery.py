"""What dead writers left: finished where it was decided, taken back where it was not.

    a claimed commit that is not published     published, with what stands in its inflight file
    a pending write without a heartbeat        rolled back, as Hudi does it
    a rescale without a heartbeat              left alone for a day: it has a plan, and can be resumed or aborted
    a rollback that was cut off                finished, or withdrawn if what it was to take back was built upon
    a restore that was cut off                 finished
    markers of an instant that is gone         deleted after a while, with what late tasks wrote under them
    rows that its tasks left for each other    removed
    a metadata table that was delisted         built anew, where that was to be

What lives is never touched. Compactions and clusterings are not rolled back by themselves: their plans stand until
they are run. Who wants one taken back asks for it (`roll_back_run`), and gets back to the plan.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import partial

from bucketlake.commit.claims import Claims, Outcome, list_claims
from bucketlake.commit.heartbeat import is_alive, list_heartbeats, stop_heartbeat
from bucketlake.commit.markers import (
    KEPT_MS,
    delete_data_files,
    delete_markers,
    marked_files,
    marked_instants,
)
from bucketlake.commit.metadata_build import build_if_wanted
from bucketlake.commit.operation import PLANNED, TRANSACTIONS
from bucketlake.commit.publishing import is_settled, plan_of, settle
from bucketlake.commit.restore import run_planned_restore
from bucketlake.commit.rollback import RolledBack, Target, built_on, roll_back
from bucketlake.config import TableProperties
from bucketlake.index.keeper import carry_out
from bucketlake.index.keepers import keepers_of
from bucketlake.layout.names import PIECES_FOLDER, pieces_folder
from bucketlake.storage import Store, left_handovers, remove_handover
from bucketlake.timeline import (
    Action,
    Clock,
    Instant,
    Timeline,
    delete_pending,
    load_history,
    load_timeline,
    process_clock,
    read_requested_replace,
    requested_path,
)

RESCALE_KEY = "bucketlake.rescale"
"""Where the requested file of a rescale keeps its plan."""

RESCALE_KEPT_MS = 24 * 60 * 60 * 1000
"""How long after its last sign of life a rescale that was cut off is left alone. While it is, nothing is archived
beyond it."""

_log = logging.getLogger("bucketlake.commit")


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery:
    """What was found and done; prints as a few lines."""

    published: tuple[str, ...] = ()
    """Instants whose commit was decided and is now complete."""
    rolled_back: tuple[RolledBack, ...] = ()
    restored: tuple[str, ...] = ()
    """Savepoints that a restore, now complete, was on its way to."""
    swept: tuple[str, ...] = ()
    """Instants, done or gone before, whose markers were still there."""
    alive: tuple[Instant, ...] = ()
    """Writes, rollbacks and restores under way, which were left alone."""
    resumable: tuple[Instant, ...] = ()
    """Rescales that were cut off, which were left alone too."""

    def __str__(self) -> str:
        lines = [f"completed the commit of {instant}" for instant in self.published]
        lines += [str(done) for done in self.rolled_back]
        lines += [f"completed the restore to {instant}" for instant in self.restored]
        lines += [f"deleted the markers of {instant}" for instant in self.swept]
        lines += [f"left alone the {instant.action} of {instant.requested}: alive" for instant in self.alive]
        lines += [
            f"left alone the rescale of {instant.requested}: resume or abort it" for instant in self.resumable
        ]
        return "\n".join(lines) or "nothing to recover"


@dataclass(frozen=True, slots=True)
class Leftovers:
    """What is looked at before the timeline: whose instant is not there then, is gone."""

    marked: Mapping[str, int]
    """Instants that have markers, with the time of the last."""
    with_pieces: tuple[str, ...]
    claims: Claims


def look_for_leftovers(store: Store) -> Leftovers:
    return Leftovers(marked_instants(store), tuple(left_handovers(store, PIECES_FOLDER)), list_claims(store))


def recover(
    store: Store,
    properties: TableProperties,
    *,
    clock: Clock | None = None,
    given_up: Collection[str] = (),
) -> Recovery:
    """Finish or take back what dead writers of a table left. Safe to run at any time, by several at once.

    A rescale that can be resumed is left alone, unless its instant is among those `given_up`.
    """
    clock = clock or process_clock(properties.timeline_timezone)
    left = look_for_leftovers(store)
    timeline = load_timeline(store, properties)
    return recover_from(store, properties, left, timeline, clock=clock, given_up=given_up)[0]


def recover_from(
    store: Store,
    properties: TableProperties,
    left: Leftovers,
    timeline: Timeline,
    *,
    clock: Clock,
    given_up: Collection[str] = (),
    dead: Collection[str] = (),
) -> tuple[Recovery, Claims, Timeline]:
    """The same, for who has looked already: for what is left, and then at the timeline.

    The writers of the instants in `dead` are known to be gone, however fresh their heartbeats are.

    Returns the claims and the timeline too, as they are then if nobody else does anything.
    """
    assert properties.timeline_layout == 2, "tables of layout 1 are never written"
    # Markers before the timeline: an instant's markers come after its requested file, so one that has markers
    # and is not on the timeline is gone. The timeline before the heartbeats: they come before the requested file.
    claims = left.claims
    published: tuple[str, ...] = ()
    newest = claims.newest
    if newest is not None and not is_settled(store, properties, newest, timeline):
        claims, timeline = settle(store, properties)
        published = (newest.instant,) if newest.outcome is Outcome.COMMIT else ()
    heartbeats = list_heartbeats(store)
    now_ms = clock.now_ms()
    pending = timeline.pending(*TRANSACTIONS, Action.ROLLBACK, Action.RESTORE)
    known_dead = frozenset(dead)
    alive = tuple(
        i
        for i in pending
        if i.requested not in known_dead and is_alive(heartbeats.get(i.requested), now_ms=now_ms)
    )
    if len(alive) < len(pending):
        # A writer that completed just now has no heartbeat either; it is no longer pending when we look again.
        timeline = load_timeline(store, properties)
    gone = {i.requested for i in pending} - {i.requested for i in alive} - _being_undone(store, alive)
    resumable = tuple(
        i
        for i in (pending_rescales(store, timeline) if gone else ())
        if i.requested in gone
        and i.requested not in given_up
        and _is_fresh(i, heartbeats, left.marked, clock)
        and not _is_undone(store, timeline, i)
    )
    gone -= {i.requested for i in resumable}
    # Hudi's rollbacks and restores have no heartbeat, gone or alive: what it takes back is not for us to guess.
    silent = {i.requested for i in pending if i.requested in heartbeats} & gone
    rolled_back = tuple(
        done
        for target in _targets(store, properties, timeline, gone, silent)
        if (
            done := roll_back(
                store,
                properties,
                target,
                clock,
                keep_partitions=bool(alive),
                may_go=partial(_may_go, target.published),
            )
        )
    )
    restored = tuple(
        run_planned_restore(store, properties, restore, clock).savepoint
        for restore in timeline.pending(Action.RESTORE)
        if restore.requested in silent
    )
    known = {i.requested for i in pending}
    candidates = {instant: made_ms for instant, made_ms in left.marked.items() if instant not in known}
    swept = _sweep(store, properties, timeline, candidates, now_ms=now_ms, keep_partitions=bool(alive))
    for instant in (heartbeats.keys() - known) | silent:
        if instant in known_dead or not is_alive(heartbeats[instant], now_ms=now_ms):
            stop_heartbeat(store, instant)
    for instant in set(left.with_pieces) - {i.requested for i in alive}:
        remove_handover(store, pieces_folder(instant))
    build_if_wanted(store, properties, clock=clock)
    if rolled_back or restored:
        claims, timeline = list_claims(store), load_timeline(store, properties)
    found = Recovery(
        published=published,
        rolled_back=rolled_back,
        restored=restored,
        swept=swept,
        alive=alive,
        resumable=resumable,
    )
    if found.published or found.rolled_back or found.restored or found.swept:
        _log.info("%s: %s", store.uri, found)
    return found, claims, timeline


def _being_undone(store: Store, alive: Collection[Instant]) -> frozenset[str]:
    """Return the instants that somebody who is alive is taking back: they look like dead writes."""
    plans = (plan_of(store, i) for i in alive if i.action is Action.ROLLBACK)
    return frozenset(plan.target for plan in plans if plan is not None)


def pending_rescales(store: Store, timeline: Timeline) -> tuple[Instant, ...]:
    """Find the rescales of ours that are neither completed nor taken back, dead or alive, oldest first."""
    return tuple(i for i in timeline.pending(Action.REPLACE_COMMIT) if rescale_plan(store, i) is not None)


def rescale_plan(store: Store, pending: Instant) -> str | None:
    """Return what the requested file of a pending replacecommit says of a rescale, None if it is none of ours."""
    try:
        # Hudi may leave it empty: then it is none of ours.
        if not store.read(requested_path(pending)):
            return None
        return read_requested_replace(store, pending).extra.get(RESCALE_KEY)
    except FileNotFoundError:
        return None  # taken back since the timeline was listed


def _is_undone(store: Store, timeline: Timeline, instant: Instant) -> bool:
    """Tell whether somebody has begun to take an instant back."""
    if list_claims(store).rollback_of(instant.requested) is not None:
        return True
    plans = (plan_of(store, rollback) for rollback in timeline.pending(Action.ROLLBACK))
    return any(plan is not None and plan.target == instant.requested for plan in plans)


def _is_fresh(
    instant: Instant, heartbeats: Mapping[str, int], marked: Mapping[str, int], clock: Clock
) -> bool:
    """Tell whether an instant, or the last sign of life under it, is younger than `RESCALE_KEPT_MS`."""
    signs = [signs[instant.requested] for signs in (heartbeats, marked) if instant.requested in signs]
    since = clock.now_ms() - RESCALE_KEPT_MS
    return max(signs, default=0) > since or instant.requested > clock.instant_at(since)


def _targets(
    store: Store,
    properties: TableProperties,
    timeline: Timeline,
    dead: Collection[str],
    silent: Collection[str],
) -> list[Target]:
    """Find what to roll back: dead writes, and what a rollback was begun of by somebody who is dead now."""
    plans = {
        plan.target: (r, plan)
        for r in timeline.pending(Action.ROLLBACK)
        if r.requested in dead and (plan := plan_of(store, r))
    }
    targets = []
    for instant in timeline.pending(*TRANSACTIONS):
        if instant.requested in dead:
            rollback = plans[instant.requested][0].requested if instant.requested in plans else None
            targets.append(Target.of(instant, rollback=rollback))
    targets += _claimed_plans(store, timeline)
    known = {i.requested: i for i in timeline.instants if i.action not in (Action.ROLLBACK, Action.SAVEPOINT)}
    for target, (rollback_instant, plan) in plans.items():
        found = known.get(target)
        rollback = rollback_instant.requested
        if found is None:
            targets.append(Target(instant=target, action=plan.action, state=None, rollback=rollback))
        elif found.action in PLANNED:
            # One that was completed has another action then, and goes with its plan.
            claim = list_claims(store).rollback_of(target)
            keeps_plan = plan.action in PLANNED if claim is None else claim.keeps_plan
            targets.append(Target.of(found, rollback=rollback, keeps_plan=keeps_plan))
        elif found.is_completed and rollback in silent:
            if list_claims(store).rollback_of(target) is not None or not _is_kept(timeline, found):
                targets.append(Target.of(found, rollback=rollback))
            else:
                delete_pending(store, properties, instant=rollback, action=Action.ROLLBACK)
    return targets


def _claimed_plans(store: Store, timeline: Timeline) -> list[Target]:
    """Find plans, or runs of them, whose rollback was decided by somebody who did not live to announce it."""
    pending = timeline.pending(*PLANNED)
    if not pending:
        return []
    on_timeline = {i.requested for i in timeline.instants}
    claims = list_claims(store)
    decided = [(plan, claims.rollback_of(plan.requested)) for plan in pending]
    return [
        Target.of(plan, rollback=claim.rollback, keeps_plan=claim.keeps_plan)
        for plan, claim in decided
        if claim is not None
        and claim.rollback not in on_timeline
        # An older one was done, and archived since.
        and (timeline.start is None or (claim.rollback or "") > timeline.start)
    ]


def _may_go(published: Instant | None, timeline: Timeline) -> bool:
    """Tell whether a write may be taken back: one that is not committed, or that nobody relies on."""
    return published is None or not _is_kept(timeline, published)


def _is_kept(timeline: Timeline, instant: Instant) -> bool:
    """Tell whether a committed write must stay, because a later one was built on it or a savepoint protects it."""
    return bool(built_on(timeline, instant)) or instant.requested in timeline.savepoints


def _sweep(
    store: Store,
    properties: TableProperties,
    timeline: Timeline,
    marked: Mapping[str, int],
    *,
    now_ms: int,
    keep_partitions: bool,
) -> tuple[str, ...]:
    """Delete the markers of instants that are no longer pending, and what was written under those of gone ones."""
    on_timeline = {instant.requested: instant for instant in timeline.instants}
    swept = []
    for instant, made_ms in marked.items():
        found = on_timeline.get(instant)
        if found is None and now_ms - made_ms < KEPT_MS:
            continue
        if found is not None and not found.is_completed:
            continue
        if found is None and not _may_be_archived(store, properties, timeline, instant):
            files = marked_files(store, instant) or ()
            delete_data_files(store, files, instant=instant, keep_partitions=keep_partitions)
            for keeper in keepers_of(properties):
                carry_out(store, keeper.left_late(store, instant=instant))
        delete_markers(store, instant)
        swept.append(instant)
    return tuple(swept)


def _may_be_archived(store: Store, properties: TableProperties, timeline: Timeline, instant: str) -> bool:
    """Tell whether an instant that is not on the timeline may have been committed: then its files must stay."""
    if not instant.isdigit() or (timeline.start is not None and instant < timeline.start):
        return True
    return any(a.requested == instant for a in load_history(store, properties, since=instant))
