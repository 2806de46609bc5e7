"""Rescale: a table gets other bucket rules, and the partitions whose count they change are written anew.

    plan_rescale     which partitions get another count: pure, prints
    rescale_table    T.<…>.hashing_config; new file groups; T_C.replacecommit, which hides the old ones
    rescale_order    what taking one back would do

A rescale is a write like others: begun, and then completed or aborted. Its version of the rules counts once its
replacecommit is completed, and not before, so data and rules change in one step for every reader. What is left of one
that was cut off is taken back by the next write, the version first: while the instant is pending nobody counts it.

Writers go on meanwhile. One that committed to a partition which is being rescaled is taken in: the rescale is aborted
and run again on what there is then. One that began under the old rules, and commits after the rescale, finds that
they changed, and is run again under the new ones.

A partition is in memory while it is written anew.
"""

from __future__ import annotations

import json
import os
import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from time import sleep

from bucketlake.basefile.writer import ROW_GROUP_BYTES
from bucketlake.config import load_properties, update_properties
from bucketlake.errors import CommitConflictError, ConcurrentWriteError, ConfigError, InstantError
from bucketlake.index import (
    CountRules,
    HashingConfig,
    Index,
    PartitionBuckets,
    VersionedRules,
    declare_rules,
    list_versions,
    load_config,
    load_rules,
    write_config,
)
from bucketlake.layout import DataFile, FileSlice, slices_of
from bucketlake.layout.names import split_path
from bucketlake.merge import MergeRules
from bucketlake.schema import arrow_to_avro, with_meta_columns
from bucketlake.services.compaction import schema_text
from bucketlake.services.held import Held, load_held
from bucketlake.services.regroup import Regroup, Regrouped, RegroupTask, regroup
from bucketlake.services.rollback import RollbackOrder, look_for_rollback, run_rollback
from bucketlake.services.tasks import Tasks, here
from bucketlake.state import TableState, commit_metadata, files_of, load_state, table_schema, view_for
from bucketlake.storage import Store
from bucketlake.timeline import SCHEMA_KEY, Action, ClusteringSlice, CommitMetadata, Timeline
from bucketlake.write import Operation
from bucketlake.write.commit import PROOF_KEY
from bucketlake.write.fingerprint import BUCKET_COUNT, RULE_TYPE_KEY, writing_index
from bucketlake.write.job import ATTEMPTS
from bucketlake.write.state import is_non_blocking
from bucketlake.write.transaction import Heartbeat, Transaction, abort, begin, complete

COUNT_BEFORE_KEY = "bucketlake.buckets.before"
"""Where the first rescale of a simple-bucket table keeps the count that all partitions had."""

_MODULUS = 1 << 64
_chance = random.Random(os.getpid())


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionChange:
    """A partition that gets another bucket count."""

    partition: str
    before: int
    after: int
    reason: str
    """Which rule decides."""
    slices: tuple[FileSlice, ...]

    @property
    def files(self) -> int:
        return sum(len(part.log_files) + (part.base_file is not None) for part in self.slices)

    @property
    def size_bytes(self) -> int:
        return sum(part.size_bytes for part in self.slices)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rescale:
    """New rules, and what they change; prints as a list of partitions."""

    rules: CountRules
    before: str
    """The rules that count now, in words."""
    changes: tuple[PartitionChange, ...]
    unchanged: int
    """Partitions that stay as they are."""

    @property
    def size_bytes(self) -> int:
        return sum(change.size_bytes for change in self.changes)

    def __str__(self) -> str:
        lines = [f"from {self.before}", f"to   {self.rules}"]
        lines += [
            f"  {change.partition or '(the table)'}: {change.before} -> {change.after} buckets, {change.reason}; "
            f"{change.files:,} files, {change.size_bytes:,} bytes"
            for change in self.changes
        ]
        files = sum(change.files for change in self.changes)
        lines.append(
            f"{len(self.changes):,} partitions to be written anew: {files:,} files, {self.size_bytes:,} bytes; "
            f"{self.unchanged:,} stay as they are"
        )
        return "\n".join(lines)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rescaled:
    """What a rescale did; prints as two lines."""

    instant: str
    completed: str
    partitions: tuple[str, ...]
    rows: int
    size_bytes: int

    def __str__(self) -> str:
        return (
            f"rescale {self.instant}, completed {self.completed}\n"
            f"  {len(self.partitions):,} partitions, {self.rows:,} rows in {self.size_bytes:,} bytes"
        )


def plan_rescale(
    state: TableState, files: Mapping[str, tuple[DataFile, ...]], index: Index, rules: CountRules
) -> Rescale:
    """Compare the counts that partitions have with those that `rules` give them."""
    view = view_for(state, (file for group in files.values() for file in group))
    changes: list[PartitionChange] = []
    names = sorted(files)
    for partition, after in zip(names, rules.counts_of(names), strict=True):
        before = index.bucket_count(partition)
        slices = slices_of(partition, files[partition], view)
        if before is not None and before != after and slices:
            reason = rules.explain(partition).reason
            changes.append(
                PartitionChange(
                    partition=partition, before=before, after=after, reason=reason, slices=tuple(slices)
                )
            )
    return Rescale(
        rules=rules, before=str(index), changes=tuple(changes), unchanged=len(files) - len(changes)
    )


def new_rules(
    state: TableState, expressions: str, *, default_count: int | None, rule_type: str, adds: bool
) -> CountRules:
    """Read rules that are to replace, or with `adds` to come before, those that a table has."""
    present = load_rules(state.store, state.timeline).rules
    simple_count = state.properties.bucket_count
    if default_count is None:
        default_count = present.default_count if present is not None else simple_count
    if default_count is None:
        raise ConfigError("a default bucket count is needed: the table has none. Give bucket_number=.")
    if adds and present is not None:
        if present.rule_type != rule_type:
            raise ConfigError(
                f"the table's rules are of the type {present.rule_type!r}, and rules of the type {rule_type!r} cannot "
                f"be put before them. Overwrite them instead."
            )
        expressions = f"{expressions.rstrip(';')};{present.expressions}"
    return declare_rules(expressions, default_count, rule_type=rule_type)


def look_for_rescale(store: Store, rules: CountRules) -> Rescale:
    """Read the table, and plan."""
    state = load_state(store)
    _check_engine(state)
    return plan_rescale(state, files_of(state), writing_index(state), rules)


def rescale_table(store: Store, rules: CountRules, *, tasks: Tasks = here) -> Rescaled:
    """Give a table new rules, and write the partitions anew whose counts they change.

    Run again, on what there is then, if a writer was faster; a few times, then `CommitConflictError`.
    """
    for left in reversed(range(ATTEMPTS)):
        try:
            done = _rescale_once(store, rules, tasks)
        except CommitConflictError:
            if not left:
                raise
            sleep(_chance.uniform(0.0, 0.1 * 2 ** (ATTEMPTS - left)))
            continue
        _mark(store, rules)
        return done
    raise AssertionError("the last attempt returns or raises")


def committed_versions(store: Store, timeline: Timeline) -> tuple[HashingConfig, ...]:
    """Return every version of a table's rules that counts or has counted, oldest first."""
    versions = list_versions(store)
    current = versions.choose(timeline)
    if current is None:
        return ()
    completed = {instant.requested for instant in timeline.completed(Action.REPLACE_COMMIT)}
    start = timeline.start
    found = dict(versions.archived)
    for instant, path in versions.active.items():
        is_old = not instant.strip("0") or (start is not None and instant < start)
        if instant in completed or is_old:
            found[instant] = path
    return tuple(load_config(store, found[instant]) for instant in sorted(found))


def rescale_order(store: Store, instant: str) -> RollbackOrder:
    """Plan taking a rescale back; `InstantError` if the instant is none, or others came after it."""
    state = load_state(store)
    _check_is_rescale(state, instant)
    return look_for_rollback(state, instant)


def roll_back_rescale(store: Store, instant: str, *, with_newer: bool = False) -> RollbackOrder:
    """Take a rescale back: the old file groups, and the rules from before, count again.

    With `with_newer`, those that came after it are taken back first, the newest before the others.
    """
    if with_newer:
        for newer in reversed(_newer(load_state(store), instant)):
            roll_back_rescale(store, newer)
    order = rescale_order(store, instant)
    state = load_state(store)
    done = next(i for i in state.timeline.completed(Action.REPLACE_COMMIT) if i.requested == instant)
    count = commit_metadata(state, done).extra.get(COUNT_BEFORE_KEY)
    if count is not None:
        # Before the rollback: a table that names a count and has rules goes by the rules.
        update_properties(store, {BUCKET_COUNT: count, RULE_TYPE_KEY: None})
    run_rollback(order, store)
    return order


def _check_is_rescale(state: TableState, instant: str) -> None:
    newer = _newer(state, instant)
    if newer:
        raise InstantError(
            f"the rescale {instant} cannot be rolled back: {', '.join(newer)} came after it. Roll those back first, "
            f"the newest before the others, or all at once: with_newer=True, --with-newer."
        )


def _newer(state: TableState, instant: str) -> list[str]:
    """Return the rescales after `instant`, oldest first; `InstantError` if that is none."""
    versions = list_versions(state.store, with_archived=False).active
    rescales = [
        i.requested for i in state.timeline.completed(Action.REPLACE_COMMIT) if i.requested in versions
    ]
    if instant not in rescales:
        known = ", ".join(rescales) or "none"
        raise InstantError(
            f"{instant} is no completed rescale; found {known}. See `bucketlake buckets show`."
        )
    return sorted(other for other in rescales if other > instant)


def _check_engine(state: TableState) -> None:
    writing_index(state)
    if is_non_blocking(state.properties):
        raise ConfigError(
            f"{state.store.uri} is non-blocking: the ids of its file groups are fixed, and a rescale gives them new "
            f"ones. Make a table without non_blocking and copy the rows."
        )


def _rescale_once(store: Store, rules: CountRules, tasks: Tasks) -> Rescaled:
    transaction, state = begin(store, operation=Operation.INSERT_OVERWRITE, check=_check_engine)
    transaction = replace(transaction, counts=VersionedRules(transaction.instant, rules))
    try:
        with Heartbeat(transaction):
            index = writing_index(state)
            plan = plan_rescale(state, files_of(state), index, rules)
            _refuse_held(plan, load_held(state))
            config = HashingConfig(
                expressions=rules.expressions,
                default_count=rules.default_count,
                rule_type=rules.rule_type,
                instant=transaction.instant,
            )
            write_config(store, config)
            done = tasks(regroup, _work(plan, state, transaction, index.hash_fields))
            metadata = _metadata(plan, done, state)
            completed = complete(transaction, metadata)
    except BaseException:
        decided = abort(transaction)
        if decided is None:
            raise
        completed = decided
    return Rescaled(
        instant=transaction.instant,
        completed=completed,
        partitions=tuple(change.partition for change in plan.changes),
        rows=sum(one.rows for one in done),
        size_bytes=sum(stat.size_bytes for one in done for stat in one.stats),
    )


def _refuse_held(plan: Rescale, held: Held) -> None:
    for change in plan.changes:
        for part in change.slices:
            if (part.partition, part.file_id) in held.groups:
                raise ConcurrentWriteError(
                    f"partition {part.partition!r} cannot be rescaled: a compaction or clustering of {part.file_id} is "
                    f"pending. Run it, or roll it back, then rescale. Nothing was written."
                )


def _work(
    plan: Rescale, state: TableState, transaction: Transaction, hash_fields: tuple[str, ...]
) -> list[RegroupTask]:
    properties = state.properties
    schema = with_meta_columns(table_schema(state))
    index = PartitionBuckets(plan.rules, hash_fields)
    merging = MergeRules(
        properties.merge_mode, properties.ordering_fields, properties.delete_field, properties.delete_marker
    )
    return [
        RegroupTask(
            store=state.store,
            instant=transaction.instant,
            work=Regroup(
                partition=change.partition,
                slices=tuple(map(_slice, change.slices)),
                prefixes=tuple(f"{bucket:08d}" for bucket in range(change.after)),
                index=index,
            ),
            by=(),
            rules=merging,
            schema=schema,
            avro_schema=arrow_to_avro(schema, table=properties.name),
            row_group_bytes=ROW_GROUP_BYTES,
            size_bytes=change.size_bytes,
        )
        for change in plan.changes
    ]


def _slice(part: FileSlice) -> ClusteringSlice:
    return ClusteringSlice(
        partition=part.partition,
        file_id=part.file_id,
        base_file=split_path(part.base_file.path)[1] if part.base_file else None,
        log_files=tuple(split_path(log.path)[1] for log in part.log_files),
    )


def _metadata(plan: Rescale, written: Iterable[Regrouped], state: TableState) -> CommitMetadata:
    done = list(written)
    sums = {
        "rows": sum(one.rows for one in done),
        "key_hash_sum": sum(one.key_hash_sum for one in done) % _MODULUS,
    }
    extra = {
        SCHEMA_KEY: schema_text(state),
        PROOF_KEY: json.dumps(sums | {f"file_{name}": value for name, value in sums.items()}),
    }
    if state.properties.bucket_count is not None:
        extra[COUNT_BEFORE_KEY] = str(state.properties.bucket_count)
    return CommitMetadata(
        operation=str(Operation.INSERT_OVERWRITE),
        write_stats=tuple(stat for one in done for stat in one.stats),
        replaced={change.partition: tuple(part.file_id for part in change.slices) for change in plan.changes},
        extra=extra,
    )


def _mark(store: Store, rules: CountRules) -> None:
    """Let the table say that it has rules, and no longer one count: Hudi would hold that against other rules."""
    properties = load_properties(store)
    if properties.raw.get(RULE_TYPE_KEY) != rules.rule_type or properties.bucket_count is not None:
        update_properties(store, {RULE_TYPE_KEY: rules.rule_type, BUCKET_COUNT: None})
