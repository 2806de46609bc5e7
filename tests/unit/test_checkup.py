"""A doctor who says that all is well where a write would fail is worse than none."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable
from pathlib import Path

import pytest

import bucketlake
from bucketlake import checkup, create_table, doctor
from bucketlake.checkup import Check, Verdict
from bucketlake.commit import clock_skew
from bucketlake.commit.locks import DISK_LOCK_PATH
from bucketlake.storage import LocalStore, MemoryStore


def checked(path: object, name: str) -> Check:
    (found,) = [check for check in doctor(str(path)).checks if check.name == name]
    return found


def test_a_machine_that_runs_these_tests_is_fine(tmp_path: Path) -> None:
    (tmp_path / "orders").mkdir()
    found = doctor(tmp_path / "orders")
    assert found.is_fine, found
    assert {"Python", "PySpark", "Java", "store: put if absent", "clock", "lock"} <= {
        c.name for c in found.checks
    }
    assert "none yet" in checked(tmp_path / "orders", "table").found
    assert not [file for file in tmp_path.rglob("*") if file.is_file()], "what was tried is gone again"


def test_a_folder_that_is_not_there_is_told_and_not_made(tmp_path: Path) -> None:
    found = checked(tmp_path / "typo/deep", "table")
    assert found.verdict is Verdict.WARNING
    assert "Check the path" in found.remedy
    assert not (tmp_path / "typo").exists()


def test_a_table_is_left_as_it_was(tmp_path: Path) -> None:
    create_table(tmp_path / "orders", "id STRING", key="id")
    before = sorted(str(file) for file in tmp_path.rglob("*") if file.is_file())
    assert doctor(tmp_path / "orders").is_fine
    assert sorted(str(file) for file in tmp_path.rglob("*") if file.is_file()) == before


@pytest.mark.parametrize(
    ("operation", "broken", "name"),
    [
        ("put", lambda *_: (_ for _ in ()).throw(PermissionError(13, "no")), "store: put"),
        ("put_new", lambda *_: True, "store: put if absent"),
        ("replace_if", lambda *_: True, "store: replace if unchanged"),
        ("delete", lambda *_: (_ for _ in ()).throw(PermissionError(13, "no")), "store: delete"),
    ],
)
def test_a_store_that_lacks_something_is_told_with_a_remedy(
    monkeypatch: pytest.MonkeyPatch, operation: str, broken: Callable[..., bool], name: str
) -> None:
    monkeypatch.setattr(MemoryStore, operation, broken)
    found = checked(f"memory://doctor-{operation}", name)
    assert found.verdict is Verdict.WRONG
    assert found.remedy


def test_a_clock_that_is_off_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    now = clock_skew.system_ms
    monkeypatch.setitem(clock_skew.clock_skew_ms.__kwdefaults__, "now_ms", lambda: now() - 120_000)
    found = checked("memory://doctor-clock", "clock")
    assert found.verdict is Verdict.WRONG
    assert "120" in found.found and "behind" in found.found


def test_a_lock_that_nobody_gave_back_is_told(tmp_path: Path) -> None:
    create_table(tmp_path, "id STRING", key="id")
    LocalStore(tmp_path).put(DISK_LOCK_PATH, b"")
    assert checked(tmp_path, "lock").verdict is Verdict.FINE
    later = checkup.system_ms() + 600_000
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(checkup, "system_ms", lambda: later)
        found = checked(tmp_path, "lock")
    assert found.verdict is Verdict.WARNING
    assert DISK_LOCK_PATH in found.remedy


def test_a_machine_without_java_is_told_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    (found,) = [check for check in doctor().checks if check.name == "Java"]
    assert found.verdict is Verdict.WARNING
    assert "openjdk-17" in found.remedy
    old = tmp_path / "java"
    old.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\"' >&2\n")
    old.chmod(0o755)
    (found,) = [check for check in doctor().checks if check.name == "Java"]
    assert "11.0.2" in found.found and "expected 17" in found.found


def test_an_old_pyspark_is_told_before_anything_fails_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkup, "version", lambda _: "3.5.4")
    (found,) = [check for check in doctor().checks if check.name == "PySpark"]
    assert found.verdict is Verdict.WRONG
    assert "3.5.4" in found.found


def test_the_package_says_its_version() -> None:
    assert bucketlake.__version__ == importlib.metadata.version("bucketlake")
