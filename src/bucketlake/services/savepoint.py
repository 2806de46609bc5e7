"""Savepoints: a moment of the table that stays, and the way back to it.

    create     T_C.savepoint lists the files a reader saw after the write T; clean and archive keep off them
    delete     takes that back
    restore    rolls back everything completed after T, the newest first

`plan_restore` decides; `run_restore` does it and can be finished by anybody if it is cut off.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from bucketlake.commit.claims import Claims, Outcome
from bucketlake.commit.heartbeat import stop_heartbeat
from bucketlake.commit.locks import table_lock
from bucketlake.commit.operation import TRANSACTIONS
from bucketlake.commit.publishing import Decision, completed_time, decide, publish_claim, settle
from bucketlake.commit.recovery import recover
from bucketlake.commit.restore import run_planned_restore
from bucketlake.commit.stream import batches_in
from bucketlake.commit.writable import check_writable
from bucketlake.config import TableProperties, TableType
from bucketlake.errors import CommitConflictError, ConfigError, DamagedFileError, InstantError
from bucketlake.layout import DataFile, TimelineView, slices_of
from bucketlake.layout.names import path_in_partition
from bucketlake.services.rollback import announced_time, check_layout, refuse_others, refuse_the_living
from bucketlake.services.wanted_indexes import build_wanted_indexes
from bucketlake.state import (
    TableState,
    check_as_of,
    cleaned_after,
    cleaned_file,
    commit_metadata,
    files_of,
    list_folders,
    load_state,
    view_for,
)
from bucketlake.storage import Store, in_parallel
from bucketlake.timeline import (
    WRITE_ACTIONS,
    Action,
    Clock,
    Instant,
    RestorePlan,
    SavepointMetadata,
    State,
    Timeline,
    delete_pending,
    encode_restore_plan,
    encode_savepoint,
    load_history,
    load_timeline,
    process_clock,
    read_savepoint_metadata,
    write_inflight,
    write_requested,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Savepoint:
    """A protected moment; prints as a line."""

    instant: str
    """The write after which the table looked so."""
    completed: str | None
    """When it was protected; None if that was cut off."""
    metadata: SavepointMetadata

    @property
    def file_count(self) -> int:
        return sum(len(names) for names in self.metadata.files.values())

    def __str__(self) -> str:
        by = f" by {self.metadata.created_by}" if self.metadata.created_by else ""
        comment = f": {self.metadata.comment}" if self.metadata.comment else ""
        return f"{self.instant}, {self.file_count:,} files{by}{comment}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreOrder:
    """What a restore is to do; prints as a few lines."""

    savepoint: str
    instants: tuple[Instant, ...]
    """To roll back, in this order."""
    files: tuple[DataFile, ...]
    batches: tuple[str, ...] = ()
    """Which batches of streams go with them, a line for each stream."""

    @property
    def size_bytes(self) -> int:
        return sum(file.size_bytes for file in self.files)

    def __str__(self) -> str:
        lines = [
            f"restore to {self.savepoint}: {len(self.instants):,} instants, {len(self.files):,} files, "
            f"{self.size_bytes:,} bytes"
        ]
        lines += [f"  roll back the {i.action} of {i.requested}" for i in self.instants]
        lines += [f"  {line}" for line in self.batches]
        return "\n".join(lines)


def list_savepoints(state: TableState) -> tuple[Savepoint, ...]:
    """Return the savepoints of a table, the oldest first."""
    return tuple(
        Savepoint(
            instant=i.requested,
            completed=i.completed,
            metadata=read_savepoint_metadata(state.store, i),
        )
        for i in state.timeline.completed(Action.SAVEPOINT)
    )


def create_savepoint(
    store: Store, instant: str | None = None, *, user: str = "", comment: str = "", clock: Clock | None = None
) -> Savepoint:
    """Protect the table as it was after the write `instant`, or as it is: its files stay until this is deleted."""
    state = load_state(store)
    check_writable(state)
    properties = state.properties
    clock = clock or process_clock(properties.timeline_timezone)
    with table_lock(store, now_ms=clock.now_ms):
        before = load_state(store).timeline.savepoints
        settle(store, properties)
        state = load_state(store)
        finished = sorted(state.timeline.savepoints - before)
        if finished and instant in (None, finished[-1]):
            return find_savepoint(state, finished[-1])  # of an earlier call that did not live to publish it
        target = _write_to_protect(state, instant)
        metadata = SavepointMetadata(
            created_by=user,
            created_ms=clock.now_ms(),
            comment=comment,
            files=_files_to_protect(state, target),
        )
        body = encode_savepoint(metadata)
        write_inflight(store, properties, instant=target, action=Action.SAVEPOINT, body=body)

        def look(claims: Claims, timeline: Timeline) -> Decision | None:  # noqa: ARG001 # as others are shown them
            done = completed_time(timeline, target, Action.SAVEPOINT) is not None
            return None if done else Decision(instant=target, action=Action.SAVEPOINT, outcome=Outcome.COMMIT)

        claim = decide(store, properties, clock, look)
        if claim is not None:
            publish_claim(store, properties, claim)
        # A savepoint of the same write that was deleted just now had its claim: then that was published, with our body.
        completed = completed_time(load_timeline(store, properties), target, Action.SAVEPOINT)
    return Savepoint(instant=target, completed=completed, metadata=metadata)


def find_savepoint(state: TableState, instant: str) -> Savepoint:
    """Return the savepoint of this write, whether or not it was completed; `InstantError` if there is none."""
    found = _savepoint(state, instant)
    if found.is_completed:
        metadata = read_savepoint_metadata(state.store, found)
    else:
        metadata = SavepointMetadata(created_by="", created_ms=0, comment="", files={})
    return Savepoint(instant=instant, completed=found.completed, metadata=metadata)


def delete_savepoint(store: Store, instant: str, *, clock: Clock | None = None) -> None:
    """Give up a savepoint; the next clean may delete what only it needed."""
    state = load_state(store)
    check_writable(state)
    clock = clock or process_clock(state.properties.timeline_timezone)
    with table_lock(store, now_ms=clock.now_ms):
        found = _savepoint(load_state(store), instant)
        # The completed file last: while it is there, so is the savepoint.
        delete_pending(store, state.properties, instant=instant, action=Action.SAVEPOINT)
        if found.is_completed:
            store.delete(found.path)


def plan_restore(
    state: TableState, savepoint: str, metadata: SavepointMetadata, files: Iterable[DataFile]
) -> RestoreOrder:
    """Decide what has to go for the table to be as the savepoint has it; `files` are all data files there are."""
    target = next((i for i in state.timeline.writes if i.requested == savepoint), None)
    if target is None:
        raise InstantError(
            f"the savepoint of {savepoint} protects a write that is not on the timeline; there is no way back to it."
        )
    present = {file.path: file for file in files}
    for partition, names in metadata.files.items():
        lost = next((name for name in names if path_in_partition(partition, name) not in present), None)
        if lost is not None:
            raise InstantError(
                f"the savepoint of {savepoint} cannot be restored: its file {lost} in {partition!r} is gone. "
                f"Nothing was changed."
            )
    is_merge_on_read = state.properties.table_type is TableType.MERGE_ON_READ
    later = [i for i in state.timeline.writes if _is_after(i, target, is_merge_on_read=is_merge_on_read)]
    later.sort(key=lambda i: (i.completed or "", i.requested), reverse=True)
    planned = [i for i in state.timeline.pending(*WRITE_ACTIONS) if i.requested > savepoint]
    # Pending clusterings first (Hudi: RestorePlanActionExecutor), then what else is pending.
    planned.sort(key=lambda i: (i.action is Action.CLUSTERING, i.requested), reverse=True)
    instants = (*planned, *later)
    for instant in later:
        check_layout(state, instant)
    gone = {i.requested for i in instants}
    deleted = tuple(file for path, file in sorted(present.items()) if file.instant in gone)
    return RestoreOrder(savepoint=savepoint, instants=instants, files=deleted)


def look_for_restore(state: TableState, savepoint: str) -> RestoreOrder:
    """Read what a restore depends on, and plan it."""
    found = _savepoint(state, savepoint)
    if not found.is_completed:
        raise InstantError(f"the savepoint of {savepoint} was never completed. Create it again.")
    beyond = _archived_after(state, savepoint)
    if beyond is not None:
        raise InstantError(
            f"the savepoint of {savepoint} cannot be restored: the later {beyond.action} of {beyond.requested} was "
            f"archived, and what is archived cannot be taken back (hoodie.archive.beyond.savepoint)."
        )
    files = [file for group in list_folders(state).files.values() for file in group]
    try:
        metadata = read_savepoint_metadata(state.store, found)
    except FileNotFoundError:
        raise InstantError(
            f"the savepoint of {savepoint} is gone: somebody has deleted it just now. `bucketlake savepoints` lists "
            f"those that are there."
        ) from None
    order = plan_restore(state, savepoint, metadata, files)
    undone = [instant for instant in reversed(order.instants) if instant.is_completed]
    commits = in_parallel(lambda instant: commit_metadata(state, instant), undone, state.store)
    return replace(order, batches=batches_in(commits))


def _archived_after(state: TableState, savepoint: str) -> Instant | None:
    """Find a write that a restore would have to take back, and that was archived."""
    target = next((i for i in state.timeline.writes if i.requested == savepoint), None)
    is_merge_on_read = state.properties.table_type is TableType.MERGE_ON_READ
    for archived in load_history(state.store, state.properties):
        if archived.action not in WRITE_ACTIONS:
            continue
        is_later = target is not None and _is_after(
            archived.instant, target, is_merge_on_read=is_merge_on_read
        )
        if is_later or archived.requested > savepoint:
            return archived.instant
    return None


def run_restore(order: RestoreOrder, store: Store, *, clock: Clock | None = None) -> RestorePlan:
    """Go back to the savepoint. If that is cut off, the next write or recovery finishes it."""
    state = load_state(store)
    check_writable(state)
    properties = state.properties
    clock = clock or process_clock(properties.timeline_timezone)
    refuse_others(recover(store, properties, clock=clock))
    done = _run_order(order, store, properties, clock)
    build_wanted_indexes(store, clock=clock)
    return done


def _run_order(order: RestoreOrder, store: Store, properties: TableProperties, clock: Clock) -> RestorePlan:
    with table_lock(store, now_ms=clock.now_ms):
        state = load_state(store)
        if look_for_restore(state, order.savepoint).instants != order.instants:
            raise CommitConflictError(
                f"the table has moved on since its restore to {order.savepoint} was planned. Nothing was changed. "
                f"Plan again."
            )
        if not order.instants:
            return RestorePlan(savepoint=order.savepoint, instants=())
        plan = RestorePlan(
            savepoint=order.savepoint, instants=tuple((i.requested, i.action) for i in order.instants)
        )
        with announced_time(store, clock) as restore:
            body = encode_restore_plan(plan)
            write_requested(store, properties, instant=restore, action=Action.RESTORE, body=body)
            # Who begins from now on sees the restore; who began before is seen here.
            state = load_state(store)
            others = state.timeline.pending(*TRANSACTIONS)
            if others or look_for_restore(state, order.savepoint).instants != order.instants:
                delete_pending(store, properties, instant=restore, action=Action.RESTORE)
                stop_heartbeat(store, restore)
                refuse_the_living(others)
                raise CommitConflictError("a write came between. Nothing was restored; plan again.")
            pending = next(i for i in state.timeline.pending(Action.RESTORE) if i.requested == restore)
            return run_planned_restore(store, properties, pending, clock)


def _is_after(instant: Instant, savepoint: Instant, *, is_merge_on_read: bool) -> bool:
    """Tell whether a write is later than the savepointed one (Hudi: RestoreInstantComparatorFactory).

    Completion decides. But a compaction that was planned before stays, whenever it was done: logs that the savepoint
    protects lie over its base files.
    """
    if is_merge_on_read and instant.action in (Action.COMMIT, Action.COMPACTION):
        return instant.requested > savepoint.requested
    assert instant.completed is not None
    assert savepoint.completed is not None
    return instant.completed > savepoint.completed


def _write_to_protect(state: TableState, instant: str | None) -> str:
    writes = [i.requested for i in state.timeline.writes]
    if not writes:
        raise InstantError(f"{state.store.uri} has no write on its timeline; there is nothing to protect.")
    # The last to complete, not the last to begin: a restore goes by completion, and takes nothing back of the present.
    newest = max(state.timeline.writes, key=lambda i: (i.completed or "", i.requested))
    target = newest.requested if instant is None else instant
    if target not in writes:
        raise InstantError(
            f"{state.store.uri} has no completed write of {target} on its timeline, which is {writes[0]} to "
            f"{writes[-1]}. Choose one of those; an archived moment cannot be protected any more."
        )
    _refuse_overlapped(state, target)
    if target in state.timeline.savepoints:
        raise InstantError(f"{target} has a savepoint already. Delete it first to change its comment.")
    archived = load_history(state.store, state.properties, since=target)
    if any(a.requested == target and a.action in WRITE_ACTIONS for a in archived):
        raise InstantError(
            f"{target} is being archived, and cannot be protected any more. Choose a later one."
        )
    _refuse_cleaned(state, target)
    return target


def _refuse_cleaned(state: TableState, target: str) -> None:
    """Refuse a write that a clean has passed, unless a restore to it takes nothing back: what is seen now is there."""
    protected = next(i for i in state.timeline.writes if i.requested == target)
    is_merge_on_read = state.properties.table_type is TableType.MERGE_ON_READ
    if any(_is_after(i, protected, is_merge_on_read=is_merge_on_read) for i in state.timeline.writes):
        try:
            check_as_of(state, target)
        except ConfigError as cleaned:
            raise InstantError(f"{target} cannot be protected any more: {cleaned}") from cleaned


def _refuse_overlapped(state: TableState, target: str) -> None:
    """Refuse a write that another was begun before and completed after, as a long rescale may be.

    What the other has replaced may have been cleaned since, and a restore, which takes the other back, would miss it.
    """
    protected = next(i for i in state.timeline.writes if i.requested == target)
    for other in state.timeline.writes:
        if other.requested < target and (other.completed or "") > (protected.completed or ""):
            raise InstantError(
                f"{target} cannot be protected: the {other.action} of {other.requested} was begun before it and "
                f"completed after it, and a restore would take that back. Protect the newest state instead, by naming "
                f"no instant."
            )


def _files_to_protect(state: TableState, target: str) -> dict[str, tuple[str, ...]]:
    try:
        return _files_at(state, target)
    except DamagedFileError as gone:
        if target == state.timeline.writes[-1].requested:
            raise
        raise InstantError(
            f"{target} cannot be protected: {gone.path}, which a reader of that moment sees, was cleaned or lost "
            f"since. Choose a later write; `bucketlake fsck` tells whether files are lost."
        ) from gone


def _files_at(state: TableState, instant: str) -> dict[str, tuple[str, ...]]:
    """List what readers see after a restore to `instant`; an empty partition too."""
    target = next(i for i in state.timeline.writes if i.requested == instant)
    listed = files_of(state)
    view = _view_after_restore(
        state, view_for(state, (file for group in listed.values() for file in group)), target
    )
    cleaned = cleaned_after(state, instant)
    every = {**dict.fromkeys(cleaned, ()), **listed}  # partitions that are no more, too
    gone = cleaned_file(state, cleaned, every, view, slices_of)
    if gone is not None:
        raise InstantError(
            f"{instant} cannot be protected any more: a clean has deleted {gone}, which was seen then. Choose a later "
            f"write."
        )
    found: dict[str, tuple[str, ...]] = {}
    for partition, files in listed.items():
        names: list[str] = []
        for part in slices_of(partition, files, view):
            paths = ([part.base_file.path] if part.base_file else []) + [log.path for log in part.log_files]
            names += [path.rpartition("/")[2] for path in paths]
        found[partition] = tuple(names)
    return found


def _view_after_restore(state: TableState, view: TimelineView, target: Instant) -> TimelineView:
    """Say what counts once all that a restore takes back is gone."""
    is_merge_on_read = state.properties.table_type is TableType.MERGE_ON_READ
    gone = {
        i.requested for i in state.timeline.writes if _is_after(i, target, is_merge_on_read=is_merge_on_read)
    }
    return replace(
        view,
        completions={requested: c for requested, c in view.completions.items() if requested not in gone},
        replaced={group: by for group, by in view.replaced.items() if by not in gone},
        pending_compactions={g: c for g, c in view.pending_compactions.items() if c < target.requested},
        stated=tuple(commit for commit in view.stated if commit.requested not in gone),
    )


def _savepoint(state: TableState, instant: str) -> Instant:
    for found in state.timeline.instants:
        if found.action is Action.SAVEPOINT and found.requested == instant:
            assert found.state in (State.INFLIGHT, State.COMPLETED)
            return found
    known = ", ".join(sorted(state.timeline.savepoints)) or "none"
    raise InstantError(f"{state.store.uri} has no savepoint of {instant}; it has {known}.")
