"""MERGE, UPDATE and DELETE of rows by a condition: what they read of the table, and what they write of it.

Each is a computation (`write.computed`): what it reads is the table as it is when the write begins, and nothing is
committed that was computed from what others have changed since.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Self, Unpack

import pyarrow as pa

from bucketlake import given
from bucketlake import spark as on_spark
from bucketlake.arguments import ComputedArguments
from bucketlake.config import TableProperties
from bucketlake.errors import ConfigError, SchemaError, shown
from bucketlake.index import Index, IndexValue, resolve_index
from bucketlake.keygen import KeyGenerator
from bucketlake.schema import PARTITION_PATH_COLUMN, RECORD_KEY_COLUMN
from bucketlake.state import TableState, table_schema
from bucketlake.storage import Store
from bucketlake.write import CommitSummary, Computation, Computed, Operation, key_columns, tops_of
from bucketlake.writes import write_computed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from bucketlake.arguments import Rows
    from bucketlake.spark.merge import Expression, MergeSpec, TableRules
    from bucketlake.spark.snapshot import Snapshot

FrameOf = Callable[["Snapshot"], "DataFrame"]
"""Makes a frame that may read the table: only as it is in the snapshot."""


@dataclass(frozen=True, slots=True)
class UpdateRows(Computation):
    """Rows of a table with new values in some columns."""

    session: SparkSession
    chosen: FrameOf
    """The rows to be updated: the columns of the table, and those with the new values."""
    values: tuple[tuple[str, str], ...]
    """Columns of the table, each with the one that has its new value."""
    progress: bool | None = None

    def check(self, state: TableState) -> None:
        rules = rules_of_table(state)
        set_ = on_spark.merge.resolved_values(self.values, rules.schema.names, "UPDATE SET")
        _refuse_fixed(set_, rules, state)

    @contextmanager
    def on(self, state: TableState) -> Iterator[Computed]:
        snapshot = on_spark.snapshot.Snapshot(self.session, state)
        rules = rules_of_table(state)
        set_ = on_spark.merge.resolved_values(self.values, rules.schema.names, "UPDATE SET")
        rows = on_spark.merge.updated(self.chosen(snapshot), set_, rules.schema)
        yield Computed(rows=on_spark.write.FrameRows(rows, progress=self.progress), groups=snapshot.groups)


@dataclass(frozen=True, slots=True)
class DeleteRows(Computation):
    """Rows of a table that are to go."""

    session: SparkSession
    chosen: FrameOf
    progress: bool | None = None

    @contextmanager
    def on(self, state: TableState) -> Iterator[Computed]:
        snapshot = on_spark.snapshot.Snapshot(self.session, state)
        columns = tops_of(key_columns(KeyGenerator.from_properties(state.properties)))
        rows = self.chosen(snapshot).select(*(on_spark.types.quoted(name) for name in columns))
        yield Computed(rows=on_spark.write.FrameRows(rows, progress=self.progress), groups=snapshot.groups)


@dataclass(frozen=True, slots=True)
class QueriedRows(Computation):
    """Rows to be written to a table, by a query that reads it."""

    session: SparkSession
    rows: FrameOf

    @contextmanager
    def on(self, state: TableState) -> Iterator[Computed]:
        snapshot = on_spark.snapshot.Snapshot(self.session, state)
        rows = on_spark.write.FrameRows(self.rows(snapshot))
        yield Computed(rows=rows, groups=snapshot.groups, may_insert=True)


@dataclass(frozen=True, slots=True)
class MergedRows(Computation):
    """What a MERGE changes."""

    session: SparkSession
    source: FrameOf
    spec: MergeSpec
    progress: bool | None = None

    def check(self, state: TableState) -> None:
        rules = rules_of_table(state)
        for clause in self.spec.clauses:
            if clause.deed is on_spark.merge.Deed.UPDATE and clause.values is not None:
                who = f"{clause.part} THEN UPDATE SET"
                on_spark.merge.resolved_values(clause.values, rules.schema.names, who)

    @contextmanager
    def on(self, state: TableState) -> Iterator[Computed]:
        snapshot = on_spark.snapshot.Snapshot(self.session, state)
        rules = rules_of_table(state)
        with ExitStack() as stack:
            source = _kept(self.source(snapshot), stack)
            on_spark.merge.check_merge(self.spec, rules, source.columns)
            with on_spark.write.own_errors():
                reads = on_spark.merge_reads.what_to_read(self.spec, rules, source)
                columns = [*rules.schema.names, RECORD_KEY_COLUMN, PARTITION_PATH_COLUMN]
                target = snapshot.frame(columns=columns, filters=reads.filters)
                changes = _kept(on_spark.merge.merge_changes(target, source, self.spec, rules), stack)
                on_spark.merge.check_matches(changes, self.spec.clauses)
                inserts = any(c.deed is on_spark.merge.Deed.INSERT for c in self.spec.clauses)
                if inserts:
                    # Where a key may live is looked at when the write is committed, and need not be told as read.
                    known = on_spark.snapshot.Snapshot(self.session, state).frame(
                        columns=[RECORD_KEY_COLUMN, PARTITION_PATH_COLUMN],
                        filters=reads.filters_of_inserted or (),
                    )
                    is_certain = reads.filters_of_inserted is None
                    on_spark.merge.check_inserted(changes, None if is_certain else known, rules)
            rows = changes.select(on_spark.merge.OP, *map(on_spark.types.quoted, rules.schema.names))
            yield Computed(
                rows=on_spark.write.FrameRows(rows, progress=self.progress),
                groups=snapshot.groups,
                may_insert=inserts,
            )


def _kept(frame: DataFrame, stack: ExitStack) -> DataFrame:
    """Let Spark keep the rows of a frame, which are asked for more than once."""
    kept = frame.persist()
    stack.callback(kept.unpersist)
    return kept


def rules_of_table(state: TableState) -> TableRules:
    """Say what a table makes of rows that change."""
    keys = KeyGenerator.from_properties(state.properties)
    index = resolve_index(state)
    of_key = tops_of(keys.record_key_fields)
    fixed = of_key if _moves_rows(index) else tops_of(key_columns(keys))
    return on_spark.merge.TableRules(
        schema=table_schema(state),
        keys=keys,
        fixed=frozenset(fixed),
        is_global=index.recorded is not None and index.recorded.is_global,
    )


def _moves_rows(index: Index) -> bool:
    """Tell whether a row moves when its partition changes."""
    recorded = index.recorded
    return recorded is not None and recorded.is_global and not recorded.keeps_partition


def _refuse_fixed(names: Mapping[str, Any], rules: TableRules, state: TableState) -> None:
    wrong = [name for name in names if name in rules.fixed]
    if wrong:
        raise ConfigError(
            f"UPDATE sets {wrong[0]!r}, and {', '.join(sorted(rules.fixed))} say which row it is in {state.store.uri}. "
            f"Delete the row and insert another. Nothing was written."
        )


_SIDES = ("target", "source")


@dataclass(frozen=True, slots=True, kw_only=True)
class Merge:
    """A MERGE that is being said, clause by clause; `execute` runs it. Each method returns a new one.

    table.merge(changes, "target.id = source.id")
        .when_matched_update_all()
        .when_not_matched_insert_all()
        .execute()

    Of several clauses for the same rows, the first counts whose condition holds.
    """

    store: Store
    told: IndexValue | None
    session: SparkSession
    source: DataFrame
    spec: MergeSpec
    options: ComputedArguments = field(default_factory=lambda: ComputedArguments())

    def when_matched_update(self, set: Mapping[str, Expression], condition: Expression | None = None) -> Self:
        """Where a row of the source matches one of the table, give columns of that new values."""
        return self._with("MATCHED", "UPDATE", condition, set)

    def when_matched_update_all(self, condition: Expression | None = None) -> Self:
        """Give every column of the table the value that the source has in the column of its name."""
        return self._with("MATCHED", "UPDATE", condition)

    def when_matched_delete(self, condition: Expression | None = None) -> Self:
        return self._with("MATCHED", "DELETE", condition)

    def when_not_matched_insert(
        self, values: Mapping[str, Expression], condition: Expression | None = None
    ) -> Self:
        """Insert rows of the source that match none of the table; columns without a value are null."""
        return self._with("NOT_MATCHED", "INSERT", condition, values)

    def when_not_matched_insert_all(self, condition: Expression | None = None) -> Self:
        return self._with("NOT_MATCHED", "INSERT", condition)

    def when_not_matched_by_source_update(
        self, set: Mapping[str, Expression], condition: Expression | None = None
    ) -> Self:
        """Change rows of the table that no row of the source matches."""
        return self._with("NOT_MATCHED_BY_SOURCE", "UPDATE", condition, set)

    def when_not_matched_by_source_delete(self, condition: Expression | None = None) -> Self:
        return self._with("NOT_MATCHED_BY_SOURCE", "DELETE", condition)

    def execute(self) -> CommitSummary:
        """Merge, in one commit.

        If another writer changes what was read before the commit, all is computed again, a few times;
        `CommitConflictError` if others keep being faster.
        """
        merged = MergedRows(self.session, lambda _: self.source, self.spec, self.options.get("progress"))
        return run_merge(self.store, merged, self.told, self.options)

    def _with(
        self,
        part: str,
        deed: str,
        condition: Expression | None,
        values: Mapping[str, Expression] | None = None,
    ) -> Self:
        if values is not None and (not isinstance(values, Mapping) or not values):
            raise ConfigError(
                f"the values are {shown(values)}; expected a mapping of columns to expressions, such as "
                f"{{'n': 'source.n'}}."
            )
        merge = on_spark.merge
        if condition is not None:
            merge.check_expression(condition, "the condition")
        for name, value in (values or {}).items():
            merge.check_expression(value, f"the value of {name!r}")
        clause = merge.Clause(
            part=merge.Part[part],
            deed=merge.Deed[deed],
            condition=condition,
            values=None if values is None else tuple(values.items()),
        )
        return replace(self, spec=replace(self.spec, clauses=(*self.spec.clauses, clause)))


def merge_of(
    store: Store,
    told: IndexValue | None,
    properties: TableProperties,
    source: Rows,
    on: Expression | None,
    *,
    schema_of_table: Callable[[], pa.Schema],
    spark: SparkSession | None,
    options: ComputedArguments,
) -> Merge:
    """Begin a MERGE. Without `on`, rows match that have the same key, in the same partition if keys are of one."""
    given.known(options, ComputedArguments)
    rows = given.rows_of(source, schema_of_table)
    if not isinstance(rows, pa.Table) and not given.is_frame(rows):
        raise ConfigError(
            "the source of a merge is a frame or rows in memory; read the files with spark.read.parquet."
        )
    session = given.session_for(spark, rows)
    frame = session.createDataFrame(rows) if isinstance(rows, pa.Table) else rows
    if on is None:
        on = _same_key(KeyGenerator.from_properties(properties), frame.columns)
    on_spark.merge.check_expression(on, "the condition of the merge")
    spec = on_spark.merge.MergeSpec(on=on, clauses=(), target=_SIDES[0], source=_SIDES[1], parameters={})
    return Merge(store=store, told=told, session=session, source=frame, spec=spec, options=options)


def _same_key(keys: KeyGenerator, source: Sequence[str]) -> str:
    """Return the condition that two rows have the same key and partition."""
    names = tops_of(key_columns(keys))
    there = {name.lower() for name in source}
    missing = [name for name in names if name.lower() not in there]
    if missing:
        raise SchemaError(
            f"without a condition, rows match that have the same {', '.join(names)}, and the source has no "
            f"{', '.join(missing)}; it has {', '.join(source)}. Add them to the source, or say which rows match: "
            f"table.merge(source, 'target.{names[0]} = source.{names[0]}')."
        )
    quoted = [on_spark.types.quoted(name) for name in names]
    return " AND ".join(f"{_SIDES[0]}.{name} <=> {_SIDES[1]}.{name}" for name in quoted)


def run_merge(
    store: Store, merged: MergedRows, told: IndexValue | None, options: ComputedArguments
) -> CommitSummary:
    """Merge into the table in `store`."""
    return write_computed(
        store, merged, Operation.UPSERT, told, options, session=merged.session, op=on_spark.merge.OP
    )


def update_rows(
    store: Store,
    told: IndexValue | None,
    set: Mapping[str, Expression],
    where: Expression | None,
    *,
    spark: SparkSession | None,
    **options: Unpack[ComputedArguments],
) -> CommitSummary:
    """Give columns of the rows for which `where` holds, or of all, new values."""
    if not isinstance(set, Mapping) or not set:
        raise ConfigError(
            f"set is {shown(set)}; expected a mapping of columns to expressions: {{'n': 'n + 1'}}."
        )
    given.known(options, ComputedArguments)
    for name, value in set.items():
        on_spark.merge.check_expression(value, f"the new value of {name!r}")
    if where is not None:
        on_spark.merge.check_expression(where, "where")
    session = given.session_for(spark)
    values = {name: f"_bucketlake_new_{number}" for number, name in enumerate(set)}

    def chosen(snapshot: Snapshot) -> DataFrame:
        rows = _where(snapshot, where)
        return on_spark.merge.with_columns(rows, {values[name]: value for name, value in set.items()})

    updated = UpdateRows(session, chosen, tuple(values.items()), options.get("progress"))
    return write_computed(store, updated, Operation.UPSERT, told, options, session=session)


def delete_rows(
    store: Store,
    told: IndexValue | None,
    where: Expression,
    *,
    spark: SparkSession | None,
    **options: Unpack[ComputedArguments],
) -> CommitSummary:
    """Delete the rows for which `where` holds."""
    given.known(options, ComputedArguments)
    if where is None:
        raise ConfigError(
            "where is None; expected a condition, such as 'amount < 0'. 'true' deletes every row. Nothing was written."
        )
    on_spark.merge.check_expression(where, "where")
    session = given.session_for(spark)
    doomed = DeleteRows(session, lambda snapshot: _where(snapshot, where), options.get("progress"))
    return write_computed(store, doomed, Operation.DELETE, told, options, session=session)


def _where(snapshot: Snapshot, where: Expression | None) -> DataFrame:
    """Return the rows for which a condition holds, and read no more for that than it needs."""
    if where is None:
        return snapshot.frame()
    said = on_spark.conditions.conditions_of(where)
    filters = on_spark.conditions.filters_for(said, snapshot.schema)
    return snapshot.frame(filters=filters).where(where)
