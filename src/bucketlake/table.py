"""The noun a user holds: a table at a path, and what can be asked of it.

A face: every method is a line or two that hands the work to a package below.
Each call sees the table as it is at that moment; a `Table` keeps no timeline.

What takes long is a verb, `table.compact()`, or a plan that prints and is run later: `table.run(plan)`.
"""

from __future__ import annotations

import getpass
import os
from collections.abc import Mapping, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Never, TypeVar, Unpack, overload

import pyarrow as pa

from bucketlake import advice, given, inspection, notebook, plans, services, streaming
from bucketlake import spark as on_spark
from bucketlake.advice import IndexAdvice
from bucketlake.arguments import (
    ClusteringArguments,
    CompactionArguments,
    ComputedArguments,
    QueryArguments,
    RetentionArguments,
    StreamArguments,
    WriteArguments,
    check_query,
    checked_maintenance,
    clustering_trigger,
    compaction_trigger,
    parsed_on_unmaintained,
    parsed_table_type,
    retention,
)
from bucketlake.buckets import Buckets
from bucketlake.commit.claims import list_claims
from bucketlake.commit.writable import check_writable
from bucketlake.config import (
    MaintenanceMode,
    TableProperties,
    TableType,
    load_properties,
    parse_maintenance_mode,
)
from bucketlake.errors import BucketlakeError, ConfigError, shown
from bucketlake.index import Index, IndexValue, SimpleBuckets, resolve_index, secondary_indexes_for_reads
from bucketlake.index.told import is_kept_in_metadata, refuse_other, stored, told
from bucketlake.keygen import KeyGenerator
from bucketlake.looks import look_at
from bucketlake.merging import Merge, delete_rows, merge_of, update_rows
from bucketlake.metadata_table import MetadataTable
from bucketlake.read import (
    Key,
    Query,
    RawFilter,
    ReadPlan,
    changes_until,
    check_buckets,
    check_indexed,
    lookup,
    make_query,
    plan_lookup,
    plan_read,
    read_all,
    read_by_keys,
    record_keys_of,
    unpublished_commit,
)
from bucketlake.report import TableReport, look_for_report
from bucketlake.schema import PARTITION_PATH_COLUMN, RECORD_KEY_COLUMN
from bucketlake.services import (
    ArchivePlan,
    Cleaned,
    Clustered,
    Compacted,
    Done,
    Maintenance,
    Report,
    RestoreOrder,
    RollbackOrder,
    Round,
    Savepoint,
)
from bucketlake.services.archive import KEEP_MAX, KEEP_MIN
from bucketlake.services.backlog import backlog
from bucketlake.services.repair import Repaired
from bucketlake.services.secondary_index_build import BuiltSecondaryIndex, DroppedIndex
from bucketlake.services.secondary_index_status import IndexStatus, list_indexes
from bucketlake.state import TableState, load_state, table_schema
from bucketlake.storage import Store, open_store
from bucketlake.streaming.progress import StreamStatus
from bucketlake.timeline import InZone, Moment, in_process_zone, load_timeline
from bucketlake.write import (
    CommitSummary,
    Operation,
    TableSpec,
    alter,
    create,
    key_columns,
    name_for_path,
    names_partitions,
    options_of,
    run_add_columns,
    run_delete_partitions,
    tops_of,
)
from bucketlake.writes import columns_of, rows_by_tasks, write_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from bucketlake.arguments import Rows, Schema
    from bucketlake.spark.files import Files, Paths
    from bucketlake.spark.merge import Expression
    from bucketlake.streaming.batch_writer import BatchWriter

R = TypeVar("R")


def parquet_files(
    paths: Paths, *, spark: SparkSession, storage_options: Mapping[str, str] | None = None
) -> Files:
    """Write Parquet files as they are: `table.bulk_insert(parquet_files(path, spark=spark))`.

    A path is a file, or a folder of files that end in `.parquet`. Files and folders whose names begin with a dot or an
    underscore are left out. All files have the same columns, and values that are only in folder names are not read. The
    writing tasks read the files, and their rows do not pass through Spark, which costs less than a frame does.
    `storage_options` are for object stores.
    """
    session = given.session_of(spark, "Without one, pyarrow.parquet.read_table reads into this process.")
    return on_spark.files.parquet_files(session, given.paths(paths), storage_options=storage_options)


def create_table(
    path: str | PathLike[str],
    schema: Schema,
    *,
    key: str | Sequence[str],
    partition: str | Sequence[str] | None = (),
    ordering: str | Sequence[str] | None = (),
    index: IndexValue | None = None,
    buckets: int | None = None,
    table_type: TableType | str = TableType.COPY_ON_WRITE,
    name: str | None = None,
    hive_style: bool = False,
    url_encode: bool = False,
    allow_null_elements: bool = False,
    allow_missing_columns: bool = False,
    merge_schema: bool = False,
    non_blocking: bool = False,
    maintenance: str = MaintenanceMode.INLINE,
    metadata: bool = False,
    spark: SparkSession | None = None,
    storage_options: Mapping[str, str] | None = None,
    **gone: Never,
) -> Table:
    """Make an empty table at `path`.

    `index` says where keys live. It is kept with the table, and every later writer keeps to it:

        SimpleBuckets(4)                         every partition has 4 buckets
        PartitionBuckets("^2026-,16", default=4) rules give partitions their counts
        ConsistentBuckets(4)                     buckets split and merge as the table grows
        ExtendibleBuckets(4)                     the same, by hash bits; Hudi reads the table and does not write to it
        DynamicBuckets()                         new buckets open as others fill
        RecordIndex()                            an index says where every key of the table lives
        RecordIndex(per_partition=True)          the same, for each partition

    Args:
        path: A folder, or the address of one in an object store.
        schema: The columns: an Arrow or Spark schema, DDL text, or rows. Columns taken from rows may all be null.

        key: The key columns. Rows with one key are versions of one record.
        partition: The partition columns. A key is looked for within its partition. Default: none, so one folder.
        ordering: Of two versions, the one with the greater value here stays. Default: none, so the later one stays.
        index: Where keys live: `SimpleBuckets(4)` and the other values, which the page on indexes compares. Default:
            `SimpleBuckets(4)`, which costs a write least.
        buckets: Short for `index=SimpleBuckets(N)`. Default: 4.
        table_type: `COPY_ON_WRITE` or `MERGE_ON_READ`; `cow` and `mor` for short. Default: copy-on-write, as in Hudi.
        name: The table's name. Default: the last part of its path.
        hive_style: Whether folders are named `dt=2026-06-18`. Default: `False`, as in Hudi.
        url_encode: Whether characters such as `/` are escaped in folder names. Default: `False`, as in Hudi.
        allow_null_elements: Whether arrays may hold nulls. Default: `False`, because Hudi's own writer fails on them.
        allow_missing_columns: Whether rows may lack columns, see `alter`. Default: `False`.
        merge_schema: Whether every write may change the columns, see `alter`. Default: `False`.
        non_blocking: Whether two writers that open one bucket at the same time may both commit. The table must be
            merge-on-read and have `ordering`. Default: `False`, because it can then be neither overwritten nor
            clustered.
        maintenance: Who compacts, cleans and archives the table: `inline`, `service` or `off`, see `alter`.
            Default: `inline`, so that nobody has to think of it.
        metadata: Whether to make Hudi's metadata table at once, see `Table.metadata`. Default: `False`; an index that
            needs it makes it.
        spark: A session, which says what TIMESTAMP means in DDL text. Default: none.
        storage_options: Options of the object store. Default: none.
    """
    given.gone(gone, create_table)
    if spark is not None:
        given.session_of(spark, "None will do, unless the session is to say what TIMESTAMP means.")
    uri = given.path_text(path)
    store = open_store(uri, storage_options)
    spec = TableSpec(
        name=given.text(name or name_for_path(uri), "name"),
        schema=columns_of(schema, spark),
        key=given.names(key, "key"),
        partition=given.names(partition or (), "partition"),
        ordering=given.names(ordering or (), "ordering"),
        table_type=parsed_table_type(table_type),
        hive_style=given.flag(hive_style, "hive_style"),
        url_encode=given.flag(url_encode, "url_encode"),
        non_blocking=given.flag(non_blocking, "non_blocking"),
        options=options_of(
            merge_schema=given.flag(merge_schema, "merge_schema") or None,
            allow_missing_columns=given.flag(allow_missing_columns, "allow_missing_columns") or None,
            allow_null_elements=given.flag(allow_null_elements, "allow_null_elements") or None,
        ),
        maintenance=parse_maintenance_mode(given.text(maintenance, "maintenance")),
        index=told(index, buckets) or SimpleBuckets(),
    )
    has_metadata = given.flag(metadata, "metadata")
    table = Table(store, create(store, spec))
    if has_metadata or is_kept_in_metadata(spec.index):
        table.metadata.build()
        table.properties = load_properties(store)
    return table


def advise(
    rows_or_table: Rows | Table,
    *,
    key: str | Sequence[str] | None = None,
    partition: str | Sequence[str] | None = None,
    batch_rows: int | None = None,
    growth: Sequence[float] = advice.GROWTH,
) -> IndexAdvice:
    """Say which index suits rows, by running their keys through every one; the result prints.

    Nothing is written. With more than five million rows, a sample of the keys is tried, and the result says so.

    Args:
        rows_or_table: Rows as `upsert` takes them, or a `Table`.
        key: The key columns that `create_table` would be given. Default: none; only a table says its key itself.
        partition: The partition columns. Default: none.
        batch_rows: How many rows a typical batch has. Default: a twentieth of all, at most 100,000.
        growth: The same is said of so many times the rows. Default: `(2, 10)`.
    """
    if isinstance(rows_or_table, Table):
        if key is not None or partition is not None:
            has = ", ".join(rows_or_table.properties.record_key_fields)
            raise ConfigError(
                f"the table says itself that its key is {has}. Leave out key and partition, or give its rows: "
                f"bucketlake.advise(table.to_arrow(), key=...)."
            )
        return rows_or_table.advise(batch_rows=batch_rows, growth=growth)
    keys, parts = given.names(key or (), "key"), given.names(partition or (), "partition")
    return advice.advise_on_rows(
        advice.source_of(rows_or_table, key=keys, partition=parts),
        key=keys,
        partition=parts,
        batch_rows=None if batch_rows is None else given.whole_number(batch_rows, "batch_rows"),
        growth=growth,
    )


class Table:
    """A Hudi table at a path: a folder, or an object store's prefix.

    table = Table.open("/data/orders")
    table.read(spark, columns=["id", "amount"], filters=[("dt", "=", "2026-06-18")])
    """

    def __init__(
        self,
        store: Store,
        properties: TableProperties,
        *,
        index: IndexValue | None = None,
        buckets: int | None = None,
        **gone: Never,
    ) -> None:
        given.gone(gone, Table)
        self.store = store
        self.properties = properties
        self._told = told(index, buckets)
        if self._told is not None:
            refuse_other(self._told, properties, store.uri)
        self._checked_partitions: set[str] = set()

    @classmethod
    def open(
        cls,
        path: str | PathLike[str],
        *,
        index: IndexValue | None = None,
        buckets: int | None = None,
        storage_options: Mapping[str, str] | None = None,
        **gone: Never,
    ) -> Table:
        """Open the table at `path`.

        A table that was made here knows its `index`. If you name another one, the call is refused. Hudi stores no
        bucket count with a table. If you give the value that Hudi's writer had, `buckets=4` for short, reads by key
        skip the other buckets. It is checked against the keys in the files, and only speed depends on it.
        """
        given.gone(gone, cls.open)
        store = open_store(given.path_text(path), storage_options)
        return cls(store, load_properties(store), index=index, buckets=buckets)

    @classmethod
    def adopt(
        cls,
        path: str | PathLike[str],
        *,
        index: IndexValue | None = None,
        buckets: int | None = None,
        storage_options: Mapping[str, str] | None = None,
        **gone: Never,
    ) -> Table:
        """Open a table that Hudi wrote with buckets, or with a record-level index, so that it can be written to.

        Hudi keeps no bucket count, so you name it. Every key is checked: it must be where `index` puts it. Then `index`
        is stored with the table. A wrong count is an error, which names the right one if it can be found. Leave `index`
        out for a table that Hudi has rescaled, one with consistent hashing, or one with a record-level index: such a
        table says what it has. A record-level index is compared with every key, both ways, and kept as it is.
        """
        given.gone(gone, cls.adopt)
        store = open_store(given.path_text(path), storage_options)
        plans.plan_adoption(store, told(index, buckets)).run(store)
        return cls(store, load_properties(store))

    def plan_adopt(
        self, *, index: IndexValue | None = None, buckets: int | None = None
    ) -> plans.PlannedAdoption:
        """Check every key as `adopt` does, and store nothing. Without `index`, check the one the table was opened
        with."""
        wanted = told(index, buckets)
        return plans.plan_adoption(self.store, self._told if wanted is None else wanted)

    def run(
        self, plan: plans.Plan[R], *, spark: SparkSession | None = None, progress: bool | None = None
    ) -> R:
        """Do what a plan of this table says, on `spark` or in this process, and return what was done.

        If the table has changed since, so that the plan would be wrong, it raises `CommitConflictError`.
        """
        if not isinstance(plan, plans.Plan):
            raise ConfigError(
                f"found {shown(plan)}; expected a plan, such as table.plan_compaction() returns."
            )
        done = plan.run(self.store, given.tasks_of(spark, progress))
        if isinstance(plan, plans.PlannedAdoption):
            self.properties = load_properties(self.store)
        return done

    def __repr__(self) -> str:
        return f"Table({self.store.uri!r})"

    def _repr_html_(self) -> str:
        """Show in a notebook what `describe` says; a table that cannot be read says why."""
        try:
            found = self.describe()
        except (BucketlakeError, OSError) as error:
            return notebook.lines_html(repr(self), str(error))
        return inspection.described_html(found)

    def alter(
        self,
        *,
        merge_schema: bool | None = None,
        allow_missing_columns: bool | None = None,
        maintenance: str | None = None,
        keep_commits: int | None = None,
        on_unmaintained: str | None = None,
        hudi_writes: bool | None = None,
    ) -> None:
        """Change the settings of the table, for every writer, from the next write on. None leaves a setting as it is.

        Args:
            merge_schema: Whether every write may add columns, widen a type, or let a column be null.
                Default: as it is; `False` in a new table.
            allow_missing_columns: Whether rows may lack nullable columns. They are null then, also in a row that is
                updated. Key, partition and ordering columns are never missing. Default: as it is; `False` in a new
                table.
            maintenance: Who compacts, cleans and archives the table: its writers, after every fifteenth commit
                (`inline`), `bucketlake service run` (`service`), or nobody (`off`).
                Default: as it is; `inline` in a new table.
            keep_commits: Maintenance keeps the files that readers of so many last writes need.
                Default: as it is; 30 in a new table.
            on_unmaintained: What a write does about parts of the metadata table that bucketlake does not keep in step,
                such as Hudi's Bloom filters: `refuse` the table, or `delist` them. Default: as it is; `refuse` at
                first.
            hudi_writes: Whether Hudi may write to the table. `False` is a promise that a pipelined stream needs; Hudi
                may still read the table. Default: as it is; `True` at first.
        """
        changes = options_of(
            merge_schema=given.flag_if_given(merge_schema, "merge_schema"),
            allow_missing_columns=given.flag_if_given(allow_missing_columns, "allow_missing_columns"),
            maintenance=None
            if maintenance is None
            else parse_maintenance_mode(given.text(maintenance, "maintenance")),
            keep_commits=None if keep_commits is None else given.whole_number(keep_commits, "keep_commits"),
            on_unmaintained=None if on_unmaintained is None else parsed_on_unmaintained(on_unmaintained),
            hudi_writes=given.flag_if_given(hudi_writes, "hudi_writes"),
        )
        self.properties = alter(self.store, changes)

    @property
    def schema(self) -> pa.Schema:
        """The columns of the newest commit, without Hudi's meta columns."""
        return look_at(self.store, table_schema)

    def read(self, spark: SparkSession, **query: Unpack[QueryArguments]) -> DataFrame:
        """Read the table as a DataFrame.

        With `columns` and `filters` it reads less. Filters are `(column, operator, value)`, and all of them must hold.
        `as_of` reads the table as it was. `begin` and `end` read what changed after the first and up to the second.
        `read_optimized` reads base files only. Changes are read up to `changes_until()`: start the next read there.

        A moment is a `datetime`, a text such as `2026-06-18 12:00:00`, or an instant of 14 or 17 digits. A text without
        an offset (`+02:00`, `Z`) is in the session's zone, as in Spark. A time without a fraction is the end of its
        second, as in Hudi. A `datetime` without a zone is in this process's zone, as in PySpark.
        """
        session = given.session_of(spark, "Without one, to_arrow reads into this process.")
        return on_spark.read.scan(session, self.plan(in_zone=on_spark.in_zone_of(session), **query))

    def to_arrow(self, **query: Unpack[QueryArguments]) -> pa.Table:
        """Read the table into memory, in this process: for small data.

        It takes what `read` takes. A moment without an offset is in this process's zone, because there is no session.
        """
        plan = self.plan(**query)
        return pa.Table.from_batches(read_all(plan), plan.context.schema)

    def get(
        self,
        keys: Key | Sequence[Key],
        *,
        partition: str | None = None,
        columns: str | Sequence[str] | None = None,
        meta_columns: bool = False,
        as_of: Moment | None = None,
    ) -> pa.Table:
        """Fetch the rows with these keys, without a Spark job.

        A key is the key column's value, or a mapping for a key of several columns. `partition` is a partition's path.
        Without it, every partition is searched, unless an index says where the keys are.
        Hudi's meta columns are left out, unless `meta_columns` asks for them.
        """
        wanted, with_meta = given.keys_of(keys), given.flag(meta_columns, "meta_columns")
        generator = KeyGenerator.from_properties(self.properties)

        def look(state: TableState) -> pa.Table:
            query = make_query(state, columns=columns, meta_columns=with_meta, as_of=as_of)
            record_keys = record_keys_of(wanted, generator, query.table_schema)
            return self._looked_up(record_keys, state, query, partition)

        return look_at(self.store, look)

    def get_by(
        self,
        column: str,
        values: object,
        *,
        partition: str | None = None,
        columns: str | Sequence[str] | None = None,
        meta_columns: bool = False,
    ) -> pa.Table:
        """Fetch the rows that have one of these values in a column with a secondary index, without a Spark job.

        A list holds values, and None is null. `partition` is a partition's path. The table is read as it is now. If the
        index is damaged, out of step, or names very many rows, all file groups are read instead.
        Hudi's meta columns are left out, unless `meta_columns` asks for them.
        """
        name, with_meta = given.text(column, "column"), given.flag(meta_columns, "meta_columns")
        wanted = given.keys_of(values, are="values")
        questions: list[list[RawFilter]] = [[(name, "in", [value for value in wanted if value is not None])]]
        if None in wanted:
            questions.append([(name, "is null")])
        if partition is not None:
            given.text(partition, "partition")

        def look(state: TableState) -> pa.Table:
            queries = [
                make_query(state, columns=columns, meta_columns=with_meta, filters=filters)
                for filters in questions
            ]
            index = self._index(state, queries[0])
            plans = [plan_read(state, query, index, partition=partition) for query in queries]
            if not any(plan.asked for plan in plans):
                check_indexed(state, name)
            return pa.concat_tables([read_by_keys(self._checked(plan, index)) for plan in plans])

        return look_at(self.store, look)

    def _looked_up(
        self, record_keys: pa.Array, state: TableState, query: Query, partition: str | None
    ) -> pa.Table:
        index = self._index(state, query)
        if partition is not None:
            given.text(partition, "partition")
        plan = plan_lookup(state, query, index, record_keys, partition=partition)
        return lookup(plan, record_keys, unproven=index if self._is_told() else None)

    def upsert(self, rows: Rows, **options: Unpack[WriteArguments]) -> CommitSummary:
        """Insert rows with new keys, and update those with known keys, unless the table has a newer version.

        Spark writes a frame, and `parquet_files`, which cost less than a frame of them. This process writes an Arrow
        table, a pandas or polars frame, or a list of dicts, without Spark: for small data. A row whose
        `_hoodie_is_deleted` is true deletes.

        With `op`, the rows are a change feed. That column says whether a row was inserted, updated (before, after) or
        deleted, in the words of Debezium, Flink or Delta, or in `op_words`. Of several rows of a key one counts: the
        one with the greatest ordering value, or else the last.
        """
        return write_rows(self.store, rows, Operation.UPSERT, self._told, options)

    def upsert_stream(
        self,
        frame: DataFrame,
        *,
        checkpoint: str | PathLike[str],
        trigger: str | Mapping[str, object] | None = None,
        **stream: Unpack[StreamArguments],
    ) -> StreamingQuery:
        """Start a query that upserts the rows of a streaming frame, each batch exactly once; return Spark's query.

        `checkpoint` is Spark's folder of the query. Its id says which stream this is, and every commit says which batch
        of the stream it wrote. So a batch that Spark sends again after a crash is skipped. A new checkpoint is a new
        stream. `trigger` says when batches begin: `10 seconds`, `available now`.

        `maintenance` is `beside` by default: services run in the driver after every fifteenth commit, and no batch
        waits for them.
        """
        writer = self.batch_writer(checkpoint=checkpoint, **stream)
        return streaming.query.start_query(frame, writer, trigger)

    def batch_writer(
        self, *, checkpoint: str | PathLike[str], **stream: Unpack[StreamArguments]
    ) -> BatchWriter:
        """Return the function that `upsert_stream` gives Spark, for a query of your own.

            writer = table.batch_writer(checkpoint=path)
            frame.writeStream.option("checkpointLocation", path).foreachBatch(writer).start()

        `checkpoint` must be the one of that query.
        """
        return streaming.batch_writer.made_writer(
            self.store, self._told, given.path_text(checkpoint, "the checkpoint"), stream
        )

    @overload
    def query_progress(self, *, spark: None = None) -> pa.Table: ...

    @overload
    def query_progress(self, *, spark: SparkSession) -> DataFrame: ...

    def query_progress(self, *, spark: SparkSession | None = None) -> pa.Table | DataFrame:
        """Return a row for each batch of a stream: an Arrow table, or a frame if `spark` is given.

        It is read from the commits of the active timeline.
        """
        found = look_at(self.store, streaming.progress.batches_of)
        return found if spark is None else _framed(found, spark)

    def stream_status(self) -> tuple[StreamStatus, ...]:
        """Sum up the streams into the table: how far each is, how many rows a second, how long a batch takes."""
        batches = self.query_progress()
        return streaming.progress.stream_statuses(batches, backlog(self.store)) if batches.num_rows else ()

    def stream_metrics(self) -> str:
        """Return figures of the newest batch of each stream, in Prometheus's text format."""
        return streaming.progress.prometheus_text(self.query_progress(), backlog(self.store), self.store.uri)

    def bulk_insert(self, rows: Rows, **options: Unpack[WriteArguments]) -> CommitSummary:
        """Load `rows` into new buckets, as `upsert` would; where a bucket has rows already they are merged."""
        return write_rows(self.store, rows, Operation.BULK_INSERT, self._told, options)

    def overwrite(
        self, rows: Rows, *, whole_table: bool = False, **options: Unpack[WriteArguments]
    ) -> CommitSummary:
        """Replace the partitions that `rows` have rows in by `rows`; with `whole_table`, replace the whole table."""
        is_whole = given.flag(whole_table, "whole_table")
        operation = Operation.INSERT_OVERWRITE_TABLE if is_whole else Operation.INSERT_OVERWRITE
        return write_rows(self.store, rows, operation, self._told, options)

    def delete(
        self,
        rows_or_keys: Rows | Key | Sequence[Key],
        *,
        partition: str | None = None,
        **options: Unpack[WriteArguments],
    ) -> CommitSummary:
        """Delete rows, whatever their ordering values.

        Give rows, as `upsert` takes them, or keys, as `get` takes them. A list holds keys. Rows need the key columns,
        and all partition columns or none; other columns are ignored. Keys, and rows without partition columns, are
        looked up first, and deleted in every partition that has them, or only in the one that `partition` names.
        """
        if given.is_rows(rows_or_keys):
            rows = given.rows_of(rows_or_keys, lambda: self.schema)
            return write_rows(
                self.store, self._located(rows, partition), Operation.DELETE, self._told, options
            )
        found = self.get(rows_or_keys, partition=partition, columns=self._key_columns())
        return write_rows(self.store, found, Operation.DELETE, self._told, options)

    def merge(
        self,
        source: Rows,
        on: Expression | None = None,
        *,
        spark: SparkSession | None = None,
        **options: Unpack[ComputedArguments],
    ) -> Merge:
        """Begin to merge the rows of `source` into the table:

        table.merge(changes, "target.id = source.id")
            .when_matched_update({"n": "target.n + source.n"}, condition="source.n <> 0")
            .when_matched_delete()
            .when_not_matched_insert_all()
            .execute()

        Expressions are Spark SQL, or columns made with PySpark's functions; in them the table is `target` and the rows
        are `source`. Without `on`, rows match that have the same key and partition. The key of a row cannot change, nor
        can its partition, unless an index of the whole table lets rows move.

        It is one commit. If another writer changes what was read before that, all is computed again.
        """
        return merge_of(
            self.store,
            self._told,
            self.properties,
            source,
            on,
            schema_of_table=lambda: self.schema,
            spark=spark,
            options=options,
        )

    def update(
        self,
        set: Mapping[str, Expression],
        *,
        where: Expression | None = None,
        spark: SparkSession | None = None,
        **options: Unpack[ComputedArguments],
    ) -> CommitSummary:
        """Give columns of the rows for which `where` holds, or of all rows, new values: `table.update({"n": "n + 1"})`.

        The values are expressions over the row as it was. Its ordering value stays, unless `set` names it; a smaller
        one loses to the row as it was. Columns of the key cannot be set. See `merge` for what other writers do to it.
        """
        return update_rows(self.store, self._told, set, where, spark=spark, **options)

    def delete_where(
        self,
        where: Expression,
        *,
        spark: SparkSession | None = None,
        **options: Unpack[ComputedArguments],
    ) -> CommitSummary:
        """Delete the rows for which a condition holds, whatever their ordering values."""
        return delete_rows(self.store, self._told, where, spark=spark, **options)

    def _located(self, rows: DataFrame | Files | pa.Table, partition: str | None) -> Rows:
        """Return rows to be deleted as they are if they name their partitions, else what the table has of such keys."""
        state = load_state(self.store)
        check_writable(state)  # before keys are looked for in a table that cannot be written
        if names_partitions(columns_of(rows, None), state):
            if partition is not None:
                raise ConfigError(
                    f"partition is {partition!r}, and the rows to delete name their partitions themselves, or there "
                    f"are none. Leave it out, or drop the partition columns of the rows."
                )
            return rows
        generator = KeyGenerator.from_properties(self.properties)
        if isinstance(rows, pa.Table):
            record_keys = generator.record_keys(rows.combine_chunks()).unique()
            query = make_query(state, columns=self._key_columns())
            return self._looked_up(record_keys, state, query, partition)
        wanted = rows_by_tasks(rows, None)
        stored = self.read(
            wanted.session,
            columns=[RECORD_KEY_COLUMN, *self._key_columns()],
            filters=[] if partition is None else [(PARTITION_PATH_COLUMN, "=", partition)],
        )
        return on_spark.lookup.rows_with_keys(stored, wanted, generator)

    def _key_columns(self) -> list[str]:
        """Name the columns that keys and partition paths are made from."""
        return tops_of(key_columns(KeyGenerator.from_properties(self.properties)))

    def add_columns(self, schema: Schema, *, spark: SparkSession | None = None) -> CommitSummary:
        """Add nullable columns, after those that are there, in a commit without rows: `add_columns("note STRING")`.

        `schema` is what `create_table` takes. Rows that are there have null in them. Writers that do not bring them are
        refused from then on, unless rows may lack columns: see `alter`.
        """
        if spark is not None:
            given.session_of(spark, "None will do, unless the session is to say what TIMESTAMP means.")
        return run_add_columns(self.store, columns_of(schema, spark))

    def delete_partitions(
        self, partitions: str | Sequence[str], *, maintenance: Maintenance | str | None = None
    ) -> CommitSummary:
        """Empty whole partitions, named by their paths."""
        asked = services.asked_maintenance(maintenance)
        summary = run_delete_partitions(self.store, given.names(partitions, "partitions"))
        return services.look_after(self.store, summary, asked)

    def compact(
        self,
        *,
        spark: SparkSession | None = None,
        progress: bool | None = None,
        **when: Unpack[CompactionArguments],
    ) -> Done[Compacted]:
        """Merge logs into new base files, on `spark` or in this process.

        Without arguments, it compacts every file group that has logs. Pending compactions, ours or Hudi's, run first.
        """
        trigger, tasks = compaction_trigger(when), given.tasks_of(spark, progress)
        return Done(services.compact_table(self.store, trigger=trigger, tasks=tasks))

    def plan_compaction(self, **when: Unpack[CompactionArguments]) -> plans.PlannedCompaction:
        """Say what `compact` would do."""
        return plans.plan_compaction(self.store, compaction_trigger(when))

    def clean(
        self,
        *,
        spark: SparkSession | None = None,
        progress: bool | None = None,
        **retain: Unpack[RetentionArguments],
    ) -> Done[Cleaned]:
        """Delete files that nobody needs any more, on `spark` or in this process.

        Say what to keep with one of `retain_commits`, `retain_hours` and `retain_versions`. Cleans that were cut off
        are finished first.
        """
        kept, tasks = retention(retain), given.tasks_of(spark, progress)
        return Done(services.clean_table(self.store, retain=kept, tasks=tasks))

    def plan_clean(self, **retain: Unpack[RetentionArguments]) -> plans.PlannedClean:
        """Say what `clean` would delete."""
        return plans.plan_clean(self.store, retention(retain))

    def cluster(
        self,
        *,
        by: str | Sequence[str],
        spark: SparkSession | None = None,
        progress: bool | None = None,
        **which: Unpack[ClusteringArguments],
    ) -> Done[Clustered]:
        """Rewrite file groups with their rows sorted `by` some columns, on `spark` or in this process.

        File groups that are sorted already are left alone. Writers win: if one writes to a file group meanwhile, the
        clustering rolls back and raises `CommitConflictError`.
        """
        columns, trigger = given.names(by, "by"), clustering_trigger(which)
        tasks = given.tasks_of(spark, progress)
        return Done(services.cluster_table(self.store, by=columns, trigger=trigger, tasks=tasks))

    def plan_clustering(
        self, *, by: str | Sequence[str], **which: Unpack[ClusteringArguments]
    ) -> plans.PlannedClustering:
        """Say what `cluster` would do."""
        return plans.plan_clustering(self.store, given.names(by, "by"), clustering_trigger(which))

    def archive(self, *, keep_min: int = KEEP_MIN, keep_max: int = KEEP_MAX) -> ArchivePlan:
        """Move old instants to the history.

        Args:
            keep_min: How many writes stay on the timeline. Default: 20, as in Hudi.
            keep_max: Nothing is moved until the timeline has more writes than this. Default: 30, as in Hudi, so that
                not every commit archives.
        """
        least, most = given.whole_number(keep_min, "keep_min"), given.whole_number(keep_max, "keep_max")
        return services.archive_table(self.store, keep_min=least, keep_max=most)

    def plan_archive(self, *, keep_min: int = KEEP_MIN, keep_max: int = KEEP_MAX) -> plans.PlannedArchive:
        """Say what `archive` would move."""
        least, most = given.whole_number(keep_min, "keep_min"), given.whole_number(keep_max, "keep_max")
        return plans.plan_archive(self.store, keep_min=least, keep_max=most)

    def rollback(self, instant: str) -> RollbackOrder:
        """Undo an instant: the newest write, or one that was cut off. Return what was deleted."""
        return self.plan_rollback(instant).run(self.store)

    def plan_rollback(self, instant: str) -> plans.PlannedRollback:
        """Say what `rollback` would delete."""
        return plans.plan_rollback(self.store, given.text(instant, "instant"))

    def savepoint(self, instant: str | None = None, *, comment: str = "") -> Savepoint:
        """Keep the files of the table as it was after a write; without `instant`, after the newest one."""
        return services.create_savepoint(self.store, instant, user=_user(), comment=comment)

    def savepoints(self) -> tuple[Savepoint, ...]:
        """List the savepoints, oldest first."""
        return look_at(self.store, services.list_savepoints)

    def delete_savepoint(self, instant: str) -> Savepoint:
        """Delete the savepoint of a write, and return it. The next clean may delete the files that only it needed."""
        return self.plan_delete_savepoint(instant).run(self.store)

    def plan_delete_savepoint(self, instant: str) -> plans.PlannedSavepointDeletion:
        """Say what `delete_savepoint` would delete."""
        return plans.plan_savepoint_deletion(self.store, given.text(instant, "instant"))

    def restore(self, instant: str) -> RestoreOrder:
        """Go back to a savepoint: roll back every later write. Return what was deleted."""
        return self.plan_restore(instant).run(self.store)

    def plan_restore(self, instant: str) -> plans.PlannedRestore:
        """Say what `restore` would roll back."""
        return plans.plan_restore(self.store, given.text(instant, "instant"))

    def maintain(
        self, maintenance: Maintenance, *, spark: SparkSession | None = None, progress: bool | None = None
    ) -> Round:
        """Run the services that `maintenance` names and that are due. A service that fails is named in the result."""
        tasks = given.tasks_of(spark, progress)
        return services.run_maintenance(self.store, checked_maintenance(maintenance), tasks=tasks)

    def plan_maintenance(self, maintenance: Maintenance) -> plans.PlannedMaintenance:
        """Say what `maintain` would do."""
        return plans.plan_maintenance(self.store, checked_maintenance(maintenance))

    def fsck(self, *, spark: SparkSession | None = None, progress: bool | None = None) -> Report:
        """Check every key, indexed value, file and sum, on `spark` or in this process. Changes nothing."""
        return services.check_table(self.store, tasks=given.tasks_of(spark, progress))

    def repair(self, *, spark: SparkSession | None = None, progress: bool | None = None) -> Repaired:
        """Mend wrong entries of indexes, and keys with several rows, on `spark` or in this process.

        It is one commit, which `rollback` takes back.
        """
        tasks = given.tasks_of(spark, progress)
        return plans.plan_repair(self.store, tasks=tasks).run(self.store, tasks)

    def plan_repair(
        self, *, spark: SparkSession | None = None, progress: bool | None = None
    ) -> plans.PlannedRepair:
        """Say what `repair` would mend: which keys and values, where their rows are, and which row stays."""
        return plans.plan_repair(self.store, tasks=given.tasks_of(spark, progress))

    def create_index(
        self,
        name: str,
        *,
        on: str,
        shards: int | None = None,
        record_index: bool = False,
        spark: SparkSession | None = None,
        progress: bool | None = None,
    ) -> BuiltSecondaryIndex | None:
        """Build a secondary index of a column, on `spark` or in this process, while writers go on.

        A secondary index leads from a value to the keys of rows. A record-level index of the whole table leads from
        there to their files, so the table needs one. `record_index` builds it first if it is missing; then no key may
        be in two partitions. The index has `shards` files, by default as many as the rows need. Every write keeps it up
        to date.

        If a call is cut off, the next one goes on with it. It returns None if somebody else built the index meanwhile.
        """
        plan = self.plan_create_index(name, on=on, shards=shards, record_index=record_index)
        return plan.run(self.store, given.tasks_of(spark, progress))

    def plan_create_index(
        self, name: str, *, on: str, shards: int | None = None, record_index: bool = False
    ) -> plans.PlannedIndexCreation:
        """Say what `create_index` would read and make: rows, shards and bytes."""
        return plans.plan_index_creation(
            self.store,
            given.text(name, "the name of the index"),
            given.text(on, "on, the column to be indexed,"),
            shards=None if shards is None else given.whole_number(shards, "shards"),
            record_index=given.flag(record_index, "record_index"),
        )

    def drop_index(self, name: str) -> DroppedIndex:
        """Delete a secondary index, or what a build that was cut off has left of it."""
        return self.plan_drop_index(name).run(self.store)

    def plan_drop_index(self, name: str) -> plans.PlannedSecondaryDrop:
        """Say what `drop_index` would delete."""
        return plans.plan_secondary_drop(self.store, given.text(name, "the name of the index"))

    def indexes(self) -> tuple[IndexStatus, ...]:
        """List the secondary indexes: their columns, their sizes, and whether each is in step with the table."""
        return look_at(self.store, list_indexes)

    @property
    def buckets(self) -> Buckets:
        """The bucket counts of partitions, and what changes them."""
        return Buckets(self.store)

    @property
    def metadata(self) -> MetadataTable:
        """Hudi's metadata table of this table, and what builds, shows and drops it."""
        return MetadataTable(self.store)

    def query(self, *, in_zone: InZone = in_process_zone, **query: Unpack[QueryArguments]) -> Query:
        """Check what a read would ask for, against the table's metadata. No row is read."""
        check_query(query)
        return look_at(self.store, lambda state: make_query(state, in_zone=in_zone, **query))

    def plan(self, *, in_zone: InZone = in_process_zone, **query: Unpack[QueryArguments]) -> ReadPlan:
        """Say what a read would open. `in_zone` gives texts without an offset their zone: this process's."""
        check_query(query)
        # Claims are read before the timeline: see `read.settled`.
        claims = list_claims(self.store) if query.get("begin") is not None else None

        def plan(state: TableState) -> ReadPlan:
            unpublished = unpublished_commit(claims, state.timeline) if claims is not None else None
            checked = make_query(state, in_zone=in_zone, unpublished=unpublished, **query)
            index = self._index(state, checked)
            return self._checked(plan_read(state, checked, index), index)

        return look_at(self.store, plan)

    def changes_until(self) -> str | None:
        """Return the completion time up to which all changes can be read; None if there are none.

        It is the end to read up to, and the begin to go on from:

            until = table.changes_until()
            table.read(spark, begin=since, end=until)
            since = until
        """
        claims = list_claims(self.store)
        timeline = load_timeline(self.store, self.properties)
        until = changes_until(timeline, unpublished_commit(claims, timeline))
        if until is None:
            load_properties(self.store)  # a table that is gone is an error, not one without changes
        return until

    def describe(self) -> inspection.Description:
        """Say what the table is."""
        until = self.changes_until()
        return look_at(
            self.store,
            lambda state: inspection.describe(state, self._index(state, None), changes_until=until),
        )

    def report(self) -> TableReport:
        """Draw the table on one page: buckets, skew, commits, indexes, and what to do next.

        A notebook shows it, `report.save("report.html")` keeps it, and it needs no network. No row is read.
        """
        until = self.changes_until()
        return TableReport(
            look_at(
                self.store,
                lambda state: look_for_report(state, self._index(state, None), changes_until=until),
            )
        )

    def advise(
        self, *, batch_rows: int | None = None, growth: Sequence[float] = advice.GROWTH
    ) -> IndexAdvice:
        """Run the table's keys through every index: file sizes, memory, what a batch and a read cost, a verdict.

        It reads the key and partition columns, and writes nothing.

        Args:
            batch_rows: How many rows a typical batch has. Default: a twentieth of the table's, at most 100,000.
            growth: The same is said of a table with so many times the rows. Default: `(2, 10)`.
        """
        batch = None if batch_rows is None else given.whole_number(batch_rows, "batch_rows")
        generator = KeyGenerator.from_properties(self.properties)

        def look(state: TableState) -> IndexAdvice:
            if not self.properties.record_key_fields:
                raise ConfigError(
                    "the table has no key columns: Hudi made its keys. Export rows, and name a key: "
                    'bucketlake.advise(table.to_arrow(), key="id").'
                )
            index = self._index(state, None)
            whole = plan_read(state, make_query(state), index)
            narrow = plan_read(state, make_query(state, columns=self._key_columns()), index)
            head = pa.Table.from_batches(read_all(whole, limit=advice.SAMPLE_ROWS), whole.context.schema)
            about = (
                sum(part.size_bytes for part in whole.slices) * max(1, head.num_rows) // max(1, head.nbytes)
            )
            source = advice.Source(
                tables=(pa.Table.from_batches([batch]) for batch in read_all(narrow)), rows=about, head=head
            )
            return advice.advise_on_table(
                source,
                generator,
                index,
                says=self._told or stored(self.properties),
                batch_rows=batch,
                growth=growth,
            )

        return look_at(self.store, look)

    def timeline(self) -> tuple[inspection.TimelineEntry, ...]:
        """List the instants of the active timeline, oldest first."""
        return look_at(self.store, inspection.timeline)

    def history(self, *, limit: int | None = None) -> tuple[inspection.HistoryEntry, ...]:
        """List the commits on the active timeline, newest first, with how many rows each inserted, updated, deleted."""
        most = None if limit is None else given.whole_number(limit, "limit")
        if most is not None and most < 0:
            raise ConfigError(f"limit is {most}; expected 0 or more, or None for all.")
        return look_at(self.store, lambda state: inspection.history(state, limit=most))

    def layout(self) -> inspection.Layout:
        """Show partitions, buckets, file sizes and skew."""
        return look_at(self.store, lambda state: inspection.layout(state, self._index(state, None)))

    @overload
    def locations(self, partition: str = "", *, spark: None = None) -> pa.Table: ...

    @overload
    def locations(self, partition: str = "", *, spark: SparkSession) -> DataFrame: ...

    def locations(self, partition: str = "", *, spark: SparkSession | None = None) -> pa.Table | DataFrame:
        """Return where the keys of a partition live: an Arrow table, or a frame if `spark` is given.

        `partition` is a path. The columns are the record key, the id of its file group, and the bucket's number if the
        table has dynamic buckets. They come from the record-level index: no row is read.
        """
        given.text(partition, "partition")
        found = look_at(
            self.store, lambda state: inspection.locations(state, self._index(state, None), partition)
        )
        return found if spark is None else _framed(found, spark)

    def explain(self, key: Key, *, partition: str | None = None) -> inspection.Explanation:
        """Say where a key lives and why: what is hashed, which rule decides, its file group, and who wrote to it last.

        A key is what `get` takes. `partition` is a partition's path. A table with partitions needs it, unless it has a
        record-level index of the whole table. With indexes, the result also says which of their files have the key, and
        the values of its row.
        """
        if partition is not None:
            given.text(partition, "partition")
        generator = KeyGenerator.from_properties(self.properties)

        def explain(state: TableState) -> inspection.Explanation:
            record_keys = record_keys_of([key], generator, table_schema(state))
            indexes = secondary_indexes_for_reads(state)
            row = None
            if indexes:
                indexed = {one.definition.column for one in indexes}.intersection(table_schema(state).names)
                query = make_query(state, columns=sorted(indexed))
                row = self._looked_up(record_keys, state, query, partition)
            index = self._index(state, None)
            return inspection.explain(state, index, record_keys[0].as_py(), partition=partition, row=row)

        return look_at(self.store, explain)

    def _index(self, state: TableState, query: Query | None) -> Index:
        as_of = query.as_of if query is not None else None
        return resolve_index(state, self._told, as_of=as_of)

    def _checked(self, plan: ReadPlan, index: Index) -> ReadPlan:
        """Check what the caller said of the buckets against the keys, once per partition."""
        if self._is_told():
            check_buckets(plan, index, self._checked_partitions)
        return plan

    def _is_told(self) -> bool:
        """Whether what is known of the buckets is, or repeats, what the caller said."""
        return self._told is not None


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a number without a name, as containers have them
        return str(os.getuid())


def _framed(found: pa.Table, spark: SparkSession) -> DataFrame:
    return given.session_of(spark, "None returns an Arrow table.").createDataFrame(found)
