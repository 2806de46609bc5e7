"""A script of a virtual environment that is not activated: the PATH has another Python, which knows nothing of us."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.errors import PythonException

from bucketlake import ConfigError
from bucketlake.spark.python import WORKERS_PYTHON, name_this_python, settle_python
from bucketlake.spark.write import own_errors
from spark.processes import PROJECT

PROGRAM = """
import sys
import bucketlake
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
rows = spark.range(100).selectExpr("CAST(id AS STRING) AS id", "id AS n")
table = bucketlake.create_table(sys.argv[1], rows, key="id", ordering="n", table_type="MERGE_ON_READ")
table.upsert(rows)
table.upsert(rows.limit(10).selectExpr("id", "n + 1000 AS n"))
assert table.read(spark, filters=[("n", ">=", 1000)]).count() == 10
assert bucketlake.sql(spark, f"SELECT * FROM bucketlake.`{sys.argv[1]}` WHERE n >= 1000").count() == 10
assert spark.read.format("bucketlake").load(sys.argv[1]).count() == 100
table.compact(spark=spark)
print("all done")
"""


def path_without_us(folder: Path) -> str:
    """Make a folder with a `python3` that can do nothing; return a PATH that begins with it."""
    folder.mkdir()
    (folder / "python3").write_text("#!/bin/sh\necho no bucketlake here >&2\nexit 1\n")
    (folder / "python3").chmod(0o755)
    java = shutil.which("java")
    return os.pathsep.join([str(folder), *([str(Path(java).parent)] if java else []), "/usr/bin", "/bin"])


@pytest.mark.spark
def test_workers_on_this_machine_run_the_python_of_the_script(tmp_path: Path) -> None:
    known = {name: value for name, value in os.environ.items() if not name.startswith("PYSPARK_")}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, tmp_path / "table"],
        env={
            **known,
            "PATH": path_without_us(tmp_path / "bin"),
            "PYTHONPATH": str(PROJECT / "src"),
            "SPARK_LOCAL_IP": "127.0.0.1",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.strip().endswith("all done"), done.stderr[-4000:]


def a_session(master: str | None, **settings: str) -> Any:
    """Stand in for a session: `master` is None for one of Spark Connect."""
    conf = SimpleNamespace(get=settings.get, set=settings.__setitem__, settings=settings)
    context = {} if master is None else {"sparkContext": SimpleNamespace(master=master)}
    return SimpleNamespace(conf=conf, **context)


@pytest.mark.parametrize(
    ("session", "environment", "is_ours"),
    [
        (a_session("local[4]"), {}, True),
        (a_session("local[4]"), {"PYSPARK_PYTHON": "/their/python"}, False),
        (a_session("local[4]", **{WORKERS_PYTHON: "/their/python"}), {}, False),
        (a_session("local[4]", **{"spark.pyspark.python": "/their/python"}), {}, False),
        (a_session("spark://host:7077"), {}, False),
        (a_session(None), {}, False),
    ],
)
def test_only_workers_on_this_machine_that_nobody_chose_a_python_for_get_ours(
    session: Any, environment: dict[str, str], is_ours: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    settle_python(session)
    assert (session.conf.get(WORKERS_PYTHON) == sys.executable) is is_ours


@pytest.mark.parametrize("named", [True, False])
def test_the_settings_have_our_daemon_only_where_the_python_that_spark_runs_has_bucketlake(
    named: bool, tmp_path: Path
) -> None:
    """Spark runs that Python to make a frame of a list, whatever a session says later of workers."""
    known = {name: value for name, value in os.environ.items() if not name.startswith("PYSPARK_")}
    chosen = {"PYSPARK_PYTHON": sys.executable} if named else {}
    done = subprocess.run(
        [sys.executable, "-c", "import bucketlake; print('daemon' in str(bucketlake.SPARK_SETTINGS))"],
        env={
            **known,
            **chosen,
            "PATH": path_without_us(tmp_path / "bin"),
            "PYTHONPATH": str(PROJECT / "src"),
        },
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == str(named)


@pytest.mark.parametrize("is_activated", [True, False])
def test_the_driver_names_its_python_only_if_the_path_leads_to_another(
    is_activated: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
        monkeypatch.delenv(name, raising=False)
    own = tmp_path / "own"
    own.mkdir()
    (own / "python3").touch(mode=0o755)
    monkeypatch.setattr(sys, "executable", str(own / "python"))
    monkeypatch.setenv("PATH", str(own) if is_activated else path_without_us(tmp_path / "bin"))
    name_this_python()
    assert os.environ.get("PYSPARK_DRIVER_PYTHON") == (None if is_activated else sys.executable)
    monkeypatch.delenv("PYSPARK_DRIVER_PYTHON", raising=False)


@pytest.mark.parametrize(
    "problem",
    [
        "ModuleNotFoundError: No module named 'bucketlake'",
        "[PYTHON_VERSION_MISMATCH] Python in worker has different version: 3.9 than that in driver: 3.11",
        'java.io.IOException: Cannot run program "/my/.venv/bin/python": error=2, No such file or directory',
    ],
)
def test_executors_elsewhere_without_us_are_an_error_that_says_what_to_set(problem: str) -> None:
    with pytest.raises(ConfigError, match=f"PYSPARK_PYTHON.*{WORKERS_PYTHON}"), own_errors():
        raise PythonException(f"Job aborted.\nTraceback:\n{problem}\n  at java.lang.Thread")
