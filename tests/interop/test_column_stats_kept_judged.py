"""Hudi makes statistics of columns; we keep them in step, and Hudi skips files and partitions by them."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest

from bucketlake import Table
from bucketlake.layout.names import METADATA_TABLE_FOLDER
from bucketlake.metadata.column_stats import ColumnRange
from bucketlake.metadata.places import COLUMN_STATS, PARTITION_STATS
from bucketlake.services.metadata_compaction import compact_metadata
from bucketlake.storage import open_store
from judges.hudi_jvm import HudiJvm, options_for
from stand_ins.listed_statistics import described

pytestmark = pytest.mark.interop

WITH_METADATA = {"hoodie.metadata.enable": "true"}
BOTH = {COLUMN_STATS, PARTITION_STATS}
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("dt", pa.string()),
        ("ts", pa.int64()),
        ("name", pa.string()),
        ("note", pa.string()),
        ("n", pa.int32()),
        ("x", pa.float64()),
        ("small", pa.float32()),
        ("price", pa.decimal128(10, 2)),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", tz="UTC")),
        ("local", pa.timestamp("us")),
        ("is_on", pa.bool_()),
        ("raw", pa.binary()),
    ]
)
CONDITIONS = (
    "n > 900 and name >= 'ours' and name < 'ourt'",
    "name >= 'hudi' and n < 0",
    "note is null and x < 7",
    "note is not null and small > 100",
    "price > 1000.10 or price < 0",
    "day > date'2010-01-01'",
    "at < timestamp'1999-01-01 00:00:00'",
    "is_on and dt = 'p2'",
)
"""Values that are in files of Hudi's only, of ours only, in both, in none."""


def rows(keys: range, name: str, *, ts: int, by: int, partitions: int = 2) -> pa.Table:
    """Rows whose values are apart by `by`; every seventh has nulls."""

    def row(n: int) -> dict[str, object]:
        value = n + by
        moment = datetime(2000, 1, 1, tzinfo=UTC) + timedelta(days=value, microseconds=n)
        return {
            "id": n,
            "dt": f"p{n % partitions}",
            "ts": ts,
            "name": f"{name} {n}",
            "note": None if n % 7 == 0 or by == 0 else f"ü{n}",
            "n": value,
            "x": value + 0.5,
            "small": float(value),
            "price": Decimal(value) + Decimal("0.25"),
            "day": None if n % 7 == 0 else date(2000, 1, 1) + timedelta(days=value),
            "at": moment,
            "local": moment.replace(tzinfo=None),
            "is_on": by > 2000,
            "raw": bytes([n % 256, value % 256]),
        }

    return pa.Table.from_pylist([row(n) for n in keys], SCHEMA)


def assert_skipping_loses_nothing(hudi: HudiJvm, path: Path) -> None:
    """Hudi finds as many rows with a condition when it skips by statistics as it counts in a scan of all."""
    view = f"create or replace temporary view t using hudi options (path '{path}', `hoodie.metadata.enable` '%s')"
    counts = ", ".join(f"count_if({condition})" for condition in CONDITIONS)
    (scanned,) = hudi.sql(view % "false", f"select array({counts}) n from t")
    queries = " union all ".join(
        f"select {number} q, count(*) n from t where {condition}"
        for number, condition in enumerate(CONDITIONS)
    )
    found = {row["q"]: row["n"] for row in hudi.sql(view % "true", queries, settings=WITH_METADATA)}
    assert {condition: found[number] for number, condition in enumerate(CONDITIONS)} == dict(
        zip(CONDITIONS, scanned["n"], strict=True)
    )


def rebuilt_by_hudi(
    hudi: HudiJvm, path: Path, options: Mapping[str, str]
) -> dict[tuple[str, str], ColumnRange]:
    """What Hudi says of the same files, when it builds its metadata table anew for a copy of the table."""
    copy = path.with_name(f"{path.name}_copy")
    shutil.copytree(path, copy)
    shutil.rmtree(copy / METADATA_TABLE_FOLDER)
    properties = copy / ".hoodie" / "hoodie.properties"
    lines = properties.read_text().splitlines()
    properties.write_text(
        "\n".join(line for line in lines if not line.startswith("hoodie.table.metadata.partitions"))
    )
    hudi.write(copy, rows(range(1), "elsewhere", ts=100, by=0).set_column(1, "dt", [["far"]]), options)
    return described(open_store(str(copy)), COLUMN_STATS)


@pytest.mark.shows("M2")
@pytest.mark.parametrize("table_type", ["COPY_ON_WRITE", "MERGE_ON_READ"])
def test_hudi_skips_by_statistics_that_we_keep_and_finds_all_rows(
    hudi: HudiJvm, tmp_path: Path, table_type: str
) -> None:
    path = tmp_path / "t"
    options = options_for("t", table_type=table_type, buckets=2, more=WITH_METADATA)
    hudi.write(path, rows(range(40), "hudi", ts=1, by=0), options, mode="overwrite")
    table = Table.adopt(path, buckets=2)
    assert set(table.properties.metadata_partitions) == {"files", *BOTH}

    commits = [
        table.upsert(rows(range(10, 20), "ours", ts=2, by=1000)),
        table.upsert(rows(range(40, 46), "new", ts=3, by=5000, partitions=3), log_format="avro"),
    ]
    assert_skipping_loses_nothing(hudi, path)
    ours = described(table.store, COLUMN_STATS)
    theirs = rebuilt_by_hudi(hudi, path, options)
    both = {key: said for key, said in theirs.items() if key in ours}
    assert {key: ours[key] for key in both} == both
    assert all(any(commit.instant in name for name, _ in both) for commit in commits)

    hudi.write(path, rows(range(5, 8), "again", ts=4, by=-50), options)
    table = Table.open(path)
    table.delete([1, 2, 15])
    table.upsert(rows(range(100, 104), "ours", ts=9, by=-9000))
    if table_type == "MERGE_ON_READ":
        table.compact()
    cleaned = table.clean(retain_commits=1)
    assert cleaned is not None
    assert compact_metadata(table.store)
    assert_skipping_loses_nothing(hudi, path)
    assert set(Table.open(path).properties.metadata_partitions) == {"files", *BOTH}
    assert "bucketlake.metadata.delistings" not in Table.open(path).properties.raw
