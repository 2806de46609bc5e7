"""What a write into a table with a record-level index says it did: rows that were given, that moved, that lost."""

from __future__ import annotations

import itertools

import pytest

from bucketlake import RecordIndex, Table, create_table

_names = itertools.count()
TYPES = pytest.mark.parametrize("table_type", ["COPY_ON_WRITE", "MERGE_ON_READ"])


def a_table(table_type: str, *, per_partition: bool = False, ordering: str | None = "ts") -> Table:
    return create_table(
        f"memory://moves-told-{next(_names)}",
        "id STRING, dt STRING, ts BIGINT",
        key="id",
        partition="dt",
        ordering=ordering,
        index=RecordIndex(per_partition=per_partition),
        table_type=table_type,
    )


def row(key: str, partition: str, ts: int) -> dict[str, object]:
    return {"id": key, "dt": partition, "ts": ts}


@pytest.mark.shows("R1")
@TYPES
def test_a_row_that_moves_is_one_row_neither_inserted_nor_deleted(table_type: str) -> None:
    table = a_table(table_type)
    table.upsert([row("a", "x", 1), row("b", "x", 1)])
    done = table.upsert([row("a", "y", 2), row("c", "y", 2)])
    assert (done.rows, done.inserted, done.updated, done.deleted, done.moved) == (2, 1, 0, 0, 1)
    assert "2 rows, 1 inserted, 1 moved" in str(done)
    late = table.upsert([row("a", "x", 1), row("d", "x", 1)])
    assert (late.rows, late.inserted, late.moved) == (2, 1, 0)
    gone = table.delete(["a"])
    assert (gone.rows, gone.deleted, gone.moved) == (1, 1, 0)


@TYPES
@pytest.mark.parametrize("ordering", ["ts", None])
def test_of_a_key_in_two_partitions_of_a_batch_the_summary_says_that_one_lost(
    table_type: str, ordering: str | None
) -> None:
    table = a_table(table_type, ordering=ordering)
    done = table.upsert([row("a", "x", 1), row("a", "y", 2), row("b", "x", 1)])
    assert (done.rows, done.inserted, done.beaten) == (3, 2, 1)
    assert "3 rows, 2 inserted, 1 lost to others of the batch" in str(done)
    done = table.upsert([row("a", "z", 4), row("a", "y", 3), row("a", "z", 5)])
    assert (done.rows, done.inserted, done.moved, done.beaten) == (3, 0, 1, 2)


@TYPES
def test_with_an_index_for_each_partition_none_is_lost(table_type: str) -> None:
    table = a_table(table_type, per_partition=True)
    done = table.upsert([row("a", "x", 1), row("a", "y", 2)])
    assert (done.rows, done.inserted, done.beaten) == (2, 2, 0)
