"""Services of the metadata table must never change what it tells: Hudi reads by it, and believes all of it."""

from __future__ import annotations

import itertools
import pickle
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TypeVar

import pytest

from bucketlake import Maintenance, Retention
from bucketlake.commit.metadata_build import build_metadata
from bucketlake.commit.metadata_table import delist
from bucketlake.commit.recovery import recover
from bucketlake.config import load_properties
from bucketlake.errors import ConflictError, CorruptTableError
from bucketlake.layout.names import METADATA_TABLE_FOLDER, split_path
from bucketlake.metadata.files import ALL_PARTITIONS
from bucketlake.metadata.listing import list_by_metadata, read_slice
from bucketlake.metadata.places import FILES_SHARD, timeline_properties
from bucketlake.metadata.shards import list_shards
from bucketlake.metadata.step import load_metadata_timeline, look_at_step
from bucketlake.services import (
    archive_metadata,
    archive_table,
    clean_metadata,
    compact_metadata,
    look,
    look_for_rollback,
    metadata_status,
    plan_maintenance,
    run_maintenance,
    run_metadata_compaction,
    run_rollback,
    schedule_metadata_compaction,
)
from bucketlake.services.metadata_clean import plan_metadata_clean
from bucketlake.services.tasks import here
from bucketlake.state import list_folders, load_state
from bucketlake.storage import MemoryStore, Store
from bucketlake.testing.faulty_store import FaultyStore, InjectedError
from bucketlake.timeline import (
    Action,
    CleanerPlan,
    CompactionPlan,
    Instant,
    Timeline,
    encode_cleaner_plan,
    encode_compaction_plan,
    load_history,
    read_commit_metadata,
    read_compaction_plan,
    requested_path,
    write_inflight,
    write_requested,
)
from bucketlake.write import ArrowRows, Operation, run_write
from stand_ins.orders_table import orders, orders_table
from stand_ins.transactions import clock

T = TypeVar("T")
R = TypeVar("R")

_numbers = itertools.count()


def upsert(store: Store, version: int) -> None:
    rows = orders(range(version, version + 4), f"v{version}", version)
    run_write(ArrowRows(rows), store, Operation.UPSERT)


def made(commits: int, *, table_type: str = "MERGE_ON_READ") -> MemoryStore:
    """A table with a metadata table, and so many commits since that was built."""
    table = orders_table(f"memory://metadata-services-{next(_numbers)}", table_type=table_type)
    upsert(table.store, 0)
    assert build_metadata(table.store) is not None
    for version in range(1, commits + 1):
        upsert(table.store, version)
    assert isinstance(table.store, MemoryStore)
    return table.store


def copy_of(store: MemoryStore) -> MemoryStore:
    copied = MemoryStore()
    for file in store.list("", recursive=True).files:
        copied.put(file.path, store.read(file.path))
    return copied


def metadata_of(store: Store) -> Timeline:
    return load_metadata_timeline(store, load_properties(store))


def compactions(store: Store) -> list[str]:
    return [i.requested for i in metadata_of(store).completed(Action.COMMIT)]


def shard_files(store: Store) -> set[str]:
    return {file.path.rpartition("/")[2] for file in store.list(f"{METADATA_TABLE_FOLDER}/files").files}


def assert_told_right(store: Store) -> None:
    """What the metadata table lists is what is there."""
    state = load_state(store)
    told = list_by_metadata(store, state.properties, state.timeline, None)
    assert told == list_folders(state).files


def cut_off_everywhere(whole: MemoryStore, act: Callable[[Store], object]) -> Iterator[MemoryStore]:
    """Run `act` until its n-th operation, for every n, and yield what that leaves."""
    counting = FaultyStore(copy_of(whole))
    act(counting)
    for number, took_effect in itertools.product(range(1, len(counting.operations) + 1), (False, True)):
        store = copy_of(whole)
        with suppress(InjectedError):
            act(FaultyStore(store, fails_at=number, took_effect=took_effect, is_dead=True))
        yield store


def sent_away(function: Callable[[T], R], items: Sequence[T], /) -> list[R]:
    """Run tasks as others do who have more hands: what goes there and comes back is pickled."""
    results = [function(pickle.loads(pickle.dumps(item))) for item in items]
    return pickle.loads(pickle.dumps(results))  # type: ignore[no-any-return] # as it went in


@pytest.mark.shows("M5")
@pytest.mark.parametrize("table_type", ["MERGE_ON_READ", "COPY_ON_WRITE"])
@pytest.mark.parametrize("tasks", [here, sent_away])
def test_a_compaction_takes_in_every_log_and_lists_what_was_listed(
    table_type: str, tasks: Callable[..., list[object]]
) -> None:
    store = made(3, table_type=table_type)
    (done,) = compact_metadata(store, tasks=tasks)  # type: ignore[arg-type] # a protocol of one call
    assert (done.shards, done.log_files) == (1, 4), (
        "the empty one with which Hudi makes a shard known is a log too"
    )
    assert_told_right(store)
    status = metadata_status(store)
    assert (status.delta_commits, status.log_files) == (0, 0)
    completed = metadata_of(store).completed(Action.COMMIT)[0]
    said = read_commit_metadata(store, completed)
    assert said.is_compaction and said.operation == "COMPACT" and "avro.java.string" in (said.schema or "")
    upsert(store, 50)
    assert_told_right(store)
    assert metadata_status(store).log_files == 1
    assert compact_metadata(store, is_due=False) == ()


def test_deleted_files_drop_out_of_a_compacted_metadata_table() -> None:
    store = made(4, table_type="COPY_ON_WRITE")
    run_maintenance(store, Maintenance(clean=Retention(versions=1)))
    compact_metadata(store)
    (part,) = (
        list_shards(store, look_at_step(store, load_properties(store)), load_properties(store), ["files"])
        .slices()
        .values()
    )
    assert part.base is not None and not part.logs
    records = read_slice(store, part)
    there = list_folders(load_state(store)).files
    assert {key: set(entries) for key, entries in records.items()} == {
        ALL_PARTITIONS: set(there),
        **{partition: {split_path(file.path)[1] for file in files} for partition, files in there.items()},
    }
    assert not any(entry.is_deleted for entries in records.values() for entry in entries.values())


@pytest.mark.shows("M5")
def test_a_compaction_that_is_cut_off_anywhere_tells_right_and_is_finished_by_the_next() -> None:
    whole = made(3)
    for store in cut_off_everywhere(whole, lambda s: compact_metadata(s, clock=clock())):
        assert_told_right(store)
        upsert(store, 70)
        assert_told_right(store)
        compact_metadata(store, clock=clock())
        assert_told_right(store)
        assert not metadata_of(store).pending()
        assert len(compactions(store)) in (1, 2)
        assert len([name for name in shard_files(store) if name.endswith(".hfile")]) == 1 + len(
            compactions(store)
        )


@pytest.mark.shows("M5")
def test_a_commit_at_any_moment_of_a_compaction_is_not_lost() -> None:
    whole = made(2)
    counting = FaultyStore(copy_of(whole))
    compact_metadata(counting, clock=clock())
    for number in range(1, len(counting.operations) + 1):
        store = copy_of(whole)
        with suppress(ConflictError):
            compact_metadata(
                FaultyStore(store, fails_at=number, meanwhile=lambda inner: upsert(inner, 80)), clock=clock()
            )
        assert_told_right(store)
        compact_metadata(store, clock=clock())
        assert_told_right(store)


@pytest.mark.shows("M5")
def test_a_rollback_at_any_moment_of_a_compaction_leaves_it_right() -> None:
    whole = made(2)

    def take_back(store: Store) -> None:
        newest = load_state(store).timeline.writes[-1].requested
        run_rollback(look_for_rollback(load_state(store), newest, clock=clock()), store, clock=clock())

    counting = FaultyStore(copy_of(whole))
    compact_metadata(counting, clock=clock())
    built: set[bool] = set()
    for number in range(1, len(counting.operations) + 1):
        store = copy_of(whole)
        with suppress(ConflictError, CorruptTableError):
            compact_metadata(FaultyStore(store, fails_at=number, meanwhile=take_back), clock=clock())
        recover(store, load_properties(store), clock=clock(later=True))
        assert_told_right(store)
        built.add(not compactions(store))
        compact_metadata(store, clock=clock(later=True))
        assert_told_right(store)
    assert built == {True, False}, "what is planned cannot be taken out again: it is built anew then"


def test_a_plan_that_two_run_is_completed_once() -> None:
    store = made(2)
    instant = schedule_metadata_compaction(store)
    assert instant is not None
    assert schedule_metadata_compaction(store) is None, "one at a time"
    assert metadata_status(store).pending_compaction == instant
    assert f"{instant} is pending" in str(metadata_status(store))
    counting = FaultyStore(copy_of(store))
    run_metadata_compaction(counting, instant)
    for number in range(1, len(counting.operations) + 1):
        both = copy_of(store)
        other = FaultyStore(
            both, fails_at=number, meanwhile=lambda inner: run_metadata_compaction(inner, instant)
        )
        run_metadata_compaction(other, instant)
        assert run_metadata_compaction(both, instant).log_files == 3
        assert compactions(both) == [instant]
        assert_told_right(both)
    with pytest.raises(ConflictError, match="not on its timeline"):
        run_metadata_compaction(store, "20200101000000000")


def test_what_another_engine_left_of_a_run_is_swept() -> None:
    store = made(2)
    instant = schedule_metadata_compaction(store)
    stranger = f"{METADATA_TABLE_FOLDER}/files/{FILES_SHARD}_0-99-7_{instant}.hfile"
    store.put(stranger, b"half a file")
    (done,) = compact_metadata(store)
    assert done.instant == instant
    assert stranger.rpartition("/")[2] not in shard_files(store)
    assert_told_right(store)


def test_a_plan_that_leaves_a_log_out_is_refused() -> None:
    store = made(2)
    instant = schedule_metadata_compaction(store)
    assert instant is not None
    pending = metadata_of(store).pending(Action.COMPACTION)[0]
    (operation,) = read_compaction_plan(store, pending).operations
    cut = replace(operation, log_files=operation.log_files[:-1])
    store.put(requested_path(pending), encode_compaction_plan(CompactionPlan(operations=(cut,))))
    with pytest.raises(CorruptTableError, match="leaves out"):
        compact_metadata(store)
    assert_told_right(store)


def test_a_planned_log_that_is_gone_is_named() -> None:
    store = made(2)
    instant = schedule_metadata_compaction(store)
    newest = load_state(store).timeline.writes[-1].requested
    store.delete(f"{METADATA_TABLE_FOLDER}/files/.{FILES_SHARD}_{newest}.log.1_1-0-1")
    with pytest.raises(CorruptTableError, match=newest):
        run_metadata_compaction(store, str(instant))


@pytest.mark.shows("M3")
@pytest.mark.parametrize("is_compacted", [False, True])
def test_one_that_has_lost_its_base_file_or_a_log_is_not_compacted(is_compacted: bool) -> None:
    """What it lists no more would be taken for what was never there, by Hudi and by us."""
    store = made(2)
    if is_compacted:
        assert compact_metadata(store)
    upsert(store, 3)
    newest = max(i.requested for i in load_state(store).timeline.writes)
    base = max(
        (name for name in shard_files(store) if name.endswith(".hfile")), key=lambda n: n.split("_")[2]
    )
    (log,) = (name for name in shard_files(store) if newest in name)
    for name in (base, log):
        copy = copy_of(store)
        planned = schedule_metadata_compaction(copy)
        assert planned is not None
        for broken in (copy_of(store), copy):
            broken.delete(f"{METADATA_TABLE_FOLDER}/files/{name}")
            with pytest.raises(CorruptTableError, match="Build the metadata table anew"):
                compact_metadata(broken)
            assert len(compactions(broken)) == is_compacted


def test_one_that_lags_is_not_compacted() -> None:
    store = made(3)
    delta = metadata_of(store).completed(Action.DELTA_COMMIT)[-1]
    store.delete(delta.path)
    with pytest.raises(CorruptTableError, match="lacks"):
        compact_metadata(store)
    status = metadata_status(store)
    assert (status.is_in_step, status.missing) == (False, (delta.requested,))
    assert delta.requested in str(status)


def test_a_compaction_waits_for_a_rollback_that_began_before_it() -> None:
    store = made(2)
    instant = schedule_metadata_compaction(store)
    properties = load_properties(store)
    undoing = clock().next_instant(after=str(instant))
    write_requested(store, properties, instant=undoing, action=Action.ROLLBACK)
    with pytest.raises(ConflictError, match=f"{undoing}.*if its process died, the next write finishes it"):
        run_metadata_compaction(store, str(instant))
    assert_told_right(store)


def test_a_compaction_of_one_that_was_delisted_meanwhile_completes_nothing() -> None:
    store = made(2)
    instant = schedule_metadata_compaction(store)
    delist(store)
    with pytest.raises(ConflictError, match="delisted"):
        run_metadata_compaction(store, str(instant))
    assert compactions(store) == []
    assert (compact_metadata(store), clean_metadata(store)) == ((), ())
    assert archive_metadata(store, keep_min=1, keep_max=2).is_empty
    assert str(metadata_status(store)) == "no metadata table"


@pytest.fixture(scope="module")
def aged() -> MemoryStore:
    """A table whose metadata table was compacted five times, and whose own timeline is archived."""
    store = made(0)
    for version in range(1, 11):
        upsert(store, version)
        if version % 2 == 0:
            compact_metadata(store)
    assert archive_table(store, keep_min=3, keep_max=4).instants
    return store


@pytest.mark.shows("M5")
def test_a_clean_keeps_three_base_files_and_what_came_after_the_oldest(aged: MemoryStore) -> None:
    store = copy_of(aged)
    (done,) = clean_metadata(store, keep_commits=4)
    kept = compactions(store)[-3:]
    left = shard_files(store)
    assert {n for n in left if n.endswith(".hfile")} == {f"{FILES_SHARD}_1-0-1_{i}.hfile" for i in kept}
    logs = [n for n in left if ".log." in n]
    assert len(logs) == 4, "two between each of the three"
    assert done.files == len(shard_files(aged)) - len(left)
    assert_told_right(store)
    assert clean_metadata(store, keep_commits=4) == ()
    assert [i.action for i in metadata_of(store).completed(Action.CLEAN)] == [Action.CLEAN]


def test_a_clean_keeps_as_many_writes_as_it_is_told(aged: MemoryStore) -> None:
    store = copy_of(aged)
    step = look_at_step(store, load_properties(store))
    shards = list_shards(store, step, load_properties(store), ["files"])
    assert plan_metadata_clean(shards, keep_commits=20).is_empty
    sizes = [plan_metadata_clean(shards, keep_commits=n).count for n in (4, 8, 12)]
    assert sizes == sorted(sizes, reverse=True) and sizes[0] > sizes[-1]
    assert "files of the metadata table" in str(plan_metadata_clean(shards, keep_commits=4))


@pytest.mark.shows("M5")
def test_a_clean_that_is_cut_off_anywhere_tells_right_and_is_finished_by_the_next(aged: MemoryStore) -> None:
    for store in cut_off_everywhere(aged, lambda s: clean_metadata(s, keep_commits=4, clock=clock())):
        assert_told_right(store)
        clean_metadata(store, keep_commits=4, clock=clock())
        assert_told_right(store)
        assert not metadata_of(store).pending()
        assert len([n for n in shard_files(store) if n.endswith(".hfile")]) == 3


def pending_clean(store: Store, body: bytes) -> Instant:
    own = timeline_properties(load_properties(store))
    instant = clock().next_instant()
    write_requested(store, own, instant=instant, action=Action.CLEAN, body=body)
    write_inflight(store, own, instant=instant, action=Action.CLEAN)
    return metadata_of(store).pending(Action.CLEAN)[0]


def test_a_clean_whose_plan_was_never_written_is_taken_off_the_timeline(aged: MemoryStore) -> None:
    store = copy_of(aged)
    pending_clean(store, b"")
    assert clean_metadata(store) == ()
    assert not metadata_of(store).pending()


def test_a_pending_clean_spares_what_is_needed_now(aged: MemoryStore) -> None:
    store = copy_of(aged)
    step = look_at_step(store, load_properties(store))
    plan = plan_metadata_clean(list_shards(store, step, load_properties(store), ["files"]), keep_commits=4)
    newest = f"{FILES_SHARD}_1-0-1_{compactions(store)[-1]}.hfile"
    body = replace(plan.body(), files={"files": (newest, *plan.body().files["files"])})
    pending_clean(store, encode_cleaner_plan(body, root=store.uri))
    (done,) = clean_metadata(store, keep_commits=4)
    assert done.files == plan.count
    assert newest in shard_files(store)
    assert_told_right(store)


def test_a_plan_of_a_clean_that_names_something_else_deletes_nothing(aged: MemoryStore) -> None:
    store = copy_of(aged)
    before = {file.path for file in store.list("", recursive=True).files}
    body = CleanerPlan(
        policy="KEEP_LATEST_COMMITS",
        earliest_kept=None,
        earliest_action=None,
        last_completed="",
        files={"files": (".hoodie_partition_metadata",)},
    )
    pending = pending_clean(store, encode_cleaner_plan(body, root=store.uri))
    with pytest.raises(CorruptTableError, match="partition_metadata"):
        clean_metadata(store)
    after = {file.path for file in store.list("", recursive=True).files}
    assert {path for path in after ^ before if pending.requested not in path} == set()


@pytest.mark.shows("M5")
def test_its_timeline_is_archived_no_further_than_its_last_compaction_and_the_table(
    aged: MemoryStore,
) -> None:
    store = copy_of(aged)
    plan = archive_metadata(store, keep_min=1, keep_max=2)
    assert plan.instants[0].requested == "0" * 17
    start = load_state(store).timeline.start
    assert start is not None
    assert all(i.requested < min(start, compactions(store)[-1]) for i in plan.instants)
    assert_told_right(store)
    own = timeline_properties(load_properties(store))
    assert [a.requested for a in load_history(store, own)] == [i.requested for i in plan.instants]
    assert archive_metadata(store, keep_min=1, keep_max=2).is_empty
    assert metadata_status(store).is_in_step
    assert f"archive {len(plan.instants)} instants of the metadata table" in str(plan)


def test_a_timeline_without_a_compaction_is_not_archived() -> None:
    store = made(8)
    assert archive_metadata(store, keep_min=1, keep_max=2).is_empty


@pytest.mark.shows("M5")
def test_an_archive_of_it_that_is_cut_off_anywhere_tells_right_and_is_finished_by_the_next(
    aged: MemoryStore,
) -> None:
    whole = copy_of(aged)
    archive_metadata(whole, keep_min=1, keep_max=2, clock=clock())
    left = [i.requested for i in metadata_of(whole).completed()]
    for store in cut_off_everywhere(
        aged, lambda s: archive_metadata(s, keep_min=1, keep_max=2, clock=clock())
    ):
        assert_told_right(store)
        archive_metadata(store, keep_min=1, keep_max=2, clock=clock())
        assert_told_right(store)
        assert [i.requested for i in metadata_of(store).completed()] == left


@pytest.mark.shows("M5")
def test_the_table_is_archived_no_further_than_the_last_compaction_of_its_metadata_table() -> None:
    store = made(6)
    plan = archive_table(store, keep_min=1, keep_max=2)
    assert not plan.instants and plan.stop is not None
    assert "was never compacted" in plan.stop.reason and "service run" in str(plan)
    assert "stops before the first:" in str(plan)
    compact_metadata(store)
    newest = load_state(store).timeline.writes[-1].requested
    for version in (20, 21, 22):
        upsert(store, version)
    plan = archive_table(store, keep_min=1, keep_max=2)
    assert plan.instants[-1].requested == newest
    assert plan.stop is not None and compactions(store)[-1] in str(plan)
    assert_told_right(store)


def test_what_only_the_table_has_archived_is_no_ghost() -> None:
    store = made(3, table_type="COPY_ON_WRITE")
    run_maintenance(store, Maintenance(clean=Retention(versions=1)))
    for version in (20, 21, 22):
        upsert(store, version)
    compact_metadata(store)
    archived = archive_table(store, keep_min=1, keep_max=2).instants
    clean = load_state(store).timeline.completed(Action.CLEAN)[0]
    assert clean.requested < archived[-1].requested, "the last clean stays where it is"
    assert archived[-1].requested in {i.requested for i in metadata_of(store).instants}
    assert_told_right(store)


@pytest.mark.shows("M5", "X2")
def test_maintenance_looks_after_the_metadata_table_before_it_archives() -> None:
    store = made(6)
    policy = Maintenance(clean=Retention(commits=2), archive=(2, 4))
    plan = plan_maintenance(look(store, policy), policy)
    assert "metadata table" in plan.due
    assert "compact the metadata table: 7 logs of 7 delta commits in 1 shards" in str(plan)
    done = run_maintenance(store, policy)
    assert not done.failures
    services = [step.service for step in done.steps]
    assert services == ["metadata table", "archive"]
    assert "1 shards, 7 logs merged" in str(done)
    assert_told_right(store)
    assert run_maintenance(store, Maintenance()).steps == ()
    for version in range(30, 42):
        upsert(store, version)
    assert "metadata table" in plan_maintenance(look(store, Maintenance()), Maintenance()).due, (
        "ten are enough"
    )


def test_a_table_without_a_metadata_table_pays_nothing_for_it() -> None:
    table = orders_table(f"memory://metadata-services-{next(_numbers)}")
    for version in range(6):
        upsert(table.store, version)
    counting = FaultyStore(table.store)
    run_maintenance(counting, Maintenance(clean=Retention(commits=2), archive=(2, 4)))
    assert not [what for what in counting.operations if METADATA_TABLE_FOLDER in what]


def test_a_status_says_how_a_metadata_table_is() -> None:
    store = made(2)
    status = metadata_status(store)
    assert (status.partitions, status.shards, status.delta_commits, status.log_files) == (
        ("files",),
        {"files": 1},
        3,
        3,
    )
    assert status.is_in_step and status.compacted is None
    assert str(status).splitlines()[0] == "metadata table: in step"
    assert "last compacted: never" in str(status)
    (done,) = compact_metadata(store)
    assert metadata_status(store).compacted == done.completed
    assert done.instant in str(done)
