"""The command gives the advice that Python gives, from files in any format."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from bucketlake import create_table

pytestmark = pytest.mark.shows("X5")


def rows_of(*counts: int) -> pa.Table:
    total = sum(counts)
    days = np.repeat([f"2026-06-{day + 1:02d}" for day in range(len(counts))], counts)
    ids = [f"o-{number}" for number in range(total)]
    return pa.table({"id": ids, "day": days, "ts": np.arange(total), "amount": np.arange(total) / 7})


def test_files_of_every_format_give_the_same_advice(run: Any, tmp_path: Path) -> None:
    rows = rows_of(300, 50)
    pq.write_table(rows.slice(0, 200), tmp_path / "a.parquet")
    pq.write_table(rows.slice(200), tmp_path / "b.parquet")
    pyarrow.csv.write_csv(rows, tmp_path / "a.csv")
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, rows.to_pylist())))
    asked = ("--key", "id", "--partition", "day", "--batch-rows", 10, "--growth", 3)
    code, text, error = run("advise", tmp_path / "a.parquet", tmp_path / "b.parquet", *asked)
    assert code == 0, error
    assert "350 rows in 2 partitions" in text
    assert "SimpleBuckets(1) × 3" in text
    assert 'create_table("PATH", "id STRING, day STRING, ts BIGINT, amount DOUBLE", key="id"' in text
    found = [
        json.loads(run("advise", *(tmp_path / name for name in names), *asked, "--json")[1])
        for names in (["a.parquet", "b.parquet"], ["a.csv"], ["a.jsonl"])
    ]
    for one in found:
        assert (one["rows"], one["verdict"]["index"], len(one["engines"])) == (350, "SimpleBuckets(1)", 5)


def test_a_command_refuses_files_that_do_not_fit(run: Any, tmp_path: Path) -> None:
    rows = rows_of(30)
    pq.write_table(rows, tmp_path / "a.parquet")
    pq.write_table(rows.drop_columns(["ts"]), tmp_path / "b.parquet")
    other = rows.set_column(0, "id", pa.array(range(30)))
    pq.write_table(other, tmp_path / "other.parquet")
    pq.write_table(rows.slice(0, 0), tmp_path / "empty.parquet")
    create_table(str(tmp_path / "orders"), rows.schema, key="id").upsert(rows)
    cases = [
        (("a.parquet", "b.parquet", "--key", "id"), "have different columns: ts"),
        (("a.parquet", "other.parquet", "--key", "id"), "column 'id' is int64, and string in"),
        (("a.parquet",), "no key was named"),
        (("a.parquet", "--key", "no"), "there is no such column; there are id, day, ts, amount"),
        (("empty.parquet", "--key", "id"), "there are no rows"),
        (("gone.parquet", "--key", "id"), "No such file"),
        (("nowhere",), "is no table, and its name is not that of a"),
        (("orders", "--key", "id"), "says itself that its key is id"),
    ]
    for (*words,), wanted in cases:
        code, _, error = run(
            "advise", *(tmp_path / w if "." in w or w in ("nowhere", "orders") else w for w in words)
        )
        assert code == 2, words
        assert wanted in " ".join(error.split()), error
    assert run("advise", tmp_path / "orders")[0] == 0
