"""Cost of finding a key's owner on a hash ring, and of splitting one of its buckets, against the number of buckets.

    pytest benchmarks/bench_ring.py -o python_files='bench_*.py' -o python_functions='bench_*'

Budget, one core, hashes in hand: twenty million keys a second among 256 buckets, and never more than a binary search
takes, so that time grows with the logarithm of the number of buckets at most. Up to some thousand buckets a directory
of the hashes' upper bits leaves little to search. A split rewrites its bucket, however many others there are.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from benchmarks.resizing import split_one
from bucketlake.index import Node, Ring
from bucketlake.index.ring import HASH_MAX

COUNT = 1_000_000
BUCKETS = (16, 256, 4096, 65536)


def ring_of(buckets: int) -> Ring:
    ends = np.linspace(0, HASH_MAX, buckets + 1).astype(np.int64)[1:]
    return Ring(tuple(Node(end, f"{number:08d}") for number, end in enumerate(ends.tolist())))


@pytest.fixture(scope="module")
def hashes() -> npt.NDArray[np.int32]:
    return np.random.default_rng(7).integers(0, HASH_MAX, COUNT, np.int32)


@pytest.mark.parametrize("buckets", BUCKETS)
def bench_ring_lookup(benchmark: BenchmarkFixture, hashes: npt.NDArray[np.int32], buckets: int) -> None:
    benchmark.extra_info["keys"] = COUNT
    places = benchmark(ring_of(buckets).nodes_of, hashes)
    assert len(np.unique(places)) == buckets, "keys in few buckets would make this number a lie"


@pytest.mark.shows("C3")
@pytest.mark.parametrize("buckets", BUCKETS)
def bench_ring_lookup_costs_no_more_than_a_binary_search(hashes: npt.NDArray[np.int32], buckets: int) -> None:
    ring = ring_of(buckets)
    values = np.array([node.value for node in ring.nodes], np.int32)
    ours = _least_cpu_s(lambda: ring.nodes_of(hashes))
    searched = _least_cpu_s(lambda: np.searchsorted(values, hashes))
    assert ours < searched
    assert buckets > 256 or COUNT / ours > 20e6


def _least_cpu_s(work: Callable[[], object]) -> float:
    taken = []
    for _ in range(7):
        start = time.thread_time()
        work()
        taken.append(time.thread_time() - start)
    return min(taken)


@pytest.mark.shows("C4")
def bench_bytes_of_a_split_do_not_depend_on_the_number_of_buckets(tmp_path: Path) -> None:
    costs = [
        split_one(tmp_path / str(buckets), buckets=buckets, large=4_000, small=20) for buckets in (4, 16, 64)
    ]
    written = [cost.written_bytes for cost in costs]
    assert max(written) < 1.05 * min(written)
    assert written[0] < 1.2 * costs[0].read_bytes
