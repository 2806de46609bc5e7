"""Resize: buckets of a hash ring are split and merged while writers and readers go on.

    look_for_resize   what a round would do: reads the keys of large buckets, writes nothing
    schedule_resize   T.clustering.requested: the file groups, and the nodes that take their place
    run_resize        T.clustering.inflight; new file groups; T.hashing_meta; T_C.replacecommit
    abort_resize      takes one back that is not completed: nothing that was written beside it is lost
    look_for_abort    what that deletes
    resize_table      rounds of these, until nothing is left to do

A resize is a clustering whose plan Hudi reads as its own, and runs. What is written to a bucket meanwhile goes to the
file groups that take its place as well (`index/resizes.py`), so the resize moves what there was when it was planned
and no more. Once it is decided that it completes, and before anybody sees it, what writes that are not completed have
put beside it is removed (`rings_keeper`): they will be run again.

On copy-on-write tables writers keep to the old file groups, and the resize follows them: it splits again what they have
written meanwhile, the last of it under the lock (`catch_up`).

The ring's new version is written before the resize completes, and counts from that moment.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from bucketlake.basefile import read_base_file
from bucketlake.basefile.writer import ROW_GROUP_BYTES
from bucketlake.commit.claims import list_claims
from bucketlake.commit.completion import Said, alive, schedule
from bucketlake.commit.markers import marked_files
from bucketlake.commit.recovery import recover
from bucketlake.commit.rollback import RolledBack
from bucketlake.commit.writable import check_writable
from bucketlake.config import TableType
from bucketlake.errors import (
    CommitConflictError,
    ConfigError,
    ConflictError,
    CorruptTableError,
    InstantError,
)
from bucketlake.index import (
    HashingMetadata,
    Node,
    ResizableIndex,
    Tag,
    decode_children,
    encode_children,
)
from bucketlake.index.doubling import count_before
from bucketlake.index.fingerprint import writing_index
from bucketlake.index.keeper import Change
from bucketlake.index.listed import resolve_listed
from bucketlake.index.resizes import families_of, pending_resizes
from bucketlake.layout import DataFile, FileGroupId, FileSlice, check_files, slices_of
from bucketlake.layout.names import path_in_partition
from bucketlake.logfile import (
    LogRecords,
    read_log_files,
)
from bucketlake.merge import MergeRules
from bucketlake.schema import RECORD_KEY_COLUMN, arrow_to_avro, with_meta_columns
from bucketlake.services.catch_up import NOTHING_MOVED, Moved, catch_up, last_round, resumed
from bucketlake.services.clustering import (
    Clustered,
    clustered_before,
    clustering_metadata,
    delete_strangers,
    pending_clustering,
    plan_of_clustering,
    report_clustering,
    take_back,
)
from bucketlake.services.compaction import metrics_of_all, schema_text
from bucketlake.services.held import load_held
from bucketlake.services.moved_keys import record_moved, refuse_later_keys, refuse_other_indexes
from bucketlake.services.regroup import Regroup, RegroupTask, base_path, log_paths, named
from bucketlake.services.resize_plan import (
    BucketChange,
    Hashes,
    Resize,
    ResizeTrigger,
    RingState,
    large_buckets,
    plan_resize,
)
from bucketlake.services.rollback import RollbackOrder, gather_evidence, plan_rollback
from bucketlake.services.tasks import Tasks, here
from bucketlake.state import TableState, files_of, load_state, table_schema, view_for
from bucketlake.storage import Store
from bucketlake.timeline import (
    RESIZED_NODES,
    RESIZED_PARTITION,
    RESIZED_SEQUENCE,
    Action,
    Clock,
    ClusteringGroup,
    ClusteringSlice,
    CommitMetadata,
    Instant,
    RequestedReplace,
    State,
    encode_clustering_plan,
    encode_commit_metadata,
    process_clock,
    read_commit_metadata,
    write_inflight,
)

ROUNDS_MAX = 64
"""Every split halves a bucket, so this is never reached by size alone."""

_LOOKS_MAX = 8
_SAMPLE = 1 << 16
_CLUSTER = "CLUSTER"
_log = logging.getLogger("bucketlake.services")


def look_for_resize(store: Store, trigger: ResizeTrigger | None = None, *, tasks: Tasks = here) -> Resize:
    """Say what a round would do."""
    for left in reversed(range(_LOOKS_MAX)):
        state = _checked_state(store)
        _refuse_doubling(state)
        try:
            return _plan(state, files_of(state), trigger or ResizeTrigger(), tasks)
        except (CorruptTableError, FileNotFoundError):
            # Files and rings are read after the timeline: what others completed, or took back, may not fit it.
            if not left or load_state(store).timeline.completed() == state.timeline.completed():
                raise
    raise AssertionError("the last look returns or raises")


def schedule_resize(store: Store, plan: Resize, *, clock: Clock | None = None) -> str | None:
    """Put a resize on the timeline and return its instant; None if nothing of the plan is left to do.

    What has been written to its buckets since they were chosen is taken in.
    """
    if plan.is_empty:
        return None

    def say(state: TableState, instant: str) -> bytes | None:
        _check(state)
        groups = _groups_to_plan(state, plan, instant)
        if not groups:
            return None
        strategy = _rings_of(state).resize_strategy
        requested = RequestedReplace(operation=_CLUSTER, strategy=strategy, groups=groups)
        return encode_clustering_plan(requested, root=store.uri)

    return schedule(store, action=Action.CLUSTERING, say=say, clock=clock)


def run_resize(store: Store, instant: str, *, tasks: Tasks = here, clock: Clock | None = None) -> Clustered:
    """Run a scheduled resize, ours or Hudi's, from wherever an earlier run was cut off.

    One that was completed meanwhile is reported as it is. `CommitConflictError` if it cannot be completed; then it is
    rolled back, with its plan.
    """
    state = _checked_state(store)
    clock = clock or process_clock(state.properties.timeline_timezone)
    recover(store, state.properties, clock=clock)
    state = _checked_state(store)
    pending = pending_clustering(state, instant)
    if pending is None:
        return clustered_before(state, instant)
    try:
        plan = _checked_plan(state, pending)
        with alive(
            store, state.properties, instant=instant, action=Action.CLUSTERING, clock=clock
        ) as service:
            schema = schema_text(state)
            rings = _rings_after(state, pending, plan)
            follows = state.properties.table_type is TableType.COPY_ON_WRITE

            def work(now: TableState) -> list[RegroupTask]:
                return _work(now, pending, _with_slices_of(now, plan) if follows else plan, rings)

            planned = work(state)
            if pending.state is State.REQUESTED:
                write_inflight(store, state.properties, instant=instant, action=Action.CLUSTERING)
            delete_strangers(state, instant, {path for task in planned for path in task.paths})
            earlier = resumed(store, marked_files(store, instant) or (), planned)
            moved = catch_up(store, work, earlier if earlier.versions else NOTHING_MOVED, tasks)

            def say() -> Said:
                nonlocal moved
                now = load_state(store)
                _refuse_late(now, pending, plan, schema, rings)
                moved = last_round(now, work, moved, tasks)
                what = f"the resize of {instant}"
                refuse_other_indexes(state.properties, now.properties, what)
                metadata = _metadata(plan, moved, schema)
                told = resolve_listed(now)
                if told:
                    refuse_later_keys(now, instant=instant, replaced=metadata.replaced, what=what)
                metadata = record_moved(store, told, metadata, instant=instant, tasks=tasks)
                return Said(
                    encode_commit_metadata(metadata, action=Action.CLUSTERING),
                    Change(
                        instant=instant,
                        index=_rings_of(now).with_rings(rings),
                        written=frozenset(rings),
                    ),
                )

            completed = service.complete(say, clock=clock)
    except CommitConflictError:
        take_back(store, instant, clock)
        raise
    return report_clustering(instant, completed, _metadata(plan, moved, schema))


def abort_resize(store: Store, instant: str, *, clock: Clock | None = None) -> RolledBack | None:
    """Take a pending resize back, its plan too; None if it was completed meanwhile.

    Nobody may be running it: who does finds out when it is about to complete.
    """
    state = _checked_state(store)
    clock = clock or process_clock(state.properties.timeline_timezone)
    done = take_back(store, instant, clock)
    if done is None:
        clustered_before(load_state(store), instant)
    return done


def look_for_abort(store: Store, instant: str, *, clock: Clock | None = None) -> RollbackOrder | None:
    """Say what taking a pending resize back deletes; None if it is completed. Changes nothing."""
    state = _checked_state(store)
    pending = pending_clustering(state, instant)
    if pending is None:
        clustered_before(state, instant)
        return None
    # `abort_resize` does not ask whether somebody is at it, so neither does this.
    return plan_rollback(
        state, pending, replace(gather_evidence(state, pending, clock=clock), is_alive=False)
    )


def resize_table(
    store: Store,
    trigger: ResizeTrigger | None = None,
    *,
    rounds: int = ROUNDS_MAX,
    tasks: Tasks = here,
    clock: Clock | None = None,
) -> tuple[Clustered, ...]:
    """Run the resizes that are pending; then plan and run others, until nothing is left to do or `rounds` are over.

    Those that another process is running are left to it.
    """
    if rounds < 1:
        raise ConfigError(f"rounds is {rounds}; expected 1 at least.")
    trigger = trigger or ResizeTrigger()
    state = _checked_state(store)
    _refuse_doubling(state)
    clock = clock or process_clock(state.properties.timeline_timezone)
    _refuse_resizing(state, trigger)
    done = []
    for instant in pending_resizes(store, state.timeline):
        with suppress(ConflictError, InstantError):
            done.append(run_resize(store, instant, tasks=tasks, clock=clock))
    for _ in range(rounds):
        plan = look_for_resize(store, trigger, tasks=tasks)
        scheduled = schedule_resize(store, plan, clock=clock)
        if scheduled is None:
            break
        done.append(run_resize(store, scheduled, tasks=tasks, clock=clock))
    return tuple(done)


def _refuse_doubling(state: TableState) -> None:
    count = count_before(state.properties)
    if count is not None:
        raise ConflictError(
            f"the {count} buckets of {state.store.uri} are being doubled, and nothing else may split or merge them. "
            f"`bucketlake buckets double` goes on with it, `bucketlake buckets undo-double` takes it back."
        )


def _refuse_resizing(state: TableState, trigger: ResizeTrigger) -> None:
    """Refuse to resize a partition, if one was named, that another process is resizing."""
    for instant, plan in pending_resizes(state.store, state.timeline).items():
        busy = {part.partition for group in plan.groups for part in group.slices}
        both = sorted(busy & set(trigger.partitions or ()))
        if both:
            raise ConflictError(
                f"partition {both[0]!r} is being resized: {instant} is pending. Complete it, which a resize without "
                f"naming partitions does, or take it back: `bucketlake buckets abort`."
            )


def _checked_state(store: Store) -> TableState:
    state = load_state(store)
    _check(state)
    return state


def _check(state: TableState) -> None:
    check_writable(state)
    _rings_of(state)


def _rings_of(state: TableState) -> ResizableIndex:
    index = writing_index(state)
    rings = index.resizable
    if rings is None:
        raise ConfigError(
            f"{state.store.uri} has {index}: their number does not follow the data. Partition-level rules are changed "
            f"with `bucketlake buckets overwrite`; buckets that split and merge are those of a table made with "
            f"index=ConsistentBuckets() or index=ExtendibleBuckets()."
        )
    return rings


def _plan(
    state: TableState, files: Mapping[str, tuple[DataFile, ...]], trigger: ResizeTrigger, tasks: Tasks
) -> Resize:
    index = _rings_of(state)
    states = ring_states(state, files, index)
    sampling = [
        SampleTask(state.store, one.partition, prefix, one.slices[prefix], _of_one(index, one.partition))
        for one in states
        if trigger.partitions is None or one.partition in trigger.partitions
        for prefix in large_buckets(one, trigger)
    ]
    samples = tasks(sample_hashes, sampling)
    hashes = {(t.partition, t.prefix): found for t, found in zip(sampling, samples, strict=True)}
    return plan_resize(states, hashes, trigger)


def ring_states(
    state: TableState, files: Mapping[str, tuple[DataFile, ...]], index: ResizableIndex
) -> list[RingState]:
    view = view_for(state, (file for group in files.values() for file in group))
    held = load_held(state).groups | view.pending_compactions.keys()
    busy = {
        part.partition
        for plan in pending_resizes(state.store, state.timeline).values()
        for group in plan.groups
        for part in group.slices
    }
    found = []
    for partition in sorted(files):
        slices: dict[str, FileSlice] = {}
        for part in slices_of(partition, files[partition], view):
            prefix = index.slot_of_file(partition, part.file_id)
            if prefix is None:
                raise CorruptTableError(
                    path=partition or ".",
                    found=f"the file group {part.file_id}",
                    expected="file groups that the partition's ring names",
                    remedy="`bucketlake fsck` lists them. Read the partition, and write it anew with overwrite.",
                )
            slices[prefix] = part
        metadata = index.metadata(partition)
        assert metadata is not None
        found.append(
            RingState(
                partition=partition,
                ring=metadata.ring,
                sequence=metadata.sequence,
                slices=slices,
                held=frozenset(p for p, part in slices.items() if (partition, part.file_id) in held),
                is_resizing=partition in busy,
            )
        )
    return found


def _of_one(index: ResizableIndex, partition: str) -> ResizableIndex:
    """Return an index that knows one partition's ring: a task needs no more."""
    metadata = index.metadata(partition)
    return index.with_rings({} if metadata is None else {partition: metadata})


@dataclass(frozen=True, slots=True)
class SampleTask:
    """A bucket whose keys are to be looked at. Frozen and picklable."""

    store: Store
    partition: str
    prefix: str
    part: FileSlice
    index: ResizableIndex

    @property
    def size_bytes(self) -> int:
        return self.part.size_bytes


def sample_hashes(task: SampleTask) -> Hashes:
    """Return where keys of a bucket lie on the ring, sorted: the first, the last, and what lies evenly between them.

    Versions of one key in several files count each; for a point in their midst that does not matter.
    """
    keys_only = pa.schema([(RECORD_KEY_COLUMN, pa.string())])
    hashes = []
    if task.part.base_file is not None:
        for batch in read_base_file(task.store, task.part.base_file.path, keys_only):
            hashes.append(task.index.positions_of(task.partition, batch.column(0)))
    paths = [log.path for log in task.part.log_files]
    for log in read_log_files(task.store, paths, keys_only, ordering_fields=(), table_schema=keys_only):
        if isinstance(log, LogRecords):
            keys = log.records.column(RECORD_KEY_COLUMN).combine_chunks()
            hashes.append(task.index.positions_of(task.partition, keys))
    every = np.sort(np.concatenate(hashes)) if hashes else np.array([], np.int32)
    if len(every) <= _SAMPLE:
        return every
    return every[np.linspace(0, len(every) - 1, _SAMPLE).astype(np.int64)]


def _groups_to_plan(state: TableState, plan: Resize, salt: str) -> tuple[ClusteringGroup, ...]:
    """Turn a plan into groups, with the slices as they are now; what has changed beyond that is left out."""
    partitions = [one.partition for one in plan.partitions]
    index = _rings_of(state)
    now = {one.partition: one for one in ring_states(state, files_of(state, partitions), index)}
    groups = []
    for one in plan.partitions:
        present = now.get(one.partition)  # one that was emptied and cleaned since is gone
        if present is None or present.is_resizing or present.ring != one.ring:
            continue
        for change in one.changes:
            prefixes = [one.ring.nodes[place].file_id_prefix for place in change.places]
            had_files = set(prefixes) & one.sizes.keys()
            if present.held.isdisjoint(prefixes) and present.slices.keys() >= had_files:
                slices = [present.slices[prefix] for prefix in prefixes if prefix in present.slices]
                groups.append(_group(change, slices, one.sequence, change.children(one.ring, salt=salt)))
    return tuple(groups)


def _group(
    change: BucketChange, slices: Iterable[FileSlice], sequence: int, children: Iterable[Node]
) -> ClusteringGroup:
    parts, come = tuple(slices), tuple(children)
    return ClusteringGroup(
        slices=tuple(map(named, parts)),
        outputs=sum(child.tag is not Tag.DELETE for child in come),
        metrics=metrics_of_all(parts),
        extra={
            RESIZED_PARTITION: change.partition,
            RESIZED_NODES: encode_children(come),
            RESIZED_SEQUENCE: str(sequence),
        },
    )


def _checked_plan(state: TableState, pending: Instant) -> RequestedReplace:
    plan = plan_of_clustering(state, pending)
    if plan is None:
        raise CommitConflictError(
            f"the resize of {pending.requested} has no plan: somebody has rolled it back. Plan another."
        )
    if not plan.is_resize:
        raise InstantError(
            f"the clustering of {pending.requested} resizes no buckets. Run it with `bucketlake cluster`."
        )
    return plan


def _rings_after(state: TableState, pending: Instant, plan: RequestedReplace) -> dict[str, HashingMetadata]:
    """Return the rings as they are once the resize is completed, by partition."""
    index = _rings_of(state)
    children: dict[str, list[ClusteringGroup]] = {}
    for group in plan.groups:
        children.setdefault(group.extra[RESIZED_PARTITION], []).append(group)
    rings = {}
    for partition, groups in children.items():
        before = index.metadata(partition)
        said = {group.extra.get(RESIZED_SEQUENCE, "") for group in groups}
        if before is None or said != {str(before.sequence)}:
            raise CommitConflictError(
                f"the resize of {pending.requested} was planned for version {', '.join(sorted(said))} of the ring of "
                f"{partition!r}, which is at {before.sequence if before else 'none'} by now. It is rolled back; plan "
                f"another."
            )
        nodes = [
            node
            for group in groups
            for node in decode_children(group.extra[RESIZED_NODES], path=pending.path)
        ]
        rings[partition] = before.resized(nodes, instant=pending.requested)
    return rings


def _work(
    state: TableState, pending: Instant, plan: RequestedReplace, rings: Mapping[str, HashingMetadata]
) -> list[RegroupTask]:
    properties = state.properties
    file_schema = with_meta_columns(table_schema(state))
    slices = [part for group in plan.groups for part in group.slices]
    listed = files_of(state, {part.partition for part in slices})
    sizes = {file.path: file.size_bytes for files in listed.values() for file in files}
    rules = MergeRules(
        properties.merge_mode, properties.ordering_fields, properties.delete_field, properties.delete_marker
    )
    index = _rings_of(state).with_rings(rings)
    view = view_for(state, (file for files in listed.values() for file in files))
    whole = check_files((path for part in slices for path in _paths_of(part)), listed, view)
    return [
        RegroupTask(
            store=state.store,
            instant=pending.requested,
            work=Regroup(
                partition=group.extra[RESIZED_PARTITION],
                slices=group.slices,
                slots=_slots(group, pending.path),
                index=index,
            ),
            by=(),
            rules=rules,
            schema=file_schema,
            avro_schema=arrow_to_avro(file_schema, table=properties.name),
            row_group_bytes=ROW_GROUP_BYTES,
            size_bytes=sum(sizes.get(path, 0) for part in group.slices for path in _paths_of(part)),
            whole=whole.intersection(path for part in group.slices for path in _paths_of(part)),
            blocks_of=view.of_blocks(),
        )
        for group in plan.groups
    ]


def _with_slices_of(state: TableState, plan: RequestedReplace) -> RequestedReplace:
    """Return a plan with its file groups as they are now."""
    seen = _seen(state, files_of(state, _partitions(plan)))
    groups = [
        replace(
            group,
            slices=tuple(
                named(seen[part.partition, part.file_id])
                for part in group.slices
                if (part.partition, part.file_id) in seen
            ),
        )
        for group in plan.groups
    ]
    return replace(plan, groups=tuple(groups))


def _metadata(plan: RequestedReplace, moved: Moved, schema: str) -> CommitMetadata:
    return clustering_metadata(plan, [result for _, result in moved.done.values()], schema)


def _slots(group: ClusteringGroup, path: str) -> tuple[str, ...]:
    """Return the slots of the file groups that take the place of a group's."""
    nodes = decode_children(group.extra[RESIZED_NODES], path=path)
    return tuple(node.file_id_prefix for node in nodes if node.file_id_prefix)


def _paths_of(part: ClusteringSlice) -> set[str]:
    return {path for path in (base_path(part), *log_paths(part)) if path is not None}


def _refuse_late(
    state: TableState,
    pending: Instant,
    plan: RequestedReplace,
    schema: str,
    rings: Mapping[str, HashingMetadata],
) -> None:
    """Refuse to complete if a reader no longer sees what the plan names, or rows would be lost."""
    reason = _reason_not_to(state, pending, plan, rings)
    if reason is None and schema_text(state) != schema:
        reason = "a write has changed the table's columns since it was planned"
    if reason is None and (
        list_claims(state.store).rollback_of(pending.requested) is not None
        or plan_of_clustering(state, pending) != plan
    ):
        reason = "it was decided to roll it back"
    if reason is not None:
        raise CommitConflictError(
            f"the resize of {pending.requested} cannot complete: {reason}. Nothing of it is visible, nothing is lost, "
            f"and its plan is rolled back. Resize again."
        )


def _reason_not_to(
    state: TableState, pending: Instant, plan: RequestedReplace, rings: Mapping[str, HashingMetadata]
) -> str | None:
    planned = {(part.partition, part.file_id): part for group in plan.groups for part in group.slices}
    listed = files_of(state, _partitions(plan))
    seen = _seen(state, listed)
    follows = state.properties.table_type is TableType.COPY_ON_WRITE
    for group, part in planned.items():
        present = seen.get(group)
        base = present.base_file.path if present is not None and present.base_file else None
        if present is None or (base != base_path(part) and not follows):
            return f"file group {path_in_partition(*group)} was replaced or rewritten since it was planned"
    before = _rings_of(state)
    for partition, file_id in seen.keys() - planned.keys():
        slot = before.slot_of_file(partition, file_id)
        if slot is not None and slot not in rings[partition].ring.prefixes:
            return f"bucket {slot} of {partition!r}, which was empty, has got rows since it was planned"
    there = {file.path for files in listed.values() for file in files}
    return None if follows else _lost_by(state, families_of(plan, path=pending.path), seen, planned, there)


def _partitions(plan: RequestedReplace) -> list[str]:
    return sorted({part.partition for group in plan.groups for part in group.slices})


def _seen(state: TableState, files: Mapping[str, tuple[DataFile, ...]]) -> dict[FileGroupId, FileSlice]:
    """Return what a reader sees of every file group among these files."""
    view = view_for(state, (file for group in files.values() for file in group))
    return {
        (partition, part.file_id): part
        for partition, group in files.items()
        for part in slices_of(partition, group, view)
    }


def _lost_by(
    state: TableState,
    families: Mapping[FileGroupId, frozenset[FileGroupId]],
    seen: Mapping[FileGroupId, FileSlice],
    planned: Mapping[FileGroupId, ClusteringSlice],
    there: Collection[str],
) -> str | None:
    """Say who has written to a bucket and not to what takes its place: its rows would be lost."""
    added = {
        log.instant
        for group, part in planned.items()
        for log in seen[group].log_files
        if log.path not in log_paths(part)
    }
    on_timeline = {instant.requested: instant for instant in state.timeline.writes}
    for requested in sorted(added):
        write = on_timeline.get(requested)
        if write is None:
            return f"the write of {requested} was archived before one could see whether it knew of it"
        stats = read_commit_metadata(state.store, write).write_stats
        touched = {(stat.partition, stat.file_id) for stat in stats}
        if any(touched.isdisjoint(families[group]) for group in touched & planned.keys()):
            return f"the {write.action} of {requested} knew nothing of it"
        children = frozenset[FileGroupId]().union(*families.values())
        gone = [s.path for s in stats if (s.partition, s.file_id) in children and s.path not in there]
        if gone:
            return f"{gone[0]}, which the write of {requested} has put beside it, is gone"
    return None
