"""`python -m benchmarks.resizing`: lookups on a ring, what a resize rewrites, and what it costs who writes beside it.

Lookups: the owners of a million hashes on rings of more and more buckets, beside a binary search, in CPU time.

Bytes: a partition of more and more buckets, one of which is too large and is split. Only that one may be rewritten.

Throughput: a process upserts batches in a loop, into merge-on-read tables of four buckets of a hash ring. In one no
bucket is being resized; in the others all are being split, so that every row has a second place: one writes rows
twice, the other once, with references. First nobody runs the resize, which shows what the second place costs; then
another process runs it, or that of another table. Tables take turns with each batch, and all are compared with the
truth in the end. CPU is that of the writer. With `--spark` the batches are frames, and Spark's share is counted too.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from benchmarks.meter import metered
from benchmarks.race import rotated
from bucketlake import SPARK_SETTINGS, ConsistentBuckets, ExtendibleBuckets, Table, create_table
from bucketlake.index import Directory, DirectoryMetadata, Node, ResizableIndex, Ring, resolve_index
from bucketlake.index.ring import HASH_MAX
from bucketlake.index.rings import GrowingBuckets
from bucketlake.services import look_for_resize, run_resize, schedule_resize
from bucketlake.services.resize_plan import ResizeTrigger
from bucketlake.state import load_state

LOOKED_UP = 1_000_000
RING_SIZES = (16, 256, 4096, 65536)
BUCKET_COUNTS = (4, 16, 64, 256)
BUCKETS = 4
"""Of the tables that are written to."""

ROWS_PER_BUCKET = (1_000, 10_000, 50_000, 200_000)
"""In one write."""

SCHEMA = pa.schema([("id", pa.string()), ("ts", pa.int64()), ("amount", pa.float64()), ("note", pa.string())])
SPLIT_ALL = ResizeTrigger(file_bytes=1, split_threshold=1.0, merge_threshold=0.1)
WARM_UPS_ON_SPARK = 3
MODES = {"no resize": None, "dual write": False, "virtual logs": True}
"""Whether a table beside whose resize rows are written is made with virtual logs."""

BESIDE_ANOTHER = "no resize, beside another table's"
MODES_RUNNING = ("no resize", BESIDE_ANOTHER, "dual write", "virtual logs")


@dataclass(frozen=True, slots=True)
class LookupCost:
    """The least CPU seconds of several lookups of all hashes."""

    ring_s: float
    binary_search_s: float
    directory_s: float
    """By the directory of as many extendible buckets."""


def ring_of(buckets: int) -> Ring:
    ends = np.linspace(0, HASH_MAX, buckets + 1).astype(np.int64)[1:]
    return Ring(tuple(Node(end, f"{number:08d}") for number, end in enumerate(ends.tolist())))


def random_hashes() -> npt.NDArray[np.int32]:
    return np.random.default_rng(7).integers(0, HASH_MAX, LOOKED_UP, np.int32)


def directory_of(buckets: int) -> Directory:
    return DirectoryMetadata.initial("", buckets).directory


def look_up(buckets: int) -> LookupCost:
    ring, directory, hashes = ring_of(buckets), directory_of(buckets), random_hashes()
    values = np.array([node.value for node in ring.nodes], np.int32)
    return LookupCost(
        _least_cpu_s(lambda: ring.owners(hashes)),
        _least_cpu_s(lambda: np.searchsorted(values, hashes)),
        _least_cpu_s(lambda: directory.owners(hashes)),
    )


def _least_cpu_s(work: Callable[[], object]) -> float:
    taken = []
    for _ in range(15):
        start = time.thread_time()
        work()
        taken.append(time.thread_time() - start)
    return min(taken)


@dataclass(frozen=True, slots=True)
class SplitCost:
    """What splitting one bucket took."""

    buckets: int
    """Of the partition, before."""
    read_bytes: int
    written_bytes: int
    cpu_s: float


def split_one(
    path: Path, *, buckets: int, large: int, small: int, engine: type[GrowingBuckets] = ConsistentBuckets
) -> SplitCost:
    """Make a table with `large` rows in one bucket and `small` in each of the others, and split that one."""
    table = create_table(path, SCHEMA, key="id", ordering="ts", index=engine(buckets))
    index = resolve_index(load_state(table.store)).resizable
    assert index is not None
    table.bulk_insert(_rows(_skewed_keys(index, buckets, large, small), np.random.default_rng(buckets), ts=0))
    sizes = sorted(file.stat().st_size for file in path.glob("*.parquet"))
    assert len(sizes) == buckets, "a bucket without rows would make the partition smaller than it says"
    trigger = ResizeTrigger(file_bytes=sizes[-1] // 2, split_threshold=1.5, merge_threshold=0.0)
    start = time.process_time()
    plan = look_for_resize(table.store, trigger)
    assert len(plan.changes) == 1
    instant = schedule_resize(table.store, plan)
    assert instant is not None
    done = run_resize(table.store, instant)
    cpu_s = time.process_time() - start
    assert table.to_arrow(columns=["id"]).num_rows == large + small * (buckets - 1)
    return SplitCost(buckets, plan.size_bytes, done.size_bytes, cpu_s)


def _skewed_keys(index: ResizableIndex, buckets: int, large: int, small: int) -> pa.Array:
    candidates = pa.array(np.arange(large * buckets * 5 // 4)).cast(pa.string())
    owners = index.locate("", candidates).indices.to_numpy()
    by_owner = np.argsort(owners, kind="stable")
    starts = np.searchsorted(owners[by_owner], np.arange(buckets))
    chosen = [by_owner[starts[n] : starts[n] + (large if n == 0 else small)] for n in range(buckets)]
    return candidates.take(pa.array(np.concatenate(chosen)))


def _rows(keys: pa.Array, chance: np.random.Generator, *, ts: int) -> pa.Table:
    count = len(keys)
    columns = [keys, pa.array(np.full(count, ts)), pa.array(chance.random(count)), _texts(chance, count, 60)]
    return pa.Table.from_arrays(columns, schema=SCHEMA)


def _texts(chance: np.random.Generator, count: int, length: int) -> pa.Array:
    """Random hexadecimal texts."""
    offsets = pa.array(np.arange(count + 1, dtype=np.int32) * length)
    text = chance.bytes(count * length // 2).hex().encode()
    return pa.Array.from_buffers(pa.string(), count, [None, offsets.buffers()[1], pa.py_buffer(text)])


@dataclass(slots=True)
class Written:
    """A table, what was written to it, and what that took."""

    table: Table
    keys: pa.Array
    newest: np.ndarray[tuple[int], np.dtype[np.int64]]
    """By key, the `ts` of its newest row."""
    rows: list[int] = field(default_factory=list)
    cpu_s: list[float] = field(default_factory=list)
    wall_s: list[float] = field(default_factory=list)

    def upsert(
        self, chosen: np.ndarray[tuple[int], np.dtype[np.int64]], rows: pa.Table | DataFrame, ts: int
    ) -> None:
        cpu_s, wall_s = _cost(lambda: self.table.upsert(rows, progress=False), isinstance(rows, DataFrame))
        self.cpu_s.append(cpu_s)
        self.wall_s.append(wall_s)
        self.rows.append(len(chosen))
        self.newest[chosen] = ts

    def forget(self) -> None:
        self.rows, self.cpu_s, self.wall_s = [], [], []

    def rate(self, seconds: list[float]) -> float:
        """Rows per second, of the median write: the first after a change pays for what others find in caches."""
        return statistics.median(n / s for n, s in zip(self.rows, seconds, strict=True))

    def verify(self) -> None:
        found = self.table.to_arrow(columns=["id", "ts"])
        places = pc.index_in(found["id"], value_set=self.keys).combine_chunks().to_numpy()
        assert sorted(places.tolist()) == list(range(len(self.keys))), "rows were lost or doubled"
        assert (found["ts"].to_numpy() == self.newest[places]).all(), "an older row came back"


def _cost(write: Callable[[], object], is_on_spark: bool) -> tuple[float, float]:
    """Return CPU and wall seconds; without Spark those of this process alone, for a resize may be running below it."""
    if is_on_spark:
        cost = metered(os.getpid(), write).cost
        return cost.cpu_s, cost.wall_s
    cpu, wall = time.process_time(), time.perf_counter()
    write()
    return time.process_time() - cpu, time.perf_counter() - wall


def made(path: Path, keys: pa.Array, virtual_logs: bool | None) -> Written:
    table = create_table(
        path,
        SCHEMA,
        key="id",
        ordering="ts",
        index=ConsistentBuckets(BUCKETS, virtual_logs=bool(virtual_logs)),
        table_type="MERGE_ON_READ",
        name="orders",
    )
    table.bulk_insert(_rows(keys, np.random.default_rng(1), ts=0))
    return Written(table, keys, np.zeros(len(keys), np.int64))


def scheduled(table: Table) -> str:
    plan = look_for_resize(table.store, SPLIT_ALL)
    assert len(plan.changes) == BUCKETS
    instant = schedule_resize(table.store, plan)
    assert instant is not None
    return instant


def measure_pending(
    folder: Path, *, per_bucket: int, loaded: int, writes: int, session: SparkSession | None = None
) -> dict[str, Written]:
    """Write beside resizes that nobody runs: frames if there is a session, else tables in this process."""
    chance = np.random.default_rng(per_bucket)
    keys = _texts(chance, loaded, 16)
    tables = {mode: made(folder / f"{per_bucket} {mode}", keys, virtual) for mode, virtual in MODES.items()}
    for mode, one in tables.items():
        if MODES[mode] is not None:
            scheduled(one.table)
    for ts in range(1, writes + 1 + (WARM_UPS_ON_SPARK if session is not None else 1)):
        chosen = chance.choice(loaded, per_bucket * BUCKETS, replace=False)
        rows = _rows(keys.take(pa.array(chosen)), chance, ts=ts)
        given: pa.Table | DataFrame = rows
        if session is not None:
            batch = folder / "batch.parquet"
            pq.write_table(rows, batch)
            given = session.read.parquet(str(batch))
        # Each time another first, and the first writes for nothing: workers start then, and the JVM compiles.
        for one in rotated(list(tables.values()), ts):
            one.upsert(chosen, given, ts)
            if ts <= (WARM_UPS_ON_SPARK if session is not None else 1):
                one.forget()
    for one in tables.values():
        one.verify()
    return tables


def measure_running(folder: Path, *, per_bucket: int, loaded: int, rounds: int) -> dict[str, Written]:
    """Write for as long as another process runs the resize; where there is none, as often as beside the first.

    To a table without one also beside that of another table, which shows what two processes cost each other.
    """
    chance = np.random.default_rng(per_bucket)
    keys = _texts(chance, loaded, 16)
    found: dict[str, Written] = {}
    for number in range(rounds):
        count = 0
        for mode in reversed(MODES_RUNNING):
            one = made(folder / f"running {mode} {number}", keys, MODES.get(mode))
            resized = made(folder / f"another {number}", keys, False) if mode == BESIDE_ANOTHER else one
            beside = _resizer(resized.table) if mode != "no resize" else None
            for ts in _while_running(beside) if beside is not None else range(1, count + 1):
                chosen = chance.choice(loaded, per_bucket * BUCKETS, replace=False)
                one.upsert(chosen, _rows(keys.take(pa.array(chosen)), chance, ts=ts), ts)
                count = max(count, ts)
            one.verify()
            if beside is not None:
                assert beside.returncode == 0 and len(pc.unique(_file_ids(resized.table))) == 2 * BUCKETS
            for path in {one.table.store.uri, resized.table.store.uri}:
                shutil.rmtree(path.removeprefix("file://"))
            sum_of = found.setdefault(mode, Written(one.table, keys, one.newest))
            sum_of.rows += one.rows
            sum_of.cpu_s += one.cpu_s
            sum_of.wall_s += one.wall_s
    return {mode: found[mode] for mode in MODES_RUNNING}


def _file_ids(table: Table) -> pa.Array:
    names = table.to_arrow(columns=["_hoodie_file_name"], meta_columns=True)["_hoodie_file_name"]
    return pc.utf8_slice_codeunits(names, 0, 36)


def _resizer(table: Table) -> subprocess.Popen[str]:
    """Start a process, and let it begin once it has imported what it needs."""
    command = [sys.executable, "-m", "benchmarks.resizing", "--run", table.store.uri, scheduled(table)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None and process.stdout is not None
    process.stdout.readline()
    process.stdin.write("go\n")
    process.stdin.flush()
    return process


def _while_running(process: subprocess.Popen[str]) -> Iterator[int]:
    number = 0
    while process.poll() is None:
        number += 1
        yield number
    process.communicate()


def _run(uri: str, instant: str) -> None:
    table = Table.open(uri)
    print("ready", flush=True)
    sys.stdin.readline()
    run_resize(table.store, instant)


def _print_costs(title: str, found: dict[str, Written]) -> None:
    plain = found["no resize"]
    for mode, one in found.items():
        cpu, wall = one.rate(one.cpu_s), one.rate(one.wall_s)
        drop = "" if one is plain else f"{1 - cpu / plain.rate(plain.cpu_s):.0%}"
        drop_wall = "" if one is plain else f"{1 - wall / plain.rate(plain.wall_s):.0%}"
        print(
            f"| {title} | {mode} | {len(one.rows)} | {cpu:,.0f} | {drop} | {wall:,.0f} | {drop_wall} |",
            flush=True,
        )


def _measure_on_spark(folder: Path, options: argparse.Namespace) -> None:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    builder = SparkSession.builder.master("local[2]").config("spark.driver.memory", "3g")
    builder = builder.config(map=SPARK_SETTINGS)
    session = builder.config("spark.ui.enabled", "false").getOrCreate()
    print("\n| | writes | n | rows per CPU second | drop | rows per second | drop |")
    print("|---|---|---:|---:|---:|---:|---:|")
    for per_bucket in (10_000, 100_000):
        found = measure_pending(
            folder, per_bucket=per_bucket, loaded=options.loaded, writes=options.writes, session=session
        )
        _print_costs(f"on Spark, {per_bucket:,} rows per bucket", found)
    session.stop()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.resizing", description=__doc__)
    parser.add_argument("--large", type=int, default=100_000, help="rows of the bucket that is split")
    parser.add_argument("--small", type=int, default=1_000, help="rows of every other bucket")
    parser.add_argument(
        "--loaded", type=int, default=1_000_000, help="rows of the tables that are written to"
    )
    parser.add_argument("--writes", type=int, default=7, help="of each batch size, into each table")
    parser.add_argument("--rounds", type=int, default=2, help="resizes to write beside")
    parser.add_argument("--spark", action="store_true", help="only the writes, as frames on local Spark")
    parser.add_argument("--run", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.run:
        _run(*options.run)
        return
    folder = Path(tempfile.mkdtemp(prefix="bucketlake-resizing-"))
    try:
        if options.spark:
            _measure_on_spark(folder, options)
            return
        print("| buckets | keys/s | per key | binary search, per key | by a directory, per key |")
        print("|---:|---:|---:|---:|---:|")
        for buckets in RING_SIZES:
            found = look_up(buckets)
            print(
                f"| {buckets:,} | {LOOKED_UP / found.ring_s / 1e6:,.0f} M | {found.ring_s / LOOKED_UP * 1e9:.1f} ns "
                f"| {found.binary_search_s / LOOKED_UP * 1e9:.0f} ns | {found.directory_s / LOOKED_UP * 1e9:.1f} ns |",
                flush=True,
            )
        print("\n| | buckets | bytes read | bytes written | CPU |\n|---|---:|---:|---:|---:|")
        for engine, buckets in product((ConsistentBuckets, ExtendibleBuckets), BUCKET_COUNTS):
            path = folder / f"{engine.__name__}-{buckets}"
            cost = split_one(path, buckets=buckets, large=options.large, small=options.small, engine=engine)
            print(
                f"| {engine.title} | {cost.buckets} | {cost.read_bytes:,} | {cost.written_bytes:,} "
                f"| {cost.cpu_s:.2f} s |",
                flush=True,
            )
        print("\n| | writes | n | rows per CPU second | drop | rows per second | drop |")
        print("|---|---|---:|---:|---:|---:|---:|")
        for per_bucket in ROWS_PER_BUCKET:
            pending = measure_pending(
                folder, per_bucket=per_bucket, loaded=options.loaded, writes=options.writes
            )
            _print_costs(f"pending, {per_bucket:,} rows per bucket", pending)
        per_bucket = 50_000
        running = measure_running(folder, per_bucket=per_bucket, loaded=options.loaded, rounds=options.rounds)
        _print_costs(f"running, {per_bucket:,} rows per bucket", running)
        print(f"\n{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} at the end")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
