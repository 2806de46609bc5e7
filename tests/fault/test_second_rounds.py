"""A write that was overtaken, and writes again what is stale, may be cut off at any moment of that.

Of what it has put under names that the first round has taken, nothing may be left, or all of it: the table is as it
was when the other had committed, or as after both. A run of the soak profile takes every moment, any other a part.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import pyarrow as pa
import pytest

from bucketlake import RecordIndex, Table
from bucketlake.commit.locks import table_lock
from bucketlake.commit.metadata_build import build_metadata
from bucketlake.commit.recovery import recover
from bucketlake.commit.transaction import begin
from bucketlake.config import TableType, load_properties
from bucketlake.errors import BucketlakeError, ConflictError
from bucketlake.services import check_table
from bucketlake.state import load_state
from bucketlake.storage import Store
from bucketlake.testing.faulty_store import FaultyStore, InjectedError
from bucketlake.write import ArrowRows, Operation, TableSpec, WriteOptions, WriteState, create, job, run_write
from bucketlake.write.finish import Prepared, finish
from plugins.soak import IS_SOAK
from stand_ins.aging import Bucket, age, copy_of
from stand_ins.orders_table import SCHEMA, orders
from stand_ins.record_index_check import check_record_index

pytestmark = [pytest.mark.thorough, pytest.mark.shows("R1", "X2", "X9")]

MOMENTS_MAX = 4
Row = tuple[Any, ...]
BEFORE, THEIRS = orders(range(4), "before", 1), orders(range(4, 7), "theirs", 2)
OURS = orders(range(2, 12), "ours", 3)
"""Some of what was there, and of what the other brings; and new keys in both partitions."""
KINDS = [
    (table_type, per_partition)
    for table_type in (TableType.COPY_ON_WRITE, TableType.MERGE_ON_READ)
    for per_partition in (False, True)
]


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job, "sleep", lambda seconds: None)
    monkeypatch.setitem(table_lock.__wrapped__.__kwdefaults__, "wait_seconds", 0.05)  # type: ignore[attr-defined]


@dataclass
class Overtaken(ArrowRows):
    """Rows that another write passes when they are written for the first time."""

    rows: pa.Table
    other: Prepared
    instants: list[str] = field(default_factory=list)
    when: Callable[[], object] = lambda: None
    """Done when the second round begins."""

    def __post_init__(self) -> None:
        super().__init__(self.rows)

    def run(self, plan: WriteState) -> Any:
        done = super().run(plan)
        self.instants.append(plan.instant)
        if len(self.instants) == 1:
            finish(self.other)
            self.when()
        return done


def a_table(kind: tuple[TableType, bool]) -> Bucket:
    return copy_of(_made(kind))


@cache
def _made(kind: tuple[TableType, bool]) -> Bucket:
    table_type, per_partition = kind
    store = Bucket()
    index = RecordIndex(per_partition=per_partition, shards=2)
    spec = TableSpec(
        name="orders",
        schema=SCHEMA,
        key=("id",),
        partition=("dt",),
        ordering=("ts",),
        table_type=table_type,
        index=index,
    )
    create(store, spec)
    build_metadata(store)
    upsert(store, BEFORE)
    return store


def upsert(store: Store, rows: pa.Table) -> None:
    run_write(ArrowRows(rows), store, Operation.UPSERT)


def written_by_another(store: Store) -> Prepared:
    """Begin a write, and write its files; what is left of it is to be committed."""
    options = WriteOptions()
    transaction, state = begin(store, operation=Operation.UPSERT, index_of=options.index_of)
    return job.prepare(ArrowRows(THEIRS), transaction, state, options, job._Stopwatch())


def rows_of(store: Store) -> tuple[Row, ...]:
    rows = Table(store, load_properties(store)).to_arrow(columns=SCHEMA.names)
    return tuple(sorted(tuple(row.values()) for row in rows.to_pylist()))


def outcomes(kind: tuple[TableType, bool]) -> tuple[tuple[Row, ...], tuple[Row, ...]]:
    """Return the rows with the other's write, and with both."""
    store = a_table(kind)
    upsert(store, THEIRS)
    before = rows_of(store)
    upsert(store, OURS)
    return before, rows_of(store)


def moments_of(kind: tuple[TableType, bool]) -> tuple[list[str], int]:
    """Return the operations of an overtaken write, and how many of them are done before its second round."""
    store = a_table(kind)
    counting, started = FaultyStore(store), []
    other = written_by_another(store)
    rows = Overtaken(OURS, other, when=lambda: started.append(len(counting.operations)))
    run_write(rows, counting, Operation.UPSERT)
    assert len(rows.instants) == 2
    assert len(set(rows.instants)) == 1, "it has kept its instant"
    assert any(operation.startswith("replace_if") for operation in counting.operations[started[0] :])
    return counting.operations, started[0]


def some_of(moments: list[int], kind: tuple[TableType, bool]) -> list[int]:
    """Choose moments, others for each kind of table."""
    step = 1 if IS_SOAK else max(1, len(moments) // MOMENTS_MAX)
    return moments[KINDS.index(kind) * step // len(KINDS) :: step]


def changes(operation: str) -> bool:
    return operation.split()[0] not in {"list", "stat", "read"}


def check_sound(store: Bucket, expected: tuple[tuple[Row, ...], ...]) -> None:
    found = rows_of(store)
    assert found in expected
    assert check_record_index(store) == len(found)
    report = check_table(store)
    assert report.damage == (), str(report)


def check_aftermath(store: Bucket, instants: list[str], expected: tuple[tuple[Row, ...], ...]) -> None:
    assert rows_of(store) in expected, "readers before anybody recovers"
    age(store)
    for _ in range(2):  # the second finds the markers that the first one's rollback left
        recover(store, load_properties(store))
        age(store)
    check_sound(store, expected)
    committed = {i.requested for i in load_state(store).timeline.writes}
    for instant in set(instants) - committed:
        left = [file.path for file in store.list("", recursive=True).files if instant in file.path]
        assert [path for path in left if "rollback" not in path and "/.bucketlake/" not in path] == []
    upsert(store, OURS)
    check_sound(store, expected[-1:])


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_cut_off_in_its_second_round_all_of_it_is_there_or_nothing(kind: tuple[TableType, bool]) -> None:
    before, after = outcomes(kind)
    operations, first = moments_of(kind)
    numbers = [n for n in range(first + 1, len(operations) + 1) if changes(operations[n - 1])]
    for turn, number in enumerate(some_of(numbers, kind)):
        store = a_table(kind)
        fault = {"fails_at": number, "took_effect": turn % 2 == 1, "is_dead": turn % 3 != 2}
        rows = Overtaken(OURS, written_by_another(store))
        try:
            run_write(rows, FaultyStore(store, **fault), Operation.UPSERT)
            expected: tuple[tuple[Row, ...], ...] = (after,)
        except (InjectedError, ConflictError):
            expected = (before, after)
        try:
            check_aftermath(store, rows.instants, expected)
        except Exception as error:
            error.add_note(f"{fault}: {operations[number - 1]}")
            raise


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_held_up_in_its_second_round_until_it_is_taken_for_dead(kind: tuple[TableType, bool]) -> None:
    before, after = outcomes(kind)
    operations, first = moments_of(kind)

    def others(store: Store) -> None:
        age(store)
        recover(store, load_properties(store))

    for number in some_of(list(range(first + 1, len(operations) + 1)), kind):
        store = a_table(kind)
        rows = Overtaken(OURS, written_by_another(store))
        try:
            run_write(rows, FaultyStore(store, fails_at=number, meanwhile=others), Operation.UPSERT)
            expected: tuple[tuple[Row, ...], ...] = (after,)
        except BucketlakeError:
            expected = (before, after)
        try:
            check_aftermath(store, [], expected)
        except Exception as error:
            error.add_note(f"held up at {number}: {operations[number - 1]}")
            raise


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_held_up_in_its_second_round_while_somebody_else_writes_neither_is_lost(
    kind: tuple[TableType, bool],
) -> None:
    _, after = outcomes(kind)
    operations, first = moments_of(kind)
    third = orders([3, 5, 9, 30], "third", 9)
    for number in some_of(list(range(first + 1, len(operations) + 1)), kind):
        store = a_table(kind)
        rows, written = Overtaken(OURS, written_by_another(store)), []

        def others(store: Store, written: list[bool] = written) -> None:
            try:
                upsert(store, third)
                written.append(True)
            except ConflictError:
                written.append(False)

        try:
            run_write(rows, FaultyStore(store, fails_at=number, meanwhile=others), Operation.UPSERT)
        except ConflictError:  # the other had the lock for longer than we waited
            upsert(store, OURS)
        try:
            assert len(written) == 1
            newest = [tuple(row.values()) for row in third.to_pylist()] if written[0] else []
            rest = [row for row in after if row[0] not in {row[0] for row in newest}]
            check_sound(store, (tuple(sorted(rest + newest)),))
        except Exception as error:
            error.add_note(f"held up at {number}: {operations[number - 1]}")
            raise
