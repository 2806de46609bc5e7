"""Compaction: what logs say goes into a new base file, and readers have less to merge.

    plan_compaction        which file groups are worth it: pure
    schedule_compaction    T.compaction.requested: from T on the groups have a new slice, still without a base file
    run_compaction         T.compaction.inflight; a base file per group; T_C.commit

A log belongs to the slice whose instant its *completion* time reaches. So a compaction at T must take in every log of
its groups that was completed before T, and no log may be completed with an earlier time once T is on the timeline: it
would belong to the slice before, and be gone with it. Completion times are decided by claims, one after the other; a
plan takes its place among them. When T is claimed, all that was completed is known, no commit is on its way, and
whoever commits next has read the claim and completes after T.

Writers go on meanwhile: what they write belongs to the new slice. Readers merge both slices until it has a base file.

A compaction of Hudi's can be run by us and one of ours by Hudi. Whoever takes over what another has begun deletes what
that one wrote, unless it was us: then the files have the same names, and are kept if they hold the same rows.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa

from bucketlake.basefile import BaseFileWriter, FileFacts, read_base_file, read_file_facts
from bucketlake.commit.completion import Said, alive, schedule
from bucketlake.commit.overtaken import gives_way
from bucketlake.commit.publishing import completed_time
from bucketlake.commit.recovery import recover
from bucketlake.commit.rollback import RolledBack, roll_back_run
from bucketlake.commit.writable import check_writable
from bucketlake.config import TableType
from bucketlake.errors import (
    CommitConflictError,
    ConcurrentWriteError,
    ConfigError,
    CorruptTableError,
    InstantError,
    ProofError,
    UnsupportedError,
)
from bucketlake.index.keeper import carry_out
from bucketlake.index.keepers import keepers_of
from bucketlake.layout import BaseFile, DataFile, FileGroupId, FileSlice, check_files, list_files, slices_of
from bucketlake.layout.names import (
    WRITE_TOKEN,
    BaseFileName,
    marker_folder,
    marker_path,
    path_in_partition,
    render_base_file_name,
    split_path,
)
from bucketlake.logfile import LogDeletes, LogRecords, read_log_files
from bucketlake.merge import MergeRules, SliceMerge, fold_logs
from bucketlake.metadata.change import index_files_of
from bucketlake.schema import arrow_to_avro, named_in, with_meta_columns
from bucketlake.services.held import Held, load_held
from bucketlake.services.index_proof import heal, look_for_missing, recorded_indexes
from bucketlake.services.moved_keys import with_index_files
from bucketlake.services.tasks import Tasks, here
from bucketlake.state import (
    TableState,
    commit_metadata,
    everywhere,
    files_of,
    load_state,
    table_schema,
    view_for,
)
from bucketlake.storage import Spill, Store, in_parallel
from bucketlake.timeline import (
    SCHEMA_KEY,
    Action,
    Clock,
    CommitMetadata,
    CompactionOperation,
    CompactionPlan,
    Instant,
    State,
    WriteStat,
    encode_commit_metadata,
    encode_compaction_plan,
    process_clock,
    read_commit_metadata,
    read_compaction_plan,
    shift_instant,
    write_inflight,
)
from bucketlake.write.report import PROOF_KEY

FilesByPartition = Mapping[str, tuple[DataFile, ...]]

_MIB = 1 << 20
_MODULUS = 1 << 64
_HOUR_MS = 3_600_000


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionTrigger:
    """Which file groups to compact: those for which one of these holds, or all that have logs if none is given."""

    delta_commits: int | None = None
    """Its logs have at least so many writes."""
    log_bytes: int | None = None
    """Its logs have at least so many bytes."""
    log_ratio: float | None = None
    """Its logs have at least so many times the bytes of its base file."""
    hours: float | None = None
    """Its oldest log is at least so many hours old."""
    base_bytes: int | None = None
    """But only once the logs are large enough for the base file: its bytes are at most those of the logs, plus so many
    for each write in them. So the bytes that are rewritten stay in proportion to those that were written."""

    def __post_init__(self) -> None:
        given = {
            "delta commits": self.delta_commits,
            "log bytes": self.log_bytes,
            "log ratio": self.log_ratio,
            "hours": self.hours,
            "base bytes": self.base_bytes,
        }
        for name, value in given.items():
            if value is not None and not value >= (1 if name == "delta commits" else 0):
                raise ConfigError(f"compacting by {name} needs a positive number and got {value}.")

    def holds(self, part: FileSlice, *, now: str) -> bool:
        """Tell whether to compact a slice; `now` is an instant time."""
        instants = sorted({log.instant for log in part.log_files})
        base_bytes = part.base_file.size_bytes if part.base_file else 0
        if self.base_bytes is not None and len(instants) * self.base_bytes + _log_bytes(part) < base_bytes:
            return False
        if (self.delta_commits, self.log_bytes, self.log_ratio, self.hours) == (None, None, None, None):
            return True
        if self.delta_commits is not None and len(instants) >= self.delta_commits:
            return True
        if self.log_bytes is not None and _log_bytes(part) >= self.log_bytes:
            return True
        if self.log_ratio is not None and _log_bytes(part) >= self.log_ratio * base_bytes:
            return True
        return self.hours is not None and instants[0] <= shift_instant(now, -int(self.hours * _HOUR_MS))


@dataclass(frozen=True, slots=True)
class Compaction:
    """Slices worth compacting, those with the most logs first; prints as a list of files and bytes."""

    slices: tuple[FileSlice, ...]

    @property
    def groups(self) -> frozenset[FileGroupId]:
        return frozenset((part.partition, part.file_id) for part in self.slices)

    @property
    def is_empty(self) -> bool:
        return not self.slices

    @property
    def log_files(self) -> int:
        return sum(len(part.log_files) for part in self.slices)

    @property
    def size_bytes(self) -> int:
        return sum(part.size_bytes for part in self.slices)

    def __str__(self) -> str:
        if not self.slices:
            return "nothing to compact"
        lines = [
            f"compact {len(self.slices):,} file groups: {self.log_files:,} logs, {self.size_bytes:,} bytes to read"
        ]
        for part in self.slices:
            base = split_path(part.base_file.path)[1] if part.base_file else "no base file"
            lines.append(
                f"  {path_in_partition(part.partition, part.file_id)}: {base} + {len(part.log_files)} logs, "
                f"{_log_bytes(part):,} bytes"
            )
        return "\n".join(lines)


def plan_compaction(
    state: TableState,
    files: FilesByPartition,
    held: Held,
    *,
    trigger: CompactionTrigger | None = None,
    now: str,
) -> Compaction:
    """Choose the file groups to compact: those that have logs, that `trigger` takes, and that nobody else has taken."""
    trigger = trigger or CompactionTrigger()
    view = view_for(state, (file for group in files.values() for file in group))
    slices = [
        part
        for partition, group in files.items()
        for part in slices_of(partition, group, view)
        if part.log_files
        and (partition, part.file_id) not in held.groups
        and (partition, part.file_id) not in view.pending_compactions
        and trigger.holds(part, now=now)
    ]
    # The most logs first, as Hudi has it (LogFileSizeBasedCompactionStrategy).
    return Compaction(tuple(sorted(slices, key=_log_bytes, reverse=True)))


def schedule_compaction(store: Store, plan: Compaction, *, clock: Clock | None = None) -> str | None:
    """Put a compaction on the timeline and return its instant; None if nothing of the plan is left to do.

    What has been written to its groups since they were chosen is taken in.
    """
    if not plan.slices:
        return None
    partitions = sorted({part.partition for part in plan.slices})

    def say(state: TableState, instant: str) -> bytes | None:  # noqa: ARG001 # as others are told
        _check(state)
        fresh = plan_compaction(state, files_of(state, partitions), load_held(state), now="")
        slices = [part for part in fresh.slices if (part.partition, part.file_id) in plan.groups]
        if not slices:
            return None
        return encode_compaction_plan(CompactionPlan(operations=tuple(map(_operation, slices))))

    return schedule(store, action=Action.COMPACTION, say=say, clock=clock)


@dataclass(frozen=True, slots=True, kw_only=True)
class Compacted:
    """What a compaction did; prints as two lines."""

    instant: str
    completed: str
    file_groups: int
    log_files: int
    rows: int
    """In the new base files."""
    size_bytes: int
    healed: int = 0
    """Keys that an index of the table lacked, and has now."""

    def __str__(self) -> str:
        healed = f"\n  {self.healed:,} keys that the index lacked were recorded" if self.healed else ""
        return (
            f"compaction {self.instant}, completed {self.completed}\n"
            f"  {self.file_groups:,} file groups, {self.log_files:,} logs merged, {self.rows:,} rows in "
            f"{self.size_bytes:,} bytes{healed}"
        )


def run_compaction(
    store: Store, instant: str, *, tasks: Tasks = here, clock: Clock | None = None
) -> Compacted:
    """Run a scheduled compaction, ours or Hudi's, from wherever an earlier run was cut off.

    One that was completed meanwhile is reported as it is.
    """
    state = _checked_state(store)
    clock = clock or process_clock(state.properties.timeline_timezone)
    recover(store, state.properties, clock=clock)
    state = _checked_state(store)
    pending = next((i for i in state.timeline.pending(Action.COMPACTION) if i.requested == instant), None)
    if pending is None:
        return _compacted_before(state, instant)
    with alive(store, state.properties, instant=instant, action=Action.COMPACTION, clock=clock) as service:
        work = _work(state, pending)
        if pending.state is State.REQUESTED:
            write_inflight(store, state.properties, instant=instant, action=Action.COMPACTION)
        _delete_strangers(state, instant, {task.path for task in work})
        written = tasks(compact_slice, work)
        missing = look_for_missing(store, recorded_indexes(state), [one.stat for one in written], tasks)

        said: CommitMetadata | None = None

        def say() -> Said:
            nonlocal said
            _check_files(store, instant, written)
            # The newest commit says what the table's columns are, and a writer may have added one since we began.
            now = load_state(store)
            if pending.state is not State.REQUESTED:
                _forget_entries(now, instant)
            said = _metadata(now, written)
            if missing:
                said = with_index_files(said, heal(now, missing, instant=instant))
            return Said(encode_commit_metadata(said, action=Action.COMPACTION))

        completed = service.complete(say, clock=clock)
    if said is None:
        return _compacted_before(load_state(store), instant)  # by somebody who took us for dead
    return _report(instant, completed, said)


def _forget_entries(state: TableState, instant: str) -> None:
    """Take away what an earlier run has recorded of keys: it may be out of date."""
    for keeper in keepers_of(state.properties):
        upkeep = keeper.after_taking_back(state.store, instant=instant, action=Action.COMPACTION)
        carry_out(state.store, upkeep)


def _check_files(store: Store, instant: str, written: Iterable[SliceCompacted]) -> None:
    """Refuse to complete without a file that somebody has deleted, who was still at taking an earlier run back."""
    paths = {one.stat.path for one in written}
    listed = list_files(store, sorted({one.stat.partition for one in written}))
    gone = sorted(paths - {file.path for files in listed.values() for file in files})
    if gone:
        raise CommitConflictError(
            f"the compaction of {instant} cannot complete: {gone[0]} was deleted by somebody who took an earlier run "
            f"back. Nothing of it is visible. Run it again."
        )


def rollback_compaction(store: Store, instant: str, *, clock: Clock | None = None) -> RolledBack | None:
    """Take back what was done of a pending compaction, up to its plan; None if it was completed meanwhile.

    Nobody may be running it: who does finds out when it is about to complete.
    """
    state = _checked_state(store)
    pending = next((i for i in state.timeline.pending(Action.COMPACTION) if i.requested == instant), None)
    if pending is None:
        _compacted_before(state, instant)
        return None
    return roll_back_run(store, state.properties, pending, clock=clock)


def compact_table(
    store: Store,
    *,
    trigger: CompactionTrigger | None = None,
    look_at: Callable[[TableState], Collection[str] | None] = everywhere,
    tasks: Tasks = here,
    clock: Clock | None = None,
) -> tuple[Compacted, ...]:
    """Run the compactions that are pending; then choose, schedule and run another, in the partitions of `look_at`.

    Those that another process is running are left to it.
    """
    state = _checked_state(store)
    clock = clock or process_clock(state.properties.timeline_timezone)
    pending = [instant.requested for instant in state.timeline.pending(Action.COMPACTION)]
    done = []
    for instant in pending:
        with suppress(ConcurrentWriteError):
            done.append(run_compaction(store, instant, tasks=tasks, clock=clock))
    state = load_state(store)
    with gives_way(state, "a compaction was planned"):
        files = files_of(state, look_at(state))
        plan = plan_compaction(state, files, load_held(state), trigger=trigger, now=clock.next_instant())
        scheduled = schedule_compaction(store, plan, clock=clock)
    if scheduled is not None:
        done.append(run_compaction(store, scheduled, tasks=tasks, clock=clock))
    return tuple(done)


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionTask:
    """One slice to compact: all that a task is told. Frozen, small, picklable."""

    store: Store
    instant: str
    partition: str
    file_id: str
    base_instant: str | None
    base_path: str | None
    log_paths: tuple[str, ...]
    rules: MergeRules
    schema: pa.Schema
    """The table's columns, meta columns included."""
    avro_schema: str
    size_bytes: int = 0
    """Of the files that are merged."""
    whole: frozenset[str] = frozenset()
    """Those of the files that a commit says are whole."""

    @property
    def inputs(self) -> tuple[str, ...]:
        return (*self.log_paths, *([self.base_path] if self.base_path is not None else []))

    @property
    def path(self) -> str:
        """Where the new base file goes."""
        name = render_base_file_name(BaseFileName(self.file_id, WRITE_TOKEN, self.instant))
        return path_in_partition(self.partition, name)


@dataclass(frozen=True, slots=True)
class SliceCompacted:
    """What a task did."""

    stat: WriteStat
    key_hash_sum: int


def compact_slice(task: CompactionTask) -> SliceCompacted:
    """Merge a slice into a new base file. Rows keep the commit they are of; deleted ones go."""
    store, path = task.store, task.path
    counted = _Counted(
        read_base_file(store, task.base_path, task.schema) if task.base_path is not None else ()
    )
    logs = read_log_files(
        store,
        list(task.log_paths),
        task.schema,
        ordering_fields=task.rules.ordering_fields,
        table_schema=task.schema,
        whole=task.whole,
    )
    merge = _Merge(counted, [log for log in logs if len(_entries(log))], task)
    with Spill() as spill:
        writer = BaseFileWriter(spill, task.schema, avro_schema=task.avro_schema)
        for batch in merge.batches:
            writer.write(named_in(batch, split_path(path)[1]))
        facts = writer.finish({})
        if facts.rows != counted.rows + merge.inserted - merge.deleted:
            raise ProofError(
                f"{path}: {counted.rows} rows of the base file, {merge.inserted} new and {merge.deleted} deleted ones "
                f"cannot make {facts.rows}. Nothing was committed; this is a bug, please report it."
            )
        size_bytes = put_base_file(store, path, spill.content, facts, instant=task.instant)
    stat = WriteStat(
        partition=task.partition,
        file_id=task.file_id,
        path=path,
        previous_instant=task.base_instant,
        previous_base_file=split_path(task.base_path)[1] if task.base_path is not None else None,
        written=facts.rows,
        inserted=merge.inserted,
        updated=merge.updated,
        deleted=merge.deleted,
        errors=0,
        written_bytes=size_bytes,
        size_bytes=size_bytes,
        compacted_log_files=len(task.log_paths),
    )
    return SliceCompacted(stat, facts.key_hash_sum)


class _Merge:
    """A slice on its way into a base file; counts are complete when the batches are through."""

    def __init__(self, base: _Counted, logs: list[LogRecords | LogDeletes], task: CompactionTask) -> None:
        self._merge = SliceMerge(fold_logs(logs, task.rules, task.schema)) if logs else None
        self.batches: Iterable[pa.RecordBatch] = self._merge.over(base) if self._merge else base

    @property
    def inserted(self) -> int:
        return self._merge.inserted if self._merge else 0

    @property
    def updated(self) -> int:
        return self._merge.updated if self._merge else 0

    @property
    def deleted(self) -> int:
        return self._merge.deleted if self._merge else 0


def _entries(log: LogRecords | LogDeletes) -> pa.Table | pa.Array:
    return log.records if isinstance(log, LogRecords) else log.keys


class _Counted:
    """Batches on their way, and how many rows have passed."""

    def __init__(self, batches: Iterable[pa.RecordBatch]) -> None:
        self._batches = batches
        self.rows = 0

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        for batch in self._batches:
            self.rows += batch.num_rows
            yield batch


def put_base_file(
    store: Store, path: str, data: bytes | Path, facts: FileFacts, *, instant: str, stale: str | None = None
) -> int:
    """Put a base file of a service, its marker first; return its size. An earlier attempt's must have the same rows.

    `stale` is the version of a file of that name that this one is to replace.
    """
    store.put(marker_path(instant, path, "CREATE"), b"")
    if store.put_new(path, data) if stale is None else store.replace_if(path, data, stale):
        return data.stat().st_size if isinstance(data, Path) else len(data)
    found = read_file_facts(store, path)
    if (found.rows, found.key_hash_sum) != (facts.rows, facts.key_hash_sum):
        raise CorruptTableError(
            path=path,
            found=f"{found.rows} rows with the key sum {found.key_hash_sum}, from an earlier attempt",
            expected=f"{facts.rows} with {facts.key_hash_sum}: the files that are merged do not change",
            remedy=f"Roll {instant} back, then run it again.",
        )
    return store.stat(path).size_bytes


def _checked_state(store: Store) -> TableState:
    state = load_state(store)
    _check(state)
    return state


def _check(state: TableState) -> None:
    """Refuse a table that cannot be compacted."""
    check_writable(state)
    if state.properties.table_type is not TableType.MERGE_ON_READ:
        raise UnsupportedError(
            subject=state.store.uri,
            found="a copy-on-write table",
            supported="compacting merge-on-read tables: the others have no logs",
            remedy="There is nothing to do. `bucketlake clean` removes old base files.",
        )


def _work(state: TableState, pending: Instant) -> list[CompactionTask]:
    """Turn a plan into tasks, and see that everything they need is there."""
    properties = state.properties
    plan = read_compaction_plan(state.store, pending)
    schema = table_schema(state)
    file_schema = with_meta_columns(schema)
    avro_schema = arrow_to_avro(file_schema, table=properties.name)
    rules = MergeRules(
        properties.merge_mode, properties.ordering_fields, properties.delete_field, properties.delete_marker
    )
    # A group that was replaced meanwhile has nothing that anybody will read.
    wanted = [o for o in plan.operations if not state.view.is_replaced(o.partition, o.file_id)]
    tasks = [
        CompactionTask(
            store=state.store,
            instant=pending.requested,
            partition=operation.partition,
            file_id=operation.file_id,
            base_instant=operation.base_instant,
            base_path=_path(operation.partition, operation.base_file) if operation.base_file else None,
            log_paths=tuple(_path(operation.partition, log) for log in operation.log_files),
            rules=rules,
            schema=file_schema,
            avro_schema=avro_schema,
        )
        for operation in wanted
    ]
    listed = files_of(state, {task.partition for task in tasks})
    there = {file.path: file.size_bytes for files in listed.values() for file in files}
    for task in tasks:
        missing = sorted(set(task.inputs) - there.keys())
        if missing:
            raise CorruptTableError(
                path=missing[0],
                found="no such file",
                expected=f"what the compaction of {pending.requested} is to merge",
                remedy="Restore it from a copy. If the write it is of was rolled back, roll the compaction back too: "
                f"bucketlake rollback {state.store.uri} {pending.requested}",
            )
    view = view_for(state, (file for files in listed.values() for file in files))
    whole = check_files((path for task in tasks for path in task.inputs), listed, view)
    return [
        replace(
            task,
            size_bytes=sum(there[path] for path in task.inputs),
            whole=whole.intersection(task.inputs),
        )
        for task in tasks
    ]


def _path(partition: str, file: str) -> str:
    return path_in_partition(partition, split_path(file)[1])


def _delete_strangers(state: TableState, instant: str, expected: set[str]) -> None:
    """Delete what another engine wrote when it ran this compaction, and was cut off."""
    store = state.store
    listed = list_files(store, sorted({split_path(path)[0] for path in expected}))
    strangers = [
        file.path
        for files in listed.values()
        for file in files
        if isinstance(file, BaseFile) and file.instant == instant and file.path not in expected
    ]
    in_parallel(store.delete, strangers, store)
    # Its list of markers goes too: where there is one, Hudi does not look for markers such as ours.
    for file in store.list(marker_folder(instant)).files:
        if split_path(file.path)[1].startswith("MARKERS"):
            store.delete(file.path)


def _metadata(state: TableState, written: Iterable[SliceCompacted]) -> CommitMetadata:
    done = list(written)
    sums = {
        "rows": sum(one.stat.written for one in done),
        "key_hash_sum": sum(one.key_hash_sum for one in done) % _MODULUS,
    }
    proof = sums | {f"file_{name}": value for name, value in sums.items()}
    return CommitMetadata(
        operation="COMPACT",
        write_stats=tuple(one.stat for one in done),
        extra={SCHEMA_KEY: schema_text(state), PROOF_KEY: json.dumps(proof)},
        is_compaction=True,
    )


def schema_text(state: TableState) -> str:
    """The table's schema in the words of the newest write: a service changes nothing about it."""
    for instant in reversed(state.timeline.writes):
        text = commit_metadata(state, instant).schema
        if text is not None:
            return text
    return arrow_to_avro(table_schema(state), table=state.properties.name)


def _compacted_before(state: TableState, instant: str) -> Compacted:
    """Report a compaction that is no longer pending, if there was one."""
    completed = completed_time(state.timeline, instant, Action.COMPACTION)
    if completed is not None:
        done = next(i for i in state.timeline.completed(Action.COMMIT) if i.requested == instant)
        metadata = read_commit_metadata(state.store, done)
        if metadata.is_compaction:
            return _report(instant, completed, metadata)
    pending = [i.requested for i in state.timeline.pending(Action.COMPACTION)]
    raise InstantError(
        f"there is no compaction {instant} on the timeline. "
        + (f"Pending: {', '.join(pending)}." if pending else "None is pending; schedule one first.")
    )


def _report(instant: str, completed: str, metadata: CommitMetadata) -> Compacted:
    stats = metadata.write_stats
    return Compacted(
        instant=instant,
        completed=completed,
        file_groups=len(stats),
        log_files=sum(stat.compacted_log_files for stat in stats),
        rows=sum(stat.written for stat in stats),
        size_bytes=sum(stat.size_bytes for stat in stats),
        healed=sum(file.came for file in index_files_of(metadata)),
    )


def _operation(part: FileSlice) -> CompactionOperation:
    return CompactionOperation(
        partition=part.partition,
        file_id=part.file_id,
        base_instant=part.instant,
        base_file=split_path(part.base_file.path)[1] if part.base_file else None,
        log_files=tuple(split_path(log.path)[1] for log in part.log_files),
        metrics=metrics_of(part),
    )


def metrics_of_all(slices: Iterable[FileSlice]) -> dict[str, float]:
    """The same, of several together."""
    found: dict[str, float] = {}
    for part in slices:
        for name, value in metrics_of(part).items():
            found[name] = found.get(name, 0.0) + value
    return found


def metrics_of(part: FileSlice) -> dict[str, float]:
    """What Hudi's planners note of a slice (FileSliceMetricUtils)."""
    base_bytes = part.base_file.size_bytes if part.base_file else 0
    log_bytes = _log_bytes(part)
    read, write = (base_bytes + log_bytes) // _MIB, base_bytes // _MIB
    return {
        "TOTAL_LOG_FILES": float(len(part.log_files)),
        "TOTAL_LOG_FILES_SIZE": float(log_bytes),
        "TOTAL_IO_READ_MB": float(read),
        "TOTAL_IO_WRITE_MB": float(write),
        "TOTAL_IO_MB": float(read + write),
    }


def _log_bytes(part: FileSlice) -> int:
    return sum(log.size_bytes for log in part.log_files)
