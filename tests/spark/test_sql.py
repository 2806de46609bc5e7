"""SQL on tables of ours beside Spark's own: every statement, by name and by path, and what it returns."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

import bucketlake
from bucketlake import ConfigError, Table
from bucketlake.cli import main
from bucketlake.errors import LayoutMismatchError, SchemaError, UnsupportedError
from bucketlake.write import CommitSummary
from servers.s3 import S3Server
from stand_ins.made_index import check_secondary

pytestmark = pytest.mark.spark

Run = Callable[[str], Any]


@pytest.fixture
def run(spark: SparkSession, tmp_path: Path) -> Run:
    return lambda text: bucketlake.sql(spark, text, warehouse=tmp_path / "lake")


@pytest.fixture
def orders(run: Run) -> Table:
    table = run(
        """CREATE TABLE orders (id STRING, n INT, ts BIGINT, dt STRING) USING bucketlake PARTITIONED BY (dt)
        TBLPROPERTIES (primaryKey = 'id', preCombineField = 'ts', type = 'mor', hoodie.bucket.index.num.buckets = 2)"""
    )
    run("INSERT INTO orders VALUES ('a', 1, 1, 'x'), ('b', 2, 1, 'x'), ('c', 3, 1, 'y')")
    assert isinstance(table, Table)
    return table


@pytest.fixture
def view(spark: SparkSession) -> Iterator[str]:
    """A view of the user's, under the name of a table of ours."""
    spark.range(3).createOrReplaceTempView("orders")
    yield "orders"
    spark.catalog.dropTempView("orders")


def rows(frame: DataFrame) -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in frame.collect())


@pytest.mark.shows("S1", "S5")
def test_rows_are_inserted_updated_deleted_and_read(run: Run, orders: Table, tmp_path: Path) -> None:
    assert repr(orders) == f"Table({orders.store.uri!r})" and str(tmp_path / "lake/orders") in repr(orders)
    summary = run("INSERT INTO orders SELECT 'a', n + 10, ts + 1, dt FROM orders WHERE id = 'a'")
    assert isinstance(summary, CommitSummary) and summary.rows == 1
    run("INSERT INTO orders (dt, ts, id) VALUES ('y', 1, 'd')")
    run("INSERT INTO orders BY NAME SELECT 'y' AS DT, 5 AS n, 'e' AS id, 1 AS ts")
    everything = [
        ("a", 11, 2, "x"),
        ("b", 2, 1, "x"),
        ("c", 3, 1, "y"),
        ("d", None, 1, "y"),
        ("e", 5, 1, "y"),
    ]
    assert rows(run("SELECT * FROM orders")) == everything
    assert rows(
        run(f"SELECT o.id FROM bucketlake.`{tmp_path}/lake/orders` o WHERE o.dt = 'x' AND o.n < 5")
    ) == [("b",)]
    assert rows(run("SELECT orders.dt, count(*) FROM orders GROUP BY orders.dt")) == [("x", 2), ("y", 3)]
    assert rows(run("SELECT a.id FROM orders a JOIN orders b ON a.n = b.ts + 1 AND b.id = 'b'")) == [("b",)]
    assert len(rows(run("SELECT DISTINCT _hoodie_commit_time FROM orders WHERE dt = 'y'"))) == 3

    deleted = run("DELETE FROM orders AS o WHERE o.id = 'a' OR o.id IN (SELECT id FROM orders WHERE n = 3)")
    assert isinstance(deleted, CommitSummary) and deleted.rows == 2
    assert rows(run("SELECT id FROM orders")) == [("b",), ("d",), ("e",)]
    assert run("DELETE FROM orders WHERE id = 'zz'").instant is None


@pytest.mark.shows("S5")
def test_an_overwrite_replaces_partitions_or_a_table_without_any(run: Run, orders: Table) -> None:
    run("INSERT OVERWRITE orders SELECT 'd', 4, 1, 'x'")
    assert rows(run("SELECT id, dt FROM orders")) == [("c", "y"), ("d", "x")]
    run("INSERT OVERWRITE orders PARTITION (dt = 'y') SELECT id, n, ts FROM orders WHERE dt = 'x'")
    assert rows(run("SELECT id, dt FROM orders")) == [("d", "x"), ("d", "y")]
    run("INSERT OVERWRITE TABLE orders PARTITION (dt = 'y') SELECT id, n, ts FROM orders WHERE false")
    assert rows(run("SELECT id, dt FROM orders")) == [("d", "x")]
    assert (
        run("INSERT OVERWRITE orders PARTITION (dt = 'z') SELECT id, n, ts FROM orders WHERE false").instant
        is None
    )

    run(
        "CREATE TABLE nested (id INT PRIMARY KEY, tags ARRAY<BIGINT>, s STRUCT<a: BIGINT>, m MAP<STRING, INT>) "
        "USING hudi"
    )
    run("INSERT INTO nested VALUES (1, array(1L), named_struct('a', 2L), map('k', 3)), (2, NULL, NULL, NULL)")
    assert rows(run("SELECT tags[0], s.a, m['k'] FROM nested WHERE id = 1")) == [(1, 2, 3)]

    run("CREATE TABLE flat (id INT PRIMARY KEY, day DATE) USING hudi")
    run("INSERT INTO flat VALUES (1, DATE '2026-06-18'), (2, NULL)")
    run("INSERT OVERWRITE flat SELECT 3, '2026-06-19'")
    assert [(row.id, str(row.day)) for row in run("FROM flat").collect()] == [(3, "2026-06-19")]
    run("INSERT OVERWRITE flat SELECT * FROM flat WHERE false")
    assert rows(run("SELECT * FROM flat")) == []


def test_values_that_do_not_fit_are_errors_in_every_session(
    run: Run, orders: Table, spark: SparkSession
) -> None:
    before = rows(run("SELECT * FROM orders"))
    spark.conf.set("spark.sql.ansi.enabled", "false")
    try:
        with pytest.raises(Exception, match="column n is int, and cannot hold the value twelve"):
            run("INSERT INTO orders VALUES ('z', 'twelve', 1, 'x')")
        with pytest.raises(Exception, match="column n is int, and cannot hold the value 3000000000"):
            run("INSERT INTO orders VALUES ('z', 3000000000, 1, 'x')")
    finally:
        spark.conf.set("spark.sql.ansi.enabled", "true")
    for statement, message in (
        (
            "INSERT INTO orders VALUES ('z', 1, 'x')",
            r"gives 3 columns .*and 4 are to be written: id, n, ts, dt",
        ),
        ("INSERT INTO orders (id, nn) VALUES ('z', 1)", r"names the columns id, nn; .*id, n, ts, dt"),
        ("INSERT INTO orders PARTITION (n = 1) VALUES ('z', 1, 'x')", r"names 'n'; .*are: dt"),
        ("INSERT INTO orders (n, ts, dt) VALUES (1, 1, 'x')", r"id"),
    ):
        with pytest.raises((ConfigError, SchemaError), match=message):
            run(statement)
    run("INSERT INTO orders VALUES ('z', '12', 1.0, 'x')")
    assert set(rows(run("SELECT * FROM orders"))) - set(before) == {("z", 12, 1, "x")}


@pytest.mark.shows("P1", "P3")
def test_the_form_of_flink_makes_a_table_with_rules(run: Run, tmp_path: Path) -> None:
    made = run(
        f"""CREATE TABLE ruled (id BIGINT, dt STRING, PRIMARY KEY (id) NOT ENFORCED) PARTITIONED BY (dt) WITH (
        'connector' = 'hudi', 'path' = '{tmp_path}/elsewhere', 'table.type' = 'MERGE_ON_READ', 'index.type' = 'BUCKET',
        'hoodie.bucket.index.partition.expressions' = '\\\\d{{4}}-06-18,3', 'hoodie.bucket.index.num.buckets' = '1')"""
    )
    assert made.store.uri.endswith("/elsewhere") and made.properties.name == "ruled"
    run(
        "INSERT INTO ruled SELECT id, CASE WHEN id < 50 THEN '2026-06-18' ELSE '2026-06-19' END FROM range(100)"
    )
    files = {
        day: len(
            {
                path.name[:8]
                for path in (tmp_path / "elsewhere" / day).iterdir()
                if not path.name.startswith(".hoodie")
            }
        )
        for day in ("2026-06-18", "2026-06-19")
    }
    assert files == {"2026-06-18": 3, "2026-06-19": 1}


def test_the_catalog_gives_names_and_forgets_them(run: Run, orders: Table, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="a table 'orders' already"):
        run("CREATE TABLE Orders (id INT PRIMARY KEY) USING bucketlake")
    again = run("CREATE TABLE IF NOT EXISTS orders (other INT PRIMARY KEY) USING bucketlake")
    assert again.schema == orders.schema
    run(f"CREATE TABLE same USING hudi LOCATION '{tmp_path}/lake/orders'")
    shown = run("SHOW TABLES")
    assert shown.columns == ["tableName", "path"]
    assert rows(shown) == [("orders", f"{tmp_path}/lake/orders"), ("same", f"{tmp_path}/lake/orders")]
    dropped = run("DROP TABLE orders")
    assert dropped.name == "orders" and f"stay at {tmp_path}/lake/orders" in str(dropped)
    assert rows(run("SELECT id FROM same WHERE id = 'a'")) == [("a",)], "a name is gone, and no data"

    with pytest.raises(ConfigError, match=r"no table 'orders'.*has same"):
        run("SELECT * FROM orders JOIN same")
    for statement in ("INSERT INTO orders VALUES (1)", "DELETE FROM orders WHERE true", "DROP TABLE orders"):
        with pytest.raises(ConfigError, match=r"no table 'orders'.*has same"):
            run(statement)
    with pytest.raises(ConfigError, match="no key"):
        run("CREATE TABLE third (id INT) USING hudi")
    with pytest.raises(ConfigError, match="'nokey'"):
        run("CREATE TABLE third (id INT) USING hudi TBLPROPERTIES (primaryKey = 'nokey')")
    assert [name for name, _ in rows(run("SHOW TABLES"))] == ["same"], "a table that was not made has no name"


def test_of_two_who_create_a_table_one_does(run: Run, tmp_path: Path) -> None:
    def create(_: int) -> object:
        try:
            return run("CREATE TABLE t (id INT PRIMARY KEY) USING bucketlake")
        except ConfigError as error:
            return error

    with ThreadPoolExecutor(4) as pool:
        made = list(pool.map(create, range(4)))
    assert sorted(type(result).__name__ for result in made) == ["ConfigError"] * 3 + ["Table"]
    run("INSERT INTO t VALUES (1)")

    shutil.rmtree(tmp_path / "lake/t")
    with pytest.raises(ConfigError, match=r"none at .*DROP TABLE t and make it anew"):
        run("CREATE TABLE IF NOT EXISTS t (id INT PRIMARY KEY) USING bucketlake")


@pytest.mark.s3
def test_a_warehouse_may_be_in_an_object_store(
    spark: SparkSession, s3_server: S3Server, tmp_path: Path
) -> None:
    def run(text: str) -> Any:
        lake = f"s3://{s3_server.bucket}/lake"
        return bucketlake.sql(spark, text, warehouse=lake, storage_options=s3_server.options)

    run("CREATE TABLE t (id INT PRIMARY KEY) USING bucketlake")
    run(f"CREATE TABLE near (id INT PRIMARY KEY) USING bucketlake LOCATION '{tmp_path}/near'")
    with pytest.raises(ConfigError, match="already"):
        run("CREATE TABLE t (id INT PRIMARY KEY) USING bucketlake")
    run("INSERT INTO t VALUES (1), (2)")
    run("INSERT INTO near SELECT id + 1 FROM t")
    assert rows(run("SELECT id FROM t JOIN near USING (id)")) == [(2,)]


def test_spark_s_own_statements_and_views_are_left_alone(
    run: Run, orders: Table, view: str, spark: SparkSession
) -> None:
    before = {table.name for table in spark.catalog.listTables()}
    assert rows(run("SELECT count(*) FROM orders")) == [(3,)]
    assert rows(run("SELECT o.id FROM orders o JOIN VALUES ('{a}'), ('b') v(w) ON o.id = w")) == [("b",)]
    assert rows(run("WITH orders AS (SELECT 7 AS id) SELECT * FROM orders")) == [(7,)]
    assert {table.name for table in spark.catalog.listTables()} == before
    assert spark.table("orders").columns == ["id"] and spark.table("orders").count() == 3

    run("CREATE OR REPLACE TEMP VIEW mine AS SELECT 'a' AS id, '{' AS brace")
    assert rows(run("SELECT n, brace FROM orders JOIN mine USING (id)")) == [(1, "{")]
    assert rows(run("SELECT '{x}' FROM mine")) == [("{x}",)]
    assert run("SET spark.sql.shuffle.partitions").collect()[0][1] == "2"
    run("DROP VIEW mine")


@pytest.mark.shows("P5")
def test_the_manager_changes_rules_and_takes_them_back(run: Run, orders: Table) -> None:
    call = "CALL partitionBucketIndexManager(table => '{}', overwrite => '.*,3', bucket-number => 2{})"
    with pytest.raises(ConfigError, match="no table 'gone'"):
        run(call.format("gone", ""))
    before = rows(run("SELECT * FROM orders ORDER BY id"))
    show = "CALL partition_bucket_index_manager('orders', show_config => true)"
    planned = "\n".join(line for (line,) in rows(run(call.format("orders", ""))))
    assert "written anew" in planned
    assert rows(run(show)) == []
    done = run(call.format("orders", ", dry-run => 'false'")).collect()[0]
    assert done.partitions and all(partition in planned for partition in done.partitions)
    [shown] = run(show).collect()
    assert (shown.expressions, shown.default_count) == (".*,3", 2)
    assert rows(run("SELECT * FROM orders ORDER BY id")) == before
    newer = run("CALL partition_bucket_index_manager('orders', '.*,4', dry_run => false)").collect()[0]
    undo = (
        f"CALL partition_bucket_index_manager('orders', rollback => '{done.instant}', with_newer => true{{}})"
    )
    lines = "\n".join(line for (line,) in rows(run(undo.format(""))))
    assert newer.instant in lines and done.instant in lines, "a dry run"
    assert run(show).count() == 2
    undone = run(undo.format(", dry_run => false")).collect()
    assert [row.instant for row in undone] == [newer.instant, done.instant]
    assert rows(run(show)) == []
    assert rows(run("SELECT * FROM orders ORDER BY id")) == before


@pytest.mark.shows("H4", "P14")
def test_services_are_called_and_show_what_they_did(
    run: Run, orders: Table, capsys: pytest.CaptureFixture[str]
) -> None:
    before = rows(run("SELECT * FROM orders ORDER BY id"))
    run("CALL plan_compaction(table => 'orders')").show(truncate=False)
    assert "|plan" in capsys.readouterr().out
    run("CALL compact(table => 'orders')").show()
    run("CALL plan_clustering(table => 'orders', by => 'n')").show()
    assert run("CALL cluster(table => 'orders', by => 'n')").columns[:2] == ["instant", "completed"]
    run("CALL clean(table => 'orders', retain_versions => 1)").show()
    assert run("CALL archive(table => 'orders', keep_min => 1, keep_max => 2)").columns == [
        "instant",
        "action",
    ]
    saved = run("CALL savepoint(table => 'orders', comment => 'good')").collect()[0]
    assert [row.comment for row in run("CALL savepoints(table => 'orders')").collect()] == ["good"]
    run("INSERT INTO orders VALUES ('z', 9, 99, 'd9')")
    back = run(f"CALL restore(table => 'orders', instant => '{saved.instant}')")
    assert back.count() == 1
    run(f"CALL delete_savepoint(table => 'orders', instant => '{saved.instant}')")
    summary = run("INSERT INTO orders VALUES ('y', 9, 99, 'd9')")
    assert run(f"CALL plan_rollback(table => 'orders', instant => '{summary.instant}')").count() > 1
    assert run(f"CALL rollback(table => 'orders', instant => '{summary.instant}')").collect()[0].files
    assert run("CALL fsck(table => 'orders')").collect()[0].text.startswith("sound")
    assert run("CALL alter(table => 'orders', merge_schema => true)").collect()[0][0] == "done"
    run("CALL maintain(table => 'orders', compact_delta_commits => 1)").show()
    assert dict(rows(run("CALL describe(table => 'orders')")))["record_key"] == "id"
    assert rows(run("SELECT * FROM orders ORDER BY id")) == before


@pytest.mark.shows("H1", "H4")
def test_maintenance_without_words_is_what_the_table_gets_from_its_writers(run: Run, orders: Table) -> None:
    orders.alter(maintenance="service")
    for n in range(20):
        orders.upsert([{"id": "a", "n": n, "ts": n, "dt": "x"}])
    (due,) = run("CALL plan_maintenance(table => 'orders')").collect()[:1]
    assert "compact" in due.plan
    steps = {row.service: row for row in run("CALL maintain(table => 'orders')").collect()}
    assert "1 file group" in steps["compaction"].text
    orders.alter(maintenance="off")
    with pytest.raises(ConfigError, match=r"nothing to do was named.*alter\(maintenance='service'\)"):
        run("CALL maintain(table => 'orders')")


@pytest.mark.shows("H4")
def test_a_call_without_a_table_is_for_that_of_the_last_statement(run: Run, orders: Table) -> None:
    run("SELECT * FROM orders")
    assert run("CALL timeline()").count() == len(orders.timeline())
    run("CREATE TABLE others (id STRING PRIMARY KEY) USING bucketlake")
    assert run("CALL timeline()").count() == 0
    run(f"SELECT * FROM bucketlake.`{orders.store.uri.removeprefix('file://')}`")
    assert run("CALL timeline()").count() == len(orders.timeline())
    run("SELECT o.id FROM orders o JOIN others USING (id)")
    with pytest.raises(
        ConfigError, match=r"last statement named .*orders, .*others; expected one. Say which: table =>"
    ):
        run("CALL timeline()")
    run("DROP TABLE others")
    with pytest.raises(ConfigError, match="last statement named no table"):
        run("CALL partition_bucket_index_manager(show_config => true)")
    with pytest.raises(ConfigError, match="CALL rollback needs instant; instant is not given"):
        run("CALL rollback(table => 'orders')")


@pytest.mark.shows("P2")
def test_options_of_an_insert_that_differ_from_the_table_are_refused(run: Run, orders: Table) -> None:
    count = run("SELECT * FROM orders").count()
    insert = "INSERT INTO orders {} VALUES ('z', 9, 99, 'd9')"
    for form in ("OPTIONS ({})", "/*+ OPTIONS({}) */"):
        for option in ("'hoodie.bucket.index.num.buckets' = '77'", "'hoodie.index.type' = 'BLOOM'"):
            with pytest.raises(LayoutMismatchError, match=r"has '.*' .*and this write says '(77|BLOOM)'"):
                run(insert.format(form.format(option)))
        with pytest.raises(ConfigError, match=r"unknown option 'write.tasks'"):
            run(insert.format(form.format("'write.tasks' = '4'")))
    assert run("SELECT * FROM orders").count() == count
    same = orders.properties.bucket_count
    run(insert.format(f"OPTIONS ('hoodie.bucket.index.num.buckets' = '{same}')"))
    assert run("SELECT * FROM orders").count() == count + 1


def test_the_command_prints_what_a_statement_returns(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def command(*words: object) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as stop:
            main(["sql", *map(str, words), "--warehouse", str(tmp_path)])
        printed = capsys.readouterr()
        return int(stop.value.code or 0), printed.out, printed.err

    code, out, _ = command("CREATE TABLE t (id INT PRIMARY KEY, name STRING) USING bucketlake")
    assert code == 0 and "t: " in out
    assert json.loads(command("INSERT INTO t VALUES (1, 'a'), (2, 'b')", "--json")[1])["inserted"] == 2
    assert json.loads(command("SELECT * FROM t ORDER BY id", "--json", "--limit", 1)[1]) == [
        {"id": 1, "name": "a"}
    ]
    assert "2 rows" in command("SELECT * FROM t")[1]
    found = command("SELECT id FROM t WHERE name = :n", "--arg", "n=b", "--json")[1]
    assert json.loads(found) == [{"id": 2}]
    code, _, err = command("SELECT * FROM gone")
    assert code == 2 and "has t" in err
    code, _, err = command("SELEKT 1")
    assert code == 2 and "Spark says" in err
    code, out, _ = command("DROP TABLE t")
    assert code == 0 and "stay at" in out.replace("\n", " ")


@pytest.mark.parametrize(
    "text",
    [
        "TRUNCATE TABLE orders",
        "ALTER TABLE Orders RENAME COLUMN n TO m",
        "CREATE VIEW v AS SELECT * FROM orders",
        "CREATE TABLE orders USING parquet AS SELECT 1 AS a",
        "MERGE INTO theirs USING orders ON true WHEN MATCHED THEN DELETE",
        "COMMENT ON TABLE `orders` IS 'x'",
    ],
)
def test_a_statement_that_our_tables_have_not_is_refused_with_what_to_do(
    run: Run, orders: Table, text: str
) -> None:
    with pytest.raises(UnsupportedError, match=r"(?i)on the table 'orders' is [A-Z ]+, which Spark has"):
        run(text)


@pytest.mark.parametrize("text", ["CALL compakt(table => 'orders')", "call buckets.nope(table => 'orders')"])
def test_a_procedure_that_is_not_there_is_told_which_are(run: Run, orders: Table, text: str) -> None:
    with pytest.raises(ConfigError, match=r"no such procedure.*compact.*buckets\.resize"):
        run(text)


@pytest.mark.shows("R4")
def test_a_query_by_key_reads_the_file_groups_that_the_index_names(run: Run, tmp_path: Path) -> None:
    rows_ = pa.table({"id": [1, 10, 100, 2], "dt": ["x", "y", "y", "z"], "v": ["a", "b", "c", "d"]})
    table = bucketlake.create_table(
        tmp_path / "lake" / "indexed",
        rows_.schema,
        key="id",
        partition="dt",
        index=bucketlake.RecordIndex(shards=1),
        maintenance="off",
    )
    table.upsert(rows_)
    for part in table.plan(filters=[("id", "!=", 10)]).slices:
        if part.partition != "y":
            assert part.base_file is not None
            (tmp_path / "lake" / "indexed" / part.base_file.path).write_bytes(b"opened by nobody")
    name = f"bucketlake.`{tmp_path / 'lake' / 'indexed'}`"
    assert rows(run(f"SELECT id, v FROM {name} WHERE id = 10")) == [(10, "b")]
    assert rows(run(f"SELECT id, v FROM {name} WHERE id IN (10, 100, 1000)")) == [(10, "b"), (100, "c")]
    lines = [row[0] for row in run(f"CALL explain(table => '{table.store.uri}', key => 10)").collect()]
    assert any(line.startswith("entry        y/") for line in lines)


@pytest.mark.shows("R11", "H4")
def test_indexes_are_created_shown_and_dropped(run: Run, orders: Table) -> None:
    for _ in range(2):
        with pytest.raises(ConfigError, match=r"record_index=True"):
            run("CREATE INDEX by_n ON orders (n)")
    built = run(
        "CREATE INDEX by_n ON orders USING secondary_index (N) OPTIONS (shards = 2, record_index = true)"
    )
    assert (built.column, built.entries, built.shards) == ("n", 3, 2)
    assert run("CREATE INDEX IF NOT EXISTS by_n ON orders (n)") is None
    with pytest.raises(ConfigError, match="already"):
        run("CREATE INDEX by_n ON orders (n)")
    run("INSERT INTO orders VALUES ('a', 9, 2, 'x'), ('d', 4, 1, 'y')")
    shown = run("SHOW INDEXES FROM orders")
    assert rows(shown.select("name", "column", "shards", "is_in_step", "state")) == [
        ("by_n", "n", 2, True, "in step")
    ]
    assert "index by_n" in run("CALL plan_drop_index(name => 'by_n')").collect()[0].plan
    made = run("CALL create_index(name => 'by_ts', on => 'ts', shards => 1)")
    assert rows(made.select("name", "entries")) == [("by_ts", 4)]
    assert rows(run("CALL indexes()").select("name")) == [("by_n",), ("by_ts",)]
    assert run("DROP INDEX by_ts ON orders").name == "by_ts"
    assert run("DROP INDEX IF EXISTS by_ts ON orders") is None
    with pytest.raises(ConfigError, match="has no index 'by_ts'; it has by_n"):
        run("DROP INDEX by_ts ON orders")
    check_secondary(orders)
