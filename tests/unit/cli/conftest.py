"""A terminal for the tests of commands."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from bucketlake.cli import main


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Run a command; return exit code, stdout and stderr."""

    def command(*words: object) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as stop:
            main([str(word) for word in words])
        printed = capsys.readouterr()
        return int(stop.value.code or 0), printed.out, printed.err

    return command
