"""A compaction that forgets a log forgets rows; one that takes a log too many brings them back."""

from __future__ import annotations

import itertools
import pickle
from collections.abc import Callable, Sequence
from typing import TypeVar

import pyarrow as pa
import pytest

from bucketlake import Table
from bucketlake.commit import rollback
from bucketlake.commit.claims import Claim, Outcome, list_claims, packed, take
from bucketlake.commit.heartbeat import start_heartbeat
from bucketlake.commit.recovery import recover
from bucketlake.errors import (
    CommitConflictError,
    ConcurrentWriteError,
    ConfigError,
    CorruptTableError,
    UnsupportedError,
)
from bucketlake.layout import data_files_of
from bucketlake.layout.names import BaseFileName, path_in_partition, render_base_file_name
from bucketlake.services import (
    Compaction,
    CompactionTrigger,
    Held,
    compact_table,
    here,
    load_held,
    plan_compaction,
    rollback_compaction,
    run_compaction,
    schedule_compaction,
)
from bucketlake.state import files_of, load_state
from bucketlake.storage import FileStat
from bucketlake.testing.invariants import check_invariants
from bucketlake.timeline import Action, load_timeline, read_commit_metadata, read_compaction_plan
from stand_ins.orders_table import orders, orders_table, rows_of, written_table
from stand_ins.timelines import state_of
from stand_ins.transactions import clock

_numbers = itertools.count()


T = TypeVar("T")
R = TypeVar("R")


def memory() -> str:
    return f"memory://compaction-{next(_numbers)}"


def planned(table: Table, trigger: CompactionTrigger | None = None) -> Compaction:
    state = load_state(table.store)
    return plan_compaction(state, files_of(state), load_held(state), trigger=trigger, now="20991231000000000")


def scheduled(table: Table) -> str:
    instant = schedule_compaction(table.store, planned(table))
    assert instant is not None
    return instant


def logs_left(table: Table) -> int:
    return sum(len(part.log_files) for p in table.layout().partitions for part in p.slices)


TIMELINE = [
    "20240102010000000_20240102010001000.deltacommit",
    "20240102020000000_20240102020001000.deltacommit",
    "20240102030000000_20240102030001000.deltacommit",
    "20240102040000000.deltacommit.inflight",
]
FILES = {
    "p/a_1-0-1_20240102010000000.parquet": 1000,
    "p/.a_20240102020000000.log.1_1-0-1": 100,
    "p/.a_20240102030000000.log.1_1-0-1": 100,
    "p/b_1-0-1_20240102010000000.parquet": 1000,
    "p/.b_20240102030000000.log.1_1-0-1": 900,
    "p/.c_20240102030000000.log.1_1-0-1": 1,
    "p/d_1-0-1_20240102010000000.parquet": 1000,
    "p/.d_20240102040000000.log.1_1-0-1": 5000,  # of a write that is not completed
}


@pytest.mark.parametrize(
    ("trigger", "groups"),
    [
        (CompactionTrigger(), "bac"),
        (CompactionTrigger(delta_commits=2), "a"),
        (CompactionTrigger(delta_commits=3), ""),
        (CompactionTrigger(log_bytes=200), "ba"),
        (CompactionTrigger(log_bytes=901), ""),
        (CompactionTrigger(log_ratio=0.5), "bc"),
        (CompactionTrigger(log_ratio=0.2), "bac"),
        (CompactionTrigger(hours=10), "a"),
        (CompactionTrigger(hours=11), ""),
        (CompactionTrigger(hours=9), "bac"),
        (CompactionTrigger(delta_commits=2, log_ratio=0.9), "bac"),
    ],
)
def test_the_groups_that_a_trigger_takes_are_planned_most_logs_first(
    trigger: CompactionTrigger, groups: str
) -> None:
    files = {"p": data_files_of(FileStat(path, size, 0, "") for path, size in FILES.items())}
    plan = plan_compaction(state_of(TIMELINE), files, Held(), trigger=trigger, now="20240102120000000")
    assert "".join(part.file_id for part in plan.slices) == groups


def test_a_group_that_somebody_has_taken_is_left_out() -> None:
    files = {"p": data_files_of(FileStat(path, size, 0, "") for path, size in FILES.items())}
    held = Held(groups=frozenset({("p", "a")}))
    state = state_of(
        [*TIMELINE, "20240102050000000.compaction.requested"], compactions={"20240102050000000": [("p", "b")]}
    )
    plan = plan_compaction(state, files, held, now="20240102120000000")
    assert [part.file_id for part in plan.slices] == ["c"]
    assert (
        str(plan) == "compact 1 file groups: 1 logs, 1 bytes to read\n  p/c: no base file + 1 logs, 1 bytes"
    )
    assert str(Compaction(())) == "nothing to compact"


@pytest.mark.parametrize("wrong", [{"delta_commits": 0}, {"log_ratio": -1.0}, {"hours": float("nan")}])
def test_a_trigger_that_makes_no_sense_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ConfigError):
        CompactionTrigger(**wrong)  # type: ignore[arg-type] # two are floats


@pytest.mark.shows("S5", "X3")
def test_rows_are_the_same_before_and_after_and_no_logs_are_left() -> None:
    table = written_table(memory())
    before = rows_of(table)
    (done,) = compact_table(table.store)
    assert rows_of(table) == before
    assert logs_left(table) == 0
    assert done.rows == 14 == before.num_rows
    assert str(done).startswith(f"compaction {done.instant}, completed {done.completed}\n  ")
    check_invariants(table)
    assert compact_table(table.store) == ()
    state = load_state(table.store)
    (commit,) = state.timeline.completed(Action.COMMIT)
    metadata = read_commit_metadata(table.store, commit)
    assert (metadata.operation, metadata.is_compaction) == ("COMPACT", True)
    assert sum(stat.compacted_log_files for stat in metadata.write_stats) == done.log_files
    assert {file.path for file in table.store.list(".hoodie/.temp", recursive=True).files} == set()


def test_as_of_reads_are_the_same_after_a_compaction() -> None:
    table = written_table(memory())
    instants = [i.requested for i in load_state(table.store).timeline.writes]
    before = [rows_of(table, as_of=instant) for instant in instants]
    compact_table(table.store)
    assert [rows_of(table, as_of=instant) for instant in instants] == before


def test_writers_go_on_between_planning_scheduling_and_running() -> None:
    table = written_table(memory())
    plan = planned(table)
    table.upsert(orders([0, 1], "after the plan", 30))
    instant = schedule_compaction(table.store, plan)
    assert instant is not None
    table.upsert(orders([2, 3], "after the schedule", 30))
    table.delete([8])
    before = rows_of(table)
    run_compaction(table.store, instant)
    assert rows_of(table) == before
    check_invariants(table)
    assert logs_left(table) > 0, "what came after the schedule is over the new base files"
    compact_table(table.store)
    assert (rows_of(table), logs_left(table)) == (before, 0)


def test_a_column_that_is_added_while_a_compaction_runs_is_not_forgotten() -> None:
    table = written_table(memory())
    wider = orders([90], "wider", 90).append_column("more", pa.array([7]))

    def overtaken(function: Callable[[T], R], items: Sequence[T], /) -> list[R]:
        done = here(function, items)
        table.upsert(wider, merge_schema=True)
        return done

    compact_table(table.store, tasks=overtaken)
    assert table.schema.names[-1] == "more"
    assert table.to_arrow(columns=["more"], filters=[("id", "=", 90)]).to_pylist() == [{"more": 7}]


def test_a_group_without_a_base_file_and_one_whose_rows_are_all_deleted_are_compacted() -> None:
    table = orders_table(memory(), buckets=1)
    table.upsert(orders([0, 2], "a", 1))
    table.delete([0, 2])
    table.upsert(orders([1], "b", 1))
    compact_table(table.store)
    assert rows_of(table).column("id").to_pylist() == [1]
    check_invariants(table)
    table.upsert(orders([0], "again", 0))
    assert rows_of(table).num_rows == 2


def test_a_commit_that_was_on_its_way_when_the_plan_was_made_is_taken_in() -> None:
    """Its completion time was claimed before; its file comes after. It must not fall between the slices."""
    table = written_table(memory())
    plan = planned(table)
    store, properties = table.store, load_state(table.store).properties
    table.upsert(orders([0], "claimed", 40))
    published = load_timeline(store, properties).writes[-1]
    body = store.read(published.path)
    store.delete(published.path)  # claimed and not published: the body is in the inflight file
    instant = schedule_compaction(store, plan)
    assert store.read(published.path) == body, "the schedule has published it first"
    assert instant is not None
    before = rows_of(table)
    assert "claimed 0" in before.column("name").to_pylist()
    run_compaction(store, instant)
    assert rows_of(table) == before


def test_whoever_commits_after_a_schedule_completes_after_it() -> None:
    """Even if its clock is behind."""
    table = written_table(memory())
    plan = planned(table)
    instant = schedule_compaction(table.store, plan, clock=clock(later=True))
    assert instant is not None
    table.upsert(orders([0], "later", 40))
    newest = max(i.completed or "" for i in load_state(table.store).timeline.writes)
    assert newest > instant
    run_compaction(table.store, instant)
    assert "later 0" in rows_of(table).column("name").to_pylist()


def test_a_schedule_that_was_cut_off_after_its_claim_is_put_on_the_timeline_by_the_next() -> None:
    table = written_table(memory())
    instant = scheduled(table)
    state = load_state(table.store)
    (requested,) = state.timeline.pending(Action.COMPACTION)
    body = table.store.read(requested.path)
    table.store.delete(requested.path)
    assert schedule_compaction(table.store, planned(table)) is None, "its groups are taken"
    assert table.store.read(requested.path) == body
    assert read_compaction_plan(table.store, requested).operations
    assert run_compaction(table.store, instant).file_groups > 0


def test_two_schedules_of_one_plan_make_one_compaction() -> None:
    table = written_table(memory())
    plan = planned(table)
    assert schedule_compaction(table.store, plan) is not None
    assert schedule_compaction(table.store, plan) is None
    assert len(load_state(table.store).timeline.pending(Action.COMPACTION)) == 1


def test_a_claimed_plan_is_void_once_another_engine_has_completed_something_after_it() -> None:
    table = written_table(memory())
    store, properties = table.store, load_state(table.store).properties
    claims = list_claims(store)
    last = load_timeline(store, properties).instants[-1].completed
    assert last is not None
    earlier = str(int(last) - 1)
    claim = Claim(
        number=claims.next_number,
        instant=earlier,
        action=Action.COMPACTION,
        outcome=Outcome.SCHEDULE,
        completed=last,
        plan=packed(b"never written"),
    )
    assert take(store, claim)
    assert str(recover(store, properties)) == "nothing to recover"
    assert load_timeline(store, properties).pending() == ()


def test_a_group_that_was_replaced_meanwhile_is_passed_over() -> None:
    table = written_table(memory())
    instant = scheduled(table)
    table.delete_partitions(["p0"])
    before = rows_of(table)
    done = run_compaction(table.store, instant)
    assert rows_of(table) == before
    assert 0 < done.file_groups < len(read_compaction_plan_of(table, instant))
    check_invariants(table)


def read_compaction_plan_of(table: Table, instant: str) -> tuple[object, ...]:
    (done,) = [i for i in load_state(table.store).timeline.instants if i.requested == instant]
    return read_compaction_plan(table.store, done).operations


def test_running_it_again_reports_the_same() -> None:
    table = written_table(memory())
    instant = scheduled(table)
    assert run_compaction(table.store, instant) == run_compaction(table.store, instant)


def test_files_that_another_engine_left_of_the_same_compaction_are_deleted() -> None:
    table = written_table(memory())
    instant = scheduled(table)
    before = rows_of(table)
    part = planned_groups(table, instant)[0]
    name = render_base_file_name(BaseFileName(part[1], "9-9-9", instant))
    stranger = path_in_partition(part[0], name)
    table.store.put(stranger, b"half a file")
    table.store.put(f".hoodie/.temp/{instant}/MARKERS.type", b"TIMELINE_SERVER_BASED")
    table.store.put(f".hoodie/.temp/{instant}/MARKERS0", f"{stranger}.marker.CREATE\n".encode())
    run_compaction(table.store, instant)
    assert rows_of(table) == before
    check_invariants(table)
    assert table.store.list(".hoodie/.temp", recursive=True).files == ()


def planned_groups(table: Table, instant: str) -> list[tuple[str, str]]:
    pending = [i for i in load_state(table.store).timeline.pending() if i.requested == instant]
    return [(o.partition, o.file_id) for o in read_compaction_plan(table.store, pending[0]).operations]


@pytest.mark.parametrize("rounds", [1, 2])
def test_a_compaction_that_failed_can_be_rolled_back_to_its_plan_and_run_again(rounds: int) -> None:
    table = written_table(memory())
    instant = scheduled(table)
    before = rows_of(table)

    def failing(function, items):  # type: ignore[no-untyped-def] # a parallel map
        function(items[0])
        raise RuntimeError("an executor died")

    for number in range(1, rounds + 1):
        with pytest.raises(RuntimeError):
            run_compaction(table.store, instant, tasks=failing)
        assert _files_of(table, instant), "something was written"
        undone = rollback_compaction(table.store, instant)
        assert undone is not None
        assert _files_of(table, instant) == []
        timeline = load_state(table.store).timeline
        assert [i.path.rpartition(".")[2] for i in timeline.pending()] == ["requested"]
        assert len(timeline.completed(Action.ROLLBACK)) == number
        assert rows_of(table) == before
    run_compaction(table.store, instant)
    assert rows_of(table) == before
    check_invariants(table)
    assert rollback_compaction(table.store, instant) is None, "it is completed"


def _files_of(table: Table, instant: str) -> list[str]:
    everything = table.store.list("", recursive=True).files
    return [f.path for f in everything if f.path.endswith(".parquet") and instant in f.path]


def test_a_run_that_was_rolled_back_meanwhile_cannot_complete() -> None:
    table = written_table(memory())
    instant = scheduled(table)

    def overtaken(function, items):  # type: ignore[no-untyped-def] # a parallel map
        done = [function(item) for item in items]
        rollback_compaction(table.store, instant)
        return done

    with pytest.raises(CommitConflictError, match="rolled it back"):
        run_compaction(table.store, instant, tasks=overtaken)
    assert run_compaction(table.store, instant).file_groups > 0
    check_invariants(table)


def test_a_run_whose_file_was_deleted_cannot_complete_and_can_be_run_again() -> None:
    table = written_table(memory())
    instant = scheduled(table)
    before = rows_of(table)

    def robbed(function, items):  # type: ignore[no-untyped-def] # a parallel map
        done = [function(item) for item in items]
        table.store.delete(done[0].stat.path)
        return done

    with pytest.raises(CommitConflictError, match="was deleted by somebody"):
        run_compaction(table.store, instant, tasks=robbed)
    assert rows_of(table) == before
    run_compaction(table.store, instant)
    assert rows_of(table) == before
    check_invariants(table)


def test_a_rollback_that_slept_while_the_compaction_was_run_again_deletes_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    table = written_table(memory())
    instant = scheduled(table)
    before = rows_of(table)

    def failing(function, items):  # type: ignore[no-untyped-def] # a parallel map
        function(items[0])
        raise RuntimeError("an executor died")

    with pytest.raises(RuntimeError):
        run_compaction(table.store, instant, tasks=failing)
    announce = rollback.announce_rollback

    def announce_and_sleep(*arguments: object, **named: object) -> None:
        announce(*arguments, **named)  # type: ignore[arg-type] # passed through
        monkeypatch.setattr(rollback, "announce_rollback", announce)
        run_compaction(table.store, instant)

    monkeypatch.setattr(rollback, "announce_rollback", announce_and_sleep)
    assert rollback_compaction(table.store, instant) is None
    assert rows_of(table) == before
    assert _files_of(table, instant), "they are committed"
    check_invariants(table)


def test_tasks_travel() -> None:
    """To an executor and back."""
    table = written_table(memory())

    def elsewhere(function, items):  # type: ignore[no-untyped-def] # a parallel map
        return [pickle.loads(pickle.dumps(function))(pickle.loads(pickle.dumps(item))) for item in items]

    before = rows_of(table)
    compact_table(table.store, tasks=elsewhere)
    assert rows_of(table) == before


def test_bad_input_is_refused_before_anything_is_touched() -> None:
    table = written_table(memory())
    with pytest.raises(ConfigError, match="no compaction 20200101000000000"):
        run_compaction(table.store, "20200101000000000")
    with pytest.raises(ConfigError, match="no compaction"):
        rollback_compaction(table.store, "20200101000000000")
    writes = load_state(table.store).timeline.writes
    with pytest.raises(ConfigError, match="no compaction"):
        run_compaction(table.store, writes[0].requested)
    instant = scheduled(table)
    start_heartbeat(table.store, instant)
    with pytest.raises(ConcurrentWriteError, match="under way"):
        run_compaction(table.store, instant)
    assert compact_table(table.store) == (), "it is left to its process"
    table.store.delete(f".hoodie/.heartbeat/{instant}")
    log = next(f.path for f in table.store.list("p0").files if ".log." in f.path)
    data = table.store.read(log)
    table.store.delete(log)
    with pytest.raises(CorruptTableError, match="no such file"):
        run_compaction(table.store, instant)
    table.store.put(log, data)
    run_compaction(table.store, instant)
    copy_on_write = written_table(memory(), table_type="COPY_ON_WRITE")
    with pytest.raises(UnsupportedError, match="copy-on-write"):
        compact_table(copy_on_write.store)


def test_a_file_of_an_earlier_attempt_with_other_rows_is_an_error() -> None:
    table = written_table(memory())
    instant = scheduled(table)
    (partition, file_id), *_ = planned_groups(table, instant)
    other = next(f.path for f in table.store.list("p1").files if f.path.endswith(".parquet"))
    name = render_base_file_name(BaseFileName(file_id, "1-0-1", instant))
    table.store.put(path_in_partition(partition, name), table.store.read(other))
    with pytest.raises(CorruptTableError, match="an earlier attempt"):
        run_compaction(table.store, instant)
    rollback_compaction(table.store, instant)
    run_compaction(table.store, instant)
    check_invariants(table)
