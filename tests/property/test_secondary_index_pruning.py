"""A read by secondary indexes is a read of everything: whatever the table, its history, and what is asked for.

They name record keys, the record-level index names their file groups, and the merge confirms. Keys that were left out
would hide rows without a word.
"""

from __future__ import annotations

import itertools
import random
import zlib
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest

from bucketlake import RecordIndex, SimpleBuckets, Table, create_table
from bucketlake.errors import ConfigError
from bucketlake.index import IndexValue, NoIndex
from bucketlake.read import make_query, plan_read, read_all
from bucketlake.services.metadata_compaction import compact_metadata
from bucketlake.state import load_state
from plugins.soak import IS_SOAK, seeds
from stand_ins.made_index import check_secondary

SCHEMA = pa.schema(
    [
        ("name", pa.string()),
        ("number", pa.int64()),
        ("dt", pa.string()),
        ("ts", pa.int64()),
        ("city", pa.string()),
        ("size", pa.int32()),
        ("v", pa.string()),
        ("_hoodie_is_deleted", pa.bool_()),
    ]
)
NAMES = ["1", "10", "100", "a$", "a\\", "\0", "é", "日本"]
CITIES = ["1", "10", "100", "a", "a$", "a$b", "a\\", "a\\$", "\0", "\\", "", "é", "日本", "\U0001f600", None]
SIZES = [1, 10, 100, -1, 0, None]
VALUES: dict[str, list[Any]] = {
    "name": [*NAMES, "unknown"],
    "number": [1, 10, 7],
    "dt": ["p0", "p1", "p9"],
    "city": [*CITIES[:-1], "unknown"],
    "size": [*SIZES[:-1], 7],
    "v": ["0-1", "1-0"],
}
KEYS = [("name",), ("name", "number")]
INDEXES: list[IndexValue] = [
    RecordIndex(shards=2),
    RecordIndex(shards=1, update_partition=False),
    SimpleBuckets(2),
]
STEPS = ["upsert", "upsert", "upsert", "delete some", "overwrite", "compact", "compact index", "cluster"]
SEEDS = seeds(default_count=200 if IS_SOAK else 9)
_tables = itertools.count()


@dataclass(frozen=True)
class Shape:
    key: tuple[str, ...]
    table_type: str
    index: IndexValue

    def table(self) -> Table:
        table = create_table(
            f"memory://pruned-by-values-{next(_tables)}",
            SCHEMA,
            key=self.key,
            partition="dt",
            ordering="ts",
            index=self.index,
            table_type=self.table_type,
            maintenance="off",
        )
        if isinstance(self.index, SimpleBuckets):
            table.metadata.build(record_index=True)
        return table

    def placed(self, row: dict[str, Any]) -> dict[str, Any]:
        """Beside buckets, a key lives in one partition for good."""
        if isinstance(self.index, SimpleBuckets):
            key = repr([row[name] for name in self.key]).encode()
            return {**row, "dt": f"p{zlib.crc32(key) % 2}"}
        return row


def a_row(chance: random.Random) -> dict[str, Any]:
    return {
        "name": chance.choice(NAMES),
        "number": chance.choice([1, 10]),
        "dt": chance.choice(["p0", "p1"]),
        "ts": chance.choice([0, 1, 2]),
        "city": chance.choice(CITIES),
        "size": chance.choice(SIZES),
        "_hoodie_is_deleted": chance.random() < 0.1,
    }


def do(table: Table, shape: Shape, step: str, chance: random.Random, number: int) -> None:
    rows = [shape.placed(a_row(chance)) for _ in range(chance.randint(1, 8) if number else 24)]
    rows = [{**row, "v": f"{number}-{n}"} for n, row in enumerate(rows)]
    if step == "upsert":
        table.upsert(pa.Table.from_pylist(rows, SCHEMA))
    elif step == "delete some":
        found = table.to_arrow(columns=list(shape.key)).slice(0, 3).to_pylist()
        if found:
            table.delete([row if len(shape.key) > 1 else row[shape.key[0]] for row in found])
    elif step == "compact" and shape.table_type == "MERGE_ON_READ":
        table.compact(delta_commits=1)
    elif step == "compact index":
        compact_metadata(table.store)
    elif step == "overwrite":
        once = {tuple(row[name] for name in shape.key): row for row in rows}
        table.overwrite(pa.Table.from_pylist(list(once.values()), SCHEMA))
    elif step == "cluster":
        with suppress(ConfigError):  # tables with a record-level index cannot be clustered
            table.cluster(by="v")


def a_filter(chance: random.Random) -> tuple[Any, ...]:
    column = chance.choice([*VALUES, "city", "city", "size"])
    match chance.choice(["=", "=", "in", "in", "is null", "!=", "is not null"]):
        case "in":
            return column, "in", chance.choices([*VALUES[column], None], k=chance.randrange(6))
        case "is null" | "is not null" as op:
            return column, op
        case op:
            return column, op, chance.choice(VALUES[column])


@pytest.mark.shows("R11", "S4")
@pytest.mark.parametrize("seed", SEEDS)
def test_a_read_by_secondary_indexes_is_a_read_of_everything(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = random.Random(seed)
    monkeypatch.setattr("bucketlake.read.plan.KEYS_READ_BY_MAX", chance.choice([0, 2, 100]))
    monkeypatch.setattr("bucketlake.read.by_values.KEYS_FEW", chance.choice([0, 100]))
    table_type = "MERGE_ON_READ" if seed % 2 else "COPY_ON_WRITE"
    shape = Shape(chance.choice(KEYS), table_type, INDEXES[seed % len(INDEXES)])
    table = shape.table()
    begins = chance.choice([0, 0, 3])
    used = 0
    for number, step in enumerate(["upsert", *chance.choices(STEPS, k=6)]):
        if number == begins:
            table.create_index("by_city", on="city", shards=chance.choice([1, 3]))
            table.create_index("by_size", on="size", shards=2)
        do(table, shape, step, chance, number)
        if number >= begins:
            questions = [[a_filter(chance) for _ in range(chance.randint(1, 3))] for _ in range(2)]
            used += sum(same_rows(table, filters) for filters in [*questions, [("city", "=", "10")]])
            same_rows_by(table, "city", chance.choices([*CITIES, "unknown"], k=chance.randrange(4)))
            same_rows_by(table, "size", chance.choice(SIZES))
    assert used, "no read was by an index"
    check_secondary(table)


def same_rows(table: Table, filters: list[Any]) -> bool:
    state = load_state(table.store)
    versions = [write.requested for write in state.timeline.writes]
    for how in ({}, {"read_optimized": True}, {"as_of": versions[0]}, {"begin": versions[-1]}):
        query = make_query(state, filters=filters, **how)  # type: ignore[arg-type] # a case of each
        plain = pa.Table.from_batches(read_all(plan_read(state, query, NoIndex())), query.schema)
        assert marks(table.to_arrow(filters=filters, **how)) == marks(plain), (filters, how)  # type: ignore[arg-type] # as above
        if how:
            assert not table.plan(filters=filters, **how).asked  # type: ignore[arg-type] # as above
    return any(one.keys is not None for one in table.plan(filters=filters).asked)


def same_rows_by(table: Table, column: str, values: Any) -> None:
    wanted = values if isinstance(values, list) else [values]
    rows = table.to_arrow().to_pylist()
    for partition in (None, "p0"):
        expected = [
            row["_hoodie_commit_seqno"]
            for row in rows
            if row[column] in wanted and partition in (None, row["_hoodie_partition_path"])
        ]
        assert marks(table.get_by(column, values, partition=partition, meta_columns=True)) == sorted(expected)


def marks(rows: pa.Table) -> list[str]:
    return sorted(rows["_hoodie_commit_seqno"].to_pylist())
