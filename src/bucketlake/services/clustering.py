"""Clustering: file groups are written anew with their rows sorted, so that who asks for a range reads little.

    plan_clustering        which file groups are worth it: pure
    schedule_clustering    T.clustering.requested: names the slices, and the columns to sort by
    run_clustering         T.clustering.inflight; new file groups; T_C.replacecommit, which hides the old ones

A bucket keeps its one file group: the new one takes the place of the old, under a new id of the same prefix. Where an
index records where keys live, small file groups of a partition are joined, and every key is recorded anew
(`moved_keys`). What happens to rows is in `regroup`; who moves keys between buckets has only to say so there.

Writers go on meanwhile, and come first. Under the lock, before it completes, a clustering looks whether the slices
that it was planned with are still what a reader sees. If somebody has written to one of them, it gives way: nothing of
it becomes visible, its plan goes, and the next round plans anew. A writer that was begun before a clustering completed,
and touched one of its groups, finds the group replaced when it commits, and is run again.

Hudi schedules such clusterings too, and its plans are run here as ours are. It runs none, neither its own nor ours: its
executor refuses tables with simple buckets.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

import pyarrow as pa
from pyarrow import types

from bucketlake.basefile import read_footer
from bucketlake.basefile.writer import ROW_GROUP_BYTES
from bucketlake.commit.claims import list_claims
from bucketlake.commit.completion import Said, alive, schedule
from bucketlake.commit.locks import table_lock
from bucketlake.commit.overtaken import gives_way
from bucketlake.commit.publishing import completed_time
from bucketlake.commit.recovery import recover
from bucketlake.commit.rollback import RolledBack, roll_back_run
from bucketlake.commit.writable import check_writable
from bucketlake.errors import (
    CommitConflictError,
    ConfigError,
    ConflictError,
    InstantError,
    UnsupportedError,
)
from bucketlake.index import RecordedIndex
from bucketlake.index.fingerprint import writing_index
from bucketlake.index.room import GROUP_BYTES
from bucketlake.layout import BaseFile, DataFile, FileGroupId, FileSlice, check_files, list_files, slices_of
from bucketlake.layout.names import path_in_partition, split_path
from bucketlake.merge import MergeRules
from bucketlake.schema import META_COLUMNS, arrow_to_avro, with_meta_columns
from bucketlake.services.compaction import metrics_of_all, schema_text
from bucketlake.services.due import Due
from bucketlake.services.held import Held, load_held
from bucketlake.services.moved_keys import check_recorded, record_moved, refuse_other_indexes
from bucketlake.services.regroup import (
    SORTED_KEY,
    Regroup,
    Regrouped,
    RegroupTask,
    base_path,
    join_groups,
    keep_buckets,
    log_paths,
    named,
    regroup,
)
from bucketlake.services.tasks import Tasks, here
from bucketlake.state import TableState, files_of, load_state, table_schema, view_for
from bucketlake.storage import Store, in_parallel
from bucketlake.timeline import (
    SCHEMA_KEY,
    SORT_STRATEGY,
    Action,
    Clock,
    ClusteringGroup,
    CommitMetadata,
    Instant,
    RequestedReplace,
    State,
    encode_clustering_plan,
    encode_commit_metadata,
    process_clock,
    read_commit_metadata,
    read_requested_replace,
    shift_instant,
    write_inflight,
)
from bucketlake.write.report import PROOF_KEY
from bucketlake.write.state import is_non_blocking, told_of_keys

FilesByPartition = Mapping[str, tuple[DataFile, ...]]

_CLUSTER = "CLUSTER"
_SORT_COLUMNS = "hoodie.clustering.plan.strategy.sort.columns"
_ROW_GROUP_BYTES = "hoodie.parquet.block.size"
_MODULUS = 1 << 64
_HOUR_MS = 3_600_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusteringTrigger:
    """Which file groups are worth clustering: those of which all that is given holds."""

    min_bytes: int | None = None
    """Its files have at least so many bytes."""
    max_bytes: int | None = None
    """Its files have at most so many bytes."""
    hours: float | None = None
    """Nobody has written to it for so long; so writers are the less in the way."""
    partitions: tuple[str, ...] | None = None
    """It is in one of these."""

    def __post_init__(self) -> None:
        given = {"min bytes": self.min_bytes, "max bytes": self.max_bytes, "hours": self.hours}
        for name, value in given.items():
            if value is not None and not value >= 0:
                raise ConfigError(f"clustering by {name} needs a positive number and got {value}.")
        if self.min_bytes is not None and self.max_bytes is not None and self.min_bytes > self.max_bytes:
            raise ConfigError(
                f"no file group has at least {self.min_bytes} and at most {self.max_bytes} bytes. Change one of them."
            )

    def holds(self, part: FileSlice, *, now: str) -> bool:
        """Tell whether to cluster a slice; `now` is an instant time."""
        newest = max([part.instant, *(log.instant for log in part.log_files)])
        return (
            (self.min_bytes is None or part.size_bytes >= self.min_bytes)
            and (self.max_bytes is None or part.size_bytes <= self.max_bytes)
            and (self.hours is None or newest <= shift_instant(now, -int(self.hours * _HOUR_MS)))
            and (self.partitions is None or part.partition in self.partitions)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Clustering:
    """Slices worth clustering, the largest first; prints as a list of files and bytes."""

    by: tuple[str, ...]
    slices: tuple[FileSlice, ...]
    row_group_bytes: int = ROW_GROUP_BYTES

    @property
    def is_empty(self) -> bool:
        return not self.slices

    @property
    def groups(self) -> frozenset[FileGroupId]:
        return frozenset((part.partition, part.file_id) for part in self.slices)

    @property
    def log_files(self) -> int:
        return sum(len(part.log_files) for part in self.slices)

    @property
    def size_bytes(self) -> int:
        return sum(part.size_bytes for part in self.slices)

    def __str__(self) -> str:
        if self.is_empty:
            return "nothing to cluster"
        lines = [
            f"cluster {len(self.slices):,} file groups by {', '.join(self.by)}: {self.log_files:,} logs, "
            f"{self.size_bytes:,} bytes to read"
        ]
        for part in self.slices:
            base = split_path(part.base_file.path)[1] if part.base_file else "no base file"
            lines.append(
                f"  {path_in_partition(part.partition, part.file_id)}: {base} + {len(part.log_files)} logs, "
                f"{part.size_bytes:,} bytes"
            )
        return "\n".join(lines)


def plan_clustering(
    state: TableState,
    files: FilesByPartition,
    held: Held,
    *,
    by: Sequence[str],
    trigger: ClusteringTrigger | None = None,
    now: str,
    sorted_already: frozenset[str] = frozenset(),
    row_group_bytes: int = ROW_GROUP_BYTES,
) -> Clustering:
    """Choose the file groups to cluster: those that `trigger` takes, and that nobody else has taken.

    Left out is what has no logs and a base file among `sorted_already`, which `find_sorted` finds.
    """
    trigger = trigger or ClusteringTrigger()
    strangers = sorted(set(trigger.partitions or ()) - files.keys())
    if strangers:
        raise ConfigError(
            f"the table has no partition {strangers[0]!r}. Name partitions by their paths, as `bucketlake layout` "
            f"shows them."
        )
    view = view_for(state, (file for group in files.values() for file in group))
    slices = [
        part
        for partition, group in files.items()
        for part in slices_of(partition, group, view)
        if (partition, part.file_id) not in held.groups
        and (partition, part.file_id) not in view.pending_compactions
        and (part.log_files or part.base_file is None or part.base_file.path not in sorted_already)
        and trigger.holds(part, now=now)
    ]
    ordered = sorted(slices, key=lambda part: (-part.size_bytes, part.partition, part.file_id))
    return Clustering(by=tuple(by), slices=tuple(ordered), row_group_bytes=row_group_bytes)


def find_sorted(state: TableState, files: FilesByPartition, by: Sequence[str]) -> frozenset[str]:
    """Return the base files whose rows are sorted by these columns already: a look at their footers.

    Only those are looked at that have no logs over them.
    """
    view = view_for(state, (file for group in files.values() for file in group))
    bases = [
        part.base_file.path
        for partition, group in files.items()
        for part in slices_of(partition, group, view)
        if part.base_file is not None and not part.log_files
    ]
    orders = in_parallel(lambda path: _order_of(state.store, path), bases, state.store)
    wanted = ",".join(by)
    return frozenset(path for path, order in zip(bases, orders, strict=True) if order == wanted)


def _order_of(store: Store, path: str) -> str | None:
    """Return the columns that a base file says it is sorted by. Whether one that is gone is, matters to nobody."""
    try:
        return read_footer(store, path).metadata.get(SORTED_KEY)
    except FileNotFoundError:
        return None  # rolled back or cleaned since it was listed: who schedules looks again


def check_sort_columns(schema: pa.Schema, by: Sequence[str]) -> None:
    """Refuse what rows cannot be sorted by; `schema` has the table's columns."""
    if not by:
        raise ConfigError("say which columns to sort by: one at least.")
    for name in by:
        if name not in schema.names or name in META_COLUMNS:
            raise ConfigError(
                f"the table has no column {name!r} to sort by. It has {', '.join(map(repr, schema.names))}."
            )
        kind = schema.field(name).type
        if types.is_nested(kind) or types.is_null(kind):
            raise ConfigError(f"rows cannot be sorted by {name!r}, a column of {kind}. Choose plain values.")


def schedule_clustering(store: Store, plan: Clustering, *, clock: Clock | None = None) -> str | None:
    """Put a clustering on the timeline and return its instant; None if nothing of the plan is left to do.

    What has been written to its groups since they were chosen is taken in.
    """
    if plan.is_empty:
        return None
    partitions = sorted({part.partition for part in plan.slices})

    def say(state: TableState, instant: str) -> bytes | None:  # noqa: ARG001 # as others are told
        _check(state)
        check_sort_columns(table_schema(state), plan.by)
        fresh = plan_clustering(state, files_of(state, partitions), load_held(state), by=plan.by, now="")
        slices = [part for part in fresh.slices if (part.partition, part.file_id) in plan.groups]
        index = writing_index(state).recorded
        groups = [[s] for s in slices] if index is None else _joined(slices, index)
        return encode_clustering_plan(_requested(groups, plan), root=store.uri) if slices else None

    return schedule(store, action=Action.CLUSTERING, say=say, clock=clock)


def _joined(slices: Iterable[FileSlice], index: RecordedIndex) -> list[list[FileSlice]]:
    """Bring small file groups of a partition together, up to the size that one should have, if they may be joined."""
    found: list[list[FileSlice]] = []
    open_groups: dict[str, tuple[list[FileSlice], int]] = {}
    for part in slices:
        if index.heir_slot(part.partition, part.file_id) is not None:
            found.append([part])
            continue
        group, size = open_groups.get(part.partition, ([], GROUP_BYTES))
        if size + part.size_bytes > GROUP_BYTES:
            group, size = [], 0
            found.append(group)
        group.append(part)
        open_groups[part.partition] = group, size + part.size_bytes
    return found


def _requested(groups: Iterable[Sequence[FileSlice]], plan: Clustering) -> RequestedReplace:
    return RequestedReplace(
        operation=_CLUSTER,
        strategy=SORT_STRATEGY,
        parameters={_SORT_COLUMNS: ",".join(plan.by), _ROW_GROUP_BYTES: str(plan.row_group_bytes)},
        groups=tuple(
            ClusteringGroup(slices=tuple(map(named, slices)), metrics=metrics_of_all(slices))
            for slices in groups
        ),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Clustered:
    """What a clustering did; prints as two lines."""

    instant: str
    completed: str
    replaced: int
    """File groups that gave way."""
    file_groups: int
    """Those that came."""
    rows: int
    size_bytes: int

    def __str__(self) -> str:
        return (
            f"clustering {self.instant}, completed {self.completed}\n"
            f"  {self.replaced:,} file groups replaced by {self.file_groups:,}, {self.rows:,} rows in "
            f"{self.size_bytes:,} bytes"
        )


def run_clustering(
    store: Store, instant: str, *, tasks: Tasks = here, clock: Clock | None = None
) -> Clustered:
    """Run a scheduled clustering, ours or Hudi's, from wherever an earlier run was cut off.

    One that was completed meanwhile is reported as it is. Raises `CommitConflictError` if somebody has written to its
    file groups since it was planned; then it is rolled back, with its plan.
    """
    state = _checked_state(store)
    clock = clock or process_clock(state.properties.timeline_timezone)
    recover(store, state.properties, clock=clock)
    state = _checked_state(store)
    pending = pending_clustering(state, instant)
    if pending is None:
        return clustered_before(state, instant)
    try:
        with (
            gives_way(state, f"the clustering of {instant} ran"),
            alive(store, state.properties, instant=instant, action=Action.CLUSTERING, clock=clock) as service,
        ):
            plan = _checked_plan(state, pending)
            schema = schema_text(state)
            _refuse_late(state, pending, plan, schema)
            work = _work(state, pending, plan)
            if pending.state is State.REQUESTED:
                write_inflight(store, state.properties, instant=instant, action=Action.CLUSTERING)
            delete_strangers(state, instant, {path for task in work for path in task.paths})
            metadata = clustering_metadata(plan, tasks(regroup, work), schema)
            told = told_of_keys(state, writing_index(state))
            metadata = record_moved(store, told, metadata, instant=instant, tasks=tasks)
            written = [stat.path for stat in metadata.write_stats]

            def say() -> Said:
                now = load_state(store)
                _refuse_late(now, pending, plan, schema, written)
                refuse_other_indexes(state.properties, now.properties, f"the clustering of {instant}")
                check_recorded(store, metadata)
                return Said(encode_commit_metadata(metadata, action=Action.CLUSTERING))

            completed = service.complete(say, clock=clock)
    except CommitConflictError:
        take_back(store, instant, clock)
        raise
    return report_clustering(instant, completed, metadata)


def rollback_clustering(store: Store, instant: str, *, clock: Clock | None = None) -> RolledBack | None:
    """Take a pending clustering back, its plan too; None if it was completed meanwhile.

    Nobody may be running it: who does finds out when it is about to complete.
    """
    state = _checked_state(store)
    clock = clock or process_clock(state.properties.timeline_timezone)
    done = take_back(store, instant, clock)
    if done is None:
        clustered_before(load_state(store), instant)
    return done


def cluster_table(
    store: Store,
    *,
    by: Sequence[str],
    trigger: ClusteringTrigger | None = None,
    row_group_bytes: int = ROW_GROUP_BYTES,
    tasks: Tasks = here,
    clock: Clock | None = None,
) -> tuple[Clustered, ...]:
    """Run the clusterings that are pending; then choose, schedule and run another.

    Those that another process is running are left to it, those that came too late are rolled back.
    """
    state = _checked_state(store)
    clock = clock or process_clock(state.properties.timeline_timezone)
    with gives_way(state, "a clustering was planned"):
        check_sort_columns(table_schema(state), by)
        before = [(i, plan_of_clustering(state, i)) for i in state.timeline.pending(Action.CLUSTERING)]
    done = []
    for pending, plan_before in before:
        if plan_before is not None and not plan_before.is_sort:
            continue  # a resize is left to who planned it
        with suppress(ConflictError, InstantError):
            done.append(run_clustering(store, pending.requested, tasks=tasks, clock=clock))
    state = load_state(store)
    with gives_way(state, "a clustering was planned"):
        files = files_of(state)
        plan = plan_clustering(
            state,
            files,
            load_held(state),
            by=by,
            trigger=trigger,
            now=clock.next_instant(),
            sorted_already=find_sorted(state, files, by),
            row_group_bytes=row_group_bytes,
        )
        scheduled = schedule_clustering(store, plan, clock=clock)
    if scheduled is not None:
        done.append(run_clustering(store, scheduled, tasks=tasks, clock=clock))
    return tuple(done)


def due_clustering(
    store: Store, *, by: Sequence[str], trigger: ClusteringTrigger | None = None
) -> Due[Clustering]:
    """Say what `cluster_table` would do."""
    state = _checked_state(store)
    check_sort_columns(table_schema(state), by)
    files = files_of(state)
    plan = plan_clustering(
        state,
        files,
        load_held(state),
        by=by,
        trigger=trigger,
        now=process_clock(state.properties.timeline_timezone).next_instant(),
        sorted_already=find_sorted(state, files, by),
    )
    pending = tuple(instant.requested for instant in state.timeline.pending(Action.CLUSTERING))
    return Due("clustering", pending, plan)


def _checked_state(store: Store) -> TableState:
    state = load_state(store)
    _check(state)
    return state


def _check(state: TableState) -> None:
    """Refuse a table that cannot be clustered."""
    check_writable(state)
    index, store = writing_index(state), state.store
    if index.resizable is not None:
        raise ConfigError(
            f"{store.uri} has {index}. It cannot be clustered: the ring fixes the ids of its file groups, and "
            f"a clustering needs new ones. `bucketlake buckets resize` rewrites buckets under new ids."
        )
    if is_non_blocking(state.properties):
        raise ConfigError(
            f"{store.uri} is non-blocking: the ids of its file groups are fixed, and a clustering gives them new ones. "
            f"Compact it instead."
        )


def pending_clustering(state: TableState, instant: str) -> Instant | None:
    return next((i for i in state.timeline.pending(Action.CLUSTERING) if i.requested == instant), None)


def _checked_plan(state: TableState, pending: Instant) -> RequestedReplace:
    plan = plan_of_clustering(state, pending)
    if plan is None:
        raise CommitConflictError(
            f"the clustering of {pending.requested} has no plan: somebody has rolled it back. Plan another."
        )
    if not plan.is_sort:
        raise UnsupportedError(
            subject=f"the clustering of {pending.requested}",
            found=f"the strategy {plan.strategy}",
            supported=f"running {SORT_STRATEGY}",
            remedy="Let Hudi run it, or roll it back.",
        )
    return plan


def plan_of_clustering(state: TableState, pending: Instant) -> RequestedReplace | None:
    try:
        return read_requested_replace(state.store, pending)
    except FileNotFoundError:
        return None


def _refuse_late(
    state: TableState, pending: Instant, plan: RequestedReplace, schema: str, written: Iterable[str] = ()
) -> None:
    """Refuse to go on if a reader no longer sees what the plan names, or somebody has begun to take it back.

    A rollback that was decided is never gone back on: who decided it may be about to delete what we write.
    """
    reason = _change(state, plan, written)
    if reason is None and schema_text(state) != schema:
        reason = "a write has changed the table's columns"
    is_undone = list_claims(state.store).rollback_of(pending.requested) is not None
    if is_undone or plan_of_clustering(state, pending) != plan:
        reason = "it was decided to roll it back"
    if reason is not None:
        raise CommitConflictError(
            f"the clustering of {pending.requested} cannot complete: {reason} since it was planned. Nothing of it is "
            f"visible, and its plan is rolled back. Cluster again; what is written to all the time is left out with "
            f"a trigger by hours."
        )


def _change(state: TableState, plan: RequestedReplace, written: Iterable[str]) -> str | None:
    """Say what became of a slice of the plan, or of a file that was written; None if all are as they were."""
    slices = [part for group in plan.groups for part in group.slices]
    listed = files_of(state, {part.partition for part in slices})
    view = view_for(state, (file for files in listed.values() for file in files))
    seen = {
        (partition, part.file_id): _paths(part)
        for partition, files in listed.items()
        for part in slices_of(partition, files, view)
    }
    for part in slices:
        planned = {path for path in (base_path(part), *log_paths(part)) if path is not None}
        if seen.get((part.partition, part.file_id)) != planned:
            return f"file group {path_in_partition(part.partition, part.file_id)} was written to"
    paths = set(written)
    # A metadata table does not tell of what is not committed yet.
    there = list_files(state.store, sorted({split_path(path)[0] for path in paths}))
    gone = sorted(paths - {file.path for files in there.values() for file in files})
    return f"{gone[0]} was deleted" if gone else None


def _paths(part: FileSlice) -> set[str]:
    return {log.path for log in part.log_files} | ({part.base_file.path} if part.base_file else set())


def _work(state: TableState, pending: Instant, plan: RequestedReplace) -> list[RegroupTask]:
    """Turn a plan into tasks."""
    properties = state.properties
    schema = table_schema(state)
    by = tuple(filter(None, plan.parameters.get(_SORT_COLUMNS, "").split(",")))
    if by:  # Hudi plans without, too: then rows are in the order of their keys.
        check_sort_columns(schema, by)
    file_schema = with_meta_columns(schema)
    slices = [part for group in plan.groups for part in group.slices]
    listed = files_of(state, {part.partition for part in slices})
    sizes = {file.path: file.size_bytes for files in listed.values() for file in files}
    whole = check_files(
        (path for part in slices for path in (base_path(part), *log_paths(part)) if path is not None),
        listed,
        view_for(state, (file for files in listed.values() for file in files)),
    )
    rules = MergeRules(
        properties.merge_mode, properties.ordering_fields, properties.delete_field, properties.delete_marker
    )
    return [
        RegroupTask(
            store=state.store,
            instant=pending.requested,
            work=work,
            by=by,
            rules=rules,
            schema=file_schema,
            avro_schema=arrow_to_avro(file_schema, table=properties.name),
            row_group_bytes=_row_group_bytes(plan),
            size_bytes=sum(
                sizes.get(path, 0)
                for part in work.slices
                for path in (base_path(part), *log_paths(part))
                if path is not None
            ),
            whole=whole.intersection(path for part in work.slices for path in log_paths(part)),
        )
        for work in _regroups(state, pending, plan)
    ]


def _regroups(state: TableState, pending: Instant, plan: RequestedReplace) -> tuple[Regroup, ...]:
    index = writing_index(state)
    placed = index.placed
    if placed is None:
        assert index.recorded is not None, "it works places out, or looks them up"
        return join_groups(plan.groups, index.recorded, instant=pending.requested)
    return keep_buckets((part for group in plan.groups for part in group.slices), placed)


def _row_group_bytes(plan: RequestedReplace) -> int:
    text = plan.parameters.get(_ROW_GROUP_BYTES, "")
    return int(text) if text.isdigit() and int(text) > 0 else ROW_GROUP_BYTES


def delete_strangers(state: TableState, instant: str, expected: set[str]) -> None:
    """Delete what another engine wrote for this clustering: it would become visible with ours."""
    listed = list_files(state.store, sorted({split_path(path)[0] for path in expected}))
    strangers = [
        file.path
        for files in listed.values()
        for file in files
        if isinstance(file, BaseFile) and file.instant == instant and file.path not in expected
    ]
    in_parallel(state.store.delete, strangers, state.store)


def clustering_metadata(plan: RequestedReplace, written: Iterable[Regrouped], schema: str) -> CommitMetadata:
    done = list(written)
    sums = {
        "rows": sum(one.rows for one in done),
        "key_hash_sum": sum(one.key_hash_sum for one in done) % _MODULUS,
    }
    proof = sums | {f"file_{name}": value for name, value in sums.items()}
    replaced: dict[str, tuple[str, ...]] = {}
    for group in plan.groups:
        for part in group.slices:
            replaced[part.partition] = (*replaced.get(part.partition, ()), part.file_id)
    return CommitMetadata(
        operation=_CLUSTER,
        write_stats=tuple(stat for one in done for stat in one.stats),
        replaced=replaced,
        extra={SCHEMA_KEY: schema, PROOF_KEY: json.dumps(proof)},
    )


def take_back(store: Store, instant: str, clock: Clock) -> RolledBack | None:
    """Take a clustering back as far as it is there; None if it is not pending, or turns out to be completed."""
    with table_lock(store):
        state = load_state(store)
        pending = pending_clustering(state, instant)
        if pending is None:
            return None
        return roll_back_run(store, state.properties, pending, clock=clock, keeps_plan=False)


def clustered_before(state: TableState, instant: str) -> Clustered:
    """Report a clustering that is no longer pending, if there was one."""
    completed = completed_time(state.timeline, instant, Action.CLUSTERING)
    if completed is not None:
        done = next(i for i in state.timeline.completed(Action.REPLACE_COMMIT) if i.requested == instant)
        metadata = read_commit_metadata(state.store, done)
        if metadata.operation == _CLUSTER:
            return report_clustering(instant, completed, metadata)
    pending = [i.requested for i in state.timeline.pending(Action.CLUSTERING)]
    raise InstantError(
        f"there is no clustering {instant} on the timeline. "
        + (f"Pending: {', '.join(pending)}." if pending else "None is pending; schedule one first.")
    )


def report_clustering(instant: str, completed: str, metadata: CommitMetadata) -> Clustered:
    stats = metadata.write_stats
    return Clustered(
        instant=instant,
        completed=completed,
        replaced=sum(len(file_ids) for file_ids in metadata.replaced.values()),
        file_groups=len(stats),
        rows=sum(stat.written for stat in stats),
        size_bytes=sum(stat.size_bytes for stat in stats),
    )
