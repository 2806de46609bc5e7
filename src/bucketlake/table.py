"""The noun a user holds: a table at a path, and what can be asked of it.

A face: every method is a line or two that hands the work to a package below.
Each call sees the table as it is at that moment; a `Table` keeps no timeline.
"""

from __future__ import annotations

import getpass
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from os import PathLike
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypedDict, TypeVar, Unpack, cast, overload

import pyarrow as pa

from bucketlake import given, inspection, services
from bucketlake import spark as on_spark
from bucketlake.commit.claims import list_claims
from bucketlake.commit.rollback import RolledBack
from bucketlake.commit.writable import check_writable
from bucketlake.config import (
    BucketEngine,
    MaintenanceMode,
    TableProperties,
    TableType,
    load_properties,
    parse_engine,
    parse_maintenance_mode,
)
from bucketlake.errors import ConfigError, DamagedFileError
from bucketlake.index import (
    RULE_TYPE,
    ConsistentBuckets,
    HashingConfig,
    Index,
    IndexValue,
    PartitionBuckets,
    SimpleBuckets,
    resolve_index,
)
from bucketlake.index.resizes import pending_resizes
from bucketlake.keygen import KeyGenerator
from bucketlake.logfile import LogFormat
from bucketlake.read import (
    Key,
    Query,
    RawFilter,
    ReadPlan,
    changes_until,
    check_buckets,
    lookup,
    make_query,
    plan_lookup,
    plan_read,
    read_all,
    record_keys_of,
    unpublished_commit,
)
from bucketlake.schema import PARTITION_PATH_COLUMN, RECORD_KEY_COLUMN, all_nullable
from bucketlake.services import (
    ArchivePlan,
    Cleaned,
    CleanPlan,
    Clustered,
    Clustering,
    ClusteringTrigger,
    Compacted,
    Compaction,
    CompactionTrigger,
    Done,
    Due,
    Maintenance,
    Report,
    RestoreOrder,
    Retention,
    RollbackOrder,
    Savepoint,
    Tasks,
    here,
)
from bucketlake.services.archive import KEEP_MAX, KEEP_MIN
from bucketlake.services.clustering import due_clustering
from bucketlake.services.maintenance import due_clean, due_compaction
from bucketlake.services.rescale import (
    BUDGET_BYTES,
    Rescale,
    Rescaled,
    RescaleRollback,
    abort_rescale,
    committed_versions,
    look_for_rescale,
    new_rules,
    rescale_order,
    rescale_table,
    resume_rescale,
    roll_back_rescale,
)
from bucketlake.services.resize import (
    ROUNDS_MAX,
    abort_resize,
    look_for_abort,
    look_for_resize,
    resize_table,
)
from bucketlake.services.resize_plan import POLICIES, Resize, ResizeTrigger, SplitPolicy
from bucketlake.state import TableState, load_state, table_schema
from bucketlake.storage import Store, open_store
from bucketlake.timeline import InZone, Moment, in_process_zone, load_timeline
from bucketlake.write import (
    BUCKETS_DEFAULT,
    ArrowRows,
    CommitSummary,
    Operation,
    TableSpec,
    WriteOptions,
    adopt,
    alter,
    create,
    key_columns,
    name_for_path,
    names_partitions,
    options_of,
    run_delete_partitions,
    run_write,
    tops_of,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from bucketlake.spark.files import Files, Paths
    from bucketlake.spark.write import SparkRows

    Rows: TypeAlias = DataFrame | Files | pa.Table | given.ArrowStream | Sequence[Mapping[str, Any]]
    """What can be written: a frame or files by Spark's tasks; the others, in memory, by this process."""
    Schema: TypeAlias = pa.Schema | StructType | DataFrame | Files | pa.Table | given.ArrowStream | str
    """Columns, or what has columns."""


Seen = TypeVar("Seen")

_LOOKS_MAX = 3


class QueryArguments(TypedDict, total=False):
    """What may be asked of a read; `make_query` gives the defaults."""

    columns: str | Sequence[str] | None
    filters: Iterable[RawFilter] | None
    meta_columns: bool
    read_optimized: bool
    as_of: Moment | None
    begin: Moment | None
    end: Moment | None


class WriteArguments(TypedDict, total=False):
    """What may be chosen for one write."""

    log_format: LogFormat | str
    """How rows are stored in the logs of a merge-on-read table: `parquet`, or `avro`."""
    merge_schema: bool | None
    """Whether rows may change the table's columns: add some, widen a type, let one be null. None: as the table says."""
    progress: bool | None
    """Whether to show a bar while Spark works; None: if standard error is a terminal."""
    maintenance: Maintenance | str | None
    """Services to run after the commit, by whoever wrote the rows; or `inline`, `service` or `off`, for this write in
    place of what the table says. None of them can fail the write."""


class CompactionArguments(TypedDict, total=False):
    """Which file groups to compact; `CompactionTrigger` says what each means."""

    delta_commits: int | None
    log_bytes: int | None
    log_ratio: float | None
    hours: float | None


class ClusteringArguments(TypedDict, total=False):
    """Which file groups to cluster; `ClusteringTrigger` says what each means."""

    min_bytes: int | None
    max_bytes: int | None
    hours: float | None
    partitions: str | Sequence[str] | None


class ResizeArguments(TypedDict, total=False):
    """When to split and merge buckets; `ResizeTrigger` says what each means."""

    file_bytes: int
    split_threshold: float
    merge_threshold: float
    min_buckets: int
    max_buckets: int
    partitions: str | Sequence[str] | None
    partitions_at_once: int
    bytes_at_once: int
    policy: str | SplitPolicy
    """Where to split: `middle`, `even`, or a function."""


class RetentionArguments(TypedDict, total=False):
    """What a clean keeps; one of them is given."""

    retain_commits: int | None
    retain_hours: float | None
    retain_versions: int | None


def parquet_files(
    spark: SparkSession, paths: Paths, *, storage_options: Mapping[str, str] | None = None
) -> Files:
    """Take Parquet files as they are for rows to be written: `table.bulk_insert(parquet_files(spark, "/data/orders"))`.

    A path is a file, or a folder of files that end in `.parquet`, without those whose path has a name that begins with
    a dot or an underscore. All have the same columns; values that only stand in the names of folders are not read. The
    tasks that write read the files, and their rows do not pass through Spark, which costs less than a frame does.
    `storage_options` are for object stores.
    """
    session = given.session_of(spark, "It comes before the paths.")
    return on_spark.files.parquet_files(session, given.paths(paths), storage_options=storage_options)


def create_table(
    spark: SparkSession | None,
    path: str | PathLike[str],
    schema: Schema,
    *,
    key: str | Sequence[str],
    partition: str | Sequence[str] | None = (),
    ordering: str | Sequence[str] | None = (),
    buckets: int = BUCKETS_DEFAULT,
    partition_rules: str | None = None,
    rule_type: str = RULE_TYPE,
    hash_fields: str | Sequence[str] | None = (),
    engine: BucketEngine | str = BucketEngine.SIMPLE,
    table_type: TableType | str = TableType.COPY_ON_WRITE,
    name: str | None = None,
    hive_style: bool = False,
    url_encode: bool = False,
    allow_null_elements: bool = False,
    allow_missing_columns: bool = False,
    merge_schema: bool = False,
    non_blocking: bool = False,
    virtual_logs: bool = False,
    maintenance: str = MaintenanceMode.INLINE,
    storage_options: Mapping[str, str] | None = None,
) -> Table:
    """Make an empty table at `path`.

    `schema` is an Arrow or Spark schema, rows that have it, or DDL text; `spark` may be None. What rows say of nulls is
    not taken for a rule: all their columns may be null. Rows with one
    `key` are versions of a record; of two the one with the greater `ordering` stays, without `ordering` the later one.
    A key is looked for within its `partition`. How many `buckets` a partition has, and which fields of the key are
    hashed, is stored with the table: every later writer keeps to it. `partition_rules`, such as `2026-.*,16;^eu/,8`,
    give partitions counts of their own: the first expression that is found in a partition's path decides, and `buckets`
    is for the others. They are regular expressions unless `rule_type` names another registered type. With the `engine`
    `consistent_hashing`, `buckets` is what a partition begins with, and `table.buckets.resize` splits the large ones
    and merges the small ones while writers and readers go on. Rows for a bucket that is being resized are written twice
    then, or, with `virtual_logs`, once: until the resize is completed Hudi refuses to read the table, instead of
    missing rows. In a `non_blocking` table, which is merge-on-read and has `ordering`, writers that open a bucket at
    the same time may both commit: none needs to be run again. `merge_schema` and `allow_missing_columns` say which rows
    fit the table, and `maintenance` who compacts, cleans and archives it: see `Table.alter`. Without a `name`, a table
    is named after its folder.
    """
    if spark is not None:
        given.session_of(spark, "It comes before the path, and may be None.")
    uri = given.path_text(path)
    store = open_store(uri, storage_options)
    spec = TableSpec(
        name=given.text(name or name_for_path(uri), "name"),
        schema=_columns_of(schema, spark),
        key=given.names(key, "key"),
        partition=given.names(partition or (), "partition"),
        ordering=given.names(ordering or (), "ordering"),
        index=_index_value(
            parse_engine(given.text(engine, "engine")),
            buckets=given.whole_number(buckets, "buckets"),
            rules=given.text(partition_rules or "", "partition_rules"),
            rule_type=given.text(rule_type, "rule_type"),
            hash_fields=given.names(hash_fields or (), "hash_fields"),
            virtual_logs=given.flag(virtual_logs, "virtual_logs"),
        ),
        table_type=_table_type(table_type),
        hive_style=given.flag(hive_style, "hive_style"),
        url_encode=given.flag(url_encode, "url_encode"),
        non_blocking=given.flag(non_blocking, "non_blocking"),
        maintenance=parse_maintenance_mode(given.text(maintenance, "maintenance")),
        options=options_of(
            merge_schema=given.flag(merge_schema, "merge_schema") or None,
            allow_missing_columns=given.flag(allow_missing_columns, "allow_missing_columns") or None,
            allow_null_elements=given.flag(allow_null_elements, "allow_null_elements") or None,
        ),
    )
    return Table(store, create(store, spec))


def _index_value(
    engine: BucketEngine,
    *,
    buckets: int,
    rules: str,
    rule_type: str,
    hash_fields: tuple[str, ...],
    virtual_logs: bool,
) -> IndexValue:
    if rules and engine is not BucketEngine.SIMPLE:
        raise ConfigError(
            f"with the engine {engine} a table's buckets grow by themselves, and rules for their number mean nothing. "
            f"Drop the option, or make a table with the engine {BucketEngine.SIMPLE}."
        )
    if virtual_logs and engine is BucketEngine.SIMPLE:
        raise ConfigError(
            f"virtual logs are for merge-on-read tables whose buckets are resized; found the engine {engine}. Drop the "
            f"option."
        )
    if engine is BucketEngine.CONSISTENT_HASHING:
        return ConsistentBuckets(buckets, hash_fields, virtual_logs)
    return (
        PartitionBuckets(rules, buckets, hash_fields, rule_type)
        if rules
        else SimpleBuckets(buckets, hash_fields)
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
        buckets: int | None = None,
        hash_fields: Sequence[str] | None = None,
        partition_rules: str | None = None,
    ) -> None:
        self.store = store
        self.properties = properties
        self._index_arguments: Mapping[str, Any] = {
            "buckets": None if buckets is None else given.whole_number(buckets, "buckets"),
            "hash_fields": None if hash_fields is None else given.names(hash_fields, "hash_fields"),
            "rules": None if partition_rules is None else given.text(partition_rules, "partition_rules"),
        }
        self._checked_partitions: set[str] = set()

    @classmethod
    def open(
        cls,
        path: str | PathLike[str],
        *,
        storage_options: Mapping[str, str] | None = None,
        buckets: int | None = None,
        hash_fields: Sequence[str] | None = None,
        partition_rules: str | None = None,
    ) -> Table:
        """Open the table at `path`.

        Hudi stores no bucket count with a table. `buckets`, and `hash_fields` or `partition_rules` where Hudi's
        writer had them, let reads by key skip the other buckets; they are checked against the keys in the files,
        and nothing but speed depends on them.
        """
        store = open_store(given.path_text(path), storage_options)
        properties = load_properties(store)
        return cls(
            store, properties, buckets=buckets, hash_fields=hash_fields, partition_rules=partition_rules
        )

    @classmethod
    def adopt(
        cls,
        path: str | PathLike[str],
        *,
        buckets: int | None = None,
        hash_fields: str | Sequence[str] | None = None,
        partition_rules: str | None = None,
        storage_options: Mapping[str, str] | None = None,
    ) -> Table:
        """Open a table that Hudi wrote with simple or partition-level buckets, so that it can be written to.

        Hudi keeps no bucket count. Every key is looked at, and must lie where `buckets`, `hash_fields` and
        `partition_rules` put it; then they are stored with the table. A wrong count is an error, which says the right
        one if it can be told. A table that Hudi has rescaled keeps its rules itself, and needs none of them.
        """
        store = open_store(given.path_text(path), storage_options)
        adopt(
            store,
            buckets=None if buckets is None else given.whole_number(buckets, "buckets"),
            hash_fields=None if hash_fields is None else given.names(hash_fields, "hash_fields"),
            partition_rules=partition_rules,
        )
        return cls(store, load_properties(store))

    def __repr__(self) -> str:
        return f"Table({self.store.uri!r})"

    def alter(
        self,
        *,
        merge_schema: bool | None = None,
        allow_missing_columns: bool | None = None,
        maintenance: str | None = None,
        keep_commits: int | None = None,
    ) -> None:
        """Change which rows the table takes, from the next write on, whoever writes it; None leaves things as they are.

        With `merge_schema`, every write may change the columns, as one that is given `merge_schema=True` may. With
        `allow_missing_columns`, rows may lack columns that may be null: they are null then, also in a row that is
        updated. Key, partition and ordering columns are never missing.

        `maintenance` says who compacts, cleans and archives the table: its writers, after every fifteenth commit
        (`inline`), `bucketlake service run` (`service`), or nobody (`off`). That keeps what readers of the last
        `keep_commits` writes see, thirty unless it is set.
        """
        changes = options_of(
            merge_schema=merge_schema,
            allow_missing_columns=allow_missing_columns,
            maintenance=None
            if maintenance is None
            else parse_maintenance_mode(given.text(maintenance, "maintenance")),
            keep_commits=None if keep_commits is None else given.whole_number(keep_commits, "keep_commits"),
        )
        self.properties = alter(self.store, changes)

    @property
    def schema(self) -> pa.Schema:
        """The columns of the newest commit, without Hudi's meta columns."""
        return self._look(table_schema)

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
        without it every partition is looked into.
        """
        wanted = given.keys_of(keys)
        generator = KeyGenerator.from_properties(self.properties)

        def look(state: TableState) -> pa.Table:
            query = make_query(state, columns=columns, as_of=as_of)
            record_keys = record_keys_of(wanted, generator, query.table_schema)
            return self._looked_up(record_keys, state, query, partition)

        return self._look(look)

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
        """
        return self._write(rows, Operation.UPSERT, **options)

    def bulk_insert(self, rows: Rows, **options: Unpack[WriteArguments]) -> CommitSummary:
        """Load `rows` into new buckets, as `upsert` would; where a bucket has rows already they are merged."""
        return self._write(rows, Operation.BULK_INSERT, **options)

    def overwrite(
        self, rows: Rows, *, whole_table: bool = False, **options: Unpack[WriteArguments]
    ) -> CommitSummary:
        """Replace the partitions that `rows` have rows in, or with `whole_table` everything, by `rows`."""
        is_whole = given.flag(whole_table, "whole_table")
        operation = Operation.INSERT_OVERWRITE_TABLE if is_whole else Operation.INSERT_OVERWRITE
        return self._write(rows, operation, **options)

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
            return self._write(self._located(rows, partition), Operation.DELETE, **options)
        found = self.get(rows_or_keys, partition=partition, columns=self._key_columns())
        return self._write(found, Operation.DELETE, **options)

    def _located(self, rows: DataFrame | Files | pa.Table, partition: str | None) -> Rows:
        """Return rows to be deleted as they are if they name their partitions, else what the table has of such keys."""
        state = load_state(self.store)
        if names_partitions(_columns_of(rows, None), state):
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
        wanted = _rows_by_tasks(rows, None)
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

    def _write(self, rows: Rows, operation: Operation, **options: Unpack[WriteArguments]) -> CommitSummary:
        given.known(options, WriteArguments)
        asked = self._index_arguments
        checked = WriteOptions(
            log_format=_log_format(options.get("log_format", LogFormat.PARQUET)),
            merge_schema=options.get("merge_schema"),
            buckets=asked["buckets"],
            hash_fields=asked["hash_fields"],
            partition_rules=asked["rules"],
        )
        maintenance = services.asked_maintenance(options.get("maintenance"))
        progress = options.get("progress")
        taken = given.rows_of(rows, lambda: self.schema)
        if isinstance(taken, pa.Table):
            summary = run_write(ArrowRows(taken), self.store, operation, checked)
            return services.look_after(self.store, summary, maintenance)
        by_tasks = _rows_by_tasks(taken, progress)
        summary = run_write(by_tasks, self.store, operation, checked)
        tasks = _tasks(by_tasks.session, progress)
        return services.look_after(self.store, summary, maintenance, tasks=tasks)

    @overload
    def compact(
        self,
        spark: SparkSession | None = None,
        *,
        dry_run: Literal[False] = False,
        progress: bool | None = None,
        **when: Unpack[CompactionArguments],
    ) -> Done[Compacted]: ...

    @overload
    def compact(
        self,
        spark: SparkSession | None = None,
        *,
        dry_run: Literal[True],
        progress: bool | None = None,
        **when: Unpack[CompactionArguments],
    ) -> Due[Compaction]: ...

    def compact(
        self,
        spark: SparkSession | None = None,
        *,
        dry_run: bool = False,
        progress: bool | None = None,
        **when: Unpack[CompactionArguments],
    ) -> Done[Compacted] | Due[Compaction]:
        """Merge logs into new base files, on `spark` or in this process.

        Every file group that has logs; or those with at least `delta_commits` writes in them, of at least `log_bytes`,
        or `log_ratio` times the bytes of the base file, or whose oldest is of `hours` ago. Compactions that are
        pending, ours or Hudi's, are run first. A dry run says what would be done.
        """
        given.numbers(when, CompactionArguments)
        trigger = CompactionTrigger(**when)
        if dry_run:
            return due_compaction(services.look(self.store, Maintenance()), trigger)
        tasks = _tasks(spark, progress)
        return Done(services.compact_table(self.store, trigger=trigger, tasks=tasks))

    @overload
    def clean(
        self,
        spark: SparkSession | None = None,
        *,
        dry_run: Literal[False] = False,
        progress: bool | None = None,
        **retain: Unpack[RetentionArguments],
    ) -> Done[Cleaned]: ...

    @overload
    def clean(
        self,
        spark: SparkSession | None = None,
        *,
        dry_run: Literal[True],
        progress: bool | None = None,
        **retain: Unpack[RetentionArguments],
    ) -> Due[CleanPlan]: ...

    def clean(
        self,
        spark: SparkSession | None = None,
        *,
        dry_run: bool = False,
        progress: bool | None = None,
        **retain: Unpack[RetentionArguments],
    ) -> Done[Cleaned] | Due[CleanPlan]:
        """Delete files that nobody needs any more, on `spark` or in this process.

        One of three says what is kept: what readers of the last `retain_commits` writes, or of the last `retain_hours`,
        see; or `retain_versions` of every file group. Cleans that were cut off are finished first. A dry run says what
        would be done.
        """
        given.numbers(retain, RetentionArguments)
        kept = Retention(
            commits=retain.get("retain_commits"),
            hours=retain.get("retain_hours"),
            versions=retain.get("retain_versions"),
        )
        if dry_run:
            return due_clean(services.look(self.store, Maintenance()), kept)
        return Done(services.clean_table(self.store, retain=kept, tasks=_tasks(spark, progress)))

    @overload
    def cluster(
        self,
        spark: SparkSession | None = None,
        *,
        by: str | Sequence[str],
        dry_run: Literal[False] = False,
        progress: bool | None = None,
        **which: Unpack[ClusteringArguments],
    ) -> Done[Clustered]: ...

    @overload
    def cluster(
        self,
        spark: SparkSession | None = None,
        *,
        by: str | Sequence[str],
        dry_run: Literal[True],
        progress: bool | None = None,
        **which: Unpack[ClusteringArguments],
    ) -> Due[Clustering]: ...

    def cluster(
        self,
        spark: SparkSession | None = None,
        *,
        by: str | Sequence[str],
        dry_run: bool = False,
        progress: bool | None = None,
        **which: Unpack[ClusteringArguments],
    ) -> Done[Clustered] | Due[Clustering]:
        """Write file groups anew with their rows sorted `by` some columns, on `spark` or in this process.

        All, or those of `partitions`, of `min_bytes` to `max_bytes`, that nobody has written to for `hours`. What is
        sorted so already is left alone. Writers come first: a clustering that one has overtaken is taken back, and
        `CommitConflictError` raised. A dry run says what would be done.
        """
        given.known(which, ClusteringArguments)
        partitions = which.get("partitions")
        trigger = ClusteringTrigger(
            min_bytes=which.get("min_bytes"),
            max_bytes=which.get("max_bytes"),
            hours=which.get("hours"),
            partitions=None if partitions is None else given.names(partitions, "partitions"),
        )
        if dry_run:
            return due_clustering(self.store, by=given.names(by, "by"), trigger=trigger)
        tasks = _tasks(spark, progress)
        return Done(
            services.cluster_table(self.store, by=given.names(by, "by"), trigger=trigger, tasks=tasks)
        )

    def archive(
        self, *, keep_min: int = KEEP_MIN, keep_max: int = KEEP_MAX, dry_run: bool = False
    ) -> ArchivePlan:
        """Move old instants to the history: with more than `keep_max` writes on the timeline, all but `keep_min`."""
        keep_min, keep_max = (
            given.whole_number(keep_min, "keep_min"),
            given.whole_number(keep_max, "keep_max"),
        )
        if not dry_run:
            return services.archive_table(self.store, keep_min=keep_min, keep_max=keep_max)
        state = self._writable()
        return services.plan_archive(state, services.look_around(state), keep_min=keep_min, keep_max=keep_max)

    def rollback(self, instant: str, *, dry_run: bool = False) -> RollbackOrder:
        """Take an instant back: the newest write, or one that was cut off. Returns what that deletes."""
        order = services.look_for_rollback(load_state(self.store), instant)
        if not dry_run:
            services.run_rollback(order, self.store)
        return order

    def savepoint(self, instant: str | None = None, *, comment: str = "") -> Savepoint:
        """Keep the table as it was after a write, the newest if none is named: its files stay."""
        return services.create_savepoint(self.store, instant, user=_user(), comment=comment)

    def savepoints(self) -> tuple[Savepoint, ...]:
        """List the savepoints, oldest first."""
        return self._look(services.list_savepoints)

    def delete_savepoint(self, instant: str, *, dry_run: bool = False) -> Savepoint:
        """Give up the savepoint of a write, and return it; the next clean may delete what only it needed."""
        found = services.find_savepoint(self._writable(), instant)
        if not dry_run:
            services.delete_savepoint(self.store, instant)
        return found

    def restore(self, instant: str, *, dry_run: bool = False) -> RestoreOrder:
        """Go back to a savepoint: every later write is rolled back. Returns what that deletes."""
        order = services.look_for_restore(self._writable(), instant)
        if not dry_run:
            services.run_restore(order, self.store)
        return order

    def fsck(self, spark: SparkSession | None = None, *, progress: bool | None = None) -> Report:
        """Check every key, file and sum of the table, on `spark` or in this process. Changes nothing."""
        return services.check_table(self.store, tasks=_tasks(spark, progress))

    def _writable(self) -> TableState:
        state = load_state(self.store)
        check_writable(state)
        return state

    @property
    def buckets(self) -> Buckets:
        """How many buckets partitions have, and how that is changed."""
        return Buckets(self)

    def query(self, *, in_zone: InZone = in_process_zone, **query: Unpack[QueryArguments]) -> Query:
        """Check a request against the table, reading nothing but its metadata."""
        given.known(query, QueryArguments)
        return self._look(lambda state: make_query(state, in_zone=in_zone, **query))

    def plan(self, *, in_zone: InZone = in_process_zone, **query: Unpack[QueryArguments]) -> ReadPlan:
        """Decide what a read would read. `in_zone` gives texts without an offset their zone: this process's."""
        given.known(query, QueryArguments)
        # Claims are read before the timeline: see `read.settled`.
        claims = list_claims(self.store) if query.get("begin") is not None else None

        def plan(state: TableState) -> ReadPlan:
            unpublished = unpublished_commit(claims, state.timeline) if claims is not None else None
            checked = make_query(state, in_zone=in_zone, unpublished=unpublished, **query)
            index = self._index(state, checked)
            return self._checked(plan_read(state, checked, index), index)

        return self._look(plan)

    def changes_until(self) -> str | None:
        """Return the completion time up to which all changes of the table can be read; None if it has none.

        It is the end to read up to, and the begin to go on from:

        until = table.changes_until()
        table.read(spark, begin=since, end=until)
        since = until
        """
        claims = list_claims(self.store)
        timeline = load_timeline(self.store, self.properties)
        return changes_until(timeline, unpublished_commit(claims, timeline))

    def _look(self, look: Callable[[TableState], Seen]) -> Seen:
        """Look at the table as it is now.

        Again if a file is gone: an archive, a clean or a rollback may have taken it since the timeline was read.
        """
        for _ in range(_LOOKS_MAX - 1):
            with suppress(DamagedFileError, FileNotFoundError):
                return look(load_state(self.store))
        return look(load_state(self.store))

    def describe(self) -> inspection.Description:
        """Say what the table is."""
        until = self.changes_until()
        return self._look(
            lambda state: inspection.describe(state, self._index(state, None), changes_until=until)
        )

    def timeline(self) -> tuple[inspection.TimelineEntry, ...]:
        """List the instants of the active timeline, oldest first."""
        return self._look(inspection.timeline)

    def layout(self) -> inspection.Layout:
        """Show partitions, buckets, file sizes and skew."""
        return self._look(lambda state: inspection.layout(state, self._index(state, None)))

    def explain(self, key: Key, *, partition: str | None = None) -> inspection.Explanation:
        """Say where a key lives and why: what is hashed, which rule decides, which file group, who wrote to it last.

        A key is what `get` takes; `partition` is a partition's path, needed if the table has partitions.
        """
        if partition is not None:
            given.text(partition, "partition")
        generator = KeyGenerator.from_properties(self.properties)

        def explain(state: TableState) -> inspection.Explanation:
            (record_key,) = record_keys_of([key], generator, table_schema(state)).to_pylist()
            return inspection.explain(state, self._index(state, None), record_key, partition=partition)

        return self._look(explain)

    def _index(self, state: TableState, query: Query | None) -> Index:
        as_of = query.as_of if query is not None else None
        return resolve_index(state, as_of=as_of, **self._index_arguments)

    def _checked(self, plan: ReadPlan, index: Index) -> ReadPlan:
        """Check what the caller said of the buckets against the keys, once per partition."""
        if self._is_told():
            check_buckets(plan, index, self._checked_partitions)
        return plan

    def _is_told(self) -> bool:
        """Whether what is known of the buckets is, or repeats, what the caller said."""
        return any(value is not None for value in self._index_arguments.values())


def _tasks(spark: SparkSession | None, progress: bool | None) -> Tasks:
    """Let a session run the tasks of a service, or this process if there is none."""
    if spark is None:
        return here
    session = given.session_of(spark, "None runs the tasks in this process.")
    return on_spark.services.SessionTasks(session, progress=progress)


class Buckets:
    """How many buckets the partitions of a table have, and how that is changed: `table.buckets`."""

    def __init__(self, table: Table) -> None:
        self._table = table

    def show_config(self) -> tuple[HashingConfig, ...]:
        """Return the versions of the table's bucket rules, oldest first; the last one counts."""
        return self._table._look(lambda state: committed_versions(state.store, state.timeline))

    def overwrite(
        self,
        rules: str,
        *,
        spark: SparkSession | None = None,
        bucket_number: int | None = None,
        rule_type: str = RULE_TYPE,
        dry_run: bool = True,
        progress: bool | None = None,
        budget_bytes: int = BUDGET_BYTES,
    ) -> Rescale | Rescaled:
        """Give the table other rules, and write the partitions anew whose bucket count they change.

        `bucket_number` is for partitions that no rule catches; None keeps the present one. A simple-bucket table
        gets rules this way too. A dry run, which is the default, says what would be done. Writers need not stop.
        A task holds rows up to `budget_bytes`, or those of one new bucket. If it is cut off: `resume`, or `abort`.
        """
        return self._change(
            rules,
            spark,
            bucket_number,
            rule_type,
            dry_run=dry_run,
            progress=progress,
            budget_bytes=budget_bytes,
            adds=False,
        )

    def add(
        self,
        rules: str,
        *,
        spark: SparkSession | None = None,
        bucket_number: int | None = None,
        rule_type: str = RULE_TYPE,
        dry_run: bool = True,
        progress: bool | None = None,
        budget_bytes: int = BUDGET_BYTES,
    ) -> Rescale | Rescaled:
        """Put rules before those that the table has; else as `overwrite`."""
        return self._change(
            rules,
            spark,
            bucket_number,
            rule_type,
            dry_run=dry_run,
            progress=progress,
            budget_bytes=budget_bytes,
            adds=True,
        )

    def resume(self, *, spark: SparkSession | None = None, progress: bool | None = None) -> Rescaled:
        """Go on with a rescale that was cut off. What it has written, and nobody has outdated since, is kept."""
        return resume_rescale(self._table.store, tasks=_tasks(spark, progress))

    def rollback(self, instant: str, *, dry_run: bool = True, with_newer: bool = False) -> RescaleRollback:
        """Take a rescale back, data and rules together. Returns what that deletes; a dry run does no more.

        One that other rescales came after is refused; `with_newer` takes those back first. If something else depends
        on one of them, none is taken back. A call that was cut off is finished by the same call again.
        """
        store = self._table.store
        if dry_run:
            return rescale_order(store, instant, with_newer=with_newer)
        return roll_back_rescale(store, instant, with_newer=with_newer)

    @overload
    def resize(
        self,
        spark: SparkSession | None = ...,
        *,
        dry_run: Literal[False] = ...,
        rounds: int = ...,
        progress: bool | None = ...,
        **trigger: Unpack[ResizeArguments],
    ) -> Done[Clustered]: ...

    @overload
    def resize(
        self,
        spark: SparkSession | None = ...,
        *,
        dry_run: Literal[True],
        rounds: int = ...,
        progress: bool | None = ...,
        **trigger: Unpack[ResizeArguments],
    ) -> Due[Resize]: ...

    def resize(
        self,
        spark: SparkSession | None = None,
        *,
        dry_run: bool = False,
        rounds: int = ROUNDS_MAX,
        progress: bool | None = None,
        **trigger: Unpack[ResizeArguments],
    ) -> Done[Clustered] | Due[Resize]:
        """Split large buckets and merge small ones, round after round, until none is left.

        For tables with consistent hashing. A dry run draws the rings before and after a round, with the bytes to
        rewrite. Writers and readers go on; resizes that are pending are completed first.
        """
        store, wanted = self._table.store, _resize_trigger(trigger)
        tasks = _tasks(spark, progress)
        if dry_run:
            pending = tuple(pending_resizes(store, load_state(store).timeline))
            return Due("resize", pending, look_for_resize(store, wanted, tasks=tasks))
        return Done(resize_table(store, wanted, rounds=rounds, tasks=tasks))

    @overload
    def abort(self, instant: None = ..., *, dry_run: bool = ...) -> RollbackOrder: ...

    @overload
    def abort(self, instant: str, *, dry_run: Literal[False] = ...) -> RolledBack | None: ...

    @overload
    def abort(self, instant: str, *, dry_run: Literal[True]) -> RollbackOrder | None: ...

    def abort(
        self, instant: str | None = None, *, dry_run: bool = False
    ) -> RollbackOrder | RolledBack | None:
        """Take back a rescale that was cut off, or the resize of an instant that is not completed.

        A dry run returns what that deletes, and changes nothing. Of a resize, either returns None if it was
        completed meanwhile. What was written beside it stays. Nobody may be running it.
        """
        if instant is None:
            return abort_rescale(self._table.store, dry_run=dry_run)
        if dry_run:
            return look_for_abort(self._table.store, instant)
        return abort_resize(self._table.store, instant)

    def _change(
        self,
        expressions: str,
        spark: SparkSession | None,
        bucket_number: int | None,
        rule_type: str,
        *,
        dry_run: bool,
        progress: bool | None,
        budget_bytes: int,
        adds: bool,
    ) -> Rescale | Rescaled:
        store = self._table.store
        rules, version_before = new_rules(
            load_state(store),
            given.text(expressions, "rules"),
            default_count=bucket_number,
            rule_type=rule_type,
            adds=adds,
        )
        if dry_run:
            return look_for_rescale(store, rules)
        return rescale_table(
            store,
            rules,
            version_before=version_before,
            tasks=_tasks(spark, progress),
            budget_bytes=budget_bytes,
        )


def _resize_trigger(arguments: ResizeArguments) -> ResizeTrigger:
    given.known(arguments, ResizeArguments)
    asked: dict[str, Any] = dict(arguments)
    partitions, policy = asked.get("partitions"), asked.get("policy", "middle")
    if isinstance(policy, str):
        if policy not in POLICIES:
            raise ConfigError(f"policy is {policy!r}; expected one of {', '.join(POLICIES)}, or a function.")
        policy = POLICIES[policy]
    chosen = None if partitions is None else given.names(partitions, "partitions")
    return ResizeTrigger(**{**asked, "partitions": chosen, "policy": policy})


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a number without a name, as containers have them
        return str(os.getuid())


def _table_type(name: TableType | str) -> TableType:
    try:
        return TableType(name)
    except ValueError:
        known = " or ".join(TableType)
        raise ConfigError(f"table_type is {name!r}; expected {known}.") from None


def _log_format(name: LogFormat | str) -> LogFormat:
    try:
        return LogFormat(name)
    except ValueError:
        known = ", ".join(LogFormat)
        raise ConfigError(f"log_format is {name!r}; expected one of {known}.") from None


def _columns_of(schema: Schema, spark: SparkSession | None) -> pa.Schema:
    if isinstance(schema, str):
        # The session decides what the word means.
        asked = None if spark is None else spark.conf.get("spark.sql.timestampType", None)
        return on_spark.parse_ddl(schema, has_zones=asked != "TIMESTAMP_NTZ")
    taken = given.schema_of(schema)
    columns = taken if isinstance(taken, pa.Schema) else on_spark.arrow_schema(taken.jsonValue())
    # That a column of a frame has no nulls is what Spark worked out, of a literal say: no rule for rows to come.
    return columns if taken is schema else all_nullable(columns)


def _rows_by_tasks(rows: DataFrame | Files, progress: bool | None) -> SparkRows:
    files = (
        rows if given.is_files(rows) else on_spark.plain_reads.files_read_by_frame(cast("DataFrame", rows))
    )
    if files is not None:
        return on_spark.files.FileRows(files, progress=progress)
    return on_spark.write.FrameRows(cast("DataFrame", rows), progress=progress)
