"""Commands that change a table's past say what they would do, and do it only when told."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from bucketlake import Table, create_table
from bucketlake.state import load_state
from bucketlake.timeline import load_history
from bucketlake.write import ArrowRows, Operation, run_write

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string())])


@pytest.fixture
def table(tmp_path: Path) -> Table:
    made = create_table(tmp_path, SCHEMA, key="id", buckets=2, name="past")
    for name in ("first", "second", "third"):
        upsert(made, name)
    return made


def upsert(table: Table, name: str) -> None:
    rows = pa.Table.from_pylist([{"id": n, "name": name} for n in range(4)], SCHEMA)
    run_write(ArrowRows(rows), table.store, Operation.UPSERT)


def writes(table: Table) -> list[str]:
    return [i.requested for i in load_state(table.store).timeline.writes]


def names(table: Table) -> set[str]:
    return set(table.to_arrow().column("name").to_pylist())


def test_archive(run: Any, table: Table, tmp_path: Path) -> None:
    words = ("archive", tmp_path, "--keep-min", 1, "--keep-max", 2)
    code, out, _ = run(*words)
    assert code == 0
    assert "archive 2 instants" in out and "--yes" in out
    assert len(writes(table)) == 3
    done = json.loads(run(*words, "--yes", "--json")[1])
    assert (done["done"], len(done["instants"]), done["stop"]) == (True, 2, None)
    assert len(writes(table)) == 1
    assert len(load_history(table.store, load_state(table.store).properties)) == 2
    assert run("archive", tmp_path, "--keep-min", 0)[0] == 2


def test_rollback(run: Any, table: Table, tmp_path: Path) -> None:
    newest = writes(table)[-1]
    code, out, _ = run("rollback", tmp_path, newest)
    assert code == 0
    assert f"commit of {newest}" in out and "--yes" in out
    assert names(table) == {"third"}
    assert json.loads(run("rollback", tmp_path, newest, "--yes", "--json")[1])["done"] is True
    assert names(table) == {"second"}
    code, out, err = run("rollback", tmp_path, writes(table)[0], "--yes")
    assert (code, out) == (2, "")
    assert "newer instants may depend on it" in err


def test_savepoint_and_restore(run: Any, table: Table, tmp_path: Path) -> None:
    first = writes(table)[0]
    made = json.loads(run("savepoint", tmp_path, first, "--comment", "good", "--json")[1])
    assert made == {"instant": first, "files": 2, "comment": "good"}
    assert "good" in run("savepoints", tmp_path)[1]
    code, out, _ = run("restore", tmp_path, first)
    assert code == 0
    assert "restore to" in out and "--yes" in out
    assert names(table) == {"third"}
    assert len(json.loads(run("restore", tmp_path, first, "--yes", "--json")[1])["instants"]) == 2
    assert names(table) == {"first"}
    assert "--yes" in run("delete-savepoint", tmp_path, first)[1]
    run("delete-savepoint", tmp_path, first, "--yes")
    assert json.loads(run("savepoints", tmp_path, "--json")[1]) == []
    code, _, err = run("restore", tmp_path, first, "--yes")
    assert code == 2
    assert "no savepoint" in err


def test_fsck_exits_with_3_on_findings_and_lists_them(run: Any, table: Table, tmp_path: Path) -> None:
    code, out, _ = run("fsck", tmp_path)
    assert code == 0
    assert "sound: 4 rows" in out
    lost = next(tmp_path.glob(f"*_{writes(table)[-1]}.parquet"))
    lost.unlink()
    code, out, _ = run("fsck", tmp_path, "--json")
    assert code == 3
    found = json.loads(out)
    assert found["sound"] is False
    assert {"kind": "MISSING_FILE", "place": lost.name, "text": "a reader of the present needs it"} in found[
        "findings"
    ]
    assert run("fsck", tmp_path)[0] == 3


def test_fsck_finds_properties_that_are_cut_and_mends_them_when_told(
    run: Any, table: Table, tmp_path: Path
) -> None:
    properties = tmp_path / ".hoodie/hoodie.properties"
    whole = properties.read_bytes()
    properties.write_bytes(whole[: len(whole) // 2])
    assert "fsck TABLE --repair" in run("read", tmp_path)[2]
    code, out, _ = run("fsck", tmp_path, "--json")
    assert code == 3
    assert [(f["kind"], f["place"]) for f in json.loads(out)["findings"]] == [
        ("UNREADABLE", ".hoodie/hoodie.properties")
    ]
    assert "--yes" in run("fsck", tmp_path, "--repair")[1]
    assert properties.read_bytes() == whole[: len(whole) // 2]
    assert run("fsck", tmp_path, "--repair", "--yes")[0] == 0
    assert properties.read_bytes() == whole
    assert run("fsck", tmp_path)[0] == 0


def test_what_a_dead_writer_left_is_a_note_and_exits_with_0(run: Any, table: Table, tmp_path: Path) -> None:
    file = next(tmp_path.glob(f"*_{writes(table)[-1]}.parquet"))
    (tmp_path / file.name.replace(writes(table)[-1], str(int(writes(table)[-1]) + 1))).write_bytes(
        b"half a fi"
    )
    code, out, _ = run("fsck", tmp_path, "--json")
    assert code == 0
    assert [note["kind"] for note in json.loads(out)["notes"]] == ["ORPHAN"]
