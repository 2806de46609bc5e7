"""Tables that Hudi wrote without meta fields, read by Hudi, by hudi-rs and by us."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from bucketlake import Table
from bucketlake.errors import UnsupportedError
from judges.hudi_jvm import HudiJvm, JudgeError, options_for
from judges.hudi_rs import read_snapshot
from judges.rows import assert_same_rows

pytestmark = [pytest.mark.interop, pytest.mark.shows("S5")]

WITHOUT = {"hoodie.populate.meta.fields": "false"}
GENERATOR = "hoodie.datasource.write.keygenerator.class"
COMPLEX = {GENERATOR: "org.apache.hudi.keygen.ComplexKeyGenerator"}
PARQUET_LOG = {"hoodie.logfile.data.block.format": "parquet"}
SIX = {"hoodie.write.table.version": "6", "hoodie.write.auto.upgrade": "false"}


def orders(*ids: int, ts: int, name: str) -> pa.Table:
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "shop": [f"s{n % 3}" for n in ids],
            "day": pa.array([datetime.date(2024, 1, 1 + n) for n in ids]),
            "name": [f"{name}{n}" for n in ids],
            "ts": pa.array([ts] * len(ids), pa.int64()),
            "dt": [f"p{n % 2}" for n in ids],
        }
    )


def write_history(hudi: HudiJvm, path: Path, options: Mapping[str, str]) -> None:
    """Insert, update (once too late), and delete."""
    hudi.write(path, orders(*range(8), ts=10, name="a"), options)
    late = orders(3, ts=5, name="late")
    hudi.write(path, pa.concat_tables([orders(1, 2, 9, ts=20, name="b"), late]), options)
    hudi.write(path, orders(4, ts=30, name=""), options, operation="delete")


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        pytest.param(
            {"key": "id,shop", "more": {**COMPLEX, **PARQUET_LOG, **SIX}}, {"id": 1, "shop": "s1"}, id="two"
        ),
        pytest.param({"more": COMPLEX}, 1, id="one-by-the-complex-generator"),
        pytest.param({"key": "day"}, datetime.date(2024, 1, 2), id="a-date"),
    ],
)
def test_a_table_without_meta_fields_is_read_as_hudi_and_hudi_rs_read_it(
    hudi: HudiJvm, tmp_path: Path, settings: dict[str, Any], key: object
) -> None:
    more = {**WITHOUT, **settings.get("more", {})}
    options = options_for("orders", **{"table_type": "MERGE_ON_READ", **settings, "more": more})
    write_history(hudi, tmp_path, options)
    table = Table.open(tmp_path, buckets=4)
    by_hudi = hudi.read(tmp_path)
    assert_same_rows(table.to_arrow(), by_hudi, key=["id"])
    if settings.get("key") != "day":  # hudi-rs makes keys of text and whole numbers only
        assert_same_rows(read_snapshot(tmp_path), by_hudi, key=["id"])
    base_only = hudi.read(tmp_path, {"hoodie.datasource.query.type": "read_optimized"})
    assert_same_rows(table.to_arrow(read_optimized=True), base_only, key=["id"])
    second = [entry.requested for entry in table.timeline()][1]
    assert_same_rows(table.to_arrow(as_of=second), hudi.read(tmp_path, {"as.of.instant": second}), key=["id"])
    assert table.get(key).column("name").to_pylist() == ["b1"]


def test_changes_are_refused_by_hudi_and_by_us(hudi: HudiJvm, tmp_path: Path) -> None:
    options = options_for("orders", table_type="COPY_ON_WRITE", more=WITHOUT)
    hudi.write(tmp_path, orders(1, ts=10, name="a"), options, operation="bulk_insert")
    changes = {
        "hoodie.datasource.query.type": "incremental",
        "hoodie.datasource.read.begin.instanttime": "000",
    }
    with pytest.raises(JudgeError, match="not supported when meta fields are disabled"):
        hudi.read(tmp_path, changes)
    with pytest.raises(UnsupportedError, match="incremental reads where it is true, as Hudi"):
        Table.open(tmp_path).to_arrow(begin="0")
