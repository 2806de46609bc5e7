"""`python -m benchmarks.dynamic_buckets`: what dynamic buckets cost as a partition grows, in one process.

    growth     a partition that grows in commits, half of each new keys, or all: CPU seconds of the first and last ten,
               files and MB written for each commit, compactions apart; what it takes to find one key; buckets at the
               end and how full they are
    upserts    CPU seconds of an upsert of 5 %, half of it new keys, beside simple buckets and the record-level index of
               each partition; the dynamic ones with nothing kept of the index, and warm
    kept       CPU seconds of the same upsert by how many bytes are kept

Rows are made before the clock starts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from rich.table import Table as Shown

from benchmarks.record_index import Numbers, a_table, metered, rows, run_in_folder
from bucketlake import DynamicBuckets, RecordIndex, SimpleBuckets, set_index_cache
from bucketlake.index import IndexValue
from bucketlake.services.metadata_compaction import compact_metadata
from bucketlake.storage import index_cache

COMMITS = 100
COMPACTED_EVERY = 20
UPSERTS = 4
_PLENTY = 4 << 30


def in_one_day(numbers: Numbers, *, ts: int) -> pa.Table:
    made = rows(numbers, ts=ts)
    return made.set_column(1, "dt", pa.array(["2026-06-18"] * len(numbers)))


def growth(folder: Path, keys: int) -> Shown:
    shown = Shown(title=f"A partition of {keys:,} keys after {COMMITS} commits", title_justify="left")
    for name in (
        "table",
        "CPU s of a commit, first and last ten",
        "MB",
        "files",
        "get of a key, CPU ms",
        "compactions, MB",
        "buckets",
        "full",
    ):
        shown.add_column(name, justify="left" if name == "table" else "right")
    for table_type in ("MERGE_ON_READ", "COPY_ON_WRITE"):
        for brings in ("half new keys", "new keys only"):
            shown.add_row(*grown(folder, keys, table_type, brings))
    return shown


def grown(folder: Path, keys: int, table_type: str, brings: str) -> list[str]:
    """Let a partition grow, and say what it took; all that is written is counted, and who wrote it."""
    rng = np.random.default_rng(5)
    index = DynamicBuckets(assigners=4, keys_per_bucket=max(1, keys // 10))
    table = a_table(folder, f"growth {table_type} {brings}", index, table_type=table_type, maintenance="off")
    known = np.empty(0, np.uint64)
    seconds, gets = list[float](), list[float]()
    files, written, compacted = list[int](), list[float](), list[float]()
    for number in range(COMMITS):
        new = rng.integers(0, 1 << 63, keys // COMMITS, np.uint64)
        old = rng.choice(known, len(new)) if len(known) and brings.startswith("half") else known[:0]
        batch = in_one_day(np.unique(np.concatenate([old, new])), ts=number)
        with metered(seconds):
            done = table.upsert(batch)
        known = np.concatenate([known, new])
        files.append(done.files)
        written.append(done.bytes / 1e6)
        with metered(gets):
            assert table.get(batch["id"][0].as_py()).num_rows == 1
        if number % COMPACTED_EVERY == COMPACTED_EVERY - 1:
            compact_metadata(table.store)
            if table_type == "MERGE_ON_READ":
                compacted += [run.size_bytes / 1e6 for run in table.compact(delta_commits=1).runs]
    fills = table.layout().partitions[0].fills.values()
    assert sum(fill.keys for fill in fills) == len(np.unique(known))
    assert max(fill.keys for fill in fills) <= index.keys_per_bucket
    return [
        f"{table_type.lower().replace('_', '-')}, {brings}",
        f"{np.median(seconds[:10]):.2f}, {np.median(seconds[-10:]):.2f}",
        f"{np.median(written[:10]):.2f}, {np.median(written[-10:]):.2f}",
        f"{np.median(files[:10]):.0f}, {np.median(files[-10:]):.0f}",
        f"{1e3 * np.median(gets[:10]):.0f}, {1e3 * np.median(gets[-10:]):.0f}",
        f"{sum(compacted):,.1f}" if compacted else "-",
        f"{len(fills):,}",
        f"{sum(fill.is_full for fill in fills):,}",
    ]


def upserts(folder: Path, counts: list[int]) -> Shown:
    shown = Shown(title="CPU seconds, one process, 20 partitions", title_justify="left")
    for name in ("keys", "index", "load", "5 % upserts, mor", "5 % upserts, cow"):
        shown.add_column(name, justify="left" if name == "index" else "right")
    for count in counts:
        dynamic = DynamicBuckets(assigners=4, keys_per_bucket=max(1, count // 40))
        engines: dict[str, tuple[IndexValue, int]] = {
            "simple buckets": (SimpleBuckets(4), 0),
            "record-level, each partition": (RecordIndex(per_partition=True), 0),
            "dynamic buckets": (dynamic, 0),
            "dynamic buckets, kept": (dynamic, _PLENTY),
        }
        for name, (index, bytes_max) in engines.items():
            set_index_cache(bytes_max, folder / "kept")
            cells = [upserted(folder, f"{name} {count}", index, kind, count) for kind in ("mor", "cow")]
            shown.add_row(f"{count:,}", name, f"{cells[0][0]:.2f}", *(f"{warm:.2f}" for _, warm in cells))
    set_index_cache(0)
    return shown


def upserted(folder: Path, name: str, index: IndexValue, kind: str, count: int) -> tuple[float, float]:
    """Return the CPU seconds of a load, and of an upsert of 5 % that is not the first."""
    rng = np.random.default_rng(count)
    known = rng.integers(0, 1 << 63, count, np.uint64)
    table = a_table(folder, f"{name} {kind}", index, table_type=kind)
    loaded, seconds = list[float](), list[float]()
    batch = rows(known, ts=1)
    with metered(loaded):
        table.bulk_insert(batch)
    if not isinstance(index, SimpleBuckets):
        compact_metadata(table.store)
    for ts in range(2, 2 + UPSERTS):
        new = rng.integers(0, 1 << 63, count // 40, np.uint64)
        batch = rows(np.unique(np.concatenate([rng.choice(known, count // 40), new])), ts=ts)
        with metered(seconds):
            table.upsert(batch)
        known = np.concatenate([known, new])
    assert table.to_arrow(columns=["id"]).num_rows == len(np.unique(known))
    return loaded[0], float(np.median(seconds[1:]))


def by_bytes_kept(folder: Path, count: int) -> Shown:
    shown = Shown(
        title=f"CPU seconds of an upsert of 5 % into {count:,} keys, by what is kept", title_justify="left"
    )
    for name in ("bytes allowed", "bytes kept", "5 % upserts"):
        shown.add_column(name, justify="right")
    dynamic = DynamicBuckets(assigners=4, keys_per_bucket=max(1, count // 40))
    for part in (0, 2, 5, 10, 20):
        set_index_cache(part * count, folder / f"kept {part}")
        _, seconds = upserted(folder, f"kept {part} {count}", dynamic, "mor", count)
        kept = index_cache()
        size = 0 if kept is None else kept.size_bytes()
        assert size <= part * count
        shown.add_row(f"{part * count:,}", f"{size:,}", f"{seconds:.2f}")
    set_index_cache(0)
    return shown


def main(arguments: list[str] | None = None, show: Callable[[Any], None] | None = None) -> None:
    def run(folder: Path, counts: list[int]) -> Iterator[Shown]:
        yield upserts(folder, counts)
        yield by_bytes_kept(folder, counts[-1])
        yield growth(folder, counts[-1])

    try:
        run_in_folder(run, __doc__ or "", [200_000, 1_000_000], arguments, show)
    finally:
        set_index_cache(0)


if __name__ == "__main__":
    main()
