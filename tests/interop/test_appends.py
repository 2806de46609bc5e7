"""Hudi must make the same rows of logs that several tasks wrote to a file group, and be able to go on from there."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from bucketlake import create_table
from bucketlake.write import WriteOptions, append_rows, begin_append, complete_append
from judges.hudi_jvm import HudiJvm, options_for
from judges.hudi_rs import read_snapshot
from judges.rows import assert_same_rows

pytestmark = pytest.mark.interop

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string()), ("ts", pa.int64()), ("dt", pa.string())])


def held(keys: range, name: str, ts: int) -> pa.Table:
    values = [{"id": n, "name": f"{name} {n}", "ts": ts + n % 3, "dt": f"p{n % 2}"} for n in keys]
    return pa.Table.from_pylist(values, SCHEMA)


@pytest.mark.shows("S5", "X2")
def test_hudi_reads_appended_logs_writes_on_them_and_compacts_them(hudi: HudiJvm, tmp_path: Path) -> None:
    table = create_table(
        tmp_path,
        SCHEMA,
        key="id",
        partition="dt",
        ordering="ts",
        buckets=4,
        table_type="MERGE_ON_READ",
        name="appended",
    )
    for round_ in range(2):
        under_way = begin_append(table.store, SCHEMA, WriteOptions())
        tasks = [held(range(40), "a", 10), held(range(20, 60), "b", 11 - round_), held(range(5), "c", 10)]
        done = [append_rows(under_way, rows, task=number) for number, rows in enumerate(tasks)]
        complete_append(under_way, done)
        by_hudi = hudi.read(tmp_path)
        assert by_hudi.num_rows == 60
        assert_same_rows(table.to_arrow(), by_hudi)
        assert_same_rows(read_snapshot(tmp_path), by_hudi)

    options = options_for(
        "appended",
        table_type="MERGE_ON_READ",
        more={"hoodie.compact.inline": "true", "hoodie.compact.inline.max.delta.commits": "1"},
    )
    hudi.write(tmp_path, held(range(50, 70), "by Hudi", 20), options)
    groups = [file_slice for part in table.layout().partitions for file_slice in part.slices]
    assert len(groups) == 8, "Hudi found the file groups that we opened with logs"
    assert all(file_slice.base_file for file_slice in groups), "and compacted them"
    assert_same_rows(table.to_arrow(), hudi.read(tmp_path))
    assert table.to_arrow().num_rows == 70
