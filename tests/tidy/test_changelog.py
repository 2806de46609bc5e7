"""The changelog is compiled from fragments, a file for each change."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def changelog() -> ModuleType:
    spec = importlib.util.spec_from_file_location("tools_changelog", ROOT / "tools/changelog.py")
    assert spec is not None and spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A project with two changes, and one release."""
    (tmp_path / "changes").mkdir()
    (tmp_path / "changes/get.fix.md").write_text("`get` finds it.\nAlways.\n")
    (tmp_path / "changes/engines.feature.md").write_text("An engine.\n")
    page = "# Changelog\n\n<!-- releases -->\n\n## 0.1.0 (2026-01-02)\n\n### New\n\n- All.\n"
    (tmp_path / "CHANGELOG.md").write_text(page)
    return tmp_path


def test_the_fragments_of_this_project_can_be_compiled(changelog: ModuleType) -> None:
    found = changelog.fragments(ROOT / "changes")
    page = (ROOT / "CHANGELOG.md").read_text()
    if found:
        assert "## 9.9.9 (2026-06-18)" in changelog.with_release(page, found, "9.9.9", "2026-06-18")


def test_a_release_stands_above_those_before_and_takes_the_fragments(
    changelog: ModuleType, root: Path
) -> None:
    changelog.main(root, {"version": "0.2.0", "date": "2026-06-18"})
    assert (root / "CHANGELOG.md").read_text() == (
        "# Changelog\n\n<!-- releases -->\n\n## 0.2.0 (2026-06-18)\n\n### New\n\n- An engine.\n\n### Fixed\n\n"
        "- `get` finds it.\n  Always.\n\n## 0.1.0 (2026-01-02)\n\n### New\n\n- All.\n"
    )
    assert list((root / "changes").iterdir()) == []


def test_without_a_version_the_release_is_only_printed(
    changelog: ModuleType, root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = (root / "CHANGELOG.md").read_text()
    changelog.main(root, {})
    assert "An engine." in capsys.readouterr().out
    assert (root / "CHANGELOG.md").read_text() == before and len(list((root / "changes").iterdir())) == 2


@pytest.mark.parametrize(
    ("version", "date", "message"),
    [
        ("0.1.0", "2026-06-18", "has 0.1.0 already"),
        ("next", "2026-06-18", "such as 0.2.0"),
        ("0.2.0", "June", "such as 2026-06-18"),
    ],
)
def test_a_release_that_makes_no_sense_is_refused_and_changes_nothing(
    changelog: ModuleType, root: Path, version: str, date: str, message: str
) -> None:
    before = (root / "CHANGELOG.md").read_text()
    with pytest.raises(SystemExit, match=message):
        changelog.main(root, {"version": version, "date": date})
    assert (root / "CHANGELOG.md").read_text() == before and len(list((root / "changes").iterdir())) == 2


@pytest.mark.parametrize("name", ["get.md", "get.bug.md", "Get.fix.md", "notes.txt"])
def test_a_file_that_is_no_fragment_is_refused(changelog: ModuleType, root: Path, name: str) -> None:
    (root / "changes" / name).write_text("text")
    with pytest.raises(SystemExit, match=name):
        changelog.fragments(root / "changes")
