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
from bucketlake.errors import UnsupportedError
from bucketlake.index.told import IndexValue
from judges.hudi_jvm import HudiJvm, JudgeError, options_for
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


@pytest.mark.shows("R11")
def test_a_write_of_hudis_that_drops_the_index_hides_no_row_and_it_can_be_made_again(
    hudi: HudiJvm, tmp_path: Path
) -> None:
    """Its defaults drop indexes that they do not name."""
    path = tmp_path / "t"
    table = create_table(path, SCHEMA, key="id", partition="dt", ordering="ts", buckets=2, name="places")
    cities: dict[str, str | None] = {f"k{n}": ("Oslo", "Rome")[n % 2] for n in range(6)}
    table.upsert(_rows(cities, 1))
    table.create_index("by_city", on="city", shards=2, record_index=True)
    told = options_for("places", table_type="COPY_ON_WRITE", index="BUCKET", buckets=2, more=FORGETFUL)
    hudi.write(path, _rows({"k0": "Rome", "k9": "Oslo"}, 2), told)
    cities |= {"k0": "Rome", "k9": "Oslo"}
    table = Table.open(path)
    (status,) = table.indexes()
    assert "the record-level index was dropped" in status.state
    oslo = sorted(key for key, city in cities.items() if city == "Oslo")
    assert sorted(table.to_arrow(filters=[("city", "=", "Oslo")])["id"].to_pylist()) == oslo
    assert sorted(table.get_by("city", "Oslo")["id"].to_pylist()) == oslo
    with pytest.raises(UnsupportedError, match="Build both again"):
        table.upsert(_rows({"k1": "Oslo"}, 3))
    table.metadata.build(record_index=True)
    table.upsert(_rows({"k1": "Oslo"}, 3))
    cities["k1"] = "Oslo"
    _check(hudi, path, cities)


def test_hudi_cannot_write_beside_statistics_until_it_is_told_to_drop_them(
    hudi: HudiJvm, tmp_path: Path
) -> None:
    """As the documentation says. If this fails because Hudi can, judges need not be kept from it."""
    path = tmp_path / "t"
    table = create_table(path, SCHEMA, key="id", partition="dt", ordering="ts", buckets=2, name="places")
    cities: dict[str, str | None] = {f"k{n}": ("Oslo", "Rome")[n % 2] for n in range(6)}
    table.upsert(_rows(cities, 1))
    table.create_index("by_city", on="city", shards=2, record_index=True)
    quiet = {**KEEPING, "hoodie.metadata.streaming.write.enabled": "false"}
    default = {name: value for name, value in quiet.items() if ".stats." not in name}
    dropping = {name: value for name, value in quiet.items() if ".auto.delete." not in name}

    def write(settings: Mapping[str, str], ts: int) -> None:
        told = options_for("places", table_type="COPY_ON_WRITE", index="BUCKET", buckets=2, more=settings)
        hudi.write(path, _rows({"k0": "Rome", "k9": "Oslo"}, ts), told)

    with pytest.raises(JudgeError, match="NullPointerException"):
        write(default, 2)
    with pytest.raises(JudgeError, match="NullPointerException"):
        write(quiet, 3)
    assert "partition_stats" in Table.open(path).properties.metadata_partitions
    _check_ours(path, cities)
    write(dropping, 4)
    cities |= {"k0": "Rome", "k9": "Oslo"}
    assert "partition_stats" not in Table.open(path).properties.metadata_partitions
    _check(hudi, path, cities)


FORGETFUL = {
    **WITH,
    "hoodie.metadata.index.column.stats.enable": "false",
    "hoodie.metadata.index.partition.stats.enable": "false",
}
"""Hudi fails on a table with a secondary index if it has to gather statistics of columns first."""

KEEPING = {
    **FORGETFUL,
    "hoodie.metadata.global.record.level.index.enable": "true",
    "hoodie.metadata.auto.delete.partitions": "false",
    "hoodie.record.index.update.partition.path": "true",
}
"""What a Hudi writer must be told to keep our indexes."""


def _rows(cities: Mapping[str, str | None], ts: int) -> pa.Table:
    made = [{"id": key, "city": city, "ts": ts, "dt": f"p{int(key[1:]) % 2}"} for key, city in cities.items()]
    return pa.Table.from_pylist(made, SCHEMA)


def _check(hudi: HudiJvm, path: Path, cities: Mapping[str, str | None]) -> None:
    _check_ours(path, cities)
    for city in ("Oslo", "Rome", "a$b", "nowhere"):
        expected = sorted(key for key, where in cities.items() if where == city)
        assert _found(hudi, path, city) == expected, city


def _check_ours(path: Path, cities: Mapping[str, str | None]) -> None:
    table = Table.open(path)
    check_secondary(table)
    assert check_metadata(table.store)
    (status,) = table.indexes()
    assert status.is_in_step, status.state
    assert {row["id"]: row["city"] for row in table.to_arrow().to_pylist()} == cities


def _found(hudi: HudiJvm, path: Path, city: str) -> list[str]:
    view = f"create or replace temporary view t using hudi options (path '{path}', `hoodie.metadata.enable` 'true')"
    rows: list[dict[str, Any]] = hudi.sql(view, f"select id from t where city = '{city}'", settings=WITH)
    return sorted(row["id"] for row in rows)
