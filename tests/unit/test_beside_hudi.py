"""A table says itself what Hudi cannot do with it: when it is made, and when it is described; not at every call."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bucketlake import (
    ConsistentBuckets,
    DynamicBuckets,
    ExtendibleBuckets,
    PartitionBuckets,
    RecordIndex,
    SimpleBuckets,
    create_table,
)
from bucketlake.cli import main as command_line

RING = ConsistentBuckets(2)
RANGES = PartitionBuckets("[p0,p9],3", default=2, rule_type="range")


@pytest.mark.parametrize(
    ("made", "said"),
    [
        ({"index": SimpleBuckets(2)}, []),
        ({"index": PartitionBuckets("^p0,3", default=2)}, []),
        ({"index": RecordIndex()}, []),
        ({"index": DynamicBuckets(), "table_type": "mor"}, []),
        ({"index": RING}, ["no copy-on-write table with consistent hashing"]),
        ({"index": RING, "table_type": "mor"}, ["hoodie.spark.sql.optimized.writes.enable=false"]),
        (
            {"index": ConsistentBuckets(2, virtual_logs=True), "table_type": "mor"},
            ["optimized.writes", "virtual logs"],
        ),
        ({"index": ExtendibleBuckets(2)}, ["does not know extendible hashing"]),
        ({"index": RANGES}, ["bucket rules of type 'range'"]),
        ({"allow_null_elements": True}, ["null in an array"]),
    ],
)
def test_a_table_says_what_hudi_cannot_do_with_it(
    made: dict[str, Any], said: list[str], tmp_path: Path
) -> None:
    table = create_table(tmp_path / "t", "id STRING, dt STRING", key="id", partition="dt", **made)
    found = table.describe().beside_hudi
    assert len(found) == len(said) and all(part in text for part, text in zip(said, found, strict=True))
    assert ("beside Hudi" in table._repr_html_()) is bool(said)


def test_create_and_describe_print_it_and_writes_do_not(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, rows = str(tmp_path / "t"), tmp_path / "rows.jsonl"
    rows.write_text(json.dumps({"id": "a"}) + "\n")
    printed = []
    for words in (
        ["create", path, "--schema", "id STRING", "--key", "id", "--index", "ConsistentBuckets(2)"],
        ["describe", path],
        ["upsert", path, str(rows)],
        ["get", path, "a"],
    ):
        with pytest.raises(SystemExit) as ended:
            command_line(words)
        assert ended.value.code == 0
        printed.append(capsys.readouterr().out)
    note = (
        "note: Hudi reads it and cannot write it: it writes no copy-on-write table with consistent hashing."
    )
    assert [note in text for text in printed] == [True, True, False, False]
