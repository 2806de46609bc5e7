"""One way to commit: if somebody else publishes, or `commit/` learns an engine's name, what it forgets is lost rows."""

from __future__ import annotations

import ast
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src" / "bucketlake"
ENGINES = {"SimpleIndex", "RuledIndex", "RingIndex", "RulesKeeper", "RingsKeeper"}


def names_in(path: Path) -> set[str]:
    tree = ast.parse(path.read_text())
    found = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    found |= {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    imports = (node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom))
    return found | {alias.name for node in imports for alias in node.names}


def test_only_one_module_writes_completed_instants() -> None:
    publishers = {
        path.relative_to(SOURCE).as_posix() for path in SOURCE.rglob("*.py") if "publish" in names_in(path)
    }
    assert publishers == {"commit/publishing.py", "timeline/__init__.py"}


def test_only_one_module_takes_claims() -> None:
    takers = {
        path.relative_to(SOURCE).as_posix() for path in SOURCE.rglob("*.py") if "Claim" in names_in(path)
    }
    assert {path for path in takers if not path.startswith("commit/")} == {"read/query.py", "read/settled.py"}
    decided = {
        path.relative_to(SOURCE).as_posix()
        for path in (SOURCE / "commit").glob("*.py")
        if "take" in names_in(path)
    }
    assert decided == {"commit/publishing.py"}


def test_who_commits_and_takes_back_knows_no_engine() -> None:
    for path in [*(SOURCE / "commit").glob("*.py"), SOURCE / "services" / "rollback.py"]:
        assert not names_in(path) & ENGINES, path.name
    for service in ("archive", "clean", "savepoint", "compaction"):
        assert not names_in(SOURCE / "services" / f"{service}.py") & ENGINES, service
