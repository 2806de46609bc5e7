"""Go back to a savepoint: every later instant is rolled back, the newest first.

    R.restore.requested names the instants; each is rolled back as ever; R_C.restore; the rollbacks go

A reader between two of the rollbacks sees the table as it was between two of its commits. One that was cut off is
finished by the next comer. Ours have a heartbeat under the restore's time, Hudi's have none: those are Hudi's to
finish.
"""

from __future__ import annotations

import logging

from bucketlake.commit.claims import Claims, Outcome
from bucketlake.commit.locks import table_lock
from bucketlake.commit.markers import files_of_instant
from bucketlake.commit.metadata_build import build_if_wanted
from bucketlake.commit.publishing import Decision, completed_time, decide, plan_of, publish_claim
from bucketlake.commit.rollback import Target, roll_back
from bucketlake.config import TableProperties, load_properties
from bucketlake.layout import list_table
from bucketlake.storage import Store
from bucketlake.timeline import (
    Action,
    Clock,
    Instant,
    RestorePlan,
    Timeline,
    delete_pending,
    encode_restore_metadata,
    load_timeline,
    read_restore_plan,
    read_rollback_metadata,
    write_inflight,
)

_log = logging.getLogger("bucketlake.write")


def run_planned_restore(
    store: Store, properties: TableProperties, restore: Instant, clock: Clock
) -> RestorePlan:
    """Do what a restore's requested file says, or what is left of it, and complete it."""
    plan = read_restore_plan(store, restore)
    started_ms = clock.now_ms()
    write_inflight(store, properties, instant=restore.requested, action=Action.RESTORE)
    table = list_table(store, is_partitioned=bool(properties.partition_fields))
    files = [file for group in table.files.values() for file in group]
    for requested, action in plan.instants:
        timeline = load_timeline(store, properties)
        target = _target(store, timeline, requested, action, files_of_instant(files, requested))
        if target is not None:
            roll_back(store, properties, target, clock, keep_partitions=False)
    _complete(store, properties, restore, plan, clock, started_ms)
    _log.info("%s: restored to %s, %d instants", store.uri, plan.savepoint, len(plan.instants))
    return plan


def _complete(
    store: Store,
    properties: TableProperties,
    restore: Instant,
    plan: RestorePlan,
    clock: Clock,
    started_ms: int,
) -> None:
    rollbacks: dict[str, Instant] = {}

    def look(claims: Claims, timeline: Timeline) -> Decision | None:  # noqa: ARG001 # as others are shown them
        nonlocal rollbacks
        try:
            rollbacks = _rollbacks(store, timeline, plan)
            if completed_time(timeline, restore.requested, Action.RESTORE) is not None:
                return None
            told = {target: store.read(rollback.path) for target, rollback in rollbacks.items()}
        except FileNotFoundError:
            if _is_done(store, properties, restore):
                return None  # by another, who is taking them away
            raise
        body = encode_restore_metadata(
            plan,
            rollbacks=told,
            started=restore.requested,
            taken_ms=max(0, clock.now_ms() - started_ms),
        )
        write_inflight(store, properties, instant=restore.requested, action=Action.RESTORE, body=body)
        return Decision(instant=restore.requested, action=Action.RESTORE, outcome=Outcome.COMMIT)

    with table_lock(store):
        claim = decide(store, properties, clock, look)
        if claim is not None:
            publish_claim(store, properties, claim)
    # The restore tells all that they told; Hudi deletes them too.
    for rollback in rollbacks.values():
        delete_pending(store, properties, instant=rollback.requested, action=Action.ROLLBACK)
        store.delete(rollback.path)
    build_if_wanted(store, load_properties(store), clock=clock)


def _is_done(store: Store, properties: TableProperties, restore: Instant) -> bool:
    return completed_time(load_timeline(store, properties), restore.requested, Action.RESTORE) is not None


def _target(
    store: Store, timeline: Timeline, requested: str, action: Action, files: tuple[str, ...]
) -> Target | None:
    """Find an instant of the plan, or its rollback that was cut off; None if it was rolled back before."""
    pending = {
        plan.target: rollback
        for rollback in timeline.pending(Action.ROLLBACK)
        if (plan := plan_of(store, rollback))
    }
    rollback = pending[requested].requested if requested in pending else None
    for instant in timeline.instants:
        if instant.requested == requested and instant.action.when_completed is action.when_completed:
            return Target.of(instant, rollback=rollback, files=files)
    if rollback is None:
        return None
    return Target(instant=requested, action=action, state=None, rollback=rollback, files=files)


def _rollbacks(store: Store, timeline: Timeline, plan: RestorePlan) -> dict[str, Instant]:
    """Return the rollbacks of the plan's instants, in its order."""
    found: dict[str, Instant] = {}
    for rollback in timeline.completed(Action.ROLLBACK):
        if rollback.requested > plan.savepoint:
            found |= dict.fromkeys(read_rollback_metadata(store, rollback).rolled_back, rollback)
    return {requested: found[requested] for requested, _ in plan.instants if requested in found}
