"""`bucketlake upsert --spark` does on a session what it does without one."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from bucketlake import Table, create_table
from bucketlake.cli import main

pytestmark = pytest.mark.spark


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Run a command; return exit code, stdout and stderr."""

    def command(*words: object) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as stop:
            main([str(word) for word in words])
        printed = capsys.readouterr()
        return int(stop.value.code or 0), printed.out, printed.err

    return command


def test_files_are_written_and_deleted_on_a_local_session(
    run: Callable[..., tuple[int, str, str]], spark: SparkSession, tmp_path: Path
) -> None:
    path = tmp_path / "orders"
    create_table(path, "id STRING, day DATE, n INT, raw BINARY", key="id", partition="day", buckets=2)
    (tmp_path / "a.csv").write_text("id,day,n,raw\na,2026-06-18,1,AP8=\n")
    (tmp_path / "b.json").write_text('{"id": "b", "day": "2026-06-18", "n": null, "raw": null}\n')
    days = pa.array([20_000], pa.date32())
    rows = {"id": ["c"], "day": days, "n": pa.array([3], pa.int32()), "raw": [b"x"], "note": ["new"]}
    pq.write_table(pa.table(rows), tmp_path / "c.parquet")
    (tmp_path / "bad.csv").write_text("id,day,n,raw\na,2026-06-18,one,\n")
    (tmp_path / "gone.csv").write_text("id,why\na,x\n")
    files = [tmp_path / name for name in ("a.csv", "b.json", "c.parquet")]

    code, out, _ = run("upsert", path, *files[:2], "--spark", "--json")
    assert (code, json.loads(out)["inserted"]) == (0, 2)
    code, _, err = run("upsert", path, tmp_path / "bad.csv", "--spark")
    assert code == 2
    assert "bad.csv: row 1, column 'n': 'one' is no int32" in " ".join(err.split())
    assert run("upsert", path, files[2], "--spark", "--merge-schema")[0] == 0
    code, out, _ = run("delete", path, "--from", tmp_path / "gone.csv", "--spark", "--json")
    assert (code, json.loads(out)["deleted"]) == (0, 1)
    left = Table.open(path).to_arrow(columns=["id", "n", "raw", "note"]).to_pylist()
    assert sorted(map(str, left)) == [
        "{'id': 'b', 'n': None, 'raw': None, 'note': None}",
        "{'id': 'c', 'n': 3, 'raw': b'x', 'note': 'new'}",
    ]
