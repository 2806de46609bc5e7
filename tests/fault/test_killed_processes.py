"""Processes that do all there is to do, and are killed with SIGKILL, or held up until others take them for dead.

Nothing that they were told is there is lost, and who pages through the increments sees every commit once.

`BUCKETLAKE_KILL_SECONDS=600` runs longer, on every kind of table; a failing run is repeated with
BUCKETLAKE_SEEDS=<its seed>, as far as processes can be.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import pytest

from bucketlake import Table, create_table
from bucketlake.commit import heartbeat, recovery
from bucketlake.commit.recovery import pending_rescales
from bucketlake.config import TableType
from bucketlake.errors import ConflictError, InstantError
from bucketlake.index.resizes import pending_resizes
from bucketlake.services import Kind, check_table, run_clustering, run_resize
from bucketlake.state import load_state
from bucketlake.timeline import Action
from fault.killed_processes import (
    REPLACED,
    SCHEMA,
    WRITERS,
    Arguments,
    Log,
    as_text,
    batches_in,
    is_whole,
    open_table,
    read_page,
    replacement,
    rows_after,
    rows_in,
    shorten_times,
    split_off,
)
from plugins.soak import seeds
from servers.s3 import S3Server
from stand_ins.table_machine import KINDS

PROJECT = Path(__file__).parents[2]
TOTAL_SECONDS = float(os.environ.get("BUCKETLAKE_KILL_SECONDS", "10"))
"""In each place."""
IS_LONG = TOTAL_SECONDS >= 60
"""Then all kinds of tables are tried in both places."""
SECONDS = TOTAL_SECONDS / len(KINDS) if IS_LONG else TOTAL_SECONDS
KILLS_MIN = 8

Points = dict[str, Counter[str]]


@pytest.mark.shows("H2", "H3", "X2", "X9")
@pytest.mark.parametrize("kind", KINDS if IS_LONG else ["ring virtual", "record mor"])
@pytest.mark.parametrize("seed", seeds(default_count=1))
def test_killed_on_a_disk(
    kind: str, seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, crash_points: Points
) -> None:
    run_and_check(str(tmp_path / "table"), {}, kind, seed, tmp_path, monkeypatch, crash_points)


@pytest.mark.s3
@pytest.mark.shows("H2", "H3", "X2", "X9")
@pytest.mark.parametrize("kind", KINDS if IS_LONG else ["simple cow"])
@pytest.mark.parametrize("seed", seeds(default_count=1))
def test_killed_on_s3(
    kind: str,
    seed: int,
    s3_server: S3Server,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    crash_points: Points,
) -> None:
    uri = f"s3://{s3_server.bucket}/{tmp_path.name}"
    run_and_check(uri, s3_server.options, kind, seed, tmp_path, monkeypatch, crash_points)


def run_and_check(
    uri: str,
    options: Mapping[str, str],
    kind: str,
    seed: int,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    points: Points,
) -> None:
    table = create_table(
        uri,
        SCHEMA,
        key="id",
        partition="dt",
        ordering="ts",
        index=KINDS[kind].index,
        table_type=KINDS[kind].table_type,
        name="t",
        metadata=seed % 2 == 0,
        storage_options=options or None,
    )
    if KINDS[kind].indexed:
        table.create_index("by_value", on=KINDS[kind].indexed, shards=2, record_index=True)
    arguments = Arguments(
        uri=uri,
        options=dict(options),
        folder=str(folder),
        kind=kind,
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
    faults = [" ".join(line) for line in Log(str(folder), "faults").lines()]
    try:
        counts = check_what_is_there(open_table(arguments), arguments, monkeypatch)
    except Exception as error:
        for fault in faults:
            error.add_note(f"before that, {fault}")
        raise
    finally:
        fates = Counter(json.loads((folder / "fates.json").read_text()))
        place = "S3" if options else "a disk"
        outcomes = {role: outcomes_of(Log(str(folder), role)) for role in ("service", "changer", "undoer")}
        print(f"{kind} on {place}: {dict(fates)}; {outcomes}")
    done = sum(
        count for of_role in outcomes.values() for what, count in of_role.items() if what.startswith("done")
    )
    tried = {"kills": fates["killed"], "pauses": fates["held up"], **counts, "other calls done": done}
    points.setdefault(f"killed on {place}, {kind}", Counter()).update(tried)
    assert not faults, "\n".join(["the table is as it should be, but calls failed:", *faults])


def outcomes_of(log: Log) -> dict[str, int]:
    """Count what became of the calls of a role."""
    words = [
        line for line in log.lines() if line[0] in {"done", "conflict", "late"} and not line[1].isdigit()
    ]
    return dict(Counter(" ".join(line) for line in words))


def check_what_is_there(
    table: Table, arguments: Arguments, monkeypatch: pytest.MonkeyPatch
) -> dict[str, int]:
    """Finish what is half done, and hold the table against what everybody was told; return what was counted."""
    finish(table, monkeypatch)
    if KINDS[arguments.kind].has_record_index or KINDS[arguments.kind].indexed:
        table.metadata.build()  # whoever built it anew may have been killed
    found, replaced = split_off(rows_in(table))
    present = batches_in([key for key, _ in found])
    logs = [Log(arguments.folder, f"writer-{writer}") for writer in range(WRITERS)]
    told = {
        (writer, int(line[1])): (line[2], line[3])
        for writer, log in enumerate(logs)
        for line in log.lines()
        if line[0] == "done"
    }
    begun = {(writer, number) for writer, log in enumerate(logs) for number in log.numbers("begin")}
    refused = {(writer, number) for writer, log in enumerate(logs) for number in log.numbers("conflict")}
    undoer = Log(arguments.folder, "undoer")
    undoing, undone = undoer.instants("undoing"), undoer.instants("undone")
    lost = {batch for batch in told.keys() - present if told[batch][0] not in undoing}
    assert not lost, f"lost: {sorted((batch, told[batch]) for batch in lost)}"
    back = {batch for batch in told.keys() & present if told[batch][0] in undone}
    assert not back, f"taken back and there: {sorted(back)}"
    assert present <= begun - refused, "what was refused is not there"
    assert found == rows_after(present), "every row is the newest of its key, once"
    check_replaced(Log(arguments.folder, "changer"), replaced, undoing)
    seen = check_pages(table, Log(arguments.folder, "reader"), told, present)
    report = check_table(table.store)
    # A clean or a savepoint that was cut off waits for the next one.
    wrong = [finding for finding in report.findings if finding.kind is not Kind.UNFINISHED]
    assert not wrong, "\n".join(map(str, wrong))
    return {
        "commits told": len(told),
        "commits begun": len(begun),
        "refused": len(refused),
        "published by others": len(present - told.keys()),
        "taken back": len(told.keys() - present),
        "reads": seen["sound"],
        "seen in increments": seen["saw"],
    }


def check_replaced(changer: Log, replaced: list[tuple[int, str]], undoing: set[str]) -> None:
    """Partition p9 is as it was replaced last, as far as that was told and not taken back."""
    assert is_whole(replaced), replaced
    told = [int(line[1]) for line in changer.lines() if line[0] == "replaced" and line[2] not in undoing]
    last = max(told, default=-1)
    expected = [
        [(row["id"], row["name"]) for row in replacement(n)] for n in changer.numbers("begin") if n >= last
    ]
    assert replaced in [*expected, *([[]] if last < 0 else [])], f"{replaced} of {REPLACED}, told {last}"


def check_pages(
    table: Table,
    reader: Log,
    told: Mapping[tuple[int, int], tuple[str, str]],
    present: set[tuple[int, int]],
) -> Counter[str]:
    """Who has paged through the increments has seen every commit once that he was told of and that is there."""
    (ended,) = (line[1] for line in reader.lines() if line[0] == "ended")
    read_page(table, reader, ended)
    lines = reader.lines()
    kinds = Counter(line[0] for line in lines)
    assert kinds["wrong"] == 0, [line for line in lines if line[0] == "wrong"]
    assert kinds["sound"] >= 3
    skipped = [(line[1], line[2]) for line in lines if line[0] == "skipped"]
    seen = Counter((int(line[1]), int(line[2])) for line in lines if line[0] == "saw")
    twice = {batch for batch, count in seen.items() if count > 1}
    assert not twice, f"seen more than once: {sorted(twice)}"
    missed = {
        batch: told[batch]
        for batch in (told.keys() & present) - seen.keys()
        if not any(begin < told[batch][1] <= end for begin, end in skipped)
    }
    assert not missed, f"never seen: {missed}"
    return kinds


def finish(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """Do what the next process would, some minutes later: all others are dead."""
    shorten_times(monkeypatch.setattr)
    monkeypatch.setattr(heartbeat, "DEAD_AFTER_MS", 0)
    monkeypatch.setattr(recovery, "KEPT_MS", 0)
    store = table.store
    for _ in range(2):
        recovery.recover(store, table.properties)
    timeline = load_state(store).timeline
    resizes = pending_resizes(store, timeline)
    for pending in timeline.pending(Action.CLUSTERING):
        with suppress(ConflictError, InstantError):  # then it is taken back
            (run_resize if pending.requested in resizes else run_clustering)(store, pending.requested)
    if pending_rescales(store, load_state(store).timeline):
        table.buckets.abort()
    if table.properties.table_type is TableType.MERGE_ON_READ:
        table.compact()
    for _ in range(2):
        recovery.recover(store, table.properties)
