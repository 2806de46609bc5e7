"""Times mean the same whatever the zones of the session and of this process are, on every road to the rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta
from functools import reduce
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import bucketlake
from bucketlake import ConfigError, Table, create_table
from stand_ins.zones import process_in

pytestmark = [pytest.mark.spark, pytest.mark.shows("S4", "X3")]

SESSION_ZONE = "spark.sql.session.timeZone"
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("local", pa.timestamp("us")),
        ("moment", pa.timestamp("us", tz="UTC")),
        ("day", pa.date32()),
    ]
)
TIMES = [
    *(
        datetime(2024, 3, 31, 1, 30) + timedelta(minutes=30 * step) for step in range(4)
    ),  # 02:30 is no time in Berlin
    *(datetime(2024, 10, 27, 1, 30) + timedelta(minutes=30 * step) for step in range(4)),  # and 02:30 is two
    *(datetime(2024, 3, 10, 1, 30) + timedelta(minutes=30 * step) for step in range(4)),  # as in New York
    datetime(1500, 3, 1, 12),
    datetime(1969, 12, 31, 23, 59, 59, 999_999),
]
ROWS = [
    {"id": number, "local": time, "moment": time.replace(tzinfo=UTC), "day": time.date()}
    for number, time in enumerate(TIMES)
]
BERLIN, NEW_YORK = "Europe/Berlin", "America/New_York"


@pytest.fixture
def session(spark: SparkSession) -> Iterator[SparkSession]:
    """A session of one zone, in a process of another, with Java in a third."""
    before = str(spark.conf.get(SESSION_ZONE))
    spark.conf.set(SESSION_ZONE, NEW_YORK)
    with process_in(BERLIN):
        yield spark
    spark.conf.set(SESSION_ZONE, before)


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> list[Table]:
    """Rows that Spark's own reader reads, and rows that are merged with a log first."""
    root = tmp_path_factory.mktemp("zones")
    return [_written(root / kind, kind) for kind in ("COPY_ON_WRITE", "MERGE_ON_READ")]


def _written(path: Path, kind: str) -> Table:
    table = create_table(path, SCHEMA, key="id", buckets=1, table_type=kind)
    table.bulk_insert(pa.Table.from_pylist(ROWS, SCHEMA))
    if kind == "MERGE_ON_READ":
        table.upsert(pa.Table.from_pylist(ROWS[:1], SCHEMA))
    return table


MEANINGS: dict[str, Callable[[Any, Any], bool]] = {
    "=": lambda found, wanted: found == wanted,
    "!=": lambda found, wanted: found != wanted,
    "<": lambda found, wanted: found < wanted,
    ">=": lambda found, wanted: found >= wanted,
    "in": lambda found, wanted: found in wanted,
    "not in": lambda found, wanted: found not in wanted,
}


def test_filters_on_times_mean_one_thing_on_every_road(session: SparkSession, tables: list[Table]) -> None:
    moments = [time.replace(tzinfo=UTC).astimezone(ZoneInfo(BERLIN)) for time in TIMES]
    everywhere: list[tuple[str, str, Any]] = [
        ("local", "=", TIMES[2]),
        ("local", "in", TIMES[5:7]),
        ("moment", "=", moments[4]),
    ]
    filters = [
        *everywhere,
        *(("local", "=", TIMES[number]) for number in (10, 12, 13)),
        ("local", "not in", [TIMES[5], TIMES[5].replace(fold=1)]),
        *(("local", operator, TIMES[2]) for operator in ("<", ">=")),
        ("moment", "in", [moments[5], moments[12]]),
        ("moment", "<", moments[5]),
        ("day", "=", date(1500, 3, 1)),
        ("day", ">=", date(2024, 3, 31)),
    ]
    expected = [_ids(ROWS, condition) for condition in filters]
    for table in tables:
        by_arrow = [table.to_arrow(filters=[f]).column("id").to_pylist() for f in filters]
        assert [sorted(found) for found in by_arrow] == expected
        assert _collected([table.read(session, columns=["id"], filters=[f]) for f in filters]) == expected
        query = f"SELECT id FROM bucketlake.`{table.store.uri}` WHERE"
        by_sql = [bucketlake.sql(session, f"{query} {_spelled(condition)}") for condition in everywhere]
        source = session.read.format("bucketlake").load(table.store.uri)
        by_source = [source.filter(_spelled(condition)) for condition in everywhere]
        assert _collected([*by_sql, *by_source]) == expected[: len(everywhere)] * 2


def _ids(rows: list[dict[str, Any]], condition: tuple[str, str, Any]) -> list[int]:
    column, operator, wanted = condition
    meant = [_in_utc(value) for value in wanted] if isinstance(wanted, list) else _in_utc(wanted)
    return [row["id"] for row in rows if MEANINGS[operator](row[column], meant)]


def _in_utc(value: Any) -> Any:
    """In their own zones Python does not compare times of an hour that comes twice."""
    return value.astimezone(UTC) if isinstance(value, datetime) and value.tzinfo else value


def _collected(frames: list[DataFrame]) -> list[list[int]]:
    """Run them all as one job."""
    numbered = [frame.select("id", F.lit(number).alias("number")) for number, frame in enumerate(frames)]
    found: list[list[int]] = [[] for _ in frames]
    for row in reduce(DataFrame.union, numbered).collect():
        found[row["number"]].append(row["id"])
    return [sorted(ids) for ids in found]


def _spelled(condition: tuple[str, str, Any]) -> str:
    column, operator, wanted = condition
    if isinstance(wanted, list):
        return f"{column} {operator} ({', '.join(_literal(column, value) for value in wanted)})"
    return f"{column} {operator} {_literal(column, wanted)}"


def _literal(column: str, value: Any) -> str:
    kind = {"local": "TIMESTAMP_NTZ", "moment": "TIMESTAMP", "day": "DATE"}[column]
    return f"{kind} '{value.isoformat()}'"


def test_moments_are_named_in_the_zone_of_the_session_or_with_one_of_their_own(
    session: SparkSession, tmp_path: Path
) -> None:
    table = create_table(tmp_path / "t", SCHEMA, key="id")
    first = table.upsert(pa.Table.from_pylist(ROWS[:1], SCHEMA)).instant
    second = table.upsert(pa.Table.from_pylist(ROWS[1:3], SCHEMA)).instant
    assert first is not None and second is not None
    then = datetime.strptime(f"{first}000", "%Y%m%d%H%M%S%f").replace(tzinfo=UTC)
    there = then.astimezone(ZoneInfo(str(session.conf.get(SESSION_ZONE)))).replace(tzinfo=None)
    here = then.astimezone().replace(tzinfo=None)

    in_tokyo = then.astimezone(ZoneInfo("Asia/Tokyo")).isoformat()
    anywhere = [then, here, f"{then.replace(tzinfo=None)}Z", in_tokyo, first]
    for moment in (*anywhere, str(here)):
        assert table.to_arrow(as_of=moment).num_rows == 1, moment
        assert table.get([0, 1], as_of=moment).num_rows == 1, moment
    # A completion time is some milliseconds later than its instant.
    hour = timedelta(hours=1)
    source = session.read.format("bucketlake")
    path = str(tmp_path / "t")
    query = f"SELECT t.id FROM bucketlake.`{path}`"
    frames = [
        *(bucketlake.sql(session, f"{query} TIMESTAMP AS OF '{text}' t") for text in (there, in_tokyo)),
        bucketlake.sql(session, f"{query} VERSION AS OF {first} AS t WHERE id >= 0"),
        *(table.read(session, as_of=moment) for moment in (*anywhere, str(there))),
        *(source.option("as_of", text).load(path) for text in (f"{then.replace(tzinfo=None)}Z", first)),
        table.read(session, begin=then - hour, end=str(there + hour)),
        table.read(session, begin=str(there + hour)),
    ]
    assert _collected(frames) == [[0]] * 11 + [[0, 1, 2], []]

    with pytest.raises(Exception, match="has no offset, and format"):
        source.option("as_of", str(there)).load(path)
    session.conf.set(SESSION_ZONE, "PST")
    with pytest.raises(ConfigError, match=r"is 'PST', which is no zone that is known here"):
        table.read(session, as_of=str(there))
    table.read(session, as_of=then)
