"""MERGE, UPDATE and DELETE by a condition: in SQL and in Python, beside others, and against a model."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import bucketlake
from bucketlake import ConfigError, RecordIndex, Table
from bucketlake.errors import CommitConflictError, SchemaError
from bucketlake.layout import FileGroupId
from bucketlake.merging import MergedRows, QueriedRows, UpdateRows
from bucketlake.testing.invariants import check_invariants
from bucketlake.write import Computed
from judges.random_merges import COLUMNS, Refused, draw, draw_rows
from plugins.soak import seeds_for

pytestmark = [pytest.mark.spark, pytest.mark.shows("S5")]

Run = Callable[..., Any]
SCHEMA = "id STRING, n INT, ts BIGINT, dt STRING"
ROWS = [("a", 1, 5, "x"), ("b", 2, 5, "x"), ("c", 3, 5, "y"), ("d", 4, 5, "y")]


@pytest.fixture
def run(spark: SparkSession, tmp_path: Path) -> Run:
    return lambda text, **args: bucketlake.sql(spark, text, args=args or None, warehouse=tmp_path / "lake")


@pytest.fixture(params=["cow", "mor"])
def orders(request: pytest.FixtureRequest, run: Run) -> Table:
    table = run(
        f"""CREATE TABLE orders ({SCHEMA}) USING bucketlake PARTITIONED BY (dt) TBLPROPERTIES (primaryKey = 'id',
        preCombineField = 'ts', type = '{request.param}', hoodie.bucket.index.num.buckets = 1)"""
    )
    assert isinstance(table, Table)
    table.upsert([dict(zip(("id", "n", "ts", "dt"), row, strict=True)) for row in ROWS])
    return table


def rows(table: Table) -> list[tuple[Any, ...]]:
    found = table.to_arrow(columns=["id", "n", "ts", "dt"]).to_pylist()
    return sorted((tuple(row.values()) for row in found), key=repr)


def test_a_merge_updates_deletes_and_inserts_in_one_commit(run: Run, orders: Table) -> None:
    before = len(orders.timeline())
    done = run(
        """MERGE INTO orders AS o
        USING (SELECT * FROM VALUES ('a', 10), ('b', -1), ('z', 5), ('y', -5) v(id, m)) AS s ON o.id = s.id
        WHEN MATCHED AND m < :least THEN DELETE
        WHEN MATCHED THEN UPDATE SET n = CASE WHEN m > 1 THEN o.n + s.m ELSE 0 END
        WHEN NOT MATCHED AND m > 0 THEN INSERT (id, n, ts, dt) VALUES (id, m, 1, 'q')
        WHEN NOT MATCHED BY SOURCE AND dt = 'y' AND n > 3 THEN UPDATE SET n = -n""",
        least=0,
    )
    assert rows(orders) == [("a", 11, 5, "x"), ("c", 3, 5, "y"), ("d", -4, 5, "y"), ("z", 5, 1, "q")]
    assert len(orders.timeline()) == before + 1 and done.deleted == 1

    run(
        """MERGE INTO orders USING orders VERSION AS OF 20990101000000000 AS s ON orders.id = s.id AND s.n > 0
        WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED BY SOURCE THEN DELETE"""
    )
    assert rows(orders) == [("a", 11, 5, "x"), ("c", 3, 5, "y"), ("z", 5, 1, "q")]
    check_invariants(orders)


def test_the_same_is_said_in_python(spark: SparkSession, orders: Table) -> None:
    source = pa.table({"id": ["a", "z"], "n": pa.array([7, 8], pa.int32()), "ts": [6, 6], "dt": ["x", "x"]})
    merged = orders.merge(source, spark=spark).when_matched_update_all().when_not_matched_insert_all()
    done = merged.when_not_matched_by_source_delete("n = 2").execute()
    assert done.operation == "UPSERT"
    expected = [("a", 7, 6, "x"), ("c", 3, 5, "y"), ("d", 4, 5, "y"), ("z", 8, 6, "x")]
    assert rows(orders) == expected
    merged.execute()
    assert rows(orders) == expected, "a merge may be executed again"
    orders.update({"N": "n * 10"}, where="dt = 'y'")
    orders.delete_where("n IN (7, 8)", spark=spark)
    assert rows(orders) == [("c", 30, 5, "y"), ("d", 40, 5, "y")]


def test_an_update_keeps_the_ordering_value_and_wins(run: Run, orders: Table) -> None:
    done = run(
        """UPDATE orders AS o SET o.n = n + (SELECT max(n) FROM orders) -- of all
        WHERE id IN (SELECT id FROM orders WHERE n >= :n)""",
        n=3,
    )
    assert done.rows == 2
    assert rows(orders) == [*ROWS[:2], ("c", 7, 5, "y"), ("d", 8, 5, "y")]
    run("UPDATE orders SET ts = 4, n = 0 WHERE id = 'a'")
    assert rows(orders)[0] == ROWS[0], "an older version loses, as in every write"
    run("DELETE FROM orders WHERE n > (SELECT min(n) FROM orders)")
    assert rows(orders) == [ROWS[0]]


def test_what_has_no_one_meaning_is_refused_and_nothing_is_written(
    run: Run, orders: Table, spark: SparkSession
) -> None:
    before, instants = rows(orders), len(orders.timeline())
    twice = "(SELECT * FROM VALUES ('a', 1), ('a', 2), ('w', 3), ('w', 4) v(id, m)) s"
    matched = "rows of the source match the row with the key 'a'"
    cases: dict[str, tuple[type[Exception], str]] = {
        f"MERGE INTO orders USING {twice} ON orders.id = s.id WHEN MATCHED THEN UPDATE SET n = m": (
            ConfigError,
            matched,
        ),
        f"MERGE INTO orders USING {twice} ON orders.id = s.id WHEN MATCHED AND m = 1 THEN DELETE "
        "WHEN MATCHED THEN UPDATE SET n = m": (ConfigError, matched),
        f"MERGE INTO orders USING {twice} ON orders.id = s.id WHEN NOT MATCHED THEN INSERT (id, dt, ts) "
        "VALUES (id, 'x', 1)": (ConfigError, "would be inserted with the key 'w'"),
        "MERGE INTO orders USING orders s ON orders.id = s.id AND orders.n > 3 WHEN NOT MATCHED THEN INSERT *": (
            ConfigError,
            r"a row would be inserted with the key '[abc]'.*, which the table has",
        ),
        "MERGE INTO orders USING orders s ON orders.id = s.id WHEN MATCHED THEN UPDATE SET dt = 'z'": (
            ConfigError,
            "would change the column dt.* to z",
        ),
        f"MERGE INTO orders USING {twice} ON orders.id = s.id WHEN MATCHED THEN UPDATE SET *": (
            SchemaError,
            "the source, which has no n, ts, dt",
        ),
        "UPDATE orders SET id = 'q'": (ConfigError, "UPDATE sets 'id'"),
        "UPDATE orders SET nn = 1": (ConfigError, "names the column 'nn'"),
        "UPDATE orders SET n = 'twelve' WHERE id = 'a'": (ConfigError, "column n is int, and cannot hold"),
    }
    for text, (kind, message) in cases.items():
        with pytest.raises(kind, match=message):
            run(text)
    assert rows(orders) == before and len(orders.timeline()) == instants
    run(f"MERGE INTO orders USING {twice} ON orders.id = s.id WHEN MATCHED THEN DELETE")
    assert rows(orders) == ROWS[1:], "deletes alone may be said twice"


@pytest.mark.parametrize("kind", ["COPY_ON_WRITE", "MERGE_ON_READ"])
def test_a_key_with_a_null_in_it_is_found_as_any_other(
    spark: SparkSession, tmp_path: Path, kind: str
) -> None:
    schema = "a INT, b STRING, n INT"
    table = bucketlake.create_table(tmp_path / "t", schema, key=["a", "b"], buckets=2, table_type=kind)
    table.upsert([{"a": 1, "b": None, "n": 10}, {"a": 1, "b": "x", "n": 20}])
    source = spark.createDataFrame([(1, None, 5), (1, "x", 5), (2, None, 5)], schema)
    by_equals = table.merge(source, "target.a = source.a AND target.b = source.b")
    with pytest.raises(
        ConfigError, match=r"a row would be inserted with the key 'a:1,b:__null__'.*, which the table has"
    ):
        by_equals.when_matched_update({"n": "0"}).when_not_matched_insert_all().execute()
    added = table.merge(source).when_matched_update({"n": "target.n + source.n"})
    added.when_not_matched_insert_all().execute()
    assert sorted(table.to_arrow(columns=["n"])["n"].to_pylist()) == [5, 15, 25]


def test_a_source_whose_keys_become_those_of_other_rows_is_refused(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = bucketlake.create_table(tmp_path / "t", "id INT, n INT", key="id")
    table.upsert([{"id": 1, "n": 10}])
    source = spark.createDataFrame([(1.5, 99)], "id DOUBLE, n INT")
    with pytest.raises(ConfigError, match=r"a row would be inserted with the key '1'.*, which the table has"):
        table.merge(source, "target.id = source.id").when_not_matched_insert_all().execute()
    assert table.to_arrow(columns=["n"])["n"].to_pylist() == [10]


def test_a_column_may_be_called_end(run: Run) -> None:
    table = run(
        "CREATE TABLE spans (id STRING, start INT, end INT) USING bucketlake TBLPROPERTIES (primaryKey = 'id')"
    )
    run("INSERT INTO spans VALUES ('a', 1, 5)")
    run(
        "UPDATE spans SET start = end - 1, end = CASE WHEN end > 2 THEN spans.end ELSE end END + 1 WHERE end = 5"
    )
    run(
        """MERGE INTO spans AS t USING (SELECT 'a' AS id, 3 AS end) AS s ON t.id = s.id AND t.end > s.end
        WHEN MATCHED AND t.end > CASE s.end WHEN 3 THEN 5 END THEN UPDATE SET end = t.end + s.end"""
    )
    assert table.get("a").select(["start", "end"]).to_pylist() == [{"start": 4, "end": 9}]


@pytest.mark.shows("X2")
def test_what_is_no_expression_is_refused_in_python(spark: SparkSession, orders: Table) -> None:
    source = spark.sql("SELECT 'a' AS id, 9 AS n")
    merge = orders.merge(source, "target.id = source.id")
    wrong: dict[str, Callable[[], object]] = {
        "where is None": lambda: orders.delete_where(None, spark=spark),  # type: ignore[arg-type]
        "where is ''": lambda: orders.delete_where("", spark=spark),
        "where is True": lambda: orders.update({"n": "1"}, where=True, spark=spark),  # type: ignore[arg-type]
        "the new value of 'n' is 5": lambda: orders.update({"n": 5}, spark=spark),  # type: ignore[dict-item]
        "the value of 'n' is 5": lambda: merge.when_matched_update({"n": 5}),  # type: ignore[dict-item]
        "the condition is 1": lambda: merge.when_matched_delete(1),  # type: ignore[arg-type]
        "the condition of the merge is ''": lambda: orders.merge(source, ""),
        "the source has no dt": lambda: orders.merge(source),
    }
    for message, call in wrong.items():
        with pytest.raises((ConfigError, SchemaError), match=message):
            call()
    assert rows(orders) == ROWS


def test_what_another_writer_changed_meanwhile_is_computed_again(
    spark: SparkSession, run: Run, orders: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Logs of one bucket commute; an update that was computed before another log must not."""
    others = [{"id": "a", "n": 100, "ts": 5, "dt": "x"}, {"id": "a", "n": 200, "ts": 5, "dt": "x"}]
    elsewhere = [{"id": "c", "n": 50, "ts": 5, "dt": "y"}]
    computed = 0

    def meddled(kind: type[Any]) -> None:
        on = kind.on

        def with_others(self: Any, state: Any) -> Any:
            nonlocal computed
            computed += 1
            made = on(self, state)
            if others:
                orders.upsert([others.pop(0)])
            elif elsewhere:
                orders.upsert(elsewhere)
                elsewhere.clear()
            return made

        monkeypatch.setattr(kind, "on", with_others)

    meddled(UpdateRows)
    orders.update({"n": "n + 1"}, where="dt = 'x'", spark=spark)
    expected = [("a", 201, 5, "x"), ("b", 3, 5, "x"), ("c", 50, 5, "y"), ("d", 4, 5, "y")]
    assert rows(orders) == expected
    assert computed in (3, 4), "again after each of the first two; the third may be in what was read"

    meddled(QueriedRows)
    others.append({"id": "a", "n": 300, "ts": 5, "dt": "x"})
    run("INSERT INTO orders SELECT id, n + 1, ts, dt FROM orders WHERE id = 'a'")
    assert rows(orders)[0] == ("a", 301, 5, "x"), "an INSERT that reads the table is an update, too"

    meddled(MergedRows)
    others.append({"id": "e", "n": 1, "ts": 5, "dt": "x"})
    source = spark.createDataFrame([("e", 9, 5, "x")], SCHEMA)
    merged = (
        orders.merge(source).when_matched_update({"n": "target.n + source.n"}).when_not_matched_insert_all()
    )
    merged.execute()
    assert rows(orders)[-1] == ("e", 10, 5, "x"), "it was inserted by the other, so it is updated"


def test_an_update_that_is_overtaken_every_time_gives_up(
    spark: SparkSession, orders: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    on = UpdateRows.on
    monkeypatch.setattr("bucketlake.write.job.ATTEMPTS", 2)

    def with_others(self: UpdateRows, state: Any) -> Any:
        orders.upsert([{"id": "a", "n": 1, "ts": 5, "dt": "x"}])
        return on(self, state)

    monkeypatch.setattr(UpdateRows, "on", with_others)
    with pytest.raises(CommitConflictError, match="came in between"):
        orders.update({"n": "n + 1"}, spark=spark)
    assert rows(orders) == ROWS


def test_a_change_reads_no_more_than_it_may_change(
    spark: SparkSession, run: Run, orders: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is not read is not waited for: a write to another partition does not make it run again."""
    read: list[frozenset[FileGroupId]] = []
    basis = Computed.basis

    def seen(self: Computed, index: Any) -> Any:
        read.append(self.groups)
        return basis(self, index)

    monkeypatch.setattr(Computed, "basis", seen)
    orders.update({"n": "n"}, where="dt = 'x' AND n > 0", spark=spark)
    orders.delete_where("dt = 'y' AND n > 99", spark=spark)
    run("UPDATE orders SET n = n WHERE dt = :day", day="y")
    on = "MERGE INTO orders t USING orders s ON t.id = s.id"
    run(f"{on} AND t.dt = 'x' WHEN MATCHED AND false THEN DELETE")
    run(
        f"{on} AND t.dt = 'x' WHEN MATCHED AND false THEN DELETE WHEN NOT MATCHED BY SOURCE THEN UPDATE SET n = 0"
    )
    partitions = [sorted({partition for partition, _ in groups}) for groups in read]
    assert partitions == [["x"], ["y"], ["y"], ["x", "y"], ["x", "y"]], "a source is read, too"

    wide = bucketlake.create_table(orders.store.uri + "-wide", "id STRING, n INT", key="id", buckets=16)
    wide.upsert([{"id": f"k{n}", "n": n} for n in range(64)])
    source = spark.createDataFrame([("k1", 100)], "id string, n int")
    merged = (
        wide.merge(source, "target.id = source.id").when_matched_update_all().when_not_matched_insert_all()
    )
    merged.execute()
    assert len(read[-1]) == 1, "the bucket of the key"
    assert wide.get("k1").column("n").to_pylist() == [100] and wide.get("k2").num_rows == 1


def test_rows_move_where_an_index_of_the_whole_table_lets_them(spark: SparkSession, tmp_path: Path) -> None:
    table = bucketlake.create_table(
        tmp_path / "t", SCHEMA, key="id", partition="dt", index=RecordIndex(), table_type="mor"
    )
    table.upsert([dict(zip(("id", "n", "ts", "dt"), row, strict=True)) for row in ROWS])
    table.update({"dt": "'z'"}, where="n = 1", spark=spark)
    assert rows(table) == [("a", 1, 5, "z"), *ROWS[1:]]
    source = spark.createDataFrame([("a", 0, 0, "y"), ("b", 0, 0, "x")], SCHEMA)
    merged = table.merge(source, "target.id = source.id AND target.dt = source.dt")
    with pytest.raises(ConfigError, match="inserted with the key 'a'"):
        merged.when_not_matched_insert_all().execute()
    table.merge(source, "target.id = source.id").when_matched_update_all().execute()
    assert rows(table) == [("a", 0, 0, "y"), ("b", 0, 0, "x"), *ROWS[2:]]
    check_invariants(table)


@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_random_merges_do_what_the_model_does(run: Run, kind: str) -> None:
    """A failing seed is replayed with BUCKETLAKE_SEEDS=17."""
    tried: dict[bool, int] = {}
    for seed in seeds_for(120, default_count=1):
        chance = random.Random(f"{seed} {kind}")
        has_ordering = chance.random() < 0.7
        index = chance.choice(["SimpleBuckets(2)", "SimpleBuckets(2)", "RecordIndex()"])
        ordering = ", preCombineField = 'ts'" if has_ordering else ""
        table = run(
            f"""CREATE TABLE t{seed} ({COLUMNS}) USING bucketlake PARTITIONED BY (p)
            TBLPROPERTIES (primaryKey = 'id', type = '{kind}', index = '{index}'{ordering})"""
        )
        present = {row["id"]: row for row in draw_rows(chance, 8, repeats=False)}
        table.upsert(list(present.values()))
        for step in range(4):
            merge = draw(chance)
            text = merge.text(f"t{seed}")
            try:
                after = merge.apply(present, has_ordering=has_ordering)
            except Refused:
                with pytest.raises(ConfigError, match="rows of the source"):
                    run(text)
                after = present
            else:
                run(text)
            tried[after is present] = tried.get(after is present, 0) + 1
            found = {row["id"]: row for row in table.to_arrow(meta_columns=False).to_pylist()}
            assert found == after, f"seed {seed}, step {step}, {index}, ordering {has_ordering}: {text}"
            present = after
    print(f"{kind}: {tried.get(False, 0)} merges, {tried.get(True, 0)} refused")


def test_columns_are_added_without_rows(run: Run, orders: Table) -> None:
    run("ALTER TABLE orders ADD COLUMNS (note STRING, w DECIMAL(5, 2) COMMENT 'of it')")
    assert orders.schema.names == ["id", "n", "ts", "dt", "note", "w"]
    assert rows(orders) == ROWS
    run("UPDATE orders SET note = 'hi' WHERE id = 'a'")
    assert [row.note for row in run("SELECT note FROM orders WHERE note IS NOT NULL").collect()] == ["hi"]
    for columns, message in (
        ("Note INT", "cannot add the columns Note"),
        ("k INT NOT NULL", "'k' as NOT NULL"),
    ):
        with pytest.raises(SchemaError, match=message):
            run(f"ALTER TABLE orders ADD COLUMN {columns}")
    described = {row.col_name: row.data_type for row in run("DESCRIBE orders").collect()}
    assert described["w"] == "decimal(5,2)" and described["# Partition Information"] == ""
    assert [row.partition for row in run("SHOW PARTITIONS orders").collect()] == ["x", "y"]
    assert [row.col_name for row in run("SHOW COLUMNS IN orders").collect()] == orders.schema.names
