"""Keys looked up in what a machine keeps of an index: how many a second, and how many bytes each takes.

    pytest benchmarks/bench_known_keys.py -o python_files='bench_*.py' -o python_functions='bench_*'

Budget, one core, two million keys of one shard, hashes in hand: fifteen million keys a second looked up, whether they
are there or not, and ten bytes of file for each key, what the file says of itself included.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from bucketlake.index.known_keys import NOWHERE, KnownKeys, decode_known_keys, encode_known_keys

KNOWN = 2_000_000
ASKED = 1_000_000
FILE_GROUPS = 40
KEY_BYTES_MAX = 10
PLACES = [("dt=2026-06-18", f"{number:08d}-159a-4953-a3c4-b777b847ae7f-0") for number in range(FILE_GROUPS)]


@pytest.fixture(scope="module")
def hashes() -> Any:
    return np.random.default_rng(20261119).integers(0, 1 << 64, KNOWN, np.uint64, endpoint=False)


@pytest.fixture(scope="module")
def file(hashes: Any) -> bytes:
    codes = np.random.default_rng(7).integers(0, FILE_GROUPS, KNOWN)
    return b"".join(encode_known_keys(KnownKeys.of(hashes, codes, PLACES), {"table": "t"}))


@pytest.mark.shows("D4")
@pytest.mark.parametrize("are_there", [True, False], ids=["known", "new"])
def bench_look_up_keys(benchmark: BenchmarkFixture, file: bytes, hashes: Any, are_there: bool) -> None:
    found = decode_known_keys(memoryview(file))
    assert found is not None
    known, asked = found[0], np.random.default_rng(9).permutation(hashes)[:ASKED] ^ np.uint64(not are_there)
    look_up: Callable[[], Any] = lambda: known.look_up(asked)  # noqa: E731 # it is what is measured
    places = benchmark(look_up)
    benchmark.extra_info["keys"] = ASKED
    assert ((places != NOWHERE) == are_there).all()
    assert len(file) <= KEY_BYTES_MAX * KNOWN


def bench_keep_keys(benchmark: BenchmarkFixture, hashes: Any) -> None:
    codes = np.random.default_rng(7).integers(0, FILE_GROUPS, KNOWN)
    benchmark.extra_info["keys"] = KNOWN
    known = benchmark(KnownKeys.of, hashes, codes, PLACES)
    assert len(known) == KNOWN


def bench_open_what_is_kept(benchmark: BenchmarkFixture, file: bytes) -> None:
    benchmark.extra_info["keys"] = KNOWN
    assert benchmark(decode_known_keys, memoryview(file)) is not None
