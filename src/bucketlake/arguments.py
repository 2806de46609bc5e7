"""The arguments that calls of a table share: what may be given, what it means, and the values that are made of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypedDict

import pyarrow as pa

from bucketlake import given
from bucketlake.commit.metadata_table import OnUnmaintained
from bucketlake.config import MaintenanceMode, TableProperties, TableType, maintenance_mode
from bucketlake.errors import ConfigError, shown
from bucketlake.logfile import LogFormat
from bucketlake.read import RawFilter
from bucketlake.services import ClusteringTrigger, CompactionTrigger, Maintenance, ResizeTrigger, Retention
from bucketlake.services.resize_plan import POLICIES, SplitPolicy
from bucketlake.services.upkeep import maintenance_of
from bucketlake.timeline import Moment
from bucketlake.write import ChangeFeed, Operation


class ArrowStream(Protocol):
    """What hands its rows to Arrow: frames of pandas and polars, DuckDB's results, Arrow's own tables."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...


if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from bucketlake.spark.files import Files

    Rows: TypeAlias = DataFrame | Files | pa.Table | ArrowStream | Sequence[Mapping[str, Any]]
    """What can be written: a frame or files by Spark's tasks; the others, in memory, by this process."""
    Schema: TypeAlias = pa.Schema | StructType | DataFrame | Files | pa.Table | ArrowStream | str
    """Columns, or what has columns."""


class QueryArguments(TypedDict, total=False):
    """What a read may ask for. `make_query` has the defaults."""

    columns: str | Sequence[str] | None
    """The columns to read. Default: all."""
    filters: Iterable[RawFilter] | None
    """`(column, operator, value)`; all of them must hold. Default: none, so every row."""
    meta_columns: bool
    """Whether to return Hudi's meta columns too. Default: `True`, as Hudi does; not if `columns` are named."""
    read_optimized: bool
    """Whether to read base files only, without logs: faster, and older. Default: `False`, so nothing is missed."""
    as_of: Moment | None
    """Read the table as it was at this moment. Default: now."""
    begin: Moment | None
    """Read what was written after this moment. Default: the whole table."""
    end: Moment | None
    """Read what was written up to this moment. Default: up to `changes_until()`, so the next read can go on there."""


class WriteArguments(TypedDict, total=False):
    """What may be chosen for one write."""

    log_format: LogFormat | str
    """How the logs of a merge-on-read table store rows: `parquet` or `avro`. Default: `parquet`, which is cheaper."""
    op: str | None
    """The column that says what happened to a row: inserted, updated or deleted. For `upsert`. Default: none."""
    op_words: Mapping[str, str] | None
    """More words for that column: word -> `insert`, `update_before`, `update_after` or `delete`. Default: none, because
    the words of Debezium, Flink and Delta are known."""
    merge_schema: bool | None
    """Whether rows may add columns, widen a type, or let a column be null. Default: what the table says."""
    progress: bool | None
    """Whether to show a bar while Spark works. Default: on a terminal, if Spark shows no bar of its own."""
    maintenance: Maintenance | str | None
    """Services to run after the commit. They cannot fail the write. Default: what the table says."""


class ComputedArguments(TypedDict, total=False):
    """What may be chosen for a write whose rows are computed from the table: an update, a merge."""

    log_format: LogFormat | str
    progress: bool | None
    maintenance: Maintenance | str | None


class StreamArguments(WriteArguments, total=False):
    """What may be chosen for a stream, besides what may be for each write. `maintenance` is `beside` by default."""

    name: str
    """The name of the stream, for people and for Spark. Default: none."""
    identifier: str
    """The name by which Hudi's streaming sink knows the stream. Default: the id of the query."""
    verify_replay: bool
    """Whether to count the rows of a batch that Spark repeats, and refuse it if they differ. Default: `False`, because
    counting reads the batch once more."""
    accept_checkpoint: bool
    """Whether to go on with a checkpoint of which the table has no batch. Default: `False`: most likely it belongs to a
    stream into another table."""
    pipelined: bool
    """Whether a batch ends when its commit is decided, and is published during the next one. Default: `False`, because
    it needs a table that Hudi does not write to."""
    storage_options: Mapping[str, str] | None
    """Options of the checkpoint's store. Default: none."""


class CompactionArguments(TypedDict, total=False):
    """Which file groups to compact: those for which one of these holds, or all that have logs."""

    delta_commits: int | None
    """The logs have at least so many writes. Default: not asked."""
    log_bytes: int | None
    """The logs have at least so many bytes. Default: not asked."""
    log_ratio: float | None
    """The logs have at least so many times the bytes of the base file. Default: not asked."""
    hours: float | None
    """The oldest log is at least so many hours old. Default: not asked."""


class ClusteringArguments(TypedDict, total=False):
    """Which file groups to cluster: those for which all of these hold."""

    min_bytes: int | None
    """The files have at least so many bytes. Default: not asked."""
    max_bytes: int | None
    """The files have at most so many bytes. Default: not asked."""
    hours: float | None
    """Nobody has written to it for so many hours. Default: not asked."""
    partitions: str | Sequence[str] | None
    """It is in one of these partitions. Default: any."""


class ResizeArguments(TypedDict, total=False):
    """When to split and merge buckets, and how much at once. `ResizeTrigger` has the defaults."""

    file_bytes: int
    """The size that a bucket should have. Default: 120 MiB, Hudi's size of a base file."""
    split_threshold: float
    """Split a bucket whose files have more than so many times `file_bytes`. Default: 2."""
    merge_threshold: float
    """Merge neighbours that together have at most so many times `file_bytes`. Default: 0.2, far below a half, so that
    nothing is split and merged again."""
    min_buckets: int
    """The fewest buckets of a partition. Default: 1."""
    max_buckets: int
    """The most buckets of a partition. Default: 65,536, as many as there are numbers for."""
    partitions: str | Sequence[str] | None
    """Only these partitions. Default: all."""
    partitions_at_once: int
    """The most partitions in a round. Default: 10,000."""
    bytes_at_once: int
    """The most bytes that a round rewrites; one change is made in any case. Default: 2 GiB, so that a round ends
    soon."""
    policy: str | SplitPolicy
    """Where to split: `middle`, `even`, or a function. Default: `middle`, as Hudi does, which reads no keys."""


class RetentionArguments(TypedDict, total=False):
    """What a clean keeps. Give one of them."""

    retain_commits: int | None
    """All files that readers of so many last writes need. Default: not asked."""
    retain_hours: float | None
    """All files that readers of the writes of so many last hours need. Default: not asked."""
    retain_versions: int | None
    """So many versions of every file group. Default: not asked."""


class MaintenanceArguments(TypedDict, total=False):
    """A `Maintenance` in words, for commands and SQL: a service runs if one of its words is given."""

    compact_delta_commits: int | None
    """As `delta_commits` of a compaction. Default: not asked."""
    compact_log_bytes: int | None
    """As `log_bytes` of a compaction. Default: not asked."""
    compact_log_ratio: float | None
    """As `log_ratio` of a compaction. Default: not asked."""
    compact_hours: float | None
    """As `hours` of a compaction. Default: not asked."""
    resize_file_bytes: int | None
    """As `file_bytes` of a resize. Default: no resize."""
    clean_commits: int | None
    """As `retain_commits` of a clean. Default: not asked."""
    clean_hours: float | None
    """As `retain_hours` of a clean. Default: not asked."""
    clean_versions: int | None
    """As `retain_versions` of a clean. Default: not asked."""
    archive_min: int | None
    """As `keep_min` of an archive. Default: no archive."""
    archive_max: int | None
    """As `keep_max` of an archive. Default: no archive."""


class RulesArguments(TypedDict, total=False):
    """How a table gets other bucket rules."""

    bucket_number: int | None
    """The count of partitions that no rule matches. Default: the present one."""
    rule_type: str
    """`regex`, `range`, or a type that you have registered. Default: `regex`, which Hudi knows."""
    budget_bytes: int
    """A task holds rows up to so many bytes, and at least those of one new bucket. Default: 256 MiB, so that a few
    tasks fit into a small executor."""


def check_query(query: QueryArguments) -> None:
    """Refuse what cannot be asked of a read. `make_query` checks the rest, against the table."""
    given.known(query, QueryArguments)
    for name in ("meta_columns", "read_optimized"):
        if name in query:
            given.flag(query[name], name)


def parsed_on_unmaintained(value: str) -> OnUnmaintained:
    words = [str(word) for word in OnUnmaintained]
    if value not in words:
        raise ConfigError(f"on_unmaintained is {value!r}; expected one of {', '.join(words)}.")
    return OnUnmaintained(value)


def compaction_trigger(when: CompactionArguments) -> CompactionTrigger:
    given.numbers(when, CompactionArguments)
    return CompactionTrigger(**when)


def clustering_trigger(which: ClusteringArguments) -> ClusteringTrigger:
    given.numbers(which, ClusteringArguments, others=("partitions",))
    partitions = which.get("partitions")
    return ClusteringTrigger(
        min_bytes=which.get("min_bytes"),
        max_bytes=which.get("max_bytes"),
        hours=which.get("hours"),
        partitions=None if partitions is None else given.names(partitions, "partitions"),
    )


def retention(retain: RetentionArguments) -> Retention:
    given.numbers(retain, RetentionArguments)
    return Retention(
        commits=retain.get("retain_commits"),
        hours=retain.get("retain_hours"),
        versions=retain.get("retain_versions"),
    )


def checked_maintenance(value: Maintenance) -> Maintenance:
    if not isinstance(value, Maintenance):
        raise ConfigError(f"maintenance is {shown(value)}; expected a bucketlake.Maintenance.")
    return value


def parsed_table_type(name: TableType | str) -> TableType:
    found = TableType.of_word(name) if isinstance(name, str) else None
    if found is None:
        raise ConfigError(f"table_type is {name!r}; expected cow, mor, {' or '.join(TableType)}.")
    return found


def parsed_log_format(name: LogFormat | str) -> LogFormat:
    try:
        return LogFormat(name)
    except ValueError:
        known = ", ".join(LogFormat)
        raise ConfigError(f"log_format is {name!r}; expected one of {known}.") from None


def change_feed(options: WriteArguments, operation: Operation) -> ChangeFeed | None:
    """Make what rows say of themselves of `op` and `op_words`; None if they say nothing."""
    column, words = options.get("op"), options.get("op_words")
    if column is None and words is None:
        return None
    if operation is not Operation.UPSERT:
        raise ConfigError(
            f"op and op_words are for upsert only, where rows may say that they are deleted; this is "
            f"{operation.lower()!r}. Leave them out, or upsert the rows."
        )
    if column is None:
        raise ConfigError(f"op_words is {shown(words)}, and op does not name the column that has such words.")
    if not isinstance(words, Mapping | None) or not all(isinstance(word, str) for word in words or ()):
        raise ConfigError(
            f"op_words is {shown(words)}; expected a mapping of texts, such as {{'X': 'delete'}}."
        )
    return ChangeFeed.of(given.text(column, "op"), words)


def resize_trigger(arguments: ResizeArguments) -> ResizeTrigger:
    given.numbers(arguments, ResizeArguments, others=("partitions", "policy"))
    asked: dict[str, Any] = dict(arguments)
    partitions, policy = asked.get("partitions"), asked.get("policy", "middle")
    if isinstance(policy, str):
        if policy not in POLICIES:
            raise ConfigError(f"policy is {policy!r}; expected one of {', '.join(POLICIES)}, or a function.")
        policy = POLICIES[policy]
    chosen = None if partitions is None else given.names(partitions, "partitions")
    return ResizeTrigger(**{**asked, "partitions": chosen, "policy": policy})


def maintenance_for(properties: TableProperties, words: MaintenanceArguments) -> Maintenance:
    """Choose the services that something is said of; without a word, what the table gets from its writers."""
    is_said = any(value is not None for value in words.values())
    if not is_said and maintenance_mode(properties) is not MaintenanceMode.OFF:
        return maintenance_of(properties)
    return _in_words(words)


def _in_words(words: MaintenanceArguments) -> Maintenance:
    """Choose the services that something is said of; ConfigError if there is none."""
    given.numbers(words, MaintenanceArguments)
    said = {name: value for name, value in words.items() if value is not None}
    if not said:
        raise ConfigError(
            f"nothing to do was named; expected at least one of {', '.join(MaintenanceArguments.__annotations__)}. Or "
            f"let the table say it: table.alter(maintenance='service')."
        )

    def of(service: str) -> dict[str, Any]:
        return {
            name.removeprefix(f"{service}_"): value
            for name, value in said.items()
            if name.startswith(service)
        }

    archive = of("archive")
    if archive and len(archive) < 2:
        raise ConfigError(f"archive_min and archive_max belong together; found {', '.join(said)}. Give both.")
    return Maintenance(
        compact=CompactionTrigger(**of("compact")) if of("compact") else None,
        resize=ResizeTrigger(**of("resize")) if of("resize") else None,
        clean=Retention(**of("clean")) if of("clean") else None,
        archive=(archive["min"], archive["max"]) if archive else None,
    )
