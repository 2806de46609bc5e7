"""A commit is all or nothing, and one at a time: whoever else is there is found before harm is done."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from bucketlake import Table
from bucketlake.commit import heartbeat
from bucketlake.commit.claims import CLAIMS_KEPT, Claim, Outcome, forget_old, list_claims, take
from bucketlake.commit.heartbeat import DEAD_AFTER_MS, Heartbeat, beat
from bucketlake.commit.operation import Operation
from bucketlake.commit.recovery import Recovery, recover
from bucketlake.commit.transaction import Transaction, abort, begin, commit, refuse_live_writers
from bucketlake.config import TimelineTimezone, load_properties, update_properties
from bucketlake.errors import CommitConflictError, ConcurrentWriteError, CorruptTableError, UnsupportedError
from bucketlake.layout.names import (
    CLAIM_FOLDER,
    claim_path,
    hashing_config_path,
    heartbeat_path,
    marker_path,
    parse_claim_number,
)
from bucketlake.state import TableState, load_state
from bucketlake.storage import LocalStore, MemoryStore, Store
from bucketlake.testing.faulty_store import FaultyStore
from bucketlake.timeline import (
    Action,
    Clock,
    CommitMetadata,
    RollbackMetadata,
    encode_commit_metadata,
    encode_rollback_metadata,
    load_timeline,
    parse_instant_time,
    read_rollback_metadata,
    shift_instant,
    write_inflight,
    write_requested,
)
from bucketlake.timeline.clock import system_ms
from bucketlake.timeline.metadata import with_checksum
from judges.rows import assert_same_rows, json_rows, load_json_rows
from stand_ins.transactions import clock, new_table, table_with_rows, write, write_file

Golden = Callable[[str], Path]
GOLDEN = Path(__file__).parents[2] / "golden"
ONE_DAY_MS = 24 * 60 * 60 * 1000
NOTHING = CommitMetadata(operation="UPSERT", write_stats=())


def begun(store: Store, operation: Operation = Operation.UPSERT) -> Transaction:
    return begin(store, operation=operation, clock=clock())[0]


def paths(store: Store) -> list[str]:
    return [file.path for file in store.list("", recursive=True).files]


def names(store: Store) -> list[str]:
    return sorted(path.rpartition("/")[2] for path in paths(store) if "/timeline/" in path)


def test_a_write_goes_requested_inflight_completed() -> None:
    store = new_table()
    transaction = begun(store)
    instant = transaction.instant
    assert names(store) == [f"{instant}.commit.requested", f"{instant}.inflight"]
    assert heartbeat_path(instant) in paths(store)
    completed = commit(transaction, NOTHING, clock=clock()).completed
    assert completed > instant
    assert f"{instant}_{completed}.commit" in names(store)
    assert heartbeat_path(instant) not in paths(store)


@pytest.mark.parametrize(
    ("table_type", "operation", "action"),
    [
        ("COPY_ON_WRITE", Operation.UPSERT, "commit"),
        ("MERGE_ON_READ", Operation.UPSERT, "deltacommit"),
        ("MERGE_ON_READ", Operation.DELETE_PARTITION, "replacecommit"),
    ],
)
def test_the_action_is_that_of_the_operation(table_type: str, operation: Operation, action: str) -> None:
    store = new_table()
    update_properties(store, {"hoodie.table.type": table_type})
    transaction = begun(store, operation)
    completed = commit(transaction, NOTHING, clock=clock()).completed
    assert f"{transaction.instant}_{completed}.{action}" in names(store)
    requested = store.read(f".hoodie/timeline/{transaction.instant}.{action}.requested")
    assert bool(requested) == (action == "replacecommit")


def test_times_are_later_than_everything_on_the_timeline_whatever_the_clock_says() -> None:
    store = new_table()
    future = parse_instant_time("2091-01-01", TimelineTimezone.UTC)
    write_requested(store, load_properties(store), instant=future, action=Action.COMPACTION)
    store.put(f".hoodie/timeline/{future}_{shift_instant(future, 5)}.clean", b"")
    store.delete(f".hoodie/timeline/{future}.compaction.requested")
    transaction = begun(store)
    assert transaction.instant > shift_instant(future, 5)
    assert commit(transaction, NOTHING, clock=clock()).completed > transaction.instant


def test_a_live_writer_is_left_alone_by_the_next() -> None:
    store = table_with_rows()
    first = begun(store)
    stat = write_file(first, "a", 3)
    before = paths(store)
    second = begun(store)
    found = recover(store, first.properties, clock=clock())
    assert [instant.requested for instant in found.alive] == [first.instant, second.instant]
    assert "alive" in str(found)
    assert set(paths(store)) > set(before)
    with pytest.raises(ConcurrentWriteError, match=f"commit of {first.instant} is under way"):
        refuse_live_writers(load_state(store), but=second.instant, clock=clock())
    commit(second, NOTHING, clock=clock())
    commit(first, CommitMetadata(operation="UPSERT", write_stats=(stat,)), clock=clock())


def test_a_writer_that_stopped_beating_is_rolled_back_by_the_next() -> None:
    store = table_with_rows()
    dead = begun(store)
    stat = write_file(dead, "new", 3)
    now = system_ms()
    late = Clock(TimelineTimezone.UTC, now_ms=lambda: now + DEAD_AFTER_MS + 1000)
    transaction, state = begin(store, operation=Operation.UPSERT, clock=late)
    assert stat.path not in paths(store)
    assert "new/.hoodie_partition_metadata" not in paths(store), "nobody else has written there"
    assert dead.instant not in {instant.requested for instant in state.timeline.instants}
    (rollback,) = state.timeline.completed(Action.ROLLBACK)
    assert read_rollback_metadata(store, rollback).rolled_back == (dead.instant,)
    beat(store, transaction.instant)
    with pytest.raises(CommitConflictError, match="taken it for dead"):
        commit(dead, NOTHING, clock=late)
    abort(dead)
    commit(transaction, NOTHING, clock=late)


def test_a_partition_that_has_other_files_keeps_its_metadata() -> None:
    store = table_with_rows()
    transaction = begun(store)
    write_file(transaction, "a", 3)
    abort(transaction)
    assert "a/.hoodie_partition_metadata" in paths(store)


def test_a_heartbeat_keeps_a_writer_alive_and_its_end_is_the_writers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeat, "BEAT_SECONDS", 0.001)
    store = new_table()
    transaction = begun(store)
    path = heartbeat_path(transaction.instant)
    first = store.stat(path).version
    with Heartbeat(transaction):
        while store.stat(path).version == first:
            pass
    assert path not in paths(store)
    assert recover(store, transaction.properties, clock=clock()).rolled_back, "nobody is at it any more"


class _Broken(MemoryStore):
    def put(self, path: str, data: object) -> None:
        raise OSError("no network")


def test_a_heartbeat_that_fails_does_not_fail_the_write(caplog: pytest.LogCaptureFixture) -> None:
    broken = replace(begun(new_table()), store=_Broken())
    with Heartbeat(broken, every_seconds=0.001):
        while not caplog.messages:
            pass
    assert "no network" in caplog.messages[0]


def test_a_commit_in_between_is_a_conflict_and_nothing_of_ours_stays() -> None:
    store = table_with_rows()
    first = begun(store)
    stat = write_file(first, "a", 3)
    properties = first.properties
    theirs = shift_instant(first.instant, 1)
    write_requested(store, properties, instant=theirs, action=Action.COMMIT)
    ours = CommitMetadata(operation="UPSERT", write_stats=(stat,))
    body = encode_commit_metadata(ours, action=Action.COMMIT)
    store.put(f".hoodie/timeline/{theirs}_{shift_instant(theirs, 1)}.commit", body)
    with pytest.raises(CommitConflictError, match=f"commit of {theirs} came in between"):
        commit(first, ours, clock=clock())
    assert abort(first) is None
    assert stat.path not in paths(store)
    assert names(store)[-2:] == [f"{theirs}.commit.requested", f"{theirs}_{shift_instant(theirs, 1)}.commit"]


def test_a_compaction_that_was_pending_may_complete_beside_a_write() -> None:
    store = table_with_rows()
    properties = load_properties(store)
    planned = clock().next_instant()
    write_requested(store, properties, instant=planned, action=Action.LOG_COMPACTION)
    transaction = begun(store)
    store.put(f".hoodie/timeline/{planned}_{shift_instant(transaction.instant, 1)}.deltacommit", b"compacted")
    commit(transaction, NOTHING, clock=clock())


@pytest.mark.parametrize("change", ["hoodie.table.metadata.partitions", "hoodie.bucket.index.num.buckets"])
def test_a_table_that_changed_in_between_is_a_conflict(change: str) -> None:
    store = table_with_rows()
    transaction = begun(store)
    update_properties(store, {change: "8"})
    with pytest.raises(CommitConflictError, match=r"hoodie\.properties"):
        commit(transaction, NOTHING, clock=clock())


@pytest.mark.parametrize("action", [Action.CLUSTERING, Action.RESTORE, Action.INDEXING])
def test_rows_are_not_written_beside_what_moves_rows(action: Action) -> None:
    store = table_with_rows()
    before = names(store)
    write_requested(store, load_properties(store), instant=clock().next_instant(), action=action)
    with pytest.raises(ConcurrentWriteError, match=f"the {action} of"):
        begun(store)
    assert [name for name in names(store) if action not in name] == before


def test_a_check_refuses_before_anything_is_written() -> None:
    store = table_with_rows()
    before = paths(store)

    def refuse(state: TableState) -> None:
        assert state.store is store
        raise UnsupportedError(subject="x", found="y", supported="z", remedy="w")

    with pytest.raises(UnsupportedError):
        begin(store, operation=Operation.UPSERT, check=refuse, clock=clock())
    assert paths(store) == before


def test_a_write_whose_commit_was_decided_is_published_not_aborted() -> None:
    store = table_with_rows()
    transaction = begun(store)
    stat = write_file(transaction, "a", 3)
    lost = _LosesAnswers(store)
    with pytest.raises(OSError, match="lost"):
        commit(
            replace(transaction, store=lost),
            CommitMetadata(operation="UPSERT", write_stats=(stat,)),
            clock=clock(),
        )
    completed = abort(transaction)
    assert f"{transaction.instant}_{completed}.commit" in names(store)
    assert stat.path in paths(store)
    assert abort(transaction) == completed, "and again"


class _LosesAnswers:
    """Takes the claim, and loses the answer."""

    def __init__(self, inner: MemoryStore) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> object:
        return getattr(self._inner, name)

    def put_new(self, path: str, data: bytes) -> bool:
        done = self._inner.put_new(path, data)
        if path.startswith(CLAIM_FOLDER):
            raise OSError("the answer was lost")
        return done


def test_of_two_writers_that_took_no_notice_of_each_other_one_commits() -> None:
    store = table_with_rows()
    first = begun(store)
    store.delete(heartbeat_path(first.instant))
    metadata = CommitMetadata(operation="UPSERT", write_stats=(write_file(first, "a", 3),))
    hidden = {path: store.read(path) for path in paths(store) if first.instant in path and "timeline" in path}
    for path in hidden:
        store.delete(path)
    second = begun(store)
    for path, data in hidden.items():
        store.put(path, data)
    commit(second, metadata, clock=clock())
    with pytest.raises(CommitConflictError, match=f"{second.instant} came in between"):
        commit(first, metadata, clock=clock())


def claim(number: int, *, instant: str = "1", completed: str = "2") -> Claim:
    return Claim(
        number=number, instant=instant, action=Action.COMMIT, outcome=Outcome.COMMIT, completed=completed
    )


def test_a_number_is_taken_once_and_a_repeated_request_is_known() -> None:
    store = MemoryStore()
    assert take(store, claim(1))
    assert take(store, claim(1)), "the same claim again is an answer that was lost"
    assert not take(store, claim(1, instant="3", completed="4"))
    assert list_claims(store).newest == claim(1)
    assert list_claims(store).next_number == 2


def test_a_writer_that_slept_does_not_take_a_number_that_was_used_before() -> None:
    store = MemoryStore()
    for number in range(1, 2 * CLAIMS_KEPT + 1):
        assert take(store, claim(number))
        forget_old(store, claim(number))
    assert claim_path(5) not in paths(store)
    assert not take(store, claim(5, instant="3"))
    assert claim_path(5) not in paths(store)
    assert len(list_claims(store).numbers) == CLAIMS_KEPT


def test_a_claim_that_is_none_is_named() -> None:
    store = MemoryStore()
    store.put(claim_path(1), b"{}")
    with pytest.raises(CorruptTableError, match=claim_path(1)):
        list_claims(store)
    assert parse_claim_number("1") is None


def test_many_commits_keep_few_claims_and_no_other_remains() -> None:
    store = new_table()
    for _ in range(2 * CLAIMS_KEPT + 6):
        write(store, [], Operation.UPSERT)
    assert len(list_claims(store).numbers) == CLAIMS_KEPT + 6
    assert not [path for path in paths(store) if ".temp" in path or ".heartbeat" in path]


def test_a_late_task_leaves_nothing_in_the_end() -> None:
    """Its driver died, the write was rolled back, and the task goes on."""
    store = table_with_rows()
    before = {path for path in paths(store) if path.endswith(".parquet")}
    dead = begun(store)
    write_file(dead, "a", 3)
    assert recover(store, dead.properties, clock=clock(later=True)).rolled_back
    stat = write_file(dead, "a", 3)
    assert stat.path in paths(store)
    found = recover(store, dead.properties, clock=clock())
    assert found.swept == (), "it may still be at it"
    found = recover(store, dead.properties, clock=clock(later=True))
    assert found.swept == (dead.instant,)
    assert "deleted the markers" in str(found)
    assert {path for path in paths(store) if path.endswith(".parquet")} == before


def test_markers_of_a_committed_write_go_without_its_files() -> None:
    store = table_with_rows()
    (instant,) = load_timeline(store, load_properties(store)).writes
    (data,) = (path for path in paths(store) if path.endswith(".parquet"))
    store.put(marker_path(instant.requested, data, "CREATE"), b"")
    old = "20010101000000000"
    store.put(marker_path(old, data.replace(instant.requested, old), "CREATE"), b"")
    store.put(data.replace(instant.requested, old), b"archived, so committed")
    found = recover(store, load_properties(store), clock=clock(later=True))
    assert found == Recovery(swept=(old, instant.requested))
    assert data in paths(store)
    assert data.replace(instant.requested, old) in paths(store)


def test_a_marker_that_names_no_data_file_deletes_nothing() -> None:
    store = table_with_rows()
    dead = begun(store)
    store.put(f".hoodie/.temp/{dead.instant}/MARKERS0", b"hoodie.properties.marker.CREATE\n")
    with pytest.raises(CorruptTableError, match=r"hoodie\.properties\.marker"):
        recover(store, dead.properties, clock=clock(later=True))


def test_the_rules_of_a_rescale_that_was_not_committed_go_too() -> None:
    store = table_with_rows()
    dead = begun(store, Operation.INSERT_OVERWRITE)
    store.put(hashing_config_path(dead.instant), b"{}")
    recover(store, dead.properties, clock=clock(later=True))
    assert hashing_config_path(dead.instant) not in paths(store)


def test_nothing_to_recover_says_so() -> None:
    store = table_with_rows()
    assert str(recover(store, load_properties(store))) == "nothing to recover"


@pytest.fixture
def copied(golden_table: Golden, tmp_path: Path) -> Callable[[str], LocalStore]:
    """Return a copy of a golden table, to be written."""

    def copy(name: str) -> LocalStore:
        shutil.copytree(golden_table(name), tmp_path / name)
        return LocalStore(tmp_path / name)

    return copy


FAILED_BY_HUDI = [
    "cow_failed_inflight_markers",
    "cow_failed_inflight_timeline_markers",
    "mor_failed_inflight",
]


@pytest.mark.parametrize("name", FAILED_BY_HUDI)
def test_what_hudi_failed_to_write_is_rolled_back(copied: Callable[[str], LocalStore], name: str) -> None:
    store = copied(name)
    properties = load_properties(store)
    (failed,) = load_timeline(store, properties).pending()
    later = Clock(properties.timeline_timezone, now_ms=lambda: system_ms() + ONE_DAY_MS)
    found = recover(store, properties, clock=later)
    assert [done.instant for done in found.rolled_back] == [failed.requested]
    timeline = load_timeline(store, properties)
    assert timeline.pending() == ()
    assert failed.requested not in {instant.requested for instant in timeline.instants}
    assert len(timeline.completed(Action.ROLLBACK)) == 1
    recover(store, properties, clock=later)
    assert not [path for path in paths(store) if failed.requested in path and "rollback" not in path]
    expected = GOLDEN / f"{name}.expected.jsonl"
    table = Table.open(str(store.root)).to_arrow()
    assert_same_rows(json_rows(table), load_json_rows(expected) if expected.exists() else [])


def test_files_of_a_failed_write_without_markers_are_found_by_their_names(
    copied: Callable[[str], LocalStore],
) -> None:
    store = copied("cow_failed_inflight_markers")
    shutil.rmtree(store.root / ".hoodie/.temp")
    assert len([path for path in paths(store) if path.endswith(".parquet")]) == 2
    properties = load_properties(store)
    later = Clock(properties.timeline_timezone, now_ms=lambda: system_ms() + ONE_DAY_MS)
    (done,) = recover(store, properties, clock=later).rolled_back
    assert len(done.files) == 2
    assert not [path for path in paths(store) if path.endswith(".parquet")]


@pytest.mark.parametrize("is_inflight", [False, True])
def test_a_rollback_that_hudi_did_not_finish_is_finished(
    copied: Callable[[str], LocalStore], is_inflight: bool
) -> None:
    """Hudi deletes the instant before it completes the rollback; its plan names absolute paths."""
    store = copied("cow_failed_inflight_timeline_markers")
    properties = load_properties(store)
    (failed,) = load_timeline(store, properties).pending()
    later = Clock(properties.timeline_timezone, now_ms=lambda: system_ms() + ONE_DAY_MS)
    (done,) = recover(store, properties, clock=later).rolled_back
    (rollback,) = load_timeline(store, properties).completed(Action.ROLLBACK)
    store.delete(rollback.path)
    shutil.rmtree(store.root / ".hoodie/.bucketlake")
    shutil.rmtree(store.root / ".hoodie/.temp")
    for path in done.files:
        store.put(path, b"not deleted yet")
    if not is_inflight:
        store.delete(f".hoodie/timeline/{rollback.requested}.rollback.inflight")
    found = recover(store, properties, clock=later)
    assert [again.instant for again in found.rolled_back] == [failed.requested]
    (again,) = load_timeline(store, properties).completed(Action.ROLLBACK)
    assert again.requested == rollback.requested
    assert not set(done.files) & set(paths(store))


def test_a_completed_commit_that_hudi_is_rolling_back_is_not_completed_again() -> None:
    store = new_table()
    write(store, ["a"], Operation.UPSERT)
    (instant,) = load_timeline(store, load_properties(store)).writes
    dead = begun(store)  # to have a plan written by somebody
    recover(store, dead.properties, clock=clock(later=True))
    properties = load_properties(store)
    (rollback,) = load_timeline(store, properties).completed(Action.ROLLBACK)
    store.delete(rollback.path)
    for path in (f"{CLAIM_FOLDER}/{2:020d}",):
        store.delete(path)
    plan = store.read(f".hoodie/timeline/{rollback.requested}.rollback.requested")
    store.put(
        f".hoodie/timeline/{rollback.requested}.rollback.requested",
        with_checksum(plan.replace(dead.instant.encode(), instant.requested.encode())),
    )
    store.delete(instant.path)
    found = recover(store, properties, clock=clock(later=True))
    assert found.published == ()
    assert [done.instant for done in found.rolled_back] == [instant.requested]


def test_a_requested_instant_that_never_went_inflight_is_taken_off() -> None:
    store = table_with_rows()
    properties = load_properties(store)
    write_requested(store, properties, instant=clock().next_instant(), action=Action.DELTA_COMMIT)
    (done,) = recover(store, properties, clock=clock()).rolled_back
    assert done.files == ()
    assert load_timeline(store, properties).pending() == ()


def test_a_claim_says_everything_that_was_decided() -> None:
    store = table_with_rows()
    written = json.loads(store.read(claim_path(1)))
    (instant,) = load_state(store).timeline.writes
    assert written["instant"] == instant.requested
    assert written["completed"] == instant.completed
    assert written["outcome"] == "commit"


def test_an_instant_without_its_inflight_file_makes_its_claim_void() -> None:
    store = table_with_rows()
    transaction = begun(store)
    write_inflight(store, transaction.properties, instant=transaction.instant, action=transaction.action)
    assert take(store, claim(2, instant=transaction.instant, completed=shift_instant(transaction.instant, 9)))
    abort(transaction)
    assert recover(store, transaction.properties, clock=clock()).published == ()
    write(store, ["a"], Operation.UPSERT)


def rollback_at(store: Store, time: str) -> None:
    """Put a completed rollback of nothing on the timeline, as who takes a dead write back may at any moment."""
    done = RollbackMetadata(rolled_back=("20200101000000000",), files_deleted=0, deleted={})
    body = encode_rollback_metadata(
        done, action=Action.COMMIT, started=time, taken_ms=0, root="memory://somewhere"
    )
    store.put(f".hoodie/timeline/{time}_{shift_instant(time, 1)}.rollback", body)


def test_a_write_never_keeps_the_time_of_a_rollback_that_was_drawn_beside_it() -> None:
    ahead = system_ms() + 60_000
    fixed = Clock(TimelineTimezone.UTC, now_ms=lambda: ahead)
    drawn = fixed.instant_at(ahead)
    counting = FaultyStore(table_with_rows())
    begin(counting, operation=Operation.UPSERT, clock=fixed)
    collided = 0
    for number in range(1, len(counting.operations) + 1):
        store = FaultyStore(
            table_with_rows(), fails_at=number, meanwhile=lambda inner: rollback_at(inner, drawn)
        )
        transaction, _ = begin(
            store, operation=Operation.UPSERT, clock=Clock(TimelineTimezone.UTC, now_ms=lambda: ahead)
        )
        collided += transaction.instant != drawn
        if transaction.instant == drawn:
            # It came after all had been looked at: what others then build on is still told apart from it.
            metadata = CommitMetadata(operation="UPSERT", write_stats=(write_file(transaction, "a", 0),))
            later, _ = begin(store.inner, operation=Operation.UPSERT)
            commit(transaction, metadata)
            with pytest.raises(CommitConflictError):
                commit(later, CommitMetadata(operation="UPSERT", write_stats=(write_file(later, "a", 0),)))
    assert collided
