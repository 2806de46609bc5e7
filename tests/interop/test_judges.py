"""The judges agree with each other, or their verdicts on us mean nothing."""

from __future__ import annotations

import datetime
import random
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest

from judges.hudi_jvm import HudiJvm, JudgeError, JudgeMissing, options_for
from judges.hudi_rs import hudi_rs_can_read, read_incremental, read_snapshot
from judges.random_tables import Query, QueryKind, build, completed_instants, describe
from judges.rows import (
    KEY_COLUMNS,
    META_COLUMNS,
    assert_same_rows,
    json_rows,
    load_json_rows,
    parse_json_rows,
)
from judges.truth import Ledger, NotAFold, Ordering
from plugins.soak import seeds

pytestmark = pytest.mark.interop

GOLDEN = Path(__file__).parents[1] / "golden"

SCHEMA = pa.schema([("id", pa.int32()), ("name", pa.string()), ("ts", pa.int64()), ("dt", pa.string())])
EVOLVED = SCHEMA.append(pa.field("_hoodie_is_deleted", pa.bool_()))


def batch(*rows: tuple[object, ...], schema: pa.Schema = SCHEMA) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(schema.names, row, strict=True)) for row in rows], schema=schema)


FIRST = batch(*[(n, f"n{n}", 100, f"p{n % 2}") for n in range(12)])
SECOND = batch(
    (1, "newer", 101, "p1"), (2, "late", 99, "p0"), (4, "tie", 100, "p0"), (20, "first", 101, "p0")
)
GONE = batch((3, "", 102, "p1"), (5, "", 1, "p1"))
SOFT = batch((6, "", 103, "p0", True), (7, "", 1, "p1", True), (8, "last", 104, "p0", False), schema=EVOLVED)


@pytest.mark.parametrize("table_type", ["COPY_ON_WRITE", "MERGE_ON_READ"])
@pytest.mark.parametrize("mode", list(Ordering))
def test_the_jvm_and_hudi_rs_and_the_ledger_hold_the_same_rows(
    hudi: HudiJvm, tmp_path: Path, table_type: str, mode: Ordering
) -> None:
    ordering = "ts" if mode is Ordering.EVENT_TIME else None
    options = options_for("judged", table_type=table_type, ordering=ordering)
    ledger = Ledger(key=["id", "dt"], ordering=ordering, mode=mode)
    for rows in (FIRST, SECOND):
        hudi.write(tmp_path, rows, options)
        ledger.upsert(rows)
    hudi.write(tmp_path, GONE, options, operation="delete")
    ledger.delete(GONE)
    hudi.write(tmp_path, SOFT, options)
    ledger.upsert(SOFT)

    by_jvm = hudi.read(tmp_path)
    assert_same_rows(by_jvm, ledger.rows(), key=["id"], without=META_COLUMNS)
    assert_same_rows(read_snapshot(tmp_path), by_jvm)


def test_a_ledger_refuses_a_history_that_hudi_answers_by_its_files() -> None:
    ledger = Ledger(key=["id", "dt"], ordering="ts")
    ledger.upsert(FIRST)
    ledger.delete(GONE)
    with pytest.raises(NotAFold, match="'id': 3"):
        ledger.upsert(batch((3, "older than what was deleted", 99, "p1")))
    ledger.upsert(batch((3, "as new as what was deleted", 100, "p1")))
    assert "as new as what was deleted" in ledger.rows().column("name").to_pylist()


EVERY_TYPE = pa.table(
    {
        "id": pa.array([1, 2], pa.int32()),
        "ts": pa.array([5, 5], pa.int64()),
        "dt": ["p", "p"],
        "truth": [True, None],
        "tiny": pa.array([-3, None], pa.int8()),
        "single": pa.array([0.1, float("nan")], pa.float32()),
        "double": pa.array([-0.0, None], pa.float64()),
        "money": pa.array([Decimal("12345.60"), None], pa.decimal128(10, 2)),
        "wide": pa.array([Decimal("-0.000000000000000001"), None], pa.decimal128(38, 18)),
        "raw": pa.array([b"\x00\xff", None], pa.binary()),
        "day": pa.array([datetime.date(1969, 12, 31), None], pa.date32()),
        "moment": pa.array([1_704_164_645_678_901, None], pa.timestamp("us", tz="UTC")),
        "wall": pa.array([-1, None], pa.timestamp("us")),
        "list": pa.array([["a", "b"], None], pa.list_(pa.string())),
        "map": pa.array([[("k", 1), ("j", None)], None], pa.map_(pa.string(), pa.int64())),
        # Two fields in the inner struct: with one, Hudi can't update what it wrote ("z is not a group").
        "struct": pa.array(
            [{"x": None, "y": [{"z": 1, "w": None}]}, None],
            pa.struct(
                [("x", pa.int32()), ("y", pa.list_(pa.struct([("z", pa.int32()), ("w", pa.string())])))]
            ),
        ),
    }
)


@pytest.mark.parametrize("table_type", ["COPY_ON_WRITE", "MERGE_ON_READ"])
def test_every_type_survives_the_way_through_the_jvm(hudi: HudiJvm, tmp_path: Path, table_type: str) -> None:
    options = options_for("typed", table_type=table_type)
    hudi.write(tmp_path, EVERY_TYPE, options)
    hudi.write(tmp_path, EVERY_TYPE, options)
    assert_same_rows(hudi.read(tmp_path), EVERY_TYPE, key=["id"], without=META_COLUMNS)


def test_rows_printed_here_are_the_rows_spark_prints(hudi: HudiJvm, tmp_path: Path) -> None:
    hudi.write(tmp_path, EVERY_TYPE, options_for("printed"))
    assert_same_rows(json_rows(hudi.read(tmp_path)), parse_json_rows(hudi.rows_json(tmp_path)))


def test_a_difference_names_the_row_and_the_column() -> None:
    expected = batch((1, "a", 5, "p"), (2, "b", 5, "p"), (3, "c", 5, "p"))
    found = batch((1, "a", 5, "p"), (2, "B", 5, "p"), (4, "d", 5, "p"))
    with pytest.raises(AssertionError) as failure:
        assert_same_rows(found, expected, key=["id"])
    assert str(failure.value).splitlines() == [
        "found 3 rows, expected 3",
        "differs    (2,)",
        "             name: found 'B', expected 'b'",
        "missing    {dt: 'p', id: 3, name: 'c', ts: 5}",
        "unexpected {dt: 'p', id: 4, name: 'd', ts: 5}",
    ]


def test_what_hudi_refuses_is_an_error_with_its_reason(hudi: HudiJvm, tmp_path: Path) -> None:
    with pytest.raises(JudgeError, match="TableNotFoundException"):
        hudi.read(tmp_path / "nothing")
    with pytest.raises(JudgeError, match="selec"):
        hudi.sql("selec 1")
    assert hudi.sql("select 1 as one") == [{"one": 1}], "a refusal does not end the judge"


def test_a_machine_without_the_judge_is_told_what_to_do(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("BUCKETLAKE_JUDGE_PYTHON", str(tmp_path / "python"))
    with pytest.raises(JudgeMissing, match="make setup"):
        HudiJvm().ping()


def test_a_static_method_of_java_can_be_asked(hudi: HudiJvm) -> None:
    buckets = "org.apache.hudi.index.bucket.BucketIdentifier"
    assert hudi.java(buckets, "getBucketId", "k1:a,k2:b", ["k1", "k2"], 4) == 2


# These hold no committed rows that anybody wrote down, so only their number is judged.
COUNTED = {"cow_failed_inflight_markers": 0, "svc_mor_b": 13, "svc_mor": 3}
ARCHIVES = sorted(path.name.removesuffix(".tar.gz") for path in GOLDEN.glob("*.tar.gz"))


@pytest.mark.parametrize("name", ARCHIVES)
def test_the_jvm_reads_a_golden_table_as_its_expected_rows(
    hudi: HudiJvm, golden_table: Callable[[str], Path], name: str
) -> None:
    if name in COUNTED:
        assert len(hudi.rows_json(golden_table(name))) == COUNTED[name]
    else:
        found = parse_json_rows(hudi.rows_json(golden_table(name)))
        assert_same_rows(found, load_json_rows(GOLDEN / f"{name}.expected.jsonl"))


# The JVM takes a partition column from the path, hudi-rs from the data file. They differ for an empty string, which the
# path holds as null, and for a row that a global index kept in its old partition.
PARTITION_VALUES_DIFFER = {"cow_composite_keys", "cow_global_rli"}


@pytest.mark.parametrize("name", [name for name in ARCHIVES if name not in COUNTED])
def test_hudi_rs_reads_a_golden_table_as_the_jvm_does_or_is_known_not_to(
    hudi: HudiJvm, golden_table: Callable[[str], Path], name: str
) -> None:
    path = golden_table(name)
    by_jvm = hudi.read(path)
    if hudi_rs_can_read(by_jvm.schema, _properties(path)):
        without = ["dt"] if name in PARTITION_VALUES_DIFFER else []
        assert_same_rows(read_snapshot(path), by_jvm, without=without)
    else:
        assert name in {"cow_all_types", "mor_all_types", "mor_all_types_parquet_log", "mor_multi_ordering"}


def test_hudi_rs_and_the_jvm_agree_on_the_past(hudi: HudiJvm, tmp_path: Path) -> None:
    options = options_for("past", table_type="MERGE_ON_READ")
    for rows in (FIRST, SECOND, GONE):
        hudi.write(tmp_path, rows, options)
    first, second, _ = completed_instants(tmp_path)
    travel = Query(QueryKind.AS_OF, as_of=second.requested)
    changes = Query(QueryKind.INCREMENTAL, after=first.completed, until=second.completed)
    assert_same_rows(
        read_snapshot(tmp_path, as_of=second.requested), hudi.read(tmp_path, travel.hudi_options())
    )
    assert_same_rows(
        read_incremental(tmp_path, after=first.completed, until=second.completed),
        hudi.read(tmp_path, changes.hudi_options()),
    )


@pytest.mark.parametrize("seed", seeds(1))
def test_hudi_makes_a_described_table_and_answers_every_query(
    hudi: HudiJvm, tmp_path: Path, seed: int
) -> None:
    built = build(hudi, describe(random.Random(seed)), tmp_path / "table", snapshots=True)
    assert built.refusal is None, built.description
    assert_same_rows(built.expected(Query(QueryKind.SNAPSHOT)), built.steps[-1].snapshot)
    for query in built.queries():
        built.expected(query)


def test_a_description_builds_the_same_rows_again(hudi: HudiJvm, tmp_path: Path) -> None:
    description = describe(random.Random(9))
    first, second = (build(hudi, description, tmp_path / name, snapshots=True) for name in ("a", "b"))
    assert len(first.steps) == len(description.steps)
    for one, other in zip(first.steps, second.steps, strict=True):
        assert one.written == other.written
        assert_same_rows(one.snapshot, other.snapshot, without={*META_COLUMNS} - {*KEY_COLUMNS})


def _properties(path: Path) -> dict[str, str]:
    lines = (path / ".hoodie" / "hoodie.properties").read_text(encoding="latin-1").splitlines()
    return dict(line.split("=", 1) for line in lines if "=" in line)


def test_hudi_takes_rows_whose_keys_are_spelled_alike_for_one(hudi: HudiJvm, tmp_path: Path) -> None:
    """Which is why we refuse them."""
    keys = [("1,b:2", "3"), ("1", "2,b:3"), ("__null__", "q"), (None, "q"), ("x", ""), ("x", "__empty__")]
    rows = [{"a": a, "b": b, "dt": "p", "ts": 1} for a, b in keys]
    rows += [{"a": "y", "b": "z", "dt": dt, "ts": 1} for dt in ("__HIVE_DEFAULT_PARTITION__", None)]
    schema = pa.schema([("a", pa.string()), ("b", pa.string()), ("dt", pa.string()), ("ts", pa.int64())])
    hudi.write(tmp_path, pa.Table.from_pylist(rows, schema), options_for("alike", key="a,b"))
    held = hudi.read(tmp_path).column("_hoodie_record_key").to_pylist()
    assert sorted(held) == ["a:1,b:2,b:3", "a:__null__,b:q", "a:x,b:__empty__", "a:y,b:z"]
