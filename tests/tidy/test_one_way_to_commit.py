"""One way to commit: if somebody else publishes, or `commit/` learns an engine's name, what it forgets is lost rows."""

from __future__ import annotations

import ast
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src" / "bucketlake"
ENGINES = {"SimpleIndex", "RuledIndex", "RingIndex", "RulesKeeper", "RingsKeeper", "DynamicIndex"}
VALUES = {"SimpleBuckets", "PartitionBuckets", "ConsistentBuckets", "DynamicBuckets"}


def names_in(path: Path) -> set[str]:
    tree = ast.parse(path.read_text())
    found = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    found |= {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    imports = (node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom))
    return found | {alias.name for node in imports for alias in node.names}


def test_only_one_module_writes_completed_instants_to_each_of_the_two_timelines() -> None:
    publishers = {
        path.relative_to(SOURCE).as_posix() for path in SOURCE.rglob("*.py") if "publish" in names_in(path)
    }
    assert publishers == {"commit/publishing.py", "commit/metadata_table.py", "timeline/__init__.py"}


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


def test_only_the_index_package_knows_engines_by_their_classes() -> None:
    for path in SOURCE.rglob("*.py"):
        if path.relative_to(SOURCE).parts[0] != "index":
            assert not names_in(path) & ENGINES, path.name
    for path in [*(SOURCE / "commit").glob("*.py"), *(SOURCE / "services").glob("*.py")]:
        assert not names_in(path) & VALUES, path.name
