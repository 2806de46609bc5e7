"""A table made and written from a prompt: what was typed is what is stored, or an error says which value is wrong."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from bucketlake import Table

COLUMNS = """
    id STRING, day DATE, ts BIGINT, amount DECIMAL(10,2), at TIMESTAMP, local TIMESTAMP_NTZ, ok BOOLEAN, raw BINARY,
    x DOUBLE, tags ARRAY<STRING>, shape STRUCT<w: INT, h: INT>, extra MAP<STRING, BIGINT>
"""
LINE = {
    "id": "a",
    "day": "2026-06-18",
    "ts": 1,
    "amount": 12.34,
    "at": "2026-06-18T14:00:00+02:00",
    "local": "2026-06-18 12:00:00.000001",
    "ok": True,
    "raw": "AP8=",
    "x": 1,
    "tags": ["x", "y"],
    "shape": {"w": 1, "h": 2},
    "extra": {"n": 1},
}
STORED = {
    "id": "a",
    "day": "2026-06-18",
    "ts": 1,
    "amount": "12.34",
    "at": "2026-06-18T12:00:00+00:00",
    "local": "2026-06-18T12:00:00.000001",
    "ok": True,
    "raw": "AP8=",
    "x": 1.0,
    "tags": ["x", "y"],
    "shape": {"w": 1, "h": 2},
    "extra": [["n", 1]],
}

Run = Callable[..., tuple[int, str, str]]


def answer(result: tuple[int, str, str]) -> Any:
    code, out, err = result
    assert (code, err) == (0, "")
    return json.loads(out)


@pytest.fixture
def orders(run: Run, tmp_path: Path) -> Path:
    """A table with a column of every kind."""
    path = tmp_path / "orders"
    definition = ["--key", "id", "--partition", "day", "--ordering", "ts", "--buckets", 2]
    assert run("create", path, "--schema", COLUMNS, *definition)[0] == 0
    return path


@pytest.fixture
def plain(run: Run, tmp_path: Path) -> Path:
    """A table with three columns."""
    path = tmp_path / "plain"
    run("create", path, "--schema", "id STRING, day STRING, n INT", "--key", "id", "--partition", "day")
    return path


def lines(path: Path, *rows: dict[str, Any]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_create_makes_the_table_that_was_described(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "orders"
    words = [
        "--key",
        "a",
        "--key",
        "b",
        "--index",
        "SimpleBuckets(4, hash_fields='a')",
        "--ordering",
        "ts",
        "--type",
        "mor",
        "--hive-style",
    ]
    found = answer(
        run(
            "create",
            path,
            "--schema",
            "a STRING, b INT, ts BIGINT, dt DATE",
            "--partition",
            "dt",
            "--json",
            *words,
        )
    )
    assert found["type"] == "MERGE_ON_READ"
    assert found["record key"] == ["a", "b"]
    assert found["index"] == "simple buckets: 4 per partition, hashed from a"
    assert found["columns"] == ["a string", "b int32", "ts int64", "dt date32[day]"]
    assert Table.open(path).properties.hive_style_partitioning
    code, out, _ = run("create", tmp_path / "other", "--schema", "id INT", "--key", "id", "--name", "mine")
    assert code == 0
    assert "simple buckets" in out
    assert Table.open(tmp_path / "other").properties.name == "mine"


@pytest.mark.parametrize(
    ("name", "text", "columns"),
    [
        ("f.csv", "id,n,at\na,1,2026-06-18 12:00:00\n", ["id string", "n int64", "at timestamp[us]"]),
        ("f.json", '{"id": "a", "n": 1.5}\n', ["id string", "n double"]),
        ("f.parquet", "", ["id string", "n int32"]),
    ],
)
def test_create_takes_the_columns_of_a_file(
    run: Run, tmp_path: Path, name: str, text: str, columns: list[str]
) -> None:
    file = tmp_path / name
    if text:
        file.write_text(text)
    else:
        written = pa.table({"id": ["a"], "n": pa.array([1], pa.int32()), "_hoodie_record_key": ["a"]})
        pq.write_table(written, file)
    made = answer(run("create", tmp_path / "t", "--schema-from", file, "--key", "id", "--json"))
    assert made["columns"] == columns


@pytest.mark.shows("S5")
def test_json_lines_are_stored_by_the_tables_types(run: Run, orders: Path, tmp_path: Path) -> None:
    file = lines(tmp_path / "rows.jsonl", LINE, dict.fromkeys(LINE) | {"id": "b", "ts": 2})
    summary = answer(run("upsert", orders, file, "--json"))
    assert (summary["operation"], summary["inserted"], summary["files"]) == ("UPSERT", 2, 2)
    found = {row["id"]: row for row in answer(run("read", orders, "--json"))}
    assert found["a"] == STORED
    assert found["b"] == dict.fromkeys(LINE) | {"id": "b", "ts": 2}


def test_what_read_prints_can_be_written_back(run: Run, orders: Path, tmp_path: Path) -> None:
    run("upsert", orders, lines(tmp_path / "rows.jsonl", LINE))
    printed = run("read", orders, "--json", "--meta")[1]
    (tmp_path / "printed.json").write_text(printed)
    summary = answer(run("upsert", orders, tmp_path / "printed.json", "--json"))
    assert summary["updated"] == 1
    assert answer(run("read", orders, "--json")) == [STORED]


def test_a_file_without_rows_is_no_write(run: Run, orders: Path, tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text("\n")
    summary = answer(run("upsert", orders, tmp_path / "rows.jsonl", "--json"))
    assert (summary["rows"], summary["instant"]) == (0, None)


def test_csv_is_stored_by_the_tables_types(run: Run, tmp_path: Path) -> None:
    table = tmp_path / "t"
    typed = "day DATE, amount DECIMAL(10,2), at TIMESTAMP, local TIMESTAMP_NTZ, ok BOOLEAN, raw BINARY, n INT"
    run("create", table, "--schema", f"id STRING, {typed}", "--key", "id", "--partition", "day")
    (tmp_path / "rows.csv").write_text(
        "n,id,day,amount,at,local,ok,raw\n"
        '1,"a, b",2026-06-18,12.30,2026-06-18T14:00:00+02:00,2026-06-18 12:00:00,true,AP8=\n'
        ',"line\nbreak",2026-06-18,,2026-06-18,,,""\n'
        "3,007,2026-06-18,1,2026-06-18 12:00:00.5,,FALSE,\n"
    )
    assert answer(run("upsert", table, tmp_path / "rows.csv", "--json"))["inserted"] == 3
    found = {row.pop("id"): row for row in answer(run("read", table, "--json"))}
    day = {"day": "2026-06-18"}
    assert found == {
        "a, b": day
        | {"amount": "12.30", "at": "2026-06-18T12:00:00+00:00", "local": "2026-06-18T12:00:00"}
        | {"ok": True, "raw": "AP8=", "n": 1},
        "line\nbreak": day
        | {
            "amount": None,
            "at": "2026-06-18T00:00:00+00:00",
            "local": None,
            "ok": None,
            "raw": "",
            "n": None,
        },
        "007": day
        | {"amount": "1.00", "at": "2026-06-18T12:00:00.500000+00:00", "local": None, "ok": False}
        | {"raw": None, "n": 3},
    }


def test_files_of_every_format_go_into_one_commit(run: Run, plain: Path, tmp_path: Path) -> None:
    lines(tmp_path / "a.json", {"id": "a", "day": "d", "n": 1})
    (tmp_path / "b.txt").write_text("id,day,n\nb,d,2\n")
    pq.write_table(
        pa.table({"id": ["c"], "day": ["d"], "n": pa.array([3], pa.int32())}), tmp_path / "c.parquet"
    )
    assert run("upsert", plain, tmp_path / "b.txt", "--format", "csv")[0] == 0
    summary = answer(run("upsert", plain, tmp_path / "a.json", tmp_path / "c.parquet", "--json"))
    assert summary["rows"] == 2
    assert sorted((row["id"], row["n"]) for row in answer(run("read", plain, "--json"))) == [
        ("a", 1),
        ("b", 2),
        ("c", 3),
    ]
    assert len(answer(run("timeline", plain, "--json"))) == 2


def test_parquet_files_may_bring_new_columns(run: Run, plain: Path, tmp_path: Path) -> None:
    rows = {"id": ["a"], "day": ["d"], "n": pa.array([1], pa.int32())}
    pq.write_table(pa.table(rows), tmp_path / "old.parquet")
    wider = rows | {"id": ["b"], "n": pa.array([2**40]), "note": ["new"]}
    pq.write_table(pa.table(wider), tmp_path / "new.parquet")
    both = (tmp_path / "old.parquet", tmp_path / "new.parquet")
    code, _, err = run("upsert", plain, *both)
    assert code == 2
    assert "new.parquet: column 'n' is int64" in err
    assert "--merge-schema" in err
    answer(run("upsert", plain, *both, "--merge-schema", "--json"))
    assert sorted(map(str, answer(run("read", plain, "--json")))) == [
        "{'id': 'a', 'day': 'd', 'n': 1, 'note': None}",
        "{'id': 'b', 'day': 'd', 'n': 1099511627776, 'note': 'new'}",
    ]


def test_alter_lets_files_lack_columns(run: Run, plain: Path, tmp_path: Path) -> None:
    short = lines(tmp_path / "short.json", {"id": "a", "day": "d"})
    code, _, err = run("upsert", plain, short)
    assert code == 2
    assert "no column 'n'" in err
    assert run("alter", plain)[0] == 2
    altered = answer(run("alter", plain, "--allow-missing-columns", "--json"))
    assert altered["bucketlake.allow.missing.columns"] == "true"
    answer(run("upsert", plain, short, "--json"))
    assert answer(run("read", plain, "--json")) == [{"id": "a", "day": "d", "n": None}]
    answer(run("alter", plain, "--no-allow-missing-columns", "--json"))
    assert run("upsert", plain, short)[0] == 2


def test_a_summary_is_printed_for_a_person(run: Run, plain: Path, tmp_path: Path) -> None:
    code, out, _ = run("upsert", plain, lines(tmp_path / "a.json", {"id": "a", "day": "d", "n": 1}))
    assert code == 0
    assert out.startswith("upsert 2")
    assert "1 rows, 1 inserted" in out
    assert "begin" in out.splitlines()[-1]


@pytest.mark.shows("S5")
def test_delete_takes_keys(run: Run, plain: Path, tmp_path: Path) -> None:
    rows = [{"id": key, "day": day, "n": 1} for key in "abc" for day in ("d", "e")]
    run("upsert", plain, lines(tmp_path / "rows.json", *rows))
    assert (
        answer(run("delete", plain, "--key", "a", "--key", "b", "--partition", "d", "--json"))["deleted"] == 2
    )
    assert answer(run("delete", plain, "--key", "c", "--json"))["deleted"] == 2
    left = sorted((row["id"], row["day"]) for row in answer(run("read", plain, "--json")))
    assert left == [("a", "e"), ("b", "e")]


@pytest.mark.parametrize("name", ["gone.csv", "gone.json", "gone.parquet"])
def test_delete_takes_a_file_and_passes_over_what_is_no_key(
    run: Run, plain: Path, tmp_path: Path, name: str
) -> None:
    run("upsert", plain, lines(tmp_path / "r.json", *({"id": key, "day": "d", "n": 1} for key in "abc")))
    file = tmp_path / name
    match file.suffix:
        case ".csv":
            file.write_text("why,day,id\nx,d,a\ny,d,b\n")
        case ".json":
            lines(file, {"id": "a", "day": "d", "why": "x"}, {"id": "b", "day": "d"})
        case _:
            pq.write_table(pa.table({"id": ["a", "b"], "day": ["d", "d"], "why": [1, 2]}), file)
    assert answer(run("delete", plain, "--from", file, "--json"))["deleted"] == 2
    assert [row["id"] for row in answer(run("read", plain, "--json"))] == ["c"]


@pytest.mark.parametrize("name", ["gone.csv", "gone.json", "gone.parquet"])
def test_delete_finds_the_partitions_of_keys_in_a_file(
    run: Run, plain: Path, tmp_path: Path, name: str
) -> None:
    rows = [{"id": key, "day": day, "n": 1} for key in "abc" for day in ("d", "e")]
    run("upsert", plain, lines(tmp_path / "r.json", *rows))
    file = tmp_path / name
    match file.suffix:
        case ".csv":
            file.write_text("why,id\nx,a\ny,b\n")
        case ".json":
            lines(file, {"id": "a", "why": "x"}, {"id": "b"})
        case _:
            pq.write_table(pa.table({"id": ["a", "b"], "why": [1, 2]}), file)
    assert answer(run("delete", plain, "--from", file, "--partition", "d", "--json"))["deleted"] == 2
    assert answer(run("delete", plain, "--from", file, "--json"))["deleted"] == 2
    assert {row["id"] for row in answer(run("read", plain, "--json"))} == {"c"}


def test_deleting_a_key_that_is_not_there_exits_with_1(run: Run, plain: Path, tmp_path: Path) -> None:
    run("upsert", plain, lines(tmp_path / "r.json", {"id": "a", "day": "d", "n": 1}))
    code, out, err = run("delete", plain, "--key", "zzz")
    assert (code, err) == (1, "")
    assert "nothing to commit" in out


ORDER = {"id": "a", "day": "2026-06-18", "ts": 1}


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ({"ts": "one"}, "row 2, column 'ts': 'one' is no int64 (it is a text in the file)"),
        ({"ts": 1.5}, "column 'ts'"),
        ({"ts": 2**64}, "column 'ts'"),
        ({"id": 7}, "column 'id': 7 is no string (it is a number in the file)"),
        ({"amount": 1.234}, "column 'amount'"),
        ({"amount": "much"}, "column 'amount'"),
        ({"amount": True}, "column 'amount': True is no decimal128(10, 2) (it is a boolean in the file)"),
        ({"day": "18.6.2026"}, "column 'day'"),
        ({"at": "noon"}, "column 'at'"),
        ({"at": "2026-06-18T12:00:00.1234567"}, "finer than microseconds"),
        ({"raw": "no base64!"}, "column 'raw'"),
        ({"ok": "yes"}, "column 'ok'"),
        ({"tags": "x"}, "column 'tags': 'x' is no list<element: string> (it is a text in the file)"),
        ({"shape": {"w": 1, "d": 2}}, "it has no field 'd'"),
        ({"extra": {"n": "x"}}, "column 'extra'"),
        ({"more": 1}, "the table has no column 'more'"),
    ],
)
def test_a_json_value_that_does_not_fit_is_named_with_file_row_and_column(
    run: Run, orders: Path, tmp_path: Path, content: dict[str, Any], words: str
) -> None:
    file = lines(tmp_path / "rows.json", LINE, LINE | content)
    code, out, err = run("upsert", orders, file)
    assert (code, out) == (2, "")
    assert "rows.json: " in err
    assert words in " ".join(err.split())
    assert answer(run("timeline", orders, "--json")) == []


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("id,day,n\na,d,one\n", "row 1, column 'n': 'one' is no int32"),
        ("id,day,n\na,d,1\nb,d,3000000000\n", "row 2, column 'n'"),
        ("id,day,n,m\na,d,1,2\n", "the table has no column 'm'"),
        ("id,day\na,d\n", "no column 'n'"),
        ("id,day,n,n\na,d,1,2\n", "column 'n' is there twice"),
        ("id,day,n\na,d\n", "Expected 3 columns, got 2"),
        ("", "Empty CSV file"),
    ],
)
def test_a_csv_value_that_does_not_fit_is_named_with_file_row_and_column(
    run: Run, plain: Path, tmp_path: Path, text: str, words: str
) -> None:
    (tmp_path / "rows.csv").write_text(text)
    code, out, err = run("upsert", plain, tmp_path / "rows.csv")
    assert (code, out) == (2, "")
    assert "rows.csv: " in err
    assert words in " ".join(err.split())


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["create", "{new}", "--key", "id"], 2, "either --schema or --schema-from"),
        (["create", "{new}", "--key", "id", "--schema", "id TEXT"], 2, "found 'TEXT' at position 3"),
        (["create", "{new}", "--key", "no", "--schema", "id INT"], 2, "key column 'no'"),
        (["create", "{new}", "--key", "id", "--schema-from", "{file}/no.csv"], 2, "no.csv"),
        (["create", "{new}", "--key", "id", "--schema-from", "{file}/empty.csv"], 2, "its type is unknown"),
        (["create", "{new}", "--key", "id", "--schema", "id INT", "--type", "cor"], 2, "cor"),
        (
            ["create", "{new}", "--key", "id", "--schema", "id INT", "--buckets", "0"],
            2,
            "buckets is 0; expected 1 to",
        ),
        (["create", "{table}", "--key", "id", "--schema", "id INT"], 2, "is a Hudi table already"),
        (["upsert", "{new}", "{file}/rows.json"], 2, "is not a Hudi table"),
        (["upsert", "{table}", "{file}/missing.csv"], 2, "missing.csv"),
        (["upsert", "{table}", "{file}/rows.xml"], 2, "expected one of .parquet"),
        (["upsert", "{table}", "{file}/broken.json"], 2, "broken.json: line 2 is no JSON"),
        (["upsert", "{table}", "{file}/list.json"], 2, "list.json: line 1 is neither"),
        (["upsert", "{table}", "{file}/rows.json", "--format", "parquet"], 2, "rows.json: "),
        (["upsert", "{table}", "{file}/other.parquet"], 2, "other.parquet: column 'n' is string"),
        (["delete", "{table}"], 2, "either --key or --from"),
        (["delete", "{table}", "--key", "a", "--from", "x.csv"], 2, "either --key or --from"),
        (
            ["delete", "{table}", "--from", "{file}/other.parquet", "--partition", "d"],
            2,
            "name their partitions",
        ),
        (["delete", "{table}", "--from", "{file}/days.csv"], 2, "days.csv: there is no column 'id'"),
        (["upsert", "{golden}", "{file}/rows.json"], 4, "Copy its rows into a table of ours"),
    ],
)
def test_an_error_is_one_sentence_and_a_code(
    run: Run,
    plain: Path,
    tmp_path: Path,
    golden_table: Callable[[str], Path],
    words: list[str],
    code: int,
    message: str,
) -> None:
    lines(tmp_path / "rows.json", {"id": 1, "name": "a", "ts": 1, "dt": "p0"})
    (tmp_path / "rows.xml").write_text("<a/>")
    (tmp_path / "broken.json").write_text('{"id": "a", "day": "d", "n": 1}\n{"id":')
    (tmp_path / "list.json").write_text("[1, 2]\n")
    (tmp_path / "empty.csv").write_text("id,n\na,\n")
    (tmp_path / "days.csv").write_text("day\nd\n")
    pq.write_table(pa.table({"id": ["a"], "day": ["d"], "n": ["x"]}), tmp_path / "other.parquet")
    places = {
        "new": tmp_path / "new",
        "table": plain,
        "file": tmp_path,
        "golden": golden_table("mor_simple_index_positions"),
    }
    found, out, err = run(*(word.format(**places) for word in words))
    assert (found, out) == (code, "")
    assert message in " ".join(err.split())
    assert "Traceback" not in err


@pytest.mark.shows("P1")
def test_a_table_with_rules_is_made_adopted_and_explained(run: Any, tmp_path: Path) -> None:
    path = tmp_path / "orders"
    made = run(
        "create", path, "--schema", "id BIGINT, dt STRING", "--key", "id", "--partition", "dt",
        "--index", "PartitionBuckets('2026-.*,5', default=2)", "--json",
    )  # fmt: skip
    assert json.loads(made[1])["index"] == "partition-level buckets: 2026-.*,5; otherwise 2, hashed from id"
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"id": 7, "dt": "2026-01-01"}\n')
    assert run("upsert", path, rows)[0] == 0
    found = json.loads(run("explain", path, "7", "--partition", "2026-01-01", "--json")[1])
    assert (found["count"], found["bucket"], found["rule"]) == (5, (31 + ord("7")) % 5, "by rule 1: 2026-.*")
    assert len(found["file_groups"]) == len(found["commits"]) == 1
    assert "mod 5" in run("explain", path, "7", "--partition", "2026-01-01")[1]
    code, _, err = run("explain", path, "7")
    assert (code, "name it by its path" in err) == (2, True)
    assert "2026-.*,5" in json.loads(run("adopt", path, "--json")[1])["index"]
    code, _, err = run(
        "create", tmp_path / "b", "--schema", "id BIGINT, dt STRING", "--key", "id", "--partition", "dt",
        "--index", "PartitionBuckets('2026-(,5')",
    )  # fmt: skip
    assert (code, "position 5" in err) == (2, True)


@pytest.mark.shows("R9")
@pytest.mark.parametrize("suffix", ["jsonl", "csv", "parquet"])
def test_files_may_say_what_became_of_their_rows(run: Run, tmp_path: Path, suffix: str) -> None:
    table, file = tmp_path / "orders", tmp_path / f"feed.{suffix}"
    run(
        "create", table, "--schema", "id STRING, ts BIGINT, n INT NOT NULL", "--key", "id", "--ordering", "ts"
    )
    words = {"op": ["c", "c", "c", "X", "-U", "+U"], "id": ["a", "b", "c", "b", "c", "d"]}
    rows = pa.table({**words, "ts": [1, 1, 1, 2, 2, 2], "n": pa.array([1, 1, 1, None, None, 4], pa.int32())})
    if suffix == "parquet":
        pq.write_table(rows, file)
    elif suffix == "csv":
        pyarrow.csv.write_csv(rows, file)
    else:
        file.write_text("\n".join(map(json.dumps, rows.to_pylist())))
    code, _, said = run("upsert", table, file, "--op", "op")
    assert code != 0
    assert "such as 'X'" in said
    code, _, said = run("upsert", table, file, "--op", "what")
    assert code != 0
    assert "there is no column 'what'" in said
    assert run("upsert", table, file, "--op", "op", "--op-word", "x=delete")[0] == 0
    found = answer(run("read", table, "--json"))
    assert sorted((row["id"], row["n"]) for row in found) == [("a", 1), ("d", 4)]
