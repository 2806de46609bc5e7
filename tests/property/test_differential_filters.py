"""A filter means the same on every road, and to DuckDB and Spark over plain files."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import reduce
from pathlib import Path
from tempfile import TemporaryDirectory

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn

import bucketlake
from bucketlake import Table, create_table
from judges.random_filters import NUMBER, Case, Condition, draw_case

Answers = dict[int, list[int]]
"""For conditions, by their place, the numbers of the rows that satisfy them."""

SEEDS = st.integers(0, 2**32)
TYPES = ("COPY_ON_WRITE", "MERGE_ON_READ")


def written(case: Case, folder: Path, rng: random.Random, table_type: str) -> Table:
    table = create_table(
        folder / "table",
        case.schema,
        key=case.key,
        partition=case.partition or (),
        buckets=rng.choice([1, 3]),
        table_type=table_type,
        hive_style=rng.random() < 0.5,
    )
    for batch in case.batches:
        table.upsert(batch, log_format=rng.choice(["parquet", "avro"]))
    return table


def states(table: Table) -> Iterator[str]:
    """Say what was done to the table: first nothing, then, if it has logs, they are compacted."""
    yield "as written"
    if table.properties.table_type == "MERGE_ON_READ":
        table.compact()
        yield "compacted"


def by_duckdb(rows: pa.Table, conditions: Sequence[Condition]) -> Answers:
    with duckdb.connect() as database:
        database.execute("SET TimeZone = 'UTC'")
        database.register("model", rows)
        database.execute("CREATE TABLE rows AS FROM model")
        return {
            place: sorted(number for (number,) in database.execute(_query(condition.duckdb)).fetchall())
            for place, condition in enumerate(conditions)
        }


def _query(condition: str) -> str:
    return f"SELECT {NUMBER} FROM rows WHERE {condition}"


def ours(case: Case) -> list[Condition]:
    return [condition for condition in case.conditions if condition.ours is not None]


def by_arrow(table: Table, conditions: Sequence[Condition]) -> Answers:
    return {
        place: sorted(table.to_arrow(columns=[NUMBER], filters=condition.ours or ()).column(0).to_pylist())
        for place, condition in enumerate(conditions)
    }


@contextmanager
def described(seed: int, conditions: Sequence[Condition]) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        said = "\n".join(f"  {number}: {condition}" for number, condition in enumerate(conditions))
        error.add_note(f"seed {seed}\n{said}")
        raise


@pytest.mark.shows("S4")
@settings(max_examples=settings().max_examples // 4, phases=[Phase.generate])
@given(SEEDS, st.sampled_from(TYPES))
def test_filters_mean_to_arrow_what_they_mean_to_duckdb(seed: int, table_type: str) -> None:
    rng = random.Random(seed)
    case = draw_case(rng, conditions=20)
    filters = ours(case)
    rows = case.rows()
    with TemporaryDirectory() as folder, described(seed, filters):
        table = written(case, Path(folder), rng, table_type)
        expected = by_duckdb(rows, filters)
        for state in states(table):
            assert differing(by_arrow(table, filters), expected) == {}, state
            for key, number in zip(
                rows.column("k").to_pylist(), rows.column(NUMBER).to_pylist(), strict=True
            ):
                assert table.get([key], columns=[NUMBER]).to_pylist() == [{NUMBER: number}], state


def differing(found: Answers, expected: Answers) -> dict[int, tuple[list[int], list[int]]]:
    """Return the conditions that were answered wrongly: what was found, and what was expected."""
    return {
        place: (numbers, expected[place]) for place, numbers in found.items() if numbers != expected[place]
    }


@pytest.mark.spark
@pytest.mark.shows("S4", "S5")
@pytest.mark.parametrize("table_type", TYPES)
@settings(max_examples=max(1, settings().max_examples // 100), phases=[Phase.generate])
@given(seed=SEEDS)
def test_filters_mean_on_every_road_what_they_mean_to_spark(
    spark: SparkSession, table_type: str, seed: int
) -> None:
    rng = random.Random(seed)
    case = draw_case(rng)
    conditions = case.conditions
    with TemporaryDirectory() as folder, described(seed, conditions):
        table = written(case, Path(folder), rng, table_type)
        pq.write_table(case.rows(), f"{folder}/plain.parquet")
        expected = by_spark(spark, f"{folder}/plain.parquet", conditions)
        assert differing(by_duckdb(case.rows(), conditions), expected) == {}, "the judges differ"
        path = f"{folder}/table"
        for state in states(table):
            whole = table.read(spark)
            source = spark.read.format("bucketlake").load(path)
            query = f"SELECT {NUMBER} FROM bucketlake.`{path}` WHERE "
            # To plan these two takes long: they are asked a few of the questions.
            few = rng.sample(range(len(conditions)), 3)
            roads: dict[str, dict[int, DataFrame]] = {
                "filters of read": {
                    place: table.read(spark, columns=[NUMBER], filters=condition.ours)
                    for place, condition in enumerate(conditions)
                    if condition.ours is not None
                },
                "read": {place: whole.filter(condition.spark) for place, condition in enumerate(conditions)},
                "data source": {place: source.filter(conditions[place].spark) for place in few},
                "SQL": {place: bucketlake.sql(spark, query + conditions[place].spark) for place in few},
            }
            for road, frames in roads.items():
                assert differing(answers(frames), expected) == {}, (road, state)


def by_spark(spark: SparkSession, path: str, conditions: Sequence[Condition]) -> Answers:
    """Ask Spark what it finds each condition to be, in each row: so it hands none of them to its reader."""
    verdicts = [fn.expr(condition.spark).alias(f"c{number}") for number, condition in enumerate(conditions)]
    rows = spark.read.parquet(path).select(NUMBER, *verdicts).collect()
    return {
        place: sorted(row[NUMBER] for row in rows if row[f"c{place}"]) for place in range(len(conditions))
    }


def answers(frames: Mapping[int, DataFrame]) -> Answers:
    """Ask all of them in one job."""
    numbered = [frame.select(fn.lit(place).alias("q"), NUMBER) for place, frame in frames.items()]
    found: Answers = {place: [] for place in frames}
    if numbered:
        for place, number in reduce(DataFrame.unionAll, numbered).collect():
            found[place].append(number)
    return {place: sorted(numbers) for place, numbers in found.items()}
