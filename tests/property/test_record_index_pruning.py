"""A read by the record-level index is a read of everything: whatever the table, its history, and what is asked for.

The index names file groups, and the merge confirms. An index that named too few would hide rows without a word.
"""

from __future__ import annotations

import datetime
import itertools
import random
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest

from bucketlake import RecordIndex, Table, create_table
from bucketlake.errors import ConfigError
from bucketlake.index import NoIndex
from bucketlake.keygen import KeyGenerator
from bucketlake.read import lookup, make_query, plan_lookup, plan_read, read_all, record_keys_of
from bucketlake.services.metadata_compaction import compact_metadata
from bucketlake.state import load_state
from plugins.soak import IS_SOAK, seeds

SCHEMA = pa.schema(
    [
        ("name", pa.string()),
        ("number", pa.int64()),
        ("day", pa.date32()),
        ("dt", pa.string()),
        ("ts", pa.int64()),
        ("v", pa.string()),
        ("_hoodie_is_deleted", pa.bool_()),
    ]
)
NAMES = ["1", "10", "100", "a", "a$", "ab", "a\\", "\0", "a\0b", "a:b", "a,number:1", "__null__", "é", "日本"]
NUMBERS = [1, 10, 100, -1]
DAYS = [datetime.date(2024, 1, 2), datetime.date(1969, 12, 31), datetime.date(1, 1, 1)]
VALUES: dict[str, list[Any]] = {
    "name": [*NAMES, "unknown", ""],
    "number": [*NUMBERS, 7],
    "day": [*DAYS, datetime.date(2030, 1, 1)],
    "dt": ["p0", "p1", "p9"],
    "ts": [0, 1, 2],
}
KEYS = [("name",), ("number",), ("day",), ("name", "number"), ("number", "day")]
_tables = itertools.count()


@dataclass(frozen=True)
class Shape:
    key: tuple[str, ...]
    is_partitioned: bool
    table_type: str
    index: RecordIndex

    def table(self) -> Table:
        return create_table(
            f"memory://pruned-by-index-{next(_tables)}",
            SCHEMA,
            key=self.key,
            partition="dt" if self.is_partitioned else None,
            ordering="ts",
            index=self.index,
            table_type=self.table_type,
            maintenance="off",
        )


INDEXES = [
    RecordIndex(shards=2),
    RecordIndex(shards=1, update_partition=False),
    RecordIndex(per_partition=True, shards=1),
    RecordIndex(per_partition=True, shards=3),
]
STEPS = ["upsert", "upsert", "delete some", "delete some", "overwrite", "compact", "compact index", "cluster"]
SEEDS = seeds(default_count=200 if IS_SOAK else 16)


def a_row(chance: random.Random) -> dict[str, Any]:
    return {
        "name": chance.choice([*NAMES, None]),
        "number": chance.choice(NUMBERS),
        "day": chance.choice(DAYS),
        "dt": chance.choice(["p0", "p1"]),
        "ts": chance.choice([0, 1, 2]),
        "_hoodie_is_deleted": chance.random() < 0.1,
    }


def a_filter(chance: random.Random) -> tuple[Any, ...]:
    column = chance.choice(list(VALUES))
    values = VALUES[column]
    match chance.choice(["=", "=", "in", "in", "!=", "is not null"]):
        case "in":
            return column, "in", chance.choices([*values, None], k=chance.randrange(5))
        case "is not null":
            return column, "is not null"
        case op:
            return column, op, chance.choice(values)


@pytest.mark.shows("R4", "S4")
@pytest.mark.parametrize("seed", SEEDS)
def test_a_read_by_the_index_is_a_read_of_everything(seed: int) -> None:
    chance = random.Random(seed)
    table_type = "MERGE_ON_READ" if seed // len(INDEXES) % 2 else "COPY_ON_WRITE"
    shape = Shape(chance.choice(KEYS), chance.random() < 0.8, table_type, INDEXES[seed % len(INDEXES)])
    table = shape.table()
    for number, step in enumerate(["upsert", *chance.choices(STEPS, k=6)]):
        rows = [a_row(chance) for _ in range(chance.randint(1, 8) if number else 24)]
        do(table, shape, step, rows, number)
    for _ in range(6):
        filters = [a_filter(chance) for _ in range(chance.randint(1, 3))]
        wanted = [a_row(chance) for _ in range(chance.randint(1, 4))]
        same_rows(table, *by_columns(shape, filters, wanted))
        same_lookups(table, shape, wanted)


def do(table: Table, shape: Shape, step: str, rows: list[dict[str, Any]], number: int) -> None:
    if step == "upsert":
        able = [{**row, "v": f"{number}-{n}"} for n, row in enumerate(rows) if has_key(row, shape)]
        if able:
            table.upsert(pa.Table.from_pylist(able, SCHEMA))
    elif step == "delete some":
        found = table.to_arrow(columns=list(shape.key)).slice(0, 3).to_pylist()
        if found:
            table.delete([row if len(shape.key) > 1 else row[shape.key[0]] for row in found])
    elif step == "compact" and shape.table_type == "MERGE_ON_READ":
        table.compact(delta_commits=1)
    elif step == "compact index":
        compact_metadata(table.store)
    elif step == "overwrite" and rows:
        able = {
            tuple(row[name] for name in shape.key): {**row, "v": f"{number}"}
            for row in rows
            if has_key(row, shape)
        }
        if able:
            table.overwrite(pa.Table.from_pylist(list(able.values()), SCHEMA))
    elif step == "cluster":
        with suppress(ConfigError):  # until tables with this index can be clustered
            table.cluster(by="v")


def has_key(row: dict[str, Any], shape: Shape) -> bool:
    """A key that is null cannot be written, nor one of several columns that reads as that of other values."""
    if len(shape.key) == 1:
        return row[shape.key[0]] is not None
    return "name" not in shape.key or row["name"] not in ("__null__", "a,number:1")


def by_columns(
    shape: Shape, filters: list[tuple[Any, ...]], wanted: list[dict[str, Any]]
) -> tuple[list[Any], ...]:
    """Return filters: as drawn, on all key columns, and on the record key."""
    spelled = [
        key
        for row in wanted
        if (
            key := KeyGenerator(
                record_key_fields=shape.key, encodes_field_names=len(shape.key) > 1
            ).certain_record_key_of(
                {name: pa.scalar(row[name], SCHEMA.field(name).type) for name in shape.key}
            )
        )
    ]
    return (
        filters,
        [*((name, "in", [row[name] for row in wanted]) for name in shape.key), *filters[:1]],
        [(name, "=", wanted[0][name]) for name in shape.key if wanted[0][name] is not None],
        [("_hoodie_record_key", "in", [*spelled, "unknown"])],
    )


def same_rows(table: Table, *questions: list[Any]) -> None:
    state = load_state(table.store)
    versions = [write.requested for write in state.timeline.writes]
    begin = state.timeline.writes[-1].requested if versions else "0"
    for filters in questions:
        for how in ({}, {"read_optimized": True}, {"as_of": versions[0]}, {"begin": begin}):
            query = make_query(state, filters=filters, **how)  # type: ignore[arg-type] # a case of each
            plain = pa.Table.from_batches(read_all(plan_read(state, query, NoIndex())), query.schema)
            assert marks(table.to_arrow(filters=filters, **how)) == marks(plain), (filters, how)  # type: ignore[arg-type] # as above


def same_lookups(table: Table, shape: Shape, wanted: list[dict[str, Any]]) -> None:
    keys = [{name: row[name] for name in shape.key} for row in wanted if has_key(row, shape)]
    if not keys:
        return
    state = load_state(table.store)
    query = make_query(state)
    spelled = record_keys_of(keys, KeyGenerator.from_properties(state.properties), query.table_schema)
    for partition in (None, *(("p0", "p9") if shape.is_partitioned else ())):
        plain = lookup(plan_lookup(state, query, NoIndex(), spelled, partition=partition), spelled)
        assert marks(table.get(keys, partition=partition, meta_columns=True)) == marks(plain)


def marks(rows: pa.Table) -> list[str]:
    return sorted(rows["_hoodie_commit_seqno"].to_pylist())
