"""Hudi finds rows by the secondary indexes that we build, and keeps them; we keep what it writes.

That it asks them at all is shown in `test_secondary_index_judged.py`, where an entry is lost.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from bucketlake import RecordIndex, SimpleBuckets, Table, create_table
from bucketlake.index.told import IndexValue
from judges.hudi_jvm import HudiJvm, options_for
from stand_ins.made_index import check_secondary
from stand_ins.metadata_check import check_metadata

pytestmark = [pytest.mark.interop, pytest.mark.timeout(3_600)]

SCHEMA = pa.schema([("id", pa.string()), ("city", pa.string()), ("ts", pa.int64()), ("dt", pa.string())])
WITH = {"hoodie.metadata.enable": "true"}


@pytest.mark.shows("R11")
@pytest.mark.parametrize(
    ("table_type", "index"),
    [("MERGE_ON_READ", RecordIndex(shards=2)), ("COPY_ON_WRITE", SimpleBuckets(2))],
    ids=["record level", "buckets"],
)
def test_hudi_finds_rows_by_an_index_that_we_have_built_and_keeps_it(
    hudi: HudiJvm, tmp_path: Path, table_type: str, index: IndexValue
) -> None:
    path = tmp_path / "t"
    table = create_table(
        path,
        SCHEMA,
        key="id",
        partition="dt",
        ordering="ts",
        index=index,
        table_type=table_type,
        name="places",
    )
    cities: dict[str, str | None] = {f"k{n}": ("Oslo", "Rome", "a$b", None)[n % 4] for n in range(12)}
    table.upsert(_rows(cities, 1))
    built = table.create_index("by_city", on="city", shards=2, record_index=True)
    assert built is not None and built.entries == 12
    _check(hudi, path, cities)
    ours: dict[str, str | None] = {"k0": "Rome", "k2": None, "k3": "Oslo", "k20": "Oslo"}
    table.upsert(_rows(ours, 2))
    table.delete(["k4"])
    cities |= ours
    del cities["k4"]
    _check(hudi, path, cities)

    engine = index.engine if isinstance(index, RecordIndex) else "BUCKET"
    told = options_for("places", table_type=table_type, index=engine, buckets=2, more=KEEPING)
    hudis: dict[str, str | None] = {"k0": "Oslo", "k1": "a$b", "k30": "Rome"}
    hudi.write(path, _rows(hudis, 3), told)
    gone = pa.Table.from_pylist([{"id": "k5", "city": "", "ts": 3, "dt": "p1"}], SCHEMA)
    hudi.write(path, gone, told, operation="delete")
    cities |= hudis
    del cities["k5"]
    _check(hudi, path, cities)
    Table.open(path).upsert(_rows({"k30": "a$b", "k6": "Rome"}, 4))
    cities |= {"k30": "a$b", "k6": "Rome"}
    _check(hudi, path, cities)


KEEPING = {
    **WITH,
    "hoodie.metadata.global.record.level.index.enable": "true",
    "hoodie.metadata.auto.delete.partitions": "false",
    "hoodie.record.index.update.partition.path": "true",
    "hoodie.metadata.index.column.stats.enable": "false",
    "hoodie.metadata.index.partition.stats.enable": "false",
}
"""What a Hudi writer must be told to keep our indexes."""


def _rows(cities: Mapping[str, str | None], ts: int) -> pa.Table:
    made = [{"id": key, "city": city, "ts": ts, "dt": f"p{int(key[1:]) % 2}"} for key, city in cities.items()]
    return pa.Table.from_pylist(made, SCHEMA)


def _check(hudi: HudiJvm, path: Path, cities: Mapping[str, str | None]) -> None:
    table = Table.open(path)
    check_secondary(table)
    assert check_metadata(table.store)
    (status,) = table.indexes()
    assert status.is_in_step, status.state
    assert {row["id"]: row["city"] for row in table.to_arrow().to_pylist()} == cities
    for city in ("Oslo", "Rome", "a$b", "nowhere"):
        expected = sorted(key for key, where in cities.items() if where == city)
        assert _found(hudi, path, city) == expected, city


def _found(hudi: HudiJvm, path: Path, city: str) -> list[str]:
    view = f"create or replace temporary view t using hudi options (path '{path}', `hoodie.metadata.enable` 'true')"
    rows: list[dict[str, Any]] = hudi.sql(view, f"select id from t where city = '{city}'", settings=WITH)
    return sorted(row["id"] for row in rows)
