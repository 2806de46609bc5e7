"""Index entries to the bytes of an HFile and back: what a record-level index costs per key.

    pytest benchmarks/bench_hfile.py -o python_files='bench_*.py' -o python_functions='bench_*'

Budget, one core, two million UUIDs of 36 bytes with the location of one of 40 file groups each, gzip: 2.5 million
records a second written, 2 million read, 2 million ascending keys looked up; and 27 bytes of file per key.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from bucketlake.hfile import HFile, InMemory, encode

COUNT = 2_000_000
FILE_GROUPS = 40
KEY_BYTES_MAX = 27


@pytest.fixture(scope="module")
def keys() -> Any:
    """Two million random UUIDs in order, as text."""
    numbers = np.random.default_rng(20261118).integers(0, 256, (COUNT, 16), np.uint8)
    hexadecimal = np.array([f"{number:02x}" for number in range(256)], "S2")
    texts = np.sort(hexadecimal[numbers].view("S32").ravel()).view("S1").reshape(COUNT, 32)
    dash = np.full((COUNT, 1), b"-")
    cuts = np.split(texts, [8, 12, 16, 20], axis=1)
    data = np.hstack([part for cut in cuts for part in (cut, dash)][:-1])
    offsets = np.arange(COUNT + 1, dtype=np.int32) * 36
    return pa.Array.from_buffers(
        pa.string(), COUNT, [None, pa.py_buffer(offsets), pa.py_buffer(data.tobytes())]
    )


@pytest.fixture(scope="module")
def values() -> Any:
    """Locations as Hudi encodes them, one per file group."""
    chance = np.random.default_rng(7)
    locations = [
        bytes(6) + b"\x0a\0\0\0\2\2\x14dt=2026-11\2" + chance.bytes(10) + b"\2" + chance.bytes(10)
        + b"\2\0\2\0\2\x80\xb0\xd9\xf1\xcc\x67\0\0\0"
        for _ in range(FILE_GROUPS)
    ]  # fmt: skip
    codes = pa.array(chance.integers(0, FILE_GROUPS, COUNT, np.int32))
    return pa.DictionaryArray.from_arrays(codes, pa.array(locations))


@pytest.fixture(scope="module")
def file(keys: Any, values: Any) -> HFile:
    return HFile.open(InMemory(encode(keys, values)))


def bench_encode_an_hfile(benchmark: BenchmarkFixture, keys: Any, values: Any) -> None:
    data = benchmark(encode, keys, values)
    benchmark.extra_info["keys"] = COUNT
    benchmark.extra_info["bytes per key"] = round(len(data) / COUNT, 1)
    assert len(data) / COUNT <= KEY_BYTES_MAX


def bench_scan_an_hfile(benchmark: BenchmarkFixture, file: HFile, keys: Any) -> None:
    benchmark.extra_info["keys"] = COUNT
    assert benchmark(file.scan).keys.equals(keys.cast(pa.binary()))


def bench_look_up_every_second_key(benchmark: BenchmarkFixture, file: HFile, keys: Any) -> None:
    asked = keys.take(pa.array(np.arange(0, COUNT, 2)))
    benchmark.extra_info["keys"] = len(asked)
    assert len(benchmark(file.look_up, asked).at) == len(asked)


def bench_look_up_keys_in_any_order(benchmark: BenchmarkFixture, file: HFile, keys: Any) -> None:
    asked = keys.take(pa.array(np.random.default_rng(3).permutation(COUNT)[: COUNT // 2]))
    benchmark.extra_info["keys"] = len(asked)
    assert len(benchmark(file.look_up, asked).at) == len(asked)


def bench_look_up_a_few_keys(benchmark: BenchmarkFixture, file: HFile, keys: Any) -> None:
    asked = keys.take(pa.array(np.arange(0, COUNT, COUNT // 1_000)))
    benchmark.extra_info["keys"] = len(asked)
    assert len(benchmark(file.look_up, asked).at) == len(asked)
