"""Reading on a real session: who reads what, what is pushed down, and that tasks need nothing but their plan."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator
from decimal import Decimal
from functools import reduce
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn

from bucketlake import FilterError, Table, create_table
from bucketlake.datasource.options import SourceOptions
from bucketlake.datasource.reader import Reader
from bucketlake.index import SimpleIndex
from bucketlake.spark.read import split_by_reader
from bucketlake.storage import LocalStore
from judges.small_tables import properties_of, small_table

pytestmark = pytest.mark.spark

Golden = Callable[[str], Path]
COW, MOR = "cow_simple_bucket", "mor_simple_bucket_avro"
PUSHDOWN = "spark.sql.python.filterPushdown.enabled"


@pytest.fixture(params=["true", "false"])
def pushdown(request: pytest.FixtureRequest, spark: SparkSession) -> Iterator[str]:
    spark.conf.set(PUSHDOWN, request.param)
    yield request.param
    spark.conf.set(PUSHDOWN, "true")


def test_files_without_logs_go_to_sparks_own_reader(golden_table: Golden, spark: SparkSession) -> None:
    plain, merged = split_by_reader(Table.open(golden_table(COW)).plan())
    assert (bool(plain), merged) == (True, ())
    plain, merged = split_by_reader(Table.open(golden_table(MOR)).plan())
    assert all(s.log_files for s in merged)
    assert not any(s.log_files for s in plain)
    assert merged


@pytest.mark.parametrize("name", [COW, MOR, "cow_composite_keys", "mor_all_types"])
def test_projection_and_filters_mean_the_same_in_both_readers(
    name: str, golden_table: Golden, spark: SparkSession
) -> None:
    table = Table.open(golden_table(name))
    key = table.properties.record_key_fields[-1]
    for filters in [
        [(key, "=", 1)],
        [(key, "in", [1, 2, 4])],
        [(key, ">", 3), ("ts", "is not null")],
        [(key, "!=", 2)],
    ]:
        by_spark = table.read(spark, columns=["ts", key], filters=filters).collect()
        by_arrow = table.to_arrow(columns=["ts", key], filters=filters).to_pylist()
        assert sorted(tuple(row) for row in by_spark) == sorted(tuple(row.values()) for row in by_arrow)


def test_a_partition_column_alone_can_be_read(golden_table: Golden, spark: SparkSession) -> None:
    rows = (
        Table.open(golden_table("cow_global_rli")).read(spark, columns=["dt"]).groupBy("dt").count().collect()
    )
    assert {row["dt"]: row["count"] for row in rows} == {"p0": 7, "p1": 5}


def test_every_kind_of_read_runs_on_spark(golden_table: Golden, spark: SparkSession) -> None:
    table = Table.open(golden_table(MOR))
    first = table.timeline()[0]
    assert table.read(spark, as_of=first.requested).count() == 12
    assert table.read(spark, read_optimized=True).count() == 12
    assert table.read(spark, begin=first.completed).count() == 4
    source = spark.read.format("bucketlake")
    assert source.option("as_of", first.requested).load(str(golden_table(MOR))).count() == 12
    source = spark.read.format("bucketlake").option("query", "read_optimized")
    assert source.load(str(golden_table(MOR))).count() == 12
    source = spark.read.format("bucketlake").option("begin", str(first.completed))
    assert source.option("columns", "id").load(str(golden_table(MOR))).columns == ["id"]


NUMBERS = [math.nan, -0.0, -0.0, -2.0]
COUNTS = {"> 0": 1, ">= double('NaN')": 1, "= double('NaN')": 1, "= 0": 2, "in (0, 5)": 2, "< -1": 1}


def counts(frame: DataFrame, column: str) -> dict[str, int]:
    frames = [frame.filter(f"{column} {condition}").select(fn.lit(condition)) for condition in COUNTS]
    return dict(Counter(row[0] for row in reduce(DataFrame.unionAll, frames).collect()))


def test_floats_are_found_whatever_ranges_and_dictionaries_say(
    tmp_path: Path, spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    """NaN lies outside of ranges; and in a dictionary, as nested values have one, 0.0 and -0.0 are two to Spark."""
    schema = pa.schema(
        [("id", pa.int32()), ("x", pa.float64()), ("s", pa.struct([("x", pa.float32()), ("n", pa.int32())]))]
    )
    table = create_table(tmp_path / "t", schema, key="id", buckets=1)
    nested = [{"x": number, "n": 1} for number in NUMBERS]
    table.upsert(pa.table({"id": range(4), "x": NUMBERS, "s": nested}, schema))
    frame = table.read(spark)
    assert split_by_reader(table.plan())[1] == ()
    assert counts(frame, "x") == COUNTS
    assert counts(frame, "s.x") == COUNTS
    frame.filter("id > 0 and s.n > 0 and s.x > 0 and x > 0").select("s.n").explain()
    (pushed,) = (line for line in capsys.readouterr().out.splitlines() if "PushedFilters" in line)
    assert "GreaterThan(id,0)" in pushed and "GreaterThan(s.n,0)" in pushed, "all else is still handed down"


def test_floats_in_files_of_other_writers_are_found(tmp_path: Path, spark: SparkSession) -> None:
    schema = pa.schema([("id", pa.int32()), ("x", pa.float64())])
    rows = pa.table({"id": range(4), "x": NUMBERS}, schema)
    made = small_table(properties_of(schema, key=["id"], partition=[]), rows, SimpleIndex(1, ("id",)))
    store = LocalStore(tmp_path)
    for file in made.list("", recursive=True).files:
        store.put(file.path, made.read(file.path))
    (file,) = tmp_path.glob("*.parquet")
    assert pq.read_metadata(file).row_group(0).column(6).statistics.max == 0.0, "NaN is left out"
    table = Table.open(tmp_path)
    assert split_by_reader(table.plan())[1] == ()
    assert counts(table.read(spark), "x") == COUNTS


def test_what_no_sql_can_say_means_the_same_to_both_readers(tmp_path: Path, spark: SparkSession) -> None:
    schema = pa.schema([("id", pa.int32()), ("d", pa.decimal128(38, 10)), ("x", pa.float64())])
    table = create_table(tmp_path / "t", schema, key="id", buckets=1)
    decimals = [Decimal("9" * 28), Decimal("1.0000000001"), Decimal(1), None]
    table.upsert(pa.table({"id": [1, 2, 3, 4], "d": decimals, "x": [1e300, 1e30, math.nan, None]}, schema))
    filters = [
        ("d", "<", Decimal("1.00000000005")),
        ("d", ">=", Decimal("1.00000000005")),
        ("d", "!=", Decimal("1E+60")),
        ("d", "in", [10**30, 1]),
        ("d", "<=", 10**40),
        ("x", ">", 10**30),
        ("x", "not in", []),
        ("x", "in", []),
    ]
    read = [
        table.read(spark, columns=["id"], filters=[f]).selectExpr(f"{n} n", "id")
        for n, f in enumerate(filters)
    ]
    found = sorted(map(tuple, reduce(DataFrame.unionAll, read).collect()))
    by_arrow = [table.to_arrow(columns=["id"], filters=[f]).column(0).to_pylist() for f in filters]
    assert found == sorted((n, row) for n, rows in enumerate(by_arrow) for row in rows)
    assert by_arrow == [[3], [1, 2], [1, 2, 3], [3], [1, 2, 3], [1, 3], [1, 2, 3], []]


CONDITIONS = (
    "id = 4",
    "id IN (1, 4, 99)",
    "id NOT IN (1, 4)",
    "id <=> 4",
    "name LIKE 'n1%'",
    "_hoodie_is_deleted IS NULL",
    "dt = 'p1' AND id > 3",
    "upper(name) = 'N7'",
)


@pytest.mark.shows("S5")
def test_every_query_of_a_data_source_has_its_own_rows(
    pushdown: str, golden_table: Golden, spark: SparkSession
) -> None:
    """Spark 4.1 would read for one query of a frame what a source has planned for the filters of another."""
    path = str(golden_table(MOR))
    frame = spark.read.format("bucketlake").option("buckets", "4").load(path)
    rows = spark.createDataFrame(Table.open(path).to_arrow())
    everything = rows.count()
    found, expected = (
        reduce(
            DataFrame.unionAll, [one.filter(c).select(fn.lit(c), "id", "dt") for c in CONDITIONS]
        ).collect()
        for one in (frame, rows)
    )
    assert sorted(found) == sorted(expected)
    assert frame.filter("id = 4").count() < frame.count() == everything


def test_a_data_source_reads_the_columns_of_its_frame_and_no_others(
    pushdown: str, golden_table: Golden, spark: SparkSession
) -> None:
    path = str(golden_table(MOR))
    expected = sorted(Table.open(path).to_arrow(columns=["ts", "id"]).to_pylist(), key=str)
    named = spark.read.format("bucketlake").option("columns", "ts,id")
    by_schema = spark.read.format("bucketlake").schema("ts BIGINT, id INT NOT NULL")
    for reader in (named, by_schema):
        frame = reader.load(path)
        assert sorted((row.asDict() for row in frame.filter("id IS NOT NULL").collect()), key=str) == expected
    fields = pa.schema([("id", pa.int32())])
    columns = [p.value[1].columns for p in Reader(SourceOptions.parse({"path": path}), fields).partitions()]
    assert set(columns) == {("id",)}, "other columns are not decoded"
    with pytest.raises(PySparkException, match="says `id` STRING, and in the table it is `id` INT"):
        spark.read.format("bucketlake").schema("id STRING").load(path).collect()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"buckets": "four"}, "expected a number"),
        ({"bucket": "4"}, "unknown option 'bucket'"),
        ({"query": "fast"}, "expected 'snapshot'"),
        ({"meta_columns": "maybe"}, "expected true or false"),
        ({"as_of": "yesterday"}, "yesterday"),
        ({"columns": "nope"}, "no column 'nope'"),
    ],
)
def test_a_wrong_option_is_named(
    options: dict[str, str], words: str, golden_table: Golden, spark: SparkSession
) -> None:
    with pytest.raises(PySparkException, match=words):
        spark.read.format("bucketlake").options(**options).load(str(golden_table(COW))).collect()


def test_a_filter_of_the_wrong_type_is_refused_before_a_job_starts(
    golden_table: Golden, spark: SparkSession
) -> None:
    with pytest.raises(FilterError):
        Table.open(golden_table(COW)).read(spark, filters=[("id", "=", "4")])


def test_sparks_own_reader_verifies_pages_and_is_handed_no_damaged_footer(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = create_table(tmp_path, pa.schema([("id", pa.int64())]), key="id", buckets=1, name="t")
    table.upsert(pa.table({"id": range(1000)}))
    (path,) = tmp_path.glob("*.parquet")
    sound = path.read_bytes()
    groups = pq.ParquetFile(path).metadata.row_group(0)
    column = next(c for c in map(groups.column, range(groups.num_columns)) if c.path_in_schema == "id")
    page_end = column.data_page_offset + column.total_compressed_size
    footer = len(sound) - 200
    for place, found in ((page_end - 9, path.name), (footer, "footer")):
        damaged = bytearray(sound)
        damaged[place] ^= 1
        path.write_bytes(damaged)
        frames = spark.newSession()
        frames.conf.set("spark.sql.files.ignoreCorruptFiles", "true")
        with pytest.raises(Exception, match=found):
            table.read(frames).agg({"id": "sum"}).collect()


def test_a_read_of_many_files_is_planned_without_a_job(spark: SparkSession, tmp_path: Path) -> None:
    keys = [f"k{number}" for number in range(400)]
    rows = pa.table({"id": keys, "ts": [1] * len(keys)})
    table = create_table(tmp_path / "t", rows.schema, key="id", ordering="ts", buckets=40)
    table.upsert(rows)
    before = spark.conf.get("spark.sql.sources.parallelPartitionDiscovery.threshold")
    spark.sparkContext.setJobGroup("many files", "to count the jobs")
    try:
        frame = table.read(spark)
        assert not spark.sparkContext.statusTracker().getJobIdsForGroup("many files")
    finally:
        spark.sparkContext.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type] # takes it away
    assert sorted(row[0] for row in frame.select("id").collect()) == sorted(keys)
    assert spark.conf.get("spark.sql.sources.parallelPartitionDiscovery.threshold") == before
