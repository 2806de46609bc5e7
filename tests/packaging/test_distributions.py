"""What people install: the wheel and the source distribution, built as a release builds them.

The wheel goes into an environment of its own, without pip and without this folder. The dependencies are those of the
environment that runs the tests, seen through a `.pth` file. So this shows that the wheel is whole, and not that the
versions of dependencies that `pyproject.toml` allows can be had together.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from docs.pages import ROOT, blocks, moved

# The first runs of Spark and of the compiler are in here, and other tests beside.
pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

SOURCE = ROOT / "src"
BUILT_FROM = ("pyproject.toml", "README.md", "LICENSE")


def run(*command: str | Path, folder: Path, **environment: str) -> str:
    """Run a command that knows nothing of this folder; return what it printed."""
    known = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PYSPARK"))}
    done = subprocess.run(
        command, cwd=folder, env={**known, **environment}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def distributions(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Build both from a copy, the wheel from the unpacked source distribution."""
    folder, made = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("dist")
    for name in BUILT_FROM:
        shutil.copy(ROOT / name, folder)
    shutil.copytree(SOURCE, folder / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    # Setuptools leaves what it built in the folder, so a copy also keeps builds of several processes apart.
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", made, folder, folder=folder, **_paths())
    (wheel,), (archive,) = made.glob("*.whl"), made.glob("*.tar.gz")
    return wheel, archive


def _paths() -> dict[str, str]:
    """Keep what the caller has put on the path, but for this project itself."""
    kept = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    return {"PYTHONPATH": os.pathsep.join(path for path in kept if Path(path).resolve() != SOURCE)}


def sources() -> set[str]:
    """Name the files of the package, as an importer sees them."""
    files = [*(SOURCE / "bucketlake").rglob("*"), SOURCE / "pyspark_bucketlake.py"]
    return {
        file.relative_to(SOURCE).as_posix()
        for file in files
        if file.is_file() and "__pycache__" not in file.parts
    }


def test_both_distributions_pass_the_checks_of_the_package_index(distributions: tuple[Path, Path]) -> None:
    run(sys.executable, "-m", "twine", "check", "--strict", *distributions, folder=ROOT)


def test_the_wheel_holds_the_package_and_nothing_else(distributions: tuple[Path, Path]) -> None:
    with zipfile.ZipFile(distributions[0]) as wheel:
        names = wheel.namelist()
    assert {name for name in names if ".dist-info/" not in name} == sources()
    assert {"bucketlake/py.typed", "bucketlake/report/page.html"} <= set(names)
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in names)


def test_the_source_distribution_holds_what_the_wheel_is_built_from(
    distributions: tuple[Path, Path],
) -> None:
    with tarfile.open(distributions[1]) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {f"src/{name}" for name in sources()} | set(BUILT_FROM) <= names
    assert not any(name.startswith("tests") for name in names)


@pytest.fixture(scope="module")
def installed(distributions: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make an environment, install the wheel in it, and return its Python."""
    folder = tmp_path_factory.mktemp("environment")
    run(sys.executable, "-m", "venv", "--without-pip", folder, folder=folder)
    python = folder / "bin/python"
    packages = Path(
        run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", folder=folder).strip()
    )
    # Folders named in a .pth file come last, and .pth files in these are not read: this folder is not among them.
    (packages / "dependencies.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
    pip: Sequence[str | Path] = (sys.executable, "-m", "pip", "--python", python, "install", "--quiet")
    run(*pip, "--no-deps", "--no-index", distributions[0], folder=folder)
    return python


def test_the_readmes_example_runs_where_the_wheel_is_installed(installed: Path, tmp_path: Path) -> None:
    code = "\n".join(block.code for block in blocks((ROOT / "README.md").read_text()))
    program = tmp_path / "example.py"
    check = "assert 'site-packages' in bucketlake.__file__, bucketlake.__file__\nspark.stop()\n"
    program.write_text(f"{moved(code, tmp_path)}\n{check}")
    printed = run(
        installed,
        program,
        folder=tmp_path,
        SPARK_LOCAL_IP="127.0.0.1",
        JAVA_TOOL_OPTIONS="-XX:TieredStopAtLevel=1",
    )
    assert "'amount': 12.0" in printed


def test_the_command_runs_where_the_wheel_is_installed(installed: Path, tmp_path: Path) -> None:
    found = run(installed.with_name("bucketlake"), "--version", folder=tmp_path)
    assert found.startswith("bucketlake ")


def test_the_citation_names_the_version_that_is_built(distributions: tuple[Path, Path]) -> None:
    citation = (ROOT / "CITATION.cff").read_text()
    assert f"\nversion: {distributions[0].name.split('-')[1]}\n" in citation
