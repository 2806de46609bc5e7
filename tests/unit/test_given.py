"""What a newcomer hands over: it works, or one clear error says what does; and nothing is written."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from bucketlake import (
    ConfigError,
    FilterError,
    SchemaError,
    Table,
    create_table,
    parquet_files,
    sql,
)
from bucketlake.cli import main
from bucketlake.index import SimpleBuckets
from bucketlake.storage import MemoryStore
from bucketlake.write import TableSpec, create

UTC = datetime.UTC
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("name", pa.string()),
        ("amount", pa.decimal128(10, 2)),
        ("n", pa.int32()),
        ("at", pa.timestamp("us", tz="UTC")),
        ("local", pa.timestamp("us")),
        ("day", pa.date32()),
        ("x", pa.float32()),
        ("counts", pa.map_(pa.string(), pa.int32())),
    ]
)
ROW = {
    "id": 1,
    "name": "a",
    "amount": Decimal("1.50"),
    "n": 7,
    "at": datetime.datetime(2026, 6, 18, 12, tzinfo=UTC),
    "local": datetime.datetime(2026, 6, 18, 12),
    "day": datetime.date(2026, 6, 18),
    "x": 0.5,
    "counts": [("a", 1)],
}


class ArrowStream:
    """Stands in for polars, DuckDB and others: all that is known of them is that Arrow can ask for their rows."""

    def __init__(self, rows: pa.Table) -> None:
        self._rows = rows

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._rows.__arrow_c_stream__(requested_schema)


class Session:
    """Stands in for a session where nothing is asked of it."""

    createDataFrame = None


@pytest.fixture
def table() -> Table:
    store = MemoryStore()
    return Table(
        store, create(store, TableSpec(name="t", schema=SCHEMA, key=("id",), index=SimpleBuckets(2)))
    )


def rows_of(table: Table) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = table.to_arrow(meta_columns=False).to_pylist()
    return found


ARROW = pa.Table.from_pylist([ROW], SCHEMA)
PANDAS = pd.DataFrame([ROW | {"counts": {"a": 1}}])
WIDE = pa.Table.from_pandas(PANDAS.drop(columns="counts")).append_column("counts", ARROW["counts"])


@pytest.mark.shows("S5")
@pytest.mark.parametrize(
    "rows",
    [
        lambda: ARROW,
        lambda: ARROW.to_batches()[0],
        lambda: ARROW.to_reader(),
        lambda: PANDAS,
        lambda: PANDAS.set_index(pd.Index(["some index"])),
        lambda: PANDAS.assign(name=PANDAS["name"].astype("category"), n=PANDAS["n"].astype("Int64")),
        lambda: ArrowStream(WIDE),
        lambda: [ROW],
        lambda: [ROW | {"counts": {"a": 1}, "amount": 1.5, "id": np.int64(1), "name": np.str_("a")}],
    ],
    ids=["table", "batch", "reader", "pandas", "index", "categories", "stream", "dicts", "numpy in dicts"],
)
@pytest.mark.parametrize("method", ["upsert", "bulk_insert", "overwrite"])
def test_rows_of_every_kind_are_written_with_the_types_of_the_table(
    rows: Callable[[], Any], method: str, table: Table
) -> None:
    assert getattr(table, method)(rows()).inserted == 1
    assert rows_of(table) == [ROW]
    assert table.schema == SCHEMA
    if not isinstance(rows(), list):
        assert table.delete(rows()).deleted == 1
        assert rows_of(table) == []


@pytest.mark.parametrize(
    ("column", "given", "stored"),
    [
        ("n", 2.0, 2),
        ("n", np.nan, None),
        ("n", None, None),
        ("amount", 5, Decimal("5.00")),
        ("amount", 0.1, Decimal("0.10")),
        ("day", pd.Timestamp("2026-06-18"), datetime.date(2026, 6, 18)),
        ("x", 3, 3.0),
        ("x", np.nan, None),
        ("at", pd.Timestamp("2026-06-18 14:00", tz="Europe/Paris"), ROW["at"]),
        ("at", pd.NaT, None),
        ("name", None, None),
        ("name", np.nan, None),
        ("counts", None, None),
    ],
)
def test_a_value_of_pandas_becomes_the_same_value_of_the_table(
    column: str, given: Any, stored: Any, table: Table
) -> None:
    table.upsert(PANDAS.assign(**{column: [given]}))
    assert rows_of(table) == [ROW | {column: stored}]


def test_a_float_of_python_becomes_the_nearest_one_and_nan_stays_a_number(table: Table) -> None:
    table.upsert(
        [ROW | {"x": 0.1}, ROW | {"id": 2, "x": float("nan")}, {"id": 3, "name": "all else is null"}]
    )
    found = {row["id"]: row["x"] for row in rows_of(table)}
    assert found[1] == np.float32(0.1) and np.isnan(found[2]) and found[3] is None


@pytest.mark.parametrize(
    ("column", "given", "words"),
    [
        ("n", 2**31, "not in range"),
        ("n", 1.5, "truncated"),
        ("n", "7", "string"),
        ("n", object(), "cannot be made of these values"),
        ("id", 2**63, "loss|too large"),
        ("name", 5, "int64"),
        ("amount", 0.125, "some values would change"),
        ("amount", 10**9, "loss"),
        ("day", pd.Timestamp("2026-06-18 12:00"), "some values would change"),
        ("at", pd.Timestamp("2026-06-18"), "no time zone"),
        ("local", pd.Timestamp("2026-06-18", tz="UTC"), "without time zone"),
        ("local", pd.Timestamp("2026-06-18 00:00:00.000000001"), "nanosecond|would lose|microseconds"),
        ("x", 1e300, "loss|would change"),
        ("counts", {"a": 2**31}, "counts"),
        ("counts", 5, "counts"),
    ],
)
@pytest.mark.parametrize("kind", ["pandas", "dicts"])
def test_a_value_that_would_change_is_refused_before_anything_is_written(
    column: str, given: Any, words: str, kind: str, table: Table
) -> None:
    table.upsert([ROW])
    changed = ROW | {"id": 1, column: given}
    rows = pd.DataFrame([changed]) if kind == "pandas" else [changed]
    with pytest.raises(SchemaError, match=words):
        table.upsert(rows)
    assert rows_of(table) == [ROW]
    assert len(table.timeline()) == 1


def test_a_double_of_pandas_is_no_single(table: Table) -> None:
    with pytest.raises(SchemaError, match=r"column 'x' is a float in the table and a double in the rows"):
        table.upsert(PANDAS.assign(x=[0.1]))


@pytest.mark.parametrize(
    "rows",
    [
        None,
        5,
        "rows.parquet",
        Path("rows.parquet"),
        ROW,
        {"id": [1]},
        [(1, "a")],
        PANDAS["id"],
        ARROW["id"],
        np.ones(3),
    ],
)
def test_what_is_no_rows_is_refused_with_what_is(rows: Any, table: Table) -> None:
    with pytest.raises(ConfigError, match=r"bucketlake\.parquet_files\(.*, spark=spark\)"):
        table.upsert(rows)


@pytest.mark.parametrize(
    "rows", [PANDAS.rename(columns={"n": 0}), pd.concat([PANDAS, PANDAS[["id"]]], axis=1), [{5: 1}]]
)
def test_columns_without_a_name_of_their_own_are_refused(rows: Any, table: Table) -> None:
    with pytest.raises(SchemaError):
        table.upsert(rows)


def test_no_rows_are_no_write(table: Table) -> None:
    assert table.upsert([]).instant is None


@pytest.mark.parametrize(
    "key",
    [
        1,
        np.int64(1),
        np.int32(1),
        Decimal(1),
        pa.scalar(1),
        [np.int64(1)],
        np.array([1]),
        pd.Series([1]),
        pa.array([1]),
        range(1, 2),
        {"id": np.int64(1)},
        [{"id": Decimal(1)}],
        pd.DataFrame({"id": [1]}, index=["some index"]),
        pa.table({"id": [1]}),
        ArrowStream(pa.table({"id": [1]})),
    ],
    ids=lambda key: type(key).__name__,
)
def test_a_key_may_be_a_number_of_any_library(key: Any, table: Table) -> None:
    table.upsert([ROW, ROW | {"id": 2}])
    assert table.get(key, columns="id").to_pylist() == [{"id": 1}]
    assert table.delete(key).deleted == 1
    assert [row["id"] for row in rows_of(table)] == [2]


def test_a_filter_may_hold_a_number_or_a_time_of_any_library(table: Table) -> None:
    table.upsert([ROW])
    for column, value in [
        ("n", np.int64(7)),
        ("n", Decimal(7)),
        ("x", np.float32(0.5)),
        ("amount", np.int64(1)),
        ("local", np.datetime64("2026-06-18T12", "ns")),
        ("local", pd.Timestamp("2026-06-18 12:00")),
    ]:
        assert table.to_arrow(filters=[(column, ">=", value)]).num_rows == 1
    with pytest.raises(FilterError, match=r"the value Decimal\('7.5'\) is a Decimal"):
        table.to_arrow(filters=[("n", ">=", Decimal("7.5"))])


def test_one_column_may_be_named_alone(table: Table) -> None:
    table.upsert([ROW])
    assert table.to_arrow(columns="id").to_pylist() == table.get(1, columns="id").to_pylist() == [{"id": 1}]
    assert table.to_arrow(columns="id", filters=None).num_rows == 1


DDL = "id BIGINT, name VARCHAR(5)"


def make(**arguments: Any) -> Table:
    return create_table("memory://given", DDL, **{"key": "id", **arguments})


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda t: t.read(None), "found None, expected a Spark session.*to_arrow"),
        (lambda t: t.read("id"), "expected a Spark session"),
        (lambda t: t.compact(spark="id"), "expected a Spark session"),
        (lambda t: t.fsck(spark=5), "expected a Spark session"),
        (lambda t: sql("SELECT 1", None), "expected a Spark session"),
        (lambda t: sql(Session(), 5), "the statement is 5, an int"),
        (lambda t: parquet_files(Session(), spark="/data"), "expected a Spark session"),
        (lambda t: parquet_files(None, spark=Session()), "the path of the files is None"),
        (lambda t: create_table("/data", DDL, key="id", spark="/data"), "None will do"),
        (lambda t: create_table(Session(), DDL, key="id"), "the table's path is a Spark session"),
        (lambda t: create_table(None, DDL, key="id"), "the table's path is None"),
        (lambda t: create_table("memory://given", None, key="id"), "the table's schema is None"),
        (lambda t: create_table("memory://given", {"id": "bigint"}, key="id"), "schema is .*a dict"),
        (
            lambda t: create_table("memory://given", [{"id": 1}], key="id"),
            "schema is .*a list; expected .*an Arrow table or a frame, which have one",
        ),
        (lambda t: create_table("memory://given", "id bigit", key="id"), "found 'bigit'"),
        (
            lambda t: create_table("memory://given", DDL + ", _hoodie_is_deleted INT", key="id"),
            "'_hoodie_is_deleted' is a int32; expected boolean",
        ),
        (lambda t: create_table(__file__, DDL, key="id"), "is a file, or lies below one; expected a folder"),
        (lambda t: create_table(f"{__file__}/t", DDL, key="id"), "is a file, or lies below one"),
        (lambda t: make(key=None), "key is None; expected a name"),
        (lambda t: make(key=[]), "key"),
        (lambda t: make(key=["id", 5]), "key is"),
        (lambda t: make(partition=5), "partition is 5, an int"),
        (lambda t: make(buckets="4"), "buckets is '4', a str; expected a whole number"),
        (lambda t: make(buckets=4.0), "buckets is 4.0"),
        (lambda t: make(buckets=True), "buckets is True"),
        (lambda t: make(table_type="more"), "table_type is 'more'; expected cow, mor, COPY_ON_WRITE or"),
        (lambda t: make(table_type=None), "table_type is None"),
        (lambda t: make(hive_style="false"), "hive_style is 'false', a str; expected True or False"),
        (lambda t: Table.open(None), "the table's path is None"),
        (lambda t: Table.open("memory://given", buckets="4"), "not a Hudi table|buckets is '4'"),
        (lambda t: Table(t.store, t.properties, buckets="4"), "buckets is '4'"),
        (lambda t: t.to_arrow(columns=5), "columns is 5"),
        (lambda t: t.to_arrow(column="id"), "no option 'column' here; expected one of columns"),
        (lambda t: t.to_arrow(filters="id = 1"), "filters is 'id = 1'; expected a list such as"),
        (lambda t: t.to_arrow(filters={"id": 1}), "filters is"),
        (lambda t: t.get(1, partition=5), "partition is 5"),
        (
            lambda t: t.get({"id": 1, "name": "a"}),
            r"key of this table is \(id\) and got \(id, name\).*partition=",
        ),
        (lambda t: t.upsert([ROW], logformat="avro"), "no option 'logformat' here"),
        (
            lambda t: t.upsert([ROW], maintenance=True),
            "maintenance is True; expected a bucketlake.Maintenance, one of inline, service, off",
        ),
        (lambda t: t.overwrite([ROW], whole_table="false"), "whole_table is 'false'"),
        (lambda t: t.upsert([ROW], merge_schema="false"), "merge_schema is 'false', a str; expected True or"),
        (lambda t: t.upsert([ROW], progress="no"), "progress is 'no'"),
        (lambda t: t.alter(merge_schema="false"), "merge_schema is 'false', a str; expected True or False"),
        (lambda t: t.alter(allow_missing_columns=1), "allow_missing_columns is 1, an int; expected True or"),
        (lambda t: t.to_arrow(read_optimized="false"), "read_optimized is 'false', a str; expected True or"),
        (lambda t: t.to_arrow(meta_columns="no"), "meta_columns is 'no'"),
        (lambda t: t.cluster(by="id", hours="2"), "hours is '2', a str; expected a number"),
        (lambda t: t.buckets.resize(file_bytes="1MB"), "file_bytes is '1MB', a str; expected a number"),
        (lambda t: t.delete_partitions(None), "partitions is None"),
        (lambda t: t.cluster(by=None), "by is None"),
        (lambda t: t.cluster(by="id", min_byte=5), "no option 'min_byte' here"),
        (lambda t: t.compact(delta_commits="3"), "delta_commits is '3', a str; expected a number"),
        (lambda t: t.clean(retain_commits=[3]), "retain_commits is"),
        (lambda t: t.archive(keep_min="1"), "keep_min is '1'"),
        (lambda t: t.buckets.overwrite(["a,1"]), "rules is"),
        (lambda t: t.buckets.resize(filebytes=1), "no option 'filebytes' here"),
        (
            lambda t: t.buckets.overwrite("a,1", bucket_number="4"),
            "bucket_number is '4', a str; expected a whole",
        ),
        (
            lambda t: t.buckets.rollback("1", with_newer="no"),
            "with_newer is 'no', a str; expected True or False",
        ),
        (lambda t: t.buckets.abort(5), "instant is 5, an int; expected a text"),
        (lambda t: t.compact(dry_run=True), r"no argument 'dry_run' any more.*table\.plan_compaction\(\)"),
        (lambda t: t.buckets.overwrite("a,1", dry_run=True), "Write instead: the plan of the same name"),
        (lambda t: t.rollback(5), "instant is 5, an int; expected a text"),
    ],
)
def test_a_mistake_is_an_error_that_says_what_was_found_and_what_was_expected(
    call: Callable[[Table], Any], words: str, table: Table
) -> None:
    with pytest.raises(ConfigError, match=words):
        call(table)
    assert table.timeline() == ()


@pytest.mark.shows("H4")
@pytest.mark.parametrize("word", ["mor", "MOR", "MERGE_ON_READ", "merge_on_read"])
def test_a_table_type_has_the_same_words_in_python_and_in_commands(
    word: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["create", str(tmp_path / "c"), "--schema", DDL, "--key", "id", "--table-type", word])
    assert not stop.value.code
    made = [create_table(tmp_path / "t", DDL, key="id", table_type=word), Table.open(tmp_path / "c")]
    assert [table.describe().table_type for table in made] == ["MERGE_ON_READ"] * 2


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        (DDL, pa.schema([("id", pa.int64()), ("name", pa.string())])),
        (ARROW, SCHEMA),
        (ArrowStream(ARROW), SCHEMA),
        (PANDAS[["id", "local"]], pa.schema([("id", pa.int64()), ("local", pa.timestamp("us"))])),
    ],
    ids=["text", "table", "stream", "pandas"],
)
def test_a_table_is_made_of_what_has_columns(schema: Any, expected: pa.Schema, tmp_path: Path) -> None:
    nothing = {"key": "id", "partition": None, "ordering": None}
    assert create_table(tmp_path / "t", schema, buckets=np.int64(4), **nothing).schema == expected
