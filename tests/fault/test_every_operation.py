"""Whatever a table is asked to do may be cut off at any moment, and the table is as before or as after, never between.

Every operation on the store is such a moment: it fails before it did anything, or after, once or for good; it is held
up for so long that others take the process for dead; or from then on the disk is full, or can only be read. The suite
goes through all operations that a table has. A soak takes moments in an order that its seed draws, of every operation
and kind of fault as many as its time allows. `BUCKETLAKE_MOMENTS=all` takes every moment, and hours; other runs a part.
"""

from __future__ import annotations

import errno
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import Any, TypeVar

import pytest

from bucketlake import Table
from bucketlake.commit.locks import table_lock
from bucketlake.commit.metadata_build import build_metadata
from bucketlake.commit.metadata_table import is_listed
from bucketlake.commit.recovery import pending_rescales, recover
from bucketlake.config import load_properties, update_properties
from bucketlake.errors import BucketlakeError, ConflictError, NotATableError
from bucketlake.index import (
    ConsistentBuckets,
    Directory,
    DirectoryIndex,
    ExtendibleBuckets,
    IndexValue,
    RingIndex,
    SimpleBuckets,
    declare_rules,
)
from bucketlake.index.doubling import count_before
from bucketlake.index.fingerprint import (
    BUCKET_COUNT,
    BUCKET_ENGINE,
    HASH_FIELDS,
    INDEX_TYPE,
    KEY_ENCODING,
    is_adopted,
    writing_index,
)
from bucketlake.layout.names import CLAIM_FOLDER
from bucketlake.logfile import LogFormat
from bucketlake.plans import plan_adoption
from bucketlake.services import (
    Retention,
    archive_table,
    clean_table,
    compact_metadata,
    compact_table,
    create_savepoint,
    delete_savepoint,
    list_savepoints,
    load_held,
    look_for_restore,
    look_for_rollback,
    plan_compaction,
    rollback_compaction,
    run_compaction,
    run_restore,
    run_rollback,
    schedule_compaction,
)
from bucketlake.services.doubling import (
    begin_doubling,
    double_table,
    next_merges,
    next_round,
    undo_doubling,
)
from bucketlake.services.rescale import abort_rescale, rescale_table, resume_rescale, roll_back_rescale
from bucketlake.services.resize import abort_resize, look_for_resize, run_resize, schedule_resize
from bucketlake.services.resize_plan import Resize, ResizeTrigger
from bucketlake.state import TableState, files_of, load_state
from bucketlake.storage import Store
from bucketlake.testing.faulty_store import FaultyStore, InjectedError
from bucketlake.testing.invariants import check_invariants
from bucketlake.timeline import WRITE_ACTIONS, Action, load_history
from bucketlake.write import TableSpec, WriteOptions, append_rows, begin_append, complete_append, create, job
from bucketlake.write.metadata_drop import plan_drop_metadata_table, run_drop_metadata_table
from plugins.soak import IS_SOAK, shuffled, within
from stand_ins.aging import Bucket, age, copy_of
from stand_ins.metadata_check import check_metadata
from stand_ins.orders_table import SCHEMA, orders

TAKES_ALL = os.environ.get("BUCKETLAKE_MOMENTS") == "all"
IS_WIDE = TAKES_ALL or IS_SOAK
SOAK_SECONDS = 2.0
"""For one operation and one kind of fault."""
MOMENTS_MAX = 9
"""Of one operation and one kind of fault, in a run that does not take all."""

T = TypeVar("T")
Row = tuple[Any, ...]
Points = dict[str, Counter[str]]


@dataclass(frozen=True, kw_only=True)
class Look:
    """What anybody can see of a table."""

    rows: tuple[Row, ...] | None
    """None: there is no table."""
    writes: tuple[str, ...] = ()
    """The actions of all completed writes, archived ones included, in no order."""
    plans: int = 0
    savepoints: int = 0
    metadata: tuple[str, ...] = ()
    buckets: str = ""
    """The bucket counts that a writer goes by; empty if there is no telling."""


def look(store: Store) -> Look:
    try:
        properties = load_properties(store)
    except NotATableError:
        return Look(rows=None)
    state = load_state(store)
    active = {(i.requested, i.action) for i in state.timeline.writes}
    archived = {(a.requested, a.action) for a in load_history(store, properties) if a.action in WRITE_ACTIONS}
    return Look(
        rows=rows_of(store),
        writes=tuple(sorted(action for _, action in active | archived)),
        plans=len(state.timeline.pending(Action.COMPACTION, Action.CLUSTERING)),
        savepoints=len(list_savepoints(state)),
        # One that we keep may be delisted when something is undone.
        metadata=() if properties.metadata_partitions == ("files",) else properties.metadata_partitions,
        buckets=buckets_of(state),
    )


def buckets_of(state: TableState) -> str:
    if not is_adopted(state.properties):
        return ""
    index = writing_index(state)
    if isinstance(index, DirectoryIndex):
        # Ids are of the instant, and whoever doubles a table draws one.
        found = [index.ring(partition) for partition in PARTITIONS]
        return str(
            [[(one.number, one.depth) for one in d.buckets] for d in found if isinstance(d, Directory)]
        )
    if isinstance(index, RingIndex):
        return str([index.ring(partition) for partition in PARTITIONS])
    return f"{index} {[index.bucket_count(partition) for partition in PARTITIONS]}"


def rows_of(store: Store) -> tuple[Row, ...]:
    rows = Table(store, load_properties(store)).to_arrow(columns=SCHEMA.names)
    return tuple(sorted(tuple(row.values()) for row in rows.to_pylist()))


@dataclass(frozen=True, kw_only=True)
class Case:
    """Something that a table can be asked to do."""

    name: str
    make: Callable[[], Bucket]
    """The table before."""
    act: Callable[[Store], object]
    done: Callable[[Store], object] = field(default=lambda store: None)
    """What a service changes beside what anybody can see; done again, it is as after."""
    between: bool = False
    """Whether readers may see it halfway; until somebody recovers, that is."""
    leaves: tuple[Action, ...] = ()
    """What it leaves pending when it is cut off, for the next run of it to finish."""
    stages: tuple[Callable[[], Store], ...] = ()
    """Tables that it may leave behind if it is cut off, beside those of before and after."""
    replaces: bool = False
    """Whether it takes away what others have written just before it."""
    sets_up: bool = False
    """Whether the table cannot be written before it."""
    is_recovery: bool = False
    """Whether whoever comes next does it anyway: then the table is as after."""


PARTITIONS = ("p0", "p1")
TABLE_TYPES = {"cow": "COPY_ON_WRITE", "mor": "MERGE_ON_READ"}
KEPT = " with metadata"
"""What ends the names of tables that have a metadata table from the beginning, and of what is done to them."""
SPEC = TableSpec(
    name="orders", schema=SCHEMA, key=("id",), partition=("dt",), ordering=("ts",), index=SimpleBuckets(2)
)


def table_of(store: Store) -> Table:
    return Table(store, load_properties(store))


def created(spec: TableSpec, kind: str) -> Bucket:
    store = Bucket()
    create(store, spec)
    if kind.endswith(KEPT):
        build_metadata(store)
    return store


@cache
def written(table_type: str) -> Bucket:
    """Two partitions of two buckets; base files, and logs over them where the table has such."""
    store = created(replace(SPEC, table_type=TABLE_TYPES[table_type.removesuffix(KEPT)]), table_type)
    table_of(store).upsert(orders(range(6), "a", 1))
    table_of(store).upsert(orders(range(2, 8), "b", 2))
    return store


def writes(kept: str) -> Iterator[Case]:
    acts: Mapping[str, Callable[[Table], object]] = {
        "upsert": lambda table: table.upsert(orders(range(5, 10), "c", 3)),
        "bulk_insert": lambda table: table.bulk_insert(orders(range(5, 10), "c", 3)),
        "delete": lambda table: table.delete(orders(range(1, 4), "", 0).select(["id", "dt"])),
        "overwrite": lambda table: table.overwrite(orders([2, 10], "c", 3)),
        "overwrite_whole": lambda table: table.overwrite(orders([2, 10], "c", 3), whole_table=True),
        "delete_partitions": lambda table: table.delete_partitions(["p1"]),
    }
    for table_type in (kind + kept for kind in TABLE_TYPES):
        for name, act in acts.items():

            def through(store: Store, act: Callable[[Table], object] = act) -> None:
                act(table_of(store))

            replaces = name in {"overwrite", "overwrite_whole", "delete_partitions"}
            make = partial(lambda kind: copy_of(written(kind)), table_type)
            yield Case(name=f"{name} {table_type}", make=make, act=through, replaces=replaces)

    def append(store: Store) -> None:
        begun = begin_append(store, SCHEMA, WriteOptions(log_format=LogFormat.PARQUET))
        parts = (orders([5, 8], "c", 3), orders([5, 9], "d", 4))
        complete_append(begun, [append_rows(begun, rows, task=number) for number, rows in enumerate(parts)])

    yield Case(name="append mor", make=lambda: copy_of(written("mor" + kept)), act=append)


def properties_cases() -> Iterator[Case]:
    yield Case(name="create", make=Bucket, act=lambda store: create(store, SPEC))

    def unadopted() -> Bucket:
        store = copy_of(written("cow"))
        keys = (INDEX_TYPE, BUCKET_ENGINE, BUCKET_COUNT, HASH_FIELDS, KEY_ENCODING)
        update_properties(store, dict.fromkeys(keys))
        return store

    yield Case(
        name="adopt",
        make=unadopted,
        act=lambda store: plan_adoption(store, SimpleBuckets(2)).run(store),
        sets_up=True,
    )

    def with_metadata() -> Bucket:
        return copy_of(written("cow" + KEPT))

    def drop(store: Store) -> None:
        run_drop_metadata_table(plan_drop_metadata_table(load_state(store)), store)

    yield Case(
        name="drop_metadata",
        make=with_metadata,
        act=drop,
        sets_up=True,
        done=lambda store: len(store.list(".hoodie/metadata", recursive=True).files),
    )


@cache
def scheduled(kept: str) -> tuple[Bucket, str]:
    store = copy_of(written("mor" + kept))
    instant = schedule(store)
    assert instant is not None
    return store, instant


def schedule(store: Store) -> str | None:
    state = load_state(store)
    return schedule_compaction(store, plan_compaction(state, files_of(state), load_held(state), now=""))


@cache
def compacted(kept: str) -> Bucket:
    """A table with slices to clean, a partition to end, and instants to archive."""
    store = copy_of(written("mor" + kept))
    compact_table(store)
    table_of(store).delete_partitions(["p1"])
    table_of(store).upsert(orders([0, 2], "c", 3))
    compact_table(store)
    return store


@cache
def cleaned(kept: str) -> Bucket:
    store = copy_of(compacted(kept))
    clean_table(store, retain=Retention(commits=1))
    compact_metadata(store)
    for number in range(3):
        table_of(store).upsert(orders([0, 2], "d", 4 + number))
    return store


def service_cases(kept: str) -> Iterator[Case]:
    yield Case(name="schedule compaction", make=lambda: copy_of(written("mor" + kept)), act=schedule)

    def run(store: Store) -> None:
        run_compaction(store, scheduled(kept)[1])

    logs = partial(_count, lambda path: ".log." in path)
    yield Case(
        name="run compaction",
        make=lambda: copy_of(scheduled(kept)[0]),
        act=run,
        done=lambda store: len(load_state(store).timeline.pending()),
        leaves=(Action.COMPACTION,),
    )
    yield Case(
        name="clean",
        make=lambda: copy_of(compacted(kept)),
        act=lambda store: clean_table(store, retain=Retention(commits=1)),
        done=logs,
        leaves=(Action.CLEAN,),
    )
    yield Case(
        name="archive",
        make=lambda: copy_of(cleaned(kept)),
        act=lambda store: archive_table(store, keep_min=2, keep_max=3),
        done=lambda store: len(load_state(store).timeline.writes),
    )


def way_back_cases(kept: str) -> Iterator[Case]:
    for table_type in (kind + kept for kind in TABLE_TYPES):

        def roll_back(store: Store, table_type: str = table_type) -> None:
            newest = load_state(written(table_type)).timeline.writes[-1].requested
            run_rollback(look_for_rollback(load_state(store), newest), store)

        make = partial(lambda kind: copy_of(written(kind)), table_type)
        yield Case(name=f"rollback {table_type}", make=make, act=roll_back, replaces=True)

    def roll_back_plan(store: Store) -> None:
        run_rollback(look_for_rollback(load_state(store), scheduled(kept)[1]), store)

    yield Case(
        name="rollback of a plan",
        make=lambda: copy_of(scheduled(kept)[0]),
        act=roll_back_plan,
        leaves=(Action.COMPACTION,),
    )
    yield Case(
        name="rollback of a run",
        make=lambda: half_compacted(kept),
        act=lambda store: rollback_compaction(store, scheduled(kept)[1]),
        done=partial(_count, lambda path: path.endswith(f"_{scheduled(kept)[1]}.parquet")),
        leaves=(Action.COMPACTION,),
    )

    yield Case(
        name="savepoint",
        make=lambda: copy_of(written("mor" + kept)),
        act=create_savepoint,
        leaves=(Action.SAVEPOINT,),
    )

    @cache
    def protected(table_type: str) -> tuple[Bucket, str]:
        store = copy_of(written(table_type))
        instant = create_savepoint(store).instant
        table_of(store).upsert(orders(range(4), "c", 3))
        table_of(store).overwrite(orders([3, 11], "d", 4))
        if table_type.startswith("mor"):
            compact_table(store)
        return store, instant

    for table_type in (kind + kept for kind in TABLE_TYPES):

        def restore(store: Store, table_type: str = table_type) -> None:
            run_restore(look_for_restore(load_state(store), protected(table_type)[1]), store)

        make = partial(lambda kind: copy_of(protected(kind)[0]), table_type)
        yield Case(name=f"restore {table_type}", make=make, act=restore, between=True, replaces=True)

    def delete(store: Store) -> None:
        delete_savepoint(store, protected("cow" + kept)[1])

    yield Case(name="delete_savepoint", make=lambda: copy_of(protected("cow" + kept)[0]), act=delete)


@cache
def half_compacted_contents(kept: str) -> Bucket:
    store, instant = copy_of(scheduled(kept)[0]), scheduled(kept)[1]

    def failing(function, items):  # type: ignore[no-untyped-def] # a parallel map
        function(items[0])
        raise InjectedError("an executor died")

    with pytest.raises(InjectedError):
        run_compaction(store, instant, tasks=failing)
    age(store)
    return store


def half_compacted(kept: str) -> Bucket:
    return aged_copy(half_compacted_contents(kept))


def aged_copy(store: Store) -> Bucket:
    made = copy_of(store)
    age(made)
    return made


class _DiesAfterClaim(FaultyStore):
    def put_new(self, path: str, data: object) -> bool:
        done = super().put_new(path, data)  # type: ignore[arg-type] # passed on
        if path.startswith(CLAIM_FOLDER):
            self._fails_at = len(self.operations) + 1
            self._is_dead = True
        return done


@cache
def left_by_the_dead(table_type: str, *, is_claimed: bool) -> Bucket:
    """A writer died in the middle of its files, or between its claim and its publication."""
    store = copy_of(written(table_type))
    faulty = (
        _DiesAfterClaim(store)
        if is_claimed
        else FaultyStore(store, fails_at=_files_begin(table_type), is_dead=True)
    )
    with pytest.raises(InjectedError):
        table_of(store).__class__(faulty, load_properties(store)).upsert(orders(range(5, 10), "c", 3))
    return store


def _files_begin(table_type: str) -> int:
    """The number of an operation of an upsert after some of its files were put."""
    counting = FaultyStore(copy_of(written(table_type)))
    table_of(counting).upsert(orders(range(5, 10), "c", 3))
    files = [n for n, what in enumerate(counting.operations, 1) if what.endswith(".parquet")]
    return files[-1]


@cache
def with_rules(table_type: str) -> Bucket:
    store = copy_of(written(table_type))
    rescale_table(store, declare_rules("p0,2;p1,3", 2))
    table_of(store).upsert(orders(range(4, 9), "r", 3))
    return store


@cache
def rescaled(table_type: str) -> tuple[Bucket, str]:
    store = copy_of(with_rules(table_type))
    return store, rescale_table(store, NEW_RULES).instant


@cache
def half_rescaled(kept: str) -> Bucket:
    """A rescale that was cut off after one of its tasks; somebody has written since."""
    store = copy_of(with_rules("cow" + kept))

    def failing(function, items):  # type: ignore[no-untyped-def] # a parallel map
        function(items[0])
        raise InjectedError("the driver died")

    with pytest.raises(InjectedError):
        rescale_table(store, NEW_RULES, tasks=failing)
    table_of(store).upsert(orders([0, 1], "w", 4))
    return store


NEW_RULES = declare_rules("p0,4;p1,1", 2)
NEWER_RULES = declare_rules("p0,1;p1,2", 2)


@cache
def upgraded(table_type: str) -> tuple[Bucket, str]:
    """A simple-bucket table that got rules."""
    store = copy_of(written(table_type))
    return store, rescale_table(store, NEW_RULES).instant


@cache
def upgraded_twice(table_type: str) -> tuple[Bucket, str]:
    """And others after that."""
    store, first = copy_of(upgraded(table_type)[0]), upgraded(table_type)[1]
    rescale_table(store, NEWER_RULES)
    return store, first


@cache
def rescaled_twice(table_type: str) -> tuple[Bucket, str]:
    store, first = copy_of(rescaled(table_type)[0]), rescaled(table_type)[1]
    rescale_table(store, NEWER_RULES)
    return store, first


@cache
def half_upgraded(kept: str) -> Bucket:
    """Somebody has written to it since, by the one count that it still has."""
    store = copy_of(written("cow" + kept))

    def failing(function, items):  # type: ignore[no-untyped-def] # a parallel map
        function(items[0])
        raise InjectedError("the driver died")

    with pytest.raises(InjectedError):
        rescale_table(store, NEW_RULES, tasks=failing)
    table_of(store).upsert(orders([0, 1], "w", 4))
    return store


def upgrade_cases(kept: str) -> Iterator[Case]:
    """A simple-bucket table gets rules, and loses them again: its count goes with them."""

    def upgrade(store: Store) -> None:
        if pending_rescales(store, load_state(store).timeline):
            resume_rescale(store)
        else:
            rescale_table(store, NEW_RULES)

    pending = (Action.REPLACE_COMMIT,)
    for table_type in (kind + kept for kind in TABLE_TYPES):
        make = partial(lambda kind: copy_of(written(kind)), table_type)
        yield Case(name=f"upgrade {table_type}", make=make, act=upgrade, leaves=pending)

        def by_manager(store: Store, table_type: str = table_type) -> None:
            roll_back_rescale(store, upgraded(table_type)[1])

        def by_rollback(store: Store, table_type: str = table_type) -> None:
            table_of(store).rollback(upgraded(table_type)[1])

        def of_both(store: Store, table_type: str = table_type) -> None:
            roll_back_rescale(store, upgraded_twice(table_type)[1], with_newer=True)

        make = partial(lambda kind: copy_of(upgraded(kind)[0]), table_type)
        yield Case(name=f"rollback of an upgrade {table_type}", make=make, act=by_manager, replaces=True)
        yield Case(
            name=f"table.rollback of an upgrade {table_type}", make=make, act=by_rollback, replaces=True
        )
        yield Case(
            name=f"rollback of an upgrade and a rescale {table_type}",
            make=partial(lambda kind: copy_of(upgraded_twice(kind)[0]), table_type),
            act=of_both,
            stages=(partial(lambda kind: upgraded(kind)[0], table_type),),
            replaces=True,
        )

    @cache
    def protected() -> tuple[Bucket, str]:
        store = copy_of(written("cow" + kept))
        instant = create_savepoint(store).instant
        rescale_table(store, NEW_RULES)
        table_of(store).upsert(orders(range(4), "c", 3))
        return store, instant

    def restore(store: Store) -> None:
        table_of(store).restore(protected()[1])

    yield Case(
        name="restore over an upgrade",
        make=lambda: copy_of(protected()[0]),
        act=restore,
        between=True,
        replaces=True,
    )

    def is_pending(store: Store) -> int:
        return len(pending_rescales(store, load_state(store).timeline))

    for name, act in (("resume", resume_rescale), ("abort", abort_rescale)):
        yield Case(
            name=f"{name} of an upgrade",
            make=lambda: aged_copy(half_upgraded(kept)),
            act=act,
            done=is_pending,
            leaves=pending,
        )


def rescale_cases(kept: str) -> Iterator[Case]:
    """What is cut off of a rescale stays pending, for who goes on with it; what is taken back of one does not."""

    def rescale(store: Store) -> None:
        if pending_rescales(store, load_state(store).timeline):
            resume_rescale(store)
        else:
            rescale_table(store, NEW_RULES)

    pending = (Action.REPLACE_COMMIT,)
    for table_type in (kind + kept for kind in TABLE_TYPES):
        make = partial(lambda kind: copy_of(with_rules(kind)), table_type)
        yield Case(name=f"rescale {table_type}", make=make, act=rescale, leaves=pending)

        def roll_back(store: Store, table_type: str = table_type) -> None:
            roll_back_rescale(store, rescaled(table_type)[1])

        make = partial(lambda kind: copy_of(rescaled(kind)[0]), table_type)
        yield Case(name=f"rollback of a rescale {table_type}", make=make, act=roll_back, replaces=True)

        def roll_back_both(store: Store, table_type: str = table_type) -> None:
            roll_back_rescale(store, rescaled_twice(table_type)[1], with_newer=True)

        yield Case(
            name=f"rollback of two rescales {table_type}",
            make=partial(lambda kind: copy_of(rescaled_twice(kind)[0]), table_type),
            act=roll_back_both,
            stages=(partial(lambda kind: rescaled(kind)[0], table_type),),
            replaces=True,
        )

    def is_pending(store: Store) -> int:
        return len(pending_rescales(store, load_state(store).timeline))

    yield Case(
        name="resume of a rescale",
        make=lambda: aged_copy(half_rescaled(kept)),
        act=resume_rescale,
        done=is_pending,
        leaves=pending,
    )
    yield Case(
        name="abort of a rescale",
        make=lambda: aged_copy(half_rescaled(kept)),
        act=abort_rescale,
        done=is_pending,
        leaves=pending,
    )


SPLIT = ResizeTrigger(file_bytes=500, split_threshold=1.0, merge_threshold=0.1, max_buckets=4)
RINGS: dict[str, tuple[str, IndexValue]] = {
    "dual": ("mor", ConsistentBuckets(2)),
    "virtual": ("mor", ConsistentBuckets(2, virtual_logs=True)),
    "following": ("cow", ConsistentBuckets(2)),
    "by bits": ("mor", ExtendibleBuckets(2)),
}
"""How a resize and the writers beside it get along: the table type, and the index."""


@cache
def ringed(kind: str) -> Bucket:
    table_type, index = RINGS[kind.removesuffix(KEPT)]
    spec = replace(SPEC, index=index, table_type=TABLE_TYPES[table_type])
    store = created(spec, kind)
    table_of(store).upsert(orders(range(6), "a", 1))
    table_of(store).upsert(orders(range(2, 8), "b", 2))
    return store


@cache
def resizing(kind: str) -> tuple[Bucket, str]:
    """A resize that is planned; somebody has written since."""
    store = copy_of(ringed(kind))
    instant = schedule_resize(store, look_for_resize(store, SPLIT))
    assert instant is not None
    table_of(store).upsert(orders([0, 1, 4], "w", 3))
    return store, instant


def resize_cases(kept: str) -> Iterator[Case]:
    """What is cut off of a resize stays pending, and is run again."""
    pending = (Action.CLUSTERING,)

    def pending_now(store: Store) -> int:
        return len(load_state(store).timeline.pending(Action.CLUSTERING))

    for kind in (name + kept for name in RINGS):
        yield Case(
            name=f"upsert beside a resize, {kind}",
            make=partial(lambda kind: copy_of(resizing(kind)[0]), kind),
            act=lambda store: table_of(store).upsert(orders(range(3, 10), "c", 4)),
            leaves=pending,
        )

        def run(store: Store, kind: str = kind) -> None:
            run_resize(store, resizing(kind)[1])

        def give_up(store: Store, kind: str = kind) -> None:
            abort_resize(store, resizing(kind)[1])

        for name, act in (("resize", run), ("abort of a resize", give_up)):
            yield Case(
                name=f"{name}, {kind}",
                make=partial(lambda kind: copy_of(resizing(kind)[0]), kind),
                act=act,
                done=pending_now,
                leaves=pending,
            )

    @cache
    def resized(kind: str) -> tuple[Bucket, str]:
        """A resize that is completed, with what was written beside it."""
        store, instant = copy_of(resizing(kind)[0]), resizing(kind)[1]
        run_resize(store, instant)
        return store, instant

    @cache
    def protected(kind: str) -> tuple[Bucket, str]:
        store = copy_of(ringed(kind))
        instant = create_savepoint(store).instant
        run_resize(store, schedule_resize(store, look_for_resize(store, SPLIT)) or "")
        table_of(store).upsert(orders([0, 1, 4], "w", 3))
        return store, instant

    for kind in (name + kept for name in RINGS):

        def roll_back(store: Store, kind: str = kind) -> None:
            table_of(store).rollback(resized(kind)[1])

        def restore(store: Store, kind: str = kind) -> None:
            table_of(store).restore(protected(kind)[1])

        yield Case(
            name=f"rollback of a resize, {kind}",
            make=partial(lambda kind: copy_of(resized(kind)[0]), kind),
            act=roll_back,
            replaces=True,
        )
        yield Case(
            name=f"restore over a resize, {kind}",
            make=partial(lambda kind: copy_of(protected(kind)[0]), kind),
            act=restore,
            between=True,
            replaces=True,
        )
    yield Case(
        name="plan of a resize",
        make=lambda: copy_of(ringed("dual" + kept)),
        act=lambda store: schedule_resize(store, look_for_resize(store, SPLIT)),
        leaves=pending,
    )


Choose = Callable[[Store, int], Resize | None]


@cache
def half_doubled(table_type: str) -> Bucket:
    store = copy_of(written(table_type))
    double_table(store, rounds=1)
    table_of(store).upsert(orders([0, 1, 4], "w", 3))
    return store


def doubling_cases(kept: str) -> Iterator[Case]:
    """Cut off, some buckets are split, and others not: the next call goes on."""

    def act(store: Store) -> None:
        double_table(store)

    def cut_off(make: Callable[[str], Bucket], table_type: str, choose: Choose, steps: int) -> Bucket:
        """A table whose doubling, or the undoing of it, ended after so many plans and runs of them."""
        store = copy_of(make(table_type))
        if count_before(load_properties(store)) is None:
            begin_doubling(store, 2)
        for number in range(steps):
            if number % 2 == 0:
                plan = choose(store, 2)
                assert plan is not None and schedule_resize(store, plan)
            else:
                (pending,) = load_state(store).timeline.pending(Action.CLUSTERING)
                run_resize(store, pending.requested)
        return store

    for table_type in ("cow" + kept, "mor" + kept):
        yield Case(
            name=f"doubling {table_type}",
            make=partial(lambda kind: copy_of(written(kind)), table_type),
            act=act,
            leaves=(Action.CLUSTERING,),
            stages=tuple(partial(cut_off, written, table_type, next_round, steps) for steps in range(5)),
        )
        yield Case(
            name=f"undoing of a doubling {table_type}",
            make=partial(lambda kind: copy_of(half_doubled(kind)), table_type),
            act=undo_doubling,
            leaves=(Action.CLUSTERING,),
            stages=tuple(partial(cut_off, half_doubled, table_type, next_merges, steps) for steps in (1, 2)),
        )


def recovery_cases(kept: str) -> Iterator[Case]:
    def act(store: Store) -> None:
        recover(store, load_properties(store))

    for name, is_claimed in (("recovery, taken back", False), ("recovery, published", True)):
        make = partial(
            lambda claimed: aged_copy(left_by_the_dead("cow" + kept, is_claimed=claimed)), is_claimed
        )
        yield Case(name=name, make=make, act=act, is_recovery=True)


def _count(wanted: Callable[[str], bool], store: Store) -> int:
    return sum(wanted(file.path) for file in store.list("", recursive=True).files)


ONLY_IN_A_SOAK = {
    "rollback of two rescales mor",
    "rollback of an upgrade mor",
    "table.rollback of an upgrade cow",
    "rollback of an upgrade and a rescale cow",
    "resume of an upgrade",
    "rollback of a resize, dual",
    "restore over a resize, dual",
    "restore over a resize, following",
    "upsert beside a resize, by bits",
    "abort of a resize, by bits",
    "rollback of a resize, by bits",
    "restore over a resize, by bits",
    "doubling cow",
    "undoing of a doubling mor",
}
"""What another case nearly repeats, on the other type of table."""


def cases_of(kept: str) -> Iterator[Case]:
    yield from writes(kept)
    yield from service_cases(kept)
    yield from way_back_cases(kept)
    yield from rescale_cases(kept)
    yield from upgrade_cases(kept)
    yield from resize_cases(kept)
    yield from doubling_cases(kept)
    yield from recovery_cases(kept)


def metadata_cases() -> Iterator[Case]:
    """Everything once more, on tables with a metadata table; and how they get one."""
    for kind in ("cow", "mor"):
        yield Case(
            name=f"build of a metadata table {kind}{KEPT}",
            make=partial(lambda kind: copy_of(written(kind)), kind),
            act=build_metadata,
            done=lambda store: is_listed(load_properties(store)),
        )
    for case in cases_of(KEPT):
        yield replace(case, name=case.name.removesuffix(KEPT) + KEPT)


CASES = [*properties_cases(), *cases_of("")]
CASES = [case for case in CASES if IS_WIDE or case.name not in ONLY_IN_A_SOAK]
KEPT_CASES = [
    case for case in metadata_cases() if IS_WIDE or case.name.removesuffix(KEPT) not in ONLY_IN_A_SOAK
]


def _each(cases: list[Case]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("case", cases, ids=[case.name.replace(" ", "-") for case in cases])


every_case = _each([*CASES, *KEPT_CASES])
every_case_here = _each([*CASES, *(KEPT_CASES if IS_WIDE else [])])
"""Those with a metadata table only in a soak."""


def operations_of(case: Case) -> list[str]:
    counting = FaultyStore(case.make())
    case.act(counting)
    return counting.operations


def some_of(
    moments: list[T], case: Case, kind: str, points: Points, *, at_most: int = MOMENTS_MAX
) -> Iterator[T]:
    """Go through some of the moments, and count them under their kind."""
    for moment in _chosen(moments, case, kind, at_most):
        yield moment
        points.setdefault(kind, Counter())[case.name] += 1


def _chosen(moments: list[T], case: Case, kind: str, at_most: int) -> Iterable[T]:
    if IS_SOAK and not TAKES_ALL:
        return within(SOAK_SECONDS, shuffled(moments, f"{kind} {case.name}"))
    if TAKES_ALL or len(moments) <= at_most:
        return moments
    offset = len(case.name) % 5
    picked = {(n * len(moments)) // at_most + offset for n in range(at_most)}
    return [moment for n, moment in enumerate(moments) if n in picked]


def about_metadata(case: Case, moments: list[dict[str, Any]], operations: list[str]) -> list[dict[str, Any]]:
    """Of a table with a metadata table, in a run that does not take all: the moments when that is written."""
    if IS_WIDE or not case.name.endswith(KEPT):
        return moments
    return [
        moment
        for moment in moments
        if ".hoodie/metadata" in (what := operations[moment["fails_at"] - 1])
        and what.split()[0] not in {"list", "stat", "read"}
    ]


def cut_offs(operations: list[str]) -> list[dict[str, Any]]:
    """Every way to be cut off; an operation that only looks has one."""
    found = []
    for number, operation in enumerate(operations, 1):
        changes = operation.split()[0] not in {"list", "stat", "read"}
        for took_effect in (False, True) if changes else (False,):
            for is_dead in (False, True):
                found.append({"fails_at": number, "took_effect": took_effect, "is_dead": is_dead})
    return found


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job, "sleep", lambda seconds: None)
    # What holds a lock in these tests is dead, or waits for the one that wants it.
    monkeypatch.setitem(table_lock.__wrapped__.__kwdefaults__, "wait_seconds", 0.05)  # type: ignore[attr-defined]


@pytest.mark.shows("X2", "X9")
@every_case
def test_cut_off_anywhere_it_is_as_before_or_as_after(case: Case, crash_points: Points) -> None:
    before, after, done_after = outcomes_of(case)
    operations = operations_of(case)
    moments = some_of(
        about_metadata(case, cut_offs(operations), operations),
        case,
        "cut off",
        crash_points,
        at_most=MOMENTS_MAX // 3 if case.name.endswith(KEPT) else MOMENTS_MAX,
    )
    for fault in moments:
        store = case.make()
        try:
            case.act(FaultyStore(store, **fault))
            is_acknowledged = True
        except (InjectedError, ConflictError):
            is_acknowledged = False
        try:
            check_aftermath(case, store, before, after, is_acknowledged=is_acknowledged)
            check_it_can_go_on(case, store, after, done_after)
        except Exception as error:
            error.add_note(f"{case.name}: {fault}: {operations_of(case)[fault['fails_at'] - 1]}")
            raise


def outcomes_of(case: Case) -> tuple[Look, Look, object]:
    store = case.make()
    before = look(store)
    case.act(store)
    after = look(store)
    done = case.done(store)
    assert (after, done) != (before, case.done(case.make())) or case.is_recovery
    return before, after, done


def check_aftermath(case: Case, store: Bucket, before: Look, after: Look, *, is_acknowledged: bool) -> None:
    if before.rows is not None and not case.between:
        assert rows_of(store) in (before.rows, after.rows), "readers before anybody recovers"
    age(store)
    recover_twice(store)
    now = look(store)
    stages = (look(stage()) for stage in case.stages)
    assert now in ((after,) if is_acknowledged or case.is_recovery else (before, after, *stages))
    if now.rows is not None and not now.metadata:
        check_metadata(store)
    if now.rows is not None and now.buckets:
        check_invariants(Table(store, load_properties(store)))
        check_nothing_is_left(case, store)


def recover_twice(store: Bucket) -> None:
    """As the next two writers do: the second finds the markers that the first one's rollback left."""
    if look(store).rows is None:
        return
    for _ in range(2):
        recover(store, load_properties(store))
        age(store)


def check_nothing_is_left(case: Case, store: Store) -> None:
    pending = load_state(store).timeline.pending()
    assert [i for i in pending if i.action not in case.leaves and i.action is not Action.COMPACTION] == []
    known = {i.requested for i in pending}
    for folder in (".hoodie/.temp", ".hoodie/.heartbeat"):
        left = [file.path for file in store.list(folder, recursive=True).files]
        assert [path for path in left if not any(instant in path for instant in known)] == []


def check_it_can_go_on(case: Case, store: Store, after: Look, done_after: object) -> None:
    """What did not happen can be done now; and the table can be written as ever."""
    if (look(store), case.done(store)) != (after, done_after):
        case.act(store)
    now = look(store)
    assert (now, case.done(store)) == (after, done_after)
    assert now.rows is not None
    table_of(store).upsert(orders([100], "next", 1))
    assert {row for row in rows_of(store) if row[0] != 100} == set(now.rows)
    assert len(rows_of(store)) == len(now.rows) + 1
    if not now.metadata:
        check_metadata(store)
    if now.buckets.startswith("partition-level"):
        assert load_properties(store).bucket_count is None, "Hudi would hold a count against the rules"


@pytest.mark.shows("X2", "X9")
@every_case_here
def test_held_up_until_it_is_taken_for_dead_it_is_as_before_or_as_after(
    case: Case, crash_points: Points
) -> None:
    """Its lock and its heartbeat run out, and somebody recovers the table, between any two of its operations."""
    before, after, done_after = outcomes_of(case)

    def others(store: Store) -> None:
        assert isinstance(store, Bucket)
        age(store)
        if look(store).rows is not None:
            # Once: what tasks write after their markers are gone, ten minutes later, is the archiver's to delete.
            recover(store, load_properties(store))

    moments = list(range(1, len(operations_of(case)) + 1))
    for number in some_of(moments, case, "held up, taken for dead", crash_points, at_most=MOMENTS_MAX // 3):
        store = case.make()
        try:
            case.act(FaultyStore(store, fails_at=number, meanwhile=others))
            is_acknowledged = True
        except BucketlakeError:
            is_acknowledged = False
        try:
            check_aftermath(case, store, before, after, is_acknowledged=is_acknowledged)
            check_it_can_go_on(case, store, after, done_after)
        except Exception as error:
            error.add_note(f"{case.name} held up at {number}: {operations_of(case)[number - 1]}")
            raise


@pytest.mark.shows("X2", "X9")
@every_case_here
def test_held_up_while_somebody_else_writes_neither_is_lost(case: Case, crash_points: Points) -> None:
    """The other takes the lock over if it was held; what both did is there, one after the other."""
    before, after, _ = outcomes_of(case)
    if before.rows is None or case.sets_up:
        return
    assert after.rows is not None
    outcomes = set()

    def other(store: Store) -> None:
        assert isinstance(store, Bucket)
        age(store)
        try:
            table_of(store).upsert(orders([100], "other", 9))
            outcomes.add("written")
        except ConflictError:
            outcomes.add("refused")

    moments = list(range(1, len(operations_of(case)) + 1))
    for number in some_of(moments, case, "held up, written to", crash_points, at_most=MOMENTS_MAX // 3):
        store = case.make()
        outcomes.clear()
        try:
            case.act(FaultyStore(store, fails_at=number, meanwhile=other))
            is_acknowledged = True
        except BucketlakeError:
            is_acknowledged = False
        try:
            age(store)
            recover_twice(store)
            found = rows_of(store)
            theirs = {row for row in found if row[0] == 100}
            assert len(theirs) == 1 if outcomes == {"written"} and not case.replaces else len(theirs) <= 1
            ours = tuple(row for row in found if row[0] != 100)
            assert ours in ((after.rows,) if is_acknowledged else (before.rows, after.rows))
            check_invariants(table_of(store))
            check_metadata(store)
        except Exception as error:
            error.add_note(f"{case.name} held up at {number}: {operations_of(case)[number - 1]}; {outcomes}")
            raise


@pytest.mark.shows("X2", "X9")
@pytest.mark.parametrize(
    "code", [errno.ENOSPC, errno.EROFS, errno.EACCES], ids=["full", "read-only", "forbidden"]
)
@every_case_here
def test_a_store_that_stops_taking_files_leaves_the_table_as_it_was(
    case: Case, code: int, crash_points: Points
) -> None:
    """The error names what the store said, the rows can be read, and once there is room it can be done again."""
    before, after, done_after = outcomes_of(case)
    changes = [
        number
        for number, operation in enumerate(operations_of(case), 1)
        if operation.split()[0] not in {"list", "stat", "read"}
    ]
    kind = f"refused ({errno.errorcode[code]})"
    for number in some_of(changes, case, kind, crash_points, at_most=2):
        store = case.make()
        try:
            case.act(FaultyStore(store, fails_at=number, refuses=code))
            is_acknowledged = True
        except OSError as error:
            assert error.errno == code
            is_acknowledged = False
        try:
            check_aftermath(case, store, before, after, is_acknowledged=is_acknowledged)
            check_it_can_go_on(case, store, after, done_after)
        except Exception as error:
            error.add_note(f"{case.name} refused from {number}: {operations_of(case)[number - 1]}")
            raise


@pytest.mark.shows("X2")
def test_a_write_that_a_full_disk_cuts_off_says_what_became_of_it() -> None:
    store = copy_of(written("cow"))
    with pytest.raises(OSError, match="No space left on device") as caught:
        table_of(FaultyStore(store, fails_at=_files_begin("cow"), refuses=errno.ENOSPC)).upsert(
            orders(range(5, 10), "c", 3)
        )
    assert any("Readers see all of it or nothing" in note for note in caught.value.__notes__)
