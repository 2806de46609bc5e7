"""Services that run by themselves must keep a table small, and must never cost anybody a write."""

from __future__ import annotations

import itertools
import logging
from typing import Any

import pytest

from bucketlake import CompactionTrigger, Maintenance, Retention, Table
from bucketlake.commit.heartbeat import start_heartbeat
from bucketlake.commit.operation import Operation
from bucketlake.commit.transaction import begin
from bucketlake.errors import ConfigError, CorruptTableError, InstantError, NotATableError
from bucketlake.services import (
    Due,
    clean_table,
    compact_table,
    look,
    maintenance,
    plan_compaction,
    plan_maintenance,
    rounds,
    run_maintenance,
    schedule_compaction,
)
from bucketlake.services.tasks import here, share_out, size_of
from bucketlake.state import files_of, load_state
from bucketlake.timeline import Action, encode_cleaner_plan, write_requested
from stand_ins.orders_table import orders, orders_table, rows_of, written_table
from stand_ins.transactions import clock

_numbers = itertools.count()

EVERYTHING = Maintenance(
    compact=CompactionTrigger(delta_commits=1), clean=Retention(versions=1), archive=(2, 4)
)


def memory() -> str:
    return f"memory://maintenance-{next(_numbers)}"


def services_of(done: maintenance.Round) -> list[str]:
    return [step.service for step in done.steps]


def writes_in_logs(table: Table) -> list[int]:
    slices = [part for partition in table.layout().partitions for part in partition.slices]
    return [len({log.instant for log in part.log_files}) for part in slices]


def test_shares_are_even_and_the_largest_comes_first() -> None:
    sizes = [3, 50, 1, 9, 20, 20, 7]
    shares = share_out(sizes, 3)
    weights = [sum(sizes[n] for n in share) for share in shares]
    assert sorted(n for share in shares for n in share) == list(range(7))
    assert weights == sorted(weights, reverse=True) == [50, 30, 30]
    assert share_out(sizes, 99) == [[1], [5], [4], [3], [6], [0], [2]]
    assert share_out([], 3) == []
    assert size_of("no size") == 0


@pytest.mark.shows("X2")
@pytest.mark.parametrize("table_type", ["MERGE_ON_READ", "COPY_ON_WRITE"])
def test_writes_with_maintenance_keep_a_table_small_and_its_rows_right(table_type: str) -> None:
    kept, plain = orders_table(memory(), table_type=table_type), orders_table(memory(), table_type=table_type)
    policy = Maintenance(
        compact=CompactionTrigger(delta_commits=3), clean=Retention(commits=2), archive=(3, 5)
    )
    done: set[str] = set()
    for version in range(12):
        rows = orders(range(version, version + 20), f"v{version}", version)
        summary = kept.upsert(rows, maintenance=policy)
        plain.upsert(rows)
        done |= {line.partition(":")[0] for line in summary.services}
        assert max(writes_in_logs(kept)) < 3
        assert "services" in summary.seconds
    is_merge_on_read = table_type == "MERGE_ON_READ"
    assert done == ({"compaction", "clean", "archive"} if is_merge_on_read else {"clean", "archive"})
    columns = ["id", "name", "ts", "dt"]
    assert kept.to_arrow(columns=columns).sort_by("id") == plain.to_arrow(columns=columns).sort_by("id")
    assert len(load_state(kept.store).timeline.writes) <= 6
    assert kept.fsck().is_sound


def test_maintenance_after_every_kind_of_write_is_told_in_the_summary() -> None:
    table = written_table(memory())
    policy = Maintenance(compact=CompactionTrigger())
    for summary in (
        table.upsert(orders([1], "x", 30), maintenance=policy),
        table.delete([1], maintenance=policy),
    ):
        assert [line.partition(":")[0] for line in summary.services] == ["compaction"]
        assert summary.services[0] in str(summary)
    assert table.overwrite(orders([2], "y", 40), maintenance=policy).services == ()
    emptied = table.delete_partitions("p1", maintenance=Maintenance(clean=Retention(versions=1)))
    assert emptied.services[0].startswith("clean: ")
    assert table.upsert(orders([3], "z", 50)).services == ()
    assert table.delete([999], maintenance=policy).services == (), "nothing was committed"
    assert table.fsck().is_sound


def test_a_service_that_fails_does_not_fail_the_write(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    table = written_table(memory())

    def broken(*_: object, **__: object) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(maintenance, "compact_table", broken)
    with caplog.at_level(logging.WARNING, "bucketlake.services"):
        summary = table.upsert(orders(range(9), "new", 99), maintenance=EVERYTHING)
    assert "compaction failed: no space left" in summary.services
    assert "compaction failed: no space left" in caplog.text
    assert any(line.startswith("archive") for line in summary.services), "the others are done"
    assert rows_of(table).column("name").to_pylist().count("new 1") == 1


def test_a_service_that_another_process_runs_is_left_to_it() -> None:
    table = written_table(memory(), table_type="COPY_ON_WRITE")
    state = load_state(table.store)
    instant = clock().next_instant()
    plan = table.plan_clean(retain_versions=1).work
    body = encode_cleaner_plan(plan.body(), root=table.store.uri)
    write_requested(table.store, state.properties, instant=instant, action=Action.CLEAN, body=body)
    start_heartbeat(table.store, instant)
    summary = table.upsert(orders([1], "x", 30), maintenance=Maintenance(clean=Retention(versions=1)))
    assert len(summary.services) == 1
    assert summary.services[0].startswith(f"clean was left to another: the clean of {instant} is under way")
    there = {file.path for files in files_of(load_state(table.store)).values() for file in files}
    assert {file.path for file in plan.files} <= there


def test_a_round_does_what_is_due_and_the_next_has_nothing_to_do() -> None:
    table = written_table(memory())
    before = rows_of(table)
    plan = plan_maintenance(look(table.store, EVERYTHING), EVERYTHING)
    assert plan.due == ("compaction",), "only then is there something to clean"
    assert "compact 4 file groups" in str(plan)
    done = run_maintenance(table.store, EVERYTHING)
    assert services_of(done) == ["compaction", "clean", "archive"]
    assert "4 file groups" in str(done)
    assert not done.failures
    again = run_maintenance(table.store, EVERYTHING)
    assert (again.steps, str(again)) == ((), "nothing to do")
    assert str(plan_maintenance(look(table.store, EVERYTHING), EVERYTHING)) == "nothing is due"
    assert rows_of(table) == before
    assert table.fsck().is_sound


def test_a_round_finishes_what_was_begun_and_sweeps_up_after_the_dead() -> None:
    table = written_table(memory())
    before = rows_of(table)
    state = load_state(table.store)
    plan = plan_compaction(state, files_of(state), look(table.store, EVERYTHING).held, now="2")
    planned = schedule_compaction(table.store, plan)
    transaction, _ = begin(table.store, operation=Operation.UPSERT)
    done = run_maintenance(table.store, EVERYTHING, clock=clock(later=True))
    assert services_of(done)[:2] == ["recovery", "compaction"]
    assert transaction.instant in done.steps[0].text
    timeline = load_state(table.store).timeline
    assert planned in [i.requested for i in timeline.completed(Action.COMMIT)]
    assert timeline.pending() == ()
    assert rows_of(table) == before


def test_only_what_is_asked_for_is_done() -> None:
    table = written_table(memory())
    state = load_state(table.store)
    plan = plan_compaction(state, files_of(state), look(table.store, EVERYTHING).held, now="2")
    planned = schedule_compaction(table.store, plan)
    assert run_maintenance(table.store, Maintenance()).steps == ()
    assert run_maintenance(table.store, Maintenance(clean=Retention(commits=9))).steps == ()
    assert [i.requested for i in load_state(table.store).timeline.pending()] == [planned]


def test_a_round_ends_before_the_next_step() -> None:
    table = written_table(memory())
    answers = iter([False, False, False, True])
    done = run_maintenance(table.store, EVERYTHING, should_end=lambda: next(answers))
    assert services_of(done) == ["compaction"]


@pytest.mark.parametrize("keep", [(0, 3), (3, 3), (4, 2)])
def test_a_maintenance_that_makes_no_sense_is_refused(keep: tuple[int, int]) -> None:
    with pytest.raises(ConfigError, match="higher maximum"):
        Maintenance(archive=keep)


class _Waits:
    """Ends after so many waits, and keeps how long they were."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.seconds: list[float] = []

    def is_set(self) -> bool:
        return len(self.seconds) == self.count

    def wait(self, seconds: float, /) -> None:
        self.seconds.append(seconds)


def test_after_a_round_that_failed_the_next_comes_later(monkeypatch: pytest.MonkeyPatch) -> None:
    table = written_table(memory())
    faults = iter([OSError("gone"), OSError("gone"), None])

    def sometimes(*arguments: Any, **options: Any) -> Any:
        fault = next(faults)
        if fault is not None:
            raise fault
        return compact_table(*arguments, **options)

    monkeypatch.setattr(maintenance, "compact_table", sometimes)
    policy, ending = Maintenance(compact=CompactionTrigger()), _Waits(4)
    done = list(rounds(table.store, policy, every_seconds=10, ending=ending))
    assert [bool(one.failures) for one in done] == [True, True, False, False]
    assert ending.seconds == [20, 40, 10, 10]
    assert all(one.hopeless is None for one in done)


def test_a_broken_table_is_hopeless() -> None:
    table = written_table(memory())
    newest = load_state(table.store).timeline.writes[-1]
    table.store.put(newest.path, b"no commit")
    assert isinstance(run_maintenance(table.store, EVERYTHING).hopeless, CorruptTableError)
    table.store.delete(".hoodie/hoodie.properties")
    done = run_maintenance(table.store, EVERYTHING)
    assert services_of(done) == ["recovery"], "nobody else tries"
    assert isinstance(done.hopeless, NotATableError)


def test_methods_of_a_table_say_what_they_would_do_and_do_it() -> None:
    table = written_table(memory())
    before = rows_of(table)
    due = table.plan_compaction()
    assert (due.pending, len(due.work.slices), due.is_empty) == ((), 4, False)
    assert table.plan_compaction(delta_commits=9).is_empty
    assert load_state(table.store).timeline.pending() == ()
    assert table.compact().runs[0].file_groups == 4
    assert str(table.compact()) == "nothing to do"

    planned = table.plan_clean(retain_versions=1)
    assert "delete " in str(planned)
    assert str(planned) == str(table.plan_clean(retain_versions=1))
    cleaned = table.clean(retain_versions=1)
    assert cleaned.runs[0].files == len(planned.work.files) > 0
    assert "files deleted" in str(cleaned)

    archived = table.plan_archive(keep_min=1, keep_max=2).work
    assert archived.instants
    assert table.archive(keep_min=1, keep_max=2).instants == archived.instants
    assert table.plan_archive(keep_min=1, keep_max=2).is_empty
    assert rows_of(table) == before
    assert table.fsck().is_sound


def test_a_table_goes_back_by_rollback_and_by_savepoint() -> None:
    table = written_table(memory(), table_type="COPY_ON_WRITE")
    before = rows_of(table)
    made = table.savepoint(comment="good")
    assert [one.instant for one in table.savepoints()] == [made.instant]
    newest = table.upsert(orders(range(3), "bad", 99)).instant
    assert newest is not None
    order = table.plan_rollback(newest).work
    assert order.files
    assert rows_of(table) != before
    assert table.rollback(newest) == order
    assert rows_of(table) == before
    table.upsert(orders(range(3), "bad", 99))
    back = table.plan_restore(made.instant).work
    assert len(back.instants) == 1
    assert rows_of(table) != before
    assert table.restore(made.instant) == back
    assert rows_of(table) == before
    assert table.plan_delete_savepoint(made.instant).savepoint.metadata.comment == "good"
    assert len(table.savepoints()) == 1
    assert table.delete_savepoint(made.instant).file_count == made.file_count
    assert table.savepoints() == ()
    with pytest.raises(InstantError, match="no savepoint"):
        table.plan_delete_savepoint(made.instant)


def test_what_is_due_prints_with_what_is_pending() -> None:
    table = written_table(memory())
    plan = table.plan_compaction().work
    due = Due("compaction", ("20260101000000000",), plan)
    assert str(due).splitlines()[0] == "finish the pending compaction 20260101000000000"
    assert str(due).endswith(str(plan))
    assert here(len, ["a"]) == [1]
    assert clean_table(table.store, retain=Retention(commits=99)) == ()
