"""Random tables, made by Hudi on the JVM, with its answers to every kind of query.

    describe(random.Random(7))  ->  TableDescription    a value: what the table is, and what happens to it
    build(hudi, it, folder)     ->  BuiltTable          the table on disk
    built.queries()             ->  Query, ...          what a reader can be asked about it
    built.expected(query)       ->  pa.Table            what Hudi answers

A description is all there is: rows come from its seed, so pasting its `repr` into a test builds the same table
again, and `dataclasses.replace(it, steps=...)` makes it smaller.

The draw respects what Hudi 1.2.0 itself refuses; each rule stands where it is applied. What it cannot foresee ends
the build early with `BuiltTable.refusal`: a table with a failed write on it is a table too.
"""

from __future__ import annotations

import datetime
import random
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from enum import StrEnum
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from judges.hudi_jvm import QUIET, HudiJvm, JudgeError

DELETE_FIELD = "_hoodie_is_deleted"
KEYS_IN_POOL = 16
ROWS_PER_WRITE_MAX = 12


class Step(StrEnum):
    """What can happen to a table."""

    UPSERT = "upsert"  # new, updated and late rows, as chance has it
    BULK_INSERT = "bulk insert"
    DELETE = "delete"
    SOFT_DELETE = "soft delete"  # an upsert whose rows may carry `_hoodie_is_deleted`
    INSERT_OVERWRITE = "insert overwrite"
    DELETE_PARTITION = "delete partition"
    ADD_COLUMN = "add column"  # each of these three is an upsert with a wider schema,
    ADD_FIELD = "add field"  # and later writes keep it
    WIDEN_COLUMN = "widen column"
    PARTIAL_UPDATE = "partial update"  # MERGE INTO some columns
    SCHEDULE_COMPACTION = "schedule compaction"
    COMPACT = "compact"  # what is scheduled, or everything
    SCHEDULE_CLUSTERING = "schedule clustering"
    CLUSTER = "cluster"
    CLEAN = "clean"
    SAVEPOINT = "savepoint"
    ROLLBACK = "rollback"  # of the newest commit
    ARCHIVE = "archive"


class Engine(StrEnum):
    """How keys find their file group."""

    SIMPLE_BUCKETS = "simple buckets"
    PARTITION_BUCKETS = "partition buckets"
    CONSISTENT_BUCKETS = "consistent buckets"
    SIMPLE_INDEX = "simple index"  # no buckets; record positions in log blocks


@dataclass(frozen=True, slots=True, kw_only=True)
class TableDescription:
    """A table and its history."""

    seed: int
    """Of the rows. Everything else that was drawn stands in the other fields."""
    steps: tuple[Step, ...]
    table_type: str = "COPY_ON_WRITE"
    table_version: int = 9
    key_columns: tuple[str, ...] = ("id",)
    """Of `KEY_TYPES`."""
    partition_columns: tuple[str, ...] = ("p_text",)
    """Of `PARTITION_TYPES`."""
    key_generator: str = "SimpleKeyGenerator"
    hive_style: bool = False
    url_encode: bool = False
    engine: Engine = Engine.SIMPLE_BUCKETS
    bucket_count: int = 4
    hash_columns: tuple[str, ...] | None = None
    """A subset of the key; None is all of it."""
    ordering: tuple[str, ...] = ("long",)
    """Types of the ordering columns, of `ORDERING_VALUES`; none means no ordering columns."""
    value_types: tuple[str, ...] = ("string",)
    """Of `VALUES`; each gives a column `v_<type>`."""
    widened_type: str = "long"
    """What `WIDEN_COLUMN` makes of the column `grows`, an int."""
    log_format: str = "avro"
    metadata_table: bool = False

    @property
    def ordering_columns(self) -> tuple[str, ...]:
        return tuple(f"ord{number}" for number in range(len(self.ordering)))

    @property
    def merge_mode(self) -> str:
        """Not a choice: Hudi persists this one whatever is asked for, and refuses the next writer that asks again."""
        return "EVENT_TIME_ORDERING" if self.ordering else "COMMIT_TIME_ORDERING"

    @property
    def is_merge_on_read(self) -> bool:
        return self.table_type == "MERGE_ON_READ"

    def write_options(self) -> dict[str, str]:
        """The options of every write to this table."""
        options = {
            **QUIET,
            "hoodie.table.name": "described",
            "hoodie.datasource.write.table.type": self.table_type,
            "hoodie.write.table.version": str(self.table_version),
            "hoodie.write.auto.upgrade": "false",
            "hoodie.write.complex.keygen.validation.enable": "false",  # its warning is about tables of old releases
            "hoodie.metadata.index.column.stats.enable": "false",
            "hoodie.metadata.index.partition.stats.enable": "false",
            "hoodie.datasource.write.recordkey.field": ",".join(self.key_columns),
            "hoodie.datasource.write.partitionpath.field": self._partition_field(),
            "hoodie.datasource.write.keygenerator.class": f"org.apache.hudi.keygen.{self.key_generator}",
            "hoodie.datasource.write.hive_style_partitioning": str(self.hive_style).lower(),
            "hoodie.datasource.write.partitionpath.urlencode": str(self.url_encode).lower(),
            "hoodie.record.merge.mode": self.merge_mode,
            "hoodie.metadata.enable": str(self.metadata_table).lower(),
            "hoodie.logfile.data.block.format": self.log_format,
        }
        if self.ordering:
            options["hoodie.table.ordering.fields"] = ",".join(self.ordering_columns)
        if self.key_generator == "TimestampBasedKeyGenerator":
            options["hoodie.keygen.timebased.timestamp.type"] = "EPOCHMILLISECONDS"
            options["hoodie.keygen.timebased.output.dateformat"] = "yyyy-MM-dd"
        return {**options, **self._index_options()}

    def _partition_field(self) -> str:
        if self.key_generator == "CustomKeyGenerator":
            return ",".join(f"{name}:SIMPLE" for name in self.partition_columns)
        return ",".join(self.partition_columns)

    def _index_options(self) -> dict[str, str]:
        if self.engine is Engine.SIMPLE_INDEX:
            return {"hoodie.index.type": "SIMPLE"}
        options = {"hoodie.index.type": "BUCKET", "hoodie.bucket.index.num.buckets": str(self.bucket_count)}
        if self.hash_columns is not None:
            options["hoodie.bucket.index.hash.field"] = ",".join(self.hash_columns)
        if self.engine is Engine.PARTITION_BUCKETS:
            options["hoodie.bucket.index.partition.rule.type"] = "regex"
            options["hoodie.bucket.index.partition.expressions"] = PARTITION_RULES
        if self.engine is Engine.CONSISTENT_BUCKETS:
            options |= CONSISTENT_OPTIONS
        return options


PARTITION_RULES = "(a|7|2024-01-0[12]),3;(b|8),5"

CONSISTENT_OPTIONS = {
    "hoodie.index.bucket.engine": "CONSISTENT_HASHING",
    "hoodie.bucket.index.min.num.buckets": "2",
    "hoodie.bucket.index.max.num.buckets": "8",
    "hoodie.parquet.max.file.size": "1000",  # every bucket is too large, so a resize splits
    "hoodie.clustering.plan.strategy.class": (
        "org.apache.hudi.client.clustering.plan.strategy.SparkConsistentBucketClusteringPlanStrategy"
    ),
    "hoodie.clustering.execution.strategy.class": (
        "org.apache.hudi.client.clustering.run.strategy.SparkConsistentBucketClusteringExecutionStrategy"
    ),
    "hoodie.clustering.updates.strategy": (
        "org.apache.hudi.client.clustering.update.strategy.SparkConsistentBucketDuplicateUpdateStrategy"
    ),
}


# ── columns and their values ────────────────────────────────────────────────────────────────────────────────────────

KEY_TYPES: Mapping[str, pa.DataType] = {"id": pa.int32(), "name": pa.string(), "sub": pa.string()}
PARTITION_TYPES: Mapping[str, pa.DataType] = {
    "p_text": pa.string(),
    "p_number": pa.int32(),
    "p_day": pa.date32(),
    "p_millis": pa.int64(),  # for the timestamp key generator
}

ODD_NAMES = ("", "a:b", "c,d", "é", "日本", "\N{WATER WAVE}", "__null__", " x ")
ODD_PARTITIONS = ("a/b", "c d", "e=1", "é%", "日本")

DAY = datetime.date(2024, 1, 1)
MOMENT = datetime.datetime(2024, 1, 2, 3, 4, 5, 678901)

ORDERING_VALUES: Mapping[str, tuple[pa.DataType, Callable[[int], Any]]] = {
    "int": (pa.int32(), lambda n: n - 3),
    "long": (pa.int64(), lambda n: n * 10**10),
    "string": (pa.string(), lambda n: f"v{n}"),
    "double": (pa.float64(), lambda n: n / 4 - 1),
    "decimal": (pa.decimal128(12, 3), lambda n: Decimal(n - 2) / 8),
    "date": (pa.date32(), lambda n: DAY + datetime.timedelta(days=n)),
    "timestamp": (pa.timestamp("us", tz="UTC"), lambda n: MOMENT + datetime.timedelta(microseconds=n)),
}


def _wide(rng: random.Random) -> int:
    return rng.choice([0, 1, -1, rng.randrange(-(2**31), 2**31)])


PAIR = pa.struct([("x", pa.int32()), ("y", pa.string())])
"""Never one field only in a list: Hudi writes such a list and then can't update it."""

VALUES: Mapping[str, tuple[pa.DataType, Callable[[random.Random], Any]]] = {
    "boolean": (pa.bool_(), lambda rng: rng.random() < 0.5),
    "int": (pa.int32(), _wide),
    "long": (pa.int64(), lambda rng: _wide(rng) * 2**31),
    "float": (pa.float32(), lambda rng: rng.choice([0.1, -0.0, 1e30, float("inf"), float("nan")])),
    "double": (pa.float64(), lambda rng: rng.choice([0.1, -0.0, 1e300, float("-inf"), float("nan")])),
    "decimal": (pa.decimal128(9, 2), lambda rng: Decimal(rng.randrange(-(10**8), 10**8)).scaleb(-2)),
    "wide_decimal": (pa.decimal128(38, 10), lambda rng: Decimal(rng.randrange(10**24)).scaleb(-10)),
    "string": (pa.string(), lambda rng: rng.choice([*ODD_NAMES, f"text {_wide(rng)}"])),
    "binary": (pa.binary(), lambda rng: rng.randbytes(rng.randrange(4))),
    "date": (pa.date32(), lambda rng: DAY - datetime.timedelta(days=rng.randrange(40_000))),
    "timestamp": (
        pa.timestamp("us", tz="UTC"),
        lambda rng: MOMENT - datetime.timedelta(microseconds=rng.randrange(3 * 10**15)),
    ),
    "timestamp_ntz": (
        pa.timestamp("us"),
        lambda rng: MOMENT - datetime.timedelta(microseconds=rng.randrange(3 * 10**15)),
    ),
    "array": (pa.list_(pa.int32()), lambda rng: [_wide(rng) for _ in range(rng.randrange(3))]),
    "map": (pa.map_(pa.string(), pa.int64()), lambda rng: _map(rng, lambda: rng.choice([None, _wide(rng)]))),
    "struct": (PAIR, lambda rng: _pair(rng)),
    "array_of_structs": (pa.list_(PAIR), lambda rng: [_pair(rng) for _ in range(rng.randrange(3))]),
    "map_of_arrays": (
        pa.map_(pa.string(), pa.list_(pa.float64())),
        lambda rng: _map(rng, lambda: [0.5] * rng.randrange(3)),
    ),
    "nested": (
        pa.struct(
            [("pair", PAIR), ("list", pa.list_(pa.string())), ("map", pa.map_(pa.string(), pa.int64()))]
        ),
        lambda rng: {
            "pair": rng.choice([None, _pair(rng)]),
            "list": rng.choice([None, [], ["a", ""]]),
            "map": _map(rng, lambda: 1),
        },
    ),
}


def _pair(rng: random.Random) -> dict[str, Any]:
    return {"x": rng.choice([None, _wide(rng)]), "y": rng.choice([None, "", "é"])}


def _map(rng: random.Random, value: Callable[[], Any]) -> list[tuple[str, Any]]:
    return [(key, value()) for key in ("k", "l")[: rng.randrange(3)]]


# ── drawing a description ───────────────────────────────────────────────────────────────────────────────────────────


def describe(rng: random.Random, *, exotic: bool = False) -> TableDescription:
    """Draw a table that Hudi should be able to make.

    `exotic` adds what Hudi's own reader treats strangely: the timestamp key generator, whose partition column comes
    back as text, and a column that widens to text.
    """
    table_version = rng.choice([9, 9, 9, 8, 6])
    # Hudi refuses consistent hashing on a copy-on-write table.
    table_type = rng.choice(["COPY_ON_WRITE", "MERGE_ON_READ", "MERGE_ON_READ"])
    engines = [Engine.SIMPLE_BUCKETS, Engine.PARTITION_BUCKETS, Engine.SIMPLE_INDEX]
    engine = rng.choice([*engines, Engine.CONSISTENT_BUCKETS] if table_type == "MERGE_ON_READ" else engines)
    partition_count = rng.choice([1, 1, 2] if engine is Engine.PARTITION_BUCKETS else [0, 1, 1, 2])
    partition_columns = tuple(rng.sample(["p_text", "p_number", "p_day"], partition_count))
    key_columns = rng.choice([("id",), ("id",), ("name",), ("id", "sub"), ("name", "sub")])
    key_generator = _draw_key_generator(rng, key_columns, partition_columns)
    if exotic and rng.random() < 0.3:
        key_columns, partition_columns, key_generator = ("id",), ("p_millis",), "TimestampBasedKeyGenerator"
    ordering = _draw_ordering(rng, table_type, table_version)
    description = TableDescription(
        seed=rng.randrange(2**32),
        steps=(Step.UPSERT,),
        table_type=table_type,
        table_version=table_version,
        key_columns=key_columns,
        partition_columns=partition_columns,
        key_generator=key_generator,
        hive_style=rng.random() < 0.4,
        url_encode=rng.random() < 0.4,
        engine=engine,
        bucket_count=rng.choice([2, 4] if engine is Engine.CONSISTENT_BUCKETS else [1, 2, 4, 7]),
        hash_columns=(rng.choice(key_columns),) if len(key_columns) > 1 and rng.random() < 0.5 else None,
        ordering=ordering,
        value_types=tuple(rng.sample(sorted(VALUES), rng.randrange(1, 5))),
        widened_type=rng.choice(["long", "double", "string"] if exotic else ["long", "double"]),
        log_format=rng.choice(["avro", "parquet"]),
        metadata_table=rng.random() < 0.1,
    )
    return replace(description, steps=_draw_steps(rng, description))


def _draw_key_generator(
    rng: random.Random, key_columns: Sequence[str], partition_columns: Sequence[str]
) -> str:
    if not partition_columns:
        return "NonpartitionedKeyGenerator"
    fitting = ["ComplexKeyGenerator", "CustomKeyGenerator"]
    if len(key_columns) == 1 and len(partition_columns) == 1:
        fitting += ["SimpleKeyGenerator"] * 3
    return rng.choice(fitting)


def _draw_ordering(rng: random.Random, table_type: str, table_version: int) -> tuple[str, ...]:
    types = sorted(ORDERING_VALUES)
    # A writer that merges reads these back as other Java classes than it compares them with.
    if table_type == "COPY_ON_WRITE" or table_version == 6:
        types.remove("date")
        types.remove("decimal")
    if rng.random() < 0.15:
        return ()
    if table_version >= 9 and rng.random() < 0.15:
        return (rng.choice(types), rng.choice(types))
    return (rng.choice(types),)


# Services need rows to work on, and what moves rows between files is what readers stumble over.
LIKELY = {
    Step.UPSERT: 4,
    Step.COMPACT: 3,
    Step.CLUSTER: 3,
    Step.SCHEDULE_CLUSTERING: 3,
    Step.SCHEDULE_COMPACTION: 2,
    Step.PARTIAL_UPDATE: 2,
    Step.ROLLBACK: 2,
}


def _draw_steps(rng: random.Random, description: TableDescription) -> tuple[Step, ...]:
    first = rng.choice([Step.UPSERT, Step.UPSERT, Step.UPSERT, Step.BULK_INSERT])
    if description.engine is Engine.CONSISTENT_BUCKETS:
        first = Step.UPSERT
    steps = [first]
    for _ in range(rng.randrange(2, 6)):
        possible = possible_steps(description, steps)
        steps += rng.choices(possible, [LIKELY.get(step, 1) for step in possible])
    return tuple(steps)


def possible_steps(description: TableDescription, done: Sequence[Step]) -> list[Step]:
    """Return what Hudi 1.2.0 can do next to such a table."""
    if _is_pending(done, Step.SCHEDULE_CLUSTERING, Step.CLUSTER):
        return [Step.UPSERT, Step.CLUSTER]
    steps = _possible_writes(description, done)
    # SQL takes several ordering fields for one column named "ord0,ord1", and services are called by SQL.
    if len(description.ordering) < 2:
        steps += _possible_services(description, done)
    return steps


def _possible_writes(description: TableDescription, done: Sequence[Step]) -> list[Step]:
    steps = [Step.UPSERT, Step.DELETE]
    # A delete block has no wrapper for a lone date as ordering value.
    if "date" not in description.ordering:
        steps.append(Step.SOFT_DELETE)
    if Step.ADD_COLUMN not in done:
        steps.append(Step.ADD_COLUMN)
    if Step.WIDEN_COLUMN not in done:
        steps.append(Step.WIDEN_COLUMN)
    if "struct" in description.value_types and Step.ADD_FIELD not in done:
        steps.append(Step.ADD_FIELD)
    # A partition with pending work can't be replaced.
    if not _is_pending(done, Step.SCHEDULE_COMPACTION, Step.COMPACT):
        steps.append(Step.INSERT_OVERWRITE)
        if description.partition_columns:
            steps.append(Step.DELETE_PARTITION)
    return steps


def _possible_services(description: TableDescription, done: Sequence[Step]) -> list[Step]:
    steps = [Step.CLEAN, Step.SAVEPOINT, Step.ARCHIVE]
    is_compaction_pending = _is_pending(done, Step.SCHEDULE_COMPACTION, Step.COMPACT)
    if description.is_merge_on_read:
        steps.append(Step.COMPACT)
        if not is_compaction_pending:
            steps.append(Step.SCHEDULE_COMPACTION)
    # In table version 6 Hudi asks MERGE INTO for all columns, and rolls back by a timeline folder that is not there.
    if description.table_version >= 8:
        # A reader gives the timestamp key generator's column back as text, which matches nothing.
        if "p_millis" not in description.partition_columns:
            steps.append(Step.PARTIAL_UPDATE)
        if done[-1] in {Step.UPSERT, Step.DELETE} and len(done) > 1 and not is_compaction_pending:
            steps.append(Step.ROLLBACK)
    # "not compatible with table layout HoodieSimpleBucketLayout"
    if description.engine is Engine.SIMPLE_INDEX and not is_compaction_pending:
        steps.append(Step.CLUSTER)
    if description.engine is Engine.CONSISTENT_BUCKETS and not is_compaction_pending:
        steps.append(Step.SCHEDULE_CLUSTERING)
    return steps


def _is_pending(done: Sequence[Step], schedule: Step, run: Step) -> bool:
    last = [step for step in done if step in {schedule, run}][-1:]
    return last == [schedule]


# ── queries ─────────────────────────────────────────────────────────────────────────────────────────────────────────


class QueryKind(StrEnum):
    SNAPSHOT = "snapshot"
    AS_OF = "as of"
    INCREMENTAL = "incremental"
    READ_OPTIMIZED = "read optimized"


@dataclass(frozen=True, slots=True)
class Query:
    """A question to a reader, in no reader's language."""

    kind: QueryKind
    as_of: str | None = None
    """The requested time of an instant."""
    after: str | None = None
    """Incremental: commits completed after this time..."""
    until: str | None = None
    """...and not after this one."""

    def hudi_options(self) -> dict[str, str]:
        """The same question to Hudi's Spark reader."""
        match self.kind:
            case QueryKind.SNAPSHOT:
                return {}
            case QueryKind.AS_OF:
                assert self.as_of is not None
                return {"as.of.instant": self.as_of}
            case QueryKind.READ_OPTIMIZED:
                return {"hoodie.datasource.query.type": "read_optimized"}
            case QueryKind.INCREMENTAL:
                assert self.after is not None
                end = {} if self.until is None else {"hoodie.datasource.read.end.instanttime": self.until}
                return {
                    "hoodie.datasource.query.type": "incremental",
                    "hoodie.datasource.read.begin.instanttime": self.after,
                    **end,
                }


@dataclass(frozen=True, slots=True, order=True)
class CompletedInstant:
    requested: str
    completed: str
    """Table version 6 has no completion times; there it is the requested time, which its readers go by."""
    action: str


@dataclass(frozen=True, slots=True)
class BuiltStep:
    step: Step
    written: pa.Table | None
    """The rows given to Hudi, where the step is a write."""
    instants: tuple[CompletedInstant, ...]
    """Commits on the active timeline when the step was done."""
    snapshot: pa.Table | None
    """What Hudi's reader saw then, if the caller asked for it."""


@dataclass(frozen=True, slots=True)
class BuiltTable:
    """A table on disk, and Hudi's answers about it."""

    path: Path
    description: TableDescription
    steps: tuple[BuiltStep, ...]
    refusal: str | None
    """Why Hudi ended the history early, if it did."""
    _hudi: HudiJvm
    _answers: dict[Query, pa.Table] = field(default_factory=dict)

    @property
    def instants(self) -> tuple[CompletedInstant, ...]:
        """The commits that can be travelled to: on the active timeline, and with no file cleaned away since."""
        floor = ""
        for before, step in pairwise(self.steps):
            if step.step is Step.CLEAN:
                floor = max((instant.requested for instant in before.instants), default="")
        return tuple(instant for instant in completed_instants(self.path) if instant.requested >= floor)

    def queries(self) -> tuple[Query, ...]:
        """Return the questions that have one right answer on this table."""
        return tuple(self._queries())

    def expected(self, query: Query) -> pa.Table:
        """Return Hudi's answer, meta columns included; asked once."""
        if query not in self._answers:
            self._answers[query] = self._hudi.read(self.path, query.hudi_options())
        return self._answers[query]

    def _queries(self) -> Iterator[Query]:
        instants = self.instants
        yield Query(QueryKind.SNAPSHOT)
        if self.description.is_merge_on_read:
            yield Query(QueryKind.READ_OPTIMIZED)
        for instant in instants:
            yield Query(QueryKind.AS_OF, as_of=instant.requested)
        # Where a range holds a partial update and not the row beneath it, Hudi's reader gives garbage or fails.
        if self.description.is_merge_on_read and Step.PARTIAL_UPDATE in self.description.steps:
            return
        by_completion = sorted(instant.completed for instant in instants)
        if by_completion:
            yield Query(QueryKind.INCREMENTAL, after=by_completion[0])
            yield Query(QueryKind.INCREMENTAL, after=by_completion[-1])
        for after, until in pairwise(by_completion):
            yield Query(QueryKind.INCREMENTAL, after=after, until=until)


COMMIT_FILE = re.compile(
    r"(?P<requested>\d+)(_(?P<completed>\d+))?\.(?P<action>commit|deltacommit|replacecommit)"
)


def completed_instants(path: Path) -> tuple[CompletedInstant, ...]:
    """Return the completed commits of the active timeline, oldest first."""
    folder = path / ".hoodie" / "timeline"
    if not folder.exists():  # table version 6
        folder = path / ".hoodie"
    if not folder.exists():
        return ()
    matches = filter(None, (COMMIT_FILE.fullmatch(file.name) for file in folder.iterdir()))
    return tuple(
        sorted(
            CompletedInstant(m["requested"], m["completed"] or m["requested"], m["action"]) for m in matches
        )
    )


# ── building ────────────────────────────────────────────────────────────────────────────────────────────────────────


def build(hudi: HudiJvm, description: TableDescription, path: Path, *, snapshots: bool = False) -> BuiltTable:
    """Let Hudi make the table in the new folder `path`; with `snapshots`, read it after every step."""
    builder = _Builder(hudi, description, path)
    steps: list[BuiltStep] = []
    refusal = None
    for number, step in enumerate(description.steps):
        try:
            written = builder.take(step, random.Random(f"{description.seed} {number}"))
        except JudgeError as error:
            refusal = f"step {number}, {step}: {error}"
            break
        snapshot = hudi.read(path) if snapshots else None
        steps.append(BuiltStep(step, written, completed_instants(path), snapshot))
    return BuiltTable(path, description, tuple(steps), refusal, hudi)


class _Builder:
    """A table in the making: its schema so far, and the keys it has seen."""

    def __init__(self, hudi: HudiJvm, description: TableDescription, path: Path) -> None:
        self._hudi = hudi
        self._description = description
        self._path = path
        self._options = description.write_options()
        self._schema = _first_schema(description)
        self._seen: dict[tuple[Any, ...], dict[str, Any]] = {}

    def take(self, step: Step, rng: random.Random) -> pa.Table | None:
        match step:
            case Step.UPSERT | Step.SOFT_DELETE:
                return self._write("upsert", self._rows(rng, soft_deletes=step is Step.SOFT_DELETE))
            case Step.BULK_INSERT | Step.INSERT_OVERWRITE:
                return self._write(step.replace(" ", "_"), self._rows(rng))
            case Step.DELETE:
                return self._write("delete", self._rows(rng, known_only=True))
            case Step.ADD_COLUMN | Step.WIDEN_COLUMN | Step.ADD_FIELD:
                self._schema = _evolved(self._schema, step, self._description)
                return self._write("upsert", self._rows(rng))
            case Step.PARTIAL_UPDATE:
                return self._merge_into(rng)
            case Step.DELETE_PARTITION:
                self._delete_partition(rng)
            case _:
                self._run_service(step)
        return None

    def _write(self, operation: str, rows: pa.Table) -> pa.Table:
        self._hudi.write(self._path, rows, self._options, operation=operation)
        return rows

    def _merge_into(self, rng: random.Random) -> pa.Table:
        """Update `grows` and the ordering columns of rows that are there.

        Hudi writes a partial row for every source row, matched or not, and reads one with no row beneath it as garbage.
        """
        description = self._description
        live = self._hudi.read(self._path).select(self._place_columns).drop_null().to_pylist()
        chosen = rng.sample(live, min(len(live), 4))
        assigned = ["grows", *description.ordering_columns]
        columns = [*self._place_columns, *assigned]
        rows = [self._row(rng, soft_deletes=False) | place for place in chosen]
        source = pa.Table.from_pylist(rows, schema=self._schema).select(columns)
        source_path = self._path.with_name(f"{self._path.name}-merge-source.parquet")
        pq.write_table(source, source_path)
        self._sql(
            f"MERGE INTO described t USING (SELECT * FROM parquet.`{source_path}`) s "
            f"ON {' AND '.join(f't.{name} = s.{name}' for name in self._place_columns)} "
            f"WHEN MATCHED THEN UPDATE SET {', '.join(f'{name} = s.{name}' for name in assigned)}"
        )
        source_path.unlink()
        return source

    def _delete_partition(self, rng: random.Random) -> None:
        """Name a partition as its folder is called; Hudi knows where it put each row."""
        known = self._hudi.read(self._path).column("_hoodie_partition_path").unique().to_pylist()
        if not known:
            return
        options = {**self._options, "hoodie.datasource.write.partitions.to.delete": rng.choice(sorted(known))}
        self._hudi.write(self._path, self._rows(rng), options, operation="delete_partition")

    def _run_service(self, step: Step) -> None:
        newest = completed_instants(self._path)[-1].requested
        match step:
            case Step.SCHEDULE_COMPACTION:
                self._sql("CALL run_compaction(op => 'schedule', table => 'described')")
            case Step.COMPACT:
                self._sql("CALL run_compaction(op => 'run', table => 'described')")
                self._sql("CALL run_compaction(op => 'scheduleAndExecute', table => 'described')")
            case Step.SCHEDULE_CLUSTERING:
                self._sql("CALL run_clustering(op => 'schedule', table => 'described')")
            case Step.CLUSTER if self._description.engine is Engine.CONSISTENT_BUCKETS:
                self._sql("CALL run_clustering(op => 'execute', table => 'described')")
            case Step.CLUSTER:
                self._sql("CALL run_clustering(op => 'scheduleAndExecute', table => 'described')")
            case Step.CLEAN:
                self._sql("CALL run_clean(table => 'described', retain_commits => 1)")
            case Step.SAVEPOINT:
                self._sql(f"CALL create_savepoint(table => 'described', commit_time => '{newest}')")
            case Step.ROLLBACK:
                self._sql(f"CALL rollback_to_instant(table => 'described', instant_time => '{newest}')")
            case Step.ARCHIVE:
                self._sql(
                    "CALL archive_commits(table => 'described', min_commits => 2, max_commits => 3, "
                    "retain_commits => 1, enable_metadata => false)"
                )
            case _:
                raise AssertionError(step)

    def _sql(self, statement: str) -> None:
        """Run SQL on the table under a name it has only for so long; most procedures take no path."""
        self._hudi.sql(
            f"CREATE TABLE described USING hudi LOCATION '{self._path}'", settings=self._sql_settings
        )
        try:
            self._hudi.sql(statement, settings=self._sql_settings)
        finally:
            self._hudi.sql("DROP TABLE described")

    @property
    def _sql_settings(self) -> dict[str, str]:
        """The write options that SQL does not find in the table, and compaction at once."""
        own = {name: value for name, value in self._options.items() if ".datasource." not in name}
        return {**own, "hoodie.compact.inline.max.delta.commits": "1"}

    def _rows(self, rng: random.Random, *, soft_deletes: bool = False, known_only: bool = False) -> pa.Table:
        rows: dict[tuple[Any, ...], dict[str, Any]] = {}
        for _ in range(rng.randrange(1, ROWS_PER_WRITE_MAX + 1)):
            row = self._row(rng, soft_deletes=soft_deletes)
            if known_only and self._seen:
                row |= rng.choice(list(self._seen.values()))
            place = {name: row[name] for name in self._place_columns}
            # One row per key and batch: which of two equals wins is nobody's promise.
            rows[tuple(place.values())] = row
            self._seen.setdefault(tuple(place.values()), place)
        return pa.Table.from_pylist(list(rows.values()), schema=self._schema)

    @property
    def _place_columns(self) -> tuple[str, ...]:
        return (*self._description.key_columns, *self._description.partition_columns)

    def _row(self, rng: random.Random, *, soft_deletes: bool) -> dict[str, Any]:
        description = self._description
        row: dict[str, Any] = {name: self._key_value(rng, name) for name in description.key_columns}
        row |= {name: self._partition_value(rng, name) for name in description.partition_columns}
        for name, kind in zip(description.ordering_columns, description.ordering, strict=True):
            row[name] = ORDERING_VALUES[kind][1](rng.randrange(8))
        for kind in description.value_types:
            row[f"v_{kind}"] = VALUES[kind][1](rng) if rng.random() < 0.8 else None
        row["grows"] = rng.choice([None, rng.randrange(100)])
        row["added"] = rng.choice([None, "here"])
        if DELETE_FIELD in self._schema.names:
            row[DELETE_FIELD] = soft_deletes and rng.random() < 0.5
        if pa.types.is_string(self._schema.field("grows").type) and row["grows"] is not None:
            row["grows"] = str(row["grows"])
        return row

    def _key_value(self, rng: random.Random, name: str) -> Any:
        number = rng.randrange(KEYS_IN_POOL)
        if name == "id":
            return number
        if name == "sub":
            return rng.choice([None, "", "s", "é"])
        # Never empty: Hudi refuses a key whose every piece is null or empty, and `sub` may be.
        odd = ODD_NAMES[1:]
        return odd[number] if number < len(odd) else f"name-{number}"

    def _partition_value(self, rng: random.Random, name: str) -> Any:
        if name == "p_number":
            return rng.choice([7, 8, None])
        if name == "p_day":
            return DAY + datetime.timedelta(days=rng.randrange(3))
        if name == "p_millis":
            return 1_704_164_645_678 + rng.randrange(2) * 86_400_000
        # Unless they are encoded, such values can't be told from the path's own signs.
        odd = ODD_PARTITIONS if self._description.url_encode else ()
        return rng.choice(["a", "b", None, *odd])


def _first_schema(description: TableDescription) -> pa.Schema:
    fields = [(name, KEY_TYPES[name]) for name in description.key_columns]
    fields += [(f"v_{kind}", VALUES[kind][0]) for kind in description.value_types]
    fields += [
        (name, ORDERING_VALUES[kind][0])
        for name, kind in zip(description.ordering_columns, description.ordering, strict=True)
    ]
    fields += [("grows", pa.int32())]
    if Step.SOFT_DELETE in description.steps:
        fields += [(DELETE_FIELD, pa.bool_())]
    fields += [(name, PARTITION_TYPES[name]) for name in description.partition_columns]
    return pa.schema(fields)


def _evolved(schema: pa.Schema, step: Step, description: TableDescription) -> pa.Schema:
    if step is Step.ADD_COLUMN:
        return schema.append(pa.field("added", pa.string()))
    if step is Step.WIDEN_COLUMN:
        wider = {"long": pa.int64(), "double": pa.float64(), "string": pa.string()}[description.widened_type]
        return schema.set(schema.get_field_index("grows"), pa.field("grows", wider))
    longer = pa.struct([*PAIR, pa.field("z", pa.date32())])
    return schema.set(schema.get_field_index("v_struct"), pa.field("v_struct", longer))
