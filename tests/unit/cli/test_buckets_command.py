"""`bucketlake buckets` must say what it is about to rewrite, and do nothing unless told."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bucketlake.index import declare_rules
from bucketlake.services.rescale import rescale_table
from stand_ins.orders_table import rows_of, written_table

pytestmark = pytest.mark.shows("P5")


def test_rules_are_shown_changed_and_taken_back(run: Any, tmp_path: Path) -> None:
    path = tmp_path / "orders"
    table = written_table(path)
    before = rows_of(table)
    assert "no bucket rules" in run("buckets", "show-config", path)[1]
    code, out, _ = run("buckets", "overwrite", path, "p0,5")
    assert code == 0
    assert "p0: 2 -> 5 buckets" in out
    assert "give --yes" in out
    assert json.loads(run("buckets", "show-config", path, "--json")[1])["versions"] == []
    planned = json.loads(run("buckets", "overwrite", path, "p0,5", "--json")[1])
    assert [(p["partition"], p["before"], p["after"]) for p in planned["partitions"]] == [("p0", 2, 5)]
    done = json.loads(run("buckets", "overwrite", path, "p0,5", "--yes", "--json")[1])
    assert done["partitions"] == ["p0"]
    added = json.loads(run("buckets", "add", path, "p1,3", "--yes", "--json")[1])
    shown = json.loads(run("buckets", "show-config", path, "--json")[1])["versions"]
    assert [(v["rules"], v["default"]) for v in shown] == [("p0,5", 2), ("p1,3;p0,5", 2)]
    assert rows_of(table) == before
    assert "give --yes" in run("buckets", "rollback", path, added["done"])[1]
    run("buckets", "rollback", path, added["done"], "--yes")
    assert len(json.loads(run("buckets", "show-config", path, "--json")[1])["versions"]) == 1
    assert rows_of(table) == before


def test_several_rescales_are_shown_and_taken_back_at_once(run: Any, tmp_path: Path) -> None:
    path = tmp_path / "orders"
    table = written_table(path)
    before = rows_of(table)
    done = [
        json.loads(run("buckets", "overwrite", path, rules, "--yes", "--json")[1])["done"]
        for rules in ("p,3", "p,4")
    ]
    code, _, err = run("buckets", "rollback", path, done[0])
    assert code == 2 and "--with-newer" in " ".join(err.split())
    out = run("buckets", "rollback", path, done[0], "--with-newer")[1]
    assert all(f"replacecommit of {instant}" in out for instant in done) and "give --yes" in out
    assert len(json.loads(run("buckets", "show-config", path, "--json")[1])["versions"]) == 2, "a dry run"
    facts = json.loads(run("buckets", "rollback", path, done[0], "--with-newer", "--yes", "--json")[1])
    assert (facts["done"], facts["instants"]) == (True, done[::-1])
    assert json.loads(run("buckets", "show-config", path, "--json")[1])["versions"] == []
    assert rows_of(table) == before


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("overwrite", "p0"), "a comma"),
        (("overwrite", "p0,0"), "position 3"),
        (("rollback", "20200101000000000"), "no completed rescale"),
    ],
)
def test_a_call_that_makes_no_sense_changes_nothing(
    run: Any, tmp_path: Path, words: tuple[str, ...], message: str
) -> None:
    path = tmp_path / "orders"
    table = written_table(path)
    before = [file.path for file in table.store.list("", recursive=True).files]
    code, _, err = run("buckets", words[0], path, *words[1:], "--yes")
    assert (code, message in " ".join(err.split())) == (2, True)
    assert [file.path for file in table.store.list("", recursive=True).files] == before


@pytest.mark.shows("P14")
def test_a_rescale_that_was_cut_off_is_resumed_or_aborted(run: Any, tmp_path: Path) -> None:
    path = tmp_path / "orders"
    table = written_table(path)
    before = rows_of(table)

    def dying(function: Any, items: Any, /) -> list[Any]:
        function(items[0])
        raise KeyboardInterrupt

    def cut_off() -> None:
        with pytest.raises(KeyboardInterrupt):
            rescale_table(table.store, declare_rules("p,4", 2), tasks=dying)

    cut_off()
    code, _, err = run("buckets", "overwrite", path, "p,3", "--yes")
    assert code != 0
    assert "buckets resume" in err
    assert "buckets abort" in err
    _, out, _ = run("buckets", "abort", path)
    assert "delete p0/00000000" in " ".join(out.split())
    assert "give --yes" in out
    aborted = json.loads(run("buckets", "abort", path, "--yes", "--json")[1])
    assert aborted["done"]
    assert aborted["files"]
    code, _, err = run("buckets", "resume", path)
    assert (code, "no rescale of the table is pending" in " ".join(err.split())) == (2, True)
    cut_off()
    done = json.loads(run("buckets", "resume", path, "--json")[1])
    assert done["partitions"] == ["p0", "p1"]
    assert rows_of(table) == before
    planned = json.loads(run("buckets", "overwrite", path, "p0,5", "--budget-bytes", "64", "--json")[1])
    assert planned["base_rows"] == len(before)
    assert sum(partition["base_rows"] for partition in planned["partitions"]) == len(before)
    assert all(partition["reason"] for partition in planned["partitions"])
