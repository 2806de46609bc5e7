"""Every command shows an example in its help, and the example is one that the command takes."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from typing import Any

import pytest
import typer

from bucketlake.cli import app

ROOT: Any = typer.main.get_command(app)


def commands(group: Any = ROOT, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, (*path, name))
        else:
            yield " ".join((*path, name)), command


@pytest.mark.parametrize(("name", "command"), list(commands()), ids=[name for name, _ in commands()])
def test_every_command_shows_an_example_that_it_takes(name: str, command: Any) -> None:
    epilog = command.epilog or ""
    assert re.match("Examples?: ", epilog), f"bucketlake {name} --help has no example: give it an epilog"
    examples = [shlex.split(text) for text in re.sub("^Examples?: ", "", epilog).split("; ")]
    own = [words for words in examples if " ".join(words[1:]).startswith(name)]
    assert own, epilog
    for words in own:
        assert words[0] == "bucketlake"
        command.make_context(name, words[1 + len(name.split()) :])  # fails for an option that is not known
