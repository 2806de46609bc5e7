"""Which frames are written from their files, and that no other frame is."""

from __future__ import annotations

import datetime
import os
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # the name everybody gives it

from bucketlake import Table, create_table
from bucketlake.spark.plain_reads import files_read_by_frame

pytestmark = [pytest.mark.spark, pytest.mark.shows("S5")]

ROWS = pa.table({"id": ["a", "b"], "n": [1, 2], "m": [3, 4]})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two files with the rows a, b and c, d, in a folder whose name wants quoting."""
    made = tmp_path / "in coming %41 ü"
    made.mkdir()
    pq.write_table(ROWS, made / "1.parquet")
    pq.write_table(ROWS.set_column(0, "id", pa.array(["c", "d"])), made / "2.parquet")
    (made / "_SUCCESS").touch()
    return made


def is_files(frame: DataFrame) -> bool:
    return files_read_by_frame(frame) is not None


def written(table: Table) -> list[tuple[Any, ...]]:
    rows = table.to_arrow(columns=["id", "n", "m"]).to_pylist()
    return sorted((row["id"], row["n"], row["m"]) for row in rows)


def test_a_bare_read_of_a_folder_or_of_a_file_is_written_from_the_files(
    spark: SparkSession, folder: Path, tmp_path: Path
) -> None:
    for path in (folder, f"file://{folder}", folder / "1.parquet", f"file://{folder}/1.parquet"):
        assert is_files(spark.read.parquet(str(path))), path
    assert is_files(spark.read.load(str(folder)))
    with TemporaryDirectory(dir=Path.cwd()) as here:
        pq.write_table(ROWS, Path(here) / "1.parquet")
        assert is_files(spark.read.parquet(Path(here).name))
    assert is_files(spark.read.parquet(str(folder)).alias("o"))
    frame = spark.read.parquet(str(folder))
    table = create_table(tmp_path / "t", frame, key="id", spark=spark)
    assert table.bulk_insert(frame).inserted == 4
    assert written(table) == [("a", 1, 3), ("b", 2, 4), ("c", 1, 3), ("d", 2, 4)]
    assert table.delete(spark.read.parquet(str(folder / "2.parquet"))).deleted == 2
    assert written(table) == [("a", 1, 3), ("b", 2, 4)]


CHANGES: dict[str, Callable[[DataFrame], DataFrame]] = {
    "fewer rows": lambda frame: frame.filter("n = 1"),
    "no more than all rows": lambda frame: frame.limit(100),
    "rows twice": lambda frame: frame.union(frame),
    "another value": lambda frame: frame.withColumn("n", F.col("n") + 1),
    "a column more": lambda frame: frame.withColumn("x", F.lit(1)),
    "a column less": lambda frame: frame.select("id", "n"),
    "another order": lambda frame: frame.select("id", "m", "n"),
    "swapped names": lambda frame: frame.toDF("id", "m", "n"),
    "another name": lambda frame: frame.withColumnRenamed("n", "N"),
    "sorted": lambda frame: frame.sort("n"),
    "sampled": lambda frame: frame.sample(0.5, seed=1),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_frame_that_does_anything_to_the_rows_is_evaluated(
    change: str, spark: SparkSession, folder: Path
) -> None:
    assert not is_files(CHANGES[change](spark.read.parquet(str(folder))))
    assert not is_files(CHANGES[change](spark.read.parquet(str(folder / "1.parquet"))))


def test_swapped_names_are_written_as_spark_has_them(
    spark: SparkSession, folder: Path, tmp_path: Path
) -> None:
    """To Spark's `sameSemantics` a renamed frame is the same frame."""
    plain = spark.read.parquet(str(folder / "1.parquet"))
    swapped = plain.toDF("id", "m", "n")
    assert swapped.sameSemantics(plain)
    table = create_table(tmp_path / "t", plain, key="id", spark=spark)
    table.upsert(swapped)
    assert written(table) == [("a", 3, 1), ("b", 4, 2)]


def test_reads_that_are_more_than_their_files_are_evaluated(
    spark: SparkSession, folder: Path, tmp_path: Path
) -> None:
    one = str(folder / "1.parquet")
    assert not is_files(spark.read.parquet(one, one)), "its rows are there twice"
    assert not is_files(spark.read.option("mergeSchema", "true").parquet(str(folder)))
    assert not is_files(spark.read.schema("id STRING, n BIGINT, m BIGINT, x INT").parquet(one))
    assert not is_files(spark.read.schema("id STRING, n BIGINT, m DECIMAL(20, 0)").parquet(one))
    assert not is_files(spark.read.schema("id STRING, N BIGINT, m BIGINT").parquet(one))
    assert not is_files(spark.createDataFrame([("a", 1)], "id STRING, n BIGINT"))
    assert not is_files(spark.readStream.schema("id STRING, n BIGINT, m BIGINT").parquet(str(folder)))
    (tmp_path / "days" / "k=1").mkdir(parents=True)
    pq.write_table(ROWS, tmp_path / "days" / "k=1" / "1.parquet")
    assert not is_files(spark.read.parquet(str(tmp_path / "days"))), "k stands in the folder's name only"
    spark.read.parquet(one).write.csv(str(tmp_path / "csv.parquet"), header=True)
    assert not is_files(spark.read.csv(str(tmp_path / "csv.parquet"), header=True))


def test_a_cached_frame_is_written_as_it_was_cached(
    spark: SparkSession, folder: Path, tmp_path: Path
) -> None:
    frame = spark.read.parquet(str(folder)).cache()
    try:
        table = create_table(tmp_path / "t", frame, key="id", spark=spark)
        assert frame.count() == 4
        pq.write_table(ROWS.set_column(1, "n", pa.array([7, 7])), folder / "1.parquet")
        assert not is_files(frame)
        table.upsert(frame)
        assert written(table) == [("a", 1, 3), ("b", 2, 4), ("c", 1, 3), ("d", 2, 4)]
    finally:
        frame.unpersist()


@pytest.mark.parametrize(
    "setting", ["spark.sql.files.ignoreCorruptFiles", "spark.sql.files.ignoreMissingFiles"]
)
def test_a_session_that_passes_over_bad_files_reads_them_itself(
    setting: str, spark: SparkSession, folder: Path
) -> None:
    frame = spark.read.parquet(str(folder))
    spark.conf.set(setting, "true")
    try:
        assert not is_files(frame)
    finally:
        spark.conf.unset(setting)
    assert is_files(frame)


def test_files_that_changed_since_the_frame_was_made_are_left_to_spark(
    spark: SparkSession, folder: Path
) -> None:
    frame = spark.read.parquet(str(folder))
    (folder / "2.parquet").write_text("no Parquet")
    assert not is_files(frame)
    pq.write_table(ROWS.select(["id", "n"]), folder / "2.parquet")
    assert not is_files(frame)
    (folder / "2.parquet").unlink()
    assert not is_files(frame)


def test_a_file_that_came_after_the_frame_is_not_written(
    spark: SparkSession, folder: Path, tmp_path: Path
) -> None:
    """A frame of a folder has the files that were there when it was made."""
    frame = spark.read.parquet(str(folder))
    pq.write_table(ROWS.set_column(0, "id", pa.array(["late", "later"])), folder / "3.parquet")
    table = create_table(tmp_path / "t", frame, key="id", spark=spark)
    assert table.bulk_insert(frame).inserted == frame.count() == 4


def test_days_are_read_by_the_calendar_they_were_written_by(
    spark: SparkSession, folder: Path, tmp_path: Path
) -> None:
    days = pa.table({"id": ["a"], "day": pa.array([datetime.date(1500, 1, 1)])})
    for name, notes in {
        "foreign": {},
        "modern": {"org.apache.spark.version": "4.1.0"},
        "old": {"org.apache.spark.version": "2.4.8"},
        "legacy": {"org.apache.spark.version": "4.1.0", "org.apache.spark.legacyDateTime": ""},
    }.items():
        file = folder.parent / f"{name}.parquet"
        pq.write_table(days.replace_schema_metadata(notes), file)
        frame = spark.read.parquet(str(file))
        assert is_files(frame) == (name in ("foreign", "modern")), name
        table = create_table(tmp_path / f"{name}-days", frame, key="id", spark=spark)
        table.upsert(frame)
        assert table.read(spark).select("day").collect() == frame.select("day").collect()
    setting = "spark.sql.parquet.datetimeRebaseModeInRead"
    spark.conf.set(setting, "LEGACY")
    try:
        assert not is_files(spark.read.parquet(str(folder.parent / "foreign.parquet")))
    finally:
        spark.conf.unset(setting)


def test_spark_own_files_of_every_type_are_written_as_their_frame_is(
    spark: SparkSession, tmp_path: Path
) -> None:
    values = """
        SELECT string(id) AS id, tinyint(id) AS a, smallint(id) AS b, int(id) AS c, float(id) / 3 AS d, id / 3D AS e,
               decimal(id) / 7 AS f, date_add(DATE'2026-06-18', int(id)) AS g, timestamp_millis(id) AS h,
               array(id, id + 1) AS i, map('k', id) AS j, named_struct('x', id, 'y', string(id)) AS k,
               binary(string(id)) AS l, id % 2 = 0 AS m, CAST(timestamp_millis(id) AS TIMESTAMP_NTZ) AS n
        FROM range(100)"""
    spark.sql(values).write.parquet(str(tmp_path / "in"))
    frame = spark.read.parquet(str(tmp_path / "in"))
    by_files = create_table(tmp_path / "files", frame, key="id", spark=spark)
    by_files.bulk_insert(frame)
    by_frame = create_table(tmp_path / "frame", frame, key="id", spark=spark)
    by_frame.bulk_insert(frame.filter("true"))
    assert by_files.to_arrow().sort_by("id").drop_columns(_META) == by_frame.to_arrow().sort_by(
        "id"
    ).drop_columns(_META)


_META = [
    "_hoodie_commit_time",
    "_hoodie_commit_seqno",
    "_hoodie_record_key",
    "_hoodie_partition_path",
    "_hoodie_file_name",
]


def test_a_link_out_of_the_folder_is_left_to_spark(spark: SparkSession, folder: Path, tmp_path: Path) -> None:
    (tmp_path / "linked").mkdir()
    os.link(folder / "1.parquet", tmp_path / "linked" / "1.parquet")
    (tmp_path / "linked" / "2.parquet").symlink_to(folder / "2.parquet")
    frame = spark.read.parquet(str(tmp_path / "linked"))
    assert not is_files(frame)
    table = create_table(tmp_path / "t", frame, key="id", spark=spark)
    assert table.upsert(frame).inserted == 4
