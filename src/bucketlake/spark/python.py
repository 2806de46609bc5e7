"""Which Python Spark's workers run.

Spark runs `python3`, as the PATH has it, unless it is told otherwise. In a script of a virtual environment that is not
activated that is another Python, without bucketlake. On this machine the right one is the one that runs this process.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WORKERS_PYTHON = "spark.sql.execution.pyspark.python"
"""Spark's setting for it, which a session can be given at any time."""


def settle_python(session: SparkSession) -> None:
    """Let a session whose workers run on this machine use this Python for them, unless somebody chose one."""
    if "PYSPARK_PYTHON" in os.environ or not sys.executable:
        return
    context = getattr(session, "sparkContext", None)  # Spark Connect has none: its workers run elsewhere
    if context is None or not context.master.startswith("local"):
        return
    if all(session.conf.get(name, None) is None for name in (WORKERS_PYTHON, "spark.pyspark.python")):
        session.conf.set(WORKERS_PYTHON, sys.executable)


def python3_is_this() -> bool:
    """Whether the `python3` that Spark finds on the PATH is of the environment of this process."""
    found = shutil.which("python3")
    return found is not None and Path(found).parent.resolve() == Path(sys.executable).parent.resolve()


def name_this_python() -> None:
    """Tell Spark, should this process start it, which Python the driver's is: it plans `format("bucketlake")` with it.

    Where `python3` is this one, as in an environment that is activated, nothing is said: on a cluster Spark lets
    executors use what the driver names, and they may have theirs elsewhere.
    """
    if not sys.executable or {"PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"} & os.environ.keys():
        return
    if not python3_is_this():
        os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
