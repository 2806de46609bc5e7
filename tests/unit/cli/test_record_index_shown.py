"""`describe`, `layout` and `explain` of a table with a record-level index."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from bucketlake import RecordIndex, create_table

pytestmark = pytest.mark.shows("X6")


def test_the_index_is_shown_in_words(run: Any, tmp_path: Path) -> None:
    rows = pa.table({"id": [1, 10, 100], "dt": ["a", "a", "b"]})
    create_table(
        tmp_path / "t", rows.schema, key="id", partition="dt", index=RecordIndex(shards=1), maintenance="off"
    ).upsert(rows)
    words = "record-level index of the table: 1 shard, 0 entries in base files, 3 in logs over them; in step"
    assert json.loads(run("describe", tmp_path / "t", "--json")[1])["index"] == words
    assert json.loads(run("layout", tmp_path / "t", "--json")[1])["index"] == words
    assert f"index: {words}" in " ".join(run("layout", tmp_path / "t")[1].split())
    code, out, _ = run("explain", tmp_path / "t", "100")
    assert code == 0 and "key          '100' in partition 'b'" in out
    for line in (
        "shard        0 of 1 (record-index-0000-0)",
        "entry        b/",
        "index file   .record-index-0000-0_",
    ):
        assert line in out
    assert "live         yes" in out and "written by   commit of" in out
    found = json.loads(run("explain", tmp_path / "t", "7", "--json")[1])
    assert (found["partition"], found["more"]["entry"], found["file_groups"]) == (None, "none", [])
