"""Clean: delete file slices that no reader needs any more.

    plan_clean    what to delete: pure. Everything that could be wrong about cleaning is there
    run_clean     T.clean.requested, T.clean.inflight; the files; T_C.clean

What is kept, by whichever policy:

    commits, hours    what readers as of the earliest kept write, or any later one, see. Of a file group: the slices
                      from that write on, and the newest before it
    versions          so many slices of every file group, the newest

and always the newest slice of a group, and what a savepoint, or the plan of a pending compaction or clustering,
names. A file group that was replaced goes with all its slices: once the write that replaced it is older than the
earliest kept, or at once when versions are counted; but not before the writes end that began before it completed. A
partition that is empty then ceases to be, as for Hudi.

A clean that was cut off is finished by the next, ours or Hudi's. Before anything is deleted, also then, the table is
looked at again: what has come to be needed since the plan was made is spared.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from bucketlake.commit.claims import latest_time
from bucketlake.commit.completion import Said, alive
from bucketlake.commit.heartbeat import list_heartbeats
from bucketlake.commit.operation import TRANSACTIONS
from bucketlake.commit.overtaken import gives_way
from bucketlake.commit.publishing import completed_time, plan_of, settle
from bucketlake.commit.recovery import recover
from bucketlake.commit.writable import check_writable
from bucketlake.errors import ConcurrentWriteError, ConfigError, CorruptTableError
from bucketlake.index.keeper import carry_out
from bucketlake.index.keepers import keepers_of
from bucketlake.index.rings import VIRTUAL_LOGS
from bucketlake.layout import (
    BaseFile,
    DataFile,
    FileGroupId,
    FileSlice,
    all_slices_of,
    list_files,
    parse_data_file,
    slices_of,
)
from bucketlake.layout.names import (
    is_partition_metadata,
    partition_metadata_path,
    path_in_partition,
    split_path,
)
from bucketlake.layout.partition_metadata import partition_depth, render_partition_metadata
from bucketlake.services.held import Held, load_held
from bucketlake.services.tasks import Tasks, here
from bucketlake.state import TableState, everywhere, files_of, load_state, view_for
from bucketlake.storage import Store, check_path, in_parallel
from bucketlake.timeline import (
    Action,
    CleanerPlan,
    Clock,
    Instant,
    State,
    delete_pending,
    encode_clean_metadata,
    encode_cleaner_plan,
    load_timeline,
    process_clock,
    read_clean_metadata,
    read_cleaner_plan,
    shift_instant,
    write_inflight,
    write_requested,
)
from bucketlake.write.state import is_set

FilesByPartition = Mapping[str, tuple[DataFile, ...]]

_HOUR_MS = 3_600_000
_FILES_PER_TASK = 1_000
# Under this name Hudi finds out, at the next clean, that a savepoint is gone and what it held may go (CleanerUtils).
_SAVEPOINTS = "savepointed_timestamps"


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """What a clean keeps. Give one of the three."""

    commits: int | None = None
    """All files that readers of so many last writes need."""
    hours: float | None = None
    """All files that readers of the writes of so many last hours need."""
    versions: int | None = None
    """So many versions of every file group."""

    def __post_init__(self) -> None:
        given = [value for value in (self.commits, self.hours, self.versions) if value is not None]
        if len(given) != 1:
            raise ConfigError(
                "say what a clean is to keep: a number of commits, of hours, or of file versions; one of them "
                "(retain_commits, retain_hours, retain_versions)."
            )
        least = 0 if self.hours is not None else 1
        if not given[0] >= least:
            raise ConfigError(f"a clean keeps at least {least}, and was told {given[0]}.")

    @property
    def policy(self) -> str:
        """Hudi's name of it."""
        if self.commits is not None:
            return "KEEP_LATEST_COMMITS"
        return "KEEP_LATEST_BY_HOURS" if self.hours is not None else "KEEP_LATEST_FILE_VERSIONS"


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanPlan:
    """What a clean deletes; prints as a list of files and bytes."""

    retention: Retention
    earliest: Instant | None
    """The oldest write whose readers lose nothing; None when versions are counted, or there are too few writes."""
    last_completed: str
    """The requested time of the newest write; empty if there is none."""
    files: tuple[DataFile, ...]
    """Sorted by path."""
    partitions: tuple[str, ...]
    """Empty then, and no partitions any more."""
    savepoints: tuple[str, ...]

    @property
    def is_empty(self) -> bool:
        return not (self.files or self.partitions)

    @property
    def size_bytes(self) -> int:
        return sum(file.size_bytes for file in self.files)

    def __str__(self) -> str:
        kept = f", keeping what readers as of {self.earliest.requested} see" if self.earliest else ""
        if self.is_empty:
            return f"nothing to clean{kept}"
        lines = [f"delete {len(self.files):,} files, {self.size_bytes:,} bytes{kept}"]
        lines += [f"  {file.path}: {file.size_bytes:,} bytes" for file in self.files]
        lines += [f"  {partition}: empty, ceases to be a partition" for partition in self.partitions]
        return "\n".join(lines)

    def body(self) -> CleanerPlan:
        """Return it as the timeline keeps it."""
        by_partition: dict[str, tuple[str, ...]] = {}
        for file in self.files:
            partition, name = split_path(file.path)
            by_partition[partition] = (*by_partition.get(partition, ()), name)
        return CleanerPlan(
            policy=self.retention.policy,
            earliest_kept=self.earliest.requested if self.earliest else None,
            earliest_action=self.earliest.action if self.earliest else None,
            last_completed=self.last_completed,
            files=by_partition,
            partitions=self.partitions,
            extra={_SAVEPOINTS: ",".join(self.savepoints)} if self.savepoints else {},
        )


def plan_clean(
    state: TableState, files: FilesByPartition, held: Held, *, retain: Retention, now: str
) -> CleanPlan:
    """Choose what to delete of `files`, which are all of the partitions they are in; `now` is an instant time."""
    earliest = _earliest_kept(state, retain, now)
    held = held | Held(files=_referred_to(state, files))
    deletes: list[DataFile] = []
    emptied: list[str] = []
    if earliest is not None or retain.versions is not None:
        view = view_for(state, (file for group in files.values() for file in group))
        cutter = _Cutter(
            earliest.requested if earliest else None,
            retain.versions,
            held,
            savepoints=tuple(sorted(state.timeline.savepoints)),
        )
        replaced = _replaced_for_good(state, view.replaced)
        for partition, group in files.items():
            slices = all_slices_of(partition, group, view)
            of_partition = cutter.deletes(partition, slices, replaced, view.pending_compactions)
            gone = _files_in(of_partition, group)
            deletes += gone
            if partition and len(gone) == len(group):
                emptied.append(partition)
    # A write under way may have made the partition just now, or be about to write to it.
    is_quiet = not state.timeline.pending(*TRANSACTIONS, Action.CLUSTERING, Action.COMPACTION)
    writes = state.timeline.writes
    return CleanPlan(
        retention=retain,
        earliest=earliest,
        last_completed=writes[-1].requested if writes else "",
        files=tuple(sorted(deletes, key=lambda file: file.path)),
        partitions=tuple(emptied) if is_quiet else (),
        savepoints=tuple(sorted(state.timeline.savepoints)) if state.properties.partition_fields else (),
    )


def _earliest_kept(state: TableState, retain: Retention, now: str) -> Instant | None:
    """Return the oldest write that is kept; None if all are, or versions are counted instead."""
    completed = state.timeline.writes
    # The last to complete count, not the last to begin: what a rescale that took hours has replaced was read until
    # just now.
    if retain.commits is not None:
        if len(completed) <= retain.commits:
            return None
        last = sorted(completed, key=lambda i: (i.completed or "", i.requested))[-retain.commits :]
        earliest = min(last)
    elif retain.hours is not None:
        since = shift_instant(now, -int(retain.hours * _HOUR_MS))
        recent = [
            instant for instant in completed if max(instant.requested, instant.completed or "") >= since
        ]
        if not recent:
            return None
        earliest = recent[0]
    else:
        return None
    # Nothing that a pending write may have begun with is taken from under it.
    pending = [i.requested for i in state.timeline.instants if i.is_write and not i.is_completed]
    if pending and earliest.requested > pending[0]:
        before = [instant for instant in completed if instant.requested < pending[0]]
        return before[-1] if before else None
    return earliest


def _referred_to(state: TableState, files: FilesByPartition) -> frozenset[str]:
    """Find the logs beside resizes that logs of savepoints only refer to, where a resize has completed since.

    A restore takes the resize back, and needs the rows; the savepoint names the logs that refer to them.
    """
    if not is_set(state.properties, VIRTUAL_LOGS):
        return frozenset()
    completions = state.view.completions
    moments = [completions[savepoint] for savepoint in state.timeline.savepoints if savepoint in completions]
    return frozenset(
        file.path
        for group in files.values()
        for file in group
        if file.written_at != file.instant
        and any(
            completions.get(file.written_at, "") <= m < completions.get(file.instant, "") for m in moments
        )
    )


def _replaced_for_good(state: TableState, replaced: Mapping[FileGroupId, str]) -> dict[FileGroupId, str]:
    """Leave out file groups that a pending write may have begun with: they were replaced after it had begun."""
    pending = min(
        (i.requested for i in state.timeline.instants if i.is_write and not i.is_completed), default=None
    )
    completions = state.view.completions
    return {
        group: by for group, by in replaced.items() if pending is None or completions.get(by, "") < pending
    }


@dataclass(frozen=True, slots=True)
class _Cutter:
    """Decides slice by slice."""

    earliest: str | None
    versions: int | None
    held: Held
    savepoints: tuple[str, ...] = ()

    def deletes(
        self,
        partition: str,
        slices: Iterable[FileSlice],
        replaced: Mapping[tuple[str, str], str],
        compactions: Mapping[tuple[str, str], str],
    ) -> list[FileSlice]:
        groups: dict[str, list[FileSlice]] = {}
        for part in slices:
            groups.setdefault(part.file_id, []).insert(0, part)
        chosen: list[FileSlice] = []
        for file_id, newest_first in groups.items():
            by = replaced.get((partition, file_id))
            if by is not None and (self.earliest is None or by < self.earliest):
                outdated: Sequence[FileSlice] = newest_first
            elif self.versions is not None:
                outdated = self._beyond_versions(newest_first, compactions.get((partition, file_id)))
            else:
                outdated = self._before_earliest(newest_first)
            restored = self._seen_after_a_restore(newest_first)
            chosen += [part for part in outdated if part not in restored and not self._is_held(part)]
        return chosen

    def _seen_after_a_restore(self, newest_first: Sequence[FileSlice]) -> list[FileSlice]:
        """Find the slices of a compaction that was planned before a savepoint and run after it.

        A restore leaves it where it is, and the savepoint names only what it was made of.
        """
        if not any(self._is_held(part) for part in newest_first):
            return []
        seen = (next((p for p in newest_first if p.instant <= s), None) for s in self.savepoints)
        return [part for part in seen if part is not None]

    def _before_earliest(self, newest_first: Sequence[FileSlice]) -> Sequence[FileSlice]:
        assert self.earliest is not None
        # A reader as of the earliest kept write sees the newest slice that is not later: it stays.
        old = [part for part in newest_first if part.instant < self.earliest]
        return [part for part in old[1:] if part is not newest_first[0]]

    def _beyond_versions(
        self, newest_first: Sequence[FileSlice], compaction: str | None
    ) -> Sequence[FileSlice]:
        assert self.versions is not None
        # The slice that is being compacted, and what came after the plan, are one version (Hudi: CleanPlanner).
        since = [part for part in newest_first if compaction is not None and part.instant >= compaction]
        return newest_first[len(since) + self.versions :]

    def _is_held(self, part: FileSlice) -> bool:
        paths = [file.path for file in part.log_files]
        if part.base_file is not None:
            paths.append(part.base_file.path)
        return not self.held.files.isdisjoint(paths)


def _files_in(slices: Iterable[FileSlice], files: Iterable[DataFile]) -> list[DataFile]:
    """Return the files of slices, with base files of the same instants that other attempts left."""
    logs: list[DataFile] = []
    bases: set[tuple[str, str]] = set()
    for part in slices:
        logs += part.log_files
        if part.base_file is not None:
            bases.add((part.file_id, part.instant))
    return logs + [f for f in files if isinstance(f, BaseFile) and (f.file_id, f.instant) in bases]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cleaned:
    """What a clean did; prints as a line."""

    instant: str
    completed: str
    earliest_kept: str | None
    files: int

    def __str__(self) -> str:
        kept = f"; readers as of {self.earliest_kept} and later lose nothing" if self.earliest_kept else ""
        return f"clean {self.instant}: {self.files:,} files deleted{kept}"


def run_clean(
    plan: CleanPlan, store: Store, *, tasks: Tasks = here, clock: Clock | None = None
) -> Cleaned | None:
    """Put a clean on the timeline and do it; None, and no instant, if there is nothing to delete."""
    if plan.is_empty:
        return None
    state = _checked_state(store)
    clock = clock or process_clock(state.properties.timeline_timezone)
    body = encode_cleaner_plan(plan.body(), root=store.uri)
    while True:
        claims, timeline = settle(store, state.properties)
        instant = clock.next_instant(after=latest_time(timeline, claims))
        if write_requested(store, state.properties, instant=instant, action=Action.CLEAN, body=body):
            try:
                return finish_clean(store, instant, tasks=tasks, clock=clock)
            except ConcurrentWriteError:
                delete_pending(store, state.properties, instant=instant, action=Action.CLEAN)
                raise


def finish_clean(store: Store, instant: str, *, tasks: Tasks = here, clock: Clock | None = None) -> Cleaned:
    """Do a clean that is on the timeline, ours or Hudi's, from wherever it was cut off."""
    state = _checked_state(store)
    clock = clock or process_clock(state.properties.timeline_timezone)
    started_ms = clock.now_ms()
    settle(store, state.properties)
    state = _checked_state(store)
    pending = next((i for i in state.timeline.pending(Action.CLEAN) if i.requested == instant), None)
    if pending is None:
        return _cleaned_before(state, instant)
    plan = read_cleaner_plan(store, pending)
    paths = _checked_paths(plan, pending)
    with alive(store, state.properties, instant=instant, action=Action.CLEAN, clock=clock) as service:
        # It is on the timeline: who takes something back from now on sees it, and who is at it is seen here.
        state = _checked_state(store)
        _refuse_undoing(state)
        needed = _needed_now(state, plan.files)
        spared = [path for path in paths if path in needed]
        if pending.state is State.REQUESTED:
            write_inflight(store, state.properties, instant=instant, action=Action.CLEAN)
        doomed = [path for path in paths if path not in needed]
        packs = [doomed[n : n + _FILES_PER_TASK] for n in range(0, len(doomed), _FILES_PER_TASK)]
        tasks(delete_files, [DeleteTask(store, tuple(pack)) for pack in packs])
        _forget_layout(state, plan)
        if state.properties.partition_fields:
            for partition in filter(None, plan.partitions):
                _end_partition(state, partition, instant)
        spared_names: dict[str, list[str]] = {}
        for path in spared:
            partition, name = split_path(path)
            spared_names.setdefault(partition, []).append(name)
        taken_ms = max(0, clock.now_ms() - started_ms)
        body = encode_clean_metadata(plan, started=instant, taken_ms=taken_ms, spared=spared_names)
        completed = service.complete(lambda: Said(body), clock=clock)
    return Cleaned(instant=instant, completed=completed, earliest_kept=plan.earliest_kept, files=len(doomed))


def clean_table(
    store: Store,
    *,
    retain: Retention,
    look_at: Callable[[TableState], Collection[str] | None] = everywhere,
    tasks: Tasks = here,
    clock: Clock | None = None,
) -> tuple[Cleaned, ...]:
    """Finish the cleans that were cut off; then plan and run another, in the partitions of `look_at`."""
    state = _checked_state(store)
    clock = clock or process_clock(state.properties.timeline_timezone)
    recover(store, state.properties, clock=clock)
    pending = [instant.requested for instant in load_state(store).timeline.pending(Action.CLEAN)]
    done = [finish_clean(store, instant, tasks=tasks, clock=clock) for instant in pending]
    state = load_state(store)
    with gives_way(state, "a clean was planned"):
        files = files_of(state, look_at(state))
        plan = plan_clean(state, files, load_held(state), retain=retain, now=clock.next_instant())
    cleaned = run_clean(plan, store, tasks=tasks, clock=clock)
    return (*done, cleaned) if cleaned is not None else tuple(done)


@dataclass(frozen=True, slots=True)
class DeleteTask:
    """Files to delete: all that a task is told."""

    store: Store
    paths: tuple[str, ...]


def delete_files(task: DeleteTask) -> int:
    """Delete files; those that are gone already are no trouble."""
    in_parallel(task.store.delete, task.paths, task.store)
    return len(task.paths)


def _checked_state(store: Store) -> TableState:
    state = load_state(store)
    check_writable(state)
    return state


def _refuse_undoing(state: TableState) -> None:
    """Refuse to delete anything while somebody brings back what was replaced, or older versions of it.

    Rollbacks of committed writes, and restores, beat under their own time; those of failed writes bring back nothing.
    """
    beats = list_heartbeats(state.store)
    completed = {instant.requested for instant in state.timeline.writes}
    for undoing in state.timeline.pending(Action.ROLLBACK, Action.RESTORE):
        plan = plan_of(state.store, undoing) if undoing.action is Action.ROLLBACK else None
        if undoing.requested in beats or (plan is not None and plan.target in completed):
            raise ConcurrentWriteError(
                f"the {undoing.action} of {undoing.requested} is under way, and brings files back. Nothing was "
                f"deleted. Clean again when it is done; if its process died, the next write finishes it."
            )


def _checked_paths(plan: CleanerPlan, pending: Instant) -> list[str]:
    """Return the paths that a plan names: of data files, and of nothing else, whoever wrote the plan."""
    paths = []
    for partition, names in plan.files.items():
        for name in names:
            path = path_in_partition(partition, name)
            check_path(path)
            parse_data_file(path, size_bytes=0)
            paths.append(path)
    for partition in plan.partitions:
        check_path(partition)
        if partition.startswith("."):
            raise CorruptTableError(
                path=pending.path,
                found=f"the partition {partition!r} to be deleted",
                expected="a partition of the table",
                remedy="The plan is damaged. Delete its files from the timeline; the next clean makes another.",
            )
    return paths


def _needed_now(state: TableState, partitions: Iterable[str]) -> frozenset[str]:
    """Return the files that readers of the present see, or that somebody holds on to."""
    listed = list_files(state.store, sorted(partitions))
    view = view_for(state, (file for files in listed.values() for file in files))
    visible = [part for partition, files in listed.items() for part in slices_of(partition, files, view)]
    paths = {log.path for part in visible for log in part.log_files}
    paths |= {part.base_file.path for part in visible if part.base_file is not None}
    return load_held(state).files | _referred_to(state, listed) | paths


def _forget_layout(state: TableState, plan: CleanerPlan) -> None:
    """Let go what no reader needs whom the clean leaves his files, nor a restore, nor a write under way."""
    pending = [i.requested for i in state.timeline.instants if i.is_write and not i.is_completed]
    kept = [plan.earliest_kept or plan.last_completed, *pending, *state.timeline.savepoints]
    for keeper in keepers_of(state.properties):
        carry_out(state.store, keeper.when_cleaning(state.store, state.timeline, before=min(kept)))


def _end_partition(state: TableState, partition: str, instant: str) -> None:
    """Let a partition cease to be, unless somebody is about to write to it.

    A write that was announced by the time its metadata file is gone may have seen the file, and rely on it: then it is
    put back. One that is announced later sees that it is not there, and makes it.
    """
    store = state.store
    listing = store.list(partition).files
    for file in listing:
        if is_partition_metadata(split_path(file.path)[1]):
            store.delete(file.path)
    pending = load_timeline(store, state.properties).pending(
        *TRANSACTIONS, Action.CLUSTERING, Action.COMPACTION
    )
    if pending or list_files(store, [partition])[partition]:
        metadata = render_partition_metadata(instant, partition_depth(partition))
        store.put_new(partition_metadata_path(partition), metadata)


def _cleaned_before(state: TableState, instant: str) -> Cleaned:
    """Report a clean that is no longer pending, if there was one."""
    completed = completed_time(state.timeline, instant, Action.CLEAN)
    if completed is None:
        raise ConfigError(f"there is no clean {instant} on the timeline.")
    done = next(i for i in state.timeline.completed(Action.CLEAN) if i.requested == instant)
    metadata = read_clean_metadata(state.store, done)
    return Cleaned(
        instant=instant,
        completed=completed,
        earliest_kept=metadata.earliest_kept,
        files=metadata.files_deleted,
    )
