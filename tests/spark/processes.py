"""Cases that need a Spark of their own, in a process of their own: a Python process has one JVM.

A script hands its cases to `run_cases`; a test starts it once with `run_script`, and asks for the outcome of each.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[2]
SECONDS_MAX = 400

Outcomes = dict[str, str | None]
"""The name of a case -> the traceback of its failure, None if it did not fail."""


def start_script(name: str, *arguments: str) -> subprocess.Popen[str]:
    """Start a script of this folder. It leads a process group, in which its JVM and its workers are."""
    environment = {
        **os.environ,
        # Executors are other processes, and load the cases' classes by their names.
        "PYTHONPATH": os.pathsep.join([str(PROJECT / "src"), str(PROJECT / "tests")]),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    return subprocess.Popen(
        [sys.executable, "-m", f"spark.{name}", *arguments],
        cwd=PROJECT,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def run_script(name: str, folder: Path) -> Outcomes:
    """Run a script of cases to its end. Its output is shown if a test fails."""
    process = start_script(name, str(folder))
    try:
        output, _ = process.communicate(timeout=SECONDS_MAX)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        output, _ = process.communicate()
        output += f"\n(killed after {SECONDS_MAX} s)"
    print(output)
    found = (json.loads(line) for line in results_of(folder).read_text().splitlines())
    outcomes: Outcomes = {result["case"]: result["error"] for result in found}
    failed = any(error is not None for error in outcomes.values())
    assert (process.returncode != 0) == failed, f"{name} ended with {process.returncode}: {output[-4000:]}"
    return outcomes


def check_outcome(case: str, outcomes: Outcomes) -> None:
    """Fail as the case did in its own process."""
    assert case in outcomes, "the process ended before this case"
    error = outcomes[case]
    if error is not None:
        pytest.fail(error, pytrace=False)


def results_of(folder: Path) -> Path:
    return folder / "results.jsonl"


def run_cases(cases: Mapping[str, Callable[[], None]], folder: Path) -> int:
    """Run each case, whatever becomes of the others; return what the process should exit with."""
    results = results_of(folder)
    results.touch()
    failures = 0
    for name, case in cases.items():
        start, error = time.perf_counter(), None
        try:
            case()
        except Exception:
            error = traceback.format_exc()
            failures += 1
        print(f"{name}: {error or 'passed'} ({time.perf_counter() - start:.1f} s)", flush=True)
        with results.open("a") as file:
            file.write(json.dumps({"case": name, "error": error}) + "\n")
    return 1 if failures else 0


def wait_for(path: Path, *, seconds_max: float = 60) -> None:
    deadline = time.monotonic() + seconds_max
    while not path.exists():
        assert time.monotonic() < deadline, f"{path} did not come to be"
        time.sleep(0.02)


def wait_until_gone(pids: Iterable[int], *, seconds_max: float = 180) -> None:
    deadline = time.monotonic() + seconds_max
    while left := [pid for pid in pids if is_running(pid)]:
        assert time.monotonic() < deadline, f"still running: {left}"
        time.sleep(0.02)


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):  # gone before it was opened, or while it was read
        return False
    return state != "Z"


def let_time_pass(folder: Path) -> None:
    """Make the files in a folder an hour older."""
    an_hour_ago = time.time() - 3600
    for file in folder.rglob("*"):
        os.utime(file, (an_hour_ago, an_hour_ago))
