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
    op: str | None
    """The column that says what became of a row: inserted, updated (before, after), deleted. For `upsert` only."""
    op_words: Mapping[str, str] | None
    """A word in that column -> `insert`, `update_before`, `update_after` or `delete`, besides those known."""
    merge_schema: bool | None
    """Whether rows may change the table's columns: add some, widen a type, let one be null. None: as the table says."""
    progress: bool | None
    """Whether to show a bar while Spark works; None: if standard error is a terminal."""
    maintenance: Maintenance | str | None
    """Services to run after the commit, by whoever wrote the rows. None of them can fail the write."""


class ComputedArguments(TypedDict, total=False):
    """What may be chosen for a write whose rows are computed from the table: an update, a merge."""

    log_format: LogFormat | str
    progress: bool | None
    maintenance: Maintenance | str | None


class StreamArguments(WriteArguments, total=False):
    """What may be chosen for a stream, beside what may be for each write.

    `maintenance` is `beside` unless something else is said.
    """

    name: str
    """What people call the stream, and Spark the query."""
    identifier: str
    """By which Hudi's streaming sink knows the stream; by default the id of the query."""
    verify_replay: bool
    """Whether to count the rows of a batch that is in the table already, and refuse other ones than were committed."""
    accept_checkpoint: bool
    """Whether to go on with a checkpoint of which the table has no batch."""
    pipelined: bool
    """Whether a batch ends when its commit is decided, and is published beside the next one."""
    storage_options: Mapping[str, str] | None
    """Of the checkpoint's store."""


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


class MaintenanceArguments(TypedDict, total=False):
    """A `Maintenance` in words, for commands and statements: the services are run of which something is given."""

    compact_delta_commits: int | None
    compact_log_bytes: int | None
    compact_log_ratio: float | None
    compact_hours: float | None
    resize_file_bytes: int | None
    clean_commits: int | None
    clean_hours: float | None
    clean_versions: int | None
    archive_min: int | None
    archive_max: int | None


class RulesArguments(TypedDict, total=False):
    """How a table gets other bucket rules."""

    bucket_number: int | None
    """For partitions that no rule catches; None keeps the present one."""
    rule_type: str
    """`regex`, or another registered type."""
    budget_bytes: int
    """A task holds rows up to so many bytes, or those of one new bucket."""


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
