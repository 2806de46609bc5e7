"""A table is a dict, and its rules are a list, whoever does what to it in whatever order.

A history is a list of steps, drawn from a seed. A step begins a call, lets it go on for some requests to the store, to
its end, or kills it; up to three calls are under way at a time (`actors`). After every step the table is held against
the model (`table_model`):

    rows          what readers see; each key once
    rules         the bucket counts that a writer would go by now
    increments    (H3) what consecutive intervals show, against what their writes have written
    pages         a consumer that goes on from the newest completion time misses no write
    past          what readers as of an earlier write see
    values        a secondary index has the values of the rows
    metadata      (M1, M3) where there is a metadata table, it is in step and lists the files that count
    copies        all processes die at this moment, on a copy: the next one recovers, does something, and can write

On copies one of the `PROBES` is tried: everything is taken back write by write, a savepoint restored, and so on.

A failing history prints its steps: `replay(kind, steps)` runs them again, `shrunk(kind, steps)` finds fewer.
`BUCKETLAKE_MACHINE_WITHOUT="restore,past"` leaves out steps, checks and probes.
"""

from __future__ import annotations

import itertools
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any

import pytest

from bucketlake import (
    CompactionTrigger,
    ConsistentBuckets,
    DynamicBuckets,
    ExtendibleBuckets,
    Maintenance,
    PartitionBuckets,
    RecordIndex,
    Retention,
    SimpleBuckets,
    Table,
)
from bucketlake.commit import recovery
from bucketlake.commit.metadata_build import build_metadata
from bucketlake.commit.recovery import pending_rescales, recover
from bucketlake.config import BucketEngine, TableType, load_properties
from bucketlake.errors import (
    BucketlakeError,
    ConfigError,
    ConflictError,
    InstantError,
    LayoutMismatchError,
    UnsupportedError,
)
from bucketlake.index import IndexValue
from bucketlake.index.doubling import count_before
from bucketlake.index.fingerprint import writing_index
from bucketlake.index.resizes import pending_resizes
from bucketlake.index.resolve import simple_count
from bucketlake.index.ring import Ring
from bucketlake.metadata.places import RECORD_INDEX
from bucketlake.services import (
    check_table,
    load_held,
    plan_clustering,
    plan_compaction,
    rollback_clustering,
    rollback_compaction,
    run_clustering,
    run_compaction,
    run_maintenance,
    schedule_clustering,
    schedule_compaction,
)
from bucketlake.services.resize import abort_resize, look_for_resize, run_resize, schedule_resize
from bucketlake.services.resize_plan import Hashes, ResizeTrigger, evenly
from bucketlake.state import files_of, load_state, touched_lately
from bucketlake.storage import Store
from bucketlake.timeline import Action
from bucketlake.write import TableSpec, create
from stand_ins.actors import Actor, processes_without_clocks
from stand_ins.aging import Bucket, age, copy_of
from stand_ins.made_index import check_secondary
from stand_ins.metadata_check import check_metadata
from stand_ins.orders_table import SCHEMA, orders
from stand_ins.record_index_check import check_record_index, is_in_step
from stand_ins.table_model import (
    PARTITIONS,
    Call,
    Model,
    Rows,
    Rules,
    completed_in,
    deleted,
    replaced,
    upserted,
)

KEYS = 8
SLOTS = 3
SPLIT = ResizeTrigger(file_bytes=100, split_threshold=1.0, merge_threshold=0.1, max_buckets=6, policy=evenly)
MERGE = ResizeTrigger(min_buckets=1)
LEFT_OUT = frozenset(filter(None, os.environ.get("BUCKETLAKE_MACHINE_WITHOUT", "").split(",")))

Step = tuple[str, int, int]
"""What to do, in which of the slots, and a number that the rest is drawn from."""

TALLY: Counter[str] = Counter()
"""How much was tried; a test prints it."""
_REPLACED = re.compile(r"replace_if (?!\.hoodie/)")


@dataclass(frozen=True)
class TableKind:
    table_type: TableType
    index: IndexValue = SimpleBuckets(2)  # noqa: RUF009 # it is frozen
    indexed: str = ""
    """A column with a secondary index."""
    doubles: bool = False
    """Whether its simple buckets are doubled, and nothing else is done to them."""

    @property
    def is_mor(self) -> bool:
        return self.table_type is TableType.MERGE_ON_READ

    @property
    def has_ring(self) -> bool:
        return self.index.engine in (BucketEngine.CONSISTENT_HASHING, BucketEngine.EXTENDIBLE_HASHING)

    @property
    def has_record_index(self) -> bool:
        return isinstance(self.index, RecordIndex | DynamicBuckets)

    @property
    def rules(self) -> str:
        return self.index.rules if isinstance(self.index, PartitionBuckets) else ""


_COW, _MOR = TableType.COPY_ON_WRITE, TableType.MERGE_ON_READ
_RULES = PartitionBuckets("p0,2;p1,3", default=2)
KINDS = {
    "simple cow": TableKind(_COW),
    "simple mor": TableKind(_MOR),
    "rules cow": TableKind(_COW, _RULES),
    "rules mor": TableKind(_MOR, _RULES),
    "ring cow": TableKind(_COW, ConsistentBuckets(2)),
    "ring dual": TableKind(_MOR, ConsistentBuckets(2)),
    "ring virtual": TableKind(_MOR, ConsistentBuckets(2, virtual_logs=True)),
    "bits cow": TableKind(_COW, ExtendibleBuckets(2)),
    "bits virtual": TableKind(_MOR, ExtendibleBuckets(2, virtual_logs=True)),
    "doubling cow": TableKind(_COW, doubles=True),
    "doubling mor": TableKind(_MOR, doubles=True),
    "record cow": TableKind(_COW, RecordIndex(shards=2)),
    "record mor": TableKind(_MOR, RecordIndex(shards=2)),
    "record parts mor": TableKind(_MOR, RecordIndex(per_partition=True)),
    "secondary cow": TableKind(_COW, RecordIndex(shards=2), indexed="name"),
    "secondary mor": TableKind(_MOR, RecordIndex(shards=2), indexed="name"),
    "secondary rules mor": TableKind(_MOR, _RULES, indexed="name"),
    "dynamic cow": TableKind(_COW, DynamicBuckets(assigners=2, keys_per_bucket=2)),
    "dynamic mor": TableKind(_MOR, DynamicBuckets(assigners=2, keys_per_bucket=2)),
}


def table_of(store: Store) -> Table:
    return Table(store, load_properties(store))


def rows_of(store: Store, **how: Any) -> Rows:
    found = table_of(store).to_arrow(columns=["id", "name", "ts"], **how).to_pylist()
    rows = {row["id"]: (row["name"], row["ts"]) for row in found}
    assert len(rows) == len(found), f"a key is there twice: {found}"
    return rows


class TableMachine:
    """A table of one kind, the calls that are under way on it, and what it must be."""

    def __init__(self, kind: str, *, is_calm: bool = False, without: frozenset[str] = LEFT_OUT) -> None:
        self.kind = KINDS[kind]
        self.is_calm = is_calm
        """Whether calls mostly run one after the other."""
        self.without = without
        self.store = Bucket()
        self.model = Model(Rules(self.kind.rules, 2))
        self.actors: list[Actor | None] = [None] * SLOTS
        self.numbers = itertools.count(1)
        self.past: dict[str, Rows] = {}
        """What readers as of an instant must see."""
        self.page_end = ""
        """Where a consumer of increments goes on."""
        self.known: dict[str, str] = {}
        create(self.store, TableSpec(
            name="orders", schema=SCHEMA, key=("id",), partition=("dt",), ordering=("ts",), index=self.kind.index,
            table_type=self.kind.table_type,
        ))  # fmt: skip
        if self.kind.has_record_index:
            build_metadata(self.store)
        if self.kind.indexed:
            table_of(self.store).create_index("by_value", on=self.kind.indexed, shards=2, record_index=True)

    # ------------------------------------------------------------------ how calls go on

    def do(self, step: Step) -> None:
        name, slot, number = step
        chance = Random(number)
        STEPS[name].act(self, slot, chance)
        self.check(chance)

    def begin(self, slot: int, chance: Random, call: Call) -> None:
        """Begin a call and let it go on for a while; what is under way in its slot goes on to its end first."""
        if self.actors[slot] is not None:
            self.finish(slot)
        before = completed_in(self.store)
        is_alone = all(actor is None for actor in self.actors)
        self.model.calls.append(call)
        self.actors[slot] = actor = Actor(self.store, call)
        fate = chance.random()
        go_on = partial(actor.step, chance.randint(1, chance.choice((12, 60, 200))))
        if chance.random() < 0.5:
            go_on = partial(actor.step_changes, chance.randint(1, 10))
        if fate < (0.9 if self.is_calm else 0.45):
            self.finish(slot)
            if is_alone and isinstance(call.error, BucketlakeError):
                lost = before.keys() - completed_in(self.store).keys()
                assert not lost, f"{call.name} was refused, and {lost} is gone: {call.error}"
        elif fate < 0.85 and not self.is_calm:
            go_on()
        else:
            go_on()
            self.kill(slot)

    def finish(self, slot: int) -> None:
        actor = self.actors[slot]
        if actor is not None:
            actor.step(6_000)
            self.settle(slot)

    def kill(self, slot: int) -> None:
        actor = self.actors[slot]
        if actor is not None:
            actor.kill()
            self.settle(slot)

    def settle(self, slot: int) -> None:
        actor = self.actors[slot]
        assert actor is not None
        assert actor.is_over, f"{actor.task.name} does not end; {actor.operations[-12:]}"
        self.actors[slot] = None
        call, error = actor.task, actor.task.error
        outcome = "killed" if actor.is_killed else "done" if error is None else type(error).__name__
        TALLY[f"{call.name}: {outcome}"] += 1
        TALLY["requests"] += len(actor.operations)
        TALLY["files written again"] += sum(_REPLACED.match(what) is not None for what in actor.operations)
        if error is None or isinstance(error, ConflictError | InstantError):
            return
        if actor.is_killed:
            return  # nobody hears what it says
        if actor.task.is_late and isinstance(error, FileNotFoundError | BucketlakeError):
            return  # taken for dead, and tidied up after
        if isinstance(error, ConfigError) and not isinstance(error, LayoutMismatchError):
            return  # a partition that is not there
        if isinstance(error, UnsupportedError) and "without record_index" in str(error):
            return  # delisted to take something back, and not built yet
        raise error

    def end(self) -> None:
        """Let all calls end, and look back on what they were told."""
        for _ in range(600):
            for actor in self.actors:
                if actor is not None:
                    actor.step(10)
        for slot in range(SLOTS):
            if self.actors[slot] is not None:
                self.settle(slot)
        for _ in range(2):
            age(self.store)
            recover(self.store, load_properties(self.store))
        self.check_rows(self.store)
        self.check_rules(self.store)
        times = completed_in(self.store)
        undone = set[str]().union(*(call.undoes for call in self.model.calls))
        for call in self.model.calls:
            found = [instant for instant in call.instants if instant in times]
            assert len(found) <= 1, f"{call.name} is twice in the table"
            instant = getattr(call.result, "instant", None)
            if call.is_write and call.error is None and instant is not None:
                assert found == [instant] or instant in undone, f"{call.name} of {instant} is lost"
            if call.change is not None and isinstance(call.error, ConflictError):  # a rescale may be resumed
                assert not found, f"{call.name} was refused and is there"
        if "past" not in self.without:
            for instant, rows in self.past.items():
                if instant in times and not any(gone >= instant for gone in undone):
                    with suppress(ConfigError):  # cleaned, or half cleaned
                        assert rows_of(self.store, as_of=instant) == rows, f"as of {instant}"
        self.check_aftermath(self.store)

    def stop(self) -> None:
        for actor in self.actors:
            if actor is not None:
                actor.kill()

    def let_others_be_late(self) -> None:
        """Whoever is under way may find that files are gone."""
        for actor in self.actors:
            if actor is not None:
                actor.task.is_late = True

    @property
    def is_quiet(self) -> bool:
        return all(actor is None for actor in self.actors)

    # ------------------------------------------------------------------ what must hold

    def check(self, chance: Random) -> None:
        self.check_rows(self.store)
        self.check_rules(self.store)
        self.check_pages(chance)
        if chance.random() < 0.3:
            self.check_increments(self.store, chance)
        if chance.random() < 0.3 and "copies" not in self.without:
            fitting = [name for name in fitting_probes(self) if name not in self.without]
            if fitting:
                self.check_copy(chance.choice(fitting), chance)
        if self.is_quiet and chance.random() < 0.3:
            self.remember()

    def check_rows(self, store: Store) -> None:
        TALLY["looks at the metadata table"] += check_metadata(store)
        found, expected = rows_of(store), self.model.rows(completed_in(store))
        assert found == expected, f"rows: found {_differing(found, expected)}"
        TALLY["reads"] += 1
        if self.kind.has_record_index and RECORD_INDEX in load_properties(store).metadata_partitions:
            # Nobody goes by it while a rollback has taken its files back, and not yet the commit.
            if is_in_step(store):
                TALLY["entries compared"] += check_record_index(store)
            else:
                TALLY["looks at an index that is out of step"] += 1
        if self.kind.indexed:
            TALLY["values compared"] += check_secondary(table_of(store), all_in_step=False)

    def check_rules(self, store: Store) -> None:
        if not has_counts(self.kind) or "rules" in self.without:
            return
        state = load_state(store)
        index = writing_index(state)
        expected = self.model.rules(completed_in(store))
        assert tuple(map(index.bucket_count, PARTITIONS)) == expected.counts, f"{index} but {expected}"
        versions = table_of(store).buckets.show_config()
        if versions:
            assert (versions[-1].expressions, versions[-1].default_count) == (
                expected.expressions,
                expected.default,
            )

    def check_increments(self, store: Store, chance: Random) -> None:
        if "increments" in self.without:
            return
        times = completed_in(store)
        moments = sorted({"0" * 17, *times.values(), *times})
        cuts = sorted(chance.sample(moments, min(len(moments), chance.randint(2, 4))))
        for begin, end in itertools.pairwise(cuts):
            self.check_interval(store, begin, end)

    def check_interval(self, store: Store, begin: str, end: str) -> None:
        times = completed_in(store)
        needed, allowed = self.model.changes(times, begin, end)
        try:
            found = {(key, name) for key, (name, _) in rows_of(store, begin=begin, end=end).items()}
        except ConfigError as error:
            # Cleaned; or somebody is about to publish, or has died when he was.
            assert "is gone" in str(error) or "not all there yet" in str(error), error
            return
        missed = {(key, name) for key, (name, _) in needed.items()} - found
        assert not missed, f"({begin}, {end}] does not show {missed}"
        assert found <= allowed, f"({begin}, {end}] shows {found - allowed} of others"
        TALLY["increments"] += 1

    def check_pages(self, chance: Random) -> None:
        """A consumer reads from where it was to the newest completion time; what comes later must complete later."""
        if "pages" in self.without:
            return
        times = completed_in(self.store)
        late = {i: t for i, t in times.items() if i not in self.known and t <= self.page_end}
        assert not late, f"a consumer that has read until {self.page_end} will never see {late}"
        self.known = times
        if chance.random() < 0.4:
            self.read_page()

    def read_page(self) -> None:
        completed = (i.completed or "" for i in load_state(self.store).timeline.instants if i.is_completed)
        end = max(completed, default="")
        if end <= self.page_end:
            return
        try:
            rows_of(self.store, begin=self.page_end or "0", end=end)
        except ConfigError as error:
            if "not all there yet" in str(error):
                return
        self.page_end = end

    def remember(self) -> None:
        timeline = load_state(self.store).timeline
        if timeline.writes and not timeline.pending():
            self.past[max(i.requested for i in timeline.writes)] = rows_of(self.store)

    def check_copy(self, probe: str, chance: Random) -> None:
        """Everybody dies, on a copy, and twenty minutes pass."""
        copy = copy_of(self.store)
        age(copy)
        for _ in range(2):
            recover(copy, load_properties(copy))
            age(copy)
        self.check_rows(copy)
        self.check_rules(copy)
        try:
            PROBES[probe](self, copy, chance)
            age(copy)
            self.check_rows(copy)
            self.check_rules(copy)
            self.check_increments(copy, chance)
            self.check_aftermath(copy)
        except Exception as error:
            error.add_note(f"on a copy, with the probe {probe!r}")
            raise
        TALLY[f"probe {probe}"] += 1

    def check_aftermath(self, store: Bucket) -> None:
        """Both partitions can be written, and fsck finds nothing but what dead writers left."""
        times = completed_in(store)
        if self.kind.has_record_index or self.kind.indexed:
            table_of(store).metadata.build()  # an index that had to be delisted to take something back
        if self.kind.indexed:
            assert "secondary_index_by_value" in load_properties(store).metadata_partitions
        table_of(store).upsert(orders([100, 101], "last", 1))
        expected = self.model.rows(times) | {100: ("last 100", 1), 101: ("last 101", 1)}
        found = rows_of(store)
        assert found == expected, f"after a write: {_differing(found, expected)}"
        if self.kind.has_record_index:
            check_record_index(store)
        writing_index(load_state(store))
        report = check_table(store)
        assert report.damage == (), str(report)


def _differing(found: Rows, expected: Rows) -> str:
    is_there, is_wanted = set(found.items()), set(expected.items())
    return f"{sorted(is_there - is_wanted)}, expected {sorted(is_wanted - is_there)}"


# ---------------------------------------------------------------------- steps


@dataclass(frozen=True)
class _StepKind:
    act: Callable[[TableMachine, int, Random], None]
    weight: float
    fits: Callable[[TableKind], bool]


STEPS: dict[str, _StepKind] = {}
Act = Callable[[TableMachine, int, Random], None]


def _step(weight: float = 1.0, fits: Callable[[TableKind], bool] = lambda kind: True) -> Callable[[Act], Act]:
    def add(act: Act) -> Act:
        STEPS[act.__name__.strip("_").replace("_", " ")] = _StepKind(act, weight, fits)
        return act

    return add


def is_mor(kind: TableKind) -> bool:
    return kind.is_mor


def has_ring(kind: TableKind) -> bool:
    return kind.has_ring


def has_counts(kind: TableKind) -> bool:
    return not kind.has_ring and not kind.has_record_index and not kind.doubles


def is_doubled(kind: TableKind) -> bool:
    return kind.doubles


def _rows(machine: TableMachine, chance: Random, *, at_most: int = 4) -> Rows:
    number = next(machine.numbers)
    keys = sorted(chance.sample(range(KEYS), chance.randint(1, at_most)))
    ts = 10 * number - (35 if chance.random() < 0.2 else 0)
    return {key: (f"w{number} {key}", ts) for key in keys}


def _given(rows: Rows) -> Any:
    name, ts = next(iter(rows.values()))
    return orders(sorted(rows), name.split()[0], ts)


@_step(6.0)
def upsert(machine: TableMachine, slot: int, chance: Random) -> None:
    rows = _rows(machine, chance)
    machine.begin(slot, chance, Call(
        "upsert", lambda store: table_of(store).upsert(_given(rows)), change=upserted(rows), rows=rows
    ))  # fmt: skip


@_step(2.0)
def load(machine: TableMachine, slot: int, chance: Random) -> None:
    """All keys at once: every bucket has a file then."""
    number = next(machine.numbers)
    rows = {key: (f"w{number} {key}", 10 * number) for key in range(KEYS)}
    machine.begin(slot, chance, Call(
        "bulk_insert", lambda store: table_of(store).bulk_insert(_given(rows)), change=upserted(rows), rows=rows
    ))  # fmt: skip


@_step(1.0, lambda kind: not kind.is_mor)
def delete(machine: TableMachine, slot: int, chance: Random) -> None:
    """In logs, what a delete hides depends on what is compacted when (docs/formats/merging.md): no dict tells."""
    keys = set(chance.sample(range(KEYS), chance.randint(1, 3)))
    given = orders(sorted(keys), "", 0).select(["id", "dt"])
    machine.begin(slot, chance, Call(
        "delete", lambda store: table_of(store).delete(given), change=deleted(keys.__contains__)
    ))  # fmt: skip


@_step()
def overwrite(machine: TableMachine, slot: int, chance: Random) -> None:
    rows, whole = _rows(machine, chance), chance.random() < 0.3
    touched = {key % 2 for key in rows}
    machine.begin(slot, chance, Call(
        "overwrite table" if whole else "overwrite",
        lambda store: table_of(store).overwrite(_given(rows), whole_table=whole),
        change=replaced(lambda key: whole or key % 2 in touched, rows),
        rows=rows,
    ))  # fmt: skip


@_step()
def delete_partition(machine: TableMachine, slot: int, chance: Random) -> None:
    partition = chance.randrange(2)
    machine.begin(slot, chance, Call(
        "delete_partitions",
        lambda store: table_of(store).delete_partitions([f"p{partition}"]),
        change=deleted(lambda key: key % 2 == partition),
    ))  # fmt: skip


def _schedule_compaction(store: Store) -> str | None:
    state = load_state(store)
    return schedule_compaction(store, plan_compaction(state, files_of(state), load_held(state), now=""))


def _schedule_clustering(store: Store) -> str | None:
    state = load_state(store)
    return schedule_clustering(
        store, plan_clustering(state, files_of(state), load_held(state), by=("name",), now="")
    )


def _pending(machine: TableMachine, chance: Random, action: Action) -> str | None:
    found = [i.requested for i in load_state(machine.store).timeline.pending(action)]
    return chance.choice(found) if found else None


@_step(2.0, is_mor)
def compaction(machine: TableMachine, slot: int, chance: Random) -> None:
    pending = _pending(machine, chance, Action.COMPACTION)
    what = chance.choice(("plan", "plan", "all", "run", "roll back run", "roll back"))
    acts: dict[str, Callable[[Store], object]] = {
        "plan": _schedule_compaction,
        "all": lambda store: table_of(store).compact(),
    }
    if pending is not None:
        acts |= {
            "run": lambda store: run_compaction(store, pending),
            "roll back run": lambda store: rollback_compaction(store, pending),
            "roll back": lambda store: table_of(store).rollback(pending),
        }
    if what in acts:
        machine.begin(slot, chance, Call(f"compaction, {what}", acts[what]))


@_step(1.5)
def clustering(machine: TableMachine, slot: int, chance: Random) -> None:
    pending = _pending(machine, chance, Action.CLUSTERING)
    what = chance.choice(("plan", "plan", "all", "run", "run", "abort", "roll back"))
    acts: dict[str, Callable[[Store], object]] = {
        "plan": _schedule_clustering,
        "all": lambda store: table_of(store).cluster(by="name"),
    }
    if pending is not None:
        acts |= {
            "run": lambda store: run_clustering(store, pending),
            "abort": lambda store: rollback_clustering(store, pending),
            "roll back": lambda store: table_of(store).rollback(pending),
        }
    if what in acts and not machine.kind.has_ring and not _is_doubling(machine):
        machine.begin(slot, chance, Call(f"clustering, {what}", acts[what]))


@_step(2.0)
def clean(machine: TableMachine, slot: int, chance: Random) -> None:
    how: dict[str, Any] = chance.choice(
        ({"retain_commits": 1}, {"retain_commits": 2}, {"retain_versions": 1})
    )
    machine.begin(slot, chance, Call("clean", lambda store: table_of(store).clean(**how)))
    if "retain_versions" in how:  # it does not wait for who reads older ones
        machine.let_others_be_late()


@_step(2.5)
def archive(machine: TableMachine, slot: int, chance: Random) -> None:
    keep = chance.choice((1, 2))
    machine.begin(slot, chance, Call(
        "archive", lambda store: table_of(store).archive(keep_min=keep, keep_max=keep + 1)
    ))  # fmt: skip


@_step(0.0)  # drawn by nobody: `with_upkeep` puts it where it is wanted
def maintenance(machine: TableMachine, slot: int, chance: Random) -> None:
    """A round as writers run it after a commit: one at a time, where writes of the timeline have been."""
    keep = chance.choice((1, 2))
    policy = Maintenance(
        compact=CompactionTrigger(delta_commits=chance.choice((1, 2))),
        clean=Retention(commits=keep),
        archive=(keep, keep + 1),
    )

    def act(store: Store) -> object:
        done = run_maintenance(store, policy, look_at=touched_lately)
        TALLY["rounds left to others"] += any(step.is_conflict for step in done.steps)
        for failure in done.failures:
            raise failure
        return done

    machine.begin(slot, chance, Call("maintenance", act))


def with_upkeep(steps: Sequence[Step], *, every: int) -> list[Step]:
    """Put rounds between the steps of a history."""
    found: list[Step] = []
    for position, step in enumerate(steps, 1):
        found.append(step)
        if position % every == 0:
            found.append(("maintenance", step[1], step[2]))
    return found


@_step(1.5)
def savepoint(machine: TableMachine, slot: int, chance: Random) -> None:
    writes = [i.requested for i in load_state(machine.store).timeline.writes]
    instant = chance.choice(writes) if writes and chance.random() < 0.3 else None
    machine.begin(slot, chance, Call("savepoint", lambda store: table_of(store).savepoint(instant)))


@_step(1.5)
def protected_write(machine: TableMachine, slot: int, chance: Random) -> None:
    """A write and a savepoint of it, while others are in the middle of something."""
    rows = _rows(machine, chance)
    for call in (
        Call("upsert", lambda store: table_of(store).upsert(_given(rows)), change=upserted(rows), rows=rows),
        Call("savepoint", lambda store: table_of(store).savepoint()),
    ):
        machine.finish(slot)
        machine.model.calls.append(call)
        machine.actors[slot] = Actor(machine.store, call)
        machine.finish(slot)


def _savepoint_of(machine: TableMachine, chance: Random) -> str | None:
    found = sorted(load_state(machine.store).timeline.savepoints)
    return chance.choice(found) if found else None


@_step(0.7)
def delete_savepoint(machine: TableMachine, slot: int, chance: Random) -> None:
    instant = _savepoint_of(machine, chance)
    if instant is not None:
        machine.begin(slot, chance, Call(
            "delete_savepoint", lambda store: table_of(store).delete_savepoint(instant)
        ))  # fmt: skip


@_step(1.5)
def restore(machine: TableMachine, slot: int, chance: Random) -> None:
    instant = _savepoint_of(machine, chance)
    if instant is not None:
        call = Call("restore", lambda store: None)
        call.act = partial(_restore, call=call, instant=instant)
        machine.begin(slot, chance, call)


def _restore(store: Store, *, call: Call, instant: str) -> object:
    before = completed_in(store)
    table = table_of(store)
    call.undoes |= {i.requested for i in table.plan_restore(instant).work.instants}
    order = table.restore(instant)
    call.undoes |= {i.requested for i in order.instants}
    if not isinstance(store, Actor):  # nobody has written meanwhile
        after = completed_in(store)
        later = {i for i in before if before[i] > before[instant]}
        assert not later & after.keys() - _planned_before(store, before, instant), "later writes are there"
        assert before.keys() - later <= after.keys(), "earlier writes are gone"
    return order


def _planned_before(store: Store, times: dict[str, str], savepoint: str) -> set[str]:
    """A compaction that was planned before a savepoint stays: logs that it protects lie over its base files."""
    return {
        i.requested for i in load_state(store).timeline.completed(Action.COMMIT) if i.requested < savepoint
    }


def _newest(store: Store) -> str | None:
    writes = load_state(store).timeline.writes
    return max(writes, key=lambda i: i.completed or "").requested if writes else None


@_step(2.5)
def roll_back(machine: TableMachine, slot: int, chance: Random) -> None:
    newest = _newest(machine.store)
    if newest is not None:
        machine.begin(slot, chance, Call(
            "rollback", lambda store: table_of(store).rollback(newest), undoes={newest}
        ))  # fmt: skip


@_step(0.0)  # drawn by nobody: `drawn` puts it into a part of the histories
def metadata_table(machine: TableMachine, slot: int, chance: Random) -> None:
    machine.begin(slot, chance, Call("metadata table", build_metadata))


# -- rules

_EXPRESSIONS = ("p0,4;p1,1", "p0,1", "p1,4", "p0,3;p1,3", "p.,2", "p1,2")


@_step(3.5, has_counts)
def rescale(machine: TableMachine, slot: int, chance: Random) -> None:
    expressions, adds = chance.choice(_EXPRESSIONS), chance.random() < 0.3 and "add" not in machine.without
    default = chance.choice((None, None, 1, 3))

    def rules(before: Rules) -> Rules:
        text = f"{expressions};{before.expressions}" if adds and before.expressions else expressions
        return Rules(text, before.default if default is None else default)

    def act(store: Store) -> object:
        buckets = table_of(store).buckets
        change = buckets.add if adds else buckets.overwrite
        return change(expressions, bucket_number=default)

    machine.begin(slot, chance, Call("rescale, add" if adds else "rescale", act, rules=rules))


@_step(1.5, has_counts)
def cut_off_rescale(machine: TableMachine, slot: int, chance: Random) -> None:
    what = chance.choice(("resume", "abort"))
    if pending_rescales(machine.store, load_state(machine.store).timeline):
        machine.begin(slot, chance, Call(
            f"rescale, {what}",
            lambda store: table_of(store).buckets.resume() if what == "resume" else table_of(store).buckets.abort(),
        ))  # fmt: skip


def _rescales(machine: TableMachine, store: Store) -> list[str]:
    """Completed rescales on the timeline, oldest first."""
    found = load_state(store).timeline.completed(Action.REPLACE_COMMIT)
    calls = {i.requested: machine.model.call_of(i.requested) for i in found}
    return [instant for instant, call in sorted(calls.items()) if call is not None and call.rules is not None]


@_step(2.0, has_counts)
def roll_back_rescale(machine: TableMachine, slot: int, chance: Random) -> None:
    found = _rescales(machine, machine.store)
    if found:
        several = chance.random() < 0.6
        instant = chance.choice(found) if several else found[-1]
        machine.begin(slot, chance, Call(
            "rollback of rescales" if several else "rollback of a rescale",
            lambda store: table_of(store).buckets.rollback(instant, with_newer=several),
            undoes={other for other in found if other >= instant},
        ))  # fmt: skip


# -- rings


@_step(5.0, has_ring)
def resize(machine: TableMachine, slot: int, chance: Random) -> None:
    trigger = SPLIT if chance.random() < 0.7 else MERGE
    pending = sorted(pending_resizes(machine.store, load_state(machine.store).timeline))
    instant = chance.choice(pending) if pending else ""
    acts: dict[str, Callable[[Store], object]] = {
        "plan": lambda store: schedule_resize(store, look_for_resize(store, trigger)),
        "all": lambda store: table_of(store).buckets.resize(rounds=2, **_arguments(trigger)),
    }
    if pending:
        acts |= {
            "run": lambda store: run_resize(store, instant),
            "abort": lambda store: abort_resize(store, instant),
            "roll back": lambda store: table_of(store).rollback(instant),
        }
    what = chance.choice(("plan", "plan", "all", "run", "run", "run", "abort", "roll back"))
    if what in acts:
        machine.begin(slot, chance, Call(f"resize, {what}", acts[what]))


@_step(5.0, is_doubled)
def doubling(machine: TableMachine, slot: int, chance: Random) -> None:
    pending = sorted(pending_resizes(machine.store, load_state(machine.store).timeline))
    acts: dict[str, Callable[[Store], object]] = {
        "a bucket": lambda store: table_of(store).buckets.double(rounds=1),
        "all": lambda store: table_of(store).buckets.double(),
        "undo": lambda store: table_of(store).buckets.undo_double(),
    }
    if pending:
        acts["roll back"] = lambda store: table_of(store).rollback(pending[0])
    what = chance.choice(("a bucket", "a bucket", "a bucket", "all", "undo", "roll back"))
    is_large = (simple_count(load_properties(machine.store)) or 0) >= 16
    if what in acts and (what != "undo" or _is_doubling(machine)) and (_is_doubling(machine) or not is_large):
        machine.begin(slot, chance, Call(f"doubling, {what}", acts[what]))


def _is_doubling(machine: TableMachine) -> bool:
    return count_before(load_properties(machine.store)) is not None


def _arguments(trigger: ResizeTrigger) -> dict[str, Any]:
    return {
        "file_bytes": trigger.file_bytes, "split_threshold": trigger.split_threshold,
        "merge_threshold": trigger.merge_threshold, "min_buckets": trigger.min_buckets,
        "max_buckets": trigger.max_buckets, "policy": trigger.policy,
    }  # fmt: skip


# -- looking, and time


@_step(1.0)
def look(machine: TableMachine, slot: int, chance: Random) -> None:
    acts: dict[str, Callable[[Table], object]] = {
        "timeline": lambda table: table.timeline(),
        "describe": lambda table: table.describe(),
        "layout": lambda table: table.layout(),
    }
    what = chance.choice(sorted(acts))
    machine.begin(slot, chance, Call(f"look, {what}", lambda store: acts[what](table_of(store))))


@_step(4.0)
def go_on(machine: TableMachine, slot: int, chance: Random) -> None:
    actor = machine.actors[slot]
    if actor is None:
        return
    if chance.random() < 0.5:
        actor.step_changes(chance.randint(1, 4))
    else:
        actor.step(chance.randint(1, chance.choice((3, 30, 100))))


@_step(3.0)
def finish(machine: TableMachine, slot: int, chance: Random) -> None:
    machine.finish(slot)


@_step(1.0)
def kill(machine: TableMachine, slot: int, chance: Random) -> None:
    machine.kill(slot)


@_step(1.5)
def time_passes(machine: TableMachine, slot: int, chance: Random) -> None:
    """So much that whoever is not done counts as dead, alive or not."""
    age(machine.store)
    machine.let_others_be_late()


# ---------------------------------------------------------------------- probes, on copies

Probe = Callable[[TableMachine, Bucket, Random], None]
REFUSED = (InstantError, ConflictError)


def _write(machine: TableMachine, copy: Bucket, chance: Random) -> None:
    """Nothing: that it can be written is looked at in any case."""


def _unwind(machine: TableMachine, copy: Bucket, chance: Random) -> None:
    """Take back the newest write, whatever it is, as often as that is allowed."""
    for _ in range(4):
        newest = _newest(copy)
        if newest is None:
            return
        try:
            table_of(copy).rollback(newest)
        except REFUSED:
            return
        assert newest not in completed_in(copy), f"{newest} was taken back and is there"
        machine.check_rows(copy)
        machine.check_rules(copy)


def _unwind_rescales(machine: TableMachine, copy: Bucket, chance: Random) -> None:
    """Take back several rescales; a dry run says whether that is possible, and it is done or refused as a whole."""
    found = _rescales(machine, copy)
    if not found:
        return
    instant, before = chance.choice(found), completed_in(copy)
    buckets, is_promised = table_of(copy).buckets, True
    contents = _contents(copy)
    try:
        buckets.plan_rollback(instant, with_newer=True)
    except REFUSED:
        is_promised = False
    assert _contents(copy) == contents, "a dry run has changed something"
    try:
        buckets.rollback(instant, with_newer=True)
    except REFUSED as error:
        assert not is_promised or isinstance(error, ConflictError), f"a dry run did not foresee {error}"
        assert completed_in(copy).keys() >= before.keys(), f"refused when it was half done: {error}"
    else:
        assert is_promised, "a dry run has refused what can be done"
        assert not completed_in(copy).keys() & {other for other in found if other >= instant}


def _restore_any(machine: TableMachine, copy: Bucket, chance: Random) -> None:
    for instant in sorted(load_state(copy).timeline.savepoints, reverse=True):
        with suppress(*REFUSED):
            _restore(copy, call=Call("restore", lambda store: None), instant=instant)
            machine.check_rows(copy)
            machine.check_rules(copy)


def _finish_plans(machine: TableMachine, copy: Bucket, chance: Random) -> None:
    """Complete what is pending; then take that back too, or leave it behind."""
    _end_plans(copy, chance, completes=True)
    machine.check_rows(copy)
    machine.check_rules(copy)
    then = chance.choice(("unwind", "unwind", "tidy up", "tidy up", "restore any"))
    if then not in machine.without:
        PROBES[then](machine, copy, chance)


def _abort_plans(machine: TableMachine, copy: Bucket, chance: Random) -> None:
    _end_plans(copy, chance, completes=False)


def _end_plans(copy: Bucket, chance: Random, *, completes: bool) -> None:
    timeline = load_state(copy).timeline
    resizes = pending_resizes(copy, timeline)
    for instant in timeline.pending(Action.COMPACTION, Action.CLUSTERING):
        run: Callable[[Store, str], object] = run_compaction
        if instant.action is Action.CLUSTERING:
            run = run_resize if instant.requested in resizes else run_clustering
        with suppress(*REFUSED):
            if completes:
                run(copy, instant.requested)
            else:
                table_of(copy).rollback(instant.requested)
    if pending_rescales(copy, load_state(copy).timeline):
        with suppress(*REFUSED):
            table_of(copy).buckets.resume() if completes else table_of(copy).buckets.abort()


def _tidy_up(machine: TableMachine, copy: Bucket, chance: Random) -> None:
    """Clean and archive as much as can be."""
    table = table_of(copy)
    for _ in range(2):
        table.clean(retain_commits=1)
        table.archive(keep_min=1, keep_max=2)
        machine.check_rows(copy)
        machine.check_rules(copy)
        written = table_of(copy).upsert(orders([100, 101], "tidy", 0)).instant
        assert written is not None
        machine.model.calls.append(_as_call(written))


def _as_call(written: str) -> Call:
    """The write that a probe has just made, for the model. The newest may be what maintenance has done after it."""
    rows = {100: ("tidy 100", 0), 101: ("tidy 101", 0)}
    return Call("probe", lambda store: None, instants=[written], change=upserted(rows), rows=rows)


def _dry_runs(machine: TableMachine, copy: Bucket, chance: Random) -> None:
    """What only says what would be done changes nothing."""
    table, timeline = table_of(copy), load_state(copy).timeline
    runs: list[Callable[[], object]] = [
        lambda: table.plan_clean(retain_commits=1),
        lambda: table.plan_archive(keep_min=1, keep_max=2),
        *(partial(table.plan_rollback, i.requested) for i in timeline.instants if i.is_write),
        *(partial(table.plan_restore, instant) for instant in timeline.savepoints),
    ]
    if machine.kind.has_ring:
        runs += [partial(table.buckets.plan_abort, instant) for instant in pending_resizes(copy, timeline)]
        runs += [lambda: table.buckets.plan_resize(**_arguments(SPLIT))]
    elif has_counts(machine.kind):
        runs += [partial(table.buckets.plan_rollback, instant) for instant in _rescales(machine, copy)]
        runs += [lambda: table.buckets.plan_abort(), lambda: table.buckets.plan_overwrite("p0,7")]
    for run in runs:
        contents = _contents(copy)
        with suppress(*REFUSED):
            run()
        assert _contents(copy) == contents, "a dry run has changed something"


def _contents(store: Bucket) -> dict[str, str]:
    files = store.list("", recursive=True).files
    return {file.path: file.version for file in files if file.path != ".hoodie/.locks/table_lock.json"}


def _bad_policy(machine: TableMachine, copy: Bucket, chance: Random) -> None:
    """A split point that is not in the bucket is refused."""
    asked = 0

    def outside(ring: Ring, place: int, hashes: Hashes) -> int:
        nonlocal asked
        asked += 1
        return ring.nodes[place].value + 1

    trigger = ResizeTrigger(file_bytes=100, split_threshold=1.0, merge_threshold=0.1, policy=outside)
    try:
        table_of(copy).buckets.resize(rounds=1, **_arguments(trigger))
    except ConflictError:
        return
    except ConfigError as error:
        assert "outside" in str(error), error
    else:
        assert not asked, "a split point outside of its bucket was taken"


PROBES: dict[str, Probe] = {
    "write": _write,
    "unwind": _unwind,
    "unwind rescales": _unwind_rescales,
    "restore any": _restore_any,
    "finish plans": _finish_plans,
    "abort plans": _abort_plans,
    "tidy up": _tidy_up,
    "dry runs": _dry_runs,
    "bad policy": _bad_policy,
}


def fitting_probes(machine: TableMachine) -> list[str]:
    """Name the probes that have something to do on a table as it is now."""
    timeline = load_state(machine.store).timeline
    names = ["write", "unwind", "tidy up", "dry runs"]
    if timeline.savepoints:
        names.append("restore any")
    if timeline.pending():
        names += ["finish plans", "finish plans", "abort plans"]
    if machine.kind.has_ring:
        names.append("bad policy")
    elif _rescales(machine, machine.store):
        names.append("unwind rescales")
    return names


# ---------------------------------------------------------------------- histories


def drawn(kind: str, seed: int, *, count: int, without: frozenset[str] = LEFT_OUT) -> list[Step]:
    """Draw a history. Each has steps of its own liking: some are left out, and some come often."""
    chance = Random(f"{kind} {seed}")
    likings = {
        name: step.weight * chance.choice((0, 0.5, 1, 1, 3))
        for name, step in STEPS.items()
        if step.weight and step.fits(KINDS[kind]) and name not in without
    }
    likings["upsert"] = likings.get("upsert", 0) or 3
    likings["load"] = likings.get("load", 0) or 0.5
    names = chance.choices(list(likings), list(likings.values()), k=count)
    steps = [("load", 0, chance.getrandbits(30))] + [
        (name, chance.randrange(SLOTS), chance.getrandbits(30)) for name in names
    ]
    return steps if "metadata table" in without else _with_metadata(steps, Random(f"metadata {kind} {seed}"))


def _with_metadata(steps: list[Step], chance: Random) -> list[Step]:
    """Let two histories of three have a metadata table, from the beginning or from somewhere on."""
    begin = chance.choice((None, 0, chance.randrange(len(steps))))
    if begin is None:
        return steps
    places = sorted({begin, *(chance.randrange(begin, len(steps)) for _ in range(3))}, reverse=True)
    for place in places:  # more than once: it may be killed, or refused, or the table be delisted
        steps.insert(place, ("metadata table", chance.randrange(SLOTS), chance.getrandbits(30)))
    return steps


def replay(
    kind: str, steps: Sequence[Step], *, is_calm: bool = False, without: frozenset[str] = LEFT_OUT
) -> None:
    """Run steps, and check after each; what fails says all that is needed to run it again."""
    with processes_without_clocks(), _short_history():
        machine = TableMachine(kind, is_calm=is_calm, without=without)
        done: list[Step] = []
        try:
            for step in steps:
                done.append(step)
                TALLY["steps"] += 1
                machine.do(step)
            machine.end()
        except Exception as error:
            calls = "\n".join(f"  {call.name} {call.instants} {call.error!r}" for call in machine.model.calls)
            error.add_note(f"replay({kind!r}, {done}, is_calm={is_calm})  # {len(done)} steps\n{calls}")
            raise
        finally:
            machine.stop()
    TALLY["histories"] += 1


def run_history(kind: str, seed: int, *, count: int, without: frozenset[str] = LEFT_OUT) -> None:
    replay(kind, drawn(kind, seed, count=count, without=without), is_calm=seed % 3 == 0, without=without)


def shrunk(
    kind: str, steps: Sequence[Step], *, is_calm: bool = False, without: frozenset[str] = LEFT_OUT
) -> list[Step]:
    """Leave out steps as long as what is left fails in the same way."""

    def fault(tried: Sequence[Step]) -> str | None:
        try:
            replay(kind, tried, is_calm=is_calm, without=without)
        except Exception as error:
            return f"{type(error).__name__} {re.sub('[0-9a-f]{4,}|[0-9]', '', str(error))[:40]}"
        return None

    left, wanted = list(steps), fault(steps)
    size = len(left) // 2
    while size:
        place = 0
        while place < len(left):
            tried = left[:place] + left[place + size :]
            if fault(tried) == wanted:
                left = tried
            else:
                place += size
        size //= 2
    return left


@contextmanager
def _short_history() -> Iterator[None]:
    """Markers of who is gone are swept at once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recovery, "KEPT_MS", 60_000)
        yield
