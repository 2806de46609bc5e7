"""Compaction of the metadata table: what the logs of its shards say goes into new base files.

    due         ten delta commits have completed since the last one
    schedule    a claim; T.compaction.requested on the metadata table's timeline, with every shard that has logs
    run         T.compaction.inflight; a base file per shard, by `Tasks`
    complete    T_C.commit, under the table's lock, if the metadata table is still listed

A shard is made of its newest base file and the logs that completed after it. So a compaction at T must take in every
log that completed before T. T is claimed like a commit: when it is, nothing is on its way, and whoever commits next
completes after T. Archiving believes that a compaction has taken in everything before it; so all shards that have logs
are compacted, never some.

A rollback that finds T planned delists the metadata table before it takes anything back that T may hold. One that
began before T was planned is seen here, and T is not run before it has ended.

The same files give the same bytes, so two processes that run one compaction do no harm. A plan of Hudi's is run like
one of ours, and Hudi runs ours.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from bucketlake import hfile
from bucketlake.commit.claims import latest_time
from bucketlake.commit.completion import schedule
from bucketlake.commit.locks import table_lock
from bucketlake.commit.metadata_table import (
    checked_step,
    end_instant,
    is_listed,
    latest_metadata_time,
)
from bucketlake.commit.publishing import settle
from bucketlake.config import TableProperties, load_properties
from bucketlake.errors import ConcurrentWriteError, CorruptTableError
from bucketlake.layout.names import (
    WRITE_TOKEN,
    BaseFileName,
    parse_index_base_file_name,
    parse_log_file_name,
    render_index_base_file_name,
    split_path,
)
from bucketlake.metadata.growth import kept_partitions
from bucketlake.metadata.listing import ShardSlice
from bucketlake.metadata.places import (
    FILES,
    FILES_SHARD,
    FIRST_INSTANT,
    folder_of,
    is_own_instant,
    timeline_properties,
)
from bucketlake.metadata.record_schema import RECORD_SCHEMA
from bucketlake.metadata.shards import ShardId, Shards, compacted_base, list_shards
from bucketlake.metadata.step import Step
from bucketlake.services.tasks import Tasks, here
from bucketlake.state import TableState
from bucketlake.storage import FileStat, Store, in_parallel
from bucketlake.timeline import (
    SCHEMA_KEY,
    Action,
    Clock,
    CommitMetadata,
    CompactionOperation,
    CompactionPlan,
    Instant,
    State,
    Timeline,
    WriteStat,
    encode_commit_metadata,
    encode_compaction_plan,
    process_clock,
    read_commit_metadata,
    read_compaction_plan,
    requested_path,
    write_inflight,
)

DELTA_COMMITS = 10
"""Hudi's default: `hoodie.metadata.compact.max.delta.commits`."""

_MIB = 1 << 20


def last_compaction(metadata: Timeline) -> Instant | None:
    """Return the newest completed compaction of the metadata table."""
    return max(metadata.completed(Action.COMMIT), default=None)


def commits_since_compaction(metadata: Timeline) -> int:
    """Count the delta commits that the next compaction would take in."""
    last = last_compaction(metadata)
    since = last.requested if last is not None else ""
    return sum((i.completed or "") > since for i in metadata.completed(Action.DELTA_COMMIT))


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataCompacted:
    """What a compaction of the metadata table did; prints as a line."""

    instant: str
    completed: str
    shards: int
    log_files: int
    records: int
    size_bytes: int

    def __str__(self) -> str:
        return (
            f"metadata compaction {self.instant}, completed {self.completed}: {self.shards:,} shards, "
            f"{self.log_files:,} logs merged, {self.records:,} records in {self.size_bytes:,} bytes"
        )


def schedule_metadata_compaction(store: Store, *, clock: Clock | None = None) -> str | None:
    """Plan a compaction of all shards that have logs and return its instant; None if one is pending, or none is needed.

    Refuses where the metadata table is not in step: a compaction would hide the gap.
    """

    def say(state: TableState, instant: str) -> bytes | None:
        if not is_listed(state.properties):
            return None
        step = checked_step(state.store, state.properties, state.timeline)
        if step.metadata.pending(Action.COMPACTION):
            return None
        _refuse_half_done(state.store, step)
        shards = list_shards(state.store, step, state.properties)
        _refuse_lost(state.store, shards, instant)
        operations = [
            _operation(shard, part) for shard, part in shards.slices(before=instant).items() if part.logs
        ]
        if not operations:
            return None
        return encode_compaction_plan(CompactionPlan(operations=tuple(operations)))

    return schedule(store, action=Action.COMPACTION, say=say, clock=clock, is_of_metadata=True)


def run_metadata_compaction(
    store: Store, instant: str, *, tasks: Tasks = here, clock: Clock | None = None
) -> MetadataCompacted:
    """Run a scheduled compaction of the metadata table, ours or Hudi's, from wherever an earlier run was cut off.

    One that was completed meanwhile is reported as it is.
    """
    properties = load_properties(store)
    clock = clock or process_clock(properties.timeline_timezone)
    settle(store, properties)
    step = _step(store, instant)
    pending = _pending(step, instant)
    if pending is None:
        return _compacted_before(store, step, instant)
    _refuse_undoing(step.table, instant)
    work = _work(store, properties, step, pending)
    if pending.state is State.REQUESTED:
        own = timeline_properties(properties)
        write_inflight(store, own, instant=instant, action=Action.COMPACTION)
    written = tasks(compact_shard, work)
    with table_lock(store, now_ms=clock.now_ms):
        claims, _ = settle(store, properties)
        step = _step(store, instant)
        if _pending(step, instant) is None:
            return _compacted_before(store, step, instant)
        _check_and_sweep(store, instant, written)
        body = encode_commit_metadata(_metadata(written), action=Action.COMPACTION)
        latest = max(latest_time(step.table, claims), latest_metadata_time(step.metadata))
        completed = clock.next_instant(after=latest)
        end_instant(store, properties, instant, Action.COMPACTION, completed=completed, body=body)
    return _report(instant, completed, written)


def compact_metadata(
    store: Store, *, is_due: bool = True, tasks: Tasks = here, clock: Clock | None = None
) -> tuple[MetadataCompacted, ...]:
    """Run the compactions that are pending; then, if another `is_due`, schedule and run it."""
    properties = load_properties(store)
    if not is_listed(properties):
        return ()
    pending = [i for i in _step(store, "").metadata.pending(Action.COMPACTION) if _has_plan(store, i)]
    done = [run_metadata_compaction(store, i.requested, tasks=tasks, clock=clock) for i in pending]
    scheduled = schedule_metadata_compaction(store, clock=clock) if is_due and not done else None
    if scheduled is not None:
        done.append(run_metadata_compaction(store, scheduled, tasks=tasks, clock=clock))
    return tuple(done)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardTask:
    """One shard to compact: all that a task is told. Frozen, small, picklable."""

    store: Store
    instant: str
    shard: ShardId
    slice: ShardSlice

    @property
    def size_bytes(self) -> int:
        base = self.slice.base.size_bytes if self.slice.base else 0
        return base + sum(log.size_bytes for log in self.slice.logs)

    @property
    def path(self) -> str:
        """Where the new base file goes."""
        name = render_index_base_file_name(BaseFileName(self.shard[1], WRITE_TOKEN, self.instant))
        return f"{folder_of(self.shard[0])}/{name}"


def compact_shard(task: ShardTask) -> WriteStat:
    """Merge a shard into a new base file. One that an earlier run left must have as many records."""
    partition, file_id = task.shard
    try:
        image, records = compacted_base(task.store, partition, task.slice)
    except FileNotFoundError as gone:
        raise _overtaken(task.instant, gone) from gone
    if not task.store.put_new(task.path, image):
        left = task.store.read(task.path)
        # Machines of another kind may have compressed the same records to other bytes.
        found = hfile.HFile.open(hfile.InMemory(left, name=task.path)).entries
        if found != records:
            raise CorruptTableError(
                path=task.path,
                found=f"{found:,} records, from an earlier run",
                expected=f"{records:,} records: the files that are merged do not change",
                remedy="Build the metadata table anew: `bucketlake metadata rebuild TABLE`.",
            )
        image = left
    base = split_path(task.slice.base.path)[1] if task.slice.base else None
    previous = parse_index_base_file_name(base) if base else None
    return WriteStat(
        partition=partition,
        file_id=file_id,
        path=f"{partition}/{split_path(task.path)[1]}",
        previous_instant=previous.instant if previous else None,
        written=records,
        inserted=0,
        updated=records,
        deleted=0,
        errors=0,
        written_bytes=len(image),
        size_bytes=len(image),
        previous_base_file=base,
        compacted_log_files=len(task.slice.logs),
    )


def _step(store: Store, instant: str) -> Step:
    """Look at both timelines as they are now; refuse where nobody looks at the metadata table any more."""
    properties = load_properties(store)
    if not is_listed(properties):
        raise ConcurrentWriteError(
            f"the metadata table of {store.uri} was delisted while its compaction {instant} was run. Nothing was "
            f"completed. It is compacted again once it was built anew."
        )
    return checked_step(store, properties)


def _pending(step: Step, instant: str) -> Instant | None:
    return next((i for i in step.metadata.pending(Action.COMPACTION) if i.requested == instant), None)


def _refuse_undoing(table: Timeline, instant: str) -> None:
    """Refuse to read what somebody is taking back who may have looked before the plan was there."""
    for undoing in table.pending(Action.ROLLBACK, Action.RESTORE):
        raise ConcurrentWriteError(
            f"the compaction {instant} of the metadata table waits: the {undoing.action} of {undoing.requested} is "
            f"pending. Compact again when it is done; if its process died, the next write finishes it."
        )


def _refuse_half_done(store: Store, step: Step) -> None:
    """Refuse to plan while an instant is pending that the metadata table has completed.

    Its logs do not count yet, and if they count later, they were completed before the plan.
    """
    completed = {i.requested for i in step.metadata.writes}
    for half in step.table.pending():
        if half.requested in completed:
            raise ConcurrentWriteError(
                f"the metadata table of {store.uri} is not compacted while the {half.action} of {half.requested} is "
                f"pending, which it has completed. Compact again when that is done; if its writer died, "
                f"the next write takes it back or finishes it."
            )


def _has_plan(store: Store, pending: Instant) -> bool:
    """Tell whether a pending compaction can be run.

    Who ran one of a metadata table that was then dropped may have put its inflight file into the next one: it goes.
    """
    try:
        store.stat(requested_path(pending))
    except FileNotFoundError:
        store.delete(pending.path)
        return False
    return True


def _overtaken(instant: str, gone: FileNotFoundError) -> ConcurrentWriteError:
    return ConcurrentWriteError(
        f"the compaction {instant} of the metadata table stopped: {gone.filename} was deleted meanwhile, by somebody "
        f"who took a commit back or drops the metadata table. Nothing of it is visible. Compact again."
    )


def _work(store: Store, properties: TableProperties, step: Step, pending: Instant) -> list[ShardTask]:
    """Turn a plan into tasks, and see that it names all that it must, and that all of it is there."""
    try:
        plan = read_compaction_plan(store, pending)
    except FileNotFoundError as gone:
        raise _overtaken(pending.requested, gone) from gone
    shards = list_shards(store, step, properties)
    _refuse_lost(store, shards, pending.requested)
    # One of a partition that was delisted has nothing that anybody will read.
    kept = kept_partitions(properties)
    planned = {(o.partition, o.file_id): o for o in plan.operations if o.partition in kept}
    tasks = []
    for shard in sorted(shards.files.keys() | planned.keys()):
        part, operation = shards.slice_of(shard, before=pending.requested), planned.get(shard)
        if operation is None and not part.logs:
            continue
        _check_plan(shards, pending, shard, part, operation)
        tasks.append(ShardTask(store=store, instant=pending.requested, shard=shard, slice=part))
    return tasks


def _check_plan(
    shards: Shards, pending: Instant, shard: ShardId, part: ShardSlice, operation: CompactionOperation | None
) -> None:
    """Refuse a plan that would lose a log, or whose files are gone. What was taken back since is passed over.

    So is the base file of a metadata table that was built anew since: the new one has another name.
    """
    files = (operation.base_file, *operation.log_files) if operation else ()
    named = {split_path(file)[1] for file in files if file}
    there = {split_path(file.path)[1] for file in shards.files.get(shard, ())}
    completions = {i.requested for i in shards.step.metadata.writes}
    bases = {_base_instant(name) for name in there}
    gone = sorted(
        name
        for name in named - there
        if _instant_of(name) in completions
        and not (is_own_instant(_instant_of(name)) and _base_instant(name) in bases)
    )
    left_out = sorted(split_path(log.path)[1] for log in part.logs if split_path(log.path)[1] not in named)
    if gone or left_out:
        raise CorruptTableError(
            path=f"{folder_of(shard[0])}/{(gone or left_out)[0]}",
            found="no such file" if gone else f"a log that the compaction {pending.requested} leaves out",
            expected=f"what was completed before {pending.requested}, in the plan and in the folder",
            remedy="Build the metadata table anew: `bucketlake metadata rebuild TABLE`.",
        )


def _refuse_lost(store: Store, shards: Shards, compaction: str) -> None:
    """Refuse to compact `files` if something of it is gone: who reads by the new base file would not know.

    Its base file is that of the last compaction, or the one that it began with.
    """
    part = shards.slice_of((FILES, FILES_SHARD))
    writes = shards.step.metadata.writes
    first = [i for i in writes if i.requested == FIRST_INSTANT]
    built = max((i.completed or "" for i in first), default="")
    # A compaction of the metadata table that was there before may have been completed late.
    began = [*first, *(i for i in writes if i.action is Action.COMMIT and i.requested > built)]
    try:
        stats = [stat for instant in began for stat in read_commit_metadata(store, instant).write_stats]
    except FileNotFoundError as gone:
        raise _overtaken(compaction, gone) from gone
    told = {split_path(stat.path)[1] for stat in stats if stat.partition == FILES}
    newest = max((i for name in told if (i := _base_instant(name))), default="")
    found = _base_instant(split_path(part.base.path)[1]) if part.base else ""
    if part.lost or found < newest:
        raise CorruptTableError(
            path=folder_of(FILES),
            found=f"no log of {part.lost[0]}" if part.lost else f"no base file of {newest}",
            expected="all that its commits tell of",
            remedy=f"Files of the table would not be listed any more. Build the metadata table anew: "
            f"`bucketlake metadata rebuild {store.uri}`.",
        )


def _base_instant(name: str) -> str:
    parsed = parse_index_base_file_name(name)
    return parsed.instant if parsed is not None else ""


def _instant_of(name: str) -> str:
    parsed = parse_index_base_file_name(name) or parse_log_file_name(name)
    return parsed.instant if parsed is not None else ""


def _check_and_sweep(store: Store, instant: str, written: Iterable[WriteStat]) -> None:
    """See that every base file is there, and delete what another engine wrote when it ran this compaction."""
    expected = {folder_of(stat.path) for stat in written}
    folders = sorted({split_path(path)[0] for path in expected})
    listed = [file.path for listing in in_parallel(store.list, folders, store) for file in listing.files]
    gone = sorted(expected.difference(listed))
    if gone:
        raise ConcurrentWriteError(
            f"the compaction {instant} of the metadata table cannot complete: {gone[0]} was deleted by somebody who "
            f"took an earlier run back. Nothing of it is visible. Run it again."
        )
    bases = ((path, parse_index_base_file_name(split_path(path)[1])) for path in listed)
    strangers = [p for p, base in bases if base and base.instant == instant and p not in expected]
    in_parallel(store.delete, strangers, store)


def _metadata(written: Iterable[WriteStat]) -> CommitMetadata:
    return CommitMetadata(
        operation="COMPACT",
        write_stats=tuple(written),
        extra={SCHEMA_KEY: RECORD_SCHEMA},
        is_compaction=True,
    )


def _compacted_before(store: Store, step: Step, instant: str) -> MetadataCompacted:
    """Report a compaction that is no longer pending, if there was one."""
    for done in step.metadata.completed(Action.COMMIT):
        if done.requested == instant:
            return _report(instant, done.completed or "", read_commit_metadata(store, done).write_stats)
    raise ConcurrentWriteError(
        f"the compaction {instant} of the metadata table is not on its timeline any more: somebody has taken it back. "
        f"Nothing of it is visible. Compact again."
    )


def _report(instant: str, completed: str, written: Iterable[WriteStat]) -> MetadataCompacted:
    stats = tuple(written)
    return MetadataCompacted(
        instant=instant,
        completed=completed,
        shards=len(stats),
        log_files=sum(stat.compacted_log_files for stat in stats),
        records=sum(stat.written for stat in stats),
        size_bytes=sum(stat.size_bytes for stat in stats),
    )


def _operation(shard: ShardId, part: ShardSlice) -> CompactionOperation:
    first = part.base or part.logs[0]
    logs = tuple(split_path(log.path)[1] for log in part.logs)
    return CompactionOperation(
        partition=shard[0],
        file_id=shard[1],
        base_instant=_instant_of(split_path(first.path)[1]),
        base_file=split_path(part.base.path)[1] if part.base else None,
        log_files=logs,
        metrics=_metrics(part.base, part.logs),
    )


def _metrics(base: FileStat | None, logs: Iterable[FileStat]) -> dict[str, float]:
    """What Hudi's planners note of a slice (FileSliceMetricUtils)."""
    sizes = [log.size_bytes for log in logs]
    base_bytes = base.size_bytes if base else 0
    read, write = (base_bytes + sum(sizes)) // _MIB, base_bytes // _MIB
    return {
        "TOTAL_LOG_FILES": float(len(sizes)),
        "TOTAL_LOG_FILES_SIZE": float(sum(sizes)),
        "TOTAL_IO_READ_MB": float(read),
        "TOTAL_IO_WRITE_MB": float(write),
        "TOTAL_IO_MB": float(read + write),
    }
