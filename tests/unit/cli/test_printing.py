"""What a command prints is what the table holds, whatever that is, and wherever it is printed."""

from __future__ import annotations

import datetime
import json
import math
from collections import Counter
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bucketlake import Table, create_table
from bucketlake.cli.screen import draw, grid
from bucketlake.read import read_all, read_slice

Run = Callable[..., tuple[int, str, str]]

KEYS = [
    "[/]",
    "[red]a[/red]",
    ":smile:",
    "\x1b[31mred\a",
    "two\nlines\t\x9b\u202e",
    "long" * 100,
    "\\x1b",
    "日本",
    "",
]
SHOWN = [
    "[/]",
    "[red]a[/red]",
    ":smile:",
    r"\x1b[31mred\x07",
    r"two\nlines\t\x9b\u202e",
    "long" * 100,
    r"\x1b",
    "日本",
]
DAY = "[bold]day"
SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("day", pa.string()),
        ("x", pa.float64()),
        ("f", pa.float32()),
        ("amount", pa.decimal128(38, 18)),
        ("raw", pa.binary()),
        ("born", pa.date32()),
        ("seen", pa.timestamp("us", "UTC")),
        ("wall", pa.timestamp("us")),
        ("by_name", pa.map_(pa.string(), pa.float64())),
        ("many", pa.list_(pa.float64())),
        ("pair", pa.struct([("a", pa.float64()), ("b", pa.string())])),
        ("is_new", pa.bool_()),
    ]
)
MOMENT = datetime.datetime(2026, 6, 18, 12, 30, 0, 7)
ROWS: list[dict[str, Any]] = [
    {
        "id": "whole",
        "day": DAY,
        "x": math.nan,
        "f": math.inf,
        "amount": Decimal("0E-18"),
        "raw": b"\0\xff",
        "born": MOMENT.date(),
        "seen": MOMENT.replace(tzinfo=datetime.UTC),
        "wall": MOMENT,
        "by_name": [("\x1b", -math.inf), ("none", None)],
        "many": [math.nan, -0.0],
        "pair": {"a": math.inf, "b": ":smile:"},
        "is_new": True,
    },
    *({"id": key, "day": DAY} for key in KEYS if key),
]


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("printing") / "[bold]table"
    create_table(path, SCHEMA, key="id", partition="day", buckets=2, name="t").upsert(
        pa.Table.from_pylist(ROWS, SCHEMA)
    )
    return path


def strictly(text: str) -> Any:
    """Parse JSON as its standard has it, without the words that Python adds."""

    def refuse(word: str) -> None:
        raise AssertionError(f"{word} is no JSON")

    return json.loads(text, parse_constant=refuse)


def test_rows_are_printed_as_they_are_and_whole(run: Run, table: Path) -> None:
    code, out, _ = run("read", table)
    assert code == 0
    assert "\x1b" not in out
    lines = out.splitlines()
    assert len(lines) == 2 + len(ROWS) + 1, "a line for each row, however long"
    assert lines[0].split() == SCHEMA.names
    assert {line.split()[0] for line in lines[2:-1]} == {"whole", *(text for text in SHOWN if text)}
    assert all(line.split()[1] == DAY for line in lines[2:-1])
    assert '[["\\u001b", "-Infinity"], ["none", null]]' in out


def test_json_is_json_and_can_be_written_again(run: Run, table: Path, tmp_path: Path) -> None:
    code, out, _ = run("read", table, "--json")
    rows = strictly(out)
    assert code == 0
    assert not {"\x1b", "\x9b", "\u202e"} & set(out)
    assert {row["id"] for row in rows} == {row["id"] for row in ROWS}
    whole = next(row for row in rows if row["id"] == "whole")
    assert (whole["x"], whole["f"], whole["pair"]["a"]) == ("NaN", "Infinity", "Infinity")
    assert (whole["many"], whole["by_name"][0]) == (["NaN", -0.0], ["\x1b", "-Infinity"])
    assert (whole["amount"], whole["raw"]) == ("0." + "0" * 18, "AP8=")

    again = create_table(tmp_path / "again", SCHEMA, key="id", partition="day", buckets=2)
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    assert run("upsert", tmp_path / "again", tmp_path / "rows.jsonl")[0] == 0
    written, read = (one.to_arrow(columns=SCHEMA.names).sort_by("id") for one in (Table.open(table), again))
    assert repr(written.to_pylist()) == repr(read.to_pylist())


def test_days_that_python_has_not_are_printed(run: Run, tmp_path: Path) -> None:
    kind = pa.struct([("at", pa.timestamp("us", "UTC"))])
    schema = pa.schema([("id", pa.string()), ("day", pa.date32()), ("in", pa.list_(kind))])
    far = pa.array([300_000_000_000_000_000, 0], pa.int64()).cast(pa.timestamp("us", "UTC"))
    column = pa.ListArray.from_arrays([0, 2], pa.StructArray.from_arrays([far], ["at"])).cast(pa.list_(kind))
    days = pa.array([4_000_000], pa.int32()).cast(pa.date32())
    rows = pa.table([pa.array(["far"]), days, column], schema=schema)
    create_table(tmp_path / "far", schema, key="id").upsert(rows)
    (row,) = strictly(run("read", tmp_path / "far", "--json")[1])
    assert row["day"] == "12921-08-18"
    assert [entry["at"] for entry in row["in"]] == [
        "11476-08-15T05:20:00.000000+00:00",
        "1970-01-01T00:00:00+00:00",
    ]


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (["describe"], ["/[bold]table", "timestamp[us, tz=UTC]"]),
        (["layout"], [DAY]),
        (["explain", "{table}", ":smile:", "--partition", DAY], [DAY, ":smile:"]),
        (["savepoint", "{table}", "--comment", "[red]\x1b[31m:smile:"], ["savepoint"]),
        (["savepoints"], [r"[red]\x1b[31m:smile:", "/[bold]table"]),
        (["fsck"], ["/[bold]table"]),
        (["get", "{table}", "[/]", "--columns", "id,day"], ["[/]", DAY]),
        (["get", "{table}", "two\nlines\t\x9b\u202e"], [SHOWN[4]]),
    ],
)
def test_every_command_takes_names_and_values_for_text(
    run: Run, table: Path, words: list[str], shown: list[str]
) -> None:
    given_words = words if "{table}" in words else [*words, "{table}"]
    code, out, _ = run(*(str(table) if word == "{table}" else word for word in given_words))
    assert code == 0
    assert "\x1b" not in out
    for text in shown:
        assert text in out


def test_an_error_takes_what_it_quotes_for_text(run: Run, table: Path) -> None:
    code, _, err = run("read", table, "--columns", "[red]:smile:\x1b[31m")
    assert code == 2
    assert "[red]:smile:" in err
    assert "\x1b" not in err


cells = st.text("ab1-é日", max_size=30)


@given(rows=st.lists(st.tuples(cells, cells, cells), max_size=4), width=st.integers(1, 100))
def test_nothing_is_lost_on_a_narrow_terminal(rows: list[tuple[str, str, str]], width: int) -> None:
    drawn = grid("", "first", "second", "third", numbers=["second"])
    drawn.rows = list(rows)
    printed = "\n".join(draw(drawn, width))
    for row in rows:
        assert not Counter("".join(row)) - Counter(printed)
    if rows:
        assert not Counter("firstsecondthird") - Counter(printed)


@pytest.mark.parametrize("width", [10, 30, 80])
def test_a_wide_grid_is_folded_or_listed_and_never_wider_than_the_terminal(width: int) -> None:
    drawn = grid("", "id", "n", "note", numbers=["n"])
    drawn.add_row("a", "12345", "word " * 40)
    drawn.add_row("b", "6", "")
    lines = list(draw(drawn, width))
    is_listed = lines[0] == "── 1 ──"
    assert is_listed == (width == 10)
    assert is_listed or max(map(len, lines)) <= width
    assert "".join(lines).count("w") == 40
    assert any("12345" in line for line in lines)


def test_no_more_rows_are_read_than_are_asked_for(
    run: Run, table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[object] = []
    monkeypatch.setitem(
        read_all.__globals__,
        "read_slice",
        lambda *words, **more: opened.append(words) or read_slice(*words, **more),
    )
    for words, rows, slices in ((["--limit", 0], 0, 0), (["--limit", 1], 1, 1), (["--all"], len(ROWS), 2)):
        opened.clear()
        assert len(strictly(run("read", table, "--json", *words)[1])) == rows
        assert len(opened) == slices
    assert run("read", table, "--limit", -1)[0] == 2
