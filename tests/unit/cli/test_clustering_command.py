"""`bucketlake cluster` must say what it is about to rewrite, and do nothing unless told."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bucketlake.state import load_state
from bucketlake.timeline import Action
from stand_ins.orders_table import orders, rows_of, written_table


def test_cluster_says_what_it_would_do_and_does_it_when_told(run: Any, tmp_path: Path) -> None:
    path = tmp_path / "orders"
    table = written_table(path)
    before = rows_of(table)
    code, out, _ = run("cluster", path, "--by", "name,ts")
    assert code == 0
    assert "cluster 4 file groups by name, ts" in out
    assert "give --yes" in out
    assert load_state(table.store).timeline.pending() == ()
    found = json.loads(run("cluster", path, "--by", "name", "--partition", "p0", "--json")[1])
    assert (found["done"], found["file_groups"]) == ([], 2)
    done = json.loads(run("cluster", path, "--by", "name", "--partition", "p0", "--yes", "--json")[1])
    assert (len(done["done"]), done["file_groups"]) == (1, 2)
    assert len(load_state(table.store).timeline.completed(Action.REPLACE_COMMIT)) == 1
    assert "clustering " in run("cluster", path, "--by", "name", "--yes")[1]
    assert "nothing to cluster" in run("cluster", path, "--by", "name", "--yes")[1]
    assert rows_of(table) == before
    table.upsert(orders([0], "later", 99))
    assert json.loads(run("cluster", path, "--by", "name", "--hours", 1, "--json")[1])["file_groups"] == 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--by", "nobody"), "no column 'nobody'"),
        (("--by", ","), "one at least"),
        (("--by", "name", "--partition", "p9"), "no partition 'p9'"),
        (("--by", "name", "--min-bytes", 2, "--max-bytes", 1), "Change one of them"),
    ],
)
def test_a_call_that_makes_no_sense_changes_nothing(
    run: Any, tmp_path: Path, words: tuple[Any, ...], message: str
) -> None:
    path = tmp_path / "orders"
    table = written_table(path)
    before = [file.path for file in table.store.list("", recursive=True).files]
    code, _, err = run("cluster", path, *words, "--yes")
    assert (code, message in " ".join(err.split())) == (2, True)
    assert [file.path for file in table.store.list("", recursive=True).files] == before
