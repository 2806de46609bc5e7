"""Tasks that fail and are tried again, on a session that allows it. Run by `processes.run_script`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from threading import Event
from typing import Any, cast

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from bucketlake import RecordIndex, Table
from bucketlake.commit.metadata_build import build_metadata
from bucketlake.config import TableType, load_properties
from bucketlake.services import Tasks, compact_table
from bucketlake.services.compaction import CompactionTask, SliceCompacted, compact_slice
from bucketlake.spark.services import SessionTasks
from bucketlake.spark.types import arrow_schema
from bucketlake.spark.write import FrameRows
from bucketlake.storage import open_store
from bucketlake.write import (
    ArrowRows,
    CommitSummary,
    Operation,
    Rows,
    TableSpec,
    WriteState,
    create,
    run_write,
)
from judges.files import unchanged
from spark.exchange_cases import STAGES, WAYS, an_exchange_brings_every_row_once
from spark.faults import Fault, FaultyRows, Step
from spark.orders import (
    DAYS,
    SCHEMA,
    Order,
    Place,
    check_files,
    check_nothing_is_left,
    check_rows,
    data_files,
    frame_of,
    orders,
)
from spark.processes import is_running, let_time_pass, run_cases, wait_until_gone
from stand_ins.key_list import listing, told

TABLE_TYPES = ("COPY_ON_WRITE", "MERGE_ON_READ")

FAULTS: dict[str, tuple[Step, bool, int]] = {
    # step, whether it is done before the attempt fails, which of the task's
    "while tagging": ("tag", False, 1),
    "before a base file is read": ("read", False, 1),
    "before a partition's metadata": ("partition metadata", False, 1),
    "after a partition's metadata": ("partition metadata", True, 1),
    "before a marker": ("marker", False, 1),
    "between a marker and its data file": ("marker", True, 1),
    "before a data file": ("data", False, 1),
    "after a data file": ("data", True, 1),
    "between two data files": ("data", False, 2),
    "after two data files": ("data", True, 2),
}


def upsert(table: Table, rows: list[Order], spark: SparkSession, fault: Fault) -> CommitSummary:
    """Upsert as `Table.upsert` does, with a fault in the tasks. To one type of table Spark carries the rows."""
    is_on_disk = table.describe().table_type == "COPY_ON_WRITE"
    faulty = FaultyRows(FrameRows(frame_of(spark, rows)), fault, is_on_disk=is_on_disk)
    return run_write(faulty, table.store, Operation.UPSERT)


def batch_of(version: int) -> list[Order]:
    """Make updates, new orders and a day that the table does not have."""
    return [
        *orders(range(version, 100), version=version),
        *orders(range(1_000, 1_020), version=version, days=[f"2026-07-{version:02d}"]),
    ]


def a_task_fails_once(place: Place, name: str) -> None:
    step, after, nth = FAULTS[name]
    for table_type in TABLE_TYPES:
        if step == "read" and table_type == "MERGE_ON_READ":
            continue  # nothing is read to append to a log
        table, truth = place.loaded_table(f"{name} {table_type}", table_type)
        fault = Fault(folder=Path(place.root) / f"fault {name} {table_type}", step=step, after=after, nth=nth)
        batch = batch_of(2)
        summary = upsert(table, batch, place.spark, fault)
        truth.upsert(batch)
        assert fault.happened.exists(), "the fault was not met"
        assert summary.rows == len(batch)
        check_rows(table, truth)
        check_files(table)
        check_nothing_is_left(table.store)


def every_attempt_fails(place: Place, step: Step) -> None:
    # One file group, so that no other task is still at work when the write is taken back.
    doomed = [row for version in range(5) for row in orders([7], version=version, days=["2026-07-01"])]
    for table_type in TABLE_TYPES:
        table, truth = place.loaded_table(f"always {step} {table_type}", table_type)
        folder = Path(place.root) / f"fault always {step} {table_type}"
        fault = Fault(folder=folder, step=step, after=True, always=True)
        with (
            unchanged(table.store, markers=False),
            pytest.raises(PySparkException, match=f"injected at the step '{step}'"),
        ):
            upsert(table, doomed, place.spark, fault)
        check_rows(table, truth)
        batch = batch_of(3)
        table.upsert(frame_of(place.spark, batch))
        truth.upsert(batch)
        check_rows(table, truth)
        check_files(table)


def a_task_outlives_its_failed_write(place: Place) -> None:
    """Its file comes after all others were deleted: nobody sees it, and a later write removes it."""
    table, truth = place.loaded_table("outlives", "COPY_ON_WRITE")
    before = data_files(table.store)
    root = Path(place.root)
    late = Fault(folder=root / "late", step="data", waits=True)
    fails = Fault(folder=root / "fails", step="marker", nth=2, always=True)
    rows = FaultyRows(FaultyRows(FrameRows(frame_of(place.spark, batch_of(2))), late), fails)
    with pytest.raises(PySparkException, match="injected at the step 'marker'"):
        run_write(rows, table.store, Operation.UPSERT)
    assert data_files(table.store) == before
    (late_worker, *_) = late.pids
    assert is_running(late_worker)
    late.go.touch()
    wait_until_gone([late_worker])
    (leftover,) = set(data_files(table.store)) - set(before)
    check_rows(table, truth)

    let_time_pass(root / "outlives" / ".hoodie" / ".temp")
    batch = batch_of(3)
    table.upsert(frame_of(place.spark, batch))
    truth.upsert(batch)
    assert leftover not in data_files(table.store)
    check_rows(table, truth)
    check_files(table)
    check_nothing_is_left(table.store)


def fails_once(item: CompactionTask, *, path: str, failed: Path) -> SliceCompacted:
    """Compact a slice; of the one at `path`, fail after that the first time."""
    done = compact_slice(item)
    if item.path == path and not failed.exists():
        failed.touch()
        raise OSError("injected after a base file")
    return done


def a_task_of_a_compaction_fails_once(place: Place) -> None:
    """Its second attempt finds the base file that the first one wrote."""
    table, truth = place.loaded_table("compaction", "MERGE_ON_READ")
    batch = batch_of(2)
    table.upsert(frame_of(place.spark, batch))
    truth.upsert(batch)
    failed = Path(place.root) / "failed"

    def tasks(_: object, items: Sequence[CompactionTask], /) -> list[SliceCompacted]:
        return SessionTasks(place.spark)(partial(fails_once, path=items[0].path, failed=failed), items)

    (done,) = compact_table(table.store, tasks=cast(Tasks, tasks))
    assert failed.exists(), "no task has failed"
    assert done.file_groups > 1
    check_rows(table, truth)
    check_files(table)
    check_nothing_is_left(table.store)
    assert table.fsck().is_sound


def looked_up_table(place: Place, name: str, table_type: str) -> Table:
    store = open_store(f"{place.root}/{name}")
    schema = arrow_schema(frame_of(place.spark, orders(range(1), version=1)).schema.jsonValue())
    create(
        store,
        TableSpec(
            name="t",
            schema=schema,
            key=("id",),
            partition=("day",),
            ordering=("version",),
            table_type=TableType(table_type),
            index=RecordIndex(shards=3),
        ),
    )
    build_metadata(store)
    return Table(store, load_properties(store))


def keys_are_looked_up_once(place: Place, table_type: str, step: Step, way: str) -> None:
    """Rows of a table with a recorded index pass the exchange three times, and a task of the last but one fails."""
    table = looked_up_table(place, f"looked up {table_type} {step} {way}", table_type)
    # Orders that are in both move to another day.
    first, second = orders(range(90), version=1), orders(range(60, 140), version=2, days=[*DAYS[1:], DAYS[0]])
    table.upsert(frame_of(place.spark, first))
    fault = Fault(folder=Path(place.root) / f"fault {table_type} {step} {way}", step=step, after=True)
    rows = FaultyRows(FrameRows(frame_of(place.spark, second)), fault, is_on_disk=way == "files")
    run_write(rows, table.store, Operation.UPSERT)
    assert fault.happened.exists(), "the fault was not met"
    check_looked_up(table, [*first, *second])


def check_looked_up(table: Table, written: list[Order]) -> None:
    found = {(row["id"], row["day"]) for row in table.to_arrow(columns=["id", "day"]).to_pylist()}
    truth = {order["id"]: order["day"] for order in written}
    assert found == set(truth.items())
    assert table.to_arrow(columns=["id"]).num_rows == len(truth)
    report = table.fsck()
    assert report.damage == (), str(report)


@dataclass
class InRounds:
    """Rows that let something happen when they are written for the first time."""

    inner: Rows
    then: list[Callable[[], object]]
    left: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    """The instant of every round, and after it the versions of all data files."""

    @property
    def schema(self) -> pa.Schema:
        return self.inner.schema

    @property
    def cores(self) -> int:
        return self.inner.cores

    @property
    def are_at_hand(self) -> bool:
        return self.inner.are_at_hand

    def distinct(self, columns: Sequence[str]) -> pa.Table:
        return self.inner.distinct(columns)

    def run(self, plan: WriteState) -> Any:
        done = self.inner.run(plan)
        self.left.append((plan.instant, {p: plan.store.stat(p).version for p in data_files(plan.store)}))
        if self.then:
            self.then.pop()()
        return done


def a_task_fails_in_the_second_round(place: Place, table_type: str, way: str) -> None:
    """A frame is overtaken by who brings some of its keys; of the tasks that write these again, one fails once."""
    name = f"second round {table_type} {way}"
    table = looked_up_table(place, name, table_type)
    first = orders(range(90), version=1)
    table.upsert(frame_of(place.spark, first))
    days = [f"2026-07-{day:02d}" for day in range(1, 6)]
    ours = orders(range(100, 200), version=3, days=days)
    theirs = [row for row in orders(range(100, 200), version=2, days=days) if row["day"] == days[1]][:3]
    may_end, has_begun = Event(), Event()

    def wait() -> None:
        has_begun.set()
        assert may_end.wait(60)

    other = InRounds(ArrowRows(pa.Table.from_pylist(theirs, SCHEMA)), [wait])
    fault = Fault(folder=Path(place.root) / f"fault {name}", step="replaced", after=True)
    with ThreadPoolExecutor(1) as pool:
        ended = pool.submit(run_write, other, table.store, Operation.UPSERT)
        assert has_begun.wait(60)

        def let_pass() -> None:
            may_end.set()
            ended.result(60)

        frame = FrameRows(frame_of(place.spark, ours))
        rows = InRounds(FaultyRows(frame, fault, is_on_disk=way == "files"), [let_pass])
        done = run_write(rows, table.store, Operation.UPSERT)
    assert fault.happened.exists(), "the fault was not met"
    (instant, before), (_, after) = rows.left
    assert [left for left, _ in rows.left] == [done.instant] * 2
    again = {path for path, version in after.items() if instant in path and before.get(path) != version}
    assert {path.partition("/")[0] for path in again} == {days[1]}, "the day of those keys only"
    assert len(again) == 2
    check_looked_up(table, [*first, *ours])
    check_nothing_is_left(table.store)


def keys_are_told_once(place: Place, table_type: str, way: str) -> None:
    """A table with buckets lists an index, and a task that writes files, and tells of their keys, fails once."""
    name = f"listed {table_type} {way}"
    table, truth = place.loaded_table(name, table_type)
    table = listing(table)
    before = {(row["id"], row["day"]) for row in table.to_arrow(columns=["id", "day"]).to_pylist()}
    fault = Fault(folder=Path(place.root) / f"fault {name}", step="data", after=True)
    batch = batch_of(2)
    rows = FaultyRows(FrameRows(frame_of(place.spark, batch)), fault, is_on_disk=way == "files")
    done = run_write(rows, table.store, Operation.UPSERT)
    truth.upsert(batch)
    assert fault.happened.exists(), "the fault was not met"
    after = {(row["id"], row["day"]) for row in table.to_arrow(columns=["id", "day"]).to_pylist()}
    found = sorted((key, day) for key, day, _ in told(table.store, done.instant or ""))
    assert found == sorted((str(key), day) for key, day in after - before)
    assert found
    check_rows(table, truth)


CASES: dict[str, Callable[[Place], None]] = {
    **{
        f"an exchange by {way} whose {stage} stage fails once": partial(
            an_exchange_brings_every_row_once, way=way, stage=stage, waits=False
        )
        for way in WAYS
        for stage in STAGES
    },
    **{
        f"keys are looked up, {table_type} by {way}": partial(
            keys_are_looked_up_once, table_type=table_type, step="data", way=way
        )
        for table_type in TABLE_TYPES
        for way in ("files", "shuffle")
    },
    **{
        f"a second round, {table_type} by {way}": partial(
            a_task_fails_in_the_second_round, table_type=table_type, way=way
        )
        for table_type in TABLE_TYPES
        for way in WAYS
    },
    **{
        f"keys are told of, {table_type} by {way}": partial(
            keys_are_told_once, table_type=table_type, way=way
        )
        for table_type in TABLE_TYPES
        for way in WAYS
    },
    **{f"a task fails once {name}": partial(a_task_fails_once, name=name) for name in FAULTS},
    "every attempt fails while tagging": partial(every_attempt_fails, step="tag"),
    "every attempt fails after a data file": partial(every_attempt_fails, step="data"),
    "a task outlives its failed write": a_task_outlives_its_failed_write,
    "a task of a compaction fails once": a_task_of_a_compaction_fails_once,
}


def main(folder: Path) -> int:
    spark = (
        SparkSession.builder.master("local[2,2]")
        .config("spark.python.daemon.module", "bucketlake.spark.daemon")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.driver.extraJavaOptions", "-Duser.timezone=UTC -XX:TieredStopAtLevel=1")
        # A task that is to be killed goes on for a while, as it does when its executor is slow to hear of it.
        .config("spark.python.task.killTimeout", "60s")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    place = Place(spark, str(folder))
    return run_cases({name: partial(case, place) for name, case in CASES.items()}, folder)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
