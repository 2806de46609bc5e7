"""A rescale that waits for writers to stop never ends; one that does not look again at what they wrote loses rows."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from math import gcd
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bucketlake import PartitionBuckets, Table, create_table
from bucketlake.errors import CommitConflictError, CorruptTableError
from bucketlake.index import SimpleIndex, declare_rules
from bucketlake.layout import FileSlice
from bucketlake.services import catch_up, here, regroup
from bucketlake.services.catch_up import ROUNDS_MAX, Moved, check_whole, plan_round, run_round
from bucketlake.services.regroup import RegroupTask
from bucketlake.services.rescale import PartitionChange, _linked, rescale_table
from bucketlake.state import load_state
from bucketlake.testing.invariants import check_invariants

SCHEMA = pa.schema([("id", pa.string()), ("dt", pa.string()), ("ts", pa.int64()), ("v", pa.int32())])
TYPES = ["COPY_ON_WRITE", "MERGE_ON_READ"]

Meanwhile = Callable[[int], None]


def rows_of(ids: Sequence[int], ts: int = 1, days: int = 3) -> pa.Table:
    rows = [(f"k{n}", f"d{n % days}", ts, ts) for n in ids]
    return pa.Table.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in rows], SCHEMA)


def a_table(path: object, table_type: str = "COPY_ON_WRITE", *, buckets: int = 2) -> Table:
    table = create_table(
        str(path),
        SCHEMA,
        key="id",
        partition="dt",
        ordering="ts",
        index=PartitionBuckets("none,1", default=buckets),
        table_type=table_type,
    )
    table.upsert(rows_of(range(60)))
    table.upsert(rows_of(range(0, 60, 2), ts=2))
    return table


def newest(table: Table) -> dict[str, int]:
    found = table.to_arrow(columns=["id", "ts"]).to_pylist()
    assert len(found) == len({row["id"] for row in found}), "a key is there twice"
    return {row["id"]: row["ts"] for row in found}


class Rounds:
    """Runs tasks here, notes what each round was given, and lets something happen after it."""

    def __init__(self, meanwhile: Meanwhile = lambda number: None) -> None:
        self.items: list[list[RegroupTask]] = []
        self._meanwhile = meanwhile

    def __call__(self, function: Callable[[Any], Any], items: Sequence[Any], /) -> list[Any]:
        done = here(function, [pickle.loads(pickle.dumps(item)) for item in items])
        self.items.append(list(items))
        self._meanwhile(len(self.items))
        return done

    @property
    def lengths(self) -> list[int]:
        return [len(items) for items in self.items]


@pytest.mark.shows("P14")
@pytest.mark.parametrize("table_type", TYPES)
def test_what_was_written_meanwhile_is_taken_in(table_type: str) -> None:
    """The keys, and so the key sums, are the same: by them alone the old files would pass for new ones."""
    table = a_table(f"memory://catch-up-taken-in-{table_type}", table_type)

    def write(number: int) -> None:
        if number == 1:
            table.upsert(rows_of(range(60), ts=9))

    taken = Rounds(write)
    done = rescale_table(table.store, declare_rules("d,5", 2), tasks=taken)
    assert taken.lengths == [3, 3]
    assert set(newest(table).values()) == {9}
    assert (done.rows, len(newest(table))) == (60, 60)
    check_invariants(table)


@pytest.mark.shows("P14")
def test_only_buckets_that_were_written_to_are_moved_again() -> None:
    table = a_table("memory://catch-up-only", buckets=4)

    def write(number: int) -> None:
        if number == 1:
            table.upsert(rows_of([0], ts=9))

    taken = Rounds(write)
    rescale_table(table.store, declare_rules("d,8", 4), tasks=taken)
    assert taken.lengths == [12, 1], "4 to 8 buckets are 4 tasks a partition, and one of them has the key"
    (again,) = taken.items[1]
    assert again.is_repeat
    assert again.stale.keys() == set(again.paths) & again.stale.keys() != set()
    assert newest(table)["k0"] == 9
    check_invariants(table)


@pytest.mark.shows("P14")
@pytest.mark.parametrize("table_type", TYPES)
def test_a_writer_that_is_always_faster_does_not_starve_a_rescale(
    table_type: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catch_up, "LITTLE_BYTES", -1)
    table = a_table(f"memory://catch-up-starve-{table_type}", table_type)

    def write(number: int) -> None:
        if number <= ROUNDS_MAX:  # the last round is under the lock: nobody gets in
            table.upsert(rows_of(range(60), ts=10 + number))

    taken = Rounds(write)
    rescale_table(table.store, declare_rules("d,5", 2), tasks=taken)
    assert len(taken.lengths) == ROUNDS_MAX + 1
    assert set(newest(table).values()) == {10 + ROUNDS_MAX}
    check_invariants(table)


@pytest.mark.shows("P14")
def test_writers_wait_for_the_last_round_and_are_run_again_under_the_new_rules(tmp_path: Path) -> None:
    table = a_table(tmp_path / "t")
    waiting: list[Future[Any]] = []

    def write(number: int) -> None:
        if number == 1:
            table.upsert(rows_of(range(60), ts=9))
        else:
            writer = Table.open(tmp_path / "t")
            waiting.append(pool.submit(writer.upsert, rows_of(range(60), ts=10)))
            with pytest.raises(TimeoutError):
                waiting[0].result(0.5)

    with ThreadPoolExecutor(1) as pool:
        rescale_table(table.store, declare_rules("d,5", 2), tasks=Rounds(write))
        waiting[0].result(60)
    assert set(newest(table).values()) == {10}
    assert {part.buckets for part in Table.open(tmp_path / "t").layout().partitions} == {5}
    check_invariants(table)


@pytest.mark.shows("P14")
@pytest.mark.parametrize("table_type", TYPES)
def test_rows_that_are_deleted_meanwhile_do_not_come_back(table_type: str) -> None:
    table = a_table(f"memory://catch-up-deleted-{table_type}", table_type)
    gone = [f"k{n}" for n in range(0, 60, 3)]

    def delete(number: int) -> None:
        if number == 1:
            table.delete(rows_of(range(0, 60, 3)).select(["id", "dt"]))
            table.delete_partitions(["d1"])

    taken = Rounds(delete)
    rescale_table(table.store, declare_rules("d,5", 2), tasks=taken)
    assert taken.lengths == [3, 2], "a partition that has lost its file groups is emptied"
    found = newest(table)
    assert not set(gone) & found.keys()
    assert found.keys() == {f"k{n}" for n in range(60) if n % 3 == 2}
    check_invariants(table)
    table.upsert(rows_of(range(60), ts=11))
    assert set(newest(table).values()) == {11}
    check_invariants(table)


@pytest.mark.shows("P14")
def test_a_partition_that_comes_meanwhile_is_written_by_the_old_rules_and_moved() -> None:
    table = a_table("memory://catch-up-new-partition")
    later = rows_of(range(100, 130)).set_column(1, "dt", pa.array(["later"] * 30))

    def write(number: int) -> None:
        if number == 1:
            table.upsert(later)

    rescale_table(table.store, declare_rules("later,7;d0,5", 2), tasks=Rounds(write))
    assert {p.partition: p.buckets for p in table.layout().partitions}["later"] == 7
    table.upsert(later)
    assert len(newest(table)) == 90
    check_invariants(table)


def test_columns_that_come_meanwhile_are_kept() -> None:
    table = a_table("memory://catch-up-columns")
    wider = rows_of([0], ts=9).append_column("more", pa.array(["x"]))

    def write(number: int) -> None:
        if number == 1:
            table.upsert(wider, merge_schema=True)

    rescale_table(table.store, declare_rules("d,5", 2), tasks=Rounds(write))
    assert table.to_arrow(columns=["id", "more"]).to_pylist().count({"id": "k0", "more": "x"}) == 1
    check_invariants(table)


def test_files_that_somebody_else_has_changed_are_not_committed() -> None:
    table = a_table("memory://catch-up-changed")

    def change(number: int) -> None:
        if number == 1:
            path = taken.items[0][0].paths[0]
            table.store.put(path, table.store.read(path))

    taken = Rounds(change)
    with pytest.raises(CommitConflictError, match="another process"):
        rescale_table(table.store, declare_rules("d,5", 2), tasks=taken)
    assert {part.buckets for part in table.layout().partitions} == {2}
    assert not load_state(table.store).timeline.pending()
    check_invariants(table)


def test_a_file_that_no_task_has_put_is_not_committed_either() -> None:
    table = a_table("memory://catch-up-stranger")

    def add(number: int) -> None:
        if number == 1:
            path = taken.items[0][0].paths[0]
            table.store.put(path.replace("00000000-", "00000009-"), table.store.read(path))

    taken = Rounds(add)
    with pytest.raises(CommitConflictError, match="another process"):
        rescale_table(table.store, declare_rules("d,5", 2), tasks=taken)


def test_a_late_task_of_an_earlier_round_puts_nothing_back() -> None:
    """Its file was replaced, or a file without rows stands where it would put its own."""
    table = a_table("memory://catch-up-late")

    def write(number: int) -> None:
        if number == 1:
            table.delete(rows_of(range(60)).select(["id", "dt"]))

    taken = Rounds(write)
    rescale_table(table.store, declare_rules("d,5", 2), tasks=taken)
    before = {file.path: file.version for file in table.store.list("d0").files}
    with pytest.raises(CorruptTableError, match="an earlier attempt"):
        regroup.regroup(taken.items[0][0])
    assert {file.path: file.version for file in table.store.list("d0").files} == before
    assert newest(table) == {}


@pytest.mark.parametrize("budget_bytes", [1, 2_000, 1 << 30])
@pytest.mark.parametrize("table_type", TYPES)
def test_within_any_budget_the_rows_are_the_same(
    table_type: str, budget_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = a_table(f"memory://catch-up-budget-{table_type}-{budget_bytes}", table_type)
    before = newest(table)
    passes: list[tuple[int, int]] = []
    hold = regroup._hold

    def noted(task: RegroupTask, first: int) -> Any:
        held = hold(task, first)
        passes.append((held.rows.nbytes, held.end - first))
        return held

    monkeypatch.setattr(regroup, "_hold", noted)
    done = rescale_table(table.store, declare_rules("d,7", 2), budget_bytes=budget_bytes)
    assert (newest(table), done.rows) == (before, 60)
    assert all(size <= budget_bytes or groups == 1 for size, groups in passes)
    expected = {1: 21, 1 << 30: 3}
    assert len(passes) == expected.get(budget_bytes, len(passes))
    assert 3 <= len(passes) <= 21
    check_invariants(table)


@given(
    hashed=st.integers(0, 2**31 - 1),
    before=st.integers(1, 300),
    after=st.integers(1, 300),
)
def test_rows_stay_within_the_buckets_of_one_task(hashed: int, before: int, after: int) -> None:
    slices = tuple(
        FileSlice("d", f"{n:08d}-0000-0000-0000-000000000000-0", "1", None, ()) for n in range(before)
    )
    change = PartitionChange(partition="d", before=before, after=after, reason="", slices=slices)
    linked = _linked(change, SimpleIndex(before, ("id",)))
    assert len(linked) == gcd(before, after)
    assert sorted(part.file_id for parts, _ in linked for part in parts) == [p.file_id for p in slices]
    assert sorted(bucket for _, buckets in linked for bucket in buckets) == list(range(after))
    (owners,) = [b for parts, b in linked if any(int(p.file_id[:8]) == hashed % before for p in parts)]
    assert hashed % after in owners


def test_a_second_file_group_of_a_bucket_is_refused_and_named() -> None:
    ids = ["00000001-0000-0000-0000-000000000000-0", "00000001-1111-0000-0000-000000000000-0"]
    slices = tuple(FileSlice("d", file_id, "1", None, ()) for file_id in ids)
    change = PartitionChange(partition="d", before=2, after=4, reason="", slices=slices)
    with pytest.raises(CorruptTableError, match=f"{ids[1]}.*a second one of bucket 00000001.*fsck"):
        _linked(change, SimpleIndex(2, ("id",)))
    with pytest.raises(CorruptTableError, match="no bucket"):
        _linked(change, SimpleIndex(1, ("id",)))


def test_a_round_with_nothing_to_do_asks_nobody() -> None:
    moved = Moved()
    assert plan_round((), moved) == ()
    assert run_round((), moved, Rounds()) == moved
    check_whole(a_table("memory://catch-up-nothing").store, moved)
