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

from bucketlake import given, inspection, plans, services, streaming
from bucketlake import spark as on_spark
from bucketlake.arguments import (
    ClusteringArguments,
    CompactionArguments,
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
from bucketlake.errors import ConfigError, shown
from bucketlake.index import Index, IndexValue, SimpleBuckets, resolve_index, secondary_indexes_for_reads
from bucketlake.index.told import is_kept_in_metadata, refuse_other, told
from bucketlake.keygen import KeyGenerator
from bucketlake.looks import look_at
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
    run_delete_partitions,
    tops_of,
)
from bucketlake.writes import columns_of, rows_by_tasks, write_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from bucketlake.arguments import Rows, Schema
    from bucketlake.spark.files import Files, Paths
    from bucketlake.streaming.batch_writer import BatchWriter

R = TypeVar("R")


def parquet_files(
    paths: Paths, *, spark: SparkSession, storage_options: Mapping[str, str] | None = None
) -> Files:
    """Take Parquet files as they are for rows to be written: `table.bulk_insert(parquet_files(path, spark=spark))`.

    A path is a file, or a folder of files that end in `.parquet`, without those whose path has a name that begins with
    a dot or an underscore. All have the same columns; values that only stand in the names of folders are not read. The
    tasks that write read the files, and their rows do not pass through Spark, which costs less than a frame does.
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

    `schema` is an Arrow or Spark schema, rows that have it, or DDL text. What rows say of nulls is not taken for a
    rule: all their columns may be null. Rows with one `key` are versions of a record; of two the one with the greater
    `ordering` stays, without `ordering` the later one. A key is looked for within its `partition`.

    `index` says where keys live, and is stored with the table: every later writer keeps to it.

        SimpleBuckets(4)                                   every partition has 4 buckets; `buckets=4` is short for it
        PartitionBuckets("2026-.*,16;^eu/,8", default=4)   partitions have counts by rules on their paths
        ConsistentBuckets(4)                               buckets are split and merged while the table grows
        ExtendibleBuckets(4)                               the same, by hash bits; Hudi reads it and never writes to it
        RecordIndex()                                      the metadata table says where every key lives: one row for a
                                                           key in the whole table, and it moves with its partition
        RecordIndex(per_partition=True)                    the same for each partition
        DynamicBuckets(assigners=8)                        the same, and new keys go to buckets that open as others fill

    In a `non_blocking` table, which is merge-on-read and has `ordering`, writers that open a bucket at the same time
    may both commit: none needs to be run again. With `metadata`, it has Hudi's metadata table from the start: see
    `Table.metadata`. `merge_schema` and `allow_missing_columns` say which rows fit the
    table, and `maintenance` who compacts, cleans and archives it: see `Table.alter`. Without a `name`, a table is named
    after its folder. A session, if given, says what TIMESTAMP means in a DDL text.
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

        A table that was made here says itself which `index` it has; another one is refused. Hudi stores no bucket
        count with a table: the value that its writer had, `buckets=4` for short, lets reads by key skip the other
        buckets. It is checked against the keys in the files, and nothing but speed depends on it.
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

        Hudi keeps no bucket count. Every key is looked at, and must lie where `index` puts it; then that is stored with
        the table. A wrong count is an error, which says the right one if it can be told. A table that Hudi has
        rescaled, one with consistent hashing, or one with a record-level index, says itself what it has: then `index`
        may be left out. The record-level index is compared with every key, both ways, and kept as it is.
        """
        given.gone(gone, cls.adopt)
        store = open_store(given.path_text(path), storage_options)
        plans.plan_adoption(store, told(index, buckets)).run(store)
        return cls(store, load_properties(store))

    def plan_adopt(
        self, *, index: IndexValue | None = None, buckets: int | None = None
    ) -> plans.PlannedAdoption:
        """Check every key as `adopt` does, and keep nothing; by default, against the index that it was opened with."""
        wanted = told(index, buckets)
        return plans.plan_adoption(self.store, self._told if wanted is None else wanted)

    def run(
        self, plan: plans.Plan[R], *, spark: SparkSession | None = None, progress: bool | None = None
    ) -> R:
        """Do what a plan of this table says, on `spark` or in this process; return what was done.

        `CommitConflictError` if the table has moved on since it was made, and what it says would not be right any more.
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
        """Change which rows the table takes, from the next write on, whoever writes it; None leaves things as they are.

        With `merge_schema`, every write may change the columns, as one that is given `merge_schema=True` may. With
        `allow_missing_columns`, rows may lack columns that may be null: they are null then, also in a row that is
        updated. Key, partition and ordering columns are never missing.

        `maintenance` says who compacts, cleans and archives the table: its writers, after every fifteenth commit
        (`inline`), `bucketlake service run` (`service`), or nobody (`off`). That keeps what readers of the last
        `keep_commits` writes see, thirty unless it is set.

        `on_unmaintained` says what becomes of parts of the metadata table that bucketlake does not keep in step, such
        as Hudi's Bloom filters: a write refuses such a table (`refuse`), or delists them (`delist`).

        `hudi_writes=False` promises that no writer of Hudi is beside ours, which a pipelined stream needs. Hudi may
        still read the table.
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

        `columns` and `filters` are used to read less; `filters` are `(column, operator, value)` and mean *and*.
        `as_of` sees the table as it was; `begin` and `end` see what changed in (begin, end]; `read_optimized` reads
        base files only. Changes are read up to `changes_until()`, from where the next read goes on.

        A moment is a `datetime`, a text such as `2026-06-18 12:00:00`, or an instant of 14 or 17 digits. A text has an
        offset (`+02:00`, `Z`) or is in the session's zone, as in Spark; a time without a fraction is the end of its
        second, as in Hudi. A `datetime` without a zone is in this process's, as in PySpark.
        """
        session = given.session_of(spark, "Without one, to_arrow reads into this process.")
        return on_spark.read.scan(session, self.plan(in_zone=on_spark.in_zone_of(session), **query))

    def to_arrow(self, **query: Unpack[QueryArguments]) -> pa.Table:
        """Read the table into memory, in this process: for small data.

        Takes what `read` takes; but there is no session, and a moment without an offset is in this process's zone.
        """
        plan = self.plan(**query)
        return pa.Table.from_batches(read_all(plan), plan.context.schema)

    def get(
        self,
        keys: Key | Sequence[Key],
        *,
        partition: str | None = None,
        columns: str | Sequence[str] | None = None,
        as_of: Moment | None = None,
    ) -> pa.Table:
        """Fetch the rows with these keys, without a Spark job.

        A key is the key column's value, or a mapping for a key of several columns. `partition` is a partition's path;
        without it every partition is looked into, unless an index has recorded in which the keys are.
        """
        wanted = given.keys_of(keys)
        generator = KeyGenerator.from_properties(self.properties)

        def look(state: TableState) -> pa.Table:
            query = make_query(state, columns=columns, as_of=as_of)
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
    ) -> pa.Table:
        """Fetch the rows that have one of these values in a column with a secondary index, without a Spark job.

        A list holds values, and None is null. `partition` is a partition's path. The table is read as it is now; where
        the index does not tell, because it is damaged, out of step or names very many rows, all file groups are read.
        """
        name = given.text(column, "column")
        wanted = given.keys_of(values, are="values")
        questions: list[list[RawFilter]] = [[(name, "in", [value for value in wanted if value is not None])]]
        if None in wanted:
            questions.append([(name, "is null")])
        if partition is not None:
            given.text(partition, "partition")

        def look(state: TableState) -> pa.Table:
            queries = [make_query(state, columns=columns, filters=filters) for filters in questions]
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
        """Write `rows`: new keys are inserted, known ones updated unless the table has a newer version.

        A row whose `_hoodie_is_deleted` is true deletes. A frame is written by Spark, and so are `parquet_files`, which
        cost less than a frame of them. An Arrow table, a pandas or polars frame or a list of dicts is written by this
        process, without Spark: for small data.

        With `op` the rows are a change feed: that column says what became of each, which was inserted, updated (before,
        after) or deleted, in the words of Debezium, Flink or Delta, or in `op_words`. Of several rows of a key one
        counts: by the ordering columns, or without them the last.
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
        of it: a batch that Spark sends again after a crash is known, and passed over. A new checkpoint is a new stream.
        `trigger` says when batches begin: `10 seconds`, `available now`.

        Beside what `upsert` takes: a `name` for the query; `maintenance`, by default `beside`: services run in the
        driver after every fifteenth commit, and no batch waits for them.
        """
        writer = self.batch_writer(checkpoint=checkpoint, **stream)
        return streaming.query.start_query(frame, writer, trigger)

    def batch_writer(
        self, *, checkpoint: str | PathLike[str], **stream: Unpack[StreamArguments]
    ) -> BatchWriter:
        """Return the function that `upsert_stream` gives Spark, for a query of your own:

        frame.writeStream.option("checkpointLocation", path).foreachBatch(table.batch_writer(checkpoint=path)).start()

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
        """Return what became of each batch of a stream, a row each: an Arrow table, or a frame if `spark` is given.

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
        """Replace the partitions that `rows` have rows in, or with `whole_table` everything, by `rows`."""
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

        Rows, as `upsert` takes them, bring the key columns, and the partition columns or none of them; others are
        passed over. Without partitions, and where keys are given as `get` takes them, the keys are looked up first: in
        every partition, and deleted in each they are found in, unless `partition` names one. A list holds keys.
        """
        if given.is_rows(rows_or_keys):
            rows = given.rows_of(rows_or_keys, lambda: self.schema)
            return write_rows(
                self.store, self._located(rows, partition), Operation.DELETE, self._told, options
            )
        found = self.get(rows_or_keys, partition=partition, columns=self._key_columns())
        return write_rows(self.store, found, Operation.DELETE, self._told, options)

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

        Every file group that has logs; or those with at least `delta_commits` writes in them, of at least `log_bytes`,
        or `log_ratio` times the bytes of the base file, or whose oldest is of `hours` ago. Compactions that are
        pending, ours or Hudi's, are run first.
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

        One of three says what is kept: what readers of the last `retain_commits` writes, or of the last `retain_hours`,
        see; or `retain_versions` of every file group. Cleans that were cut off are finished first.
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
        """Write file groups anew with their rows sorted `by` some columns, on `spark` or in this process.

        All, or those of `partitions`, of `min_bytes` to `max_bytes`, that nobody has written to for `hours`. What is
        sorted so already is left alone. Writers come first: a clustering that one has overtaken is taken back, and
        `CommitConflictError` raised.
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
        """Move old instants to the history: with more than `keep_max` writes on the timeline, all but `keep_min`."""
        least, most = given.whole_number(keep_min, "keep_min"), given.whole_number(keep_max, "keep_max")
        return services.archive_table(self.store, keep_min=least, keep_max=most)

    def plan_archive(self, *, keep_min: int = KEEP_MIN, keep_max: int = KEEP_MAX) -> plans.PlannedArchive:
        """Say what `archive` would move."""
        least, most = given.whole_number(keep_min, "keep_min"), given.whole_number(keep_max, "keep_max")
        return plans.plan_archive(self.store, keep_min=least, keep_max=most)

    def rollback(self, instant: str) -> RollbackOrder:
        """Take an instant back: the newest write, or one that was cut off. Returns what that deleted."""
        return self.plan_rollback(instant).run(self.store)

    def plan_rollback(self, instant: str) -> plans.PlannedRollback:
        """Say what `rollback` would delete."""
        return plans.plan_rollback(self.store, given.text(instant, "instant"))

    def savepoint(self, instant: str | None = None, *, comment: str = "") -> Savepoint:
        """Keep the table as it was after a write, the newest if none is named: its files stay."""
        return services.create_savepoint(self.store, instant, user=_user(), comment=comment)

    def savepoints(self) -> tuple[Savepoint, ...]:
        """List the savepoints, oldest first."""
        return look_at(self.store, services.list_savepoints)

    def delete_savepoint(self, instant: str) -> Savepoint:
        """Give up the savepoint of a write, and return it; the next clean may delete what only it needed."""
        return self.plan_delete_savepoint(instant).run(self.store)

    def plan_delete_savepoint(self, instant: str) -> plans.PlannedSavepointDeletion:
        """Say what `delete_savepoint` would give up."""
        return plans.plan_savepoint_deletion(self.store, given.text(instant, "instant"))

    def restore(self, instant: str) -> RestoreOrder:
        """Go back to a savepoint: every later write is rolled back. Returns what that deleted."""
        return self.plan_restore(instant).run(self.store)

    def plan_restore(self, instant: str) -> plans.PlannedRestore:
        """Say what `restore` would take back."""
        return plans.plan_restore(self.store, given.text(instant, "instant"))

    def maintain(
        self, maintenance: Maintenance, *, spark: SparkSession | None = None, progress: bool | None = None
    ) -> Round:
        """Run a round of services: those that `maintenance` names, as far as they are due. None of them raises."""
        tasks = given.tasks_of(spark, progress)
        return services.run_maintenance(self.store, checked_maintenance(maintenance), tasks=tasks)

    def plan_maintenance(self, maintenance: Maintenance) -> plans.PlannedMaintenance:
        """Say what `maintain` would do."""
        return plans.plan_maintenance(self.store, checked_maintenance(maintenance))

    def fsck(self, *, spark: SparkSession | None = None, progress: bool | None = None) -> Report:
        """Check every key, indexed value, file and sum, on `spark` or in this process. Changes nothing."""
        return services.check_table(self.store, tasks=given.tasks_of(spark, progress))

    def repair(self, *, spark: SparkSession | None = None, progress: bool | None = None) -> Repaired:
        """Mend what indexes have wrong of keys and values, and keys with several rows, on `spark` or in this process.

        It is one commit, which `rollback` takes back.
        """
        tasks = given.tasks_of(spark, progress)
        return plans.plan_repair(self.store, tasks=tasks).run(self.store, tasks)

    def plan_repair(
        self, *, spark: SparkSession | None = None, progress: bool | None = None
    ) -> plans.PlannedRepair:
        """Say what `repair` would mend: which keys and values, where their rows are, and which of several stays."""
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
        """Build a secondary index of the values of a column, on `spark` or in this process, while writers go on.

        It leads from a value to the keys of rows, and the record-level index from there to their files: a table has to
        have one, of the whole table. With `record_index`, one that has none gets it first; no key may be in two
        partitions then. It is cut into `shards` files, by default as many as the rows need. Every write keeps it.

        Cut off, the next call goes on with it. None, if somebody else has built it meanwhile.
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
        """Delist a secondary index, and delete it, or what there is of a build that was cut off."""
        return self.plan_drop_index(name).run(self.store)

    def plan_drop_index(self, name: str) -> plans.PlannedSecondaryDrop:
        """Say what `drop_index` would delete."""
        return plans.plan_secondary_drop(self.store, given.text(name, "the name of the index"))

    def indexes(self) -> tuple[IndexStatus, ...]:
        """List the secondary indexes: the column of each, how much there is of it, and whether it is in step."""
        return look_at(self.store, list_indexes)

    @property
    def buckets(self) -> Buckets:
        """How many buckets partitions have, and how that is changed."""
        return Buckets(self.store)

    @property
    def metadata(self) -> MetadataTable:
        """Hudi's metadata table: built, looked at, dropped."""
        return MetadataTable(self.store)

    def query(self, *, in_zone: InZone = in_process_zone, **query: Unpack[QueryArguments]) -> Query:
        """Check a request against the table, reading nothing but its metadata."""
        check_query(query)
        return look_at(self.store, lambda state: make_query(state, in_zone=in_zone, **query))

    def plan(self, *, in_zone: InZone = in_process_zone, **query: Unpack[QueryArguments]) -> ReadPlan:
        """Decide what a read would read. `in_zone` gives texts without an offset their zone: this process's."""
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
        """Return the completion time up to which all changes of the table can be read; None if it has none.

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

    def timeline(self) -> tuple[inspection.TimelineEntry, ...]:
        """List the instants of the active timeline, oldest first."""
        return look_at(self.store, inspection.timeline)

    def layout(self) -> inspection.Layout:
        """Show partitions, buckets, file sizes and skew."""
        return look_at(self.store, lambda state: inspection.layout(state, self._index(state, None)))

    @overload
    def locations(self, partition: str = "", *, spark: None = None) -> pa.Table: ...

    @overload
    def locations(self, partition: str = "", *, spark: SparkSession) -> DataFrame: ...

    def locations(self, partition: str = "", *, spark: SparkSession | None = None) -> pa.Table | DataFrame:
        """Return where the keys of a partition live, by its path: an Arrow table, or a frame if `spark` is given.

        The columns are the record key, the id of its file group, and the number of the bucket if the table has dynamic
        ones. They come from the record-level index of the table: no row is read.
        """
        given.text(partition, "partition")
        found = look_at(
            self.store, lambda state: inspection.locations(state, self._index(state, None), partition)
        )
        return found if spark is None else _framed(found, spark)

    def explain(self, key: Key, *, partition: str | None = None) -> inspection.Explanation:
        """Say where a key lives and why: what is hashed, which rule decides, which file group, who wrote to it last.

        A key is what `get` takes; `partition` is a partition's path, needed if the table has partitions. A record-level
        index of the whole table needs none: it knows where the key is, and in which of its files that is said. So do
        secondary indexes of the values of its row.
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
