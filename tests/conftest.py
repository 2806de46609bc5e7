"""What tests of every kind share: the judges, a Spark session, the golden tables."""

from __future__ import annotations

import os
import random
import sys
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path

import hypothesis
import pytest
from pyspark.sql import SparkSession

from judges.hudi_jvm import HudiJvm, JudgeMissing
from judges.random_tables import BuiltTable, build, describe
from plugins.soak import IS_SOAK, MINUTES
from servers.s3 import GO_IS_MISSING, S3Server, build_s3_server, running_s3_server

pytest_plugins = ("plugins.crash_points", "plugins.parts")

GOLDEN = Path(__file__).parent / "golden"

# A failing example prints a blob that replays it. No deadline: the first call of a kernel compiles it. A run of the
# suite always tries the same examples, so that it fails for what changed; new ones are the soak's to find.
hypothesis.settings.register_profile(
    "ci", max_examples=60, deadline=None, print_blob=True, derandomize=True, database=None
)
hypothesis.settings.register_profile(
    "soak", max_examples=max(60, int(500 * MINUTES / 60)), deadline=None, print_blob=True
)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))

if not IS_SOAK:
    # Whether the model finds faults that are put back takes it many minutes.
    collect_ignore = ["property/test_machine_finds_faults.py"]


@pytest.fixture(scope="session")
def hudi() -> Iterator[HudiJvm]:
    """Hudi on the JVM. A machine without it fails these tests, unless its owner says otherwise, and never in CI."""
    judge = HudiJvm()
    try:
        judge.ping()
    except JudgeMissing as missing:
        if os.environ.get("BUCKETLAKE_WITHOUT_JVM_JUDGE") == "1" and os.environ.get("CI") != "true":
            pytest.skip(f"BUCKETLAKE_WITHOUT_JVM_JUDGE=1: {missing}")
        pytest.fail(
            f"{missing} (BUCKETLAKE_WITHOUT_JVM_JUDGE=1 skips these tests outside CI.)", pytrace=False
        )
    yield judge
    judge.stop()


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """A local session of the Spark this library runs on."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    session = (
        SparkSession.builder.master("local[2]")
        .appName("bucketlake-tests")
        .config("spark.driver.memory", "2g")
        .config("spark.driver.extraJavaOptions", "-Duser.timezone=UTC -XX:TieredStopAtLevel=1")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.python.filterPushdown.enabled", "true")
        .getOrCreate()
    )
    yield session
    session.stop()


@pytest.fixture(scope="session")
def random_table(hudi: HudiJvm, tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], BuiltTable]:
    """Return the table that Hudi makes of a seed, built once for all tests that ask for it: read it, never write it."""
    root = tmp_path_factory.mktemp("random")
    built: dict[int, BuiltTable] = {}

    def table(seed: int) -> BuiltTable:
        if seed not in built:
            built[seed] = build(hudi, describe(random.Random(seed)), root / f"seed-{seed}")
        return built[seed]

    return table


@pytest.fixture(scope="session")
def golden_table(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Return the folder of a golden table, unpacked once and shared: read it, never write it."""
    root = tmp_path_factory.mktemp("golden")

    def unpack(name: str) -> Path:
        folder = root / name
        if not folder.exists():
            with tarfile.open(GOLDEN / f"{name}.tar.gz") as archive:
                archive.extractall(root, filter="data")
        return folder

    return unpack


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """A real S3 server on loopback. A machine without Go leaves these tests out, but never in CI."""
    if not build_s3_server():
        if os.environ.get("CI") == "true":
            pytest.fail(GO_IS_MISSING, pytrace=False)
        pytest.skip(GO_IS_MISSING)
    with running_s3_server(tmp_path_factory.mktemp("s3")) as server:
        yield server
