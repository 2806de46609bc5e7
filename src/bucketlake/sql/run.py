"""A statement carried out on a session: queries become frames, frames become writes."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from inspect import signature
from os import PathLike, fspath
from typing import Any, assert_never, cast

import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as fn
from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from bucketlake import given
from bucketlake import spark as on_spark
from bucketlake.arguments import MaintenanceArguments, RulesArguments, maintenance_for
from bucketlake.config import MaintenanceMode
from bucketlake.errors import ConfigError, NotATableError, UnsupportedError
from bucketlake.index.hints import refuse_hints
from bucketlake.keygen import KeyGenerator
from bucketlake.schema import META_COLUMNS
from bucketlake.services.secondary_index_build import BuiltSecondaryIndex, DroppedIndex
from bucketlake.sql.call import ManagerAction, ManagerCall
from bucketlake.sql.catalog import Catalog, table_name
from bucketlake.sql.create import CreateTable
from bucketlake.sql.frames import frame_of
from bucketlake.sql.parse import (
    CreateIndex,
    Delete,
    DropIndex,
    DropTable,
    Insert,
    PassThrough,
    Select,
    ShowIndexes,
    ShowTables,
    TableName,
    parse,
)
from bucketlake.sql.procedures import PROCEDURES, ProcedureCall
from bucketlake.sql.sources import Sources, check_delete, columns_for, filters_for, find_sources
from bucketlake.state import files_of, load_state
from bucketlake.table import Table, create_table
from bucketlake.write import CommitSummary, key_columns, tops_of
from bucketlake.write.state import SCHEMA_MERGED, is_set

_WAREHOUSE_DEFAULT = "warehouse"
_NESTED = (ArrayType, MapType, StructType)


def run(
    spark: SparkSession,
    text: str,
    *,
    warehouse: str | PathLike[str] | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> Any:
    """Run one statement; `bucketlake.sql` says what it returns."""
    spark, text = given.session_of(spark, "It comes before the statement."), given.text(text, "the statement")
    if warehouse is None:
        warehouse = spark.conf.get("spark.sql.warehouse.dir", None) or _WAREHOUSE_DEFAULT
    catalog = Catalog(fspath(warehouse), storage_options)
    tables = frozenset(catalog.names())
    statement = parse(text, tables)
    match statement:
        case Select(query):
            sources = find_sources(query, tables)
            named = [wanted.table for wanted in sources.tables]
            return _remembered(spark, catalog, named, _frame(spark, catalog, sources))
        case Insert(table=table):
            done = _insert(spark, catalog, statement, find_sources(statement.query, tables))
            return _remembered(spark, catalog, [table], done)
        case Delete(table, query):
            check_delete(query)
            doomed = _frame(spark, catalog, find_sources(query, tables))
            return _remembered(spark, catalog, [table], _delete(_open(catalog, table), doomed))
        case CreateTable():
            made = _create(spark, catalog, statement)
            return _remembered(spark, catalog, [TableName(table_name(statement.name))], made)
        case DropTable(name):
            catalog.path_of(name)
            catalog.remove(name)
            return _remembered(spark, catalog, [], None)
        case CreateIndex(table=table):
            built = _create_index(spark, _open(catalog, table), statement)
            return _remembered(spark, catalog, [table], built)
        case DropIndex(table=table):
            return _remembered(spark, catalog, [table], _drop_index(_open(catalog, table), statement))
        case ShowIndexes(table):
            found = _open(catalog, table).indexes()
            return _remembered(spark, catalog, [table], frame_of(spark, found, of="indexes"))
        case ShowTables():
            names = catalog.names()
            columns = {"tableName": list(names), "path": [catalog.path_of(name) for name in names]}
            # Of Arrow's columns: a frame of Python's rows needs workers, whose Python may not be this one.
            schema = pa.schema([("tableName", pa.string()), ("path", pa.string())])
            return spark.createDataFrame(pa.table(columns, schema=schema))
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
            return _handed_on(spark, statement.text, tables)
        case _:
            assert_never(statement)


def _handed_on(spark: SparkSession, text: str, tables: Collection[str]) -> DataFrame:
    """Let Spark run a statement. It knows neither our names nor our procedures, and would say so in other words."""
    try:
        return spark.sql(text)
    except AnalysisException as error:
        condition = error.getCondition() or ""
        name = (error.getMessageParameters() or {}).get("relationName", "").replace("`", "")
        if condition == "TABLE_OR_VIEW_NOT_FOUND" and name.lower() in tables:
            raise UnsupportedError(
                subject=f"a statement on the table {name!r}",
                found=f"{text.split(maxsplit=1)[0].upper()}, which Spark has and our tables have not",
                supported="CREATE TABLE, INSERT, DELETE, SELECT, DROP TABLE, CREATE INDEX, DROP INDEX, SHOW INDEXES "
                "and CALL",
                remedy=f"Rows are changed with INSERT INTO {name} SELECT ..., columns are added with INSERT WITH "
                f"SCHEMA EVOLUTION, and CALL describe(table => '{name}') describes it.",
            ) from error
        if condition.startswith("MISSING_CATALOG_ABILITY") and text.split(maxsplit=1)[0].upper() == "CALL":
            raise ConfigError(
                f"there is no such procedure, neither here nor in Spark: {text.strip()!r}; expected one of "
                f"{', '.join(PROCEDURES)}."
            ) from error
        raise


def _open(catalog: Catalog, table: TableName) -> Table:
    path = table.text if table.is_path else catalog.path_of(table.text)
    return Table.open(path, storage_options=catalog.options_for(path))


def _frame(spark: SparkSession, catalog: Catalog, sources: Sources) -> DataFrame:
    """Return the frame of a query over tables of ours, Spark's, or both."""
    frames: dict[str, Any] = {
        f"t{number}": _read(spark, _open(catalog, wanted.table), sources, wanted.as_of)
        for number, wanted in enumerate(sources.tables)
    }
    try:
        # Without frames Spark does not take braces for fields, and the query goes as it is.
        return spark.sql(sources.template(), **frames) if frames else spark.sql(sources.query)
    except AnalysisException as error:
        if error.getCondition() != "TABLE_OR_VIEW_NOT_FOUND":
            raise
        name = (error.getMessageParameters() or {}).get("relationName", "")
        raise catalog.unknown(name.replace("`", "")) from error


def _read(spark: SparkSession, table: Table, sources: Sources, as_of: str | None) -> DataFrame:
    """Read of a table what the query may want. Spark applies all its conditions again; these make it read less."""
    names = sources.columns
    everything = table.query(as_of=as_of, in_zone=on_spark.in_zone_of(spark)).table_schema
    schema = pa.schema([field for field in everything if field.name not in META_COLUMNS])
    columns = columns_for(names, schema)
    named = set(names or ())
    if meta := [name for name in META_COLUMNS if name in named]:
        columns = [*meta, *(columns or schema.names)]
    filters = filters_for(sources.conditions, schema)
    return table.read(spark, columns=columns or schema.names, filters=filters, as_of=as_of)


def _delete(table: Table, doomed: DataFrame) -> CommitSummary:
    columns = tops_of(key_columns(KeyGenerator.from_properties(table.properties)))
    return table.delete(doomed.select(*(on_spark.types.quoted(name) for name in columns)))


def _insert(spark: SparkSession, catalog: Catalog, insert: Insert, sources: Sources) -> CommitSummary:
    table = _open(catalog, insert.table)
    if insert.options:
        refuse_hints(insert.options, load_state(table.store))
    rows = _fitted(_frame(spark, catalog, sources), insert, table, spark)
    if not insert.overwrite:
        return table.upsert(rows, merge_schema=insert.merge_schema)
    is_partitioned = bool(KeyGenerator.from_properties(table.properties).partition_fields)
    summary = table.overwrite(rows, whole_table=not is_partitioned, merge_schema=insert.merge_schema)
    if summary.instant is None and insert.partition and None not in insert.partition.values():
        return _emptied(table, insert, spark, summary)
    return summary


def _emptied(table: Table, insert: Insert, spark: SparkSession, summary: CommitSummary) -> CommitSummary:
    """Empty the partition that was to be overwritten with what turned out to be no rows."""
    keys = KeyGenerator.from_properties(table.properties)
    kinds = _kinds(table, spark)
    values = [
        _fitting(fn.lit(text), "string", kinds[name], name).alias(name)
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
            columns.append(_fitting(column, given[name], kind, name).alias(name))
        elif name in fixed:
            columns.append(_fitting(fn.lit(fixed[name]), "string", kind, name).alias(name))
        else:
            columns.append(fn.lit(None).cast(kind).alias(name))
    return rows.select(*columns, *(on_spark.types.quoted(name) for name in wanted if name not in kinds))


def _kinds(table: Table, spark: SparkSession) -> dict[str, DataType]:
    schema: StructType = spark.createDataFrame([], on_spark.ddl(table.schema)).schema
    return {field.name: field.dataType for field in schema.fields}


def _fitting(column: Column, given: DataType | str, kind: DataType, name: str) -> Column:
    if given == kind or kind.simpleString() == given:
        return column
    if isinstance(kind, _NESTED) and isinstance(given, _NESTED):
        return column  # A cast would make nulls inside of it that nobody sees; the table says what it takes.
    cast = column.try_cast(kind)
    problem = fn.concat(
        fn.lit(f"column {name} is {kind.simpleString()}, and cannot hold the value "), column.cast("string")
    )
    return fn.when(column.isNull() | cast.isNotNull(), cast).otherwise(fn.raise_error(problem).cast(kind))


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
