"""List every requirement with the tests that show it.

    make features                              print the list
    make features FEATURES_ARGS=--page         write the page docs/features.md

A test says what it shows: `@pytest.mark.shows("S1", "P10")`, on a function, a class or, as `pytestmark`, a module.
"""

from __future__ import annotations

import argparse
import ast
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs/features.md"


def requirements() -> dict[str, dict[str, str]]:
    """Return id -> text, by section title."""
    sections = tomllib.loads((ROOT / "tools/requirements.toml").read_text())
    return {s.pop("title"): s for s in sections.values()}


def shown() -> dict[str, list[str]]:
    """Return id -> the tests that show it."""
    found: dict[str, list[str]] = defaultdict(list)
    for file in sorted(
        [*(ROOT / "tests").rglob("test_*.py"), *(ROOT / "src/bucketlake/testing").rglob("*.py")]
    ):
        for name, ids in _marks(ast.parse(file.read_text())):
            for requirement in ids:
                found[requirement].append(
                    f"{file.relative_to(ROOT)}::{name}" if name else f"{file.relative_to(ROOT)}"
                )
    return found


def _marks(module: ast.Module) -> Iterator[tuple[str, list[str]]]:
    for node in ast.walk(module):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            # A mark may also sit on one case of `parametrize`.
            ids = {i for decorator in node.decorator_list for part in ast.walk(decorator) for i in _ids(part)}
            yield node.name, sorted(ids)
        elif isinstance(node, ast.Assign) and any(getattr(t, "id", "") == "pytestmark" for t in node.targets):
            marks = node.value.elts if isinstance(node.value, ast.List) else [node.value]
            for mark in marks:
                yield "", _ids(mark)


def _ids(mark: ast.AST) -> list[str]:
    if isinstance(mark, ast.Call) and ast.unparse(mark.func) == "pytest.mark.shows":
        return [str(ast.literal_eval(argument)) for argument in mark.args]
    return []


def page() -> str:
    """The page of what is shown by a test, and by how many."""
    tests = shown()
    lines = [
        "# What is shown by a test",
        "",
        "Every requirement has an id, and every test says which ones it shows. `make features` lists the tests.",
    ]
    for title, texts in requirements().items():
        rows = [f"| {one} | {text} | {len(tests[one])} |" for one, text in texts.items() if tests.get(one)]
        if rows:
            lines += ["", f"## {title}", "", "| id | requirement | tests |", "|---|---|---:|", *rows]
    return "\n".join(lines) + "\n"


def main() -> None:
    arguments = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    arguments.add_argument("--page", action="store_true", help="write the page of the docs")
    if arguments.parse_args().page:
        PAGE.write_text(page())
        return
    tests = shown()
    for title, texts in requirements().items():
        print(f"\n{title}")
        for requirement, text in texts.items():
            print(f"  {requirement:4} {text}")
            for test in tests.get(requirement, ["(no test yet)"]):
                print(f"         {test}")


if __name__ == "__main__":
    main()
