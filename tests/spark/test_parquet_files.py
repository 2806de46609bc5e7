"""Parquet files that are handed over as rows: which are taken, and which are refused before anything is written."""

from __future__ import annotations

import datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from bucketlake import ConfigError, SchemaError, Table, create_table, parquet_files
from bucketlake.spark.files import FileRows
from judges.files import unchanged

pytestmark = [pytest.mark.spark, pytest.mark.shows("S5")]

ROWS = pa.table({"id": ["a", "b"], "n": [1, 2]})


def ids(table: Table) -> list[str]:
    return sorted(table.to_arrow(columns=["id"]).column("id").to_pylist())


def test_a_folder_is_taken_whole_but_for_what_is_hidden(spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "with blank & umlaut ü"
    for place in ("a.parquet", "deep/er/b.parquet", "_temporary/c.parquet", ".d.parquet", "e.txt"):
        (folder / place).parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(ROWS.set_column(0, "id", pa.array([place, f"{place}+"])), folder / place)
    files = parquet_files(str(folder), spark=spark)
    table = create_table(tmp_path / "t", files, key="id", spark=spark)
    assert table.bulk_insert(files).inserted == 4
    assert ids(table) == ["a.parquet", "a.parquet+", "deep/er/b.parquet", "deep/er/b.parquet+"]
    pq.write_table(ROWS, tmp_path / "one.parquet")
    pq.write_table(ROWS.slice(0, 0), tmp_path / "none.parquet")
    both = [str(tmp_path / "one.parquet"), str(tmp_path / "none.parquet")]
    assert table.upsert(parquet_files(both, spark=spark)).inserted == 2
    assert table.upsert(parquet_files(both[1], spark=spark)).instant is None


def test_files_bring_new_columns_and_lose_hudis_own(spark: SparkSession, tmp_path: Path) -> None:
    """The files of a Hudi table are Parquet files, too, and text that another library wrote may be large."""
    table = create_table(tmp_path / "t", ROWS.schema, key="id")
    table.upsert(ROWS)
    day = pa.array([datetime.date(2026, 6, 18)] * 2)
    columns = {"_hoodie_commit_time": ["1", "1"], "id": pa.array(["b", "c"], pa.large_string()), "n": [3, 4]}
    pq.write_table(pa.table({**columns, "day": day}), tmp_path / "new.parquet")
    table.upsert(parquet_files(str(tmp_path / "new.parquet"), spark=spark), merge_schema=True)
    assert table.schema.field("day").type == pa.date32()
    assert ids(table) == ["a", "b", "c"]
    rows = FileRows(parquet_files(str(tmp_path / "new.parquet"), spark=spark))
    assert rows.distinct(["day"]).to_pylist() == [{"day": datetime.date(2026, 6, 18)}]


def test_a_folder_may_be_called_like_a_file_and_a_path_be_a_path(spark: SparkSession, tmp_path: Path) -> None:
    """Spark writes folders that end in .parquet."""
    spark.createDataFrame([("a", 1), ("b", 2)], "id STRING, n BIGINT").repartition(2).write.parquet(
        str(tmp_path / "orders.parquet")
    )
    table = create_table(tmp_path / "t", ROWS.schema, key="id")
    assert table.bulk_insert(parquet_files(tmp_path / "orders.parquet", spark=spark)).inserted == 2
    pq.write_table(ROWS.set_column(0, "id", pa.array(["b", "c"])), tmp_path / "more.parquet")
    table.upsert(parquet_files([tmp_path / "more.parquet", f"{tmp_path}/orders.parquet/"], spark=spark))
    assert ids(table) == ["a", "b", "c"]


@pytest.mark.parametrize("content", [None, b"id,n", b"fewer row groups"])
def test_a_file_that_changes_under_a_write_is_named(
    content: bytes | None, spark: SparkSession, tmp_path: Path
) -> None:
    table = create_table(tmp_path / "t", ROWS.schema, key="id")
    table.upsert(ROWS)
    file = tmp_path / "a.parquet"
    pq.write_table(pa.concat_tables([ROWS] * 8), file, row_group_size=2)
    files = parquet_files(file, spark=spark)
    if content is None:
        file.unlink()
    elif content == b"fewer row groups":
        pq.write_table(ROWS, file)
    else:
        file.write_bytes(content)
    with (
        unchanged(table.store, markers=False),
        pytest.raises(ConfigError, match=r"a\.parquet: found .*expected the file as it was"),
    ):
        table.upsert(files)
    assert ids(table) == ["a", "b"]


def test_what_is_no_row_of_one_kind_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    pq.write_table(ROWS, tmp_path / "a.parquet")
    pq.write_table(ROWS.set_column(1, "n", pa.array(["1", "2"])), tmp_path / "b.parquet")
    pq.write_table(ROWS.select(["id"]), tmp_path / "c.parquet")
    (tmp_path / "d.parquet").write_text("id,n\n")
    (tmp_path / "empty").mkdir()

    def refused(*names: str) -> str:
        with pytest.raises((ConfigError, SchemaError)) as error:
            parquet_files([str(tmp_path / name) for name in names], spark=spark)
        return str(error.value)

    assert "b.parquet has the column 'n' as string, and a.parquet as int64" in refused(
        "a.parquet", "b.parquet"
    )
    assert "c.parquet has the column 'n' not at all" in refused("a.parquet", "c.parquet")
    assert "a.parquet has the column 'n' as int64, and c.parquet not at all" in refused(
        "c.parquet", "a.parquet"
    )
    assert "expected a Parquet file" in refused("d.parquet")
    assert "no Parquet files in" in refused("empty")
    assert "no Parquet files in" in refused("e.parquet")
    assert "an empty list" in refused()
