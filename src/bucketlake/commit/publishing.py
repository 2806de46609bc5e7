"""One way to publish: what a claim has decided becomes what everybody sees, whoever does it.

    settle       finish what the newest claim has left open, under the table's lock
    decide       take a claim on what was seen then: the only loop that does
    publish      T_C.<action>, with the body that stands in T.<action>.inflight
    unpublish    T_C.<action> away; T is inflight again, with an empty body

Everything that publishing takes stands in the inflight file or follows from the table, so any process repeats it after
a crash: the one that decided, the next comer, or who wants to take the instant back. Nothing else writes a completed
instant. An instant that was unpublished stays inflight until all that hangs on it is undone; its body is empty, so who
slept since it was decided has nothing to publish.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from bucketlake.commit.claims import Claim, Claims, Outcome, latest_time, list_claims, take, unpacked
from bucketlake.commit.locks import table_lock
from bucketlake.commit.metadata_table import check_types, checked_step, is_listed, latest_metadata_time
from bucketlake.commit.metadata_table import follow as put_into_metadata
from bucketlake.config import TableProperties, load_properties
from bucketlake.index.keeper import NOTHING, carry_out
from bucketlake.index.keepers import keepers_of
from bucketlake.metadata.change import tells_of
from bucketlake.metadata.indexed_columns import indexed_columns
from bucketlake.metadata.places import COLUMN_STATS, timeline_properties
from bucketlake.metadata.step import load_metadata_timeline
from bucketlake.storage import Store
from bucketlake.timeline import (
    Action,
    Clock,
    Instant,
    InstantName,
    RollbackPlan,
    State,
    Timeline,
    instant_path,
    load_timeline,
    publish,
    read_restore_metadata,
    read_rollback_metadata,
    read_rollback_plan,
    requested_path,
    write_inflight,
    write_requested,
)

_log = logging.getLogger("bucketlake.commit")


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What somebody wants to become of an instant."""

    instant: str
    action: Action
    outcome: Outcome
    rollback: str | None = None
    plan: str | None = None
    keeps_plan: bool = False
    is_of_metadata: bool = False


def decide(
    store: Store,
    properties: TableProperties,
    clock: Clock,
    look: Callable[[Claims, Timeline], Decision | None],
) -> Claim | None:
    """Take the claim that `look` asks for; None if it asks for none.

    It is shown the claims and the timeline, with nothing left open, and may refuse by raising. Whoever was faster shows
    in the next look.
    """
    while True:
        claims, timeline = settle(store, properties)
        decision = look(claims, timeline)
        if decision is None:
            return None
        latest = max(latest_time(timeline, claims), decision.instant, decision.rollback or "")
        is_plan = decision.outcome is Outcome.SCHEDULE
        followed = _NOT_FOLLOWED
        if decision.outcome is Outcome.ROLLBACK or (not is_plan and tells_of(decision.action)):
            followed = _in_metadata(store, timeline, clock, decision, after=latest)
            latest = followed.completed or latest
        claim = Claim(
            number=claims.next_number,
            instant=decision.instant,
            action=decision.action,
            outcome=decision.outcome,
            completed=decision.instant if is_plan else clock.next_instant(after=latest),
            rollback=decision.rollback,
            plan=decision.plan,
            keeps_plan=decision.keeps_plan,
            is_of_metadata=decision.is_of_metadata,
            metadata_completed=followed.completed,
            metadata_partitions=followed.partitions,
            metadata_columns=followed.columns,
        )
        if take(store, claim):
            return claim


@dataclass(frozen=True, slots=True)
class _Followed:
    """How the metadata table follows what is decided: when, in which of its partitions, of which columns."""

    completed: str | None = None
    partitions: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()


_NOT_FOLLOWED = _Followed()


def _in_metadata(
    store: Store, timeline: Timeline, clock: Clock, decision: Decision, *, after: str
) -> _Followed:
    """Choose how the metadata table follows, if there is one to keep.

    Somebody may have built it since we began. What is put on top of a gap hides the gap for good, so a commit is
    refused then; a rollback is not.
    """
    properties = load_properties(store)
    if not is_listed(properties):
        return _NOT_FOLLOWED
    if decision.outcome is Outcome.COMMIT:
        step = checked_step(store, properties, timeline)
        own = step.metadata
        if decision.action is not Action.CLEAN:
            body = read_inflight(store, properties, decision.instant, decision.action)
            path = instant_path(properties, InstantName(decision.instant, decision.action, State.INFLIGHT))
            if body:
                check_types(store, properties, step, body=body, path=path)
        properties = load_properties(store)  # without what was delisted
    else:
        own = load_metadata_timeline(store, properties)
    partitions = properties.metadata_partitions
    columns = indexed_columns(store) if COLUMN_STATS in partitions else None
    completed = clock.next_instant(after=max(after, latest_metadata_time(own)))
    return _Followed(completed, partitions, columns or ())


def settle(store: Store, properties: TableProperties) -> tuple[Claims, Timeline]:
    """Finish what the newest claim left open; return the claims and, read after them, the timeline."""
    claims, timeline, newest = _open_claim(store, properties)
    if newest is not None:
        with table_lock(store):
            claims, timeline, newest = _open_claim(store, properties)
            while newest is not None:
                publish_claim(store, properties, newest)
                claims, timeline, newest = _open_claim(store, properties)
    return claims, timeline


def _open_claim(store: Store, properties: TableProperties) -> tuple[Claims, Timeline, Claim | None]:
    claims = list_claims(store)
    timeline = load_timeline(store, properties)
    newest = claims.newest
    is_open = newest is not None and not is_settled(store, properties, newest, timeline)
    return claims, timeline, newest if is_open else None


def is_settled(store: Store, properties: TableProperties, claim: Claim, timeline: Timeline) -> bool:
    """Tell whether nothing is left to do for a claim: it is published, or void, its instant being gone.

    A claimed plan is void if somebody has completed something after it without knowing of it, as Hudi may.

    A claimed rollback is always settled in this sense: it keeps the instant from being committed, and that is all
    that those who claim after it rely on.
    """
    if claim.outcome is Outcome.ROLLBACK or _is_published(timeline, claim):
        return True
    if claim.outcome is Outcome.SCHEDULE:
        if claim.is_of_metadata:
            if not is_listed(load_properties(store)):
                return True
            timeline = load_metadata_timeline(store, properties)
        return any(
            claim.instant == i.requested or (i.completed or "") > claim.instant for i in timeline.instants
        )
    # Hudi rolls a completed commit back by making it inflight again; it is not for us to complete it once more.
    rollbacks = (plan_of(store, rollback) for rollback in timeline.pending(Action.ROLLBACK))
    if any(plan is not None and plan.target == claim.instant for plan in rollbacks):
        return True
    return not read_inflight(store, properties, claim.instant, claim.action) or _was_undone(
        store, properties, timeline, claim
    )


def publish_claim(
    store: Store, properties: TableProperties, claim: Claim, *, is_just_taken: bool = False
) -> None:
    """Do what a claim says, or nothing if that is void by now. For who holds the table's lock.

    Others are looked for before each step, unless the claim `is_just_taken`: then they were before the first.
    """
    match claim.outcome:
        case Outcome.SCHEDULE:
            assert claim.plan is not None
            body = unpacked(claim.plan)
            own = timeline_properties(properties) if claim.is_of_metadata else properties
            write_requested(store, own, instant=claim.instant, action=claim.action, body=body)
        case Outcome.COMMIT:
            for keeper in keepers_of(properties):
                upkeep = keeper.before_publishing(
                    store, properties, instant=claim.instant, action=claim.action
                )
                carry_out(store, upkeep)
                is_just_taken = is_just_taken and upkeep == NOTHING
            if is_just_taken or not _is_overtaken(store, claim):
                _follow_in_metadata(store, properties, claim)
                complete_instant(
                    store, properties, instant=claim.instant, action=claim.action, completed=claim.completed
                )
                _follow(store, properties, claim.action)
        case Outcome.ROLLBACK:
            pass  # who takes the instant back does all of it


def _follow_in_metadata(store: Store, properties: TableProperties, claim: Claim) -> None:
    if claim.metadata_completed is None:
        return
    body = read_inflight(store, properties, claim.instant, claim.action)
    if body:
        put_into_metadata(
            store,
            properties,
            instant=claim.instant,
            action=claim.action,
            completed=claim.metadata_completed,
            body=body,
            partitions=claim.metadata_partitions,
            columns=claim.metadata_columns,
            is_void=lambda: _is_overtaken(store, claim),
        )


def complete_instant(
    store: Store, properties: TableProperties, *, instant: str, action: Action, completed: str
) -> None:
    """Publish an instant with what stands in its inflight file. If that is empty, or gone, it was taken back."""
    body = read_inflight(store, properties, instant, action)
    if body:
        publish(store, properties, instant=instant, action=action, completed=completed, body=body)


def unpublish(store: Store, properties: TableProperties, instant: Instant) -> None:
    """Let a completed instant be inflight again, without a body.

    A completed compaction has the action of a commit, but its pending files have their own.
    """
    assert instant.is_completed
    actions = [action for action in Action if action.when_completed is instant.action.when_completed]
    names = {a: InstantName(instant.requested, a, State.INFLIGHT) for a in actions}
    pending = [a for a, name in names.items() if _exists(store, instant_path(properties, name))]
    for action in pending or [instant.action]:
        write_requested(store, properties, instant=instant.requested, action=action)
        write_inflight(store, properties, instant=instant.requested, action=action)
    store.delete(instant.path)


def follow(store: Store, properties: TableProperties, timeline: Timeline) -> None:
    """Let what engines keep follow what is published."""
    for keeper in keepers_of(properties):
        carry_out(store, keeper.after_publishing(store, properties, timeline))


def completed_time(timeline: Timeline, instant: str, action: Action) -> str | None:
    """Return when an instant was completed, None if it was not."""
    done = timeline.completed(action.when_completed)
    return next((i.completed for i in done if i.requested == instant), None)


def plan_of(store: Store, rollback: Instant) -> RollbackPlan | None:
    """Read the plan of a pending rollback; None if it is of no use, because Hudi was cut off while writing it."""
    try:
        if not store.read(requested_path(rollback)):
            return None
        return read_rollback_plan(store, rollback)
    except FileNotFoundError:
        return None


def read_inflight(store: Store, properties: TableProperties, instant: str, action: Action) -> bytes:
    """Return the body of a pending instant; empty if it has none, or is gone."""
    try:
        return store.read(instant_path(properties, InstantName(instant, action, State.INFLIGHT)))
    except FileNotFoundError:
        return b""


def _follow(store: Store, properties: TableProperties, action: Action) -> None:
    """The instant is published, so nothing here may fail it; the next writer finds what is left to do."""
    if action.when_completed is not Action.REPLACE_COMMIT:
        return
    try:
        follow(store, load_properties(store), load_timeline(store, properties))
    except Exception as fault:
        _log.warning("what the index keeps of %s is not in step yet: %s", store.uri, fault)


def _is_overtaken(store: Store, claim: Claim) -> bool:
    """Tell whether others have gone on since a claim was taken, and whoever took it slept.

    They have settled it first: it is published, or was taken back since.
    """
    claims = list_claims(store)
    return claims.newest is not None and claims.newest.number > claim.number


def _is_published(timeline: Timeline, claim: Claim) -> bool:
    return completed_time(timeline, claim.instant, claim.action) is not None


def _was_undone(store: Store, properties: TableProperties, timeline: Timeline, claim: Claim) -> bool:
    """Tell whether a commit was taken back after it was claimed. Hudi's restore leaves a clustering pending again.

    What a restore is made of goes when it is done, and the restore tells it then.
    """
    while True:
        later = [
            i for i in timeline.completed(Action.ROLLBACK, Action.RESTORE) if i.requested > claim.completed
        ]
        try:
            return any(claim.instant in _undone_by(store, one) for one in later)
        except FileNotFoundError:
            timeline = load_timeline(store, properties)


def _undone_by(store: Store, later: Instant) -> tuple[str, ...]:
    read = read_restore_metadata if later.action is Action.RESTORE else read_rollback_metadata
    return read(store, later).rolled_back


def _exists(store: Store, path: str) -> bool:
    try:
        store.stat(path)
    except FileNotFoundError:
        return False
    return True
