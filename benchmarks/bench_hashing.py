"""Cost of finding a key's place when the index is arithmetic.

    pytest benchmarks/bench_hashing.py -o python_files='bench_*.py' -o python_functions='bench_*'

Budget, one core, twenty-byte ASCII keys of one field: ten million keys a second for the bucket hash, or
tagging costs more than the shuffle behind it. The ring hash has the same budget; keys of several fields, which
have to be cut first, half of it. The readable functions in `index/hashing.py` miss it by far:
they are the oracle in tests.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from bucketlake.index import buckets_of, ring_hashes_of

COUNT = 1_000_000


@pytest.fixture(scope="module")
def one_field_keys() -> Any:
    return pa.array([f"customer-key-{number:07d}" for number in range(COUNT)])


@pytest.fixture(scope="module")
def composite_keys() -> Any:
    return pa.array([f"k1:c-{number % 9973:04d},k2:{number:07d}" for number in range(COUNT)])


def bench_buckets_of_one_field_keys(benchmark: BenchmarkFixture, one_field_keys: Any) -> None:
    benchmark.extra_info["keys"] = COUNT
    buckets = benchmark(buckets_of, one_field_keys, ["id"], 256)
    assert len(set(buckets.tolist())) == 256, "a skewed hash would make this number a lie"


def bench_buckets_of_composite_keys(benchmark: BenchmarkFixture, composite_keys: Any) -> None:
    benchmark.extra_info["keys"] = COUNT
    buckets = benchmark(buckets_of, composite_keys, ["k1"], 256)
    assert len(set(buckets.tolist())) > 128, "one bucket for all would mean that nothing was cut"


def bench_ring_hashes_of_one_field_keys(benchmark: BenchmarkFixture, one_field_keys: Any) -> None:
    benchmark.extra_info["keys"] = COUNT
    hashes = benchmark(ring_hashes_of, one_field_keys, ["id"])
    assert len(set(hashes.tolist())) > 0.99 * COUNT


def bench_ring_hashes_of_composite_keys(benchmark: BenchmarkFixture, composite_keys: Any) -> None:
    benchmark.extra_info["keys"] = COUNT
    hashes = benchmark(ring_hashes_of, composite_keys, ["k1", "k2"])
    assert len(set(hashes.tolist())) > 0.99 * COUNT
