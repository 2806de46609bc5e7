"""A statement carried out on a session: queries become frames, frames become writes."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from inspect import signature
from os import PathLike, fspath
from typing import Any, assert_never, cast

import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as fn
from pyspark.sql.types import DataType, StructType

from bucketlake import given
from bucketlake import spark as on_spark
from bucketlake.arguments import MaintenanceArguments, RulesArguments, maintenance_for
from bucketlake.config import MaintenanceMode
from bucketlake.errors import ConfigError, NotATableError, TableExistsError
from bucketlake.index.hints import refuse_hints
from bucketlake.keygen import KeyGenerator
from bucketlake.merging import DeleteRows, MergedRows, QueriedRows, UpdateRows, run_merge
from bucketlake.schema import META_COLUMNS
from bucketlake.services.secondary_index_build import BuiltSecondaryIndex, DroppedIndex
from bucketlake.spark.conditions import filters_for
from bucketlake.sql.call import ManagerAction, ManagerCall
from bucketlake.sql.catalog import Catalog, DroppedName, table_name
from bucketlake.sql.changes import NEW, MergeParts, UpdateParts
from bucketlake.sql.create import CreateTable
from bucketlake.sql.frames import frame_of
from bucketlake.sql.namesakes import check_names
from bucketlake.sql.parameters import named_parameters, with_values
from bucketlake.sql.parse import (
    AddColumns,
    CreateIndex,
    Delete,
    DescribeTable,
    DropIndex,
    DropTable,
    Insert,
    MergeInto,
    PassThrough,
    Select,
    ShowColumns,
    ShowIndexes,
    ShowPartitions,
    ShowTables,
    TableName,
    Update,
    parse,
)
from bucketlake.sql.procedures import PROCEDURES, ProcedureCall
from bucketlake.sql.sources import Sources, check_condition, columns_for, escaped, find_sources
from bucketlake.state import files_of, load_state
from bucketlake.table import Table, create_table
from bucketlake.write import CommitSummary, Operation
from bucketlake.write.state import SCHEMA_MERGED, is_set
from bucketlake.writes import write_computed

_WAREHOUSE_DEFAULT = "warehouse"


def run(
    spark: SparkSession,
    text: str,
    *,
    args: Mapping[str, Any] | Sequence[Any] | None = None,
    warehouse: str | PathLike[str] | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> Any:
    """Run one statement; `bucketlake.sql` says what it returns."""
    spark, text = given.session_of(spark, "It comes before the statement."), given.text(text, "the statement")
    if warehouse is None:
        warehouse = spark.conf.get("spark.sql.warehouse.dir", None) or _WAREHOUSE_DEFAULT
    catalog = Catalog(fspath(warehouse), storage_options)
    tables = frozenset(catalog.names())
    text, args = named_parameters(text, args)
    asking = _Asking(spark, catalog, tables, args)
    statement = parse(text, tables)
    match statement:
        case Select(query):
            sources = find_sources(query, tables, args)
            named = [wanted.table for wanted in sources.tables]
            return _remembered(spark, catalog, named, asking.frame(sources))
        case Insert(table=table):
            done = _insert(asking, statement, find_sources(statement.query, tables, args))
            return _remembered(spark, catalog, [table], done)
        case Delete(table, query):
            check_condition(query)
            return _remembered(
                spark, catalog, [table], _delete(asking, table, find_sources(query, tables, args))
            )
        case Update(table, parts):
            check_condition(parts.query, "UPDATE")
            return _remembered(spark, catalog, [table], _update(asking, table, parts))
        case MergeInto(table, parts):
            return _remembered(spark, catalog, [table], _merge(asking, table, parts))
        case AddColumns(table, columns):
            added = _open(catalog, table).add_columns(columns, spark=spark)
            return _remembered(spark, catalog, [table], added)
        case DescribeTable(table, extended):
            return _remembered(spark, catalog, [table], _described(spark, _open(catalog, table), extended))
        case ShowPartitions(table):
            paths = [part.partition for part in _open(catalog, table).layout().partitions]
            listed = spark.createDataFrame(pa.table({"partition": pa.array(paths, pa.string())}))
            return _remembered(spark, catalog, [table], listed)
        case ShowColumns(table):
            names = pa.array(_open(catalog, table).schema.names, pa.string())
            listed = spark.createDataFrame(pa.table({"col_name": names}))
            return _remembered(spark, catalog, [table], listed)
        case CreateTable():
            made = _create(spark, catalog, statement)
            return _remembered(spark, catalog, [TableName(table_name(statement.name))], made)
        case DropTable(name):
            dropped = DroppedName(name, catalog.path_of(name))
            catalog.remove(name)
            _remembered(spark, catalog, [], None)
            return dropped
        case CreateIndex(table=table):
            built = _create_index(spark, _open(catalog, table), statement)
            return _remembered(spark, catalog, [table], built)
        case DropIndex(table=table):
            return _remembered(spark, catalog, [table], _drop_index(_open(catalog, table), statement))
        case ShowIndexes(table):
            found = _open(catalog, table).indexes()
            return _remembered(spark, catalog, [table], frame_of(spark, found, of="indexes"))
        case ShowTables():
            known = catalog.names()
            listing = {"tableName": list(known), "path": [catalog.path_of(name) for name in known]}
            # Of Arrow's columns: a frame of Python's rows needs workers, whose Python may not be this one.
            schema = pa.schema([("tableName", pa.string()), ("path", pa.string())])
            return spark.createDataFrame(pa.table(listing, schema=schema))
        case ManagerCall() | ProcedureCall():
            table = _named(spark, catalog, statement.table)
            opened = _open(catalog, table)
            if isinstance(statement, ManagerCall):
                result, name = _manage(spark, opened, statement), f"buckets.{statement.action}"
            else:
                result, name = _call(spark, opened, statement), statement.name
            return _remembered(spark, catalog, [table], frame_of(spark, result, of=name))
        case PassThrough():
            if statement.table is not None and not spark.catalog.tableExists(statement.table):
                raise catalog.unknown(statement.table.replace("`", ""))
            return _handed_on(asking, statement)
        case _:
            assert_never(statement)


@dataclass(frozen=True, slots=True)
class _Asking:
    """A session, the tables it may ask for by name, and the values that its statement calls `:name`."""

    spark: SparkSession
    catalog: Catalog
    tables: frozenset[str]
    args: Mapping[str, Any]

    def frame(
        self, sources: Sources, *, head: str = "", at: on_spark.snapshot.Snapshot | None = None
    ) -> DataFrame:
        """Return the frame of a query over tables of ours, Spark's, or both.

        `head` is what comes before it in a statement of Spark's. The table of the snapshot `at` is read as it is there.
        """
        frames: dict[str, Any] = {
            f"t{number}": _read(self.spark, _open(self.catalog, wanted.table), sources, wanted.as_of, at)
            for number, wanted in enumerate(sources.tables)
        }
        args = dict(self.args) or None
        try:
            # Without frames Spark does not take braces for fields, and the query goes as it is.
            if not frames:
                return self.spark.sql(head + sources.query, args=args)
            return self.spark.sql(escaped(head) + sources.template(), args=args, **frames)
        except AnalysisException as error:
            if error.getCondition() != "TABLE_OR_VIEW_NOT_FOUND":
                raise
            name = (error.getMessageParameters() or {}).get("relationName", "")
            raise self.catalog.unknown(name.replace("`", "")) from error


def _handed_on(asking: _Asking, statement: PassThrough) -> DataFrame:
    """Let Spark run a statement, if it names no table of ours but those that its query reads."""
    head = statement.text.removesuffix(statement.query) if statement.query else statement.text
    check_names(head, asking.tables)
    try:
        if statement.query:
            return asking.frame(find_sources(statement.query, asking.tables, asking.args), head=head)
        return asking.spark.sql(statement.text, args=dict(asking.args) or None)
    except AnalysisException as error:
        condition = error.getCondition() or ""
        if (
            condition.startswith("MISSING_CATALOG_ABILITY")
            and statement.text.split(maxsplit=1)[0].upper() == "CALL"
        ):
            raise ConfigError(
                f"there is no such procedure, neither here nor in Spark: {statement.text.strip()!r}; expected one of "
                f"{', '.join(PROCEDURES)}."
            ) from error
        raise


def _open(catalog: Catalog, table: TableName) -> Table:
    path = table.text if table.is_path else catalog.path_of(table.text)
    return Table.open(path, storage_options=catalog.options_for(path))


def _read(
    spark: SparkSession,
    table: Table,
    sources: Sources,
    as_of: str | None,
    at: on_spark.snapshot.Snapshot | None = None,
) -> DataFrame:
    """Read of a table what the query may want. Spark applies all its conditions again; these make it read less."""
    is_here = at is not None and as_of is None and at.state.store.uri == table.store.uri
    if at is not None and is_here:
        schema = at.schema
    else:
        everything = table.query(as_of=as_of, in_zone=on_spark.in_zone_of(spark)).table_schema
        schema = pa.schema([field for field in everything if field.name not in META_COLUMNS])
    names = sources.columns
    columns = columns_for(names, schema) or schema.names
    columns = [*(name for name in META_COLUMNS if name in (names or ())), *columns]
    filters = filters_for(sources.conditions, schema)
    if at is not None and is_here:
        return at.frame(columns=columns, filters=filters)
    return table.read(spark, columns=columns, filters=filters, as_of=as_of)


def _delete(asking: _Asking, name: TableName, sources: Sources) -> CommitSummary:
    table = _open(asking.catalog, name)
    doomed = DeleteRows(asking.spark, lambda at: asking.frame(sources, at=at))
    return write_computed(table.store, doomed, Operation.DELETE, None, {}, session=asking.spark)


def _update(asking: _Asking, name: TableName, parts: UpdateParts) -> CommitSummary:
    table, sources = _open(asking.catalog, name), find_sources(parts.query, asking.tables, asking.args)
    values = tuple((column, NEW.format(number)) for number, column in enumerate(parts.columns))
    updated = UpdateRows(asking.spark, lambda at: asking.frame(sources, at=at), values)
    return write_computed(table.store, updated, Operation.UPSERT, None, {}, session=asking.spark)


def _merge(asking: _Asking, name: TableName, parts: MergeParts) -> CommitSummary:
    table, sources = _open(asking.catalog, name), find_sources(parts.source_query, asking.tables, asking.args)

    def said(expression: Any) -> Any:
        return with_values(expression, asking.args, on_spark.merge.parameter)

    clauses = tuple(
        replace(
            clause,
            condition=None if clause.condition is None else said(clause.condition),
            values=clause.values and tuple((column, said(value)) for column, value in clause.values),
        )
        for clause in parts.clauses
    )
    spec = on_spark.merge.MergeSpec(
        on=said(parts.on),
        clauses=clauses,
        target=parts.target or "_bucketlake_target",
        source=parts.source or "_bucketlake_source",
        parameters=asking.args,
    )
    merged = MergedRows(asking.spark, lambda at: asking.frame(sources, at=at), spec)
    return run_merge(table.store, merged, None, {})


def _described(spark: SparkSession, table: Table, extended: bool) -> DataFrame:
    """Return a table's columns as Spark's DESCRIBE shows them; and then what else the table is."""
    rows: list[tuple[str, str, str | None]] = [
        (f.name, kind.simpleString(), None)
        for f, kind in zip(table.schema, _kinds(table, spark).values(), strict=True)
    ]
    fields = [field.name for field in KeyGenerator.from_properties(table.properties).partition_fields]
    if fields:
        kinds = _kinds(table, spark)
        rows += [("# Partition Information", "", None), ("# col_name", "data_type", "comment")]
        rows += [(name, kinds[name].simpleString() if name in kinds else "", None) for name in fields]
    if extended:
        facts = frame_of(spark, table.describe(), of="describe").collect()
        rows += [("", "", None), ("# Detailed Table Information", "", None)]
        rows += [(fact.name, fact.value, None) for fact in facts if fact.name != "schema"]
    columns = [pa.array(list(column), pa.string()) for column in zip(*rows, strict=True)]
    return spark.createDataFrame(pa.table(columns, names=["col_name", "data_type", "comment"]))


def _insert(asking: _Asking, insert: Insert, sources: Sources) -> CommitSummary:
    spark, table = asking.spark, _open(asking.catalog, insert.table)
    if insert.options:
        refuse_hints(insert.options, load_state(table.store))

    def rows(at: on_spark.snapshot.Snapshot | None = None) -> DataFrame:
        return _fitted(asking.frame(sources, at=at), insert, table, spark)

    read = [_open(asking.catalog, wanted.table) for wanted in sources.tables if wanted.as_of is None]
    is_partitioned = bool(KeyGenerator.from_properties(table.properties).partition_fields)
    evolves = insert.merge_schema
    if any(one.store.uri == table.store.uri for one in read):
        overwrite = Operation.INSERT_OVERWRITE if is_partitioned else Operation.INSERT_OVERWRITE_TABLE
        operation = overwrite if insert.overwrite else Operation.UPSERT
        queried = QueriedRows(spark, rows)
        summary = write_computed(
            table.store, queried, operation, None, {}, session=spark, merge_schema=evolves
        )
    elif insert.overwrite:
        summary = table.overwrite(rows(), whole_table=not is_partitioned, merge_schema=evolves)
    else:
        return table.upsert(rows(), merge_schema=evolves)
    if not insert.overwrite:
        return summary
    if summary.instant is None and insert.partition and None not in insert.partition.values():
        return _emptied(table, insert, spark, summary)
    return summary


def _emptied(table: Table, insert: Insert, spark: SparkSession, summary: CommitSummary) -> CommitSummary:
    """Empty the partition that was to be overwritten with what turned out to be no rows."""
    keys = KeyGenerator.from_properties(table.properties)
    kinds = _kinds(table, spark)
    values = [
        on_spark.fitting.fitting(fn.lit(text), "string", kinds[name], name).alias(name)
        for name, text in _partition_values(insert, table).items()
    ]
    # One row, made by Spark: what a text means as a date or a number is for Spark to say.
    row = spark.range(1).select(*values).toArrow()
    path = str(keys.partition_paths(row)[0].as_py())
    return table.delete_partitions(path) if path in files_of(load_state(table.store), [path]) else summary


def _fitted(frame: DataFrame, insert: Insert, table: Table, spark: SparkSession) -> DataFrame:
    """Return the rows of a query as the table has them: its columns, in its order, of its types.

    Columns are taken by their places, as SQL does, or by name. A value that the column's type cannot hold is an error,
    also in a session where a cast would make a null of it.
    """
    kinds = _kinds(table, spark)
    fixed = _partition_values(insert, table)
    wanted = _columns_given(insert, [name for name in kinds if name not in fixed], table)
    if insert.by_name:
        merges = insert.merge_schema or is_set(table.properties, SCHEMA_MERGED)
        wanted = _resolved(frame.columns, table, "the query", may_add=merges)
    if len(frame.columns) != len(wanted):
        raise ConfigError(
            f"the query gives {len(frame.columns)} columns ({', '.join(frame.columns)}), and {len(wanted)} are to be "
            f"written: {', '.join(wanted)}."
        )
    rows = frame.toDF(*wanted)
    given = {field.name: field.dataType for field in rows.schema.fields}
    columns: list[Column] = []
    for name, kind in kinds.items():
        if name in given:
            column = rows[on_spark.types.quoted(name)]
            columns.append(on_spark.fitting.fitting(column, given[name], kind, name).alias(name))
        elif name in fixed:
            columns.append(on_spark.fitting.fitting(fn.lit(fixed[name]), "string", kind, name).alias(name))
        else:
            columns.append(fn.lit(None).cast(kind).alias(name))
    return rows.select(*columns, *(on_spark.types.quoted(name) for name in wanted if name not in kinds))


def _kinds(table: Table, spark: SparkSession) -> dict[str, DataType]:
    schema: StructType = spark.createDataFrame([], on_spark.ddl(table.schema)).schema
    return {field.name: field.dataType for field in schema.fields}


def _partition_values(insert: Insert, table: Table) -> dict[str, str]:
    """Return the partition columns that the statement gives a value, under the table's spelling."""
    if not insert.partition:
        return {}
    fields = [field.name for field in KeyGenerator.from_properties(table.properties).partition_fields]
    by_name = {field.lower(): field for field in fields}
    strangers = [name for name in insert.partition if name.lower() not in by_name]
    if strangers:
        known = ", ".join(fields) or "none"
        raise ConfigError(
            f"PARTITION names {strangers[0]!r}; the partition columns of the table are: {known}."
        )
    if not insert.overwrite and len(insert.partition) < len(fields):
        missing = [field for field in fields if field.lower() not in {n.lower() for n in insert.partition}]
        raise ConfigError(f"PARTITION leaves out {', '.join(missing)}. Name all partition columns, or none.")
    return {by_name[name.lower()]: text for name, text in insert.partition.items() if text is not None}


def _columns_given(insert: Insert, without_fixed: list[str], table: Table) -> list[str]:
    return _resolved(insert.columns, table, "INSERT") if insert.columns else without_fixed


def _resolved(names: Any, table: Table, who: str, *, may_add: bool = False) -> list[str]:
    """Return columns under the table's spelling."""
    by_name = {name.lower(): name for name in table.schema.names}
    strangers = [name for name in names if name.lower() not in by_name]
    if (strangers and not may_add) or len({name.lower() for name in names}) < len(names):
        raise ConfigError(
            f"{who} names the columns {', '.join(names)}; expected each once, and columns of the table: "
            f"{', '.join(table.schema.names)}. INSERT WITH SCHEMA EVOLUTION INTO ... BY NAME adds others to the table."
        )
    return [by_name.get(name.lower(), name) for name in names]


def _create(spark: SparkSession, catalog: Catalog, wanted: CreateTable) -> Table:
    name = table_name(wanted.name)
    location = wanted.location or name
    path = catalog.absolute(location)
    if not catalog.add(name, location):
        return _existing(catalog, name, is_welcome=wanted.if_not_exists)
    try:
        return _made(spark, wanted, name, path, catalog.options_for(path))
    except TableExistsError as error:
        catalog.remove(name)
        raise ConfigError(
            f"there is a table at {path!r} already, which has no name; DROP TABLE leaves the rows where they are. "
            f"CREATE TABLE {name} USING bucketlake LOCATION '{path}', without columns, gives it its name again. For an "
            f"empty one, delete the folder, or choose another LOCATION. Nothing was written."
        ) from error
    except BaseException:
        catalog.remove(name)
        raise


def _existing(catalog: Catalog, name: str, *, is_welcome: bool) -> Table:
    path = catalog.path_of(name)
    if not is_welcome:
        raise ConfigError(
            f"there is a table {name!r} already, at {path!r}. Choose another name, or DROP TABLE {name}, which forgets "
            f"the name and deletes no data."
        )
    try:
        return Table.open(path, storage_options=catalog.options_for(path))
    except NotATableError as error:
        raise ConfigError(
            f"the catalog has a table {name!r}, but there is none at {path!r}: somebody is making it right now, or was "
            f"stopped. Wait, or DROP TABLE {name} and make it anew."
        ) from error


def _made(
    spark: SparkSession, wanted: CreateTable, name: str, path: str, options: Mapping[str, str] | None
) -> Table:
    if wanted.columns is None:
        return Table.open(path, storage_options=options)
    return create_table(
        path,
        wanted.columns,
        name=name,
        key=wanted.key,
        partition=wanted.partition,
        ordering=wanted.ordering,
        index=wanted.index,
        table_type=wanted.table_type,
        hive_style=wanted.hive_style,
        url_encode=wanted.url_encode,
        merge_schema=wanted.merge_schema,
        allow_missing_columns=wanted.allow_missing_columns,
        non_blocking=wanted.non_blocking,
        allow_null_elements=wanted.allow_null_elements,
        maintenance=wanted.maintenance or MaintenanceMode.INLINE,
        metadata=wanted.metadata,
        spark=spark,
        storage_options=options,
    )


def _create_index(spark: SparkSession, table: Table, wanted: CreateIndex) -> BuiltSecondaryIndex | None:
    if wanted.if_not_exists and any(one.name == wanted.name and one.is_listed for one in table.indexes()):
        return None
    spelled = {name.lower(): name for name in table.schema.names}
    column = spelled.get(wanted.column.lower(), wanted.column)
    return table.create_index(
        wanted.name, on=column, shards=wanted.shards, record_index=wanted.record_index, spark=spark
    )


def _drop_index(table: Table, doomed: DropIndex) -> DroppedIndex | None:
    if doomed.if_exists and all(one.name != doomed.name for one in table.indexes()):
        return None
    return table.drop_index(doomed.name)


_TABLES = "bucketlake.sql.tables"
"""Where a session keeps which tables its last statement named: as JSON, their paths."""


def _remembered(spark: SparkSession, catalog: Catalog, tables: Iterable[TableName], result: Any) -> Any:
    """Let the session know which tables its last statement named, for a CALL that names none; return the result."""
    paths = [table.text if table.is_path else catalog.path_of(table.text) for table in tables]
    if paths or result is None:
        spark.conf.set(_TABLES, json.dumps(list(dict.fromkeys(paths))))
    return result


def _named(spark: SparkSession, catalog: Catalog, name: str | None) -> TableName:
    """Return the table that a call names, or else the one of the session's last statement."""
    if name is not None:
        is_path = "/" in name
        return TableName(name if is_path else table_name(name), is_path)
    last = json.loads(spark.conf.get(_TABLES, None) or "[]")
    if len(last) != 1:
        found = f"named {', '.join(last)}" if last else "named no table"
        known = ", ".join(catalog.names()) or "none"
        raise ConfigError(
            f"the call names no table, and the session's last statement {found}; expected one. Say which: "
            f"table => 'name', or its path. The catalog has {known}."
        )
    return TableName(last[0], is_path=True)


def _call(spark: SparkSession, table: Table, call: ProcedureCall) -> Any:
    """Call the method that a procedure is."""
    arguments = dict(call.arguments)
    if call.name == "adopt":
        return table.run(table.plan_adopt(**arguments))
    if call.name in ("maintain", "plan_maintenance"):
        words = cast("MaintenanceArguments", arguments)
        arguments = {"maintenance": maintenance_for(table.properties, words)}
    owner, _, method = call.name.rpartition(".")
    run = getattr(getattr(table, owner) if owner else table, method)
    takes = signature(run).parameters
    missing = [
        name for name, one in takes.items() if one.default is one.empty and one.kind is not one.VAR_KEYWORD
    ]
    absent = [name for name in missing if name not in arguments]
    if absent:
        raise ConfigError(
            f"CALL {call.name} needs {', '.join(missing)}; {absent[0]} is not given. Add {absent[0]} => ..."
        )
    return run(**arguments, **({"spark": spark} if "spark" in takes else {}))


def _manage(spark: SparkSession, table: Table, call: ManagerCall) -> Any:
    buckets = table.buckets
    match call.action:
        case ManagerAction.OVERWRITE | ManagerAction.ADD:
            assert call.rules is not None
            plans = call.action is ManagerAction.OVERWRITE
            how: RulesArguments = {"bucket_number": call.bucket_number, "rule_type": call.rule}
            if call.dry_run:
                return (buckets.plan_overwrite if plans else buckets.plan_add)(call.rules, **how)
            return (buckets.overwrite if plans else buckets.add)(call.rules, spark=spark, **how)
        case ManagerAction.ROLLBACK:
            assert call.instant is not None
            if call.dry_run:
                return buckets.plan_rollback(call.instant, with_newer=call.with_newer)
            return buckets.rollback(call.instant, with_newer=call.with_newer)
        case ManagerAction.SHOW_CONFIG:
            return buckets.show_config()
