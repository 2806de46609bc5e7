"""`python -m benchmarks.limits`: how far a record-level index carries a stream, beside buckets and dynamic buckets.

    batches     seconds of a stream's batch, half changes of any keys and half new ones, through `Stream.upsert` in one
                process, without Spark: by keys in the table, rows of a batch, and how much of the index may be kept
    look-ups    milliseconds of looking up keys in the index alone: one key in one shard, and 1, 1,000 and 20,000 keys
    tables      seconds of the load and of a compaction of the index; bytes of the index for each key

Each batch and look-up is measured `cold`, where the process has forgotten all files before each, and `warm`. What is
kept on the local disk has been filled before. The system's page cache is warm. Rows are made before the clock starts.

Tables have four partitions and few columns: the index is what is measured. Each case begins with the same table, linked
to the one that was loaded, and ends after so many seconds (`--seconds`), 3 batches at least and 15 at most: then
services would be due. So p99 is the slowest. What a batch has inserted is compared with what it brought.

    python -m benchmarks.limits --results limits.json     measure
    python -m benchmarks.limits --page limits.json        fill the tables of docs/limits.md and draw docs/plots
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import datetime
import gc
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from rich.console import Console

from benchmarks.limits_page import PAGE, write_page
from benchmarks.meter import machine
from benchmarks.record_index import Numbers
from bucketlake import (
    DynamicBuckets,
    RecordIndex,
    SimpleBuckets,
    Table,
    create_table,
    set_index_cache,
    set_memory_budget,
)
from bucketlake.index import IndexValue
from bucketlake.index.record_level import RecordLevelIndex, resolve_record_index
from bucketlake.metadata.record_shard import open_base
from bucketlake.metadata.record_shards import pinned_shards
from bucketlake.services.metadata_compaction import compact_metadata
from bucketlake.state import load_state
from bucketlake.streaming.stream import Stream
from bucketlake.write import CommitSummary

SCHEMA = pa.schema([("id", pa.string()), ("dt", pa.string()), ("ts", pa.int64()), ("amount", pa.float64())])
DAYS = [f"2026-06-{day:02d}" for day in range(15, 19)]
BUCKETS = 4
"""Of each partition; dynamic buckets are as large."""
KEYS = (1_000_000, 5_000_000, 20_000_000)
ROWS = (1_000, 20_000, 100_000)
LOOKED_UP = (1, 1_000, 20_000)
KEPT = {"nothing": 0.0, "a tenth": 1.0, "all": 40.0}
"""Bytes that may be kept for each key. One takes about ten."""
FILLED_WITH = 200_000
"""Keys that are looked up to fill what is kept."""
COUNTED_MAX = 1_000_000
"""Rows of so large tables are counted in the end."""
MEMORY = "256MiB"
BATCHES_MIN, BATCHES_MAX = 3, 15
LOOK_UPS_MIN, LOOK_UPS_MAX = 5, 200
RECORD, DYNAMIC, SIMPLE = "record-level index", "dynamic buckets", "buckets"
CASES = {RECORD: tuple(KEPT), DYNAMIC: ("all",), SIMPLE: ("nothing",)}
"""What may be kept of each index."""
STATES = ("cold", "warm")


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """A table that was loaded."""

    index: str
    keys: int
    load_seconds: float
    index_bytes: int
    blocks: int
    """Of the index."""
    compaction_seconds: float
    """Of the index, after one batch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Batched:
    """The batches of one case."""

    index: str
    keys: int
    rows: int
    kept: str
    state: str
    seconds: list[float] = field(default_factory=list)
    cpu_seconds: list[float] = field(default_factory=list)
    hits: float = 0.0
    """The share of keys that were found in what is kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LookedUp:
    """The look-ups of one case."""

    keys: int
    kept: str
    state: str
    asked: str
    milliseconds: list[float]


def keys_of(numbers: Numbers) -> pa.Array:
    """Spell numbers as keys of 18 characters, all at once: a table of 20,000,000 is to be made quickly."""
    text = np.empty((len(numbers), 18), np.uint8)
    text[:, :2] = np.frombuffer(b"o-", np.uint8)
    text[:, 2:] = np.frombuffer(numbers.astype(">u8").tobytes().hex().encode(), np.uint8).reshape(-1, 16)
    offsets = np.arange(len(numbers) + 1, dtype=np.int32) * np.int32(18)
    return pa.StringArray.from_buffers(len(numbers), pa.py_buffer(offsets), pa.py_buffer(text))


def rows_of(numbers: Numbers, *, ts: int) -> pa.Table:
    """Rows of these keys; a key has one partition for life."""
    days = pa.array(DAYS).take(pa.array((numbers % np.uint64(len(DAYS))).astype(np.int32)))
    amounts = (numbers >> np.uint64(20)) % np.uint64(1_000_000)
    columns = [
        keys_of(numbers),
        days,
        pa.array(np.full(len(numbers), ts)),
        pa.array(amounts.astype(np.float64)),
    ]
    return pa.Table.from_arrays(columns, schema=SCHEMA)


def index_of(name: str, keys: int) -> IndexValue:
    if name == RECORD:
        return RecordIndex()
    if name == SIMPLE:
        return SimpleBuckets(BUCKETS)
    return DynamicBuckets(assigners=BUCKETS, keys_per_bucket=max(1, keys // (BUCKETS * len(DAYS))))


def forget() -> None:
    """Let this process know nothing of any file."""
    set_memory_budget(0)
    set_memory_budget(MEMORY)


@dataclass(slots=True)
class Limits:
    """Measures everything of one number of keys after the other, and keeps the figures."""

    folder: Path
    seconds: float
    """Of one case."""
    say: Callable[[str], None]
    made: list[Made] = field(default_factory=list)
    batches: list[Batched] = field(default_factory=list)
    look_ups: list[LookedUp] = field(default_factory=list)

    def measure(self, keys: int, rows: tuple[int, ...]) -> None:
        known = np.unique(np.random.default_rng(keys).integers(0, 1 << 63, keys, np.uint64))
        for name, kepts in CASES.items():
            loaded = self.folder / f"{name} {keys}"
            self._load(name, loaded, known)
            for kept in kepts:
                for count in rows:
                    for state in STATES:
                        self._batches(
                            Batched(index=name, keys=keys, rows=count, kept=kept, state=state), loaded, known
                        )
                if name == RECORD and kept != "a tenth":
                    for state in STATES:
                        self._look_ups(keys, kept, state, loaded, known)
            shutil.rmtree(loaded)

    def _load(self, name: str, place: Path, known: Numbers) -> None:
        table = create_table(
            place,
            SCHEMA,
            key="id",
            partition="dt",
            ordering="ts",
            index=index_of(name, len(known)),
            table_type="MERGE_ON_READ",
            maintenance="off",
        )
        rows = rows_of(known, ts=1)
        start = time.perf_counter()
        table.bulk_insert(rows, progress=False)
        load_seconds = time.perf_counter() - start
        del rows
        gc.collect()
        index_bytes = blocks = 0
        compaction_seconds = 0.0
        if name != SIMPLE:
            table.upsert(rows_of(known[:: max(1, len(known) // 20_000)], ts=1), progress=False)
            start = time.perf_counter()
            compact_metadata(table.store)
            compaction_seconds = time.perf_counter() - start
            state = load_state(table.store)
            _, shards = pinned_shards(table.store, state.properties, state.timeline)
            bases = [shard.slice.base for shard in shards if shard.slice.base is not None]
            index_bytes = sum(base.size_bytes for base in bases)
            blocks = sum(open_base(table.store, base).blocks for base in bases)
        self.made.append(
            Made(
                index=name,
                keys=len(known),
                load_seconds=load_seconds,
                index_bytes=index_bytes,
                blocks=blocks,
                compaction_seconds=compaction_seconds,
            )
        )
        self.say(f"{name}, {len(known):,} keys: loaded in {load_seconds:.1f} s")

    def _batches(self, case: Batched, loaded: Path, known: Numbers) -> None:
        with self._linked(loaded, case.kept, known) as table:
            stream = Stream(store=table.store, id="limits", options={"maintenance": "off"})
            rng = np.random.default_rng(3)
            spent, asked, hits = 0.0, 0, 0
            brought = [known]
            for number in range(-1, BATCHES_MAX):  # one to warm up
                old = np.unique(rng.choice(known, case.rows // 2))
                new = np.unique(rng.integers(0, 1 << 63, case.rows - len(old), np.uint64))
                rows = rows_of(rng.permutation(np.concatenate([old, new])), ts=number + 3)
                if case.state == "cold":
                    forget()
                start, cpu_start = time.perf_counter(), time.process_time()
                done = stream.upsert(rows, number + 1)
                seconds, cpu_seconds = time.perf_counter() - start, time.process_time() - cpu_start
                check_done(done, case.index, old=len(old), new=len(new))
                assert done is not None
                brought.append(new)
                if number < 0:
                    continue
                case.seconds.append(seconds)
                case.cpu_seconds.append(cpu_seconds)
                asked, hits = asked + done.looked_up, hits + done.cache_hits
                spent += seconds
                if spent > self.seconds and len(case.seconds) >= BATCHES_MIN:
                    break
            if len(known) <= COUNTED_MAX:
                found = table.to_arrow(columns=["id"]).num_rows
                assert found == len(np.unique(np.concatenate(brought))), f"{case} left {found:,} rows"
        self.batches.append(dataclasses.replace(case, hits=hits / max(1, asked)))
        self.say(
            f"{case.index}, {case.keys:,} keys, {case.kept} kept, {case.state}: {case.rows:,} rows "
            f"{np.median(case.seconds):.3f} s, of {len(case.seconds)} batches"
        )

    def _look_ups(self, keys: int, kept: str, state: str, loaded: Path, known: Numbers) -> None:
        with self._linked(loaded, kept, known) as table:
            rng = np.random.default_rng(5)
            for asked in ("one in one shard", *(f"{count:,}" for count in LOOKED_UP)):
                count = 1 if asked == "one in one shard" else int(asked.replace(",", ""))
                milliseconds: list[float] = []
                deadline = time.monotonic() + self.seconds / 2
                for turn in range(-1, LOOK_UPS_MAX):
                    chosen = keys_of(np.unique(rng.choice(known, count)))
                    index = _index_of(table)
                    shards = index.shard_of(None, chosen)
                    if state == "cold":
                        forget()
                    start = time.perf_counter()
                    if asked != "one in one shard":
                        index = _index_of(table)
                        shards = index.shard_of(None, chosen)
                    for shard in np.unique(shards):
                        found = index.probe(int(shard), None, chosen.filter(pa.array(shards == shard)))
                        assert found.partitions.null_count == 0
                    if turn >= 0:
                        milliseconds.append(1000 * (time.perf_counter() - start))
                    if time.monotonic() > deadline and len(milliseconds) >= LOOK_UPS_MIN:
                        break
                self.look_ups.append(
                    LookedUp(keys=keys, kept=kept, state=state, asked=asked, milliseconds=milliseconds)
                )

    @contextlib.contextmanager
    def _linked(self, loaded: Path, kept: str, known: Numbers) -> Iterator[Table]:
        """Lend a table with the files of another one, of which is kept what may be. No file is changed in its place."""
        place, keeps = self.folder / "table", self.folder / "kept"
        shutil.copytree(loaded, place, copy_function=os.link)
        forget()
        set_index_cache(int(KEPT[kept] * len(known)), keeps)
        try:
            table = Table.open(place)
            if KEPT[kept] and len(known):
                _fill(table, known)
            yield table
        finally:
            set_index_cache(0)
            shutil.rmtree(place)
            shutil.rmtree(keeps, ignore_errors=True)

    def results(self) -> dict[str, Any]:
        return {
            "date": datetime.date.today().isoformat(),
            "machine": machine(),
            "memory": MEMORY,
            "seconds": self.seconds,
            "made": [dataclasses.asdict(one) for one in self.made],
            "batches": [dataclasses.asdict(one) for one in self.batches],
            "look_ups": [dataclasses.asdict(one) for one in self.look_ups],
        }


def _index_of(table: Table) -> RecordLevelIndex:
    index = resolve_record_index(load_state(table.store))
    assert isinstance(index, RecordLevelIndex)
    return index


def _fill(table: Table, known: Numbers) -> None:
    """Look keys up, so that ranges are read to be kept."""
    index = _index_of(table)
    chosen = np.unique(np.random.default_rng(1).choice(known, FILLED_WITH))
    keys = keys_of(chosen)
    days = rows_of(chosen, ts=0)["dt"].combine_chunks()
    shards = index.shard_of(days, keys)
    for shard in np.unique(shards):
        at = pa.array(shards == shard)
        index.probe(int(shard), days.filter(at), keys.filter(at))


def check_done(done: CommitSummary | None, index: str, *, old: int, new: int) -> None:
    """Compare what a batch did with what it brought. Where new keys go to logs, nobody has counted them yet."""
    assert done is not None
    found = (done.rows, done.inserted, done.updated)
    expected = (
        (old + new, new, old) if index == RECORD else (old + new, done.inserted, old + new - done.inserted)
    )
    if found != expected:
        raise AssertionError(f"{index}: rows, inserted and updated are {found}; expected {expected}")


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--keys", type=int, nargs="+", default=KEYS)
    parser.add_argument("--rows", type=int, nargs="+", default=ROWS, help="of a batch")
    parser.add_argument("--seconds", type=float, default=4.0, help="of one case")
    parser.add_argument("--place", type=Path, help="where to make tables, if not in a temporary folder")
    parser.add_argument("--results", type=Path, help="a file for all figures, as JSON")
    parser.add_argument("--page", type=Path, help="fill docs/limits.md from this file, and measure nothing")
    parser.add_argument("--docs", type=Path, default=PAGE.parent)
    chosen = parser.parse_args(arguments)
    if chosen.page:
        write_page(json.loads(chosen.page.read_text()), chosen.docs)
        return
    console = Console(width=140)
    folder = Path(tempfile.mkdtemp(prefix="bucketlake-bench-", dir=chosen.place))
    try:
        if chosen.seconds:
            Limits(folder, 0.0, lambda _: None).measure(2_000, (100,))  # functions are compiled
        limits = Limits(folder, chosen.seconds, lambda text: console.print(text, highlight=False))
        for keys in chosen.keys:
            limits.measure(keys, tuple(chosen.rows))
            if chosen.results:
                chosen.results.write_text(json.dumps(limits.results(), indent=1))
    finally:
        set_index_cache(0)
        set_memory_budget(MEMORY)
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
