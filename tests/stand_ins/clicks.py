"""Batches of a stream of clicks; what a table holds after some of them, as DuckDB finds it; and which ones it has."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import duckdb
import pyarrow as pa

from bucketlake import Table
from bucketlake.commit.stream import Batch, Marks, load_seen
from bucketlake.config import load_properties
from bucketlake.state import load_state
from bucketlake.storage import Store
from bucketlake.streaming.stream import Stream
from bucketlake.testing.invariants import check_invariants
from stand_ins.metadata_check import check_metadata

STREAM = "2f9d7a3e-0d0b-4b4e-9d3c-1f1f6f0a7c11"

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("dt", pa.string()),
        ("ts", pa.int64()),
        ("batch", pa.int64()),
        ("_hoodie_is_deleted", pa.bool_()),
    ]
)


def batch(number: int) -> pa.Table:
    """Rows of a batch: one of no other batch, shared ones in several versions, and one that is deleted."""
    rows = [{"id": 1000 + number, "ts": number, "deleted": False}]
    rows += [
        {"id": n, "ts": 10 * number + k, "deleted": False} for n in range(number, number + 4) for k in (1, 0)
    ]
    rows += [{"id": number, "ts": 10 * number + 5, "deleted": True}]
    return pa.Table.from_pylist(
        [
            {
                "id": row["id"],
                "dt": f"p{row['id'] % 2}",
                "ts": row["ts"],
                "batch": number,
                "_hoodie_is_deleted": row["deleted"],
            }
            for row in rows
        ],
        SCHEMA,
    )


def truth(numbers: Iterable[int]) -> list[tuple[Any, ...]]:
    """What a table holds after these batches, each once, as DuckDB finds it."""
    rows = pa.concat_tables([batch(number) for number in numbers])
    assert rows.num_rows
    found = duckdb.sql(
        "SELECT id, dt, ts, batch FROM (SELECT *, row_number() OVER (PARTITION BY id ORDER BY ts DESC) AS n FROM rows)"
        " WHERE n = 1 AND NOT _hoodie_is_deleted ORDER BY id"
    )
    return found.fetchall()


def rows_of(store: Store) -> list[tuple[Any, ...]]:
    rows = table_of(store).to_arrow(columns=["id", "dt", "ts", "batch"])
    return sorted(tuple(row.values()) for row in rows.to_pylist())


def table_of(store: Store) -> Table:
    return Table(store, load_properties(store))


def new_process(store: Store, **how: Any) -> Stream:
    """The stream as a process finds it that has just been started."""
    return Stream(store=store, id=STREAM, checkpoint="ck", name="clicks", **how)


def mark_in(store: Store, stream: str = STREAM) -> int:
    properties = load_properties(store)
    batch_of = Batch(stream=stream, number=0)
    mark = Marks(store, properties).find(batch_of, load_state(store).timeline)
    return -1 if mark is None else mark.batch


def commits_of(store: Store) -> list[int]:
    """The numbers of the batches that the timeline tells of, in their order."""
    return table_of(store).query_progress()["batch"].to_pylist()


def check_counted_once(store: Store, numbers: Iterable[int]) -> None:
    numbers = list(numbers)
    assert rows_of(store) == truth(numbers)
    assert commits_of(store) == numbers, "every batch is one commit"
    assert mark_in(store) == numbers[-1]
    seen = load_seen(store, STREAM)
    assert seen is not None and seen.batch == numbers[-1]
    check_invariants(table_of(store))
    check_metadata(store)
