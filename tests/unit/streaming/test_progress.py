"""What became of each batch can be asked of the table, by anybody, later."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bucketlake import RecordIndex, Table
from bucketlake.commit.operation import Operation
from bucketlake.commit.stream import Batch
from bucketlake.errors import ConfigError
from bucketlake.streaming.progress import line_of
from bucketlake.streaming.query import trigger_of
from bucketlake.streaming.stream import Stream
from bucketlake.streaming.upkeep import Upkeep
from bucketlake.write import ArrowRows, CommitSummary, WriteOptions, run_write
from stand_ins.orders_table import orders, orders_table

pytestmark = pytest.mark.shows("R10")


def write(table: Table, keys: range, number: int, stream: str = "s", name: str = "orders") -> CommitSummary:
    rows = ArrowRows(orders(keys, f"batch {number}", number))
    batch = Batch(stream=stream, number=number, name=name)
    return run_write(rows, table.store, Operation.UPSERT, WriteOptions(batch=batch))


@pytest.fixture(scope="module")
def table() -> Table:
    """Two streams, and a writer that is none."""
    table = orders_table("memory://progress", index=RecordIndex())
    write(table, range(10), 0)
    write(table, range(5, 15), 1)
    write(table, range(100, 103), 0, stream="t", name='a "quoted" one')
    table.upsert(orders(range(3), "no stream", 50))
    return table


def test_there_is_a_row_for_each_batch(table: Table) -> None:
    rows = table.query_progress().to_pylist()
    told = [(row["stream"], row["batch"], row["rows"], row["inserted"], row["updated"]) for row in rows]
    assert told == [("s", 0, 10, 10, 0), ("s", 1, 10, 5, 5), ("t", 0, 3, 3, 0)]
    assert all(row["seconds"] > 0 and row["bytes"] > 0 and row["files"] > 0 for row in rows)
    assert all(row["completed"] > row["instant"] for row in rows)


def test_a_batch_says_how_far_services_were_behind_when_they_were_last_looked_at() -> None:
    table = orders_table("memory://progress-behind")
    stream, upkeep = Stream(store=table.store, id="s"), Upkeep(table.store, runs_rounds=False)
    looked = []
    for number in range(3):
        looked.append(upkeep.behind)
        stream.behind = upkeep.behind
        stream.upsert(orders(range(3), "some", number), number)
        upkeep.after_commit(15 * number, None)  # type: ignore[arg-type] # of no Spark
    assert looked[0] is None and looked[2]
    assert table.query_progress()["behind_times"].to_pylist() == [
        None if one is None else round(one, 2) for one in looked
    ]


def test_streams_are_summed_up(table: Table) -> None:
    one, other = table.stream_status()
    assert (one.stream, one.batch, one.batches, one.rows) == ("s", 1, 2, 20)
    assert (other.name, other.batch, other.rows) == ('a "quoted" one', 0, 3)
    assert one.p50_seconds <= one.p95_seconds
    assert one.rows_per_second > 0


def test_a_table_without_a_stream_has_none() -> None:
    table = orders_table("memory://progress-none")
    table.upsert(orders(range(3), "no stream", 50))
    assert table.stream_status() == ()
    assert table.query_progress().num_rows == 0


def test_prometheus_can_read_the_figures(table: Table) -> None:
    lines = table.stream_metrics().splitlines()
    assert 'bucketlake_stream_rows{table="memory://progress",stream="s",name="orders"} 10' in lines
    assert any(r'name="a \"quoted\" one"' in line for line in lines)
    assert sum(line.startswith("# TYPE") for line in lines) == sum(
        line.startswith("# HELP") for line in lines
    )
    assert any(line.startswith("bucketlake_backlog_times") for line in lines)


def test_a_batch_is_a_line_in_the_log(table: Table) -> None:
    batch = Batch(stream="s", number=2, name="orders")
    line = line_of(batch, write(table, range(3), 2), seconds=1.5)
    assert line.startswith("batch 2 of orders: 2")
    assert "3 rows" in line and "1.50 s" in line
    assert line_of(replace(batch, behind=2.5), write(table, range(3), 3), seconds=1.5).endswith(
        "); services 2.5 times behind"
    )
    nothing = line_of(batch, CommitSummary(operation="UPSERT", rows=4), seconds=0.5)
    assert nothing == "batch 2 of orders: 4 rows, nothing to commit; 0.50 s"


@pytest.mark.parametrize("trigger", [{"continuous": "1 second"}, {"once": True, "availableNow": True}, 5])
def test_a_trigger_that_makes_no_batches_is_refused(trigger: object) -> None:
    with pytest.raises(ConfigError, match="expected a text such as '10 seconds'"):
        trigger_of(trigger)  # type: ignore[arg-type] # what a caller may get wrong
