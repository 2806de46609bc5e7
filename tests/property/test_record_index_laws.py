"""A table with a record-level index is a dict, and the index says of every key where it lives.

Histories of whole calls, one after the other: rows come, change, are late, move between partitions and go, by every
kind of write; services run in between, and what was done is taken back. What calls do to each other is the table
machine's business (`test_table_machine.py`).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bucketlake import DynamicBuckets, RecordIndex, Table, create_table, set_index_cache
from bucketlake.config import TableType, load_properties
from bucketlake.services import check_table
from bucketlake.services.metadata_compaction import compact_metadata
from bucketlake.state import load_state
from stand_ins.dynamic_check import check_buckets
from stand_ins.metadata_check import check_metadata
from stand_ins.record_index_check import check_record_index

SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("dt", pa.string()),
        ("ts", pa.int64()),
        ("v", pa.string()),
        ("_hoodie_is_deleted", pa.bool_()),
    ]
)
PARTITIONS = ("p0", "p1", "p2")
Key = tuple[str, str]
"""The key, and its partition if the index is one for each."""
Stored = tuple[str, int, str]
"""Partition, ordering value, text."""
_names = itertools.count()


@dataclass
class Model:
    is_global: bool
    rows: dict[Key, Stored] = field(default_factory=dict)
    before: list[dict[Key, Stored]] = field(default_factory=list)
    """What there was before each commit that can be taken back."""

    def name(self, key: str, partition: str) -> Key:
        return key, "" if self.is_global else partition

    def upsert(self, batch: list[dict[str, Any]]) -> None:
        winners: dict[Key, dict[str, Any]] = {}
        for row in batch:
            name = self.name(row["id"], row["dt"])
            if name not in winners or row["ts"] >= winners[name]["ts"]:
                winners[name] = row
        for name, row in winners.items():
            known = self.rows.get(name)
            if known is not None and known[1] > row["ts"]:
                continue
            if row["_hoodie_is_deleted"]:
                self.rows.pop(name, None)
            else:
                self.rows[name] = row["dt"], row["ts"], row["v"]


def a_table(table_type: str, index: RecordIndex | DynamicBuckets) -> Table:
    return create_table(
        f"memory://{__name__}-{next(_names)}",
        SCHEMA,
        key="id",
        partition="dt",
        ordering="ts",
        index=index,
        table_type=table_type,
        maintenance="off",
    )


def contents(table: Table, *, is_global: bool) -> dict[Key, Stored]:
    found = (
        Table(table.store, load_properties(table.store)).to_arrow(columns=["id", "dt", "ts", "v"]).to_pylist()
    )
    rows = {(row["id"], "" if is_global else row["dt"]): (row["dt"], row["ts"], row["v"]) for row in found}
    assert len(rows) == len(found), f"a key is there twice: {found}"
    return rows


KEYS = [f"{n}" for n in (1, 10, 100, 2, 20, "é", "a$b", "日本")]
BATCH = st.lists(
    st.tuples(
        st.sampled_from(KEYS),
        st.sampled_from(PARTITIONS),
        st.integers(0, 6),
        st.sampled_from([False] * 4 + [True]),
    ),
    min_size=1,
    max_size=6,
)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("upsert"), BATCH),
        st.tuples(st.just("upsert"), BATCH),
        st.tuples(st.just("upsert"), BATCH),
        st.tuples(st.just("delete"), st.lists(st.sampled_from(KEYS), min_size=1, max_size=3)),
        st.tuples(
            st.sampled_from(["compact", "compact index", "cluster", "clean", "rollback", "rebuild"]),
            st.just([]),
        ),
        st.tuples(st.just("overwrite"), BATCH),
        st.tuples(st.just("delete partition"), st.sampled_from(PARTITIONS)),
    ),
    min_size=1,
    max_size=8,
)


KEPT = (0, 1_000, "1MB")
"""How much of an index is kept, in turn, where it is kept at all."""


@pytest.fixture(scope="module")
def kept_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    yield tmp_path_factory.mktemp("kept")
    set_index_cache(0)


@pytest.mark.shows("R1", "R2", "R3", "D1", "D2", "D4", "D6")
@pytest.mark.parametrize("table_type", ["COPY_ON_WRITE", "MERGE_ON_READ"])
@pytest.mark.parametrize(
    "index",
    [
        RecordIndex(shards=2),
        RecordIndex(per_partition=True, shards=2),
        DynamicBuckets(assigners=2, keys_per_bucket=2),
    ],
    ids=["table", "partitions", "dynamic"],
)
@settings(max_examples=max(8, settings().max_examples // 10), deadline=None)
@given(steps=STEPS)
def test_a_table_is_a_dict_and_its_index_says_where_every_key_lives(
    table_type: str, index: RecordIndex | DynamicBuckets, kept_folder: Path, steps: list[tuple[str, Any]]
) -> None:
    table = a_table(table_type, index)
    model = Model(is_global=isinstance(index, RecordIndex) and not index.per_partition)
    numbers = itertools.count()
    for step in steps:
        number = next(numbers)
        set_index_cache(KEPT[number % len(KEPT)], kept_folder)
        do(table, model, step, number)
        assert contents(table, is_global=model.is_global) == model.rows, step
        check_record_index(table.store)
        if isinstance(index, DynamicBuckets):
            check_buckets(table.store)
    check_metadata(table.store)
    report = check_table(table.store)
    assert report.damage == (), str(report)


def do(table: Table, model: Model, step: tuple[str, Any], number: int) -> None:
    before = dict(model.rows)
    writes = len(load_state(table.store).timeline.writes)
    match step:
        case "upsert", batch:
            rows = [
                {"id": key, "dt": partition, "ts": ts, "v": f"{number}-{n}", "_hoodie_is_deleted": goes}
                for n, (key, partition, ts, goes) in enumerate(batch)
            ]
            table.upsert(pa.Table.from_pylist(rows, SCHEMA))
            model.upsert(rows)
        case "delete", keys:
            table.delete(keys)
            model.rows = {name: row for name, row in model.rows.items() if name[0] not in keys}
        case "overwrite", batch:
            overwrite(table, model, batch, number)
        case "delete partition", partition:
            if partition in {row[0] for row in model.rows.values()}:
                table.delete_partitions([partition])
                model.rows = {name: row for name, row in model.rows.items() if row[0] != partition}
        case "compact", _:
            if table.properties.table_type is TableType.MERGE_ON_READ:
                table.compact(delta_commits=1)
            model.before.clear()
        case "compact index", _:
            compact_metadata(table.store)
        case "cluster", _:
            table.cluster(by="v")
            model.before.clear()
        case "clean", _:
            table.clean(retain_commits=1)
            model.before.clear()
        case "rebuild", _:
            table.metadata.rebuild()
        case "rollback", _:
            if model.before:
                table.rollback(newest(table))
                model.rows = model.before.pop()
            return
    is_write = step[0] in ("upsert", "delete", "overwrite", "delete partition")
    if is_write and len(load_state(table.store).timeline.writes) > writes:
        model.before.append(before)


def overwrite(table: Table, model: Model, batch: list[tuple[str, str, int, bool]], number: int) -> None:
    """Rows of one key meet each other, and nothing older; those of the partitions that they are for go."""
    rows: list[dict[str, Any]] = [
        {"id": key, "dt": partition, "ts": ts, "v": f"{number}-{n}", "_hoodie_is_deleted": False}
        for n, (key, partition, ts, _) in enumerate(batch)
    ]
    by_name: dict[Key, dict[str, Any]] = {model.name(row["id"], row["dt"]): row for row in rows}
    rows = list(by_name.values())
    touched = {row["dt"] for row in rows}
    table.overwrite(pa.Table.from_pylist(rows, SCHEMA))
    kept: Mapping[Key, Stored] = {name: row for name, row in model.rows.items() if row[0] not in touched}
    model.rows = dict(kept)
    model.upsert(rows)


def newest(table: Table) -> str:
    writes = load_state(table.store).timeline.writes
    return max(writes, key=lambda i: i.completed or "").requested
