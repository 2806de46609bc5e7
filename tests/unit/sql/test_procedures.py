"""CALL must do what the method of the same name does, and tell a mistake with its place before it does anything."""

from __future__ import annotations

import re
from typing import Any

import pytest

from bucketlake import CompactionTrigger, ConsistentBuckets, Maintenance, PartitionBuckets
from bucketlake.arguments import maintenance_for
from bucketlake.errors import ConfigError
from bucketlake.services import Done
from bucketlake.services.upkeep import maintenance_of
from bucketlake.sql.frames import table_of
from bucketlake.sql.parse import Insert, PassThrough, parse
from bucketlake.sql.procedures import PROCEDURES, ProcedureCall
from stand_ins.orders_table import orders_table, written_table

pytestmark = pytest.mark.shows("H4")


@pytest.mark.parametrize(
    ("text", "call"),
    [
        ("CALL compact()", ProcedureCall("compact", None, {})),
        ("CALL compact('orders');", ProcedureCall("compact", "orders", {})),
        ("call bucketlake.Compact(table => 'o')", ProcedureCall("compact", "o", {})),
        ("CALL compact('o', 5)", ProcedureCall("compact", "o", {"delta_commits": 5})),
        (
            "CALL compact(table => 'o', log_ratio => 0.5, hours => NULL)",
            ProcedureCall("compact", "o", {"log_ratio": 0.5}),
        ),
        (
            "CALL cluster(by => 'a, b', partitions => array('x,y', 'z'))",
            ProcedureCall("cluster", None, {"by": ("a", "b"), "partitions": ("x,y", "z")}),
        ),
        (
            "CALL buckets.rollback(instant => 20260618093000000, with_newer => true)",
            ProcedureCall("buckets.rollback", None, {"instant": "20260618093000000", "with_newer": True}),
        ),
        (
            "CALL bucketlake.buckets.resize(file_bytes => '100', policy => 'even', max_buckets => 8)",
            ProcedureCall("buckets.resize", None, {"file_bytes": 100, "policy": "even", "max_buckets": 8}),
        ),
        (
            "CALL adopt(table => '/data/t', index => 'PartitionBuckets(\"p,3\", default=2)')",
            ProcedureCall("adopt", "/data/t", {"index": PartitionBuckets("p,3", 2)}),
        ),
        ("CALL explain(key => '{\"a\": 1}')", ProcedureCall("explain", None, {"key": {"a": 1}})),
        ("CALL explain(key => -7)", ProcedureCall("explain", None, {"key": -7})),
        ("CALL alter(merge_schema = 'true')", ProcedureCall("alter", None, {"merge_schema": True})),
        ("CALL savepoint(comment => '')", ProcedureCall("savepoint", None, {"comment": ""})),
    ],
)
def test_a_call_is_read_by_the_names_that_python_has(text: str, call: ProcedureCall) -> None:
    assert parse(text, ()) == call


def test_procedures_of_others_are_left_to_spark() -> None:
    for text in ("CALL system.rewrite()", "CALL compaction()", "CALL catalog.compact()"):
        assert parse(text, ()) == PassThrough(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("CALL compact(delta => 5)", r"found 'delta' .*an argument's name: table, delta_commits, log_bytes"),
        ("CALL compact(table => 'a', table => 'b')", r"expected table once"),
        ("CALL compact(table => 'a', 5)", r"arguments without a name come before"),
        ("CALL fsck('a', 5)", r"no more than 1 arguments"),
        ("CALL compact(delta_commits => 'many')", r"'many'.* at .*a number"),
        ("CALL compact(delta_commits => 1.5)", r"found '1.5' .*a whole number"),
        ("CALL compact(delta_commits => true)", r"found 'true' .*a number"),
        ("CALL compact(delta_commits 5)", r"found 'delta_commits' .*a value"),
        ("CALL compact(table => 5)", r"found '5' .*a text in quotes"),
        ("CALL compact(table => 'a'", r"found the end .*another argument, or '\)'"),
        ("CALL compact(table => 'a') now", r"found 'now' .*the end of the statement"),
        ("CALL rollback(instant => 'yesterday')", r"an instant of the timeline"),
        ("CALL cluster(by => '')", r"names: 'a,b', or ARRAY"),
        ("CALL buckets.rollback(instant => '1', with_newer => 1)", r"found '1' .*TRUE or FALSE"),
        ("CALL explain(key => '{a')", r"a key of several columns as JSON"),
    ],
)
def test_a_mistake_is_told_with_its_place(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=r"at position [0-9]+ (?s:.)*expected") as error:
        parse(text, ())
    assert re.search(f"(?s){message}", str(error.value)), error.value


def test_an_index_that_makes_no_sense_is_told() -> None:
    with pytest.raises(ConfigError, match="there is no index 'Odd'"):
        parse("CALL adopt(index => 'Odd(4)')", ())


@pytest.mark.parametrize(
    "text",
    [
        "INSERT INTO orders OPTIONS ('hoodie.bucket.index.num.buckets' = '8') SELECT 1",
        "INSERT INTO orders /*+ OPTIONS('hoodie.bucket.index.num.buckets'='8') */ SELECT 1",
        "INSERT INTO orders (id) /*+ options(hoodie.bucket.index.num.buckets = 8) */ VALUES (1)",
    ],
)
def test_options_of_an_insert_are_read_as_a_clause_and_as_a_hint(text: str) -> None:
    found = parse(text, {"orders"})
    assert isinstance(found, Insert)
    assert found.options == {"hoodie.bucket.index.num.buckets": "8"}
    assert found.query in ("SELECT 1", "VALUES (1)")


def test_hints_of_a_query_are_left_to_spark() -> None:
    found = parse("INSERT INTO orders SELECT /*+ OPTIONS('a'='b') */ 1", {"orders"})
    assert isinstance(found, Insert)
    assert not found.options


def test_maintenance_is_said_in_words_or_by_the_table() -> None:
    table = orders_table("memory://procedures-maintenance")
    words = {"compact_delta_commits": 5, "archive_min": 2, "archive_max": 3}
    in_words = Maintenance(compact=CompactionTrigger(delta_commits=5), archive=(2, 3))
    for mode in ("inline", "service", "off"):
        table.alter(maintenance=mode, keep_commits=9)
        assert maintenance_for(table.properties, words) == in_words
        with pytest.raises(ConfigError, match="archive_min and archive_max belong together"):
            maintenance_for(table.properties, {"archive_min": 2})
        if mode != "off":
            assert maintenance_for(table.properties, {"clean_hours": None}) == maintenance_of(
                table.properties
            )
    with pytest.raises(ConfigError, match="expected at least one of compact_delta_commits, "):
        maintenance_for(table.properties, {})


def test_whatever_a_call_returns_is_a_table_of_named_columns() -> None:
    table = written_table("memory://procedures")
    ring = orders_table("memory://procedures-ring", index=ConsistentBuckets(2))

    def columns(result: Any, of: str) -> list[str]:
        assert of in PROCEDURES
        return list(table_of(result, of=of).column_names)

    plan = table_of(table.plan_compaction(), of="plan_compaction")
    assert plan["plan"].to_pylist() == str(table.plan_compaction()).splitlines()
    done = table_of(table.compact(), of="compact").to_pylist()
    assert done[0]["file_groups"] == 4 and set(done[0]) == set(columns(Done(()), "compact"))
    assert columns(table.describe(), "describe") == ["name", "value"]
    assert columns(table.timeline(), "timeline") == columns((), "timeline")
    assert [row["buckets"] for row in table_of(table.layout(), of="layout").to_pylist()] == [2, 2]
    assert columns(table.savepoints(), "savepoints") == columns(table.savepoint(), "savepoint")
    assert columns(table.explain(3, partition="p1"), "explain") == ["plan"]
    assert table_of(table.changes_until(), of="changes_until").column_names == ["changes_until"]
    assert table_of(None, of="alter").to_pylist() == [{"result": "done"}]
    verdict = table_of(table.fsck(), of="fsck").to_pylist()
    assert verdict[0]["kind"] == "verdict" and verdict[0]["text"].count("sound") == 1
    rescaled = table.buckets.overwrite("p0,3")
    assert table_of(rescaled, of="buckets.overwrite").to_pylist()[0]["partitions"] == ["p0"]
    assert table_of(table.buckets.show_config(), of="buckets.show_config")["expressions"].to_pylist() == [
        "p0,3"
    ]
    undone = table_of(table.buckets.rollback(rescaled.instant), of="buckets.rollback").to_pylist()
    assert undone[0]["instant"] == rescaled.instant and undone[0]["files"]
    assert table_of(table.archive(), of="archive").num_rows == 0
    assert table_of(table.maintain(Maintenance(compact=CompactionTrigger())), of="maintain").num_rows == 0
    assert table_of(ring.buckets.show_config(), of="buckets.show_config").num_rows == 0
    assert table_of(None, of="buckets.abort").num_rows == 0


def test_what_is_done_with_a_metadata_table_has_columns_that_queries_can_use() -> None:
    table = written_table("memory://procedures-metadata")
    assert table_of(table.metadata.build(), of="metadata.build").to_pylist()[0]["partitions"] == 2
    assert table_of(table.metadata.build(), of="metadata.build").num_rows == 0
    (status,) = table_of(table.metadata.status(), of="metadata.status").to_pylist()
    assert status["is_in_step"] and status["shards"] == [("files", 1)]
    (dropped,) = table_of(table.metadata.drop(), of="metadata.drop").to_pylist()
    assert ".hoodie/metadata/.hoodie/hoodie.properties" in dropped["files"]
    (dropped,) = table_of(table.metadata.drop(), of="metadata.drop").to_pylist()
    assert dropped["files"] == []
