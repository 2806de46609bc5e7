"""`bucketlake create | upsert | overwrite | delete | ...`: tables made, and written from files.

By this process, or on a local Spark.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from typing import Annotated, Any

import pyarrow as pa
import typer

from bucketlake import spark as on_spark
from bucketlake.cli.app import (
    EXIT_NOTHING_FOUND,
    AsJson,
    Buckets,
    Index,
    Storage,
    TablePath,
    app,
    index_value,
    open_table,
    pairs,
)
from bucketlake.cli.files import FileFormat, column_names, read_columns, read_rows, read_schema, schema_after
from bucketlake.cli.inspect import notes_beside_hudi
from bucketlake.cli.screen import Screen, fact_grid
from bucketlake.cli.values import parse_key
from bucketlake.commit.metadata_table import OnUnmaintained
from bucketlake.config import MaintenanceMode
from bucketlake.errors import ConfigError
from bucketlake.keygen import KeyGenerator
from bucketlake.logfile import LogFormat
from bucketlake.schema import all_nullable
from bucketlake.table import Table, create_table
from bucketlake.write import CommitSummary, evolution, key_columns, tops_of

Format = Annotated[
    FileFormat | None, typer.Option("--format", help="Format of the files, if their names do not say.")
]
Files = Annotated[list[str], typer.Argument(metavar="FILE...", help="Parquet, CSV or JSON lines.")]
MergeSchema = Annotated[
    bool, typer.Option("--merge-schema", help="Let the files add columns to the table, and widen some.")
]
Logs = Annotated[LogFormat, typer.Option(help="How rows are stored in the logs of a merge-on-read table.")]
OnSpark = Annotated[bool, typer.Option("--spark", help="Write on a local Spark session, a task per file.")]


@app.command(
    epilog="Example: bucketlake create /data/orders --schema 'id STRING, day STRING, ts BIGINT' --key id "
    "--partition day --ordering ts --buckets 16"
)
def create(
    table: TablePath,
    key: Annotated[list[str], typer.Option(metavar="COLUMN", help="Key column; may be repeated.")],
    schema: Annotated[
        str | None, typer.Option(metavar="DDL", help='Columns, such as "id STRING, amount DECIMAL(10,2)".')
    ] = None,
    schema_from: Annotated[
        str | None, typer.Option(metavar="FILE", help="Parquet, CSV or JSON file to take the columns from.")
    ] = None,
    partition: Annotated[
        list[str] | None, typer.Option(metavar="COLUMN", help="Partition column; may be repeated.")
    ] = None,
    ordering: Annotated[
        list[str] | None,
        typer.Option(metavar="COLUMN", help="Of two versions of a row the greater wins; may be repeated."),
    ] = None,
    index: Index = None,
    buckets: Buckets = None,
    table_type: Annotated[
        str,
        typer.Option("--table-type", "--type", metavar="cow|mor", help="Copy-on-write or merge-on-read."),
    ] = "cow",
    name: Annotated[
        str | None, typer.Option(help="The table's name, if not the last part of its path.")
    ] = None,
    hive_style: Annotated[bool, typer.Option("--hive-style", help="Folders such as dt=2026-06-18.")] = False,
    url_encode: Annotated[
        bool, typer.Option("--url-encode", help="Escape characters such as / in partition values.")
    ] = False,
    non_blocking: Annotated[
        bool,
        typer.Option("--non-blocking", help="Let writers that open a bucket at the same time both commit."),
    ] = False,
    allow_null_elements: Annotated[
        bool, typer.Option("--allow-null-elements", help="Take arrays with a null in them, as Hudi does not.")
    ] = False,
    merge_schema: Annotated[
        bool, typer.Option("--merge-schema", help="Let every write add columns, and widen some.")
    ] = False,
    allow_missing_columns: Annotated[
        bool,
        typer.Option("--allow-missing-columns", help="Take rows that lack columns: those are null then."),
    ] = False,
    maintenance: Annotated[
        MaintenanceMode, typer.Option(help="Who compacts, cleans and archives the table.")
    ] = MaintenanceMode.INLINE,
    metadata: Annotated[bool, typer.Option("--metadata", help="Give it Hudi's metadata table.")] = False,
    as_json: AsJson = False,
    storage: Storage = None,
) -> None:
    """Make an empty table."""
    if (schema is None) == (schema_from is None):
        raise ConfigError("a table needs columns: give either --schema or --schema-from.")
    columns = on_spark.parse_ddl(schema) if schema is not None else read_schema(schema_from or "")
    made = create_table(
        table,
        columns,
        key=key,
        partition=partition or (),
        ordering=ordering or (),
        index=index_value(index, buckets),
        table_type=table_type,
        name=name,
        hive_style=hive_style,
        url_encode=url_encode,
        non_blocking=non_blocking,
        merge_schema=merge_schema,
        allow_missing_columns=allow_missing_columns,
        maintenance=maintenance,
        metadata=metadata,
        allow_null_elements=allow_null_elements,
        storage_options=pairs(storage or ()),
    )
    found = made.describe()
    facts = {
        "path": found.path,
        "name": found.name,
        "type": found.table_type,
        "record key": list(found.record_key),
        "partition": list(found.partition),
        "ordering": list(found.ordering),
        "index": found.index,
        "columns": [f"{field.name} {field.type}" for field in found.schema],
    }
    value = {**facts, "beside hudi": list(found.beside_hudi)}
    Screen(as_json).show(value, fact_grid("created", facts), *notes_beside_hudi(found))


@app.command(epilog="Example: bucketlake alter /data/orders --maintenance service")
def alter(
    table: TablePath,
    merge_schema: Annotated[
        bool | None, typer.Option(help="Whether every write may add columns, and widen some.")
    ] = None,
    allow_missing_columns: Annotated[
        bool | None, typer.Option(help="Whether rows may lack columns: those are null then.")
    ] = None,
    maintenance: Annotated[
        MaintenanceMode | None,
        typer.Option(help="Who compacts, cleans and archives the table: writers, `service run`, or nobody."),
    ] = None,
    keep_commits: Annotated[
        int | None, typer.Option(metavar="N", help="Of how many writes that keeps the files; 30 by default.")
    ] = None,
    on_unmaintained: Annotated[
        OnUnmaintained | None,
        typer.Option(
            help="What writes do where a metadata table has parts that they would not keep in step."
        ),
    ] = None,
    hudi_writes: Annotated[
        bool | None, typer.Option(help="Whether Hudi may write to the table too; it may unless you say no.")
    ] = None,
    as_json: AsJson = False,
    storage: Storage = None,
) -> None:
    """Change the settings of a table, for every writer, from the next write on."""
    opened = open_table(table, storage)
    said = (merge_schema, allow_missing_columns, maintenance, keep_commits, on_unmaintained, hudi_writes)
    if all(value is None for value in said):
        raise ConfigError(
            "nothing to change: give --maintenance, --keep-commits, --on-unmaintained, --merge-schema, "
            "--allow-missing-columns or --hudi-writes, or an opposite such as --no-merge-schema."
        )
    opened.alter(
        merge_schema=merge_schema,
        allow_missing_columns=allow_missing_columns,
        maintenance=maintenance,
        keep_commits=keep_commits,
        on_unmaintained=on_unmaintained,
        hudi_writes=hudi_writes,
    )
    facts = {
        key: value for key, value in sorted(opened.properties.raw.items()) if key.startswith("bucketlake.")
    }
    Screen(as_json).show(facts, fact_grid("altered", facts))


@app.command(epilog="Example: bucketlake upsert /data/orders new.parquet --merge-schema")
def upsert(
    table: TablePath,
    files: Files,
    op: Annotated[
        str | None,
        typer.Option(metavar="COLUMN", help="Column that says what became of a row: c, u, d and the like."),
    ] = None,
    op_words: Annotated[
        list[str] | None,
        typer.Option(
            "--op-word",
            metavar="WORD=MEANING",
            help="A word in it that means insert, update_before, update_after or delete; may be repeated.",
        ),
    ] = None,
    format_: Format = None,
    merge_schema: MergeSchema = False,
    log_format: Logs = LogFormat.PARQUET,
    spark: OnSpark = False,
    as_json: AsJson = False,
    storage: Storage = None,
) -> None:
    """Write the rows of files, in one commit: insert new keys, update known ones, delete what --op says."""
    words = pairs(op_words or (), "--op-word")
    write = _loads(partial(Table.upsert, op=op, op_words=words), op=op)
    write(table, files, format_, merge_schema, log_format, spark, as_json, storage)


def _loads(write: Callable[..., CommitSummary], *, op: str | None = None) -> Callable[..., None]:
    """Make a command of a way to write the rows of files; of a feed, those with a column `op`."""

    def command(
        table: TablePath,
        files: Files,
        format_: Format = None,
        merge_schema: MergeSchema = False,
        log_format: Logs = LogFormat.PARQUET,
        spark: OnSpark = False,
        as_json: AsJson = False,
        storage: Storage = None,
    ) -> None:
        opened = open_table(table, storage)
        rows = _rows(opened, files, format_, merge_schema=merge_schema, on_local_spark=spark, op=op)
        done = write(opened, rows, merge_schema=merge_schema or None, log_format=log_format)
        _show(done, Screen(as_json))

    return command


app.command(
    "bulk-insert",
    help="Load the rows of files for the first time, in one commit. Does what upsert does.",
    epilog="Example: bucketlake bulk-insert /data/orders first.parquet --spark",
)(_loads(Table.bulk_insert))


@app.command(epilog="Example: bucketlake overwrite /data/orders day.parquet")
def overwrite(
    table: TablePath,
    files: Files,
    whole_table: Annotated[
        bool, typer.Option("--whole-table", help="Replace all partitions, not only those of the files.")
    ] = False,
    format_: Format = None,
    merge_schema: MergeSchema = False,
    log_format: Logs = LogFormat.PARQUET,
    spark: OnSpark = False,
    as_json: AsJson = False,
    storage: Storage = None,
) -> None:
    """Replace the partitions that files have rows in, or the whole table, by the rows of the files."""
    write = _loads(partial(Table.overwrite, whole_table=whole_table))
    write(table, files, format_, merge_schema, log_format, spark, as_json, storage)


@app.command(epilog="Example: bucketlake delete-partitions /data/orders 2026-06-18")
def delete_partitions(
    table: TablePath,
    partitions: Annotated[
        list[str], typer.Argument(metavar="PARTITION...", help="Partitions, by their paths.")
    ],
    as_json: AsJson = False,
    storage: Storage = None,
) -> None:
    """Empty whole partitions."""
    _show(open_table(table, storage).delete_partitions(partitions), Screen(as_json))


@app.command(epilog='Example: bucketlake add-columns /data/orders "note STRING, weight DOUBLE"')
def add_columns(
    table: TablePath,
    schema: Annotated[str, typer.Argument(metavar="DDL", help='Columns, such as "note STRING, n INT".')],
    as_json: AsJson = False,
    storage: Storage = None,
) -> None:
    """Add nullable columns; rows that are there have null in them."""
    _show(open_table(table, storage).add_columns(schema), Screen(as_json))


def _rows(
    table: Table,
    files: list[str],
    given: FileFormat | None,
    *,
    merge_schema: bool,
    on_local_spark: bool,
    op: str | None,
) -> Any:
    """Read files as the table has their columns: in this process, or by Spark's tasks, one for each."""
    evolve = evolution(table.properties, merge_schema=merge_schema or None)
    before = table.schema if op is None else _of_feed(table.schema, op, files, given)
    schema = schema_after(files, before, evolve=evolve, given=given)
    read = partial(read_rows, schema=schema, evolve=evolve, given=given)
    if on_local_spark:
        return on_spark.local.files_read_by(on_spark.local.local_session(), files, read, schema)
    return pa.concat_tables(read(file) for file in files)


def _of_feed(schema: pa.Schema, op: str, files: list[str], given: FileFormat | None) -> pa.Schema:
    """Return the columns of a feed: those of the table, where rows that go may have nulls, and what became of a row."""
    for file in files:
        if op not in (names := column_names(file, given)):
            raise ConfigError(f"{file}: there is no column {op!r}, which --op names, but {', '.join(names)}.")
    schema = all_nullable(schema)
    return schema if op in schema.names else schema.append(pa.field(op, pa.string()))


@app.command(epilog="Example: bucketlake delete /data/orders --key o-1 --key o-2")
def delete(
    table: TablePath,
    key: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY", help="Key to delete, as JSON if of several columns; may be repeated."),
    ] = None,
    from_file: Annotated[
        str | None,
        typer.Option(
            "--from", metavar="FILE", help="File with the key columns, and the partition columns or none."
        ),
    ] = None,
    partition: Annotated[str | None, typer.Option(help="Path of the partition the keys are in.")] = None,
    format_: Format = None,
    log_format: Logs = LogFormat.PARQUET,
    spark: OnSpark = False,
    as_json: AsJson = False,
    storage: Storage = None,
) -> None:
    """Delete rows by key, whatever their ordering values."""
    if (not key) == (from_file is None):
        raise ConfigError("say what to delete: give either --key or --from.")
    opened = open_table(table, storage)
    if key:
        fields = opened.properties.record_key_fields
        schema = opened.schema
        keys = [parse_key(text, schema, fields) for text in key]
        summary = opened.delete(keys, partition=partition, log_format=log_format)
    else:
        summary = _delete_rows(opened, from_file or "", format_, partition, log_format, on_local_spark=spark)
    _show(summary, Screen(as_json))
    if summary.instant is None:
        raise typer.Exit(EXIT_NOTHING_FOUND)


def _delete_rows(
    table: Table,
    file: str,
    given: FileFormat | None,
    partition: str | None,
    log_format: LogFormat,
    *,
    on_local_spark: bool,
) -> CommitSummary:
    keys = KeyGenerator.from_properties(table.properties)
    needed, known = tops_of(keys.record_key_fields), column_names(file, given)
    needed += [name for name in tops_of(key_columns(keys)) if name in known]
    schema = pa.schema([field for field in table.schema if field.name in needed])
    read = partial(read_columns, schema=schema, given=given)
    if not on_local_spark:
        return table.delete(read(file), partition=partition, log_format=log_format)
    session = on_spark.local.local_session()
    rows = on_spark.local.files_read_by(session, [file], read, schema)
    return table.delete(rows, partition=partition, log_format=log_format)


def _show(summary: CommitSummary, screen: Screen) -> None:
    screen.show(asdict(summary), str(summary))
