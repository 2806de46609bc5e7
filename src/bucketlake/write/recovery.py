"""What dead writers left: finished where it was decided, taken back where it was not.

    a claimed commit that is not published     published, with what stands in its inflight file
    a pending write without a heartbeat        rolled back, as Hudi does it
    a rollback that was cut off                finished
    markers of an instant that is gone         deleted after a while, with what late tasks wrote under them

A rollback goes claim, plan, data files, instant files, completed rollback: whoever is cut off in the middle leaves a
pending instant or a pending rollback, and either leads the next comer to the rest. All of it may be done twice, or
by two at once.

What lives is never touched. Compactions and clusterings are not rolled back: their plans stand until they are run.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from bucketlake.config import TableProperties
from bucketlake.layout import list_table
from bucketlake.layout.names import hashing_config_path, path_in_partition, split_path
from bucketlake.storage import Store
from bucketlake.timeline import (
    Action,
    Clock,
    Instant,
    InstantName,
    RollbackMetadata,
    RollbackPlan,
    State,
    Timeline,
    delete_pending,
    encode_rollback_metadata,
    encode_rollback_plan,
    instant_path,
    load_history,
    load_timeline,
    process_clock,
    publish,
    read_rollback_plan,
    requested_path,
    write_inflight,
    write_requested,
)
from bucketlake.write.claims import Claim, Claims, Outcome, list_claims, take
from bucketlake.write.heartbeat import is_alive, list_heartbeats, stop_heartbeat
from bucketlake.write.markers import (
    KEPT_MS,
    delete_data_files,
    delete_markers,
    files_of_instant,
    marked_files,
    marked_instants,
)

TRANSACTIONS = (Action.COMMIT, Action.DELTA_COMMIT, Action.REPLACE_COMMIT)
"""Pending instants of these are writes that only their writer can finish."""

_log = logging.getLogger("bucketlake.write")


@dataclass(frozen=True, slots=True, kw_only=True)
class RolledBack:
    instant: str
    action: Action
    files: tuple[str, ...]
    """The data files it had announced; some may never have been written."""

    def __str__(self) -> str:
        return f"rolled back the {self.action} of {self.instant}, {len(self.files)} files"


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery:
    """What was found and done; prints as a few lines."""

    published: tuple[str, ...] = ()
    """Instants whose commit was decided and is now complete."""
    rolled_back: tuple[RolledBack, ...] = ()
    swept: tuple[str, ...] = ()
    """Instants, done or gone before, whose markers were still there."""
    alive: tuple[Instant, ...] = ()
    """Writes under way, which were left alone."""

    def __str__(self) -> str:
        lines = [f"completed the commit of {instant}" for instant in self.published]
        lines += [str(done) for done in self.rolled_back]
        lines += [f"deleted the markers of {instant}" for instant in self.swept]
        lines += [f"left alone the {instant.action} of {instant.requested}: alive" for instant in self.alive]
        return "\n".join(lines) or "nothing to recover"


def recover(store: Store, properties: TableProperties, *, clock: Clock | None = None) -> Recovery:
    """Finish or take back what dead writers of a table left. Safe to run at any time, by several at once."""
    assert properties.timeline_layout == 2, "tables of layout 1 are never written"
    clock = clock or process_clock(properties.timeline_timezone)
    # Markers before the timeline: an instant's markers come after its requested file, so one that has markers
    # and is not on the timeline is gone. The timeline before the heartbeats: they come before the requested file.
    marked = marked_instants(store)
    newest = list_claims(store).newest
    timeline = load_timeline(store, properties)
    published: tuple[str, ...] = ()
    if newest is not None and not is_settled(store, properties, newest, timeline):
        publish_claimed(store, properties, newest)
        published = (newest.instant,)
        timeline = load_timeline(store, properties)
    heartbeats = list_heartbeats(store)
    now_ms = clock.now_ms()
    pending = timeline.pending(*TRANSACTIONS)
    alive = tuple(i for i in pending if is_alive(heartbeats.get(i.requested), now_ms=now_ms))
    if len(alive) < len(pending):
        # A writer that completed just now has no heartbeat either; it is no longer pending when we look again.
        timeline = load_timeline(store, properties)
    dead = {i.requested for i in pending} - {i.requested for i in alive}
    rolled_back = tuple(
        done
        for target in _targets(store, timeline, dead)
        if (done := _roll_back(store, properties, target, clock, keep_partitions=bool(alive)))
    )
    known = {i.requested for i in pending}
    candidates = {instant: made_ms for instant, made_ms in marked.items() if instant not in known}
    swept = _sweep(store, properties, timeline, candidates, now_ms=now_ms, keep_partitions=bool(alive))
    for instant in heartbeats.keys() - known:
        if not is_alive(heartbeats[instant], now_ms=now_ms):
            stop_heartbeat(store, instant)
    found = Recovery(published=published, rolled_back=rolled_back, swept=swept, alive=alive)
    if found.published or found.rolled_back or found.swept:
        _log.info("%s: %s", store.uri, found)
    return found


def is_settled(store: Store, properties: TableProperties, claim: Claim, timeline: Timeline) -> bool:
    """Tell whether nothing is left to do for a claimed commit: it is published, or void, its instant being gone.

    A claimed rollback is always settled in this sense: it keeps the instant from being committed, and that is all
    that those who claim after it rely on.
    """
    if claim.outcome is Outcome.ROLLBACK or completed_time(timeline, claim.instant) is not None:
        return True
    # Hudi rolls a completed commit back by making it inflight again; it is not for us to complete it once more.
    rollbacks = (_plan_of(store, rollback) for rollback in timeline.pending(Action.ROLLBACK))
    if any(plan is not None and plan.target == claim.instant for plan in rollbacks):
        return True
    return not _read_or_empty(store, _inflight_path(properties, claim))


def publish_claimed(store: Store, properties: TableProperties, claim: Claim) -> None:
    """Publish a claimed commit with the body that its writer had put into the inflight file before."""
    assert claim.outcome is Outcome.COMMIT
    body = _read_or_empty(store, _inflight_path(properties, claim))
    if body:
        publish(
            store,
            properties,
            instant=claim.instant,
            action=claim.action,
            completed=claim.completed,
            body=body,
        )


def completed_time(timeline: Timeline, instant: str) -> str | None:
    """Return when the write requested at `instant` was completed, None if it was not."""
    return next((i.completed for i in timeline.writes if i.requested == instant), None)


def latest_time(timeline: Timeline, claims: Claims) -> str:
    """Return the latest time that anybody has used: every new one must be later."""
    times = [time for i in timeline.instants for time in (i.requested, i.completed) if time is not None]
    return max([*times, claims.newest.completed if claims.newest else ""])


@dataclass(frozen=True, slots=True)
class _Target:
    """An instant to roll back."""

    instant: str
    action: Action
    state: State | None
    """None if it is gone already, and only its rollback is left to finish."""
    rollback: str | None
    """A pending rollback of it, to go on with."""


def _targets(store: Store, timeline: Timeline, dead: Collection[str]) -> list[_Target]:
    plans = {
        plan.target: (r, plan) for r in timeline.pending(Action.ROLLBACK) if (plan := _plan_of(store, r))
    }
    known = {i.requested for i in timeline.instants if i.action is not Action.ROLLBACK}
    targets = []
    for instant in timeline.pending(*TRANSACTIONS):
        if instant.requested in dead:
            rollback = plans[instant.requested][0].requested if instant.requested in plans else None
            targets.append(_Target(instant.requested, instant.action, instant.state, rollback))
    for target, (rollback_instant, plan) in plans.items():
        if target not in known:
            targets.append(_Target(target, plan.action, None, rollback_instant.requested))
    return targets


def _plan_of(store: Store, rollback: Instant) -> RollbackPlan | None:
    """Read the plan of a pending rollback; None if it is of no use, because Hudi was cut off while writing it."""
    try:
        if not store.read(requested_path(rollback)):
            return None
        return read_rollback_plan(store, rollback)
    except FileNotFoundError:
        return None


def _roll_back(
    store: Store, properties: TableProperties, target: _Target, clock: Clock, *, keep_partitions: bool
) -> RolledBack | None:
    """Take one instant back; None if it turns out to be committed."""
    claim = _claim_rollback(store, properties, target, clock)
    if claim is None:
        return None
    assert claim.rollback is not None
    started_ms = clock.now_ms()
    files = _files_to_delete(store, properties, target, claim.rollback)
    by_partition: dict[str, tuple[str, ...]] = {}
    for path in files:
        partition, name = split_path(path)
        by_partition[partition] = (*by_partition.get(partition, ()), name)
    plan = RollbackPlan(target=target.instant, action=target.action, files=by_partition)
    write_requested(
        store,
        properties,
        instant=claim.rollback,
        action=Action.ROLLBACK,
        body=encode_rollback_plan(plan, root=store.uri),
    )
    write_inflight(store, properties, instant=claim.rollback, action=Action.ROLLBACK)
    delete_data_files(store, files, instant=target.instant, keep_partitions=keep_partitions)
    if target.action is Action.REPLACE_COMMIT:
        # The bucket rules of a rescale that did not happen; Hudi would go on reading them.
        store.delete(hashing_config_path(target.instant))
    delete_pending(store, properties, instant=target.instant, action=target.action)
    publish(
        store,
        properties,
        instant=claim.rollback,
        action=Action.ROLLBACK,
        completed=claim.completed,
        body=encode_rollback_metadata(
            RollbackMetadata(rolled_back=(target.instant,), files_deleted=len(files), deleted=by_partition),
            action=target.action,
            started=claim.rollback,
            taken_ms=max(0, clock.now_ms() - started_ms),
            root=store.uri,
        ),
    )
    stop_heartbeat(store, target.instant)
    return RolledBack(instant=target.instant, action=target.action, files=files)


def _claim_rollback(store: Store, properties: TableProperties, target: _Target, clock: Clock) -> Claim | None:
    """Decide that an instant is rolled back, or find that decided; None if it was committed instead."""
    while True:
        claims = list_claims(store)
        decided = claims.rollback_of(target.instant)
        if decided is not None:
            return decided
        newest = claims.newest
        timeline = load_timeline(store, properties)
        if newest is not None and not is_settled(store, properties, newest, timeline):
            publish_claimed(store, properties, newest)
            continue
        if completed_time(timeline, target.instant) is not None:
            return None
        latest = latest_time(timeline, claims)
        rollback = target.rollback or clock.next_instant(after=latest)
        claim = Claim(
            number=claims.next_number,
            instant=target.instant,
            action=target.action,
            outcome=Outcome.ROLLBACK,
            completed=clock.next_instant(after=max(latest, rollback)),
            rollback=rollback,
        )
        if take(store, claim):
            return claim


def _files_to_delete(
    store: Store, properties: TableProperties, target: _Target, rollback: str
) -> tuple[str, ...]:
    """Find what an instant has, or may have, written: by its markers, and by the plan if there is one.

    A write without any marker may have lost them, or be one that Hudi ran without; then the whole table is looked
    through. A file left behind would be taken for committed once the timeline is archived beyond it.
    """
    marked = marked_files(store, target.instant)
    planned: set[str] = set()
    path = instant_path(properties, InstantName(rollback, Action.ROLLBACK, State.REQUESTED))
    if _read_or_empty(store, path):
        plan = read_rollback_plan(store, Instant(rollback, Action.ROLLBACK, State.REQUESTED, None, path))
        planned = {path_in_partition(p, name) for p, names in plan.files.items() for name in names}
    elif marked is None and target.state is State.INFLIGHT:
        table = list_table(store, is_partitioned=bool(properties.partition_fields))
        marked = files_of_instant((file for files in table.values() for file in files), target.instant)
    return tuple(sorted({*(marked or ()), *planned}))


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
        delete_markers(store, instant)
        swept.append(instant)
    return tuple(swept)


def _may_be_archived(store: Store, properties: TableProperties, timeline: Timeline, instant: str) -> bool:
    """Tell whether an instant that is not on the timeline may have been committed: then its files must stay."""
    if not instant.isdigit() or (timeline.start is not None and instant < timeline.start):
        return True
    return any(a.requested == instant for a in load_history(store, properties, since=instant))


def _inflight_path(properties: TableProperties, claim: Claim) -> str:
    return instant_path(properties, InstantName(claim.instant, claim.action, State.INFLIGHT))


def _read_or_empty(store: Store, path: str) -> bytes:
    try:
        return store.read(path)
    except FileNotFoundError:
        return b""
