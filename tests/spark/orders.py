"""Orders to write, and what a table must hold after they were written: a dict, and twenty lines.

Orders arrive as they do in life: new ones, newer versions, late ones, several versions at once, and cancellations.
"""

from __future__ import annotations

import datetime
import json
import random
import uuid
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from bucketlake import Table, create_table, parquet_files
from bucketlake.basefile import read_file_facts
from bucketlake.layout.names import (
    PIECES_FOLDER,
    is_partition_metadata,
    parse_base_file_name,
    parse_log_file_name,
    split_path,
)
from bucketlake.logfile import log_file_facts
from bucketlake.spark.files import Files
from bucketlake.state import load_state
from bucketlake.storage import Store, open_store
from bucketlake.timeline import read_commit_metadata
from bucketlake.write.report import PROOF_KEY
from judges.rows import META_COLUMNS, assert_same_rows

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64()),
        pa.field("day", pa.string()),
        pa.field("version", pa.int64()),
        pa.field("note", pa.string()),
        pa.field("amount", pa.decimal128(10, 2)),
        pa.field("ordered", pa.timestamp("us", tz="UTC")),
        pa.field("items", pa.list_(pa.string())),
        pa.field("place", pa.struct([("x", pa.float64()), ("y", pa.float64())])),
        pa.field("_hoodie_is_deleted", pa.bool_()),
    ]
)
DAYS = ("2026-06-17", "2026-06-18", "2026-06-19")
BUCKETS = 4

Order = dict[str, Any]


def orders(
    ids: Iterable[int], *, version: int, days: Sequence[str] = DAYS, deleted: bool = False
) -> list[Order]:
    """Make one version of some orders. An order keeps its day."""
    made = []
    for number in ids:
        chance = random.Random(f"{number}/{version}")
        made.append(
            {
                "id": number,
                "day": days[number % len(days)],
                "version": version,
                "note": chance.choice([None, "", "zügig", f"v{version}"]),
                "amount": Decimal(chance.randrange(-(10**6), 10**6)) / 100,
                "ordered": datetime.datetime(2026, 6, 17, tzinfo=datetime.UTC)
                + datetime.timedelta(microseconds=chance.randrange(10**12)),
                "items": chance.choice([None, [], ["nut", "bolt"]]),
                "place": chance.choice([None, {"x": chance.random(), "y": None}]),
                "_hoodie_is_deleted": deleted,
            }
        )
    return made


def frame_of(spark: SparkSession, rows: Sequence[Order], *, pieces: int = 3) -> DataFrame:
    """Return a frame that Spark reads in several tasks."""
    return spark.createDataFrame(pa.Table.from_pylist(rows, SCHEMA)).repartition(pieces)


@dataclass(slots=True)
class Truth:
    """What a table must hold."""

    rows: dict[int, Order] = field(default_factory=dict)

    def upsert(self, batch: Iterable[Order]) -> None:
        for row in sorted(batch, key=lambda row: row["version"]):
            known = self.rows.get(row["id"])
            if known is not None and known["version"] > row["version"]:
                continue
            if row["_hoodie_is_deleted"]:
                self.rows.pop(row["id"], None)
            else:
                self.rows[row["id"]] = row

    def delete(self, batch: Iterable[Order]) -> None:
        for row in batch:
            self.rows.pop(row["id"], None)

    def clear(self, days: Iterable[str]) -> None:
        gone = set(days)
        self.rows = {number: row for number, row in self.rows.items() if row["day"] not in gone}

    def table(self) -> pa.Table:
        return pa.Table.from_pylist(list(self.rows.values()), SCHEMA)


@dataclass(frozen=True, slots=True)
class Place:
    """Where tables are made, and the session that writes them."""

    spark: SparkSession
    root: str
    options: Mapping[str, str] | None = None
    has_files: bool = False
    """Whether rows are handed over as Parquet files, and not as frames."""

    def rows(self, batch: Sequence[Order], columns: Sequence[str] = tuple(SCHEMA.names)) -> DataFrame | Files:
        if not self.has_files:
            return frame_of(self.spark, batch).select(*columns)
        store = open_store(self.root, self.options)
        folder = f"incoming/{uuid.uuid4()}"
        whole = pa.Table.from_pylist(batch, SCHEMA).select(columns)
        for number, start in enumerate((0, len(batch) // 3)):
            file = pa.BufferOutputStream()
            rows = whole.slice(start, len(batch) // 3 if number == 0 else None)
            pq.write_table(rows, file, row_group_size=17)
            store.put(f"{folder}/{number}.parquet", file.getvalue().to_pybytes())
        return parquet_files(f"{self.root}/{folder}", storage_options=self.options, spark=self.spark)

    def new_table(self, name: str, table_type: str) -> Table:
        return create_table(
            f"{self.root}/{name}",
            SCHEMA,
            key="id",
            partition="day",
            ordering="version",
            name="orders",
            buckets=BUCKETS,
            table_type=table_type,
            storage_options=self.options,
            spark=self.spark,
        )

    def loaded_table(self, name: str, table_type: str, *, count: int = 120) -> tuple[Table, Truth]:
        """Make a table with rows in every bucket."""
        table, truth = self.new_table(name, table_type), Truth()
        first = orders(range(count), version=1)
        table.bulk_insert(pa.Table.from_pylist(first, SCHEMA))
        truth.upsert(first)
        return table, truth


def check_rows(table: Table, truth: Truth, spark: SparkSession | None = None) -> None:
    """Compare row by row, as this process reads the table and as Spark does."""
    assert_same_rows(table.to_arrow(), truth.table(), key=["id"], without=META_COLUMNS)
    if spark is not None:
        assert_same_rows(table.read(spark).toArrow(), truth.table(), key=["id"], without=META_COLUMNS)


def check_files(table: Table) -> None:
    """One file group per bucket, one file per file group and instant, all of them committed, as the proofs say."""
    store, state = table.store, load_state(table.store)
    assert state.timeline.pending() == ()
    groups = Counter((s.partition, s.file_id[:8]) for s in table.plan().slices)
    assert not [group for group, count in groups.items() if count > 1], "a bucket has two file groups"
    commits = [read_commit_metadata(store, instant) for instant in state.timeline.writes]
    stats = [stat for commit in commits for stat in commit.write_stats]
    assert data_files(store) == sorted(stat.path for stat in stats), "a file that no commit knows, or none"
    names = Counter(file_group_and_instant(stat.path) for stat in stats)
    assert not [name for name, count in names.items() if count > 1], (
        "a file group has two files of one instant"
    )
    for commit in commits:
        proof = json.loads(commit.extra[PROOF_KEY])
        found = [facts_of(store, stat.path) for stat in commit.write_stats]
        assert proof["file_rows"] == sum(rows for rows, _ in found)
        assert proof["file_key_hash_sum"] == sum(key_sum for _, key_sum in found) % 2**64


def check_nothing_is_left(store: Store) -> None:
    """No marker, no heartbeat, and no rows on their way to other tasks."""
    folders = (".hoodie/.temp", ".hoodie/.heartbeat", PIECES_FOLDER)
    assert [file.path for folder in folders for file in _files(store, folder)] == []


def data_files(store: Store) -> list[str]:
    paths = [file.path for file in _files(store, "") if not file.path.startswith(".hoodie/")]
    return sorted(path for path in paths if not is_partition_metadata(split_path(path)[1]))


def file_group_and_instant(path: str) -> tuple[str, str]:
    name = split_path(path)[1]
    parsed = parse_base_file_name(name) or parse_log_file_name(name)
    assert parsed is not None, path
    return parsed.file_id, parsed.instant


def facts_of(store: Store, path: str) -> tuple[int, int]:
    """Return what a file says of itself: rows, deletes included, and the sum of their keys' hashes."""
    if path.endswith(".parquet"):
        base = read_file_facts(store, path)
        return base.rows, base.key_hash_sum
    log = log_file_facts(store.read(path), path=path)
    return log.rows + log.deletes, log.key_hash_sum


def _files(store: Store, folder: str) -> Sequence[Any]:
    return store.list(folder, recursive=True).files
