"""The first two commands of a new user."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bucketlake import Table
from bucketlake.cli import demo


def test_the_doctor_says_what_is_fine_and_what_helps(run: Any, tmp_path: Path) -> None:
    (tmp_path / "orders").mkdir()
    code, out, _ = run("doctor", tmp_path / "orders")
    assert code == 0
    assert "ok      store: put if absent" in out
    checks = json.loads(run("doctor", tmp_path / "orders", "--json")[1])
    assert {check["verdict"] for check in checks} == {"fine"}
    (tmp_path / "file").write_text("")
    code, out, _ = run("doctor", tmp_path / "file")
    assert code == 7
    assert "WRONG" in out


def test_the_demo_makes_a_table_and_checks_it(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demo, "ORDERS", 1_000)
    code, out, error = run("demo", "--keep", tmp_path / "orders")
    assert code == 0, error
    assert "Every one of 1,500 rows is as it should be" in out
    assert Table.open(tmp_path / "orders").to_arrow().num_rows == 1_500
    code, _, error = run("demo", "--keep", tmp_path / "orders")
    assert code == 2
    assert "is there already" in error
