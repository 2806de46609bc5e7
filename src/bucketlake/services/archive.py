"""Archive: move old instants from the active timeline to the history, so that reading a table stays cheap.

What is older than the first write on the active timeline counts as committed, for us and for Hudi. So a file that a
failed write left behind becomes visible once archiving passes its instant. `plan_archive` stops before anything
whose fate is open, and names the orphans that `run_archive` deletes first. Where there is a metadata table, it stops at
the last compaction of that: what is archived is not looked for in its logs any more.

    history    a file of rows, a manifest, `_version_`: the instants are in the history
    timeline   requested and inflight files go, then completed ones, the oldest first
    layers     small history files are merged; manifests beyond the last few are forgotten

Cut off anywhere, the next run goes on: what is in the history already is not written again, only deleted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from bucketlake.commit.heartbeat import is_alive, list_heartbeats
from bucketlake.commit.locks import table_lock
from bucketlake.commit.markers import delete_markers, marked_instants
from bucketlake.commit.metadata_table import is_listed
from bucketlake.commit.recovery import recover
from bucketlake.commit.writable import check_writable
from bucketlake.config import TableProperties
from bucketlake.errors import ConfigError
from bucketlake.index.keeper import carry_out
from bucketlake.index.keepers import keepers_of
from bucketlake.layout import DataFile, FileGroupId
from bucketlake.layout.names import split_path
from bucketlake.metadata.listing import list_by_metadata
from bucketlake.metadata.step import load_metadata_timeline
from bucketlake.services.metadata_compaction import last_compaction
from bucketlake.state import TableState, list_folders, load_state, view_for
from bucketlake.storage import FileStat, Store, in_parallel
from bucketlake.timeline import (
    Action,
    Clock,
    Instant,
    State,
    Timeline,
    load_history,
    parse_instant_name,
    process_clock,
    read_cleaner_plan,
)
from bucketlake.timeline.history_writer import HistoryRow, forget_old, merge_layers, settle, write_rows

KEEP_MIN = 20
KEEP_MAX = 30
"""Hudi's defaults: beyond 30 writes on the timeline, all but 20 are archived."""

Identity = tuple[str, Action]
"""Requested time and completed action."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LastClean:
    requested: str
    earliest_kept: str | None
    """None for a clean that counts file versions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What archiving has to know beside the timeline, read once."""

    files: Mapping[Identity, tuple[FileStat, ...]]
    """The timeline's files of every instant."""
    archived: frozenset[Identity]
    """What the history has, from the first instant of the timeline on."""
    last_clean: LastClean | None
    marked: frozenset[str]
    """Instants that have markers."""
    orphans: tuple[DataFile, ...]
    """Data files of instants that are not on the timeline, nor in the history, nor alive."""
    groups: frozenset[FileGroupId] = frozenset()
    """File groups that have other files than orphans."""
    metadata_stop: Stop | None = None
    """How far the metadata table allows to archive; None where there is none."""


@dataclass(frozen=True, slots=True)
class Stop:
    """Why archiving goes no further."""

    before: str
    """The first instant that must stay."""
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchivePlan:
    """Which instants leave the active timeline; prints as a few lines."""

    instants: tuple[Instant, ...]
    """The oldest first."""
    archived: frozenset[Identity]
    """Those that are in the history already, by a run that was cut off."""
    files: Mapping[Identity, tuple[FileStat, ...]]
    orphans: tuple[DataFile, ...]
    """Data files to delete first."""
    marked: tuple[str, ...]
    """Instants whose markers go first."""
    stop: Stop | None
    """What kept it from archiving more."""

    @property
    def size_bytes(self) -> int:
        return sum(file.size_bytes for files in self.files.values() for file in files)

    def __str__(self) -> str:
        count = sum(len(files) for files in self.files.values())
        lines = [f"archive {len(self.instants):,} instants: {count:,} files, {self.size_bytes:,} bytes"]
        if self.instants:
            lines.append(f"  from {self.instants[0].requested} to {self.instants[-1].requested}")
        lines += [f"  delete the orphan {file.path} ({file.size_bytes:,} bytes)" for file in self.orphans]
        lines += [f"  delete the markers of {instant}" for instant in self.marked]
        if self.stop is not None:
            lines.append(f"  stops before {self.stop.before or 'the first'}: {self.stop.reason}")
        return "\n".join(lines)


def look_around(state: TableState, *, clock: Clock | None = None) -> Surroundings:
    """Read what `plan_archive` decides by. The files are listed before the timeline is, so none is mistaken."""
    clock = clock or process_clock(state.properties.timeline_timezone)
    store, properties = state.store, state.properties
    marked = marked_instants(store)
    listed = [file for files in list_folders(state).files.values() for file in files]
    state = load_state(store)
    by_instant = files_by_instant(store, properties)
    heartbeats, now_ms = list_heartbeats(store), clock.now_ms()
    view = view_for(state, listed)
    on_timeline = {i.requested for i in state.timeline.instants}
    orphans = [
        file
        for file in listed
        if any(
            instant not in on_timeline
            and not view.is_committed(instant)
            and instant not in marked
            and not is_alive(heartbeats.get(instant), now_ms=now_ms)
            for instant in (file.instant, file.written_at)
        )
    ]
    gone = set(orphans)
    # A clean that was cut off may have deleted files that the metadata table still lists.
    told = list_by_metadata(store, properties, state.timeline, None) or {}
    still_told = {(partition, file.file_id) for partition, files in told.items() for file in files}
    # Of the history only what may be on the timeline too: the rest grows with the age of the table.
    since = state.timeline.instants[0].requested if state.timeline.instants else None
    return Surroundings(
        files=by_instant,
        archived=frozenset((a.requested, a.action) for a in load_history(store, properties, since=since)),
        last_clean=_last_clean(state),
        marked=frozenset(marked),
        orphans=tuple(orphans),
        groups=frozenset((split_path(file.path)[0], file.file_id) for file in listed if file not in gone)
        | still_told,
        metadata_stop=_metadata_stop(state),
    )


def files_by_instant(store: Store, properties: TableProperties) -> dict[Identity, tuple[FileStat, ...]]:
    """List the timeline's files of every instant."""
    found: dict[Identity, tuple[FileStat, ...]] = {}
    for file in store.list(properties.timeline_folder).files:
        name = parse_instant_name(file.path.rpartition("/")[2], layout=properties.timeline_layout)
        if name is not None:
            identity = (name.requested, name.action.when_completed)
            found[identity] = (*found.get(identity, ()), file)
    return found


def plan_archive(
    state: TableState, around: Surroundings, *, keep_min: int = KEEP_MIN, keep_max: int = KEEP_MAX
) -> ArchivePlan:
    """Choose the instants to archive: with more than `keep_max` writes on the timeline, all but `keep_min`.

    It stops at the first savepoint and what completed after that, at whatever is pending, at what the last clean still
    needs, at a replacecommit whose replaced file groups still have files, and at markers of an instant that is gone:
    files may still come to light under it.
    """
    if not 1 <= keep_min < keep_max:
        raise ConfigError(
            f"archiving was told to keep {keep_min} to {keep_max} writes; expected at least 1, and a higher maximum."
        )
    timeline = state.timeline
    stop = min(_stops(state, around), key=lambda stop: stop.before, default=None)
    free = [i for i in timeline.writes if stop is None or i.requested < stop.before]
    fresh = [i for i in timeline.writes if identity_of(i) not in around.archived]
    room = len(fresh) - keep_min if len(fresh) > keep_max else 0
    surplus = {identity_of(i) for i in fresh[:room]}
    # Without a gap: the first write that stays is where the active timeline begins.
    writes: list[Instant] = []
    for instant in free:
        if identity_of(instant) not in surplus | around.archived or instant is timeline.writes[-1]:
            break
        writes.append(instant)
    if not writes:
        return _plan((), around, stop if room else None, start="")
    last_clean = around.last_clean.requested if around.last_clean else None
    # The last clean stays: it tells how far back files can be read.
    others = [
        i
        for i in timeline.completed(Action.CLEAN, Action.ROLLBACK)
        if i.requested < writes[-1].requested and i.requested != last_clean
    ]
    start = next(i.requested for i in timeline.instants if i.is_write and i.requested > writes[-1].requested)
    return _plan(tuple(sorted([*writes, *others])), around, stop if len(writes) < room else None, start=start)


def may_archive(state: TableState, *, keep_min: int, keep_max: int) -> bool:
    """Tell from the timeline alone whether there may be something to archive; what lies in the table may forbid it."""
    if len(state.timeline.writes) <= keep_max:
        return False
    around = Surroundings(
        files={},
        archived=frozenset(),
        last_clean=_last_clean(state),
        marked=frozenset(),
        orphans=(),
        metadata_stop=_metadata_stop(state),
    )
    return bool(plan_archive(state, around, keep_min=keep_min, keep_max=keep_max).instants)


def run_archive(plan: ArchivePlan, state: TableState) -> None:
    """Do what the plan says, while holding the table lock: nobody else may archive meanwhile."""
    in_parallel(state.store.delete, [file.path for file in plan.orphans], state.store)
    for requested in plan.marked:
        delete_markers(state.store, requested)
    move_to_history(state.store, state.properties, plan.instants, plan.files)


def move_to_history(
    store: Store,
    properties: TableProperties,
    instants: Sequence[Instant],
    files: Mapping[Identity, tuple[FileStat, ...]],
) -> None:
    """Move completed instants, whose `files` these are, from the active timeline to the history."""
    manifest = settle(store, properties)
    if instants:
        since = instants[0].requested
        archived = {(a.requested, a.action) for a in load_history(store, properties, since=since)}
        missing = [i for i in instants if identity_of(i) not in archived]
        rows = in_parallel(lambda i: _row(store, i, files[identity_of(i)]), missing, store)
        if rows:
            manifest = write_rows(store, properties, rows, manifest)
        completed = {i.path for i in instants}
        pending = [f.path for named in files.values() for f in named if f.path not in completed]
        in_parallel(store.delete, pending, store)
        for instant in instants:
            store.delete(instant.path)
    manifest = merge_layers(store, properties, manifest)
    if manifest.version:
        forget_old(store, properties, manifest)


def archive_table(
    store: Store, *, keep_min: int = KEEP_MIN, keep_max: int = KEEP_MAX, clock: Clock | None = None
) -> ArchivePlan:
    """Recover what dead writers left, then archive; return what was done."""
    state = load_state(store)
    check_writable(state)
    clock = clock or process_clock(state.properties.timeline_timezone)
    recover(store, state.properties, clock=clock)
    with table_lock(store, now_ms=clock.now_ms):
        state = load_state(store)
        settle(store, state.properties)
        # What says that rules or rings count is about to leave the timeline.
        for keeper in keepers_of(state.properties):
            carry_out(store, keeper.before_archiving(store, state.timeline))
        plan = plan_archive(state, look_around(state, clock=clock), keep_min=keep_min, keep_max=keep_max)
        run_archive(plan, state)
    return plan


def _plan(
    instants: tuple[Instant, ...], around: Surroundings, stop: Stop | None, *, start: str
) -> ArchivePlan:
    identities = [identity_of(i) for i in instants]
    return ArchivePlan(
        instants=instants,
        archived=frozenset(identities) & around.archived,
        files={identity: around.files.get(identity, ()) for identity in identities},
        orphans=tuple(file for file in around.orphans if min(file.instant, file.written_at) < start),
        marked=tuple(i.requested for i in instants if i.requested in around.marked),
        stop=stop,
    )


def _stops(state: TableState, around: Surroundings) -> Iterable[Stop]:
    timeline = state.timeline
    if around.metadata_stop is not None:
        yield around.metadata_stop
    yield from _savepoint_stops(timeline)
    for pending in timeline.pending():
        if pending.action in (Action.ROLLBACK, Action.RESTORE):
            yield Stop("", f"the {pending.action} of {pending.requested} is pending")
        else:
            yield _stop_around(
                state, pending.requested, f"the {pending.action} of {pending.requested} is pending"
            )
    on_timeline = {i.requested for i in timeline.instants}
    for gone in sorted(around.marked - on_timeline):
        if timeline.start is not None and gone > timeline.start:
            yield _stop_around(
                state, gone, f"{gone} is gone, and has left markers; they are swept after a while"
            )
    yield from _replacement_stops(state, around.groups)
    clean = around.last_clean
    if clean is not None and clean.earliest_kept is not None:
        yield Stop(
            clean.earliest_kept, f"the clean of {clean.requested} keeps files from there on; clean again"
        )


def _metadata_stop(state: TableState) -> Stop | None:
    """Keep what the last compaction of the metadata table has not taken in, as Hudi does (TimelineArchiverV2)."""
    if not is_listed(state.properties):
        return None
    newest = last_compaction(load_metadata_timeline(state.store, state.properties))
    if newest is None:
        return Stop(
            "",
            "the metadata table was never compacted; `bucketlake service run TABLE --archive MIN MAX` compacts it "
            "first",
        )
    return Stop(
        newest.requested,
        f"the metadata table was last compacted at {newest.requested}; `bucketlake service run` compacts it after ten "
        f"more commits",
    )


def _savepoint_stops(timeline: Timeline) -> Iterable[Stop]:
    """Keep what savepoints protect, and what a restore takes back: all that completed after it, whenever it began."""
    completions = {i.requested: i.completed for i in timeline.writes}
    for savepoint in sorted(timeline.savepoints):
        yield Stop(savepoint, f"a savepoint protects {savepoint}")
        protected = completions.get(savepoint)
        later = [
            i.requested for i in timeline.writes if i.completed and protected and i.completed > protected
        ]
        if later and later[0] < savepoint:
            yield Stop(later[0], f"{later[0]} completed after {savepoint}, which a savepoint protects")


def _replacement_stops(state: TableState, groups: frozenset[FileGroupId]) -> Iterable[Stop]:
    """Keep a replacecommit while a file group that it replaced has files: without it, nobody hides them.

    Files tell, and times do not: a clean spares what a savepoint holds, and a replacecommit may have been begun long
    before it completed.
    """
    left = sorted(by for group, by in state.view.replaced.items() if group in groups)
    for replacement in left[:1]:
        yield Stop(
            replacement,
            f"{replacement} replaced file groups whose files are still there; clean again, and delete savepoints "
            f"that are not needed any more",
        )


def _stop_around(state: TableState, instant: str, reason: str) -> Stop:
    """Keep the last completed write before an instant: the timeline must begin before it, not at it or after."""
    before = [i.requested for i in state.timeline.writes if i.requested < instant]
    return Stop(before[-1] if before else instant, reason)


def _last_clean(state: TableState) -> LastClean | None:
    cleans = state.timeline.completed(Action.CLEAN)
    if not cleans:
        return None
    newest = cleans[-1]
    try:
        plan = read_cleaner_plan(state.store, newest)
    except FileNotFoundError:
        # Its plan is gone, by an archiver that was cut off: the most careful reading of it.
        first = next((i.requested for i in state.timeline.writes), newest.requested)
        return LastClean(requested=newest.requested, earliest_kept=first)
    return LastClean(requested=newest.requested, earliest_kept=plan.earliest_kept)


def identity_of(instant: Instant) -> Identity:
    return (instant.requested, instant.action.when_completed)


_PLANNING = (Action.CLEAN, Action.REPLACE_COMMIT, Action.CLUSTERING, Action.COMPACTION, Action.LOG_COMPACTION)


def _row(store: Store, instant: Instant, files: Iterable[FileStat]) -> HistoryRow:
    """Read what the history keeps of an instant (Hudi: MetadataConversionUtils.createLSMTimelineInstant)."""
    bodies: dict[State, bytes] = {}
    is_clustering = False
    for file in files:
        name = parse_instant_name(file.path.rpartition("/")[2], layout=2)
        assert name is not None
        if name.state is not State.COMPLETED and name.action in _PLANNING:
            bodies[name.state] = store.read(file.path)
        is_clustering = is_clustering or name.action is Action.CLUSTERING
    plan = bodies.get(State.REQUESTED, b"")
    # What an inflight replacecommit says goes before its plan, as for Hudi; of a clustering Hudi finds nothing there.
    if instant.action is Action.REPLACE_COMMIT and not is_clustering:
        plan = bodies.get(State.INFLIGHT) or plan
    return HistoryRow(instant, store.read(instant.path), plan)
