"""What a process remembers only makes it faster: with any budget it must answer the same."""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from bucketlake import Table, create_table, memory_in_use, set_memory_budget
from bucketlake.cli import main

pytestmark = pytest.mark.shows("X10")


@pytest.fixture(autouse=True)
def _budget_as_before() -> Iterator[None]:
    before = memory_in_use().budget_bytes
    yield
    set_memory_budget(before)


SCHEMA = pa.schema([("id", pa.string()), ("version", pa.int64()), ("note", pa.string())])


def rows(keys: list[str], version: int) -> pa.Table:
    return pa.table([keys, [version] * len(keys), [f"{key} {version}" for key in keys]], schema=SCHEMA)


@pytest.mark.parametrize("table_type", ["COPY_ON_WRITE", "MERGE_ON_READ"])
@pytest.mark.parametrize("budget", [0, "20KB", "1GiB"])
def test_a_table_is_read_and_written_alike_with_any_budget(
    tmp_path: Path, table_type: str, budget: int | str
) -> None:
    set_memory_budget(budget)
    keys = [f"k{n}" for n in range(200)]
    made = create_table(
        tmp_path / "t",
        SCHEMA,
        key="id",
        ordering="version",
        buckets=4,
        table_type=table_type,
    )
    made.upsert(rows(keys, 0))
    expected = dict.fromkeys(keys, 0)
    for version in range(1, 5):
        made.upsert(rows(["k7", f"later {version}"], version))
        expected |= {"k7": version, f"later {version}": version}
        for key in ("k7", "k8", f"later {version}"):
            assert Table.open(tmp_path / "t").get(key).column("version").to_pylist() == [expected[key]]
        assert made.get("none").num_rows == 0
        memory = memory_in_use()
        assert memory.size_bytes <= memory.budget_bytes
    made.delete(["k8"])
    del expected["k8"]
    found = made.to_arrow()
    versions = zip(found.column("id").to_pylist(), found.column("version").to_pylist(), strict=True)
    assert dict(versions) == expected
    assert (memory_in_use().size_bytes == 0) == (budget == 0)


def test_lookups_that_come_back_find_what_the_first_one_read(tmp_path: Path) -> None:
    set_memory_budget(0)
    set_memory_budget("64MB")
    made = create_table(
        tmp_path / "t",
        SCHEMA,
        key="id",
        ordering="version",
        buckets=1,
        table_type="MERGE_ON_READ",
    )
    for version in range(2):
        made.upsert(rows(["a", "b"], version))
    made.get("a")
    before = {kind.kind: kind for kind in memory_in_use().kinds}
    assert {kind for kind in before if before[kind].entries} == {
        "commits",
        "footers",
        "key hashes",
        "log blocks",
        "schemas",
    }
    made.get("a")
    after = {kind.kind: kind for kind in memory_in_use().kinds}
    assert {kind: after[kind].misses for kind in after} == {kind: before[kind].misses for kind in before}
    assert all(after[kind].hits > before[kind].hits for kind in after if after[kind].entries)


def test_what_commits_and_logs_are_said_to_take_is_not_less_than_python_takes_for_them(
    tmp_path: Path,
) -> None:
    set_memory_budget(0)
    wide = rows(["a"], 0)
    for number in range(40):
        wide = wide.append_column(f"column_number_{number}", pa.array([number]))
    made = create_table(
        tmp_path / "t", wide.schema, key="id", ordering="version", buckets=1, table_type="MERGE_ON_READ"
    )
    for _ in range(12):
        made.upsert(wide)
    made.get("a")  # what is parsed once and for all is there now
    set_memory_budget("64MB")
    gc.collect()
    tracemalloc.start()
    try:
        assert made.get("a").num_rows == 1
        gc.collect()
        with_facts, _ = tracemalloc.get_traced_memory()
        # Arrow takes the memory of footers behind Python's back.
        said = sum(kind.size_bytes for kind in memory_in_use().kinds if kind.kind != "footers")
        set_memory_budget(0)
        gc.collect()
        without, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert 0 < with_facts - without <= said


def _in_a_process(code: str, variable: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "BUCKETLAKE_MEMORY": variable}
    return subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False
    )


_DESCRIBE = "from bucketlake.cli import main; main(['describe', '--process'])"


def test_a_process_takes_its_budget_from_the_environment() -> None:
    done = _in_a_process(_DESCRIBE, "512MB")
    assert (done.returncode, done.stdout.split("\n")[-2]) == (0, "0 B of 512.0 MiB in use")


def test_a_wrong_budget_in_the_environment_is_an_error_and_not_the_default() -> None:
    done = _in_a_process(_DESCRIBE, "lots")
    assert (done.returncode, done.stdout) == (2, "")
    expected = "error: the environment variable BUCKETLAKE_MEMORY is 'lots'. It must be a number of bytes"
    assert done.stderr.startswith(expected)
    assert done.stderr.count("\n") == 1, "a line, and no traceback"
    mended = _in_a_process(f"import bucketlake; bucketlake.set_memory_budget(7); {_DESCRIBE}", "lots")
    assert (mended.returncode, mended.stderr) == (0, "")


def _run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as stop:
        main(words)
    printed = capsys.readouterr()
    return int(stop.value.code or 0), printed.out, printed.err


def test_describe_shows_what_the_process_remembers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    set_memory_budget("3MiB")
    code, out, _ = _run(capsys, "describe", "--process")
    assert (code, out.split("\n")[:-1]) == (0, str(memory_in_use()).split("\n"))
    assert out.rstrip().endswith("of 3.0 MiB in use")

    create_table(tmp_path / "t", SCHEMA, key="id").upsert(rows(["a"], 0))
    both: dict[str, Any] = json.loads(_run(capsys, "describe", str(tmp_path / "t"), "--process", "--json")[1])
    assert both["record key"] == ["id"]
    assert both["memory"]["budget_bytes"] == 3 << 20
    assert both["memory"]["size_bytes"] == sum(kind["size_bytes"] for kind in both["memory"]["kinds"]) > 0
    assert "memory" not in json.loads(_run(capsys, "describe", str(tmp_path / "t"), "--json")[1])

    code, out, err = _run(capsys, "describe")
    assert (code, out, err) == (2, "", "error: describe needs the path of a TABLE, or --process.\n")
