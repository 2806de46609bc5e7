"""Random histories of writes, and what a table must hold after each of them.

    describe_writes(random.Random(7))  ->  WriteHistory     a value: what the table is, and what is written to it
    play(history, uri)                 ->  Played, ...      the table after every step, and the model beside it

A history is all there is: rows come from its seed, so pasting its `repr` into a test writes the same rows again, and
`dataclasses.replace(it, steps=...)` makes it smaller.

`Model` is the table as dicts: partition -> bucket -> the rows of a base file, and what logs say over them. It knows
keys, buckets and which of two versions wins (docs/formats/merging.md), and nothing of files or timelines.
"""

from __future__ import annotations

import datetime
import math
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from enum import StrEnum
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from bucketlake import ConfigError, SimpleBuckets, Table, create_table
from bucketlake.index import bucket_of, hash_pieces
from bucketlake.keygen.paths import NO_VALUE, escape
from bucketlake.logfile import LogFormat
from bucketlake.storage import Store
from bucketlake.write import CommitSummary
from judges.hudi_jvm import QUIET
from judges.random_tables import DAY, DELETE_FIELD, MOMENT, PAIR, VALUES

KEYS_IN_POOL = 14
ROWS_PER_WRITE_MAX = 12

Row = dict[str, Any]


class WriteStep(StrEnum):
    """What can be written."""

    UPSERT = "upsert"  # new, updated and late rows, keys that come twice, as chance has it
    SOFT_DELETE = "soft delete"  # an upsert whose rows may carry `_hoodie_is_deleted`
    DELETE_ROWS = "delete rows"
    DELETE_KEYS = "delete keys"
    BULK_INSERT = "bulk insert"
    OVERWRITE = "overwrite"
    OVERWRITE_TABLE = "overwrite table"
    DELETE_PARTITIONS = "delete partitions"
    ADD_COLUMN = "add column"  # each of these three is an upsert with a wider schema,
    ADD_FIELD = "add field"  # and later writes keep it
    WIDEN_COLUMN = "widen column"
    NOTHING = "nothing"  # an upsert of no rows
    MISTAKE = "mistake"  # rows that must be refused, and leave no trace


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteHistory:
    """A table and what is written to it."""

    seed: int
    """Of the rows. Everything else that was drawn stands in the other fields."""
    steps: tuple[WriteStep, ...]
    table_type: str = "COPY_ON_WRITE"
    key_columns: tuple[str, ...] = ("id",)
    """Of `KEY_TYPES`."""
    hash_columns: tuple[str, ...] = ()
    """A subset of the key; none is all of it."""
    partition_columns: tuple[str, ...] = ("p_text",)
    """Of `PARTITION_TYPES`."""
    hive_style: bool = False
    url_encode: bool = False
    bucket_count: int = 4
    ordering: tuple[str, ...] = ("long",)
    """Types of the ordering columns, of `ORDERINGS`; none means the later write wins."""
    value_types: tuple[str, ...] = ("string",)
    """Of `VALUES`; each gives a column `v_<type>`."""
    added_type: str = "string"
    """What `ADD_COLUMN` adds, of `VALUES`."""
    widening: str = "int to long"
    """What `WIDEN_COLUMN` does to the column `grows`, of `WIDENINGS`."""
    has_required_column: bool = False

    @property
    def is_merge_on_read(self) -> bool:
        return self.table_type == "MERGE_ON_READ"

    @property
    def ordering_columns(self) -> tuple[str, ...]:
        return tuple(f"ord{number}" for number in range(len(self.ordering)))

    @property
    def place_columns(self) -> tuple[str, ...]:
        return (*self.key_columns, *self.partition_columns)

    @property
    def unhashed_columns(self) -> frozenset[str]:
        return frozenset(self.key_columns) - frozenset(self.hash_columns or self.key_columns)

    def schema(self) -> pa.Schema:
        """The columns at first."""
        fields = [pa.field(name, KEY_TYPES[name]) for name in self.key_columns]
        fields += [pa.field(f"v_{kind}", VALUES[kind][0]) for kind in self.value_types]
        fields += [
            pa.field(name, ORDERINGS[kind][0])
            for name, kind in zip(self.ordering_columns, self.ordering, strict=True)
        ]
        fields += [pa.field("grows", WIDENINGS[self.widening][0])]
        if self.has_required_column:
            fields += [pa.field("required", pa.int64(), nullable=False)]
        fields += [pa.field(name, PARTITION_TYPES[name]) for name in self.partition_columns]
        return pa.schema(fields)

    def create(self, uri: str) -> Table:
        return create_table(
            uri,
            self.schema(),
            name="described",
            key=self.key_columns,
            partition=self.partition_columns,
            ordering=self.ordering_columns,
            index=SimpleBuckets(self.bucket_count, self.hash_columns),
            table_type=self.table_type,
            hive_style=self.hive_style,
            url_encode=self.url_encode,
        )

    def hudi_options(self) -> dict[str, str]:
        """The options with which Hudi writes to this table."""
        options = {
            **QUIET,
            "hoodie.table.name": "described",
            "hoodie.datasource.write.table.type": self.table_type,
            "hoodie.datasource.write.recordkey.field": ",".join(self.key_columns),
            "hoodie.datasource.write.partitionpath.field": ",".join(self.partition_columns),
            "hoodie.datasource.write.hive_style_partitioning": str(self.hive_style).lower(),
            "hoodie.datasource.write.partitionpath.urlencode": str(self.url_encode).lower(),
            "hoodie.index.type": "BUCKET",
            "hoodie.bucket.index.num.buckets": str(self.bucket_count),
        }
        if self.hash_columns:
            options["hoodie.bucket.index.hash.field"] = ",".join(self.hash_columns)
        if self.ordering:
            options["hoodie.table.ordering.fields"] = ",".join(self.ordering_columns)
        return options


# ── columns and their values ────────────────────────────────────────────────────────────────────────────────────────

KEY_TYPES: Mapping[str, pa.DataType] = {
    "id": pa.int32(),
    "big": pa.int64(),
    "name": pa.string(),
    "sub": pa.string(),
    "born": pa.date32(),
    "flag": pa.bool_(),
}
PARTITION_TYPES: Mapping[str, pa.DataType] = {
    "p_text": pa.string(),
    "p_more": pa.string(),
    "p_number": pa.int32(),
    "p_day": pa.date32(),
    "p_flag": pa.bool_(),
}

ODD_NAMES = (
    "a:b",
    "c,d",
    "e,f:g",  # one colon after a comma: with two, Hudi does not find its way out
    "é",
    "e\N{COMBINING ACUTE ACCENT}",
    "日本",
    "\N{WATER WAVE}",
    "\uffff",
    "__null__",
    "__empty__",
    " x ",
    "\t\n",
    "'\"\\%41",
    "long" * 80,
)
ODD_PARTITIONS = (
    "c d",
    " ",
    "é",
    "日本",
    "\N{WATER WAVE}",
    "100%",
    "_a",
    "{b,c}",
    "*",
    "[d]?",
    NO_VALUE.lower(),
)
ODD_WHEN_ENCODED = ("a/b", "e=1", "f:g", "%41", "h\\i", "\n", "/", "#?*[]")

TIED = 8
"""Ordering values are few, so that many versions of a key are late or tie."""
FLOATS = (float("-inf"), -1.5, -0.0, 0.0, 0.5, 1e300, float("inf"), float("nan"))
WORDS = ("", "A", "a", "aa", "é", "\uffff", "\N{WATER WAVE}", "日")

ORDERINGS: Mapping[str, tuple[pa.DataType, Callable[[int], Any]]] = {
    "boolean": (pa.bool_(), lambda n: n >= TIED // 2),
    "int": (pa.int32(), lambda n: n - 3),
    "long": (pa.int64(), lambda n: (n - 3) * 10**10),
    "string": (pa.string(), lambda n: WORDS[n]),
    "float": (pa.float32(), lambda n: n / 4 - 1),
    "double": (pa.float64(), lambda n: FLOATS[n]),
    "decimal": (pa.decimal128(12, 3), lambda n: Decimal(n - 2) / 8),
    "date": (pa.date32(), lambda n: datetime.date(1970, 1, 1) + datetime.timedelta(days=n - 3)),
    "timestamp": (
        pa.timestamp("us", tz="UTC"),
        lambda n: (MOMENT + datetime.timedelta(microseconds=n)).replace(tzinfo=datetime.UTC),
    ),
    "timestamp_ntz": (pa.timestamp("us"), lambda n: MOMENT + datetime.timedelta(microseconds=n)),
}

WIDENINGS: Mapping[str, tuple[pa.DataType, pa.DataType, Callable[[random.Random], Any]]] = {
    "int to long": (pa.int32(), pa.int64(), lambda rng: rng.randrange(-(2**31), 2**31)),
    "int to double": (pa.int32(), pa.float64(), lambda rng: rng.randrange(-(2**31), 2**31)),
    "float to double": (pa.float32(), pa.float64(), lambda rng: rng.choice([0.1, 1e30, -0.0])),
    "decimal": (
        pa.decimal128(9, 2),
        pa.decimal128(12, 4),
        lambda rng: Decimal(rng.randrange(10**8)).scaleb(-2),
    ),
}


# ── drawing a history ───────────────────────────────────────────────────────────────────────────────────────────────


def describe_writes(rng: random.Random, *, steps_max: int = 8) -> WriteHistory:
    """Draw a table and a history."""
    key_columns = rng.choice(
        [("id",), ("name",), ("big",), ("born",), ("id", "sub"), ("name", "sub"), ("flag", "name", "id")]
    )
    is_subset = len(key_columns) > 1 and rng.random() < 0.5
    history = WriteHistory(
        seed=rng.randrange(2**32),
        steps=(),
        table_type=rng.choice(["COPY_ON_WRITE", "MERGE_ON_READ", "MERGE_ON_READ"]),
        key_columns=key_columns,
        hash_columns=tuple(rng.sample(key_columns, rng.randrange(1, len(key_columns)))) if is_subset else (),
        partition_columns=tuple(rng.sample(sorted(PARTITION_TYPES), rng.choice([0, 1, 1, 2]))),
        hive_style=rng.random() < 0.4,
        url_encode=rng.random() < 0.4,
        bucket_count=rng.choice([1, 2, 4, 7]),
        ordering=tuple(rng.choice(sorted(ORDERINGS)) for _ in range(rng.choice([0, 1, 1, 1, 2]))),
        value_types=tuple(rng.sample(sorted(VALUES), rng.randrange(1, 5))),
        added_type=rng.choice(sorted(VALUES)),
        widening=rng.choice(sorted(WIDENINGS)),
        has_required_column=rng.random() < 0.2,
    )
    steps: list[WriteStep] = []
    for _ in range(rng.randrange(2, steps_max + 1)):
        possible = _possible_steps(history, steps)
        steps += rng.choices(possible, [LIKELY.get(step, 1) for step in possible])
    return replace(history, steps=tuple(steps))


LIKELY = {WriteStep.UPSERT: 5, WriteStep.SOFT_DELETE: 3, WriteStep.DELETE_ROWS: 2}


def _possible_steps(history: WriteHistory, done: Sequence[WriteStep]) -> list[WriteStep]:
    once = {WriteStep.ADD_COLUMN, WriteStep.ADD_FIELD, WriteStep.WIDEN_COLUMN}
    steps = [step for step in WriteStep if step not in once or step not in done]
    if "struct" not in history.value_types:
        steps.remove(WriteStep.ADD_FIELD) if WriteStep.ADD_FIELD in steps else None
    return steps


# ── the model ───────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Version:
    """What a write said of a key."""

    ordering: tuple[Any, ...]
    row: Row | None
    """None: it is deleted."""
    is_undated: bool = False
    """A delete that has only its place in the log."""


@dataclass(slots=True)
class Group:
    """A file group: rows by record key, and over them what logs say."""

    base: dict[str, Row] = field(default_factory=dict)
    log: dict[str, Version] = field(default_factory=dict)
    planned: dict[str, Version] | None = None
    """What logs said when a compaction of the group was scheduled; None: none is."""
    since: dict[str, Version] = field(default_factory=dict)
    """What logs say that came after it."""


class Model:
    """What the table must hold."""

    def __init__(self, history: WriteHistory) -> None:
        self._history = history
        self.schema = history.schema()
        self._groups: dict[str, dict[int, Group]] = {}
        self.partitions: set[str] = set()
        """Every one that was ever written to."""

    @property
    def is_merge_on_read(self) -> bool:
        return self._history.is_merge_on_read

    @property
    def partition_columns(self) -> tuple[str, ...]:
        return self._history.partition_columns

    def upsert(self, rows: pa.Table, instant: str, *, opens_with_base: bool = True) -> None:
        """Apply a batch. Hudi opens a bucket of a merge-on-read table with a log file, we with a base file."""
        for (path, bucket), winners in self._winners(rows, instant).items():
            self.partitions.add(path)
            group = self._groups.setdefault(path, {}).get(bucket)
            if group is None:
                group = self._groups[path][bucket] = Group()
                if opens_with_base:
                    group.base = {key: v.row for key, v in winners.items() if v.row is not None}
                    continue
            for key, version in winners.items():
                self._write(group, key, version)

    def delete(self, places: pa.Table) -> None:
        """Delete the keys of rows; a bucket that is not there yet is not opened for them."""
        gone = Version((), None, is_undated=True)
        for place in places.to_pylist():
            path, key = self.partition_path(place), self.record_key(place)
            group = self._groups.get(path, {}).get(self._bucket(key))
            if group is not None:
                self._write(group, key, gone)

    def overwrite(self, rows: pa.Table, instant: str, *, whole_table: bool) -> None:
        replaced = (
            set(self._groups) if whole_table else {self.partition_path(row) for row in rows.to_pylist()}
        )
        self.delete_partitions(replaced)
        self.upsert(rows, instant)

    def delete_partitions(self, paths: set[str]) -> None:
        for path in paths:
            self._groups.pop(path, None)

    def schedule_compaction(self) -> None:
        """Hudi plans to put what logs say now into base files; until it does, a reader sees no difference."""
        for buckets in self._groups.values():
            for group in buckets.values():
                if group.log and group.planned is None:
                    group.planned, group.since = dict(group.log), {}

    def compact(self) -> None:
        """Hudi does what was planned: later logs now meet the new base file, and no longer the older logs."""
        for buckets in self._groups.values():
            for bucket, group in buckets.items():
                if group.planned is not None:
                    merged = self._live(Group(group.base, group.planned))
                    buckets[bucket] = Group(merged, group.since)

    def places(self) -> dict[tuple[str, str], Row]:
        """The live rows by partition path and record key."""
        return {
            (path, key): row
            for path, buckets in self._groups.items()
            for group in buckets.values()
            for key, row in self._live(group).items()
        }

    def rows(self) -> pa.Table:
        """The live rows, with the meta columns that can be foreseen."""
        meta = [(name, pa.string()) for name in FORESEEN]
        rows = list(self.places().values())
        if self._history.widening == "float to double":
            # As in Hudi, a float becomes the double with the same digits; those of `WIDENINGS` have few.
            rows = [row | {"grows": _digits(row["grows"])} for row in rows]
        return pa.Table.from_pylist(rows, pa.schema([*meta, *self.schema]))

    def record_key(self, row: Row) -> str:
        names = self._history.key_columns
        texts = {name: _text(row[name]) for name in names}
        # Two partition columns take the complex key generator, and that one names its fields.
        if len(names) == 1 and len(self._history.partition_columns) < 2:
            (only,) = texts.values()
            assert only
            return only
        return ",".join(
            f"{name}:{'__null__' if text is None else text or '__empty__'}" for name, text in texts.items()
        )

    def partition_path(self, row: Row) -> str:
        parts = []
        for name in self._history.partition_columns:
            part = _text(row[name]) or NO_VALUE
            part = escape(part) if self._history.url_encode else part
            parts.append(f"{name}={part}" if self._history.hive_style else part)
        return "/".join(parts)

    def _winners(self, rows: pa.Table, instant: str) -> dict[tuple[str, int], dict[str, Version]]:
        """Fold the rows of a batch into one version per key."""
        winners: dict[tuple[str, int], dict[str, Version]] = {}
        for row in rows.to_pylist():
            path, key = self.partition_path(row), self.record_key(row)
            group = winners.setdefault((path, self._bucket(key)), {})
            version = self._version(row, path, key, instant)
            older = group.get(key)
            group[key] = version if older is None else self._later(older, version, is_block=False)
        return winners

    def _version(self, row: Row, path: str, key: str, instant: str) -> Version:
        history = self._history
        ordering = tuple(_comparable(row[name]) for name in history.ordering_columns)
        if row.get(DELETE_FIELD):
            is_zero = history.ordering in {("int",), ("date",)} and ordering in {
                (0,),
                (datetime.date(1970, 1, 1),),
            }
            return Version(ordering, None, is_undated=is_zero)
        # Null, the empty text and the word for nothing have one folder, and read as null.
        nothing = {name: None for name in history.partition_columns if row[name] in {"", NO_VALUE}}
        return Version(ordering, dict(zip(FORESEEN, (instant, key, path), strict=True)) | row | nothing)

    def _later(self, older: Version, newer: Version, *, is_block: bool) -> Version:
        """Choose between two versions; `is_block`: the newer stands in a delete block."""
        if not self._history.ordering or newer.is_undated:
            return newer
        if older.is_undated:
            return older if is_block else newer
        return newer if newer.ordering >= older.ordering else older

    def _write(self, group: Group, key: str, version: Version) -> None:
        if not self.is_merge_on_read:
            self._put(group, key, version)
            return
        for log in (group.log, group.since):
            older = log.get(key)
            is_block = version.row is None
            log[key] = version if older is None else self._later(older, version, is_block=is_block)

    def _live(self, group: Group) -> dict[str, Row]:
        live = Group(dict(group.base))
        for key, version in group.log.items():
            self._put(live, key, version)
        return live.base

    def _put(self, group: Group, key: str, version: Version) -> None:
        """Let a version meet the base row of its key."""
        if key in group.base:
            base = group.base[key]
            ordering = tuple(_comparable(base[name]) for name in self._history.ordering_columns)
            version = self._later(Version(ordering, base), version, is_block=False)
        if version.row is None:
            group.base.pop(key, None)
        else:
            group.base[key] = version.row

    def _bucket(self, key: str) -> int:
        history = self._history
        return bucket_of(hash_pieces(key, history.hash_columns or history.key_columns), history.bucket_count)


FORESEEN = ("_hoodie_commit_time", "_hoodie_record_key", "_hoodie_partition_path")
UNFORESEEN = ("_hoodie_commit_seqno", "_hoodie_file_name")


def _digits(value: float | None) -> float | None:
    return None if value is None else float(str(np.float32(value)))


def _text(value: Any) -> str | None:
    match value:
        case None:
            return None
        case bool():
            return str(value).lower()
        case _:
            return str(value)


def _comparable(value: Any) -> Any:
    """A value that compares as Java compares it: NaN last, minus zero first, text by its bytes."""
    match value:
        case float():
            return (math.isnan(value), 0.0 if math.isnan(value) else value, math.copysign(1, value))
        case str():
            return value.encode()
        case _:
            return value


# ── playing a history ───────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Played:
    """A table after a step of its history."""

    number: int
    step: WriteStep
    table: Table
    model: Model
    summary: CommitSummary | None


def play(
    history: WriteHistory,
    uri: str,
    *,
    unique_keys: bool = False,
    as_rows: Callable[[pa.Table], Any] = lambda rows: rows,
) -> Iterator[Played]:
    """Write a history to a new table at `uri`, and stop after every step.

    `as_rows` may turn a batch into a frame. The order of a frame's rows is nobody's promise: then ask for
    `unique_keys`.
    """
    player = Player(history, history.create(uri), unique_keys=unique_keys, as_rows=as_rows)
    for number, step in enumerate(history.steps):
        yield player.take(number, step)


class Player:
    """Writes to a table and to its model alike."""

    def __init__(
        self,
        history: WriteHistory,
        table: Table,
        *,
        unique_keys: bool = False,
        as_rows: Callable[[pa.Table], Any] = lambda rows: rows,
    ) -> None:
        self.history = history
        self.table = table
        self.model = Model(history)
        self._unique_keys = unique_keys
        self._as_rows = as_rows

    def take(self, number: int, step: WriteStep) -> Played:
        rng = random.Random(f"{self.history.seed} {number}")
        return Played(number, step, self.table, self.model, self._take(step, rng))

    def _take(self, step: WriteStep, rng: random.Random) -> CommitSummary | None:
        match step:
            case WriteStep.UPSERT | WriteStep.SOFT_DELETE:
                return self._upsert(rng, soft_deletes=step is WriteStep.SOFT_DELETE)
            case WriteStep.ADD_COLUMN | WriteStep.ADD_FIELD | WriteStep.WIDEN_COLUMN:
                return self._upsert(rng, schema=_evolved(self.model.schema, step, self.history))
            case WriteStep.BULK_INSERT:
                rows = self.rows(rng)
                summary = self.table.bulk_insert(self._as_rows(rows))
                self.model.upsert(rows, summary.instant or "")
                return summary
            case WriteStep.OVERWRITE | WriteStep.OVERWRITE_TABLE:
                whole = step is WriteStep.OVERWRITE_TABLE
                rows = self.rows(rng, count=rng.randrange(ROWS_PER_WRITE_MAX))
                summary = self.table.overwrite(self._as_rows(rows), whole_table=whole)
                self.model.overwrite(rows, summary.instant or "", whole_table=whole)
                return summary
            case WriteStep.DELETE_ROWS:
                return self._delete_rows(rng)
            case WriteStep.DELETE_KEYS:
                return self._delete_keys(rng)
            case WriteStep.DELETE_PARTITIONS:
                known = sorted(self.model.partitions)
                chosen = rng.sample(known, min(len(known), rng.randrange(1, 3)))
                summary = self.table.delete_partitions(chosen)
                self.model.delete_partitions(set(chosen))
                return summary
            case WriteStep.NOTHING:
                return self.table.upsert(self._as_rows(self.rows(rng, count=0)))
            case WriteStep.MISTAKE:
                self._make_a_mistake(rng)
        return None

    def _upsert(
        self, rng: random.Random, *, soft_deletes: bool = False, schema: pa.Schema | None = None
    ) -> CommitSummary:
        before = self.model.schema
        self.model.schema = schema or before
        if soft_deletes and DELETE_FIELD not in before.names:
            self.model.schema = before.append(pa.field(DELETE_FIELD, pa.bool_()))
        rows = self.rows(rng, soft_deletes=soft_deletes)
        if schema is None and rng.random() < 0.3:
            rows = _narrowed(rows, self.history.schema().field("grows"))
        log_format = rng.choice(list(LogFormat))
        changes = True if self.model.schema != before else None
        given = self._as_rows(_disguised(rng, rows))
        summary = self.table.upsert(given, log_format=log_format, merge_schema=changes)
        if summary.instant is None:
            # All rows were late: nothing was committed, and so no new column either.
            self.model.schema = before
        else:
            self.model.upsert(rows, summary.instant)
        return summary

    def _delete_keys(self, rng: random.Random) -> CommitSummary:
        """Delete by keys alone, of which some are not there, in one partition or in all."""
        names = self.history.key_columns
        chosen = [{name: row[name] for name in names} for row in self.rows(rng).to_pylist()]
        partition = rng.choice([None, *sorted(self.model.partitions)])
        keys = [key[names[0]] for key in chosen] if len(names) == 1 else chosen
        summary = self.table.delete(keys, partition=partition)
        self._forget(chosen, partition)
        return summary

    def _delete_rows(self, rng: random.Random) -> CommitSummary:
        """Delete by rows, which may leave out in which partitions they are."""
        rows = self.rows(rng)
        paths = [name for name in self.history.partition_columns if name not in self.history.key_columns]
        if paths and rng.random() < 0.5:
            partition = rng.choice([None, *sorted(self.model.partitions)])
            summary = self.table.delete(self._as_rows(rows.drop_columns(paths)), partition=partition)
            self._forget(rows.to_pylist(), partition)
        else:
            summary = self.table.delete(self._as_rows(rows))
            self.model.delete(rows)
        return summary

    def _forget(self, chosen: Iterable[dict[str, Any]], partition: str | None) -> None:
        """Delete keys from the model, in a partition or wherever they are."""
        wanted = {self.model.record_key(key) for key in chosen}
        found = [
            row
            for (path, key), row in self.model.places().items()
            if key in wanted and partition in {None, path}
        ]
        columns = [self.model.schema.field(name) for name in self.history.place_columns]
        self.model.delete(pa.Table.from_pylist(found, pa.schema(columns)))

    def rows(self, rng: random.Random, *, soft_deletes: bool = False, count: int | None = None) -> pa.Table:
        """Draw a batch."""
        if count is None:
            count = rng.randrange(1, ROWS_PER_WRITE_MAX + 1)
        rows = [self._row(rng, soft_deletes=soft_deletes) for _ in range(count)]
        if self._unique_keys:
            rows = list(
                {(self.model.partition_path(row), self.model.record_key(row)): row for row in rows}.values()
            )
        # To Arrow and back: a float of four bytes is then what it is in the table.
        return pa.Table.from_pylist(rows, self.model.schema)

    def _row(self, rng: random.Random, *, soft_deletes: bool) -> Row:
        history = self.history
        row: Row = {name: self._key_value(rng, name) for name in history.key_columns}
        row |= {name: self._partition_value(rng, name) for name in history.partition_columns}
        for name, kind in zip(history.ordering_columns, history.ordering, strict=True):
            row[name] = ORDERINGS[kind][1](rng.randrange(TIED))
        for kind in history.value_types:
            row[f"v_{kind}"] = VALUES[kind][1](rng) if rng.random() < 0.8 else None
        row["grows"] = WIDENINGS[history.widening][2](rng) if rng.random() < 0.8 else None
        row["added"] = VALUES[history.added_type][1](rng) if rng.random() < 0.8 else None
        row["required"] = rng.randrange(9)
        row[DELETE_FIELD] = (
            rng.choice([True, True, False, None]) if soft_deletes else rng.choice([False, None])
        )
        return row

    def _key_value(self, rng: random.Random, name: str) -> Any:
        number = rng.randrange(KEYS_IN_POOL)
        match name:
            case "id":
                return number - 2
            case "big":
                return (number - 2) * 2**40
            case "born":
                return DAY + datetime.timedelta(days=number)
            case "flag":
                return rng.choice([True, False, None])
            case "sub":
                # Where it is all that is left of a key it may not be empty, and `name` never is.
                words: list[str | None] = [None, "", "s", "é", "x,y"]
                return rng.choice(
                    words if name in self.history.unhashed_columns else [*words, "t:u", "__null"]
                )
            case _:
                names = [n for n in ODD_NAMES if ":" not in n or name not in self.history.unhashed_columns]
                if len(self.history.key_columns) > 1:  # where the words for nothing are refused
                    names = [n.removesuffix("__") for n in names]
                return names[number] if number < len(names) else f"name-{number}"

    def _partition_value(self, rng: random.Random, name: str) -> Any:
        match name:
            case "p_number":
                return rng.choice([7, -8, None])
            case "p_day":
                return rng.choice([DAY, datetime.date(1969, 12, 31), None])
            case "p_flag":
                return rng.choice([True, False, None])
        odd = (*ODD_PARTITIONS, *ODD_WHEN_ENCODED) if self.history.url_encode else ODD_PARTITIONS
        # Two odd ones per history: rows must meet in partitions.
        chosen = random.Random(f"{self.history.seed} {name}").sample(odd, 2)
        return rng.choice(["a", "b", None, "", *chosen])

    def _make_a_mistake(self, rng: random.Random) -> None:
        rows = self.rows(rng)
        before = _everything(self.table.store)
        wrong = rng.choice(list(self._mistakes(rows)))
        with pytest.raises(ConfigError):
            self.table.upsert(self._as_rows(wrong))
        assert _everything(self.table.store) == before, "a write that was refused has left something"

    def _mistakes(self, rows: pa.Table) -> Iterator[pa.Table]:
        history = self.history
        nulls = {
            name: pa.nulls(rows.num_rows, rows.schema.field(name).type)
            for name in (*history.key_columns, *history.ordering_columns)
        }
        yield _with(rows, {name: nulls[name] for name in history.key_columns})
        for name in history.ordering_columns:
            yield _with(rows, {name: nulls[name]})
        yield rows.drop_columns(["grows"])
        yield rows.append_column("unheard", pa.nulls(rows.num_rows, pa.string()))
        yield _with(rows, {"grows": pa.array(["text"] * rows.num_rows)})
        text = [name for name in history.partition_columns if PARTITION_TYPES[name] == pa.string()]
        for name in [] if history.url_encode else text:
            for value in ("a/b", "\n", "a:b", "%2F", "a\\b"):
                yield _with(rows, {name: pa.array([value] * rows.num_rows)})


def _with(rows: pa.Table, columns: Mapping[str, pa.Array]) -> pa.Table:
    for name, column in columns.items():
        rows = rows.set_column(rows.schema.get_field_index(name), name, column)
    return rows


def _narrowed(rows: pa.Table, column: pa.Field) -> pa.Table:
    """The same rows from somebody who has not heard yet that the column was widened."""
    values = pa.array(rows.column(column.name).to_pylist(), column.type)
    return rows.set_column(rows.schema.get_field_index(column.name), column, values)


def _disguised(rng: random.Random, rows: pa.Table) -> pa.Table:
    """The same rows in another dress: columns in another order, a meta column, other chunks."""
    if rng.random() < 0.3:
        rows = rows.append_column("_hoodie_commit_time", pa.array(["x"] * rows.num_rows, pa.string()))
    cut = rng.randrange(rows.num_rows + 1)
    rows = pa.concat_tables([rows.slice(0, cut), rows.slice(cut)])
    return rows.select(rng.sample(rows.column_names, len(rows.column_names)))


def _everything(store: Store) -> dict[str, bytes]:
    return {file.path: store.read(file.path) for file in store.list("", recursive=True).files}


def _evolved(schema: pa.Schema, step: WriteStep, history: WriteHistory) -> pa.Schema:
    match step:
        case WriteStep.ADD_COLUMN:
            return schema.append(pa.field("added", VALUES[history.added_type][0]))
        case WriteStep.WIDEN_COLUMN:
            wider = pa.field("grows", WIDENINGS[history.widening][1])
            return schema.set(schema.get_field_index("grows"), wider)
        case _:
            longer = pa.struct([*PAIR, pa.field("z", pa.date32())])
            return schema.set(schema.get_field_index("v_struct"), pa.field("v_struct", longer))
