"""An index of values, told only what writes changed, has what a reader finds; or queries by it would miss rows.

Histories of whole calls: rows come, change, become null, are late, move and go, by every kind of write; services run in
between, and what was done is taken back. After each call the index is held against the rows: a stand-in, and Hudi's
secondary indexes, two on one table.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bucketlake import RecordIndex, SimpleBuckets, Table, create_table
from bucketlake.commit.metadata_table import is_listed
from bucketlake.config import TableType, load_properties
from bucketlake.services import compact_metadata
from bucketlake.state import load_state
from stand_ins.kept_values import BOTH, KeptValues

SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("dt", pa.string()),
        ("ts", pa.int64()),
        ("city", pa.string()),
        ("n", pa.int32()),
        ("_hoodie_is_deleted", pa.bool_()),
    ]
)
INDEXED = ("city", "n")
KEYS = [f"k{n}" for n in range(7)]
PARTITIONS = ("p0", "p1")
Row = tuple[str, str, int, str | None, int | None, bool]
_names = itertools.count()

_SERVICES = ("compact", "cluster", "clean", "archive", "compact metadata")

VALUES = st.tuples(
    st.sampled_from(PARTITIONS),
    st.integers(0, 5),
    st.sampled_from([None, "", "Rome", "Oslo"]),
    st.sampled_from([None, 0, 1]),
    st.sampled_from([False] * 5 + [True]),
)
BATCH = st.lists(
    st.tuples(st.sampled_from(KEYS), VALUES).map(lambda both: (both[0], *both[1])), min_size=1, max_size=7
)
STEPS = st.lists(
    st.one_of(
        st.tuples(
            st.sampled_from(["upsert", "upsert", "upsert avro", "bulk insert", "overwrite", "overwrite all"]),
            BATCH,
        ),
        st.tuples(st.just("upsert"), BATCH),
        st.tuples(st.just("delete"), BATCH),
        st.tuples(
            st.sampled_from(["drop", "rollback", "savepoint", "restore", *_SERVICES]),
            st.just([]),
        ),
    ),
    min_size=2,
    max_size=9,
)


@dataclass
class History:
    """A table, and which of its commits can be taken back."""

    table: Table
    moves: bool
    """Whether a key may go to another partition."""
    undoable: int = 0
    savepoint: str | None = None
    done: list[str] = field(default_factory=list)

    def rows(self, batch: list[Row]) -> pa.Table:
        if not self.moves:
            batch = [(key, f"p{int(key[1:]) % 2}", *rest) for key, _, *rest in batch]
        return pa.Table.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in batch], SCHEMA)

    def do(self, kind: str, batch: list[Row]) -> None:
        before = self.writes
        if kind in _CALLS:
            _CALLS[kind](self)
        else:
            _WRITES[kind](self.table, self.rows(batch))
            self.undoable += self.writes - before

    @property
    def writes(self) -> int:
        return len(load_state(self.table.store).timeline.writes)


def _overwrite(table: Table, rows: pa.Table, **how: Any) -> None:
    """A row that is marked as deleted does not belong into what replaces others."""
    alive = rows.set_column(rows.num_columns - 1, "_hoodie_is_deleted", pa.array([False] * rows.num_rows))
    table.overwrite(alive, **how)


_WRITES: dict[str, Callable[[Table, pa.Table], object]] = {
    "upsert": lambda table, rows: table.upsert(rows),
    "upsert avro": lambda table, rows: table.upsert(rows, log_format="avro"),
    "bulk insert": lambda table, rows: table.bulk_insert(rows),
    "overwrite": _overwrite,
    "overwrite all": lambda table, rows: _overwrite(table, rows, whole_table=True),
    "delete": lambda table, rows: table.delete(rows.select(["id", "dt"])),
}


def _drop(history: History) -> None:
    before = history.writes
    rows = history.table.to_arrow(columns=["dt"])
    if "p0" in rows["dt"].to_pylist():
        history.table.delete_partitions(["p0"])
    history.undoable += history.writes - before


def _serve(history: History, kind: str) -> None:
    table = history.table
    if kind == "cluster":
        table.cluster(by="city")
    elif kind == "clean":
        table.clean(retain_commits=1)
    elif kind == "archive":
        table.archive(keep_min=1, keep_max=2)
    elif kind == "compact metadata":
        if is_listed(load_properties(table.store)):
            compact_metadata(table.store)
    elif table.properties.table_type is TableType.MERGE_ON_READ:
        table.compact(delta_commits=1)
    history.undoable = 0


def _roll_back(history: History) -> None:
    if history.undoable and history.savepoint is None:
        writes = load_state(history.table.store).timeline.writes
        history.table.rollback(max(writes, key=lambda i: i.completed or "").requested)
        history.undoable -= 1


def _save(history: History) -> None:
    writes = load_state(history.table.store).timeline.writes
    if writes and history.savepoint is None:
        newest = max(writes, key=lambda i: i.completed or "").requested
        history.table.savepoint(newest)
        history.savepoint = newest


def _restore(history: History) -> None:
    if history.savepoint is not None:
        history.table.restore(history.savepoint)
        history.table.delete_savepoint(history.savepoint)
        history.savepoint, history.undoable = None, 0


_CALLS: dict[str, Callable[[History], None]] = {
    "drop": _drop,
    **{kind: partial(_serve, kind=kind) for kind in _SERVICES},
    "rollback": _roll_back,
    "savepoint": _save,
    "restore": _restore,
}


def a_table(table_type: str, index: Any, ordering: str | None, kept: KeptValues) -> Table:
    made = create_table(
        f"memory://told-values-{next(_names)}",
        SCHEMA,
        key="id",
        partition="dt",
        ordering=ordering,
        index=index,
        table_type=table_type,
        maintenance="off",
    )
    if isinstance(index, SimpleBuckets):
        made.metadata.build(record_index=True)
        made = Table(made.store, load_properties(made.store))
    return kept.of(made, *INDEXED)


@pytest.mark.shows("R11")
@pytest.mark.parametrize("table_type", ["COPY_ON_WRITE", "MERGE_ON_READ"])
@pytest.mark.parametrize(
    ("index", "ordering"),
    [
        (RecordIndex(shards=2), "ts"),
        (RecordIndex(shards=2), None),
        (RecordIndex(update_partition=False), "ts"),
        (SimpleBuckets(2), "ts"),
        (SimpleBuckets(2), None),
    ],
    ids=["record", "record, the later wins", "record, rows stay", "buckets", "buckets, the later wins"],
)
@pytest.mark.parametrize("kept", BOTH)
@settings(max_examples=max(8, settings().max_examples // 10), deadline=None)
@given(steps=STEPS)
def test_an_index_of_values_has_what_a_reader_finds_after_every_call(
    table_type: str, index: Any, ordering: str | None, kept: str, steps: list[tuple[str, list[Row]]]
) -> None:
    table = a_table(table_type, index, ordering, BOTH[kept])
    history = History(table, moves=isinstance(index, RecordIndex))
    for kind, batch in steps:
        history.do(kind, batch)
        BOTH[kept].check(history.table.store, *INDEXED)
