"""A process that keeps a table healthy must say what it does, and go when it is told to."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bucketlake import Table
from bucketlake.cli.service_run import Signals
from bucketlake.state import load_state
from stand_ins.orders_table import orders, rows_of, written_table

ALL = ("--compact-delta-commits", 2, "--clean-versions", 1, "--archive", 2, 4)


def writes_in_logs(table: Table) -> list[int]:
    slices = [part for partition in table.layout().partitions for part in partition.slices]
    return [len({log.instant for log in part.log_files}) for part in slices]


def test_one_round_says_what_is_due_does_it_and_is_done(run: Any, tmp_path: Path) -> None:
    path = tmp_path / "orders"
    table = written_table(path)
    before = rows_of(table)
    code, out, _ = run("service", "run", path, *ALL, "--dry-run")
    assert (code, "compact " in out) == (0, True)
    assert json.loads(run("service", "run", path, *ALL, "--dry-run", "--json")[1]) == {"due": ["compaction"]}
    assert len(load_state(table.store).timeline.writes) == 4
    done = json.loads(run("service", "run", path, *ALL, "--json")[1])
    assert [step["service"] for step in done["steps"]] == ["compaction", "clean", "archive"]
    assert not any(step["failed"] for step in done["steps"])
    code, out, err = run("service", "run", path, *ALL)
    assert (code, err) == (0, "")
    assert out.startswith("round 1, ")
    assert out.endswith("s: nothing to do\n")
    assert rows_of(table) == before


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        ((), 2, "nothing to do was named; expected at least one of compact_delta_commits"),
        (("--clean-commits", 1, "--clean-hours", 2), 2, "commits, of hours, or of file versions"),
        (("--compact-delta-commits", 0), 2, "positive"),
        (("--archive", 5, 5), 2, "higher maximum"),
        (("--clean-commits", 1, "--every", -1), 2, "--every"),
        (("--sweep",), 2, "No such option"),
    ],
)
def test_a_wrong_call_is_an_error(
    run: Any, tmp_path: Path, words: tuple[object, ...], code: int, message: str
) -> None:
    written_table(tmp_path / "orders").alter(maintenance="off")
    before = sorted(str(p) for p in tmp_path.rglob("*"))
    found, out, err = run("service", "run", tmp_path / "orders", "--watch", *words)
    assert (found, out, message in " ".join(err.split())) == (code, "", True), err
    assert sorted(str(p) for p in tmp_path.rglob("*")) == before


@pytest.mark.shows("H1")
def test_a_table_that_is_left_to_a_service_gets_what_its_writers_would_do(run: Any, tmp_path: Path) -> None:
    path = tmp_path / "orders"
    table = written_table(path)
    code, out, _ = run("alter", path, "--maintenance", "service", "--keep-commits", 9, "--json")
    assert code == 0
    assert json.loads(out)["bucketlake.maintenance.keep.commits"] == "9"
    for n in range(20):
        assert table.upsert(orders(range(4), f"more {n}", 30)).services == ()
    assert json.loads(run("service", "run", path, "--dry-run", "--json")[1]) == {"due": ["compaction"]}
    code, out, _ = run("service", "run", path)
    assert (code, "compaction: 2 file groups" in out) == (0, True), out


def test_a_table_that_is_broken_ends_the_process_with_a_clear_error(run: Any, tmp_path: Path) -> None:
    path = tmp_path / "orders"
    table = written_table(path)
    assert run("service", "run", tmp_path / "nothing", "--watch", *ALL)[0] == 2
    newest = load_state(table.store).timeline.writes[-1]
    (path / newest.path).write_bytes(b"no commit")
    for words in ((), ("--watch",)):
        code, out, err = run("service", "run", path, *ALL, *words)
        assert (code, out.count("\n")) == (3, 1)
        assert "failed" in out
        assert Path(newest.path).name in err.replace("\n", "")


@pytest.fixture
def interruptible() -> Iterator[None]:
    """A process that a shell starts in the background ignores SIGINT, and hands that down."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_a_second_signal_ends_the_process_at_once() -> None:
    before = signal.getsignal(signal.SIGINT)
    with Signals() as ending:
        ending.wait(0.01)
        assert not ending.is_set()
        os.kill(os.getpid(), signal.SIGINT)
        ending.wait(60)
        assert ending.is_set()
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(5)
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.shows("X2")
@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGINT])
def test_a_watching_process_serves_beside_a_writer_and_ends_when_told(
    tmp_path: Path, ending: signal.Signals
) -> None:
    path = tmp_path / "orders"
    table = written_table(path)
    words = ["service", "run", str(path), "--watch", "--every", "0.05", "--json", *map(str, ALL)]
    process = subprocess.Popen(
        [sys.executable, "-c", "from bucketlake.cli import main; main()", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        rounds = [json.loads(process.stdout.readline())]
        truth = {row["id"]: row["name"] for row in table.to_arrow().to_pylist()}
        for version in range(30, 42):
            table.upsert(orders(range(10), f"v{version}", version))
            truth |= {n: f"v{version} {n}" for n in range(10)}
        deadline = time.monotonic() + 30
        while max(writes_in_logs(table)) >= 2:
            assert time.monotonic() < deadline, "nobody compacts"
            time.sleep(0.05)
        process.send_signal(ending)
        out, err = process.communicate(timeout=30)
    finally:
        process.kill()
    rounds += [json.loads(line) for line in out.splitlines()]
    assert process.returncode == 0, err
    assert "Traceback" not in err
    assert [one["round"] for one in rounds] == list(range(1, len(rounds) + 1))
    served = {step["service"] for one in rounds for step in one["steps"] if not step["failed"]}
    assert {"compaction", "clean", "archive"} <= served
    assert {row["id"]: row["name"] for row in table.to_arrow().to_pylist()} == truth
    assert table.fsck().is_sound
