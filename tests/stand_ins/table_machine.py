"""Writers, services and readers on one table, in any order of their operations on the store, some of them killed.

Each of them is a thread that runs one public call, and stops before every operation on the store until it is told to
go on: so an interleaving is a list of numbers, which hypothesis draws, shrinks and replays. Threads have nothing in
common but the store, and take its lock as processes do.

What the table must hold follows from its timeline and from what each call was to do: the completed writes, replayed
in the order of their completion on a dict. That a call which returned is on the timeline, and one that was refused is
not, is checked too; and that the table was as it was, for readers of the past.
"""

from __future__ import annotations

import itertools
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from threading import RLock, Semaphore, Thread
from typing import Any, TypeVar

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from bucketlake import Table
from bucketlake.commit import locks
from bucketlake.commit.recovery import recover
from bucketlake.config import TableType, load_properties
from bucketlake.errors import BucketlakeError, ConfigError, ConflictError
from bucketlake.services import (
    Retention,
    archive_table,
    clean_table,
    compact_table,
    create_savepoint,
    load_held,
    look_for_restore,
    look_for_rollback,
    plan_compaction,
    run_restore,
    run_rollback,
    schedule_compaction,
)
from bucketlake.state import files_of, load_state
from bucketlake.storage import Store
from bucketlake.testing.faulty_store import FaultyStore, InjectedError
from bucketlake.testing.invariants import check_invariants
from bucketlake.timeline import WRITE_ACTIONS, load_history
from bucketlake.write import TableSpec, create, job
from stand_ins.aging import Bucket, age
from stand_ins.orders_table import SCHEMA, orders

T = TypeVar("T")
Rows = dict[int, tuple[str, int]]
"""Key -> name and ordering value. The partition follows from the key."""

KEYS = 8
IS_SOAK = os.environ.get("HYPOTHESIS_PROFILE") == "soak"
_REQUESTED = re.compile(
    r"put_new \.hoodie/timeline/(\d{17})\.(?:commit|deltacommit|replacecommit)\.requested"
)


@dataclass
class Task:
    """Something that somebody does with a table: one public call."""

    name: str
    act: Callable[[Store], object]
    change: Callable[[Rows], None] | None = None
    """Of a write, what it does to the rows."""
    undoes: list[str] = field(default_factory=list)
    """Of a rollback or restore, the instants that may be gone afterwards."""
    instants: list[str] = field(default_factory=list)
    """What it has announced, attempt by attempt."""
    result: object = None
    error: BaseException | None = None
    is_late: bool = False
    """Whether time has passed since it began, so that others may have taken it for dead."""


class Actor(FaultyStore):
    """A thread that does a task, and the store as it sees it: it stops before every operation."""

    def __init__(self, inner: Store, task: Task) -> None:
        super().__init__(inner)
        self.task = task
        self.is_over = False
        self.is_killed = False
        self._go, self._stopped = Semaphore(0), Semaphore(0)
        self._thread = Thread(target=self._run, name=task.name, daemon=True)
        self._thread.start()
        self._stopped.acquire()

    def step(self, count: int) -> None:
        """Let it do so many operations, or as many as are left."""
        for _ in range(count):
            if self.is_over:
                return
            self._go.release()
            self._stopped.acquire()

    def kill(self) -> None:
        self.is_killed = True
        while not self.is_over:
            self.step(1)

    def _run(self) -> None:
        try:
            self.task.result = self.task.act(self)
        except BaseException as error:
            self.task.error = error
        self.is_over = True
        self._stopped.release()

    def _do(self, what: str, act: Callable[[], T]) -> T:
        self._stopped.release()
        self._go.acquire()
        if self.is_killed:
            raise InjectedError(f"killed before {what}")
        found = _REQUESTED.fullmatch(what)
        if found:
            self.task.instants.append(found[1])
        return super()._do(what, act)


TALLY: Counter[str] = Counter()
"""How much a run has tried; it is printed at its end."""


class _EachForItself(dict[str, RLock]):  # type: ignore[type-arg] # RLock is a function for mypy
    """No lock among threads: here they stand for processes."""

    def setdefault(self, key: str, default: Any = None) -> Any:
        return default


@contextmanager
def processes_without_clocks() -> Iterator[None]:
    """Nobody sleeps, and whoever waits for a lock has waited for long after some tries."""
    ticks = itertools.count()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(locks, "_threads", _EachForItself())
        patch.setattr(locks, "sleep", lambda seconds: None)
        patch.setattr(locks, "monotonic", lambda: next(ticks) * 3.0)
        patch.setattr(job, "sleep", lambda seconds: None)
        yield


def upserted(rows: Mapping[int, tuple[str, int]]) -> Callable[[Rows], None]:
    def change(table: Rows) -> None:
        for key, (name, ts) in rows.items():
            if key not in table or table[key][1] <= ts:
                table[key] = (name, ts)

    return change


class TableMachine(RuleBasedStateMachine):
    """Three at a time."""

    SLOTS = 3

    def __init__(self) -> None:
        super().__init__()
        self.waiting = processes_without_clocks()
        self.waiting.__enter__()
        self.store = Bucket()
        self.actors: list[Actor | None] = [None] * self.SLOTS
        self.tasks: list[Task] = []
        self.numbers = itertools.count(1)
        self.past: dict[str, Rows] = {}
        """What readers as of an instant must see."""

    @initialize(table_type=st.sampled_from(list(TableType)))
    def create(self, table_type: TableType) -> None:
        spec = TableSpec(
            name="orders", schema=SCHEMA, key=("id",), partition=("dt",), ordering=("ts",), buckets=2,
            table_type=table_type,
        )  # fmt: skip
        create(self.store, spec)
        self.table_type = table_type

    @property
    def table(self) -> Table:
        return Table(self.store, load_properties(self.store))

    # ------------------------------------------------------------------ what may be begun

    @rule(
        slot=st.integers(0, 2),
        keys=st.sets(st.integers(0, KEYS - 1), min_size=1, max_size=4),
        late=st.booleans(),
    )
    def upsert(self, slot: int, keys: set[int], late: bool) -> None:
        number = next(self.numbers)
        ts = 10 * number - (35 if late else 0)
        rows = {key: (f"write {number} {key}", ts) for key in keys}
        given = orders(sorted(keys), f"write {number}", ts)
        self.begin(slot, "upsert", lambda table: table.upsert(given), upserted(rows))

    @rule(slot=st.integers(0, 2), keys=st.sets(st.integers(0, KEYS - 1), min_size=1, max_size=3))
    def delete(self, slot: int, keys: set[int]) -> None:
        """In logs, what a delete hides depends on what is compacted when (docs/formats/merging.md): no dict tells."""
        if self.table_type is TableType.MERGE_ON_READ:
            return
        given = orders(sorted(keys), "", 0).select(["id", "dt"])

        def change(table: Rows) -> None:
            for key in keys:
                table.pop(key, None)

        self.begin(slot, "delete", lambda table: table.delete(given), change)

    @rule(slot=st.integers(0, 2), keys=st.sets(st.integers(0, KEYS - 1), min_size=1, max_size=3))
    def overwrite(self, slot: int, keys: set[int]) -> None:
        number = next(self.numbers)
        rows = {key: (f"over {number} {key}", 10 * number) for key in keys}
        given = orders(sorted(keys), f"over {number}", 10 * number)

        def change(table: Rows) -> None:
            touched = {key % 2 for key in keys}
            for key in [key for key in table if key % 2 in touched]:
                del table[key]
            table.update(rows)

        self.begin(slot, "overwrite", lambda table: table.overwrite(given), change)

    @rule(slot=st.integers(0, 2), partition=st.integers(0, 1))
    def delete_partition(self, slot: int, partition: int) -> None:
        def change(table: Rows) -> None:
            for key in [key for key in table if key % 2 == partition]:
                del table[key]

        self.begin(slot, "delete_partitions", lambda t: t.delete_partitions([f"p{partition}"]), change)

    @rule(
        slot=st.integers(0, 2), what=st.sampled_from(["schedule", "compact", "clean", "archive", "savepoint"])
    )
    def serve(self, slot: int, what: str) -> None:
        acts: dict[str, Callable[[Store], object]] = {
            "schedule": schedule,
            "compact": compact_table,
            "clean": lambda store: clean_table(store, retain=Retention(commits=2)),
            "archive": lambda store: archive_table(store, keep_min=2, keep_max=3),
            "savepoint": create_savepoint,
        }
        if self.table_type is TableType.COPY_ON_WRITE and what in {"schedule", "compact"}:
            return
        self.start(slot, Task(what, acts[what]))

    @rule(slot=st.integers(0, 2))
    def roll_back(self, slot: int) -> None:
        writes = load_state(self.store).timeline.writes
        if writes:
            newest = max(writes, key=lambda i: i.completed or "").requested
            self.start(slot, Task(
                "rollback",
                lambda store: run_rollback(look_for_rollback(load_state(store), newest), store),
                undoes=[newest],
            ))  # fmt: skip

    @rule(slot=st.integers(0, 2))
    def restore(self, slot: int) -> None:
        savepoints = sorted(load_state(self.store).timeline.savepoints)
        if not savepoints:
            return
        task = Task("restore", lambda store: None)

        def act(store: Store) -> object:
            order = look_for_restore(load_state(store), savepoints[-1])
            task.undoes += [instant.requested for instant in order.instants]
            return run_restore(order, store)

        task.act = act
        self.start(slot, task)

    # ------------------------------------------------------------------ and how it goes on

    @rule(slot=st.integers(0, 2), count=st.integers(1, 60))
    def step(self, slot: int, count: int) -> None:
        actor = self.actors[slot]
        if actor is not None:
            actor.step(count)

    @rule(slot=st.integers(0, 2))
    def finish(self, slot: int) -> None:
        actor = self.actors[slot]
        if actor is not None:
            actor.step(4_000)
            self.settle(slot)

    @rule(slot=st.integers(0, 2), after=st.integers(0, 60))
    def kill(self, slot: int, after: int) -> None:
        actor = self.actors[slot]
        if actor is not None:
            actor.step(after)
            actor.kill()
            self.settle(slot)

    @rule()
    def time_passes(self) -> None:
        """So much that whoever is not done counts as dead, alive or not."""
        age(self.store)
        for actor in self.actors:
            if actor is not None:
                actor.task.is_late = True

    @precondition(lambda self: all(actor is None for actor in self.actors))
    @rule()
    def remember(self) -> None:
        writes = load_state(self.store).timeline.writes
        if writes:
            self.past[max(i.requested for i in writes)] = self.rows()

    # ------------------------------------------------------------------ what must hold

    @invariant()
    def readers_see_what_the_timeline_says(self) -> None:
        if hasattr(self, "table_type"):
            assert self.rows() == self.replayed(), self.story()
            TALLY["reads"] += 1

    def teardown(self) -> None:
        try:
            if hasattr(self, "table_type"):
                self._finish_all()
        finally:
            for actor in self.actors:
                if actor is not None:
                    actor.kill()
            self.waiting.__exit__(None, None, None)

    def _finish_all(self) -> None:
        for _ in range(400):
            for actor in self.actors:
                if actor is not None:
                    actor.step(10)
        for slot in range(self.SLOTS):
            if self.actors[slot] is not None:
                self.settle(slot)
        for _ in range(2):
            age(self.store)
            recover(self.store, load_properties(self.store))
        self.readers_see_what_the_timeline_says()
        check_invariants(self.table)
        TALLY["histories"] += 1
        on_timeline = self.completed()
        undone = {instant for task in self.tasks for instant in task.undoes}
        for task in self.tasks:
            found = [instant for instant in task.instants if instant in on_timeline]
            assert len(found) <= 1, f"{task.name} is twice in the table; {self.story()}"
            if task.change is None:
                continue
            summary: Any = task.result
            if task.error is None and summary.instant is not None:
                assert found == [summary.instant] or summary.instant in undone, f"lost: {self.story()}"
            if isinstance(task.error, ConflictError):
                assert not found, f"{task.name} was refused and is there; {self.story()}"
        self._look_back(undone)
        self.table.upsert(orders([100], "last", 1))
        assert self.rows()[100] == ("last 100", 1)

    def _look_back(self, undone: set[str]) -> None:
        for instant, rows in self.past.items():
            if any(gone >= instant for gone in undone) or instant not in self.completed():
                continue
            with suppress(ConfigError):  # cleaned
                assert self.rows(as_of=instant) == rows, f"as of {instant}; {self.story()}"

    # ------------------------------------------------------------------ how

    def begin(
        self, slot: int, name: str, act: Callable[[Table], object], change: Callable[[Rows], None]
    ) -> None:
        self.start(slot, Task(name, lambda store: act(Table(store, load_properties(store))), change))

    def start(self, slot: int, task: Task) -> None:
        """In a slot that is taken, what is there goes on to its end first."""
        if self.actors[slot] is not None:
            self.finish(slot)
        self.tasks.append(task)
        self.actors[slot] = Actor(self.store, task)

    def settle(self, slot: int) -> None:
        actor = self.actors[slot]
        assert actor is not None
        assert actor.is_over, f"{actor.task.name} does not end; {actor.operations[-12:]}"
        self.actors[slot] = None
        error = actor.task.error
        TALLY["calls"] += 1
        TALLY["operations on the store"] += len(actor.operations)
        TALLY["killed"] += actor.is_killed
        TALLY["refused"] += isinstance(error, BucketlakeError)
        if error is None or isinstance(error, BucketlakeError):
            return
        if actor.is_killed and isinstance(error, InjectedError):
            return
        if actor.task.is_late and isinstance(error, FileNotFoundError):
            return  # taken for dead, and tidied up after
        raise error

    def completed(self) -> dict[str, str]:
        """Requested time -> completion time of all writes there are."""
        state = load_state(self.store)
        archived = load_history(self.store, state.properties)
        found = {a.requested: a.completed for a in archived if a.action in WRITE_ACTIONS}
        return {**found, **{i.requested: i.completed or "" for i in state.timeline.writes}}

    def replayed(self) -> Rows:
        by_instant = {instant: task for task in self.tasks for instant in task.instants}
        rows: Rows = {}
        for instant, _ in sorted(self.completed().items(), key=lambda item: item[1]):
            task = by_instant.get(instant)  # none of a compaction
            if task is not None and task.change is not None:
                task.change(rows)
        return rows

    def rows(self, **how: Any) -> Rows:
        found: Sequence[dict[str, Any]] = self.table.to_arrow(columns=["id", "name", "ts"], **how).to_pylist()
        rows = {row["id"]: (row["name"], row["ts"]) for row in found}
        assert len(rows) == len(found), "a key is there twice"
        return rows

    def story(self) -> str:
        return "; ".join(f"{task.name} {task.instants} {task.error!r}" for task in self.tasks)


def schedule(store: Store) -> object:
    state = load_state(store)
    return schedule_compaction(store, plan_compaction(state, files_of(state), load_held(state), now=""))
