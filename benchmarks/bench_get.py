"""One key of a small table that Hudi wrote: what a lookup costs before any data is large.

Budget: 50 ms of CPU. It is opening the table, its timeline, a listing, one base file and the logs over it; a Spark job
takes several times that to be planned.
"""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from bucketlake import Table

GOLDEN = Path(__file__).parents[1] / "tests" / "golden" / "mor_simple_bucket_avro.tar.gz"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    with tarfile.open(GOLDEN) as archive:
        archive.extractall(tmp_path, filter="data")
    return tmp_path / "mor_simple_bucket_avro"


def bench_get_one_key(benchmark: BenchmarkFixture, path: Path) -> None:
    found = benchmark(lambda: Table.open(path, buckets=4).get(1))
    assert found.column("id").to_pylist() == [1]
