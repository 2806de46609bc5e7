"""Rescale: a table gets other bucket rules, and the partitions whose count they change are written anew.

    plan_rescale      which partitions get another count: pure, prints
    rescale_table     T.replacecommit.requested, with the plan; new file groups; T.hashing_config; T_C.replacecommit,
                      which hides the old groups
    resume_rescale    the same, from where it was cut off
    abort_rescale     takes back what was done of it
    rescale_order     what taking back a completed one, and those that came after it, would do

A rescale is a write like others: begun, and then completed or aborted. Its version of the rules counts once its
replacecommit is completed, and not before, so data and rules change in one step for every reader.

Writers go on meanwhile. What they commit to a partition that is being rescaled is taken in (`catch_up`), the last of it
under the table's lock. One that began under the old rules, and commits after the rescale, finds that they changed,
and is run again under the new ones.

The plan is the rules: which files they concern is looked up in each round. It stands in the requested file, so it is
there from the first moment, and goes with the instant whoever rolls that back, Hudi too. One that was cut off stays
pending; our writers work on beside it and leave it alone (`recovery`), until it is resumed or aborted, or a day old.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from math import gcd

import pyarrow as pa

from bucketlake.basefile import read_footer
from bucketlake.basefile.writer import ROW_GROUP_BYTES
from bucketlake.commit.claims import Claims
from bucketlake.commit.completion import Said, complete, tidy
from bucketlake.commit.heartbeat import take_over
from bucketlake.commit.locks import table_lock
from bucketlake.commit.markers import marked_files
from bucketlake.commit.operation import Operation
from bucketlake.commit.recovery import RESCALE_KEY, pending_rescales, recover, rescale_plan
from bucketlake.commit.rollback import RolledBack
from bucketlake.commit.transaction import (
    Heartbeat,
    Transaction,
    abort,
    begin,
    decided,
    refresh,
    say_commit,
)
from bucketlake.config import KeyGeneratorType
from bucketlake.errors import (
    BucketlakeError,
    CommitConflictError,
    ConcurrentWriteError,
    ConfigError,
    ConflictError,
    CorruptTableError,
    InstantError,
)
from bucketlake.index import (
    CountRules,
    HashingConfig,
    Index,
    RescalableIndex,
    check_fit,
    current_version,
    declare_rules,
    list_versions,
    load_config,
    load_rules,
)
from bucketlake.index.doubling import count_before
from bucketlake.index.fingerprint import writing_index
from bucketlake.index.listed import resolve_listed
from bucketlake.index.resolve import COUNT_BEFORE_KEY, simple_count
from bucketlake.layout import DataFile, FileSlice, slices_of
from bucketlake.merge import MergeRules
from bucketlake.schema import arrow_to_avro, with_meta_columns
from bucketlake.services.catch_up import NOTHING_MOVED, Moved, catch_up, last_round, resumed
from bucketlake.services.compaction import schema_text
from bucketlake.services.held import Held, load_held
from bucketlake.services.moved_keys import record_moved, refuse_later_keys
from bucketlake.services.regroup import Regroup, RegroupTask, named
from bucketlake.services.rollback import (
    RollbackOrder,
    look_for_rollback,
    look_for_rollbacks,
    refuse_others,
    run_rollback,
    run_rollbacks,
)
from bucketlake.services.tasks import Tasks, here
from bucketlake.state import TableState, files_of, load_state, table_schema, view_for
from bucketlake.storage import Store, in_parallel
from bucketlake.timeline import (
    SCHEMA_KEY,
    Action,
    Clock,
    CommitMetadata,
    Instant,
    State,
    Timeline,
    encode_requested_replace,
    process_clock,
    read_rollback_metadata,
    write_inflight,
)
from bucketlake.write.report import PROOF_KEY
from bucketlake.write.state import is_non_blocking

BUDGET_BYTES = 256 << 20
"""Rows that a task holds at a time, as Arrow has them: a few tasks fit into the memory of a small machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionChange:
    """A partition that gets another bucket count."""

    partition: str
    before: int
    after: int
    reason: str
    """Which rule decides."""
    slices: tuple[FileSlice, ...]
    base_rows: int | None = None
    """Rows in the base files, if somebody has counted them: what logs change of that shows when they are merged."""

    @property
    def log_files(self) -> int:
        return sum(len(part.log_files) for part in self.slices)

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

    @property
    def base_rows(self) -> int | None:
        """Rows in the base files of all of them, if they were counted."""
        counted = [change.base_rows for change in self.changes if change.base_rows is not None]
        return sum(counted) if len(counted) == len(self.changes) else None

    def __str__(self) -> str:
        lines = [f"from {self.before}", f"to   {self.rules}"]
        lines += [
            f"  {change.partition or '(the table)'}: {change.before} -> {change.after} buckets, {change.reason}; "
            f"{_rows(change.base_rows, change.log_files)}{change.files:,} files, {change.size_bytes:,} bytes"
            for change in self.changes
        ]
        files = sum(change.files for change in self.changes)
        logs = sum(change.log_files for change in self.changes)
        lines.append(
            f"{len(self.changes):,} partitions to be written anew: {_rows(self.base_rows, logs)}{files:,} files, "
            f"{self.size_bytes:,} bytes; {self.unchanged:,} stay as they are"
        )
        return "\n".join(lines)


def _rows(base_rows: int | None, log_files: int) -> str:
    if base_rows is None:
        return ""
    return f"{base_rows:,} rows{f' and what {log_files:,} logs change' if log_files else ''}, "


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
) -> tuple[CountRules, str]:
    """Read rules that are to replace, or with `adds` to come before, those that a table has.

    Returns the version too that they are to replace, as `rescale_table` wants it.
    """
    _check_engine(state)
    before = load_rules(state.store, state.timeline)
    present = before.rules
    if default_count is None:
        default_count = present.default_count if present is not None else simple_count(state.properties)
    if default_count is None:
        raise ConfigError("a default bucket count is needed: the table has none. Give bucket_number=.")
    if adds and present is not None:
        if present.rule_type != rule_type:
            raise ConfigError(
                f"the table's rules are of the type {present.rule_type!r}, and rules of the type {rule_type!r} cannot "
                f"be put before them. Overwrite them instead."
            )
        expressions = f"{expressions.rstrip(';')};{present.expressions}"
    rules = declare_rules(expressions, default_count, rule_type=rule_type)
    check_fit(rules, _spelled_as_they_are(state))
    return rules, before.version


def _spelled_as_they_are(state: TableState) -> list[tuple[str, pa.DataType]]:
    """Return the partition columns with their types, if the paths have the values themselves."""
    if state.properties.key_generator not in (KeyGeneratorType.SIMPLE, KeyGeneratorType.COMPLEX):
        return []
    schema = table_schema(state)
    fields = state.properties.partition_fields
    return [(name, schema.field(name).type) for name in fields if name in schema.names]


def look_for_rescale(store: Store, rules: CountRules) -> Rescale:
    """Read the table and plan; rows are counted by the footers of base files."""
    state = load_state(store)
    _check_engine(state)
    plan = plan_rescale(state, files_of(state), writing_index(state), rules)
    bases = [
        [part.base_file.path for part in change.slices if part.base_file is not None]
        for change in plan.changes
    ]
    counts = in_parallel(
        lambda path: read_footer(store, path).row_count, [path for paths in bases for path in paths], store
    )
    left = iter(counts)
    changes = tuple(
        replace(change, base_rows=sum(next(left) for _ in paths))
        for change, paths in zip(plan.changes, bases, strict=True)
    )
    return replace(plan, changes=changes)


@dataclass(frozen=True, slots=True, kw_only=True)
class PersistedPlan:
    """What the requested file of a rescale says: all that it takes to go on with it."""

    rule_type: str
    expressions: str
    default_count: int
    version_before: str
    """Of the rules that it takes the place of; empty if the table had none."""
    budget_bytes: int

    @property
    def rules(self) -> CountRules:
        return declare_rules(self.expressions, self.default_count, rule_type=self.rule_type)

    def render(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def parse(cls, text: str, *, path: str) -> PersistedPlan:
        try:
            fields = json.loads(text)
            return cls(
                rule_type=str(fields["rule_type"]),
                expressions=str(fields["expressions"]),
                default_count=int(fields["default_count"]),
                version_before=str(fields["version_before"]),
                budget_bytes=int(fields["budget_bytes"]),
            )
        except (ValueError, KeyError, TypeError) as fault:
            raise CorruptTableError(
                path=path,
                found=f"text that is no plan of a rescale ({type(fault).__name__}: {fault})",
                expected="rule_type, expressions, default_count, version_before, budget_bytes",
                remedy="Take the rescale back: bucketlake buckets abort.",
            ) from fault


def rescale_table(
    store: Store,
    rules: CountRules,
    *,
    version_before: str | None = None,
    tasks: Tasks = here,
    budget_bytes: int = BUDGET_BYTES,
) -> Rescaled:
    """Give a table new rules, and write the partitions anew whose counts they change.

    `version_before` is that of the rules which the new ones were made of: `CommitConflictError` if others count then.
    A task holds rows up to `budget_bytes`, or those of one new bucket. What writers commit meanwhile is taken in.
    If it is cut off, by whatever is no fault of the table, it stays pending: `resume_rescale`, or `abort_rescale`.
    """
    if budget_bytes < 1:
        raise ConfigError(f"a rescale was given a budget of {budget_bytes} bytes; expected 1 at least.")
    state = load_state(store)
    _check_engine(state)
    recover(store, state.properties)
    state = load_state(store)
    _refuse_second(state)
    plan = PersistedPlan(
        rule_type=rules.rule_type,
        expressions=rules.expressions,
        default_count=rules.default_count,
        version_before=current_version(store, state.timeline) if version_before is None else version_before,
        budget_bytes=budget_bytes,
    )
    body = encode_requested_replace({RESCALE_KEY: plan.render()})
    transaction, state = begin(
        store, operation=Operation.INSERT_OVERWRITE, index_of=writing_index, check=_check_engine, plan=body
    )
    run = _Run(_by_rules(transaction, plan), plan, tasks)

    def start() -> Moved:
        _refuse_second(state, but=transaction.instant)
        refresh(run.transaction)  # others may have changed the rules before we were there to be seen
        return NOTHING_MOVED

    return run.finish(start)


def resume_rescale(store: Store, *, tasks: Tasks = here, clock: Clock | None = None) -> Rescaled:
    """Go on with the rescale that was cut off; files of it that are whole, and not outdated, stay as they are.

    `ConcurrentWriteError` if its process is alive; `InstantError` if there is none.
    """
    state = load_state(store)
    _check_engine(state)
    clock = clock or process_clock(state.properties.timeline_timezone)
    recover(store, state.properties, clock=clock)
    state = load_state(store)
    pending, plan = _pending_plan(state)
    if not take_over(store, pending.requested, now_ms=clock.now_ms()):
        raise _under_way(pending)
    if pending.state is State.REQUESTED:
        write_inflight(store, state.properties, instant=pending.requested, action=pending.action)
    transaction = Transaction(
        store=store,
        properties=state.properties,
        instant=pending.requested,
        action=pending.action,
        operation=Operation.INSERT_OVERWRITE,
        index=writing_index(state),
        seen=frozenset(),
        layout_version=plan.version_before,
    )
    run = _Run(_by_rules(transaction, plan), plan, tasks)

    def start() -> Moved:
        # Somebody may have taken it back before our heartbeat was there, or changed the rules since it began.
        _, state = refresh(transaction)
        return resumed(store, marked_files(store, pending.requested) or (), run.work(state))

    return run.finish(start)


def abort_rescale(store: Store, *, dry_run: bool = False, clock: Clock | None = None) -> RollbackOrder:
    """Take back the rescale that was cut off; return what that deletes. `InstantError` if there is none."""
    state = load_state(store)
    _check_engine(state)
    recover(store, state.properties, clock=clock)
    state = load_state(store)
    pending = _pending(state)
    order = look_for_rollback(state, pending.requested, clock=clock)
    if not dry_run:
        run_rollback(order, store, clock=clock)
    return order


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


@dataclass(frozen=True, slots=True, kw_only=True)
class RescaleRollback:
    """Rescales to take back, one after the other; prints as what that deletes."""

    orders: tuple[RollbackOrder, ...]
    """The newest first."""
    finished: tuple[RolledBack, ...] = ()
    """Those that an earlier call was cut off at, and this one has brought to their end."""

    @property
    def instants(self) -> tuple[str, ...]:
        return (
            *(done.instant for done in self.finished),
            *(order.instant.requested for order in self.orders),
        )

    @property
    def files(self) -> tuple[str, ...]:
        """The paths of what is deleted."""
        return (
            *(path for done in self.finished for path in done.files),
            *(file.path for order in self.orders for file in order.files),
        )

    def __str__(self) -> str:
        return "\n".join(map(str, (*self.finished, *self.orders)))


def rescale_order(store: Store, instant: str, *, with_newer: bool = False) -> RescaleRollback:
    """Plan taking a rescale back, or with `with_newer` those too that came after it.

    `InstantError` if the instant is none, or others depend on one of them.
    """
    return _look_for_rollback_of_rescales(load_state(store), instant, with_newer=with_newer)


def roll_back_rescale(
    store: Store,
    instant: str,
    *,
    with_newer: bool = False,
    expected: tuple[str, ...] | None = None,
    clock: Clock | None = None,
) -> RescaleRollback:
    """Take a rescale back: the old file groups, and the rules from before, count again.

    With `with_newer`, those that came after it are taken back first, the newest before the others: all of them, or
    none if one must stay. If it is cut off, the same call goes on with it. `expected` are those that a plan named:
    `CommitConflictError` if others would go by now.
    """
    state = load_state(store)
    recovered = recover(store, state.properties, clock=clock)
    refuse_others(recovered)
    finished = tuple(
        done
        for done in recovered.rolled_back
        if done.action is Action.REPLACE_COMMIT and done.instant >= instant
    )
    if any(done.instant == instant for done in finished):
        return RescaleRollback(orders=(), finished=finished)
    with table_lock(store):
        state = load_state(store)
        found = _look_for_rollback_of_rescales(state, instant, with_newer=with_newer)
        if expected is not None and not set(found.instants) <= set(expected):
            raise CommitConflictError(
                f"another rescale came after {instant} since its rollback was planned. Nothing was changed. Plan again."
            )
        run_rollbacks(found.orders, store, clock=clock)
    return replace(found, finished=finished)


def _look_for_rollback_of_rescales(state: TableState, instant: str, *, with_newer: bool) -> RescaleRollback:
    newer = _newer(state, instant)
    if newer and not with_newer:
        raise InstantError(
            f"the rescale {instant} cannot be rolled back: {', '.join(newer)} came after it. Roll those back first, "
            f"the newest before the others, or all at once: with_newer=True, --with-newer, with_newer => true."
        )
    try:
        return RescaleRollback(orders=look_for_rollbacks(state, [*reversed(newer), instant]))
    except InstantError as refusal:
        if not newer:
            raise
        raise InstantError(
            f"the {len(newer) + 1} rescales from {instant} on are rolled back all together or not at all; nothing was "
            f"changed. {refusal}"
        ) from refusal


def _newer(state: TableState, instant: str) -> list[str]:
    """Return the rescales after `instant`, oldest first; `InstantError` if that is none."""
    versions = list_versions(state.store)
    known_rules = {*versions.active, *versions.archived}
    rescales = [
        i.requested for i in state.timeline.completed(Action.REPLACE_COMMIT) if i.requested in known_rules
    ]
    if instant not in rescales:
        known = ", ".join(rescales) or "none"
        for rollback in state.timeline.completed(Action.ROLLBACK):
            if instant in read_rollback_metadata(state.store, rollback).rolled_back:
                raise InstantError(
                    f"{instant} is rolled back already, by the rollback of {rollback.requested}; found {known} that "
                    f"can be."
                )
        raise InstantError(
            f"{instant} is no completed rescale; found {known}. See `bucketlake buckets show-config`."
        )
    return sorted(other for other in rescales if other > instant)


def _refuse_second(state: TableState, but: str | None = None) -> None:
    """Refuse to begin a rescale beside another; of two that begin at once, the one of the earlier time goes on."""
    for pending in pending_rescales(state.store, state.timeline):
        if but is None or pending.requested < but:
            raise ConcurrentWriteError(
                f"the rescale of {pending.requested} is pending, and one at a time is all. Let it end, if its process "
                f"is at work; if it was cut off, finish it (table.buckets.resume(), bucketlake buckets resume) or take "
                f"it back (table.buckets.abort(), bucketlake buckets abort) first."
            )


def _pending(state: TableState) -> Instant:
    found = pending_rescales(state.store, state.timeline)
    if not found:
        raise InstantError(
            "no rescale of the table is pending: the last one was completed or taken back. See `bucketlake buckets "
            "show-config`."
        )
    return found[0]


def _pending_plan(state: TableState) -> tuple[Instant, PersistedPlan]:
    pending = _pending(state)
    text = rescale_plan(state.store, pending)
    if text is None:
        raise InstantError(f"the rescale of {pending.requested} was taken back just now.")
    return pending, PersistedPlan.parse(text, path=pending.path)


def _under_way(pending: Instant) -> ConcurrentWriteError:
    return ConcurrentWriteError(
        f"the rescale of {pending.requested} is under way: the heartbeat of its process is fresh. Wait for it to end; "
        f"if the process is dead, it counts as such two minutes after its last beat: then resume or abort it."
    )


def _check_engine(state: TableState) -> None:
    _rescalable(state, writing_index(state))
    if is_non_blocking(state.properties):
        raise ConfigError(
            f"{state.store.uri} is non-blocking: the ids of its file groups are fixed, and a rescale gives them new "
            f"ones. Make a table without non_blocking and copy the rows."
        )


def _rescalable(state: TableState, index: Index) -> RescalableIndex:
    found = index.rescalable
    if found is None and (count := count_before(state.properties)) is not None:
        raise ConflictError(
            f"the {count} buckets of {state.store.uri} are being doubled, and nothing else may change them. "
            f"`bucketlake buckets double` goes on with it, `bucketlake buckets undo-double` takes it back."
        )
    if found is None:
        instead = "Split and merge its buckets instead: table.buckets.resize(), bucketlake buckets resize."
        raise ConfigError(
            f"{state.store.uri} has {index}, and bucket rules are for tables whose keys are spread by a count."
            + (f" {instead}" if index.resizable is not None else "")
        )
    return found


@dataclass(frozen=True, slots=True)
class _Run:
    """A rescale under way: begun just now, or resumed."""

    transaction: Transaction
    plan: PersistedPlan
    tasks: Tasks

    def work(self, state: TableState) -> list[RegroupTask]:
        """Return the tasks that the slices of now make; refuse those that another service has taken."""
        index = writing_index(state)
        plan = plan_rescale(state, files_of(state), index, self.plan.rules)
        _refuse_held(plan, load_held(state))
        return plan_tasks(
            plan,
            state,
            index,
            instant=self.transaction.instant,
            budget_bytes=self.plan.budget_bytes,
        )

    def finish(self, start: Callable[[], Moved]) -> Rescaled:
        """Move rows until nothing is left to move, and commit; or leave it to be resumed."""
        transaction, moved = self.transaction, NOTHING_MOVED
        try:
            with Heartbeat(transaction):
                moved = catch_up(transaction.store, self.work, start(), self.tasks)

                def say(claims: Claims, timeline: Timeline) -> Said:
                    nonlocal moved
                    current, state = refresh(transaction)
                    moved = last_round(state, self.work, moved, self.tasks)
                    return say_commit(current, self._said(moved, state), claims, timeline)

                completed = complete(transaction, say)
        except BaseException as fault:
            completed = self._end(fault)
        return Rescaled(
            instant=transaction.instant,
            completed=completed,
            partitions=tuple(sorted({task.work.partition for task, _ in moved.done.values()})),
            rows=moved.rows,
            size_bytes=sum(stat.size_bytes for stat in moved.stats),
        )

    def _said(self, moved: Moved, state: TableState) -> CommitMetadata:
        """Return what it says when it is committed, once the keys are recorded that it moved."""
        metadata, told = _metadata(moved, state), resolve_listed(state)
        instant = self.transaction.instant
        if told:
            what = f"the rescale of {instant}"
            refuse_later_keys(state, instant=instant, replaced=metadata.replaced, what=what)
        return record_moved(state.store, told, metadata, instant=instant, tasks=self.tasks)

    def _end(self, fault: BaseException) -> str:
        """Return the completion time if it was decided before the fault; else raise, and leave what can be resumed."""
        transaction, completed, is_left = self.transaction, None, True
        with suppress(Exception):  # the store may be what failed
            completed = decided(transaction)
            if completed is None and _is_final(fault):
                # By a claim, not by `abort`: who took us for dead may be about to commit it.
                recover(transaction.store, transaction.properties, given_up={transaction.instant})
                is_left = False
            elif completed is None and isinstance(fault, BucketlakeError) and not self._has_written():
                abort(transaction)
                is_left = False
        if completed is not None:
            tidy(transaction, None)
            return completed
        if is_left:
            fault.add_note(
                f"The rescale {transaction.instant} was cut off, and nothing of it is visible. Go on with it: "
                f"table.buckets.resume(), bucketlake buckets resume; or take it back: table.buckets.abort(), "
                f"bucketlake buckets abort."
            )
        raise fault

    def _has_written(self) -> bool:
        return marked_files(self.transaction.store, self.transaction.instant) is not None


def _is_final(fault: BaseException) -> bool:
    """Tell whether it would fail again. A pending compaction can be run, a lock be had, a store come back."""
    if isinstance(fault, ConflictError):
        return isinstance(fault, CommitConflictError)
    return isinstance(fault, BucketlakeError)


def _by_rules(transaction: Transaction, plan: PersistedPlan) -> Transaction:
    """Return a rescale as the rows are placed that it moves: by the rules that are to count."""
    rescalable = transaction.index.rescalable
    assert rescalable is not None, "asked before it began"
    index = rescalable.with_rules(plan.rules, transaction.instant)
    return replace(transaction, index=index, layout_version=plan.version_before, replaced=None)


def _refuse_held(plan: Rescale, held: Held) -> None:
    for change in plan.changes:
        for part in change.slices:
            if (part.partition, part.file_id) in held.groups:
                raise ConcurrentWriteError(
                    f"partition {part.partition!r} cannot be rescaled: a compaction or clustering of {part.file_id} is "
                    f"pending. Run it, or roll it back, then rescale. Nothing was written."
                )


def plan_tasks(
    plan: Rescale, state: TableState, index: Index, *, instant: str, budget_bytes: int
) -> list[RegroupTask]:
    """Divide the work into tasks that have nothing to do with each other; `index` is that of now."""
    properties = state.properties
    schema = with_meta_columns(table_schema(state))
    before = _rescalable(state, index)
    after = before.with_rules(plan.rules)
    merging = MergeRules(
        properties.merge_mode, properties.ordering_fields, properties.delete_field, properties.delete_marker
    )
    avro_schema = arrow_to_avro(schema, table=properties.name)
    return [
        RegroupTask(
            store=state.store,
            instant=instant,
            work=Regroup(
                partition=change.partition,
                slices=tuple(map(named, slices)),
                slots=tuple(map(after.slot_at, buckets)),
                index=after,
            ),
            by=(),
            rules=merging,
            schema=schema,
            avro_schema=avro_schema,
            row_group_bytes=ROW_GROUP_BYTES,
            size_bytes=sum(part.size_bytes for part in slices),
            whole=frozenset(log.path for part in slices for log in part.log_files if log.is_whole),
            budget_bytes=budget_bytes,
        )
        for change in plan.changes
        for slices, buckets in _linked(change, before)
    ]


def _linked(change: PartitionChange, index: RescalableIndex) -> list[tuple[list[FileSlice], range]]:
    """Group old and new buckets by what rows can pass between them.

    A key of hash h is in h % before, and goes to h % after. What divides both divides all of it: old buckets that leave
    the same remainder have their rows in new ones that leave it too, and in no others.
    """
    step = gcd(change.before, change.after)
    by_remainder: dict[int, list[FileSlice]] = {}
    seen: set[str] = set()
    for part in change.slices:
        slot = index.slot_of_file(part.partition, part.file_id)
        if slot is None or slot in seen:
            raise CorruptTableError(
                path=part.partition or ".",
                found=f"the file group {part.file_id}, "
                + ("which is no bucket" if slot is None else f"a second one of bucket {slot}"),
                expected=f"one file group for each of {change.before} buckets, by {index}",
                remedy="`bucketlake fsck` tells what is in it. Read the partition, and write it anew with overwrite.",
            )
        seen.add(slot)
        by_remainder.setdefault(index.number_of(slot) % step, []).append(part)
    return [
        (slices, range(remainder, change.after, step)) for remainder, slices in sorted(by_remainder.items())
    ]


def _metadata(moved: Moved, state: TableState) -> CommitMetadata:
    sums = {"rows": moved.rows, "key_hash_sum": moved.key_hash_sum}
    extra = {
        SCHEMA_KEY: schema_text(state),
        PROOF_KEY: json.dumps(sums | {f"file_{name}": value for name, value in sums.items()}),
    }
    count = simple_count(state.properties)
    if not load_rules(state.store, state.timeline).version and count is not None:
        extra[COUNT_BEFORE_KEY] = str(count)
    return CommitMetadata(
        operation=str(Operation.INSERT_OVERWRITE),
        write_stats=moved.stats,
        replaced=moved.replaced,
        extra=extra,
    )
