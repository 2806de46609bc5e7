"""`bucketlake index create | drop | list`: nothing is done without --yes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from bucketlake import Table, create_table
from stand_ins.made_index import check_secondary

pytestmark = pytest.mark.shows("R11", "H4")


@pytest.fixture
def table(tmp_path: Path) -> Table:
    rows = pa.table({"id": ["a", "b"], "city": ["Oslo", None], "dt": ["x", "y"]})
    made = create_table(tmp_path / "t", rows.schema, key="id", partition="dt", buckets=2)
    made.upsert(rows)
    return made


def test_an_index_is_made_listed_and_dropped(run: Any, table: Table) -> None:
    where = table.store.uri
    code, out, _ = run("index", "list", where)
    assert code == 0 and "there are none" in out
    code, _, fault = run("index", "create", where, "by_city", "--on", "city", "--yes")
    assert code == 2 and "record_index=True" in fault
    asked = ("index", "create", where, "by_city", "--on", "city", "--shards", "2", "--record-index")
    code, out, _ = run(*asked)
    assert code == 0 and "build a record-level index" in out and "by_city of city" in out
    assert "give --yes to do it" in out and not table.indexes()
    planned = json.loads(run(*asked, "--json")[1])
    assert (planned["done"], planned["rows"], planned["shards"]) == (False, 2, 2)
    built = json.loads(run(*asked, "--yes", "--json")[1])
    assert (built["done"], built["entries"], built["shards"]) == (True, 2, 2)
    table.upsert(pa.table({"id": ["c"], "city": ["Rome"], "dt": ["x"]}))
    check_secondary(table)
    (shown,) = json.loads(run("index", "list", where, "--json")[1])["indexes"]
    assert (shown["name"], shown["column"], shown["state"]) == ("by_city", "city", "in step")
    lines = run("index", "list", where)[1].splitlines()
    assert any(line.split()[:3] == ["by_city", "city", "2"] for line in lines)
    assert "by_city of city" in run("describe", where)[1]
    assert "secondary_index_by_city (2 shards)" in run("metadata", "status", where)[1]
    code, out, _ = run("index", "drop", where, "by_city")
    assert code == 0 and "give --yes to do it" in out and table.indexes()
    code, out, _ = run("index", "drop", where, "by_city", "--yes")
    assert code == 0 and not table.indexes()
    code, _, fault = run("index", "drop", where, "by_city", "--yes")
    assert code == 2 and "has no index 'by_city'" in fault
