"""Which statements are ours, what they say, and which tables a query reads."""

from __future__ import annotations

import datetime

import pyarrow as pa
import pytest

from bucketlake.errors import ConfigError, UnsupportedError
from bucketlake.spark.conditions import filters_for
from bucketlake.spark.merge import Clause, Deed, Part
from bucketlake.sql.namesakes import check_names
from bucketlake.sql.parameters import named_parameters
from bucketlake.sql.parse import (
    AddColumns,
    CreateIndex,
    Delete,
    DescribeTable,
    DropIndex,
    DropTable,
    Insert,
    MergeInto,
    PassThrough,
    Select,
    ShowColumns,
    ShowIndexes,
    ShowPartitions,
    ShowTables,
    TableName,
    Update,
    parse,
)
from bucketlake.sql.procedures import ProcedureCall
from bucketlake.sql.sources import check_condition, columns_for, find_sources
from bucketlake.sql.tokens import tokenize, unquoted

TABLES = frozenset({"orders", "items"})
ORDERS = TableName("orders")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("INSERT INTO orders VALUES (1, 'a')", Insert(table=ORDERS, query="VALUES (1, 'a')")),
        ("insert into table `Orders` select 1", Insert(table=ORDERS, query="select 1")),
        (
            "INSERT INTO orders (a, `b c`) SELECT 1, 2",
            Insert(table=ORDERS, query="SELECT 1, 2", columns=("a", "b c")),
        ),
        ("INSERT INTO orders (SELECT 1)", Insert(table=ORDERS, query="(SELECT 1)")),
        (
            "INSERT WITH SCHEMA EVOLUTION INTO orders BY NAME SELECT 1 a",
            Insert(table=ORDERS, query="SELECT 1 a", by_name=True, merge_schema=True),
        ),
        ("INSERT INTO orders BY NAME SELECT 1 a", Insert(table=ORDERS, query="SELECT 1 a", by_name=True)),
        (
            "INSERT INTO bucketlake.`/data/x y` WITH a AS (SELECT 1) SELECT * FROM a",
            Insert(table=TableName("/data/x y", True), query="WITH a AS (SELECT 1) SELECT * FROM a"),
        ),
        (
            "INSERT OVERWRITE orders PARTITION (dt = DATE '2024-01-02', n = -1, h) SELECT 1",
            Insert(
                table=ORDERS,
                query="SELECT 1",
                overwrite=True,
                partition={"dt": "2024-01-02", "n": "-1", "h": None},
            ),
        ),
        ("DELETE FROM orders WHERE id = 1", Delete(ORDERS, "SELECT * FROM orders WHERE id = 1")),
        (
            "DELETE FROM orders AS o WHERE o.id = 1",
            Delete(ORDERS, "SELECT * FROM orders AS o WHERE o.id = 1"),
        ),
        ("DROP TABLE IF EXISTS ORDERS;", DropTable("orders")),
        ("DROP TABLE bucketlake.gone", DropTable("gone")),
        ("SHOW TABLES", ShowTables()),
        ("(SELECT 1)", Select("(SELECT 1)")),
        ("/* a */ -- b\nWITH a AS (SELECT 1) SELECT * FROM a", None),
    ],
)
def test_statements_of_ours(text: str, expected: object) -> None:
    assert parse(text, TABLES) == (expected or Select(text))


@pytest.mark.parametrize(
    ("text", "table"),
    [
        ("INSERT INTO other VALUES (1)", "`other`"),
        ("INSERT OVERWRITE db.orders SELECT 1", "`db`.`orders`"),
        ("DELETE FROM `a``b` WHERE true", "`a``b`"),
        ("DROP TABLE other PURGE", "`other`"),
        ("DROP TABLE IF EXISTS other", None),
        ("INSERT OVERWRITE DIRECTORY '/x' USING parquet SELECT 1", None),
        ("SHOW TABLES IN db LIKE 'x*'", None),
        ("UPDATE other SET a = 1", None),
        ("MERGE INTO db.orders USING x ON true WHEN MATCHED THEN DELETE", None),
        ("ALTER TABLE orders RENAME TO x", None),
        ("DESCRIBE other", None),
        ("DESC FUNCTION abs", None),
        ("SHOW PARTITIONS db.orders", None),
        ("EXPLAIN SELECT * FROM orders", None),
        ("SET a.b = 'c", None),
        ("", None),
    ],
)
def test_everything_else_is_spark_s(text: str, table: str | None) -> None:
    found = parse(text, TABLES)
    assert isinstance(found, PassThrough) and (found.text, found.table) == (text, table)
    assert text.endswith(found.query)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("INSERT orders VALUES (1)", r"found 'orders' at position 7 .*expected INTO or OVERWRITE"),
        ("INSERT INTO orders SET a = 1", r"found 'SET' at position 19 .*expected VALUES"),
        ("INSERT INTO orders (a,) SELECT 1", r"expected a column's name"),
        ("INSERT OVERWRITE orders PARTITION (dt = x) SELECT 1", r"found 'x' .*expected a value"),
        ("INSERT OVERWRITE orders PARTITION (dt = 'x', DT) SELECT 1", r"every partition column once"),
        ("INSERT OVERWRITE orders PARTITION (dt = 'x' SELECT 1", r"found 'SELECT' .*expected ','"),
        ("DELETE FROM orders", r"found the end at position 18 .*WHERE true deletes every row"),
        ("DROP TABLE orders PURGE", r"found 'PURGE' .*deletes no data"),
        ("DROP TABLE bucketlake.`/data/orders`", r"a name of the catalog"),
        ("DROP TABLE orders, items", r"found ',' .*expected the end"),
        ("SHOW TABLES; DROP TABLE orders", r"found 'DROP' .*expected the end"),
        ("INSERT INTO bucketlake.", r"found the end .*the rest of the table's name"),
    ],
)
def test_a_mistake_is_told_with_its_place(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse(text, TABLES)


@pytest.mark.parametrize(
    ("query", "template"),
    [
        ("SELECT * FROM orders", "SELECT * FROM {t0} AS orders"),
        ("SELECT '{x}', o.a FROM `Orders` o", "SELECT '{{x}}', o.a FROM {t0} o"),
        (
            "SELECT * FROM orders JOIN items AS i ON orders.id = i.id JOIN ORDERS AS b ON true",
            "SELECT * FROM {t0} AS orders JOIN {t1} AS i ON orders.id = i.id JOIN {t0} AS b ON true",
        ),
        (
            "SELECT * FROM bucketlake.`/a {b}` WHERE 'orders' = 'orders'",
            "SELECT * FROM {t0} WHERE 'orders' = 'orders'",
        ),
        (
            "SELECT * FROM bucketlake.items WHERE id IN (SELECT id FROM orders)",
            "SELECT * FROM {t0} AS items WHERE id IN (SELECT id FROM {t1} AS orders)",
        ),
        (
            "WITH orders AS (SELECT * FROM orders), x AS (SELECT * FROM orders) SELECT * FROM orders, x",
            "WITH orders AS (SELECT * FROM {t0} AS orders), x AS (SELECT * FROM orders) SELECT * FROM orders, x",
        ),
        (
            "SELECT * FROM (WITH orders AS (SELECT 1) SELECT * FROM orders) JOIN orders",
            "SELECT * FROM (WITH orders AS (SELECT 1) SELECT * FROM orders) JOIN {t0} AS orders",
        ),
        (
            "SELECT /*+ BROADCAST(orders) */ 1 FROM orders",
            "SELECT /*+ BROADCAST(orders) */ 1 FROM {t0} AS orders",
        ),
        ("SELECT '😀é' FROM\n\torders -- {", "SELECT '😀é' FROM\n\t{t0} AS orders -- {{"),
        ("SELECT 1 FROM orders TABLESAMPLE (5 ROWS)", "SELECT 1 FROM {t0} TABLESAMPLE (5 ROWS)"),
        ("SELECT orders, db.orders.a FROM db.orders, range(3)", None),
        ("FROM orders |> WHERE a = 1", "FROM {t0} AS orders |> WHERE a = 1"),
        ("SELECT nonsense ((", None),
    ],
)
def test_tables_in_a_query_are_replaced_and_nothing_else(query: str, template: str | None) -> None:
    sources = find_sources(query, TABLES)
    assert sources.query == query
    assert (sources.template() if sources.places else None) == template
    assert bool(sources.tables) == (template is not None)


def test_a_recursive_name_is_its_own() -> None:
    query = "WITH RECURSIVE orders AS (SELECT 1 n UNION ALL SELECT n + 1 FROM orders) SELECT * FROM orders"
    assert find_sources(query, TABLES).places == ()


@pytest.mark.parametrize(
    ("clause", "as_of"),
    [
        ("TIMESTAMP AS OF '2024-01-01'", "2024-01-01"),
        ("for  timestamp as of timestamp '2024-01-01 00:00:00+01:00'", "2024-01-01 00:00:00+01:00"),
        ("FOR SYSTEM_TIME AS OF '20240101000000'", "20240101000000"),
        ("VERSION AS OF 20240101000000000", "20240101000000000"),
    ],
)
def test_a_table_is_asked_for_as_of_another_time(clause: str, as_of: str) -> None:
    sources = find_sources(f"SELECT * FROM orders {clause} AS o JOIN orders USING (id)", TABLES)
    assert sources.template() == "SELECT * FROM {t0} AS o JOIN {t1} AS orders USING (id)"
    assert [wanted.as_of for wanted in sources.tables] == [as_of, None]


@pytest.mark.parametrize(
    "clause",
    [
        "TIMESTAMP AS OF now()",
        "TIMESTAMP AS OF '2024' || '-01-01'",
        "TIMESTAMP AS OF 1704164645",
        "VERSION AS OF 'v1'",
    ],
)
def test_a_time_that_is_no_plain_text_is_refused(clause: str) -> None:
    with pytest.raises(ConfigError, match=r"cannot read the time in .*as_of="):
        find_sources(f"SELECT * FROM orders {clause}", TABLES)


SCHEMA = pa.schema([("ID", pa.string()), ("n", pa.int32()), ("day", pa.date32()), ("x", pa.float64())])


@pytest.mark.parametrize(
    ("query", "columns"),
    [
        ("SELECT id, sum(x) FROM orders GROUP BY id", ["ID", "x"]),
        ("SELECT count(*) FROM orders", ["ID"]),
        ("SELECT count(*) FROM orders WHERE day > '2024-01-01'", ["day"]),
        ("SELECT * FROM orders", None),
        ("SELECT o.* FROM orders o", None),
        ("SELECT n FROM orders NATURAL JOIN items", None),
        ("SELECT a FROM orders AS o(a, b, c, d)", None),
        ("SELECT a FROM orders PIVOT (sum(x) FOR n IN (1 AS a))", None),
        ("FROM orders", None),
        ("FROM orders |> SELECT n", None),
    ],
)
def test_only_columns_that_a_query_may_want_are_read(query: str, columns: list[str] | None) -> None:
    assert columns_for(find_sources(query, TABLES).columns, SCHEMA) == columns


@pytest.mark.parametrize(
    ("where", "filters"),
    [
        ("id = 'a' AND (o.n >= -3 AND 5 > n)", [("ID", "=", "a"), ("n", ">=", -3), ("n", "<", 5)]),
        ("id IN ('a', 'b')", [("ID", "in", ["a", "b"])]),
        ("day = '2024-01-02'", [("day", "=", datetime.date(2024, 1, 2))]),
        ("o.id IS NULL AND (x IS NULL)", [("ID", "is null"), ("x", "is null")]),
        ("id IS NOT NULL", []),
        ("id IS NULL OR n = 1", []),
        ("(id = 'a') IS NULL", []),
        ("other.id IS NULL", []),
        ("id = 'a' OR n = 1", []),
        ("NOT id = 'a'", []),
        ("id = 5", []),
        ("n = '5'", []),
        ("n = 5000000000", []),
        ("n = 1.5", []),
        ("x = 1", []),
        ("day = '2024-1-2'", []),
        ("day = '2024-02-30'", []),
        (r"id = 'a\tb'", []),
        ("id IN (SELECT id FROM items)", []),
        ("id IN ('a', n)", []),
        ("other.id = 'a'", []),
        ("id = upper('a')", []),
        ("z = 'a'", []),
    ],
)
def test_conditions_that_mean_the_same_to_us_are_used_to_read_less(where: str, filters: list[object]) -> None:
    assert (
        filters_for(find_sources(f"SELECT * FROM orders o WHERE {where}", {"orders"}).conditions, SCHEMA)
        == filters
    )


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM orders JOIN x ON true WHERE id = 'a'",
        "SELECT * FROM orders a, orders b WHERE a.id = 'a'",
        "SELECT * FROM orders TABLESAMPLE (5 ROWS) WHERE id = 'a'",
        "SELECT * FROM orders AS o(n, id, b, c) WHERE id = 'a'",
        "SELECT * FROM orders LATERAL VIEW explode(array('a')) t AS id WHERE id = 'a'",
        "SELECT * FROM orders PIVOT (sum(x) FOR n IN (1 AS id)) WHERE id = 'a'",
        "FROM orders |> SELECT 'a' AS id |> WHERE id = 'a'",
    ],
)
def test_a_condition_that_may_be_of_something_else_is_not_used(query: str) -> None:
    assert find_sources(query, {"orders"}).conditions == ()


@pytest.mark.parametrize(
    "tail",
    [
        "id = 1 LIMIT 3",
        "id = 1 UNION SELECT * FROM items",
        "id = 1 ORDER BY id",
        "id = 1; SELECT 1",
        "id = ",
        "id = 1 GROUP BY id",
    ],
)
def test_a_delete_is_one_condition(tail: str) -> None:
    check_condition("SELECT * FROM orders WHERE id = 1")
    check_condition("SELECT * FROM orders AS o WHERE id IN (SELECT id FROM items LIMIT 3);")
    with pytest.raises(ConfigError, match="DELETE"):
        check_condition(f"SELECT * FROM orders WHERE {tail}")


def test_tokens_have_their_places_and_cover_the_text() -> None:
    text = "a `b``c` 'it''s \\' x' \"q\" 12 1.5 1x => = -- c\n/* d */ é ' open"
    tokens = tokenize(text)
    assert [t.kind for t in tokens] == [
        "word", "name", "text", "text", "number", "number", "word", "sign", "sign", "word", "sign", "word", "",
    ]  # fmt: skip
    assert all(text[t.start : t.end] == t.text for t in tokens)
    assert unquoted("'it''s \\' x'") == "it's ' x"
    assert unquoted('"a\'\'b""c"') == "a''b\"c"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("CREATE INDEX by_city ON orders (city)", CreateIndex(name="by_city", table=ORDERS, column="city")),
        (
            "create index if not exists `by-city` on table bucketlake.`/data/t` using secondary_index(`a.b`);",
            CreateIndex(
                name="by-city", table=TableName("/data/t", True), column="a.b", if_not_exists=True
            ),
        ),
        (
            "CREATE INDEX i ON Orders USING `secondary_index` (a.b) OPTIONS (shards = 4, record_index = TRUE)",
            CreateIndex(name="i", table=ORDERS, column="a.b", shards=4, record_index=True),
        ),
        ("CREATE INDEX i ON theirs (a)", PassThrough("CREATE INDEX i ON theirs (a)", "`theirs`")),
        ("DROP INDEX by_city ON orders", DropIndex(name="by_city", table=ORDERS)),
        ("DROP INDEX IF EXISTS i ON TABLE orders;", DropIndex(name="i", table=ORDERS, if_exists=True)),
        ("DROP INDEX i ON theirs", PassThrough("DROP INDEX i ON theirs", "`theirs`")),
        ("SHOW INDEXES FROM orders", ShowIndexes(ORDERS)),
        ("SHOW INDEXES IN bucketlake.items", ShowIndexes(TableName("items"))),
        ("show indexes on items;", ShowIndexes(TableName("items"))),
        ("SHOW INDEXES FROM theirs", PassThrough("SHOW INDEXES FROM theirs", "`theirs`")),
    ],
)  # fmt: skip
def test_statements_about_indexes_are_read(text: str, expected: object) -> None:
    assert parse(text, TABLES) == expected


@pytest.mark.parametrize(
    ("text", "found", "expected"),
    [
        ("CREATE INDEX ON orders (a)", "'orders' at position 16", "ON"),
        ("CREATE INDEX i orders (a)", "'orders'", "ON"),
        ("CREATE INDEX i ON orders", "the end", r"'\('"),
        ("CREATE INDEX i ON orders ()", r"'\)'", "a column's name"),
        ("CREATE INDEX i ON orders (a, b)", "','", "an index is of one column"),
        ("CREATE INDEX i ON orders USING record_index (id)", "'record_index'", "CALL metadata.build"),
        ("CREATE INDEX i ON orders USING column_stats (a)", "'column_stats'", "secondary_index"),
        ("CREATE INDEX i ON orders (a) OPTIONS (shards = 'x')", "'OPTIONS'", "shards = a number"),
        ("CREATE INDEX i ON orders (a) OPTIONS (depth = 3)", "'OPTIONS'", "no options but shards"),
        ("CREATE INDEX i ON orders (a) now", "'now'", "the end"),
        ("DROP INDEX ON orders", "'orders'", "ON"),
        ("DROP INDEX i", "the end", "ON"),
        ("SHOW INDEXES orders", "'orders'", "FROM, IN or ON"),
    ],
)
def test_a_statement_about_indexes_that_makes_no_sense_is_an_error_with_its_place(
    text: str, found: str, expected: str
) -> None:
    with pytest.raises(ConfigError, match=f"found {found}.*expected .*{expected}"):
        parse(text, TABLES)


MATCHED, MISSING, EXTRA = Part.MATCHED, Part.NOT_MATCHED, Part.NOT_MATCHED_BY_SOURCE


def test_a_merge_is_read_clause_by_clause() -> None:
    found = parse(
        """MERGE INTO Orders AS o USING (SELECT a ON_, 'WHEN' FROM items ON_) AS s ON o.id = s.id -- ON
        WHEN MATCHED AND CASE WHEN s.n > 1 THEN true ELSE false END THEN DELETE
        WHEN MATCHED THEN UPDATE SET o.n = concat(s.a, ','), `t` = s.t /* , x = 1 */
        when not matched by target and s.n in (1, 2) then insert (id, `a b`) values (s.id, f(1, 2))
        WHEN NOT MATCHED THEN INSERT *
        WHEN NOT MATCHED BY SOURCE THEN UPDATE SET n = CASE o.n WHEN 1 THEN 2 END;""",
        TABLES,
    )
    assert isinstance(found, MergeInto) and found.table == ORDERS
    parts = found.parts
    assert (parts.target, parts.source, parts.on) == ("o", "s", "o.id = s.id")
    assert parts.source_query.strip() == "SELECT * FROM (SELECT a ON_, 'WHEN' FROM items ON_) AS s"
    assert parts.clauses == (
        Clause(part=MATCHED, deed=Deed.DELETE, condition="CASE WHEN s.n > 1 THEN true ELSE false END"),
        Clause(part=MATCHED, deed=Deed.UPDATE, values=(("n", "concat(s.a, ',')"), ("t", "s.t"))),
        Clause(
            part=MISSING,
            deed=Deed.INSERT,
            condition="s.n in (1, 2)",
            values=(("id", "s.id"), ("a b", "f(1, 2)")),
        ),
        Clause(part=MISSING, deed=Deed.INSERT),
        Clause(part=EXTRA, deed=Deed.UPDATE, values=(("n", "CASE o.n WHEN 1 THEN 2 END"),)),
    )


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("items", "items"),
        ("bucketlake.`/data/x` AS x", "x"),
        ("db.changes c", "c"),
        ("items TIMESTAMP AS OF '2026-01-01'", ""),
        ("items VERSION AS OF 20260101000000000 AS i", "i"),
        ("(SELECT 1 AS id)", ""),
        ("(VALUES (1, 2)) AS v(id, n)", "v"),
        ("(VALUES (1)) `s 1`", "s 1"),
    ],
)
def test_the_source_of_a_merge_has_the_name_that_it_is_given(source: str, name: str) -> None:
    found = parse(f"MERGE INTO orders USING {source} ON true WHEN MATCHED THEN DELETE", TABLES)
    assert isinstance(found, MergeInto)
    assert (found.parts.target, found.parts.source) == ("orders", name)
    assert found.parts.source_query.strip() == f"SELECT * FROM {source}"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("MERGE INTO orders USING x ON a = b", "expected WHEN"),
        ("MERGE INTO orders USING x WHEN MATCHED THEN DELETE", "expected ON"),
        ("MERGE INTO orders USING x ON WHEN MATCHED THEN DELETE", "expected a condition"),
        ("MERGE INTO orders USING x ON a = (SELECT 1) WHEN MATCHED THEN DELETE", "put the query into USING"),
        ("MERGE INTO orders USING x ON true WHEN MATCHED THEN INSERT *", "expected UPDATE SET or DELETE"),
        ("MERGE INTO orders USING x ON true WHEN NOT MATCHED THEN DELETE", "expected INSERT"),
        (
            "MERGE INTO orders USING x ON true WHEN NOT MATCHED THEN INSERT (a, b) VALUES (1)",
            "there are 1 and 2",
        ),
        (
            "MERGE INTO orders USING x ON true WHEN NOT MATCHED BY SOURCE THEN UPDATE SET *",
            "no row of the source",
        ),
        (
            "MERGE INTO orders USING x ON true WHEN MATCHED THEN UPDATE SET a.b.c = 1",
            "a field within a column",
        ),
        ("MERGE INTO orders USING x ON true WHEN MATCHED THEN DELETE LIMIT 1", "found 'LIMIT'"),
        (
            "MERGE WITH SCHEMA EVOLUTION INTO orders USING x ON true WHEN MATCHED THEN DELETE",
            "adds no columns",
        ),
        ("MERGE INTO orders USING VALUES (1) ON true WHEN MATCHED THEN DELETE", "a query in parentheses"),
        ("UPDATE orders SET WHERE a = 1", "expected '='"),
        ("UPDATE orders SET a = WHERE b = 1", "expected a value"),
        ("UPDATE orders SET a = 1 b = 2 LIMIT", None),
        ("UPDATE orders", "expected SET"),
        (
            "UPDATE orders SET address.name = 'x'",
            "the table, which is called orders here; a field within a column",
        ),
        ("UPDATE orders AS o SET orders.n = 1", "which is called o here"),
        (
            "UPDATE bucketlake.`/data/orders` SET address.name = 'x'",
            "a column of the table; a field within a column",
        ),
        (
            "MERGE INTO orders t USING x s ON true WHEN MATCHED THEN UPDATE SET n = 1, s.n = 2",
            "which is called t here",
        ),
        ("ALTER TABLE orders ADD COLUMNS ()", "expected columns"),
        ("DESCRIBE orders n", "DESCRIBE shows all columns"),
    ],
)
def test_a_mistake_in_a_change_is_told(text: str, message: str | None) -> None:
    if message is None:
        found = parse(text, TABLES)
        assert isinstance(found, Update)
        with pytest.raises(ConfigError, match="UPDATE"):
            check_condition(found.parts.query, "UPDATE")
        return
    with pytest.raises(ConfigError, match=message):
        parse(text, TABLES)


def test_an_update_becomes_a_query_with_the_new_values_beside_the_rows() -> None:
    found = parse(
        "UPDATE orders AS o SET o.n = n + 1 -- more\n, `T` = (SELECT max(t), 'WHERE' FROM items) WHERE o.id = 1;",
        TABLES,
    )
    assert isinstance(found, Update) and found.parts.columns == ("n", "T")
    assert " ".join(found.parts.query.split()) == (
        "SELECT * , (n + 1 ) AS _bucketlake_new_0 , ((SELECT max(t), 'WHERE' FROM items) ) AS _bucketlake_new_1 "
        "FROM orders AS o WHERE o.id = 1"
    )
    check_condition(found.parts.query, "UPDATE")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ALTER TABLE orders ADD COLUMN a INT", AddColumns(ORDERS, "a INT")),
        ("alter table orders add columns (a DECIMAL(5, 2));", AddColumns(ORDERS, "a DECIMAL(5, 2)")),
        ("DESC EXTENDED orders", DescribeTable(ORDERS, True)),
        ("DESCRIBE TABLE bucketlake.`/x/y`;", DescribeTable(TableName("/x/y", True))),
        ("DESCRIBE HISTORY orders LIMIT 3", ProcedureCall("history", "orders", {"limit": 3})),
        ("DESC DETAIL bucketlake.`/x/y`", ProcedureCall("describe", "/x/y", {})),
        ("DESC history", PassThrough("DESC history")),
        ("SHOW PARTITIONS orders", ShowPartitions(ORDERS)),
        ("SHOW COLUMNS IN orders", ShowColumns(ORDERS)),
        ("TABLE orders", Select("SELECT * FROM  orders")),
        ("INSERT INTO orders TABLE items", Insert(table=ORDERS, query="SELECT * FROM  items")),
        ("INSERT INTO x FROM orders", PassThrough("INSERT INTO x FROM orders", "`x`", "FROM orders")),
        ("CREATE TABLE x USING csv AS TABLE orders", PassThrough("CREATE TABLE x USING csv AS TABLE orders")),
        ("EXPLAIN SELECT * FROM orders", PassThrough("EXPLAIN SELECT * FROM orders", None, "SELECT * FROM orders")),
    ],
)  # fmt: skip
def test_what_tables_have_beside_rows(text: str, expected: object) -> None:
    assert parse(text, TABLES) == expected


@pytest.mark.parametrize(
    "text",
    [
        "TRUNCATE TABLE orders", "ALTER TABLE `orders` DROP COLUMN a", "CREATE VIEW v AS SELECT * FROM Orders",
        "CACHE TABLE orders", "ANALYZE TABLE orders COMPUTE STATISTICS", "MSCK REPAIR TABLE orders",
        "COMMENT ON TABLE orders IS 'x'", "REFRESH TABLE orders", "DROP VIEW orders", "UNCACHE TABLE orders",
        "INSERT OVERWRITE DIRECTORY '/x' TABLE orders", "SHOW CREATE TABLE orders", "DESCRIBE QUERY TABLE orders",
        "MERGE INTO x USING bucketlake.orders ON true WHEN MATCHED THEN DELETE", "DROP TABLE x, orders",
        "BEGIN TRUNCATE TABLE orders; END", "TRUNCATE TABLE IDENTIFIER('orders')",
        "LOAD DATA INPATH 'x' INTO TABLE orders",
        "UPDATE x SET a = (SELECT max(a) FROM bucketlake.`/data/orders`)", 'TRUNCATE TABLE "orders"',
        "SET VAR x = (SELECT max(a) FROM orders)", "DECLARE x INT DEFAULT (SELECT max(a) FROM orders)",
        "CREATE FUNCTION f() RETURNS INT RETURN (SELECT max(a) FROM orders)",
    ],
)  # fmt: skip
def test_a_statement_of_spark_s_that_names_a_table_of_ours_is_refused(text: str) -> None:
    with pytest.raises(UnsupportedError, match=r"A table of Spark's with this name has its schema before it"):
        check_names(text, TABLES)


@pytest.mark.parametrize(
    "text",
    [
        "TRUNCATE TABLE default.orders", "SET spark.x = orders", "USE orders", "SHOW TABLES IN orders",
        "DROP DATABASE items", "DESC FUNCTION abs", "CREATE VIEW v AS SELECT 'orders', o.items FROM x o",
        "CACHE TABLE x -- orders",
    ],
)  # fmt: skip
def test_what_is_certainly_spark_s_is_left_alone(text: str) -> None:
    check_names(text, TABLES)


@pytest.mark.parametrize(
    "query",
    [
        "FROM x INSERT INTO orders SELECT *", "WITH a AS (SELECT 1) INSERT INTO orders SELECT * FROM a",
        "SELECT * FROM (TABLE orders)", "SELECT * FROM IDENTIFIER('orders')", "SELECT * FROM IDENTIFIER(:t)",
        "SELECT FROM WHERE orders ((", 'SELECT * FROM "orders"', "SELECT * FROM f(TABLE(orders))",
    ],
)  # fmt: skip
def test_a_query_that_hides_a_table_of_ours_is_refused(query: str) -> None:
    """Spark may have a table of the same name."""
    with pytest.raises(ConfigError):
        find_sources(query, TABLES)


@pytest.mark.parametrize("text", ["EXECUTE IMMEDIATE 'DROP TABLE x'", "DROP TABLE IDENTIFIER(:t)"])
def test_a_statement_that_hides_its_tables_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="Write the name into the statement"):
        check_names(text, TABLES)
    check_names(text, ())


def test_values_come_beside_a_statement() -> None:
    assert named_parameters("SELECT :a, '?'", {"a": 1}) == ("SELECT :a, '?'", {"a": 1})
    with pytest.raises(ConfigError, match="has 2 of '\\?', and args has 1 values"):
        named_parameters("SELECT ?, ?", [1])
    with pytest.raises(ConfigError, match="expected a mapping"):
        named_parameters("SELECT ?", "a")  # type: ignore[arg-type] # a caller without types
