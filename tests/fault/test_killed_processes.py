"""Processes that are killed with SIGKILL, again and again, while they write: nothing they were told is there is lost.

`BUCKETLAKE_KILL_SECONDS=600` runs longer; a failing run is repeated with BUCKETLAKE_SEEDS=<its seed>, as far as
processes can be.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import pytest

from bucketlake import Table, create_table
from bucketlake.commit import heartbeat, recovery
from bucketlake.config import TableType
from bucketlake.services import Retention, check_table, clean_table, compact_table
from fault.killed_processes import (
    SCHEMA,
    WRITERS,
    Arguments,
    Log,
    as_text,
    batches_in,
    open_table,
    rows_after,
    rows_in,
    shorten_times,
)
from judges.random_tables import seeds
from servers.s3 import S3Server

PROJECT = Path(__file__).parents[2]
SECONDS = float(os.environ.get("BUCKETLAKE_KILL_SECONDS", "14"))
IS_LONG = SECONDS >= 60
"""Then both kinds of table are killed in both places."""
KILLS_MIN = 12

Points = dict[str, Counter[str]]


@pytest.mark.shows("X2", "X9")
@pytest.mark.parametrize("table_type", ["MERGE_ON_READ", "COPY_ON_WRITE"] if IS_LONG else ["MERGE_ON_READ"])
@pytest.mark.parametrize("seed", seeds(default_count=1))
def test_killed_on_a_disk(
    table_type: str, seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, crash_points: Points
) -> None:
    run_and_check(str(tmp_path / "table"), {}, table_type, seed, tmp_path, monkeypatch, crash_points)


@pytest.mark.s3
@pytest.mark.shows("X2", "X9")
@pytest.mark.parametrize("table_type", ["COPY_ON_WRITE", "MERGE_ON_READ"] if IS_LONG else ["COPY_ON_WRITE"])
@pytest.mark.parametrize("seed", seeds(default_count=1))
def test_killed_on_s3(
    table_type: str,
    seed: int,
    s3_server: S3Server,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    crash_points: Points,
) -> None:
    uri = f"s3://{s3_server.bucket}/{tmp_path.name}"
    run_and_check(uri, s3_server.options, table_type, seed, tmp_path, monkeypatch, crash_points)


def run_and_check(
    uri: str,
    options: Mapping[str, str],
    table_type: str,
    seed: int,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    points: Points,
) -> None:
    create_table(
        None,
        uri,
        SCHEMA,
        key="id",
        partition="dt",
        ordering="ts",
        buckets=2,
        table_type=table_type,
        name="t",
        storage_options=options or None,
    )
    arguments = Arguments(
        uri=uri,
        options=dict(options),
        folder=str(folder),
        table_type=table_type,
        seed=seed,
        kills=KILLS_MIN,
        seconds=SECONDS,
    )
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(PROJECT / "src"), str(PROJECT / "tests")]),
    }
    command = [sys.executable, "-m", "fault.killed_processes", as_text(arguments)]
    done = subprocess.run(
        command,
        env=environment,
        cwd=PROJECT,
        check=False,
        capture_output=True,
        text=True,
        timeout=SECONDS + 300,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    faults = Log(str(folder), "faults").lines()
    assert faults == [], "\n".join(map(" ".join, faults))
    killed = Counter(json.loads((folder / "killed.json").read_text()))
    assert killed.total() >= KILLS_MIN

    table = open_table(arguments)
    finish(table, monkeypatch)
    found = rows_in(table)
    present = batches_in([key for key, _ in found])
    logs = [Log(str(folder), f"writer-{writer}") for writer in range(WRITERS)]
    told = {(writer, number) for writer, log in enumerate(logs) for number in log.numbers("done")}
    begun = {(writer, number) for writer, log in enumerate(logs) for number in log.numbers("begin")}
    refused = {(writer, number) for writer, log in enumerate(logs) for number in log.numbers("conflict")}
    assert told <= present, f"lost: {sorted(told - present)}"
    assert present <= begun - refused, "what was refused is not there"
    assert found == rows_after(present), "every row is the newest of its key, once"
    report = check_table(table.store)
    assert report.findings == (), str(report)
    seen = Counter(line[0] for line in Log(str(folder), "reader").lines())
    assert seen["wrong"] == 0, Log(str(folder), "reader").lines()
    assert seen["sound"] >= 5
    served = Counter(" ".join(line) for line in Log(str(folder), "service").lines())
    print(report, f"; told {len(told)}, begun {len(begun)}, refused {len(refused)}")
    print(f"killed {dict(killed)}; readers {dict(seen)}; services {dict(served)}")
    place = "S3" if options else "a disk"
    points.setdefault(f"killed on {place}, {table_type}", Counter()).update(
        {
            "kills": killed.total(),
            "commits told": len(told),
            "commits begun": len(begun),
            "refused": len(refused),
            "published by others": len(present - told),
            "reads": seen["sound"],
            "services done": sum(count for what, count in served.items() if what.startswith("done")),
        }
    )


def finish(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """Do what the next process would, some minutes later: all others are dead."""
    shorten_times(monkeypatch.setattr)
    monkeypatch.setattr(heartbeat, "DEAD_AFTER_MS", 0)
    monkeypatch.setattr(recovery, "KEPT_MS", 0)
    if table.properties.table_type is TableType.MERGE_ON_READ:
        compact_table(table.store)
    clean_table(table.store, retain=Retention(commits=3))
    for _ in range(2):
        recovery.recover(table.store, table.properties)
