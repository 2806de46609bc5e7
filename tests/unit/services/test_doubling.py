"""Simple buckets that become twice as many in use. Cut off anywhere, no row may be lost, and the next call goes on."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import Any

import pyarrow as pa
import pytest

from bucketlake import ExtendibleBuckets, PartitionBuckets, SimpleBuckets, Table, create_table
from bucketlake.errors import ConfigError, ConflictError, InstantError
from bucketlake.index import bucket_of, declare_rules
from bucketlake.services import (
    check_table,
    create_savepoint,
    look_for_restore,
    schedule_clustering,
    schedule_resize,
)
from bucketlake.services.doubling import double_table, next_round
from bucketlake.services.rescale import rescale_table
from bucketlake.state import load_state
from bucketlake.testing.invariants import check_invariants
from bucketlake.write import ArrowRows, Operation, run_write

SCHEMA = pa.schema([("id", pa.string()), ("dt", pa.string()), ("ts", pa.int64()), ("v", pa.int64())])
_numbers = itertools.count()


def rows_of(keys: range | list[int], ts: int = 1) -> pa.Table:
    rows = [(f"k{n}", f"d{n % 2}", ts, n) for n in keys]
    return pa.Table.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in rows], SCHEMA)


def loaded(
    table_type: str = "MERGE_ON_READ", keys: range = range(400), path: Path | None = None, **more: Any
) -> Table:
    table = create_table(
        path or f"memory://doubling-{next(_numbers)}", SCHEMA, key="id", partition="dt", ordering="ts",
        **{"index": SimpleBuckets(2), "table_type": table_type, **more},
    )  # fmt: skip
    table.upsert(rows_of(keys))
    table.upsert(rows_of(keys[: len(keys) // 2], ts=2))
    return table


def contents(table: Table, **how: Any) -> dict[str, tuple[str, int, int]]:
    rows = table.to_arrow(columns=SCHEMA.names, **how).to_pylist()
    found = {row["id"]: (row["dt"], row["ts"], row["v"]) for row in rows}
    assert len(found) == len(rows), "a key is there twice"
    return found


def engine_of(table: Table) -> tuple[str | None, int | None]:
    properties = load_state(table.store).properties
    return properties.bucket_engine, properties.bucket_count


def check(table: Table) -> None:
    check_invariants(table)
    report = check_table(table.store)
    assert report.damage == (), str(report)


@pytest.mark.shows("X4")
@pytest.mark.parametrize("table_type", ["COPY_ON_WRITE", "MERGE_ON_READ"])
def test_a_simple_table_doubles_bucket_by_bucket_while_it_is_written_to(table_type: str) -> None:
    table = loaded(table_type)
    truth = contents(table)
    moment = load_state(table.store).timeline.writes[-1].requested
    due = table.buckets.plan_double()
    assert (due.work.before, due.work.after, len(due.work.left), due.work.is_begun) == (2, 4, 4, False)
    assert "simple buckets: 2 -> 4 per partition; not begun" in str(due)
    assert engine_of(table) == ("SIMPLE", 2), "a dry run changes nothing"

    first = table.buckets.double(rounds=1)
    assert (len(first.runs), first.is_finished) == (1, False)
    assert "Until then Hudi reads the table" in str(first)
    assert engine_of(table) == ("EXTENDIBLE_HASHING", 2)
    assert {part.partition: part.buckets for part in table.layout().partitions} == {"d0": 3, "d1": 3}
    table.upsert(rows_of(range(390, 450), ts=5))
    truth |= {f"k{n}": (f"d{n % 2}", 5, n) for n in range(390, 450)}
    assert contents(table) == truth
    assert table.buckets.plan_double().work.split == 2
    check(table)

    rest = table.buckets.double()
    assert rest.is_finished and len(rest.runs) == 1
    assert engine_of(table) == ("SIMPLE", 4)
    assert {part.partition: part.buckets for part in table.layout().partitions} == {"d0": 4, "d1": 4}
    assert contents(table) == truth
    check(table)
    table.upsert(rows_of(range(40), ts=9))
    truth |= {f"k{n}": (f"d{n % 2}", 9, n) for n in range(40)}
    assert contents(table) == truth
    assert table.get("k3").num_rows == 1
    assert len(contents(table, as_of=moment)) == 400
    for key in ("k0", "k1", "k2", "k3"):
        assert contents(table, as_of=moment, filters=[("id", "=", key)]).keys() == {key}
    again = table.buckets.double()
    assert (again.buckets, again.is_finished) == (8, True)
    assert contents(table) == truth
    check(table)


@pytest.mark.shows("X4")
def test_a_doubling_that_is_not_finished_is_taken_back() -> None:
    table = loaded()
    truth = contents(table)
    table.buckets.double(rounds=1)
    table.upsert(rows_of(range(50), ts=5))
    truth |= {f"k{n}": (f"d{n % 2}", 5, n) for n in range(50)}
    undone = table.buckets.undo_double()
    assert (undone.buckets, undone.is_finished, len(undone.runs)) == (2, True, 1)
    assert engine_of(table) == ("SIMPLE", 2)
    assert contents(table) == truth
    check(table)
    table.upsert(rows_of(range(20), ts=7))
    assert len(contents(table)) == 400
    with pytest.raises(ConfigError, match="are not being doubled"):
        table.buckets.undo_double()


@pytest.mark.shows("X4")
def test_a_split_whose_process_died_is_completed_by_the_next_call() -> None:
    table = loaded()
    truth = contents(table)
    double_table(table.store, rounds=1)
    plan = next_round(table.store, 2)
    assert plan is not None
    pending = schedule_resize(table.store, plan)
    table.upsert(rows_of(range(30), ts=5))
    truth |= {f"k{n}": (f"d{n % 2}", 5, n) for n in range(30)}
    assert table.buckets.plan_double().work.pending == (pending,)
    done = table.buckets.double()
    assert [one.instant for one in done.runs] == [pending] and done.is_finished
    assert contents(table) == truth
    check(table)


@pytest.mark.shows("X4")
def test_indexes_that_record_keys_beside_the_buckets_are_told_of_a_doubling() -> None:
    table = loaded(keys=range(200))
    table.create_index("by_v", on="v", record_index=True)
    table.buckets.double(rounds=1)
    table.upsert(rows_of(range(150, 230), ts=5))
    assert table.get_by("v", [7, 160]).num_rows == 2
    assert table.buckets.double().is_finished
    table.delete(["k7"])
    assert table.get_by("v", [7, 160, 229]).num_rows == 2
    check(table)


@pytest.mark.shows("X4")
@pytest.mark.parametrize("table_type", ["COPY_ON_WRITE", "MERGE_ON_READ"])
@pytest.mark.parametrize("at", ["begin", "end", "both", "undo"])
def test_a_write_that_a_doubling_overtakes_is_run_again(table_type: str, at: str) -> None:
    """It has placed its rows by buckets that are no more: among them a bucket that it opened."""
    table = loaded(table_type, keys=range(0, 400, 4) if at == "both" else range(400))
    if at in ("end", "undo"):
        table.buckets.double(rounds=1)

    def meanwhile() -> None:
        if at == "undo":
            table.buckets.undo_double()
        else:
            table.buckets.double(rounds=1 if at == "begin" else None)

    HeldUp(table, meanwhile).upsert(rows_of(range(380, 460), ts=7))
    found = contents(table)
    assert {key for key, row in found.items() if row[1] == 7} == {f"k{n}" for n in range(380, 460)}
    check(table)
    table.buckets.double()
    assert contents(table) == found
    check(table)


@pytest.mark.thorough
@pytest.mark.shows("X4")
@pytest.mark.parametrize("table_type", ["COPY_ON_WRITE", "MERGE_ON_READ"])
def test_every_snapshot_is_the_truth_while_a_table_doubles_again_and_again(
    tmp_path: Path, table_type: str
) -> None:
    made = loaded(table_type, path=tmp_path / "t")
    ended = Event()
    acknowledged: list[int] = []

    def write() -> None:
        number = 10
        while not ended.is_set():
            number += 1
            try:
                Table.open(tmp_path / "t").upsert(rows_of(range(200), ts=number))
            except ConflictError:
                continue
            acknowledged.append(number)

    def read() -> int:
        reads = 0
        while not ended.is_set():
            known = acknowledged[-1] if acknowledged else 0
            table = Table.open(tmp_path / "t")
            found = contents(table)
            assert len(found) == 400
            newest = {row[1] for key, row in found.items() if int(key[1:]) < 200}
            assert len(newest) == 1 and min(newest) >= known
            assert table.get(f"k{reads % 400}").num_rows == 1
            reads += 1
        return reads

    with ThreadPoolExecutor(2) as pool:
        writer, reader = pool.submit(write), pool.submit(read)
        try:
            for _ in range(2):
                while not Table.open(tmp_path / "t").buckets.double(rounds=1).is_finished:
                    pass
        finally:
            ended.set()
        writer.result(120)
        assert reader.result(120) > 0
    assert acknowledged
    assert engine_of(made) == ("SIMPLE", 8)
    assert all(row[1] == acknowledged[-1] for key, row in contents(made).items() if int(key[1:]) < 200)
    check(made)


@pytest.mark.shows("X4")
def test_what_has_few_rows_or_none_is_doubled_too() -> None:
    empty = loaded(keys=range(0))
    assert empty.buckets.double().runs == ()
    assert engine_of(empty) == ("SIMPLE", 4)
    empty.upsert(rows_of(range(9)))
    assert len(contents(empty)) == 9
    check(empty)
    one = loaded(keys=range(1))
    one.buckets.double(rounds=1)
    assert engine_of(one) == ("SIMPLE", 4), "its only bucket is split"
    assert len(contents(one)) == 1
    one.upsert(rows_of(range(40), ts=3))
    assert len(contents(one)) == 40
    check(one)


@pytest.mark.shows("X4")
def test_what_cannot_be_doubled_is_refused_before_anything_is_changed() -> None:
    ruled = loaded(index=PartitionBuckets("d0,4", default=2), keys=range(4))
    with pytest.raises(ConfigError, match=r"doubling is for simple buckets\. Give it rules with twice"):
        ruled.buckets.plan_double()
    growing = loaded(index=ExtendibleBuckets(2), keys=range(4))
    with pytest.raises(ConfigError, match="split by themselves"):
        growing.buckets.double()
    fixed = loaded(keys=range(4), non_blocking=True)
    with pytest.raises(ConfigError, match="non-blocking"):
        fixed.buckets.double()
    table = loaded(keys=range(40))
    with pytest.raises(ConfigError, match="rounds is 0"):
        table.buckets.double(rounds=0)
    assert engine_of(table) == ("SIMPLE", 2)


@pytest.mark.shows("X4")
@pytest.mark.parametrize("what", ["rescale", "clustering"])
def test_beside_what_moves_rows_already_no_doubling_begins(what: str) -> None:
    table = loaded("COPY_ON_WRITE")

    def dies(*_: object) -> Any:
        raise KeyboardInterrupt

    if what == "rescale":
        with pytest.raises(KeyboardInterrupt):
            rescale_table(table.store, declare_rules("d0,4", 2), tasks=dies)
    else:
        assert schedule_clustering(table.store, table.plan_clustering(by=["v"]).work)
    with pytest.raises(ConflictError, match=rf"the {what} of \d+ is pending.*Complete it or take it back"):
        table.buckets.plan_double()
    with pytest.raises(ConflictError, match=rf"the {what} of \d+ is pending"):
        table.buckets.double()
    assert engine_of(table) == ("SIMPLE", 2)


@pytest.mark.shows("X4")
def test_a_split_bucket_whose_rows_all_fell_to_one_half_is_merged_back_too() -> None:
    table = loaded(keys=range(0))
    ones = [next(n for n in range(0, 100, 2) if bucket_of([f"k{n}"], 2) == bucket) for bucket in (0, 1)]
    table.upsert(rows_of(ones))
    assert not table.buckets.double(rounds=1).is_finished
    assert table.buckets.undo_double().is_finished
    assert engine_of(table) == ("SIMPLE", 2)
    assert len(contents(table)) == 2
    table.upsert(rows_of(range(40), ts=9))
    check(table)


@pytest.mark.shows("X4")
def test_nothing_else_changes_the_buckets_of_a_table_that_is_being_doubled() -> None:
    table = loaded()
    savepoint = create_savepoint(table.store).instant
    table.buckets.double(rounds=1)
    for change in (table.buckets.resize, table.buckets.plan_resize):
        with pytest.raises(ConflictError, match="are being doubled"):
            change()
    with pytest.raises(ConflictError, match="`bucketlake buckets double` goes on with it"):
        table.buckets.overwrite("d0,8")
    done = table.buckets.double()
    with pytest.raises(InstantError, match="buckets were doubled since"):
        table.rollback(done.runs[-1].instant)
    with pytest.raises(InstantError, match="buckets were doubled since"):
        look_for_restore(load_state(table.store), savepoint)
    table.buckets.double(rounds=1)
    with pytest.raises(InstantError, match="buckets were doubled since"):
        look_for_restore(load_state(table.store), savepoint)
    check(table)


class HeldUp:
    """A write that others come in between: after its rows are written, and before it commits."""

    def __init__(self, table: Table, meanwhile: Callable[[], object]) -> None:
        self.table = table
        self.meanwhile: Callable[[], object] | None = meanwhile

    def upsert(self, rows: pa.Table) -> None:
        outer = self

        class Rows(ArrowRows):
            def run(self, plan: Any) -> Any:
                done = super().run(plan)
                if outer.meanwhile is not None:
                    act, outer.meanwhile = outer.meanwhile, None
                    act()
                return done

        run_write(Rows(rows), self.table.store, Operation.UPSERT)
