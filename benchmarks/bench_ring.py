"""Cost of finding a key's bucket, on a hash ring or in a directory, and of a split, against the number of buckets.

    pytest benchmarks/bench_ring.py -o python_files='bench_*.py' -o python_functions='bench_*'

Budget, one core, hashes in hand: twenty million keys a second among 256 buckets of a ring, and never more than a binary
search takes, so that time grows with the logarithm of the number of buckets at most. Up to some thousand buckets a
directory of the hashes' upper bits leaves little to search. By the directory of extendible buckets, a hundred million
among 1,024. A split rewrites its bucket, however many others there are.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from benchmarks.resizing import (
    LOOKED_UP,
    RING_SIZES,
    directory_of,
    look_up,
    random_hashes,
    ring_of,
    split_one,
)
from bucketlake import ConsistentBuckets, ExtendibleBuckets
from bucketlake.index.rings import GrowingBuckets


@pytest.fixture(scope="module")
def hashes() -> npt.NDArray[np.int32]:
    return random_hashes()


@pytest.mark.parametrize("buckets", RING_SIZES)
def bench_ring_lookup(benchmark: BenchmarkFixture, hashes: npt.NDArray[np.int32], buckets: int) -> None:
    benchmark.extra_info["keys"] = LOOKED_UP
    places = benchmark(ring_of(buckets).nodes_of, hashes)
    assert len(np.unique(places)) == buckets, "keys in few buckets would make this number a lie"


@pytest.mark.shows("C3")
@pytest.mark.parametrize("buckets", RING_SIZES)
def bench_ring_lookup_costs_no_more_than_a_binary_search(buckets: int) -> None:
    cost = look_up(buckets)
    assert cost.ring_s < cost.binary_search_s
    assert buckets > 256 or LOOKED_UP / cost.ring_s > 20e6


@pytest.mark.shows("C3")
@pytest.mark.parametrize("buckets", [1_000, 1_024])
def bench_directory_lookup(benchmark: BenchmarkFixture, hashes: npt.NDArray[np.int32], buckets: int) -> None:
    benchmark.extra_info["keys"] = LOOKED_UP
    places = benchmark(directory_of(buckets).owners, hashes)
    assert len(np.unique(places)) == buckets, "keys in few buckets would make this number a lie"
    assert buckets != 1_024 or LOOKED_UP / look_up(buckets).directory_s > 100e6


@pytest.mark.shows("C4")
@pytest.mark.parametrize("engine", [ConsistentBuckets, ExtendibleBuckets])
def bench_bytes_of_a_split_do_not_depend_on_the_number_of_buckets(
    tmp_path: Path, engine: type[GrowingBuckets]
) -> None:
    costs = [
        split_one(tmp_path / str(buckets), buckets=buckets, large=4_000, small=20, engine=engine)
        for buckets in (4, 16, 64)
    ]
    written = [cost.written_bytes for cost in costs]
    assert max(written) < 1.1 * min(written)
    assert written[0] < 1.2 * costs[0].read_bytes
