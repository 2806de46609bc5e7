"""Drivers with streams into tables are killed with SIGKILL, again and again, and every record counts exactly once.

A driver is a process of its own, with a query for each of several tables. It is killed with its process group: at
chosen steps of a batch, where each query waits until all are at theirs, or at a random moment. The next driver starts
the same queries on the same checkpoints. Between two of them nobody tidies up, and no heartbeat runs out.

`make soak` does it for longer, with more tables and batches, services beside them, and all that its seed draws;
BUCKETLAKE_SEEDS=<a seed> repeats that, as far as processes can be.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

import pytest

from bucketlake import DynamicBuckets, RecordIndex, SimpleBuckets, Table, create_table
from bucketlake.index.told import IndexValue
from bucketlake.testing.invariants import check_invariants
from judges.hudi_rs import read_snapshot
from plugins.soak import IS_SOAK, seeds_for, within
from servers.s3 import S3Server, build_s3_server
from spark.processes import start_script
from spark.stream_until_killed import READY, STEPS, TOLD, Streamed, as_text
from stand_ins.arriving import files_in, newest_rows, put_files, rows_in
from stand_ins.clicks import SCHEMA
from stand_ins.metadata_check import check_metadata

pytestmark = [pytest.mark.spark, pytest.mark.shows("R9", "X2", "H3")]

BATCHES, ROWS = (48, 200) if IS_SOAK else (8, 60)
KILLS = 1000 if IS_SOAK else 4
"""At most; a soak kills until all is written, or half its time is up."""
SOAK_SECONDS = 600.0
END_SECONDS_MAX = 1200 if IS_SOAK else 240
ALL_STEPS = (*STEPS, TOLD)

Points = dict[str, Counter[str]]


@dataclass(frozen=True, kw_only=True)
class Kind:
    """Of a table, and of the stream into it."""

    index: IndexValue
    table_type: str
    pipelined: bool
    on_s3: bool

    @property
    def moves(self) -> bool:
        """Whether a key is one row wherever it is."""
        return isinstance(self.index, RecordIndex)


# Any two of: the index, the table type, whether a batch ends when it is decided, and where the table is.
KINDS = {
    "simple-cow": Kind(index=SimpleBuckets(2), table_type="COPY_ON_WRITE", pipelined=False, on_s3=False),
    "simple-mor": Kind(index=SimpleBuckets(2), table_type="MERGE_ON_READ", pipelined=True, on_s3=True),
    "record-cow": Kind(index=RecordIndex(), table_type="COPY_ON_WRITE", pipelined=True, on_s3=True),
    "record-mor": Kind(index=RecordIndex(), table_type="MERGE_ON_READ", pipelined=False, on_s3=True),
    "record-mor-2": Kind(index=RecordIndex(), table_type="MERGE_ON_READ", pipelined=True, on_s3=False),
}
_MORE = Kind(index=DynamicBuckets(assigners=2), table_type="MERGE_ON_READ", pipelined=False, on_s3=False)


@pytest.fixture
def server(request: pytest.FixtureRequest) -> S3Server | None:
    """Where Go is missing, all tables are on the disk; in CI that fails."""
    if not build_s3_server() and os.environ.get("CI") != "true":
        return None
    found: S3Server = request.getfixturevalue("s3_server")
    return found


class Lake:
    """Tables, the files that arrive for each, and the drivers that stream them in."""

    def __init__(self, folder: Path, kinds: Mapping[str, Kind], seed: int, server: S3Server | None) -> None:
        self.folder, self.server, self.drivers = folder, server, 0
        self.whole: Counter[str] = Counter()
        """Of how many files a table was seen to hold the rows."""
        self.streams = [
            self._made(name, kind, seed + number) for number, (name, kind) in enumerate(kinds.items())
        ]

    def _made(self, name: str, kind: Kind, seed: int) -> Streamed:
        put_files(self.folder / name / "source", seed, batches=BATCHES, rows=ROWS, moves=kind.moves)
        root, options = str(self.folder), {}
        if kind.on_s3 and self.server is not None:
            root, options = f"s3://{self.server.bucket}{self.folder}", dict(self.server.options)
        stream = Streamed(
            name=name,
            uri=f"{root}/{name}/table",
            source=str(self.folder / name / "source"),
            checkpoint=str(self.folder / name / "checkpoint"),
            options=options,
            pipelined=kind.pipelined,
        )
        table = create_table(
            stream.uri,
            SCHEMA,
            key="id",
            partition="dt",
            ordering="ts",
            index=kind.index,
            table_type=kind.table_type,
            metadata=True,
            storage_options=options or None,
        )
        if kind.pipelined:
            table.alter(hudi_writes=False)
        return stream

    @contextmanager
    def driver(self, streams: Sequence[Streamed]) -> Iterator[tuple[subprocess.Popen[str], Path]]:
        """Start a driver. It is killed in the end."""
        self.drivers += 1
        flags = self.folder / f"driver-{self.drivers}"
        flags.mkdir()
        process = start_script("stream_until_killed", as_text(list(streams)), str(flags))
        try:
            yield process, flags
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()

    def kill_at(self, steps: Mapping[str, tuple[str, int]]) -> bool:
        """Let every stream go on to its step, or its end, and kill the driver then; False if all is written."""
        streams = [
            replace(stream, step=steps[stream.name][0], nth=steps[stream.name][1]) for stream in self.streams
        ]
        with self.driver(streams) as (process, flags):
            return all(wait_while_it_runs(process, flags / stream.flag) for stream in streams)

    def kill_after(self, seconds: float) -> bool:
        """Kill a driver so long after its queries were started; False if all was written before."""
        with self.driver(self.streams) as (process, flags):
            if wait_while_it_runs(process, flags / READY):
                with suppress(subprocess.TimeoutExpired):
                    process.wait(seconds)
            return not has_ended(process)

    def run_to_the_end(self) -> None:
        with self.driver(self.streams) as (process, _):
            output, _ = process.communicate(timeout=END_SECONDS_MAX)
            assert process.returncode == 0, output[-6000:]

    def check_between(self) -> int:
        """Whoever reads now sees whole batches, each once; return of how many files they are, in all tables."""
        for stream in self.streams:
            files, found = files_in(Path(stream.source)), found_in(open_table(stream))
            before = self.whole[stream.name]
            seen = [n for n in range(before, BATCHES + 1) if newest_rows(files[:n]) == found]
            assert seen, f"{stream.name} is no table of the first {before} files, nor of more"
            self.whole[stream.name] = seen[0]
            check_rows_told(open_table(stream), stream, files[: seen[0]])
        return sum(self.whole.values())

    def check_at_the_end(self) -> None:
        for stream in self.streams:
            try:
                check_all_is_there(stream)
            except Exception as error:
                error.add_note(f"{stream.name}, {stream.uri}")
                raise


def check_all_is_there(stream: Streamed) -> None:
    table, files = open_table(stream), files_in(Path(stream.source))
    expected = newest_rows(files)
    assert found_in(table) == expected
    check_rows_told(table, stream, files)
    check_invariants(table)
    check_metadata(table.store)
    if not stream.options:
        rows = read_snapshot(Path(stream.uri)).select(["id", "dt", "ts", "batch"])
        assert sorted(tuple(row.values()) for row in rows.to_pylist()) == expected, "hudi-rs"


def check_rows_told(table: Table, stream: Streamed, files: Sequence[Path]) -> None:
    """Every batch is one commit, and says how many rows it had, as long as none of them is archived.

    A batch may be two files, if the driver was killed when Spark had logged the first and not yet the batch.
    """
    told = table.query_progress()
    batches: list[int] = told["batch"].to_pylist()
    last = batches[-1] if batches else -1
    assert batches == list(range(last + 1 - len(batches), last + 1)), stream.name
    if len(batches) == last + 1:
        assert sum(told["rows"].to_pylist()) == sum(rows_in(files)), stream.name


def wait_while_it_runs(process: subprocess.Popen[str], flag: Path) -> bool:
    """Wait for a flag; False if the driver has come to its end instead."""
    deadline = time.monotonic() + END_SECONDS_MAX
    while not flag.exists():
        if has_ended(process):
            return False
        assert time.monotonic() < deadline, f"it was never there: {flag.name}"
        time.sleep(0.02)
    return True


def has_ended(process: subprocess.Popen[str]) -> bool:
    """Tell whether a driver is done. It must not fail."""
    if process.poll() is None:
        return False
    assert process.returncode == 0, process.communicate()[0][-6000:]
    return True


def open_table(stream: Streamed) -> Table:
    return Table.open(stream.uri, storage_options=stream.options or None)


def found_in(table: Table) -> list[tuple[object, ...]]:
    rows = table.to_arrow(columns=["id", "dt", "ts", "batch"])
    return sorted(tuple(row.values()) for row in rows.to_pylist())


def chosen_steps(lake: Lake, turn: int) -> dict[str, tuple[str, int]]:
    """Another step for each stream in each turn; of its first batch since the start, or of its second."""
    return {
        stream.name: (ALL_STEPS[(3 * turn + 2 * number) % len(ALL_STEPS)], 1 + (number + turn) % 2)
        for number, stream in enumerate(lake.streams)
    }


def drawn_kinds(seed: int) -> dict[str, Kind]:
    """The same kinds, and one more, in other places."""
    chance = Random(seed)
    kinds = {**KINDS, "dynamic-mor": _MORE}
    return {name: replace(kind, on_s3=chance.random() < 0.5) for name, kind in kinds.items()}


def test_drivers_are_killed_and_each_record_counts_once(
    tmp_path: Path, server: S3Server | None, crash_points: Points
) -> None:
    """Also between the commit and Spark's note that the batch is done: apache/paimon#9666."""
    counts: Counter[str] = Counter()
    points = crash_points.setdefault("stream killed", Counter())
    for seed in seeds_for(SOAK_SECONDS, default_count=1):
        lake = Lake(tmp_path / str(seed), drawn_kinds(seed) if IS_SOAK else KINDS, seed, server)
        chance, whole, span = Random(seed), 0, 10.0
        for turn in within(SOAK_SECONDS / 2, range(KILLS)):
            is_random = turn % 4 == 3
            steps = {} if is_random else chosen_steps(lake, turn)
            is_killed = lake.kill_after(chance.uniform(0, span)) if is_random else lake.kill_at(steps)
            if not is_killed:
                break
            points.update(["at a random moment"] if is_random else [step for step, _ in steps.values()])
            before, whole = whole, lake.check_between()
            span = min(60.0, 1.5 * span) if is_random and whole == before else span
            counts["drivers killed"] += 1
            if whole == BATCHES * len(lake.streams):
                break
        lake.run_to_the_end()
        lake.check_at_the_end()
        counts["files streamed"] += BATCHES * len(lake.streams)
        counts["rows"] += sum(sum(rows_in(files_in(Path(stream.source)))) for stream in lake.streams)
    print(f"killed streams: {dict(counts)}")
    crash_points.setdefault("killed streams", Counter()).update(counts)
