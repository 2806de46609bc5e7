"""A person at a terminal, and a program in a pipe, must both get what they asked for, and a code that says so."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from bucketlake import ConfigError, Table, create_table

Golden = Callable[[str], Path]
MOR = "mor_simple_bucket_avro"


def answer(result: tuple[int, str, str]) -> Any:
    code, out, err = result
    assert (code, err) == (0, "")
    return json.loads(out)


def test_describe_says_what_a_table_is(run: Any, golden_table: Golden) -> None:
    found = answer(run("describe", golden_table(MOR), "--buckets", 4, "--json"))
    assert found["type"] == "MERGE_ON_READ"
    assert found["record key"] == ["id"]
    assert found["index"] == "simple buckets: 4 per partition, hashed from id"
    assert {"name": "id", "type": "int32", "nullable": True} in found["schema"]
    code, out, _ = run("describe", golden_table(MOR))
    assert code == 0
    assert "EVENT_TIME_ORDERING" in out


def test_history_lists_commits_with_what_they_did(run: Any, tmp_path: Path) -> None:
    table = create_table(tmp_path / "t", "id STRING, n INT", key="id")
    assert table.history() == ()
    table.upsert([{"id": "a", "n": 1}, {"id": "b", "n": 2}])
    table.delete(["a"])
    newest, first = table.history()
    assert (newest.operation, newest.deleted) == ("DELETE", 1)
    assert (first.operation, first.inserted, first.partitions, first.files) == ("UPSERT", 2, 1, 2)
    assert table.history(limit=1) == (newest,)
    with pytest.raises(ConfigError, match="limit is -1"):
        table.history(limit=-1)
    assert [row["instant"] for row in answer(run("history", tmp_path / "t", "--limit", "1", "--json"))] == [
        newest.instant
    ]
    assert answer(run("add-columns", tmp_path / "t", "note STRING", "--json"))["operation"] == "UPSERT"
    assert table.schema.names == ["id", "n", "note"]
    assert table.to_arrow(columns=["id", "note"]).to_pylist() == [{"id": "b", "note": None}]


def test_timeline_lists_instants_with_their_operations(run: Any, golden_table: Golden) -> None:
    found = answer(run("timeline", golden_table(MOR), "--json"))
    assert [entry["operation"] for entry in found] == ["UPSERT", "UPSERT", "DELETE", "UPSERT"]
    pending = answer(run("timeline", golden_table("mor_consistent_1_pending_split"), "--json"))
    assert [entry["state"] for entry in pending].count("requested") == 1
    assert "deltacommit" in run("timeline", golden_table(MOR))[1]


def test_layout_shows_groups_sizes_and_skew(run: Any, golden_table: Golden) -> None:
    folder = golden_table(MOR)
    found = answer(run("layout", folder, "--buckets", 4, "--json"))
    files = [
        f for p in found["partitions"] for g in p["file_groups"] for f in [g["base_file"], *g["log_files"]]
    ]
    assert found["size_bytes"] == sum((folder / file).stat().st_size for file in files)
    assert [p["buckets"] for p in found["partitions"]] == [4, 4]
    assert found["skew"] >= 1
    assert "skew" in run("layout", folder)[1]
    by_rules = answer(run("layout", golden_table("mor_partition_bucket"), "--json"))
    assert len({p["buckets"] for p in by_rules["partitions"]}) > 1


def test_read_prints_the_rows_asked_for(run: Any, golden_table: Golden) -> None:
    folder = golden_table(MOR)
    assert len(answer(run("read", folder, "--json"))) == 10
    assert len(answer(run("read", folder, "--json", "--limit", 3))) == 3
    rows = answer(
        run("read", folder, "--json", "--columns", "id,name", "--where", "id in 1,4", "--where", "ts > 102")
    )
    assert rows == [{"id": 4, "name": "n4-u"}]
    first = answer(run("timeline", folder, "--json"))[0]
    assert len(answer(run("read", folder, "--json", "--as-of", first["requested"]))) == 12
    assert len(answer(run("read", folder, "--json", "--begin", first["completed"]))) == 4
    assert len(answer(run("read", folder, "--json", "--read-optimized"))) == 12
    assert "_hoodie_commit_time" in answer(run("read", folder, "--json", "--meta", "--limit", 1))[0]
    assert "n4-u" in run("read", folder)[1]


def test_values_of_every_type_are_printed(run: Any, golden_table: Golden) -> None:
    row = answer(run("read", golden_table("mor_all_types"), "--json", "--where", "id = 1"))[0]
    assert row["dec"] == "12345.67"
    assert row["bin"] == "YWJj"
    assert row["m"] == [["k", 1]]
    assert row["st"] == {"x": 1, "y": "z"}
    assert row["dd"] == "2024-01-02"


@pytest.mark.parametrize(
    "where",
    ["dec = 12345.67", "dd = 2024-01-02", "tm <= 2024-01-02T03:04:06", "b = true", "bin = YWJj", "d > 2"],
)
def test_a_filter_is_read_by_the_columns_type(run: Any, golden_table: Golden, where: str) -> None:
    assert len(answer(run("read", golden_table("mor_all_types"), "--json", "--where", where))) == 1


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("name = it's", {"it's"}),
        ("name = 'it''s'", {"it's"}),
        ("name = 'x = y and z = 1'", {"x = y and z = 1"}),
        ("name = salt and pepper", {"salt and pepper"}),
        ("name in ('a,b', plain)", {"a,b", "plain"}),
        ("name in plain, 'it''s'", {"plain", "it's"}),
        ("name = ''", {""}),
        ("name =", {""}),
        ("name starts with 'a'", {"a,b"}),
        ("id = '3'", {"plain"}),
    ],
)
def test_a_text_in_a_filter_may_stand_in_quotes_as_in_sql(
    run: Any, tmp_path: Path, where: str, expected: set[str]
) -> None:
    names = ["it's", "a,b", "x = y and z = 1", "plain", "", "salt and pepper"]
    rows = pa.table({"id": range(len(names)), "name": names})
    create_table(tmp_path / "t", rows, key="id").upsert(rows)
    found = answer(run("read", tmp_path / "t", "--json", "--where", where))
    assert {row["name"] for row in found} == expected


def test_get_fetches_rows_by_key(run: Any, golden_table: Golden) -> None:
    rows = answer(run("get", golden_table(MOR), 1, 4, 99, "--json", "--buckets", 4, "--columns", "id,name"))
    (own,) = answer(run("get", golden_table(MOR), 1, "--json"))
    (every,) = answer(run("get", golden_table(MOR), 1, "--json", "--meta-columns"))
    assert list(own) == Table.open(golden_table(MOR)).schema.names
    assert own.items() < every.items() and "_hoodie_commit_time" in every
    assert sorted(row["name"] for row in rows) == ["n1-u", "n4-u"]
    composite = golden_table("cow_composite_keys")
    assert answer(run("get", composite, '{"k1": "a", "k2": 1}', "--json", "--columns", "name")) == [
        {"name": "x-u"}
    ]


def test_get_of_a_key_that_is_not_there_exits_with_1(run: Any, golden_table: Golden) -> None:
    assert run("get", golden_table(MOR), 99)[0] == 1


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["describe", "{empty}"], 2, "is not a Hudi table"),
        (["read", "{table}", "--where", "nope = 1"], 2, "nope"),
        (["read", "{table}", "--where", "id = one"], 2, "'one' is none"),
        (["read", "{table}", "--where", "id"], 2, "cannot read the filter"),
        (["read", "{table}", "--where", "name = 'a' or name = 'b'"], 2, "one condition"),
        (["read", "{table}", "--where", "name = a and id > 1"], 2, "Repeat --where"),
        (["read", "{table}", "--where", "name = 'a', 'b'"], 2, "cannot read the filter"),
        (["read", "{table}", "--where", "name in ('a', 'b"], 2, "cannot read the filter"),
        (["read", "{table}", "--columns", "nope"], 2, "no column 'nope'"),
        (["read", "{table}", "--as-of", "yesterday"], 2, "yesterday"),
        (["get", "{table}", "one"], 2, "'one' is none"),
        (["describe", "{table}", "--storage", "x"], 2, "NAME=VALUE"),
        (["describe", "hdfs://somewhere/table"], 4, "hdfs"),
        (["describe", "{broken}"], 3, "hoodie.properties"),
        (["nonsense"], 2, "nonsense"),
    ],
)
def test_an_error_is_one_sentence_and_a_code(
    run: Any, golden_table: Golden, tmp_path: Path, words: list[str], code: int, message: str
) -> None:
    broken = tmp_path / "broken"
    (broken / ".hoodie").mkdir(parents=True)
    (broken / ".hoodie/hoodie.properties").write_text("hoodie.table.version=nine")
    places = {"empty": tmp_path, "table": golden_table(MOR), "broken": broken}
    found, out, err = run(*(word.format(**places) for word in words))
    assert (found, out) == (code, "")
    assert message in " ".join(err.split())
    assert "Traceback" not in err
