"""A write, top to bottom: begin, plan, run the tasks, prove, commit.

Where the rows come from, and who runs the tasks, is a `Rows`: a frame on
Spark, or an Arrow table in this process. The story is the same for both.
"""

from __future__ import annotations

import logging
import os
import random
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from time import perf_counter, sleep
from typing import Protocol

import pyarrow as pa

from bucketlake.commit.markers import marked_files
from bucketlake.commit.metadata_table import UNMAINTAINED, OnUnmaintained, delist_unmaintained
from bucketlake.commit.operation import TRANSACTIONS, Operation
from bucketlake.commit.overtaken import gives_way
from bucketlake.commit.stream import Batch, Marks, overtaken
from bucketlake.commit.transaction import (
    Heartbeat,
    Transaction,
    abort,
    begin,
    keeps_files,
    looks_keys_up,
    rebase,
)
from bucketlake.commit.yielding import Turn
from bucketlake.config import TableProperties, load_properties
from bucketlake.errors import (
    CommitConflictError,
    ConfigError,
    DamagedFileError,
    IndexBeingBuiltError,
    KeyElsewhereError,
    ProofError,
    SchemaError,
)
from bucketlake.index import Index, IndexValue
from bucketlake.index.fingerprint import writing_index
from bucketlake.index.listed import listed_indexes
from bucketlake.keygen import KeyGenerator
from bucketlake.layout import DataFile, FileGroupId, Listed
from bucketlake.layout.names import path_in_partition
from bucketlake.logfile import LogFormat
from bucketlake.metadata.places import RECORD_INDEX, SECONDARY_PREFIX
from bucketlake.schema import META_COLUMNS, evolve
from bucketlake.state import TableState, files_of, load_state, look_at_files, table_schema
from bucketlake.storage import Store
from bucketlake.timeline import Action, Instant
from bucketlake.write.change_feed import ChangeFeed
from bucketlake.write.computed import Computation
from bucketlake.write.exchange import Cut, InProcess, KeySum
from bucketlake.write.finish import Later, Prepared, finish
from bucketlake.write.key_changes import record_replaced
from bucketlake.write.report import CommitSummary, Ran, check_proof
from bucketlake.write.rounds import Earlier
from bucketlake.write.state import (
    MISSING_COLUMNS_ALLOWED,
    SCHEMA_MERGED,
    WriteState,
    is_non_blocking,
    is_set,
    plan_write,
    replaced_by,
    rules_of,
)
from bucketlake.write.tag import key_columns, tops_of
from bucketlake.write.task import GroupWritten
from bucketlake.write.through import write_through

ATTEMPTS = 6
"""How often a write is run if others keep being faster."""

BUILD_LOOKS = 60
"""How many seconds a write waits for an index that is being built."""

PARTITIONS_LISTED_WHOLE = 10_000
"""Above this many partitions a write first asks its rows which ones it touches."""

_ROWS_CHANGE = (
    "Nothing was committed. The rows change from one evaluation to the next (rand(), a source that is being written): "
    "write them down first, e.g. as Parquet."
)


_chance = random.Random(os.getpid())
_log = logging.getLogger("bucketlake.write")


class Rows(Protocol):
    """Rows to be written, and what runs the tasks that write them."""

    @property
    def schema(self) -> pa.Schema:
        """Their columns; Hudi's meta columns among them are passed over."""

    @property
    def cores(self) -> int:
        """How many tasks can run at once."""

    @property
    def are_at_hand(self) -> bool:
        """Whether they need not be evaluated to be looked at."""

    def distinct(self, columns: Sequence[str]) -> pa.Table:
        """Return the distinct values of some columns."""

    def run(self, plan: WriteState) -> Ran:
        """Tag the rows, bring those of a file group together, write them; and say what was sent and done."""

    def key_sum(self, columns: Sequence[str], cut: Cut) -> KeySum:
        """Count the rows, and add the hashes that `cut` gives them, without writing anything."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    """What a caller may choose for one write."""

    log_format: LogFormat = LogFormat.PARQUET
    merge_schema: bool | None = None
    """Whether the rows may change the table's columns; None: if the table says so."""
    feed: ChangeFeed | None = None
    """What rows say became of them; None if they do not, and are all to be there."""
    index: IndexValue | None = None
    """Said again, it must be what the table says."""
    batch: Batch | None = None
    """The batch of a stream that the rows are; it is committed once."""
    marks: Marks | None = None
    """Tells which batches there are already."""
    later: Later | None = None
    """Takes what publishes the write once it is decided; None: it is published at once."""

    def index_of(self, state: TableState) -> Index:
        """Return the index that rows are written by; `LayoutMismatchError` if a choice differs from it."""
        return writing_index(state, self.index)


def run_write(
    rows: Rows | Computation, store: Store, operation: Operation, options: WriteOptions | None = None
) -> CommitSummary:
    """Write `rows` into the table in `store`, and say what that did.

    A write that another one was faster than is run again, on what there is then, a few times; rows that are computed
    from the table are computed again. One whose table has its index built anew waits a while for that.
    """
    options = options or WriteOptions()
    for left in reversed(range(BUILD_LOOKS)):
        try:
            return _run_again(rows, store, operation, options)
        except IndexBeingBuiltError as fault:
            if not left:
                raise
            if left + 1 == BUILD_LOOKS:
                _log.warning("waiting up to %d s: %s", BUILD_LOOKS, fault)
            sleep(1.0)
    raise AssertionError("the last look returns or raises")


def _run_again(
    rows: Rows | Computation, store: Store, operation: Operation, options: WriteOptions
) -> CommitSummary:
    watch = _Stopwatch()
    turn = Turn(store)
    for left in reversed(range(ATTEMPTS)):
        try:
            with turn:
                return _run_once(rows, store, operation, options, watch, turn)
        except KeyElsewhereError as fault:
            if not left or not _may_delist(store):
                raise
            _log.warning("%s", fault)
            delist_unmaintained(store, also=_listed_words(store))
        except CommitConflictError as conflict:
            if not left:
                raise
            _log.info("%s", conflict)
            sleep(_chance.uniform(0.0, 0.1 * 2 ** (ATTEMPTS - left)))
    raise AssertionError("the last attempt returns or raises")


def _may_delist(store: Store) -> bool:
    """Tell whether a write may delist an index that it cannot keep."""
    return load_properties(store).raw.get(UNMAINTAINED) == OnUnmaintained.DELIST and bool(
        _listed_words(store)
    )


def _listed_words(store: Store) -> list[str]:
    properties = load_properties(store)
    words = {one.word for one in listed_indexes(properties)}
    return sorted(words.intersection(properties.metadata_partitions))


def _run_once(
    source: Rows | Computation,
    store: Store,
    operation: Operation,
    options: WriteOptions,
    watch: _Stopwatch,
    turn: Turn,
) -> CommitSummary:

    def check(state: TableState) -> None:
        _check_replacing(state, operation)
        _check_listed(state)
        if isinstance(source, Computation):
            source.check(state)
        else:
            _columns_after(source, state, operation, options)
        if options.batch is not None:
            _refuse_known(options.batch, options.marks or Marks(store, state.properties), state)

    with watch.stage("begin"):
        transaction, state = begin(
            store, operation=operation, index_of=options.index_of, check=check, batch=options.batch
        )
    with (
        _aborted_on_failure(transaction),
        Heartbeat(transaction, owner=transaction.owner),
        ExitStack() as stack,
    ):
        if isinstance(source, Computation):
            with watch.stage("compute"), _checked_again(state):
                computed = stack.enter_context(source.on(state))
            rows, transaction = computed.rows, replace(transaction, read=computed.basis(transaction.index))
        else:
            rows = source
        prepared = prepare(rows, transaction, state, options, watch)
        for left in reversed(range(ATTEMPTS)):
            try:
                with watch.stage("commit"):
                    if looks_keys_up(transaction) or transaction.read is not None:
                        turn.give_way()
                    elif _has_company(transaction, state):
                        turn.give_way(asks=False)
                    summary = finish(prepared, later=options.later)
                return replace(summary, seconds=dict(watch.seconds))
            except CommitConflictError as conflict:
                if not (left and conflict.is_partial and keeps_files(transaction)):
                    raise
                with watch.stage("rewrite"):
                    again = _prepared_again(rows, prepared, options)
                if again is None:
                    raise
                _log.info("%s", conflict)
                prepared = again
    raise AssertionError("the last attempt returns or raises")


def _has_company(transaction: Transaction, state: TableState) -> bool:
    """Tell whether other writes were under way when this one began."""
    return any(i.requested != transaction.instant for i in state.timeline.pending(*TRANSACTIONS))


def _refuse_known(batch: Batch, marks: Marks, state: TableState) -> None:
    """Refuse a batch that somebody has committed since it was found to be new."""
    mark = marks.find(batch, state.timeline)
    if mark is not None and mark.batch >= batch.number:
        raise overtaken(batch, mark)


def prepare(
    rows: Rows, transaction: Transaction, state: TableState, options: WriteOptions, watch: _Stopwatch
) -> Prepared:
    """Write the files of a write that has begun, and prove that they hold the rows."""
    with watch.stage("plan"):
        index = transaction.index.recorded
        moves_keys = index is not None and index.is_global
        (files, unmarked), named = _look(rows, state, transaction.operation, moves_keys=moves_keys)
        overwritten = _overwritten(rows, state, transaction, files, named)
        with _checked_again(state):
            plan = _plan(rows, transaction, state, files, options, unmarked, overwritten or ())
    with watch.stage("write"):
        with _checked_again(state):
            sent, written, recorded, looked_up = rows.run(plan)
        check_proof(sent, written)
        check_files(transaction, written)
        _check_places(written, named)
    return Prepared(
        transaction=transaction,
        sent=sent,
        written=written,
        replaced=_replaced(state, files, transaction.operation, written)
        if overwritten is None
        else replaced_by(state, files, overwritten),
        schema=plan.schema,
        recorded=recorded,
        looked_up=looked_up,
        seconds=watch.seconds,
    )


def _plan(
    rows: Rows,
    transaction: Transaction,
    state: TableState,
    files: Mapping[str, tuple[DataFile, ...]],
    options: WriteOptions,
    unmarked: Collection[str] = (),
    overwritten: Collection[str] = (),
) -> WriteState:
    return plan_write(
        state,
        transaction.index,
        files,
        instant=transaction.instant,
        operation=transaction.operation,
        schema=_columns_after(rows, state, transaction.operation, options),
        cores=rows.cores,
        log_format=options.log_format,
        feed=options.feed,
        unmarked=unmarked,
        overwritten=overwritten,
    )


def _prepared_again(rows: Rows, prepared: Prepared, options: WriteOptions) -> Prepared | None:
    """Write the stale file groups again, on what others have made of them, and keep the rest; None if all are stale.

    A file keeps its name, and is replaced, never removed: an attempt of the first run that is still about cannot put
    its file back. So a group that has another id by now, because others opened its bucket too, needs another write.
    """
    again = rebase(prepared.transaction, prepared.metadata, options.index_of)
    if again is None:
        return None
    transaction, state, stale = again
    if prepared.looked_up is not None:
        return _looked_up_again(rows, replace(prepared, transaction=transaction), state, stale, options)
    written = prepared.written
    before = {(group.partition, group.file_id): group for group in written}
    files = files_of(state, {partition for partition, _ in stale})
    plan = _plan(rows, transaction, state, files, options)
    groups = {(partition, plan.ids.get(partition, {}).get(slot, "")) for partition, slot in stale}
    if not groups <= before.keys():
        raise CommitConflictError(
            f"the write of {transaction.instant} cannot commit: another opened, or emptied, the same buckets. Nothing "
            f"of it is visible. Run it again."
        )
    paths = [path for group in groups if (path := before[group].path) is not None]
    versions = {path: state.store.stat(path).version for path in paths}
    sent, anew, *_ = rows.run(replace(plan, only=frozenset(groups), stale=versions))
    check_proof(sent, anew)
    after = {(group.partition, group.file_id): group for group in anew}
    for group in sorted(groups):
        first, second = before[group], after.get(group)
        if second is None or (first.received, first.received_sum) != (second.received, second.received_sum):
            raise ProofError(
                f"{path_in_partition(*group)} was written twice, because another write came in between, and got other "
                f"rows the second time. {_ROWS_CHANGE}"
            )
    written = tuple((before | after).values())
    check_files(transaction, written)
    return replace(prepared, transaction=transaction, written=written)


def _looked_up_again(
    rows: Rows,
    prepared: Prepared,
    state: TableState,
    stale: frozenset[FileGroupId],
    options: WriteOptions,
) -> Prepared:
    """Do the same where keys are looked up: `rounds` says what is written again."""
    transaction, looked_up = prepared.transaction, prepared.looked_up
    assert looked_up is not None and transaction.index.recorded is not None
    is_global = transaction.index.recorded.is_global
    (files, unmarked), named = _look(rows, state, transaction.operation, moves_keys=is_global)
    earlier = Earlier(
        looked_up=looked_up,
        written=tuple(prepared.written),
        recorded=tuple(prepared.recorded or ()),
        stale=stale,
    )
    with _checked_again(state):
        plan = replace(_plan(rows, transaction, state, files, options, unmarked), earlier=earlier)
        sent, written, recorded, looked_up = rows.run(plan)
    check_proof(sent, written)
    check_files(transaction, written)
    _check_places(written, named)
    return replace(
        prepared, sent=sent, written=written, recorded=recorded, looked_up=looked_up, schema=plan.schema
    )


def run_delete_partitions(store: Store, partitions: Sequence[str]) -> CommitSummary:
    """Empty whole partitions, by hiding their file groups."""
    watch = _Stopwatch()
    operation = Operation.DELETE_PARTITION

    def check(state: TableState) -> None:
        _check_replacing(state, operation)
        _check_listed(state)
        _check_partitions(partitions, files_of(state, partitions))

    with watch.stage("begin"):
        transaction, state = begin(store, operation=operation, index_of=writing_index, check=check)
    with _aborted_on_failure(transaction), Heartbeat(transaction):
        with watch.stage("write"), _checked_again(state):
            files = files_of(state, partitions)
            plan = plan_write(
                state,
                transaction.index,
                files,
                instant=transaction.instant,
                operation=operation,
                schema=table_schema(state),
                cores=1,
                log_format=LogFormat.PARQUET,
                overwritten=partitions,
            )
            recorded = record_replaced(plan)
        with watch.stage("commit"):
            return finish(
                Prepared(
                    transaction=transaction,
                    sent=KeySum(0, 0),
                    written=(),
                    replaced=replaced_by(state, files, partitions),
                    schema=plan.schema,
                    recorded=recorded,
                    seconds=watch.seconds,
                )
            )


def run_add_columns(store: Store, columns: pa.Schema) -> CommitSummary:
    """Add nullable columns to a table, by a commit without rows."""
    watch = _Stopwatch()
    operation = Operation.UPSERT

    def check(state: TableState) -> None:
        _columns_with(columns, state)

    with watch.stage("begin"):
        transaction, state = begin(store, operation=operation, index_of=writing_index, check=check)
    with _aborted_on_failure(transaction), Heartbeat(transaction):
        with watch.stage("write"), _checked_again(state):
            plan = plan_write(
                state,
                transaction.index,
                {},
                instant=transaction.instant,
                operation=operation,
                schema=_columns_with(columns, state),
                cores=1,
                log_format=LogFormat.PARQUET,
            )
            recorded = record_replaced(plan)
        with watch.stage("commit"):
            return finish(
                Prepared(
                    transaction=transaction,
                    sent=KeySum(0, 0),
                    written=(),
                    replaced={},
                    schema=plan.schema,
                    changes_columns=True,
                    recorded=recorded,
                    seconds=watch.seconds,
                )
            )


def _columns_with(columns: pa.Schema, state: TableState) -> pa.Schema:
    """Return the table's columns and these; SchemaError if one of them is there, or cannot be added."""
    stored = table_schema(state)
    there = {name.lower() for name in stored.names}
    twice = [name for name in columns.names if name.lower() in there]
    if twice or len({name.lower() for name in columns.names}) < len(columns.names) or not columns.names:
        raise SchemaError(
            f"cannot add the columns {', '.join(columns.names) or 'none'}; expected each once, and none that the table "
            f"has: {', '.join(stored.names)}."
        )
    required = [column.name for column in columns if not column.nullable]
    if required:
        raise SchemaError(
            f"cannot add the column {required[0]!r} as NOT NULL: the rows that are there have no value in it. Leave "
            f"NOT NULL out."
        )
    return evolution(state.properties, merge_schema=True)(stored, pa.schema([*stored, *columns]))


def _columns_after(rows: Rows, state: TableState, operation: Operation, options: WriteOptions) -> pa.Schema:
    """Return the table's columns after a write of the rows; those of a feed that only deletes may lack some."""
    feed = options.feed
    if feed is not None and rows.are_at_hand:
        feed.check_columns(rows.schema)
        if feed.is_of_deletes(rows.distinct([feed.column]).column(0)):
            stored = table_schema(state)
            ordering = () if rules_of(state.properties).by_commit_time else state.properties.ordering_fields
            names = (*key_columns(KeyGenerator.from_properties(state.properties)), *ordering)
            _check_keys(rows.schema, stored, names)
            return stored
    return columns_after(rows.schema, state, operation, options)


def columns_after(
    incoming: pa.Schema, state: TableState, operation: Operation, options: WriteOptions
) -> pa.Schema:
    """Return the table's columns after a write of such rows; SchemaError names what does not fit.

    A delete brings keys only, and changes no columns.
    """
    stored = table_schema(state)
    incoming = pa.schema([column for column in incoming if column.name not in META_COLUMNS])
    if operation is Operation.DELETE:
        _check_keys(incoming, stored, key_columns(KeyGenerator.from_properties(state.properties)))
        return stored
    if options.feed is not None:
        incoming = options.feed.columns(incoming, stored)
    return evolution(state.properties, merge_schema=options.merge_schema)(stored, incoming)


def _check_keys(incoming: pa.Schema, stored: pa.Schema, names: Sequence[str]) -> None:
    """Refuse rows whose columns with these names, which place records, are not the table's."""
    tops = tops_of(names)
    evolve(
        pa.schema([column for column in stored if column.name in tops]),
        pa.schema([column for column in incoming if column.name in tops]),
        fixed=names,
        merge=True,  # what else is in a struct is passed over
    )


def names_partitions(incoming: pa.Schema, state: TableState) -> bool:
    """Tell whether rows to be deleted say in which partitions they are; SchemaError if they do so by half.

    Those that do not have keys at least, which can be looked up.
    """
    keys = KeyGenerator.from_properties(state.properties)
    of_key = tops_of(keys.record_key_fields)
    of_path = [name for name in tops_of(field.name for field in keys.partition_fields) if name not in of_key]
    missing = [name for name in of_path if name not in incoming.names]
    if not missing or {name.lower() for name in missing} & {name.lower() for name in incoming.names}:
        return True  # A column that differs in case only is named by whoever checks the rows.
    if len(missing) < len(of_path):
        raise SchemaError(
            f"the rows to delete have no column {missing[0]!r}, and the table is partitioned by {', '.join(of_path)}. "
            f"Add the column; or drop the others, then the keys are looked for in every partition."
        )
    _check_keys(incoming, table_schema(state), keys.record_key_fields)
    return False


def evolution(
    properties: TableProperties, *, merge_schema: bool | None
) -> Callable[[pa.Schema, pa.Schema], pa.Schema]:
    """Return what makes, of a table's columns and those of rows, the columns after a write that is no delete."""
    keys = key_columns(KeyGenerator.from_properties(properties))
    return partial(
        evolve,
        fixed={*keys, *properties.ordering_fields},
        merge=is_set(properties, SCHEMA_MERGED) if merge_schema is None else merge_schema,
        fill=is_set(properties, MISSING_COLUMNS_ALLOWED),
    )


class ArrowRows:
    """Rows that are in memory, written by this process: for small data, and without Spark."""

    cores = 1
    are_at_hand = True

    def __init__(self, rows: pa.Table) -> None:
        self._rows = rows.drop_columns([name for name in rows.column_names if name in META_COLUMNS])

    @property
    def schema(self) -> pa.Schema:
        return self._rows.schema

    def distinct(self, columns: Sequence[str]) -> pa.Table:
        return self._rows.select(list(columns)).group_by(list(columns), use_threads=False).aggregate([])

    def run(self, plan: WriteState) -> Ran:
        return write_through(InProcess(self._rows), self._rows.column_names, plan)

    def key_sum(self, columns: Sequence[str], cut: Cut) -> KeySum:
        exchange = InProcess(self._rows)
        return exchange.sum_of(exchange.scatter(columns, cut), received=KeySum(0, 0))


@dataclass(slots=True)
class _Stopwatch:
    """Wall time by stage."""

    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        start = perf_counter()
        try:
            yield
        finally:
            self.seconds[name] = perf_counter() - start


@contextmanager
def _aborted_on_failure(transaction: Transaction) -> Iterator[None]:
    """Take back what a failed write has left, then let the failure go on."""
    try:
        try:
            yield
        except BaseException:
            abort(transaction)
            raise
    except OSError as fault:
        fault.add_note(
            f"The write of {transaction.instant} ended there. Readers see all of it or nothing; what else it left, the "
            f"next write takes away."
        )
        raise


@contextmanager
def _checked_again(state: TableState) -> Iterator[None]:
    """A file that others made needless, and a clean deleted, since the timeline was read is no damage: begin again.

    Nor is one of an index that was built anew, of which the properties tell; nor does it fit together what was taken
    back.
    """
    try:
        with gives_way(state, "this write was under way"):
            yield
    except (DamagedFileError, FileNotFoundError) as fault:
        now = load_state(state.store)
        if _done(now) == _done(state) and now.properties.raw == state.properties.raw:
            raise
        raise CommitConflictError(
            f"others have changed the table since this write began: a file is gone ({fault}). Nothing of it is "
            f"visible. Run it again."
        ) from fault


def _done(state: TableState) -> tuple[Instant, ...]:
    """What was completed; and cleans, which delete before they are."""
    return (*state.timeline.completed(), *state.timeline.pending(Action.CLEAN))


def _look(
    rows: Rows, state: TableState, operation: Operation, *, moves_keys: bool
) -> tuple[Listed, frozenset[str] | None]:
    """List the partitions that a write may touch; and name them, None for all.

    Rows that are at hand are asked which they touch. Others must be evaluated for that, so they are only if the table
    has many.
    """
    if moves_keys:
        return look_at_files(state), None
    if rows.are_at_hand and operation is not Operation.INSERT_OVERWRITE_TABLE:
        named = _partitions_of(rows, state)
        return look_at_files(state, named), named
    listed = look_at_files(state)
    if len(listed.files) <= PARTITIONS_LISTED_WHOLE or operation is Operation.INSERT_OVERWRITE_TABLE:
        return listed, None
    named = _partitions_of(rows, state)
    return listed._replace(files={p: files for p, files in listed.files.items() if p in named}), named


def _partitions_of(rows: Rows, state: TableState) -> frozenset[str]:
    keys = KeyGenerator.from_properties(state.properties)
    names = list(dict.fromkeys(column.name.partition(".")[0] for column in keys.partition_fields))
    paths = keys.partition_paths(rows.distinct(names)).to_pylist() if names else [""]
    for path in paths:
        keys.check_partition_path(path)
    return frozenset(paths)


def check_files(transaction: Transaction, written: Sequence[GroupWritten]) -> None:
    """Compare the files that were begun with those that were reported: others may not become visible."""
    begun = set(marked_files(transaction.store, transaction.instant) or ())
    strangers = sorted(begun - {group.path for group in written})
    if strangers:
        raise ProofError(
            f"{strangers[0]} was written by an attempt that failed, and the one after it had no rows for that file. "
            f"{_ROWS_CHANGE}"
        )


def _check_places(written: Iterable[GroupWritten], named: Collection[str] | None) -> None:
    """Refuse rows of a partition that was not named when the rows were asked: the plan knows no file groups there."""
    for group in written:
        if named is not None and group.partition not in named:
            raise ProofError(
                f"rows of the partition {group.partition!r} arrived, and there were none when the rows were asked for "
                f"their partitions. {_ROWS_CHANGE}"
            )


def _check_replacing(state: TableState, operation: Operation) -> None:
    if operation.replaces and is_non_blocking(state.properties):
        raise ConfigError(
            f"{state.store.uri} is non-blocking: the ids of its file groups are fixed, and one that was replaced could "
            f"not be used again. Delete the rows instead, or make a table without non_blocking and copy the rows."
        )


def _check_listed(state: TableState) -> None:
    """Refuse writes of which nobody could say which keys came and went, if the table lists an index."""
    listed = listed_indexes(state.properties)
    if listed and is_non_blocking(state.properties):
        raise ConfigError(
            f"{state.store.uri} lists the index {listed[0].word}, which is told of every key that comes or goes, and "
            f"is non-blocking: of two writers that bring a key, none knows whether it is new. "
            f"{_off_the_list([one.word for one in listed])}"
        )


def _off_the_list(words: Sequence[str]) -> str:
    names = [word.removeprefix(SECONDARY_PREFIX) for word in words if word.startswith(SECONDARY_PREFIX)]
    drops = [f"table.drop_index({name!r})" for name in names]
    drops += ["table.metadata.drop(record_index=True)"] if RECORD_INDEX in words else []
    return f"Drop what it lists: {', then '.join(drops)}." if drops else "Take the index off the list."


def _check_partitions(partitions: Sequence[str], known: Iterable[str]) -> None:
    strangers = sorted(set(partitions) - set(known))
    if strangers:
        raise ConfigError(
            f"the table has no partition {strangers[0]!r}. Name partitions by their paths, as `bucketlake layout` "
            f"shows them."
        )


def _overwritten(
    rows: Rows,
    state: TableState,
    transaction: Transaction,
    files: Mapping[str, tuple[DataFile, ...]],
    named: frozenset[str] | None,
) -> frozenset[str] | None:
    """Name the partitions that a write replaces, where keys are looked up; None where it shows from what it writes.

    Whether a key moves, or its old row goes with the partition, must be known before it is looked up.
    """
    if transaction.index.recorded is None or not transaction.operation.replaces:
        return None
    if transaction.operation is Operation.INSERT_OVERWRITE_TABLE:
        return frozenset(files)
    return _partitions_of(rows, state) if named is None else named


def _replaced(
    state: TableState,
    files: Mapping[str, tuple[DataFile, ...]],
    operation: Operation,
    written: Iterable[GroupWritten],
) -> dict[str, tuple[str, ...]]:
    match operation:
        case Operation.INSERT_OVERWRITE_TABLE:
            return replaced_by(state, files, files)
        case Operation.INSERT_OVERWRITE:
            return replaced_by(state, files, {group.partition for group in written})
        case _:
            return {}
