"""Write the list of commands into docs/command-line.md, as the app itself has them.

python tools/commands.py            write the page
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import typer.main
from typer.core import TyperGroup

from bucketlake.cli import app

PAGE = Path(__file__).parent.parent / "docs/command-line.md"
START, END = "<!-- commands: start -->", "<!-- commands: end -->"


def commands() -> Iterator[tuple[str, str]]:
    """Name every command, groups included, and what it says of itself."""
    root = typer.main.get_command(app)
    assert isinstance(root, TyperGroup)
    for name, command in root.commands.items():
        if isinstance(command, TyperGroup):
            yield from ((f"{name} {below}", _help(one.help)) for below, one in command.commands.items())
        else:
            yield name, _help(command.help)


def page(text: str) -> str:
    """Return the page with the list as it should be."""
    before, _, rest = text.partition(START)
    after = rest.partition(END)[2]
    rows = [f"| `{name}` | {text} |" for name, text in sorted(commands())]
    return before + "\n".join([START, "| command | |", "|---|---|", *rows, END]) + after


def _help(text: str | None) -> str:
    return " ".join((text or "").split()).replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text()))
