"""After a clustering of ours Hudi must find every row, and write on; and we run what Hudi only plans."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from bucketlake import Table
from bucketlake.services import (
    Retention,
    archive_table,
    check_table,
    clean_table,
    cluster_table,
    create_savepoint,
    load_held,
    look_for_rollback,
    plan_clustering,
    run_clustering,
    run_rollback,
    schedule_clustering,
)
from bucketlake.state import files_of, load_state
from bucketlake.testing.invariants import check_invariants
from bucketlake.timeline import Action, read_plan, read_requested_replace
from judges.hudi_jvm import QUIET, HudiJvm, JudgeError, options_for
from judges.hudi_rs import read_snapshot
from judges.rows import assert_same_rows
from stand_ins.orders_table import orders, written_table

pytestmark = pytest.mark.interop

OPTIONS = options_for("orders", table_type="MERGE_ON_READ", buckets=2)


def agree(table: Table, hudi: HudiJvm, path: Path) -> pa.Table:
    by_hudi = hudi.read(path)
    assert_same_rows(table.to_arrow(meta_columns=True), by_hudi)
    assert_same_rows(read_snapshot(path), by_hudi)
    check_invariants(table)
    report = check_table(table.store)
    assert report.damage == (), str(report)
    return by_hudi


def clustering_by_hudi(hudi: HudiJvm, path: Path, op: str) -> None:
    options = "hoodie.index.type=BUCKET,hoodie.bucket.index.num.buckets=2"
    hudi.sql(
        f"call run_clustering(path => '{path}', op => '{op}', order => 'name', options => '{options}')",
        settings=QUIET,
    )


def schedule(table: Table) -> str:
    state = load_state(table.store)
    plan = plan_clustering(state, files_of(state), load_held(state), by=["name"], now="")
    instant = schedule_clustering(table.store, plan)
    assert instant is not None
    return instant


@pytest.mark.shows("S5", "X3")
@pytest.mark.parametrize("table_type", ["MERGE_ON_READ", "COPY_ON_WRITE"])
def test_hudi_reads_and_writes_after_our_clustering(hudi: HudiJvm, tmp_path: Path, table_type: str) -> None:
    options = options_for("orders", table_type=table_type, buckets=2)
    table = written_table(tmp_path, table_type=table_type)
    before = agree(table, hudi, tmp_path)
    (done,) = cluster_table(table.store, by=["name"])
    assert done.replaced == 4
    after = agree(table, hudi, tmp_path)
    assert_same_rows(after, before, without=["_hoodie_file_name"])
    hudi.write(tmp_path, orders(range(10, 20), "by Hudi", 30), options)
    assert agree(table, hudi, tmp_path).num_rows == 18
    table.upsert(orders([0, 21], "by us", 50))
    table.upsert(orders([0], "by us again", 51))
    clean_table(table.store, retain=Retention(commits=1))
    archive_table(table.store, keep_min=2, keep_max=3)
    assert load_state(table.store).timeline.completed(Action.REPLACE_COMMIT) == ()
    assert agree(table, hudi, tmp_path).num_rows == 19
    hudi.write(tmp_path, orders(range(18, 22), "by Hudi again", 60), options)
    assert agree(table, hudi, tmp_path).num_rows == 20


@pytest.mark.shows("S5")
def test_our_plan_says_what_hudis_says(hudi: HudiJvm, tmp_path: Path) -> None:
    table = written_table(tmp_path)
    schedule(table)
    (ours,) = load_state(table.store).timeline.pending(Action.CLUSTERING)
    plan_of_ours = read_plan(table.store, ours)
    table.store.delete(ours.path)
    clustering_by_hudi(hudi, tmp_path, "schedule")
    (theirs,) = load_state(table.store).timeline.pending(Action.CLUSTERING)
    plan_of_theirs = read_plan(table.store, theirs)

    def plain(body: Mapping[str, Any]) -> Any:
        """Without what is ours to choose: how slices are put into groups, and the size of a row group."""
        plan = body["clusteringPlan"]
        groups = plan["inputGroups"]
        slices = {
            part["fileId"]: {
                **part,
                "dataFilePath": part["dataFilePath"].removeprefix("file:").lstrip("/"),
                "deltaFilePaths": sorted(p.removeprefix("file:").lstrip("/") for p in part["deltaFilePaths"]),
            }
            for group in groups
            for part in group["slices"]
        }
        totals: dict[str, float] = {}
        for group in groups:
            for name, value in group["metrics"].items():
                totals[name] = totals.get(name, 0.0) + value
        others = [
            {name: value for name, value in group.items() if name not in ("slices", "metrics")}
            for group in groups
        ]
        strategy = plan["strategy"]
        parameters = {n: v for n, v in strategy["strategyParams"].items() if n != "hoodie.parquet.block.size"}
        return body | {
            "clusteringPlan": plan
            | {
                "inputGroups": [slices, totals, others[0], list(groups[0])],
                "strategy": strategy | {"strategyParams": parameters},
            }
        }

    assert plain(plan_of_ours) == plain(plan_of_theirs)
    assert list(plan_of_ours["clusteringPlan"]) == list(plan_of_theirs["clusteringPlan"])


@pytest.mark.shows("S5")
def test_we_run_a_clustering_that_hudi_scheduled_and_cannot_run(hudi: HudiJvm, tmp_path: Path) -> None:
    table = written_table(tmp_path)
    hudi.write(tmp_path, orders(range(14, 18), "by Hudi", 30), OPTIONS)
    before = agree(table, hudi, tmp_path)
    clustering_by_hudi(hudi, tmp_path, "schedule")
    (pending,) = load_state(table.store).timeline.pending(Action.CLUSTERING)
    assert read_requested_replace(table.store, pending).is_sort
    with pytest.raises(JudgeError, match="not compatible with table layout HoodieSimpleBucketLayout"):
        clustering_by_hudi(hudi, tmp_path, "execute")
    done = run_clustering(table.store, pending.requested)
    assert (done.replaced, done.file_groups) == (4, 4)
    after = agree(table, hudi, tmp_path)
    assert_same_rows(after, before, without=["_hoodie_file_name"])
    hudi.write(tmp_path, orders(range(3), "by Hudi", 60), OPTIONS)
    agree(table, hudi, tmp_path)


@pytest.mark.shows("S5")
def test_hudi_leaves_a_pending_clustering_of_ours_alone(hudi: HudiJvm, tmp_path: Path) -> None:
    """It cannot run it, and refuses to write to its file groups. We may write, and the clustering gives way."""
    table = written_table(tmp_path)
    instant = schedule(table)
    before = agree(table, hudi, tmp_path)
    with pytest.raises(JudgeError, match="not compatible with table layout HoodieSimpleBucketLayout"):
        clustering_by_hudi(hudi, tmp_path, "execute")
    with pytest.raises(JudgeError, match="clustering"):
        hudi.write(tmp_path, orders([0], "by Hudi", 60), OPTIONS)
    run_clustering(table.store, instant)
    after = agree(table, hudi, tmp_path)
    assert_same_rows(after, before, without=["_hoodie_file_name"])
    hudi.write(tmp_path, orders([0], "by Hudi", 60), OPTIONS)
    assert "by Hudi 0" in agree(table, hudi, tmp_path).column("name").to_pylist()


@pytest.mark.shows("S5")
def test_hudi_agrees_after_a_rollback_and_a_restore_of_a_completed_clustering(
    hudi: HudiJvm, tmp_path: Path
) -> None:
    table = written_table(tmp_path)
    kept = create_savepoint(table.store)
    before = agree(table, hudi, tmp_path)
    (done,) = cluster_table(table.store, by=["name"])
    run_rollback(look_for_rollback(load_state(table.store), done.instant), table.store)
    assert_same_rows(agree(table, hudi, tmp_path), before)
    cluster_table(table.store, by=["name"])
    hudi.write(tmp_path, orders([0], "by Hudi", 60), OPTIONS)
    hudi.sql(
        f"call rollback_to_savepoint(path => '{tmp_path}', instant_time => '{kept.instant}')",
        settings={"hoodie.metadata.enable": "false"},
    )
    timeline = load_state(table.store).timeline
    assert timeline.completed(Action.REPLACE_COMMIT) == ()
    assert len(timeline.pending(Action.CLUSTERING)) == 1, (
        "Hudi leaves it inflight, and its plan is as good as it was"
    )
    assert_same_rows(agree(table, hudi, tmp_path), before)
    (again,) = cluster_table(table.store, by=["name"])
    assert again.replaced == 4
    assert_same_rows(agree(table, hudi, tmp_path), before, without=["_hoodie_file_name"])
