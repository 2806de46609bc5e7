"""After a service of ours Hudi must find every row, and write on; and we after one of Hudi's."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from bucketlake import Table
from bucketlake.services import (
    Retention,
    clean_table,
    compact_table,
    finish_clean,
    load_held,
    plan_clean,
    plan_compaction,
    run_compaction,
    schedule_compaction,
)
from bucketlake.state import files_of, load_state
from bucketlake.storage import Store
from bucketlake.testing.invariants import check_invariants
from bucketlake.timeline import Action, encode_cleaner_plan, read_plan, write_requested
from judges.hudi_jvm import QUIET, HudiJvm, options_for
from judges.hudi_rs import read_snapshot
from judges.rows import assert_same_rows
from stand_ins.orders_table import orders, written_table

pytestmark = pytest.mark.interop

OPTIONS = options_for("orders", table_type="MERGE_ON_READ", buckets=2)


def assert_all_agree(table: Table, hudi: HudiJvm, path: Path) -> pa.Table:
    by_hudi = hudi.read(path)
    assert_same_rows(table.to_arrow(meta_columns=True), by_hudi)
    assert_same_rows(read_snapshot(path), by_hudi)
    return by_hudi


def compaction_by_hudi(hudi: HudiJvm, path: Path, op: str, instant: str | None = None) -> None:
    at = f", timestamp => {instant}" if instant else ""
    options = "hoodie.bucket.index.num.buckets=2"
    call = f"call run_compaction(op => '{op}', path => '{path}'{at}, options => '{options}')"
    hudi.sql(call, settings={**QUIET, "hoodie.compact.inline.max.delta.commits": "1"})


def schedule(store: Store) -> str:
    state = load_state(store)
    plan = plan_compaction(state, files_of(state), load_held(state), now="")
    instant = schedule_compaction(store, plan)
    assert instant is not None
    return instant


@pytest.mark.shows("S5", "X3")
def test_hudi_reads_and_writes_after_our_compaction_and_our_clean(hudi: HudiJvm, tmp_path: Path) -> None:
    table = written_table(tmp_path)
    before = assert_all_agree(table, hudi, tmp_path)
    compact_table(table.store)
    after = assert_all_agree(table, hudi, tmp_path)
    assert_same_rows(after, before, without=["_hoodie_file_name"])
    hudi.write(tmp_path, orders(range(10, 20), "by Hudi", 30), OPTIONS)
    assert assert_all_agree(table, hudi, tmp_path).num_rows == 18
    (done,) = clean_table(table.store, retain=Retention(commits=1))
    assert done.files > 0
    assert assert_all_agree(table, hudi, tmp_path).num_rows == 18
    hudi.write(tmp_path, orders(range(18, 22), "by Hudi again", 40), OPTIONS)
    table.upsert(orders([0, 21], "by us", 50))
    assert assert_all_agree(table, hudi, tmp_path).num_rows == 20
    (again,) = compact_table(table.store)
    assert again.log_files > 0
    assert_all_agree(table, hudi, tmp_path)
    check_invariants(table)


@pytest.mark.shows("S5")
def test_hudi_runs_a_compaction_that_we_scheduled(hudi: HudiJvm, tmp_path: Path) -> None:
    table = written_table(tmp_path)
    instant = schedule(table.store)
    table.upsert(orders([0, 1, 30], "while it is pending", 30))
    before = assert_all_agree(table, hudi, tmp_path)
    compaction_by_hudi(hudi, tmp_path, "run", instant)
    timeline = load_state(table.store).timeline
    assert [i.requested for i in timeline.completed(Action.COMMIT)] == [instant]
    after = assert_all_agree(table, hudi, tmp_path)
    assert_same_rows(after, before, without=["_hoodie_file_name"])
    table.upsert(orders([2], "by us", 50))
    assert_all_agree(table, hudi, tmp_path)
    check_invariants(table)


@pytest.mark.shows("S5")
def test_we_run_a_compaction_that_hudi_scheduled(hudi: HudiJvm, tmp_path: Path) -> None:
    table = written_table(tmp_path)
    hudi.write(tmp_path, orders(range(14, 18), "by Hudi", 30), OPTIONS)
    compaction_by_hudi(hudi, tmp_path, "schedule")
    (pending,) = load_state(table.store).timeline.pending(Action.COMPACTION)
    hudi.write(tmp_path, orders([0, 1], "while it is pending", 30), OPTIONS)
    before = assert_all_agree(table, hudi, tmp_path)
    assert run_compaction(table.store, pending.requested).file_groups > 0
    after = assert_all_agree(table, hudi, tmp_path)
    assert_same_rows(after, before, without=["_hoodie_file_name"])
    hudi.write(tmp_path, orders(range(3), "by Hudi", 60), OPTIONS)
    assert_all_agree(table, hudi, tmp_path)
    check_invariants(table)


def test_our_compaction_plan_is_what_hudi_would_have_planned(hudi: HudiJvm, tmp_path: Path) -> None:
    """The same files in the same operations, field for field."""
    table = written_table(tmp_path)
    instant = schedule(table.store)
    (ours,) = load_state(table.store).timeline.pending(Action.COMPACTION)
    plan_of_ours = read_plan(table.store, ours)
    table.store.delete(ours.path)
    compaction_by_hudi(hudi, tmp_path, "schedule")
    (theirs,) = load_state(table.store).timeline.pending(Action.COMPACTION)
    assert theirs.requested != instant
    plan_of_theirs = read_plan(table.store, theirs)

    def by_group(plan: object) -> object:
        assert isinstance(plan, dict)
        operations = {(o["partitionPath"], o["fileId"]): o for o in plan["operations"]}
        return plan | {
            "operations": operations,
            "strategy": None,
            "extraMetadata": plan["extraMetadata"] or {},
        }

    assert by_group(plan_of_ours) == by_group(plan_of_theirs)


@pytest.mark.shows("S5")
def test_hudi_finishes_a_clean_of_ours_and_we_one_of_hudis(hudi: HudiJvm, tmp_path: Path) -> None:
    table = written_table(tmp_path)
    compact_table(table.store)
    table.upsert(orders([0], "newer", 60))
    state = load_state(table.store)
    plan = plan_clean(state, files_of(state), load_held(state), retain=Retention(versions=1), now="")
    assert plan.files
    body = encode_cleaner_plan(plan.body(), root=table.store.uri)
    instant = str(int(state.timeline.instants[-1].completed or "") + 1)
    write_requested(table.store, state.properties, instant=instant, action=Action.CLEAN, body=body)
    before = assert_all_agree(table, hudi, tmp_path)

    hudi.write(
        tmp_path,
        orders([40], "by Hudi", 1),
        {**OPTIONS, "hoodie.clean.automatic": "true", "hoodie.clean.commits.retained": "1"},
    )
    timeline = load_state(table.store).timeline
    assert instant in {i.requested for i in timeline.completed(Action.CLEAN)}, "Hudi has finished it"
    there = {file.path for file in table.store.list("", recursive=True).files}
    assert not there & {file.path for file in plan.files}
    assert assert_all_agree(table, hudi, tmp_path).num_rows == before.num_rows + 1
    # And back: take the completed file of Hudi's last clean away, and it is pending again.
    last = timeline.completed(Action.CLEAN)[-1]
    (tmp_path / last.path).unlink()
    finish_clean(table.store, last.requested)
    assert_all_agree(table, hudi, tmp_path)
    hudi.write(tmp_path, orders([41], "by Hudi", 1), OPTIONS)
    assert_all_agree(table, hudi, tmp_path)


def test_a_partition_that_our_clean_ended_is_gone_for_hudi_and_can_be_written_again(
    hudi: HudiJvm, tmp_path: Path
) -> None:
    table = written_table(tmp_path)
    table.delete_partitions(["p0"])
    table.upsert(orders([1], "a", 60))
    table.upsert(orders([1], "b", 70))
    clean_table(table.store, retain=Retention(commits=1))
    assert not (tmp_path / "p0" / ".hoodie_partition_metadata").exists()
    assert_all_agree(table, hudi, tmp_path)
    hudi.write(tmp_path, orders(range(4), "by Hudi", 80), OPTIONS)
    assert_all_agree(table, hudi, tmp_path)
    check_invariants(table)
