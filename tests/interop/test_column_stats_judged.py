"""Hudi makes column statistics of the footers of our files, and skips files by them: none may be skipped wrongly."""

from __future__ import annotations

from pathlib import Path

import pytest

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
