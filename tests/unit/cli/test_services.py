"""What keeps a table small must say what it is about to delete, and do nothing unless told."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bucketlake.state import load_state
from bucketlake.timeline import Action
from stand_ins.orders_table import orders, rows_of, written_table


def answer(result: tuple[int, str, str]) -> Any:
    code, out, err = result
    assert (code, err) == (0, "")
    return json.loads(out)


def test_compact_says_what_it_would_do_and_does_it_when_told(run: Any, tmp_path: Path) -> None:
    table = written_table(tmp_path / "orders")
    path = tmp_path / "orders"
    before = rows_of(table)
    code, out, _ = run("compact", path)
    assert code == 0
    assert "file groups" in out
    assert "give --yes" in out
    found = answer(run("compact", path, "--json"))
    assert found["done"] == []
    assert found["file_groups"] > 0
    assert load_state(table.store).timeline.pending() == ()
    assert answer(run("compact", path, "--delta-commits", 9, "--json"))["file_groups"] == 0
    done = answer(run("compact", path, "--yes", "--json"))
    assert len(done["done"]) == 1
    assert done["log_files"] == found["log_files"]
    assert rows_of(table) == before
    assert "nothing to compact" in run("compact", path, "--yes")[1]


def test_clean_says_what_it_would_delete_and_deletes_it_when_told(run: Any, tmp_path: Path) -> None:
    table = written_table(tmp_path / "orders", table_type="COPY_ON_WRITE")
    path = tmp_path / "orders"
    before = rows_of(table)
    code, out, _ = run("clean", path, "--retain-commits", 1)
    assert code == 0
    assert "delete " in out
    assert "give --yes" in out
    planned = answer(run("clean", path, "--retain-commits", 1, "--json"))
    assert planned["files"] > 0
    done = answer(run("clean", path, "--retain-commits", 1, "--yes", "--json"))
    assert done["files"] == planned["files"]
    assert len(load_state(table.store).timeline.completed(Action.CLEAN)) == 1
    assert rows_of(table) == before
    assert "nothing to clean" in run("clean", path, "--retain-commits", 1, "--yes")[1]


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("clean",), 2, "commits, of hours, or of file versions"),
        (("clean", "--retain-commits", "0"), 2, "at least 1"),
        (("compact", "--delta-commits", "0"), 2, "positive"),
        (("compact", "--yes"), 4, "copy-on-write"),
    ],
)
def test_a_wrong_call_is_an_error_and_changes_nothing(
    run: Any, tmp_path: Path, words: tuple[str, ...], code: int, message: str
) -> None:
    table = written_table(tmp_path / "orders", table_type="COPY_ON_WRITE")
    table.upsert(orders([0], "x", 60))
    command, *rest = words
    before = sorted(str(p) for p in tmp_path.rglob("*"))
    found, _, err = run(command, tmp_path / "orders", *rest)
    assert (found, message in err) == (code, True), err
    assert sorted(str(p) for p in tmp_path.rglob("*")) == before
