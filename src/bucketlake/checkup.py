"""`doctor`: whether this machine, a Spark session and a store have what bucketlake needs, and what to do if not.

Each check says what was found; one that fails says what helps. Nothing is installed or changed. A store is tried with
files of a name of their own, which are deleted again.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from importlib.metadata import PackageNotFoundError, version
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

from bucketlake import given
from bucketlake import spark as on_spark
from bucketlake.commit.clock_skew import SKEW_MAX_MS, clock_skew_ms
from bucketlake.commit.locks import DISK_LOCK_PATH, OBJECT_LOCK_PATH
from bucketlake.compiled import keeps_compiled
from bucketlake.config import load_properties
from bucketlake.errors import BucketlakeError, NotATableError
from bucketlake.storage import LocalStore, Store, open_store
from bucketlake.timeline.clock import system_ms

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JAVA_MIN = 17
PYSPARK_MIN = (4, 1)
LOCK_OLD_MS = 60_000
"""A lock is held for the seconds of a commit."""


class Verdict(StrEnum):
    FINE = "fine"
    WARNING = "warning"
    WRONG = "wrong"


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at."""

    name: str
    verdict: Verdict
    found: str
    remedy: str = ""

    def __str__(self) -> str:
        mark = {Verdict.FINE: "ok     ", Verdict.WARNING: "warning", Verdict.WRONG: "WRONG  "}[self.verdict]
        return f"{mark} {self.name}: {self.found}" + (f"\n        {self.remedy}" if self.remedy else "")


@dataclass(frozen=True, slots=True)
class Checkup:
    """What was looked at; prints as a list."""

    checks: tuple[Check, ...]

    @property
    def is_fine(self) -> bool:
        """Whether nothing is wrong; warnings do not count."""
        return all(check.verdict is not Verdict.WRONG for check in self.checks)

    def __str__(self) -> str:
        return "\n".join(map(str, self.checks))


def doctor(
    path: str | PathLike[str] | None = None,
    *,
    spark: SparkSession | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> Checkup:
    """Check this machine; the store of `path`, a table or a folder that may become one; and the workers of `spark`."""
    checks = [_python(), _pyspark(), _java(), _compiled()]
    if spark is not None:
        checks += on_workers(given.session_of(spark, "None leaves Spark out."))
    if path is not None:
        checks += _store(open_store(given.path_text(path), storage_options))
    return Checkup(tuple(checks))


def _python() -> Check:
    return Check("Python", Verdict.FINE, f"{sys.version.split()[0]}, {sys.executable}")


def _pyspark() -> Check:
    try:
        found = version("pyspark")
    except PackageNotFoundError:
        return Check("PySpark", Verdict.WRONG, "not installed", "pip install 'pyspark>=4.1,<4.2'")
    numbers = tuple(int(number) for number in re.findall(r"\d+", found)[:2])
    if numbers < PYSPARK_MIN:
        remedy = "Without Spark everything works. For Spark: pip install 'pyspark>=4.1,<4.2'"
        return Check("PySpark", Verdict.WRONG, f"{found}; expected 4.1 or newer", remedy)
    return Check("PySpark", Verdict.FINE, found)


def _java() -> Check:
    remedy = (
        "Without Java, rows in memory are written and read all the same. For Spark: install Java 17 or newer "
        "(Debian: apt-get install openjdk-17-jre-headless), or set JAVA_HOME."
    )
    home = os.environ.get("JAVA_HOME")
    program = str(Path(home) / "bin/java") if home else shutil.which("java")
    if program is None:
        return Check("Java", Verdict.WARNING, "none on the PATH, and JAVA_HOME is not set", remedy)
    try:
        said = subprocess.run([program, "-version"], capture_output=True, text=True, timeout=60, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        return Check("Java", Verdict.WARNING, f"{program} does not run: {error}", remedy)
    found = re.search(r'version "(\d+)([^"]*)"', said.stderr + said.stdout)
    if found is None or int(found[1]) < JAVA_MIN:
        name = "of an unknown version" if found is None else found[1] + found[2]
        return Check("Java", Verdict.WARNING, f"{name}, {program}; expected {JAVA_MIN} or newer", remedy)
    return Check("Java", Verdict.FINE, f"{found[1]}{found[2]}, {program}")


def _compiled() -> Check:
    place = keeps_compiled()
    if place is None:
        return Check(
            "compiled functions",
            Verdict.WARNING,
            "there is no folder to keep them in: every process compiles anew, which takes seconds",
            "Set NUMBA_CACHE_DIR to a folder that can be written to.",
        )
    return Check("compiled functions", Verdict.FINE, f"kept in {place}")


def on_workers(session: SparkSession) -> list[Check]:
    """Check what Spark's workers run."""
    found, fault = on_spark.workers.ask_a_worker(session)
    name = "Spark's workers"
    if found is None:
        remedy = (
            "Install bucketlake in the Python that executors run, and name it by PYSPARK_PYTHON before the session is "
            "made. See the page 'On a cluster'."
        )
        return [Check(name, Verdict.WRONG, fault, remedy)]
    ours = version("bucketlake")
    if found.version != ours:
        remedy = "Install the same version on driver and executors."
        found_text = f"bucketlake {found.version} on executors, {ours} here"
        return [Check(name, Verdict.WRONG, found_text, remedy)]
    return [Check(name, Verdict.FINE, f"bucketlake {found.version}, {found.executable}")]


def _store(store: Store) -> Iterator[Check]:
    """Try the seven operations, in the order in which a write needs them."""
    if isinstance(store, LocalStore) and not Path(store.root).exists():
        found, remedy = f"no folder {store.root}", "Check the path. Who makes a table there makes the folder."
        yield Check("table", Verdict.WARNING, found, remedy)
        return
    prefix = f".bucketlake-doctor-{secrets.token_hex(8)}"
    try:
        try:
            load_properties(store)
            prefix = f".hoodie/.bucketlake/doctor-{secrets.token_hex(8)}"
            yield Check("table", Verdict.FINE, store.uri)
        except NotATableError:
            yield Check("table", Verdict.FINE, f"none yet at {store.uri}")
    except (BucketlakeError, OSError) as error:
        yield Check("table", Verdict.WRONG, str(error), "Check the path and the rights to read it.")
        return
    one, other = f"{prefix}-1", f"{prefix}-2"
    steps: list[tuple[str, Callable[[], str], str]] = [
        ("list", lambda: f"{len(store.list('').folders):,} folders", "Grant the right to list the folder."),
        ("put", lambda: _put(store, one), "Grant the right to write files, and make room."),
        (
            "read",
            lambda: _expect(store.read(one) == b"a", "another content than was put"),
            "Grant the right to read.",
        ),
        (
            "put if absent",
            lambda: _expect(
                store.put_new(other, b"a") and not store.put_new(other, b"b"), "the second put won too"
            ),
            "The store must refuse to put a file that is there. S3 can; of others take a version that can.",
        ),
        (
            "replace if unchanged",
            lambda: _expect(
                not store.replace_if(other, b"c", "no version"),
                "a file was replaced though its version was another",
            ),
            "The store must honour conditional puts.",
        ),
        ("delete", lambda: _delete(store, one, other), "Grant the right to delete files."),
    ]
    for name, step, remedy in steps:
        try:
            found = step()
        except (BucketlakeError, OSError) as error:
            yield Check(f"store: {name}", Verdict.WRONG, str(error), remedy)
            return
        yield Check(f"store: {name}", Verdict.FINE, found)
    yield _clock(store)
    yield from _lock(store)


def _put(store: Store, path: str) -> str:
    store.put(path, b"a")
    return "done"


def _expect(is_so: bool, otherwise: str) -> str:
    if not is_so:
        raise OSError(otherwise)
    return "done"


def _delete(store: Store, *paths: str) -> str:
    for path in paths:
        store.delete(path)
    return "done"


def _clock(store: Store) -> Check:
    skew = clock_skew_ms(store)
    found = (
        f"{abs(skew) / 1000:.1f} s {'ahead of' if skew > 0 else 'behind'} the store's" if skew else "agrees"
    )
    if abs(skew) > SKEW_MAX_MS:
        return Check(
            "clock", Verdict.WRONG, found, "Set this machine's clock, e.g. by NTP. Writes are refused."
        )
    return Check("clock", Verdict.FINE, found)


def _lock(store: Store) -> Iterator[Check]:
    for path in (DISK_LOCK_PATH, OBJECT_LOCK_PATH):
        try:
            file = store.stat(path)
        except FileNotFoundError:
            continue
        if path == OBJECT_LOCK_PATH and b'"expired": true' in store.read(path).replace(b'":true', b'": true'):
            continue
        age = (system_ms() - file.modified_ms) / 1000
        if age * 1000 < LOCK_OLD_MS:
            yield Check("lock", Verdict.FINE, f"held by a writer for {age:.0f} s")
        else:
            remedy = (
                "A lock of ours is taken over after five minutes. Hudi's on a disk is not: if its writer is dead, "
                f"delete {path}."
            )
            yield Check("lock", Verdict.WARNING, f"held for {age:.0f} s", remedy)
        return
    yield Check("lock", Verdict.FINE, "free")
