"""Hudi makes column statistics of the footers of our files, and skips files by them: none may be skipped wrongly."""

from __future__ import annotations

import math
from pathlib import Path

import pyarrow as pa
import pytest

from bucketlake import create_table
from judges.hudi_jvm import HudiJvm, options_for
from stand_ins.orders_table import SCHEMA, orders, orders_table

pytestmark = pytest.mark.interop

META = ("_hoodie_commit_time", "_hoodie_commit_seqno", "_hoodie_record_key", "_hoodie_partition_path")
WITH_METADATA = {
    "hoodie.metadata.enable": "true",
    "hoodie.metadata.index.column.stats.enable": "true",
    "hoodie.metadata.index.column.stats.column.list": ",".join([*META, "_hoodie_file_name", *SCHEMA.names]),
}


@pytest.mark.shows("S5")
@pytest.mark.parametrize("table_type", ["COPY_ON_WRITE", "MERGE_ON_READ"])
def test_hudi_skips_no_file_of_ours_that_has_rows(hudi: HudiJvm, tmp_path: Path, table_type: str) -> None:
    path = tmp_path / "orders"
    table = orders_table(path, table_type=table_type)
    table.upsert(orders(range(40), "start", 0))
    table.upsert(orders(range(5, 15), "again", 1))
    by_hudi = options_for("orders", table_type=table_type, buckets=2, more=WITH_METADATA)
    hudi.write(path, orders(range(2), "hudi", 2), by_hudi)
    rows = hudi.read(path, {"hoodie.metadata.enable": "false"}).to_pylist()
    assert len(rows) == 40
    view = (
        f"create or replace temporary view orders using hudi options (path '{path}', "
        "`hoodie.metadata.enable` 'true', `hoodie.enable.data.skipping` 'true')"
    )
    expected = {
        (name, str(row[name])): sum(other[name] == row[name] for other in rows)
        for name in [*META, "_hoodie_file_name", *SCHEMA.names]
        for row in rows
        if row["id"] == 7
    }
    counts = (
        f"select '{name}' name, '{value}' value, count(*) n from orders where {name} = '{value}'"
        for name, value in expected
    )
    found = hudi.sql(view, " union all ".join(counts), settings=WITH_METADATA)
    assert {(row["name"], row["value"]): row["n"] for row in found} == expected


FLOATS = pa.schema(
    [
        ("id", pa.int64()),
        ("x", pa.float64()),
        ("small", pa.float32()),
        ("s", pa.struct([("x", pa.float64()), ("n", pa.int32())])),
        ("ts", pa.int64()),
        ("dt", pa.string()),
    ]
)
NAN, INFINITY = math.nan, math.inf
VALUES = {
    "nothing but NaN": [NAN],
    "NaN above": [NAN, -1.0, -2.0],
    "NaN below": [NAN, 7.0, 9.0],
    "NaN and null": [None, NAN],
    "numbers": [-0.0, 3.0, 0.0],
    "infinities": [INFINITY, -INFINITY],
}
"""Each in a partition, so in files, of its own."""


def floats(ts: int) -> pa.Table:
    rows = [
        {
            "id": number * 10 + place,
            "x": value,
            "small": value,
            "s": {"x": value, "n": place},
            "ts": ts,
            "dt": f"p{number}",
        }
        for number, values in enumerate(VALUES.values())
        for place, value in enumerate(values)
    ]
    return pa.Table.from_pylist(rows, FLOATS)


@pytest.mark.shows("S5")
@pytest.mark.parametrize("table_type", ["COPY_ON_WRITE", "MERGE_ON_READ"])
def test_hudi_skips_no_file_of_ours_that_has_nan(hudi: HudiJvm, tmp_path: Path, table_type: str) -> None:
    """Files of numbers and NaN: compared with any number, they give Hudi what a scan of all of them gives it."""
    path = tmp_path / "floats"
    table = create_table(
        path,
        FLOATS,
        key="id",
        partition="dt",
        ordering="ts",
        buckets=1,
        table_type=table_type,
        name="t",
    )
    table.upsert(floats(0))
    table.upsert(floats(1).slice(3, 4))
    columns = {"hoodie.metadata.index.column.stats.column.list": "id,x,small,s.x"}
    with_metadata = {**WITH_METADATA, **columns}
    more = pa.Table.from_pylist(
        [{"id": 1000, "x": 0.5, "small": 0.5, "s": None, "ts": 5, "dt": "other"}], FLOATS
    )
    hudi.write(path, more, options_for("t", table_type=table_type, buckets=1, more=with_metadata))
    conditions = ["x > 0", "x >= 8", "x < 0", "x = 7", "x != 3", "x < double('NaN')", "small > 8", "s.x > 8"]
    counts = ", ".join(f"count_if({condition})" for condition in conditions)
    reads = f"temporary view t using hudi options (path '{path}', `hoodie.metadata.enable` '%s')"
    (scanned,) = hudi.sql(f"create {reads % 'false'}", f"select array({counts}) n from t")
    queries = (
        f"select {number} q, count(*) n from t where {condition}"
        for number, condition in enumerate(conditions)
    )
    found = hudi.sql(f"create {reads % 'true'}", " union all ".join(queries), settings=with_metadata)
    ordered = [row["n"] for row in sorted(found, key=lambda row: row["q"])]
    assert dict(zip(conditions, ordered, strict=True)) == dict(zip(conditions, scanned["n"], strict=True))
