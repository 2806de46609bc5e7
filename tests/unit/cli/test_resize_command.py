"""`bucketlake buckets resize` must draw what it is about to do, and do nothing unless told."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bucketlake import ConsistentBuckets, SimpleBuckets, Table
from bucketlake.services import schedule_resize
from bucketlake.state import load_state
from bucketlake.timeline import Action
from stand_ins.orders_table import orders, orders_table, rows_of

SMALL = ("--file-bytes", 1_000, "--split-threshold", 1, "--merge-threshold", 0.1, "--max-buckets", 4)


@pytest.fixture
def table(tmp_path: Path) -> Table:
    made = orders_table(tmp_path / "orders", index=ConsistentBuckets(2))
    made.upsert(orders(range(40), "first", 10))
    made.upsert(orders(range(10, 60), "second", 20))
    return made


@pytest.mark.shows("C4")
@pytest.mark.parametrize("policy", ["middle", "even"])
def test_resize_draws_the_rings_and_does_it_when_told(
    run: Any, tmp_path: Path, table: Table, policy: str
) -> None:
    path, before = tmp_path / "orders", rows_of(table)
    code, out, _ = run("buckets", "resize", path, *SMALL, "--policy", policy)
    assert code == 0
    assert "p0: 2 -> 4 buckets, 2 to split, 0 to merge" in out
    assert "before [" in out and "after  [" in out and "give --yes" in out
    facts = json.loads(run("buckets", "resize", path, *SMALL, "--partition", "p0", "--json")[1])
    assert [one["partition"] for one in facts["partitions"]] == ["p0"]
    assert facts["size_bytes"] > 0 and facts["done"] == []
    assert [part.buckets for part in table.layout().partitions] == [2, 2]
    done = json.loads(run("buckets", "resize", path, *SMALL, "--policy", policy, "--yes", "--json")[1])
    assert (len(done["done"]), done["replaced"], done["file_groups"]) == (1, 4, 8)
    assert [part.buckets for part in table.layout().partitions] == [4, 4]
    assert "nothing to do" in run("buckets", "resize", path, *SMALL, "--yes")[1]
    assert "8 file groups replaced by 2" in run("buckets", "resize", path, "--yes")[1]
    assert rows_of(table) == before


def test_a_pending_resize_is_told_and_taken_back(run: Any, tmp_path: Path, table: Table) -> None:
    path = tmp_path / "orders"
    due = table.buckets.plan_resize(file_bytes=1_000, split_threshold=1.0, merge_threshold=0.1)
    instant = schedule_resize(table.store, due.work)
    assert instant is not None
    table.upsert(orders([0, 1], "beside", 30))
    before = rows_of(table)
    assert f"finish the pending resize {instant}" in run("buckets", "resize", path)[1]
    out = run("buckets", "abort", path, instant)[1]
    assert "give --yes" in out and f"roll back the requested clustering of {instant}" in out
    assert json.loads(run("buckets", "abort", path, instant, "--json")[1])["done"] is False
    assert load_state(table.store).timeline.pending(Action.CLUSTERING)
    code, out, _ = run("buckets", "abort", path, instant, "--yes")
    assert code == 0 and instant in out
    assert load_state(table.store).timeline.pending() == ()
    assert rows_of(table) == before
    for words in ((), ("--yes",)):
        code, _, err = run("buckets", "abort", path, instant, *words)
        assert code == 2 and f"no clustering {instant}" in err


def test_a_completed_resize_is_nothing_to_abort(run: Any, tmp_path: Path, table: Table) -> None:
    (done,) = table.buckets.resize(
        file_bytes=1_000, split_threshold=1.0, merge_threshold=0.1, max_buckets=4
    ).runs
    for words in ((), ("--yes",)):
        code, out, _ = run("buckets", "abort", tmp_path / "orders", done.instant, *words, "--json")
        assert (code, json.loads(out)["done"]) == (0, False)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--split-threshold", 1, "--merge-threshold", 0.9), "for ever"),
        (("--min-buckets", 5, "--max-buckets", 4), "contradict"),
        (("--partition", "p9"), "no partition 'p9'"),
        (("--rounds", 0, "--yes"), "expected 1 at least"),
    ],
)
def test_a_call_that_makes_no_sense_changes_nothing(
    run: Any, tmp_path: Path, table: Table, words: tuple[Any, ...], message: str
) -> None:
    writes = load_state(table.store).timeline.writes
    code, _, err = run("buckets", "resize", tmp_path / "orders", *words)
    assert code == 2
    assert message in " ".join(err.split())
    assert load_state(table.store).timeline.writes == writes


@pytest.mark.shows("C1")
def test_a_table_is_made_with_rings_and_served_by_a_round(run: Any, tmp_path: Path) -> None:
    path = tmp_path / "made"
    words = ("--schema", "id BIGINT, name STRING, ts BIGINT, dt STRING", "--key", "id", "--partition", "dt")
    code, out, _ = run(
        "create",
        path,
        *words,
        "--ordering",
        "ts",
        "--type",
        "mor",
        "--index",
        "ConsistentBuckets()",
        "--json",
    )
    assert code == 0 and "consistent hashing" in json.loads(out)["index"]
    Table.open(path).upsert(orders(range(40), "first", 10))
    assert "resize: 8 buckets became 2" in run("service", "run", path, "--resize-file-bytes", 100_000_000)[1]
    assert {part.buckets for part in Table.open(path).layout().partitions} == {1}
    code, _, err = run("create", tmp_path / "odd", *words, "--index", "OddBuckets(4)")
    assert code == 2 and "there is no index 'OddBuckets'" in err


@pytest.mark.shows("X4", "H4")
def test_double_says_what_it_would_do_and_goes_on_until_it_is_over(run: Any, tmp_path: Path) -> None:
    path = tmp_path / "simple"
    table = orders_table(path, index=SimpleBuckets(2))
    table.upsert(orders(range(40), "first", 10))
    before = rows_of(table)
    out = run("buckets", "double", path)[1]
    assert "simple buckets: 2 -> 4 per partition; not begun" in out and "give --yes" in out
    assert "p0: bucket 0 -> 0 and 2" in out
    facts = json.loads(run("buckets", "double", path, "--json")[1])
    assert (facts["before"], facts["after"], len(facts["left"]), facts["done"]) == (2, 4, 4, [])
    first = json.loads(run("buckets", "double", path, "--rounds", 1, "--yes", "--json")[1])
    assert (len(first["done"]), first["is_finished"]) == (1, False)
    assert "2 of 4 buckets are split" in run("buckets", "double", path)[1]
    assert run("buckets", "resize", path)[0] == 5, "another is at it"
    assert "simple buckets: 2 per partition" in run("buckets", "undo-double", path)[1]
    assert "simple buckets: 4 per partition" in run("buckets", "double", path, "--yes")[1]
    assert run("buckets", "undo-double", path)[0] == 2
    assert rows_of(table) == before
