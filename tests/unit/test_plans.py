"""A plan prints what would be done, and does that: no more when the table has moved on, and not to another table."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from bucketlake import CompactionTrigger, ConsistentBuckets, Maintenance, Table
from bucketlake.errors import CommitConflictError, ConfigError, InstantError
from bucketlake.plans import Plan
from bucketlake.services.clean import Retention
from stand_ins.orders_table import orders, orders_table, rows_of, written_table

_numbers = itertools.count()
SMALL: dict[str, Any] = {
    "file_bytes": 1_000,
    "split_threshold": 1.0,
    "merge_threshold": 0.1,
    "max_buckets": 4,
}


def written(table_type: str = "MERGE_ON_READ") -> Table:
    return written_table(f"memory://plans-{next(_numbers)}", table_type=table_type)


def ringed() -> Table:
    table = orders_table(f"memory://plans-{next(_numbers)}", index=ConsistentBuckets(2))
    table.upsert(orders(range(80), "first", 10))
    return table


def newest(table: Table) -> str:
    return [entry.requested for entry in table.timeline() if entry.completed][-1]


def saved(table: Table) -> str:
    made = table.savepoint(comment="good")
    table.upsert(orders(range(3), "later", 99))
    return made.instant


PLANS: dict[str, tuple[Callable[[], Table], Callable[[Table], Plan[Any]], str]] = {
    "compaction": (written, lambda t: t.plan_compaction(), "compact 4 file groups"),
    "clustering": (written, lambda t: t.plan_clustering(by="name"), "cluster 4 file groups by name"),
    "clean": (
        lambda: written("COPY_ON_WRITE"),
        lambda t: t.plan_clean(retain_commits=1),
        "delete ",
    ),
    "archive": (written, lambda t: t.plan_archive(keep_min=1, keep_max=2), "archive "),
    "rollback": (written, lambda t: t.plan_rollback(newest(t)), "roll back the committed"),
    "restore": (written, lambda t: t.plan_restore(saved(t)), "restore to "),
    "savepoint": (written, lambda t: t.plan_delete_savepoint(saved(t)), "delete the savepoint of "),
    "maintenance": (
        written,
        lambda t: t.plan_maintenance(Maintenance(compact=CompactionTrigger())),
        "compact 4 file groups",
    ),
    "rules": (written, lambda t: t.buckets.plan_overwrite("p0,5"), "p0: 2 -> 5 buckets"),
    "added rules": (written, lambda t: t.buckets.plan_add("p1,3"), "p1: 2 -> 3 buckets"),
    "rescale back": (
        written,
        lambda t: t.buckets.plan_rollback(t.buckets.overwrite("p0,5").instant),
        "roll back the committed replacecommit",
    ),
    "resize": (ringed, lambda t: t.buckets.plan_resize(**SMALL), "buckets, 2 to split"),
}


@pytest.mark.parametrize("name", PLANS)
def test_a_plan_prints_changes_nothing_and_is_run(name: str) -> None:
    make, plan_of, words = PLANS[name]
    table = make()
    plan = plan_of(table)
    before = [(file.path, file.version) for file in table.store.list("", recursive=True).files]
    assert words in str(plan_of(table) if name not in ("restore", "savepoint", "rescale back") else plan)
    assert [(file.path, file.version) for file in table.store.list("", recursive=True).files] == before
    assert not plan.is_empty
    rows = rows_of(table)
    assert table.run(plan) is not None
    assert [(file.path, file.version) for file in table.store.list("", recursive=True).files] != before
    assert (rows_of(table) == rows) == (name not in ("rollback", "restore"))
    assert table.fsck().is_sound


@pytest.mark.parametrize("name", PLANS)
def test_a_plan_is_for_its_own_table(name: str) -> None:
    make, plan_of, _ = PLANS[name]
    plan, other = plan_of(make()), written()
    before = other.timeline()
    with pytest.raises(ConfigError, match=r"this plan was made for memory://.*and is to be run on memory://"):
        other.run(plan)
    assert other.timeline() == before


def test_what_is_no_plan_is_refused() -> None:
    table = written()
    for strange in (None, table.plan_compaction().work, "compact"):
        with pytest.raises(ConfigError, match=r"expected a plan, such as table\.plan_compaction\(\) returns"):
            table.run(strange)  # type: ignore[arg-type]


def moved_on(table: Table) -> None:
    table.upsert(orders(range(4), "meanwhile", 50))


STALE: dict[str, tuple[str, Callable[[Table], object], type[Exception], str]] = {
    "a compaction that another did": ("compaction", lambda t: t.compact(), CommitConflictError, "compacted"),
    "a clustering of what was replaced": (
        "clustering",
        lambda t: t.overwrite(orders(range(4), "new", 9)),
        CommitConflictError,
        "replaced them",
    ),
    "a clean of what a savepoint keeps": (
        "clean",
        lambda t: t.savepoint(t.timeline()[0].requested),
        CommitConflictError,
        "is to be kept by now",
    ),
    "a clean that another did": ("clean", lambda t: t.clean(retain_commits=1), CommitConflictError, "gone"),
    "an archive of other instants": ("archive", moved_on, CommitConflictError, "other instants"),
    "a rollback of what is not the newest": ("rollback", moved_on, InstantError, "cannot be rolled back"),
    "a rollback that another did": (
        "rollback",
        lambda t: t.rollback(newest(t)),
        CommitConflictError,
        "no longer as it was",
    ),
    "a restore of more": ("restore", moved_on, CommitConflictError, "moved on since its restore"),
    "a savepoint that is gone": (
        "savepoint",
        lambda t: t.delete_savepoint(t.savepoints()[0].instant),
        InstantError,
        "no savepoint",
    ),
    "rules that were changed": (
        "rules",
        lambda t: t.buckets.overwrite("p1,4"),
        CommitConflictError,
        "rules",
    ),
    "a resize that another did": (
        "resize",
        lambda t: t.buckets.resize(**SMALL),
        CommitConflictError,
        "buckets that were to be split",
    ),
}


@pytest.mark.parametrize("case", STALE)
def test_a_plan_that_the_table_has_outrun_is_refused_and_changes_nothing(case: str) -> None:
    name, meanwhile, error, words = STALE[case]
    make, plan_of, _ = PLANS[name]
    table = make()
    plan = plan_of(table)
    meanwhile(table)
    rows, writes = rows_of(table), [entry for entry in table.timeline() if entry.completed]
    with pytest.raises(error, match=words):
        table.run(plan)
    assert rows_of(table) == rows
    assert [entry for entry in table.timeline() if entry.completed][: len(writes)] == writes
    assert table.fsck().is_sound


def test_a_plan_takes_in_what_was_written_since_to_what_it_names() -> None:
    table = written()
    plan = table.plan_compaction()
    moved_on(table)
    done = table.run(plan)
    assert sum(one.file_groups for one in done.runs) == 4
    assert table.plan_compaction().is_empty, "the newer logs too"


def test_several_rescales_are_taken_back_as_planned_or_not_at_all() -> None:
    table = written()
    first = table.buckets.overwrite("p0,3").instant
    table.buckets.overwrite("p0,4")
    plan = table.buckets.plan_rollback(first, with_newer=True)
    table.buckets.overwrite("p0,5")
    with pytest.raises(CommitConflictError, match="another rescale came after"):
        table.run(plan)
    assert len(table.buckets.show_config()) == 3
    table.run(table.buckets.plan_rollback(first, with_newer=True))
    assert table.buckets.show_config() == ()


def test_a_plan_without_work_does_nothing() -> None:
    table = written()
    table.compact()
    plan = table.plan_compaction()
    assert plan.is_empty
    assert str(plan) == "nothing to compact"
    assert table.run(plan).runs == ()


def test_a_table_that_was_written_to_since_its_keys_were_looked_at_is_not_adopted() -> None:
    table = written()
    plan = table.plan_adopt()
    moved_on(table)
    with pytest.raises(CommitConflictError, match="written to after its keys were looked at"):
        table.run(plan)


def test_a_pending_resize_is_aborted_as_planned() -> None:
    table = ringed()
    work = table.buckets.plan_resize(**SMALL)
    done = table.run(work)
    assert sum(one.replaced for one in done.runs) == 4
    completed = table.buckets.plan_abort(done.runs[-1].instant)
    assert completed.is_empty
    assert "is completed: there is nothing to abort" in str(completed)
    assert table.run(completed) is None


def test_a_round_says_what_is_due_and_does_it() -> None:
    table = written()
    maintenance = Maintenance(compact=CompactionTrigger(), clean=Retention(versions=1))
    plan = table.plan_maintenance(maintenance)
    assert plan.work.due == ("compaction",)
    assert [step.service for step in table.maintain(maintenance).steps] == ["compaction", "clean"]
    assert table.plan_maintenance(maintenance).is_empty
    with pytest.raises(ConfigError, match=r"maintenance is 5, an int; expected a bucketlake.Maintenance"):
        table.maintain(5)  # type: ignore[arg-type]


def test_a_plan_is_a_value() -> None:
    table = written()
    plan = table.plan_compaction()
    assert plan == table.plan_compaction()
    assert replace(plan, pending=("20260101000000000",)) != plan
    assert "finish the pending compaction 20260101000000000" in str(
        replace(plan, pending=("20260101000000000",))
    )


def test_a_plan_that_was_run_says_so_instead_of_asking_to_be_run_again() -> None:
    table = written()
    for plan in (table.buckets.plan_overwrite("a,4"), table.metadata.plan_drop()):
        if plan.is_empty:
            table.metadata.build()
            plan = table.metadata.plan_drop()
        table.run(plan)
        with pytest.raises(CommitConflictError, match="Plan again"):
            table.run(plan)


def test_a_maintenance_that_is_no_maintenance_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"compact is 5, an int; expected a bucketlake\.CompactionTrigger"):
        Maintenance(compact=5)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"archive is 5.*such as \(20, 30\)"):
        Maintenance(archive=5)  # type: ignore[arg-type]
