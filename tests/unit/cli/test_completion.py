"""`bucketlake --install-completion`: what a shell is given, and what it is answered."""

from __future__ import annotations

from pathlib import Path

import pytest

from bucketlake.cli import main as command_line


@pytest.fixture(autouse=True)
def a_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION", "1")  # the shell is named below


def test_completion_is_installed_for_bash(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        command_line(["--install-completion", "bash"])
    assert ended.value.code == 0
    script = tmp_path / ".bash_completions/bucketlake.sh"
    assert "complete -o default -F _bucketlake_completion bucketlake" in script.read_text()
    assert str(script) in (tmp_path / ".bashrc").read_text()
    assert "bash completion installed" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "place", "answers"),
    [
        ("bucketlake sav", 1, {"savepoint", "savepoints"}),
        ("bucketlake buckets re", 2, {"resize", "resume"}),
        ("bucketlake compact /data/orders --log-", 3, {"--log-bytes", "--log-ratio"}),
    ],
)
def test_a_shell_that_asks_is_told_commands_and_options(
    words: str,
    place: int,
    answers: set[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("_BUCKETLAKE_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", words)
    monkeypatch.setenv("COMP_CWORD", str(place))
    with pytest.raises(SystemExit) as ended:
        command_line([])
    assert ended.value.code == 0
    assert set(capsys.readouterr().out.split()) == answers
