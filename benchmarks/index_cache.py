"""`python -m benchmarks.index_cache`: what it saves to keep what a record-level index says, in one process.

    batches    upserts of some thousand rows into a table with an index of the whole table: CPU seconds of the look-up
               and bytes that it reads, in the first batch, which finds nothing kept, and the median of the second half;
               by how much may be kept, for keys from anywhere, and for nine of ten from one tenth of the keys

Rows are made before the clock starts. What this process remembers of files is forgotten before every batch, as if each
came to a process of its own.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table as Shown

from benchmarks.record_index import Numbers, a_table, rows, run_in_folder
from bucketlake import RecordIndex, Table, set_index_cache, set_memory_budget
from bucketlake.index import RecordLevelIndex
from bucketlake.metadata.places import RECORD_INDEX
from bucketlake.services.metadata_compaction import compact_metadata
from bucketlake.storage import LocalStore, index_cache

BATCHES, BATCH_ROWS = 10, 5_000
PARTS = {"nothing": 0.0, "a third": 3.5, "all": 40.0}
"""Bytes that may be kept, for each key."""


@dataclass
class Probes:
    """What look-ups cost."""

    seconds: list[float] = field(default_factory=list)
    read: list[int] = field(default_factory=list)
    now: int = 0


class MeteredProbes:
    """Count what is read of the index while keys are looked up."""

    def __enter__(self) -> Probes:
        self.probes = probes = Probes()
        self.probing, self.reading = RecordLevelIndex.probe, LocalStore.read
        probing, reading = self.probing, self.reading

        def probe(index: Any, *args: Any) -> Any:
            start = time.process_time()
            found = probing(index, *args)
            probes.seconds[-1] += time.process_time() - start
            return found

        def read(store: Any, path: str, **kwargs: Any) -> bytes:
            data = reading(store, path, **kwargs)
            if RECORD_INDEX in path and path.endswith(".hfile"):
                probes.now += len(data)
            return data

        RecordLevelIndex.probe, LocalStore.read = probe, read  # type: ignore[method-assign, assignment]
        return probes

    def __exit__(self, *_: object) -> None:
        RecordLevelIndex.probe, LocalStore.read = self.probing, self.reading  # type: ignore[method-assign]


def batches(known: Numbers, *, is_skewed: bool) -> list[Numbers]:
    """Draw the keys of each batch, a tenth of them new."""
    rng = np.random.default_rng(11)
    ascending = np.sort(known)
    hot = ascending[-len(known) // 10 :]
    drawn = []
    for _ in range(BATCHES):
        count = BATCH_ROWS * 9 // 10
        old = rng.choice(known, count)
        if is_skewed:
            old = np.concatenate([rng.choice(hot, count * 9 // 10), rng.choice(known, count // 10)])
        drawn.append(np.unique(np.concatenate([old, rng.integers(0, 1 << 63, BATCH_ROWS // 10, np.uint64)])))
    return drawn


def upserted(table: Table, known: Numbers, *, is_skewed: bool) -> tuple[Probes, list[float], list[int]]:
    """Upsert the batches; return what look-ups cost, the seconds of all, and the percent of keys that were kept."""
    made = [rows(numbers, ts=2 + n) for n, numbers in enumerate(batches(known, is_skewed=is_skewed))]
    seconds, hits = [], []
    with MeteredProbes() as probes:
        for batch in made:
            set_memory_budget(0)
            set_memory_budget("256MiB")
            probes.seconds.append(0.0)
            probes.now, start = 0, time.process_time()
            done = table.upsert(batch)
            seconds.append(time.process_time() - start)
            probes.read.append(probes.now)
            hits.append(100 * done.cache_hits // max(1, done.looked_up))
    return probes, seconds, hits


def by_bytes_kept(folder: Path, count: int) -> Shown:
    shown = Shown(
        title=f"{BATCHES} upserts of {BATCH_ROWS:,} rows into {count:,} keys: the first, and the median of the last",
        title_justify="left",
    )
    for name in (
        "keys",
        "may be kept",
        "bytes kept",
        "% found there",
        "look-up, CPU s",
        "MB read",
        "whole upsert, CPU s",
    ):
        shown.add_column(name, justify="left" if name in ("keys", "may be kept") else "right")
    known = np.unique(np.random.default_rng(count).integers(0, 1 << 63, count, np.uint64))
    made = folder / f"made {count}"
    table = a_table(folder, made.name, RecordIndex())
    table.bulk_insert(rows(known, ts=1))
    compact_metadata(table.store)
    for is_skewed in (False, True):
        for name, part in PARTS.items():
            place = folder / f"{count} {is_skewed} {name}"
            shutil.copytree(made, place)
            set_index_cache(int(part * count), folder / f"kept {place.name}")
            probes, seconds, hits = upserted(Table.open(place), known, is_skewed=is_skewed)
            kept = index_cache()
            half = slice(BATCHES // 2, None)
            shown.add_row(
                "nine of ten from a tenth" if is_skewed else "from anywhere",
                name,
                "-" if kept is None else f"{kept.size_bytes():,}",
                f"{hits[0]}, {np.median(hits[half]):.0f}",
                f"{probes.seconds[0]:.2f}, {np.median(probes.seconds[half]):.3f}",
                f"{probes.read[0] / 1e6:.1f}, {np.median(probes.read[half]) / 1e6:.2f}",
                f"{seconds[0]:.2f}, {np.median(seconds[half]):.2f}",
            )
            shutil.rmtree(place)
    set_index_cache(0)
    return shown


def main(arguments: list[str] | None = None, show: Callable[[Any], None] | None = None) -> None:
    def run(folder: Path, counts: list[int]) -> Iterator[Shown]:
        by_bytes_kept(folder, 2_000)  # functions are compiled
        for count in counts:
            yield by_bytes_kept(folder, count)

    try:
        run_in_folder(run, __doc__ or "", [1_000_000], arguments, show)
    finally:
        set_index_cache(0)


if __name__ == "__main__":
    main()
