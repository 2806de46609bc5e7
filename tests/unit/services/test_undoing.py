"""What can be done can be undone, and all that belongs to it goes back together: rows, rules, rings, settings."""

from __future__ import annotations

import errno
import itertools
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from bucketlake import ResizeTrigger, Table
from bucketlake.commit import locks, publishing
from bucketlake.commit.claims import Outcome, list_claims
from bucketlake.commit.locks import OBJECT_LOCK_PATH
from bucketlake.commit.publishing import publish_claim, settle
from bucketlake.config import load_properties, update_properties
from bucketlake.errors import CommitConflictError, ConflictError, InstantError
from bucketlake.index import ConsistentBuckets, SimpleBuckets, current_version, list_versions
from bucketlake.index.fingerprint import BUCKET_COUNT, RULE_TYPE_KEY
from bucketlake.index.resolve import COUNT_BEFORE_KEY
from bucketlake.layout.names import hashing_config_path
from bucketlake.services import (
    archive_table,
    compact_table,
    load_held,
    look_for_resize,
    plan_compaction,
    run_compaction,
    run_resize,
    schedule_compaction,
    schedule_resize,
)
from bucketlake.state import files_of, load_state
from bucketlake.storage import Store
from bucketlake.testing.faulty_store import FaultyStore, InjectedError
from bucketlake.testing.invariants import check_invariants
from bucketlake.timeline import Action
from bucketlake.write import TableSpec, create
from stand_ins.aging import Bucket, age, copy_of
from stand_ins.orders_table import SCHEMA, orders

SPLIT = ResizeTrigger(file_bytes=10, split_threshold=1.0, merge_threshold=0.0, max_buckets=8)
TYPES = ["COPY_ON_WRITE", "MERGE_ON_READ"]
_numbers = itertools.count()


def a_table(table_type: str = "MERGE_ON_READ", **more: Any) -> Table:
    store = Bucket()
    spec = {"index": SimpleBuckets(2), "table_type": table_type, **more}
    create(
        store,
        TableSpec(name="orders", schema=SCHEMA, key=("id",), partition=("dt",), ordering=("ts",), **spec),
    )
    return table_of(store)


def table_of(store: Store) -> Table:
    return Table(store, load_properties(store))


def a_ring(*, virtual_logs: bool = True, table_type: str = "MERGE_ON_READ") -> Table:
    table = a_table(table_type, index=ConsistentBuckets(2, virtual_logs=virtual_logs))
    table.upsert(orders(range(40), "first", 1))
    return table


def contents(table: Table) -> dict[int, tuple[str, int]]:
    rows = table_of(table.store).to_arrow(columns=SCHEMA.names).to_pylist()
    found = {row["id"]: (row["name"], row["ts"]) for row in rows}
    assert len(found) == len(rows), "a key is there twice"
    return found


def schedule(table: Table) -> str:
    instant = schedule_resize(table.store, look_for_resize(table.store, SPLIT))
    assert instant is not None
    return instant


def newest(table: Table) -> str:
    return load_state(table.store).timeline.writes[-1].requested


def writable(table: Table, key: int = 900) -> None:
    """See that a row can be written, and everything fits together then."""
    before = contents(table)
    table_of(table.store).upsert(orders([key], "probe", 99))
    assert contents(table) == {**before, key: (f"probe {key}", 99)}
    check_invariants(table_of(table.store))


def undo_by_rollback(table: Table, instant: str, savepoint: str) -> None:  # one of two ways
    table_of(table.store).rollback(instant)


def undo_by_restore(table: Table, instant: str, savepoint: str) -> None:
    table_of(table.store).restore(savepoint)


WAYS = pytest.mark.parametrize("undo", [undo_by_rollback, undo_by_restore], ids=["rollback", "restore"])
Undo = Callable[[Table, str, str], None]


@pytest.mark.shows("H2", "C6")
@pytest.mark.parametrize("virtual_logs", [True, False])
@WAYS
def test_rows_that_were_written_beside_a_resize_stay_when_it_is_undone(
    undo: Undo, virtual_logs: bool
) -> None:
    table = a_ring(virtual_logs=virtual_logs)
    resize = schedule(table)
    table.upsert(orders(range(20, 60), "beside", 2))
    beside = newest(table)
    before = contents(table)
    table.savepoint()
    run_resize(table.store, resize)
    assert contents(table) == before
    undo(table, resize, beside)
    assert contents(table) == before
    writable(table)
    table.compact()
    assert contents(table).items() >= before.items()


@pytest.mark.shows("H2", "C6")
def test_a_write_beside_a_resize_takes_what_it_put_there_along() -> None:
    table = a_ring()
    before = contents(table)
    resize = schedule(table)
    table.upsert(orders(range(20, 60), "beside", 2))
    files = {file.path for group in files_of(load_state(table.store)).values() for file in group}
    table.rollback(newest(table))
    assert contents(table) == before
    left = {file.path for group in files_of(load_state(table.store)).values() for file in group}
    assert not any(resize in path for path in left) and any(resize in path for path in files)
    run_resize(table.store, resize)
    assert contents(table) == before
    writable(table)


@pytest.mark.shows("H2", "C6")
def test_whoever_publishes_a_resize_removes_what_unfinished_writes_put_beside_it() -> None:
    table = a_ring()
    resize = schedule(table)
    before = contents(table)
    table = cut_off(
        table,
        lambda store: table_of(store).upsert(orders(range(20, 60), "unfinished", 2)),
        lambda what: what.startswith("put_new .hoodie/.bucketlake/commits/"),
    )
    assert any(".log." in path and resize in path for path in data_files(table))
    # Decided, and not published: the next comer does it.
    table = cut_off(
        table,
        lambda store: run_resize(store, resize),
        lambda what: ".log." in what and what.startswith("delete"),
        after="put_new .hoodie/.bucketlake/commits/",
    )
    _, timeline = settle(table.store, table.properties)
    assert resize in {i.requested for i in timeline.completed(Action.REPLACE_COMMIT)}
    assert not any(".log." in path and resize in path for path in data_files(table))
    age(table.store)
    assert contents(table) == before
    writable(table)


def data_files(table: Table) -> list[str]:
    return [
        file.path
        for file in table.store.list("", recursive=True).files
        if not file.path.startswith(".hoodie")
    ]


def cut_off(
    table: Table, act: Callable[[Store], object], is_moment: Callable[[str], bool], *, after: str = ""
) -> Table:
    """Let a process die at a request, the first of that kind after one that holds `after`; return what is left."""
    trial = FaultyStore(copy_of(table.store))
    act(trial)
    first = next((n for n, what in enumerate(trial.operations, 1) if after in what), 0)
    number = next(n for n, what in enumerate(trial.operations, 1) if n > first and is_moment(what))
    left = copy_of(table.store)
    with pytest.raises(InjectedError):
        act(FaultyStore(left, fails_at=number, is_dead=True))
    left.delete(OBJECT_LOCK_PATH)
    return table_of(left)


@pytest.mark.shows("H2", "P11")
@pytest.mark.parametrize("table_type", TYPES)
@WAYS
def test_a_simple_table_that_got_rules_is_simple_again(undo: Undo, table_type: str) -> None:
    table = a_table(table_type)
    table.upsert(orders(range(20), "first", 1))
    table.savepoint()
    savepoint, before = newest(table), contents(table)
    rescaled = table.buckets.overwrite("p0,3")
    raw = load_properties(table.store).raw
    assert BUCKET_COUNT not in raw and raw[RULE_TYPE_KEY] == "regex" and raw[COUNT_BEFORE_KEY] == "2"
    undo(table, rescaled.instant, savepoint)
    raw = load_properties(table.store).raw
    assert raw[BUCKET_COUNT] == "2" and RULE_TYPE_KEY not in raw and COUNT_BEFORE_KEY not in raw
    assert contents(table) == before
    writable(table)
    table_of(table.store).buckets.overwrite("p1,3")
    writable(table, 901)


@pytest.mark.shows("H2", "P11")
def test_a_rescale_of_old_that_kept_the_count_in_its_commit_only_is_undone_too() -> None:
    table = a_table()
    table.upsert(orders(range(20), "first", 1))
    rescaled = table.buckets.overwrite("p0,3")
    update_properties(table.store, {COUNT_BEFORE_KEY: None})
    table_of(table.store).rollback(rescaled.instant)
    assert load_properties(table.store).raw[BUCKET_COUNT] == "2"
    writable(table)


@pytest.mark.shows("H2", "P11")
def test_a_count_that_a_full_store_has_kept_beside_rules_goes_with_the_next_write(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The rules are published by then, so the rescale is done, and nobody repeats it."""
    table = a_table()
    table.upsert(orders(range(20), "first", 1))

    def full(*given: object) -> None:
        raise OSError(errno.ENOSPC, "no space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(publishing, "follow", full)
        table.buckets.overwrite("p0,3")
    assert load_properties(table.store).raw[BUCKET_COUNT] == "2"
    writable(table)
    raw = load_properties(table.store).raw
    assert BUCKET_COUNT not in raw and raw[RULE_TYPE_KEY] == "regex" and raw[COUNT_BEFORE_KEY] == "2"


@pytest.mark.shows("P7", "P8", "H2")
def test_rules_that_the_archive_moved_come_back_when_later_ones_are_taken_back() -> None:
    table = a_table()
    table.upsert(orders(range(20), "first", 1))
    before = contents(table)
    done = [table_of(table.store).buckets.overwrite(f"p0,{n}") for n in (3, 4, 5, 6, 7)]
    archive_table(table.store, keep_min=20, keep_max=30)
    assert len(list_versions(table.store, with_archived=False).active) == 3
    table_of(table.store).buckets.rollback(done[1].instant, with_newer=True)
    assert current_version(table.store, load_state(table.store).timeline) == done[0].instant
    versions = list_versions(table.store)
    assert hashing_config_path(done[0].instant) in versions.active.values()
    assert {done[n].instant for n in (1, 2, 3, 4)}.isdisjoint({*versions.active, *versions.archived})
    assert contents(table) == before
    writable(table)


@pytest.mark.shows("P13", "H2")
def test_counts_of_a_rescale_that_was_taken_back_never_count() -> None:
    table = a_table()
    table.upsert(orders(range(20), "first", 1))
    table.buckets.overwrite("p0,3")
    second = table_of(table.store).buckets.overwrite("p0,5")
    table_of(table.store).buckets.rollback(second.instant)
    for n in range(6):
        table_of(table.store).upsert(orders(range(20), f"again {n}", 2 + n))
    table_of(table.store).clean(retain_commits=1)
    archive_table(table.store, keep_min=1, keep_max=2)
    start = load_state(table.store).timeline.start
    assert start is not None and start > second.instant, "the rescale's time has passed"
    writable(table)


@pytest.mark.shows("P6", "P14")
@pytest.mark.parametrize("end", ["resume", "abort", "write"])
@pytest.mark.parametrize("moment", ["put_new .hoodie/.bucketlake/commits/", "replace_if .hoodie/timeline/"])
def test_an_upgrade_that_is_cut_off_keeps_nobody_from_writing(end: str, moment: str) -> None:
    table = a_table()
    table.upsert(orders(range(20), "first", 1))
    before = contents(table)
    table = cut_off(
        table,
        lambda store: table_of(store).buckets.overwrite("p0,3"),
        lambda what: moment in what,
        after=".hashing_config",
    )
    writable(table)
    age(table.store)
    match end:
        case "resume":
            table_of(table.store).buckets.resume()
            assert current_version(table.store, load_state(table.store).timeline)
        case "abort":
            table_of(table.store).buckets.abort()
            assert current_version(table.store, load_state(table.store).timeline) == ""
    writable(table, 901)
    assert contents(table).items() >= before.items()


@pytest.mark.shows("P14")
def test_a_writer_that_begins_at_any_moment_of_an_upgrade_is_not_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(locks, "WAIT_SECONDS", 0.2)
    origin = a_table()
    origin.upsert(orders(range(12), "first", 1))
    trial = FaultyStore(copy_of(origin.store))
    table_of(trial).buckets.overwrite("p0,3")
    for number in range(1, len(trial.operations) + 1):
        store = copy_of(origin.store)
        has_waited = []

        def write(inner: Store, has_waited: list[str] = has_waited) -> None:
            try:
                table_of(inner).upsert(orders([50], "meanwhile", 2))
            except CommitConflictError:
                raise
            except ConflictError as error:
                has_waited.append(str(error))

        held_up = FaultyStore(store, fails_at=number, meanwhile=write)
        table_of(held_up).buckets.overwrite("p0,3")
        if has_waited:
            assert "was not to be had" in has_waited[0], "the lock is all that it waits for"
            write(store)
        assert contents(table_of(store))[50] == ("meanwhile 50", 2), f"at {held_up.operations[number - 1]}"


@pytest.mark.shows("H2")
@pytest.mark.parametrize("table_type", TYPES)
def test_a_ring_that_a_rollback_needs_outlives_a_clean(table_type: str) -> None:
    table = a_ring(virtual_logs=False, table_type=table_type)
    table.overwrite(orders([2, 5], "second", 1))
    before = contents(table)
    last = table.overwrite(orders([1, 4, 6], "third", 2))
    table.clean(retain_commits=1)
    assert last.instant is not None
    table.rollback(last.instant)
    assert contents(table) == before
    writable(table)


@pytest.mark.shows("H2")
def test_who_slept_since_a_commit_was_decided_does_not_publish_what_was_taken_back() -> None:
    table = a_table()
    table.upsert(orders(range(10), "first", 1))
    before = contents(table)
    table.upsert(orders(range(10), "second", 2))
    decided = list_claims(table.store).newest
    assert decided is not None and decided.outcome is Outcome.COMMIT
    unpublished = []

    def look_on(store: Store) -> None:
        # The instant is inflight again while all that hangs on it is undone, and has nothing to say.
        publish_claim(store, table.properties, decided)
        unpublished.append(decided.instant not in {i.requested for i in load_state(store).timeline.writes})

    trial = FaultyStore(copy_of(table.store))
    table_of(trial).rollback(decided.instant)
    unseen = f"delete .hoodie/timeline/{decided.instant}_"
    gone = next(n for n, what in enumerate(trial.operations, 1) if what.startswith(unseen))
    for number in range(gone + 1, len(trial.operations) + 1):
        store = copy_of(table.store)
        table_of(FaultyStore(store, fails_at=number, meanwhile=look_on)).rollback(decided.instant)
        assert contents(table_of(store)) == before
    assert unpublished and all(unpublished)


@pytest.mark.shows("H2")
def test_a_compaction_that_is_being_taken_back_whole_is_not_run() -> None:
    table = a_table()
    table.upsert(orders(range(10), "first", 1))
    table.upsert(orders(range(10), "second", 2))
    compact_table(table.store)
    (compaction,) = load_state(table.store).timeline.completed(Action.COMMIT)
    before = contents(table)
    table = cut_off(
        table,
        lambda store: table_of(store).rollback(compaction.requested),
        lambda what: what.startswith("delete"),
        after=f"delete {compaction.path}",
    )
    assert compaction.requested in {
        i.requested for i in load_state(table.store).timeline.pending(Action.COMPACTION)
    }
    with pytest.raises(CommitConflictError, match="decided to take it back"):
        run_compaction(table.store, compaction.requested)
    age(table.store)
    writable(table)
    assert contents(table).items() >= before.items()
    assert not load_state(table.store).timeline.pending()


@pytest.mark.shows("H2")
def test_a_savepoint_that_was_deleted_can_be_made_again() -> None:
    table = a_table()
    table.upsert(orders(range(4), "first", 1))
    first = table.savepoint(comment="first")
    table.delete_savepoint(first.instant)
    again = table.savepoint(comment="again")
    assert again.completed is not None
    assert [found.metadata.comment for found in table.savepoints()] == ["again"]


@pytest.mark.shows("H2")
def test_nothing_is_planned_on_what_is_taken_back_though_a_lock_was_lost() -> None:
    origin = a_table()
    origin.upsert(orders(range(10), "first", 1))
    origin.upsert(orders(range(10), "second", 2))
    last = newest(origin)
    trial = FaultyStore(copy_of(origin.store))
    table_of(trial).rollback(last)

    def plan(inner: Store) -> None:
        """Somebody who has taken the lock over plans a compaction."""
        inner.delete(OBJECT_LOCK_PATH)
        state = load_state(inner)
        with suppress(ConflictError):
            schedule_compaction(inner, plan_compaction(state, files_of(state), load_held(state), now=""))

    for number in range(1, len(trial.operations) + 1):
        store = copy_of(origin.store)
        with suppress(ConflictError, InstantError):
            table_of(FaultyStore(store, fails_at=number, meanwhile=plan)).rollback(last)
        age(store)
        table = table_of(store)
        table.upsert(orders([50], "after", 3))
        for pending in load_state(store).timeline.pending(Action.COMPACTION):
            run_compaction(store, pending.requested)
        is_there = last in {i.requested for i in load_state(store).timeline.writes}
        assert contents(table)[1] == ("second 1", 2) if is_there else ("first 1", 1), number
        assert not load_state(store).timeline.pending()


@pytest.mark.shows("H2")
def test_a_write_that_begins_while_the_newest_commit_is_taken_back_is_run_again() -> None:
    origin = a_table()
    origin.upsert(orders(range(10), "first", 1))
    origin.upsert(orders(range(10), "second", 2))
    last = newest(origin)
    trial = FaultyStore(copy_of(origin.store))
    table_of(trial).upsert(orders([50], "ours", 3))

    def take_back(inner: Store) -> None:
        with suppress(ConflictError, InstantError):
            table_of(inner).rollback(last)

    for number in range(1, len(trial.operations) // 2):
        store = copy_of(origin.store)
        table_of(FaultyStore(store, fails_at=number, meanwhile=take_back)).upsert(orders([50], "ours", 3))
        assert contents(table_of(store))[50] == ("ours 50", 3), number
