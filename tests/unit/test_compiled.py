"""Kernels for a user without a home, whose packages somebody else has installed: numba finds no place to keep them."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import bucketlake

# The one module without its package, which would compile kernels of its own anew for every place.
PROGRAM = f"""
import sys
from types import ModuleType

package = ModuleType("bucketlake")
package.__path__ = [{str(Path(bucketlake.__file__).parent)!r}]
sys.modules["bucketlake"] = package

from bucketlake.compiled import compiled

@compiled()
def twice(number):
    return 2 * number

@compiled("int64(int64)")
def thrice(number):
    return 3 * number

print(twice(21), thrice(21), twice.stats.cache_path, sum(twice.stats.cache_hits.values()))
"""


def run(folder: Path, **environment: str) -> tuple[list[str], str]:
    """Run the program where neither its folder nor a home takes a file; return what it printed and what it logged."""
    folder.mkdir(exist_ok=True)
    (folder / "program.py").write_text(PROGRAM)
    (folder / "__pycache__").touch()  # no folder, so that not even the superuser can write into it
    known = {
        name: value for name, value in os.environ.items() if name not in ("XDG_CACHE_HOME", "NUMBA_CACHE_DIR")
    }
    done = subprocess.run(
        [sys.executable, "-W", "error", folder / "program.py"],
        env={**known, "HOME": os.devnull, "TMPDIR": str(folder), **environment},
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split(), done.stderr


def test_what_is_compiled_is_kept_in_a_temporary_folder_if_there_is_no_other(tmp_path: Path) -> None:
    own = tmp_path / f"bucketlake-{os.getuid()}"
    for hits in ("0", "1"):
        (twice, thrice, place, found), said = run(tmp_path)
        assert (twice, thrice, found) == ("42", "63", hits)
        assert own in Path(place).parents
        assert len(said.splitlines()) == 1 and str(own) in said and "NUMBA_CACHE_DIR" in said
    assert own.stat().st_mode & 0o777 == 0o700


def test_without_a_temporary_folder_of_ones_own_nothing_is_kept(tmp_path: Path) -> None:
    """What is found in a folder that others may write to is not run."""
    own = tmp_path / f"bucketlake-{os.getuid()}"
    own.mkdir()
    own.chmod(0o777)
    printed, said = run(tmp_path)
    assert printed == ["42", "63", "None", "0"]
    assert len(said.splitlines()) == 1 and str(own) in said and "NUMBA_CACHE_DIR" in said
    assert list(own.iterdir()) == []


def test_a_folder_that_the_user_names_is_taken(tmp_path: Path) -> None:
    (*_, place, _), said = run(tmp_path / "program", NUMBA_CACHE_DIR=str(tmp_path / "named"))
    assert tmp_path / "named" in Path(place).parents and said == ""


def test_who_compiles_first_is_told_so_once_on_a_terminal(tmp_path: Path) -> None:
    """In a pipe nothing is said, and of what was kept neither: the other tests here see that."""
    (tmp_path / "program.py").write_text(PROGRAM)
    said = []
    for _ in range(2):
        terminal, stderr = pty.openpty()
        with os.fdopen(terminal, "rb", buffering=0) as screen:
            subprocess.run(
                [sys.executable, tmp_path / "program.py"],
                env={**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "kept")},
                stdout=subprocess.DEVNULL,
                stderr=stderr,
                check=True,
            )
            os.write(stderr, b"end")
            shown = b""
            while not shown.endswith(b"end"):  # a terminal gives what it has
                shown += screen.read(4096)
            os.close(stderr)
            said.append(shown.decode())
    line = "bucketlake: compiling for this machine, once; this takes a few seconds\r\n"
    assert said == [f"{line}end", "end"]
