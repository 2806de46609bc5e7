"""House rules that no linter ships. Each message is the rule's reason."""

import ast
import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import bucketlake

ROOT = Path(__file__).parents[2]
SOURCES = sorted((ROOT / "src").rglob("*.py"))


def _tool(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / f"tools/{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_imports_sit_at_the_top_of_the_file() -> None:
    offenders = [
        f"{file.relative_to(ROOT)}:{node.lineno}"
        for file in SOURCES
        for function in ast.walk(ast.parse(file.read_text()))
        if isinstance(function, ast.FunctionDef)
        for node in ast.walk(function)
        if isinstance(node, ast.Import | ast.ImportFrom)
    ]
    assert offenders == [], "an import inside a function hides a cycle"


def test_every_module_says_what_it_is() -> None:
    silent = [
        str(f.relative_to(ROOT))
        for f in SOURCES
        if f.read_text().strip() and not ast.get_docstring(ast.parse(f.read_text()))
    ]
    assert silent == [], "a reader opens a file to learn what is in it"


def test_importing_bucketlake_imports_no_spark() -> None:
    code = "import sys, bucketlake; bucketlake.Table; sys.exit('pyspark' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_public_list_is_exactly_what_is_exported() -> None:
    public = {name for name in vars(bucketlake) if not name.startswith("_")}
    modules = {name for name in public if isinstance(getattr(bucketlake, name), ModuleType)}
    assert set(bucketlake.__all__) == public - modules


def test_every_id_a_test_claims_to_show_is_a_requirement() -> None:
    features = _tool("features")
    known = {requirement for texts in features.requirements().values() for requirement in texts}
    assert set(features.shown()) <= known


def test_the_page_of_features_is_up_to_date() -> None:
    features = _tool("features")
    assert features.PAGE.read_text() == features.page(), "run: make features FEATURES_ARGS=--page"


def test_the_figures_of_the_readme_are_those_of_the_page() -> None:
    figures, readme = _tool("figures"), (ROOT / "README.md").read_text()
    measured, found = figures.read_page(figures.PAGE.read_text())
    assert figures.readme_with(readme, figures.table(measured, found)) == readme, (
        "run: python tools/figures.py"
    )
    assert figures.plot(found) == figures.PLOT.read_text(), "run: python tools/figures.py"


@pytest.mark.parametrize(
    ("pattern", "home", "reason"),
    [
        (
            r"\bcache=True",
            "compiled.py",
            "there is not always a place for numba's cache: use bucketlake.compiled",
        ),
        (
            r"(rows|records|batch|table|piece|part)\.nbytes",
            "sizes.py",
            "ends the process for some rows of Spark's",
        ),
    ],
)
def test_what_fails_for_some_users_is_called_in_one_place(pattern: str, home: str, reason: str) -> None:
    offenders = [f for f in SOURCES if re.search(pattern, f.read_text()) and f.name != home]
    assert offenders == [], reason


@pytest.mark.parametrize("pattern", [r"\bTODO\b", r"\bFIXME\b", r"\bXXX\b", r"NotImplementedError"])
def test_nothing_is_left_for_later(pattern: str) -> None:
    offenders = [str(f.relative_to(ROOT)) for f in SOURCES if re.search(pattern, f.read_text())]
    assert offenders == [], "unfinished work belongs in an issue, not in the source"
