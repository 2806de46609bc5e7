"""Cost of giving every partition of a large table its bucket count.

    pytest benchmarks/bench_rules.py -o python_files='bench_*.py' -o python_functions='bench_*'

Budget: 100,000 partitions by ten rules in less than a second on the driver, and what is remembered of the 500,000
partitions that were asked for last in less than 200 MB.
"""

from __future__ import annotations

import tracemalloc
from collections import OrderedDict

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from bucketlake.index import Rules, parse_rules, resolved_counts

COUNT = 100_000
RULES = Rules(
    parse_rules(";".join([*(f"dt=2024-{m:02d}-.*,{m + 1}" for m in range(1, 10)), "^region=eu/,64"])), 4
)


def paths(count: int) -> list[str]:
    return [
        f"region={'eu' if n % 2 else 'us'}/dt=202{n // 12 % 6}-{n % 12 + 1:02d}-{n % 28 + 1:02d}/batch={n:06d}"
        for n in range(count)
    ]


def bench_resolve_100_000_partitions(benchmark: BenchmarkFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    partitions = paths(COUNT)
    benchmark.extra_info["partitions"] = COUNT

    def forget() -> None:
        monkeypatch.setattr(resolved_counts, "_counts", OrderedDict())

    counts = benchmark.pedantic(RULES.counts_of, (partitions,), setup=forget, rounds=3)
    assert len(set(counts)) > 5, "rules that decide nothing would make this number a lie"


def bench_recall_100_000_partitions(benchmark: BenchmarkFixture) -> None:
    partitions = paths(COUNT)
    expected = RULES.counts_of(partitions)
    assert benchmark(RULES.counts_of, partitions) == expected


def bench_memory_of_what_is_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    partitions = paths(COUNT)
    monkeypatch.setattr(resolved_counts, "_counts", OrderedDict())
    tracemalloc.start()
    try:
        for first in range(0, 600_000, COUNT):
            RULES.counts_of([f"{path}/{first}" for path in partitions])
        kept_bytes = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert len(resolved_counts._counts) == resolved_counts.PARTITIONS_KEPT
    assert kept_bytes < 200e6
