"""`get-by`, `read` and `explain` of a table with a secondary index."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from bucketlake import RecordIndex, create_table

pytestmark = pytest.mark.shows("R11")


@pytest.fixture
def table(tmp_path: Path) -> Path:
    rows = pa.table({"id": [1, 2, 3], "city": ["Oslo", "Rome", None], "n": [1, 2, 2]})
    made = create_table(tmp_path / "t", rows.schema, key="id", index=RecordIndex(shards=1), maintenance="off")
    made.upsert(rows)
    made.create_index("by_city", on="city")
    made.create_index("by_n", on="n")
    return tmp_path / "t"


def found(answer: tuple[int, str, str]) -> list[Any]:
    code, out, err = answer
    assert code == 0, err
    return [row["id"] for row in json.loads(out)]


def test_rows_are_fetched_by_the_values_of_a_column(run: Any, table: Path) -> None:
    assert found(run("get-by", table, "city", "Oslo", "Rome", "--json")) == [1, 2]
    assert found(run("get-by", table, "n", 2, "--json", "--columns", "id")) == [2, 3]
    assert found(run("read", table, "--where", "city is null", "--json")) == [3]
    assert run("get-by", table, "city", "Bern", "--json") == (1, "[]\n", "")


def test_what_cannot_be_fetched_is_said(run: Any, table: Path) -> None:
    code, _, err = run("get-by", table, "id", "1")
    assert code == 2 and "create_index" in err and "it has city, n" in " ".join(err.split())
    assert "column 'town'" in run("get-by", table, "town", "Oslo")[2]
    assert "'two' is none" in run("get-by", table, "n", "two")[2]


def test_a_key_is_explained_with_its_entries(run: Any, table: Path) -> None:
    out = " ".join(run("explain", table, "2")[1].split())
    assert "secondary by_city: city = 'Rome', shard" in out and "secondary by_n: n = '2', shard" in out
    entries = json.loads(run("explain", table, "3", "--json")[1])["entries"]
    assert [(one["index"], one["value"], one["state"]) for one in entries] == [
        ("by_city", None, "in step"),
        ("by_n", "2", "in step"),
    ]
