"""Four writers of the same new keys, killed with SIGKILL: a key has one bucket, a bucket one file group, and room.

In a soak of an hour they write for ten minutes.
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

from bucketlake import create_table
from bucketlake.services import Kind, check_table
from fault.killed_bucket_writers import INDEX, KEYS_PER_BUCKET, SCHEMA, check_rows
from fault.killed_processes import Arguments, as_text, open_table
from fault.test_killed_processes import finish
from plugins.soak import IS_SOAK, MINUTES, seeds
from servers.s3 import S3Server
from stand_ins.dynamic_check import check_buckets
from stand_ins.record_index_check import check_record_index

PROJECT = Path(__file__).parents[2]
TYPES = ["MERGE_ON_READ", "COPY_ON_WRITE"]
SECONDS = 600 * MINUTES / 60 / (2 * len(TYPES)) if IS_SOAK else 4.0
KILLS_MIN = 6

Points = dict[str, Counter[str]]
pytestmark = pytest.mark.shows("D9", "X2")


@pytest.mark.parametrize("table_type", TYPES if IS_SOAK else TYPES[:1])
@pytest.mark.parametrize("seed", seeds(default_count=1))
def test_four_writers_of_the_same_new_keys_killed_on_a_disk(
    table_type: str, seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, crash_points: Points
) -> None:
    run_and_check(str(tmp_path / "table"), {}, table_type, seed, tmp_path, monkeypatch, crash_points)


@pytest.mark.s3
@pytest.mark.parametrize("table_type", TYPES if IS_SOAK else TYPES[:1])
@pytest.mark.parametrize("seed", seeds(default_count=1))
def test_four_writers_of_the_same_new_keys_killed_on_s3(
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
        uri, SCHEMA, key="id", partition="dt", ordering="ts", index=INDEX, table_type=table_type,
        storage_options=options or None,
    )  # fmt: skip
    arguments = Arguments(
        uri=uri,
        options=dict(options),
        folder=str(folder),
        kind="dynamic",
        seed=seed,
        kills=KILLS_MIN,
        seconds=SECONDS,
    )
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(PROJECT / "src"), str(PROJECT / "tests")]),
        "BUCKETLAKE_INDEX_CACHE": "1MB",
        "BUCKETLAKE_INDEX_CACHE_FOLDER": str(folder / "kept"),
    }
    command = [sys.executable, "-m", "fault.killed_bucket_writers", as_text(arguments)]
    done = subprocess.run(
        command, env=environment, cwd=PROJECT, check=False, capture_output=True, text=True,
        timeout=SECONDS + 300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:]
    faults = folder / "faults.log"
    assert not faults.exists(), faults.read_text()
    table = open_table(arguments)
    finish(table, monkeypatch)
    rows = table.to_arrow(columns=SCHEMA.names).to_pylist()
    counts = check_rows(arguments, rows)
    filled = check_buckets(table.store)
    assert max(filled.values()) <= KEYS_PER_BUCKET
    assert check_record_index(table.store) == len(rows) == sum(filled.values())
    report = check_table(table.store)
    wrong = [finding for finding in report.findings if finding.kind is not Kind.UNFINISHED]
    assert not wrong, "\n".join(map(str, wrong))
    kills = json.loads((folder / "kills.json").read_text())
    place = "S3" if options else "a disk"
    tried = {"kills": kills, **counts, "buckets": len(filled)}
    print(f"{table_type} on {place}: {tried}")
    points.setdefault(f"four writers of the same new keys on {place}", Counter()).update(tried)
