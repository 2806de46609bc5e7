"""What a command prints: a drawing for a person's terminal, lines or JSON for a program's pipe.

Whatever comes out of a table is text and nothing else: control characters, which could move a cursor or change
colours, are spelled as Python spells them (`\\x1b`). Nothing is cut. A pipe gets lines as long as they need to be; on
a terminal that is too narrow columns are folded, and where that would leave slivers each row becomes a list of its
values, one below the other.
"""

from __future__ import annotations

import json
import os
import re
import select
import shutil
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import typer
from rich.cells import cell_len, chop_cells

# Controls, ends of lines that are none to a terminal, marks that turn the direction of writing, halves of characters.
_UNSEEN = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_GAP = "  "
_NARROWEST = 10
"""Columns of text are not folded to fewer characters than these."""


class OutputError(Exception):
    """Standard output does not take what is written."""

    def __init__(self, fault: OSError) -> None:
        super().__init__(fault.strerror or str(fault))


def visible(text: str) -> str:
    """Spell what could not be seen, or would be obeyed by a terminal.

    >>> print(visible("a\\x1b[31m\\n"))
    a\\x1b[31m\\n
    """
    return _UNSEEN.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def prose(text: str) -> str:
    """Spell the unseen of a text of our own, whose lines stay lines."""
    return "\n".join(map(visible, text.split("\n")))


def json_text(value: Any) -> str:
    """Spell a value as JSON on one line, which is also safe to look at."""
    encoding = (sys.stdout.encoding or "").lower().replace("-", "")
    text = json.dumps(value, default=str, ensure_ascii=encoding != "utf8", allow_nan=False)
    return _UNSEEN.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def say(text: str) -> None:
    """Write a line to standard output, and at once: another program may be reading."""
    try:
        sys.stdout.write(text + "\n")
        sys.stdout.flush()
    except OSError as fault:
        raise OutputError(fault) from fault


def nobody_reads() -> bool:
    """Say whether standard output is a pipe whose reader has gone away, as `head` does when it has enough."""
    asked = select.poll()
    with suppress(OSError, ValueError):
        asked.register(sys.stdout.fileno(), 0)
        return any(event & select.POLLERR for _, event in asked.poll(0))
    return False


def give_up_output() -> None:
    """Let what is still to be written vanish: it would be tried again when the process ends."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@dataclass(slots=True)
class Grid:
    """Rows and columns of text, to be drawn."""

    title: str
    columns: Sequence[str]
    """Their headings; all empty for a grid without them."""
    numbers: Collection[str] = ()
    """Those of the columns that are aligned to the right, and never folded."""
    rows: list[Sequence[str]] = field(default_factory=list)
    caption: str = ""

    def add_row(self, *cells: str) -> None:
        assert len(cells) == len(self.columns), "a cell for each column"
        self.rows.append(cells)


def grid(title: str, *columns: str, numbers: Collection[str] = ()) -> Grid:
    return Grid(title, columns, numbers)


def fact_grid(title: str, facts: Mapping[str, object]) -> Grid:
    """Draw names and values side by side."""
    drawn = grid(title, "", "")
    for name, value in facts.items():
        text = ", ".join(value) or "-" if isinstance(value, list) else str(value)
        drawn.add_row(name, "-" if value is None else text)
    return drawn


@dataclass(frozen=True, slots=True)
class Screen:
    """Where results go: a person's terminal or a program's pipe."""

    as_json: bool

    def show(self, value: Any, *drawings: Grid | str) -> None:
        """Print the value as JSON, or what draws it."""
        if self.as_json:
            say(json_text(value))
            return
        is_terminal = sys.stdout.isatty()
        width = shutil.get_terminal_size().columns if is_terminal else None
        lines: list[str] = []
        for drawing in drawings:
            if isinstance(drawing, Grid):
                lines += draw(drawing, width, bold=is_terminal and "NO_COLOR" not in os.environ)
            else:
                lines.append(prose(drawing))
        say("\n".join(lines))


def draw(grid: Grid, width: int | None, *, bold: bool = False) -> Iterator[str]:
    """Yield the lines of a grid, for a terminal so wide, or None for lines of any length."""
    names = [visible(name) for name in grid.columns]
    rows = [[visible(cell) for cell in row] for row in grid.rows]
    needed = [max(map(_width, column)) for column in zip(names, *rows, strict=True)]
    folded = [name not in grid.numbers for name in grid.columns]
    widths = needed if width is None else _shares(needed, folded, width)
    if grid.title:
        yield visible(grid.title)
    if widths is None and any(names):
        yield from _listed(names, rows)
    else:
        widths = widths or needed
        if any(names):
            heading = "\n".join(_lines(names, widths, folded))
            yield typer.style(heading, bold=True) if bold else heading
            yield _GAP.join("─" * room for room in widths)
        for row in rows:
            yield from _lines(row, widths, folded)
    if grid.caption:
        yield visible(grid.caption)


def _shares(needed: Sequence[int], folded: Sequence[bool], width: int) -> list[int] | None:
    """Share a line out to columns: the wide ones that may be folded get what the others leave; None if too little."""
    room = width - len(_GAP) * (len(needed) - 1)
    shares = list(needed)
    wide = sorted((need, place) for place, need in enumerate(needed) if folded[place])
    left = room - sum(need for place, need in enumerate(needed) if not folded[place])
    for rank, (need, place) in enumerate(wide):
        share = left // (len(wide) - rank)
        if share < min(need, _NARROWEST):
            return None
        shares[place] = min(need, share)
        left -= shares[place]
    return shares if left >= 0 else None


def _lines(cells: Sequence[str], widths: Sequence[int], folded: Sequence[bool]) -> Iterator[str]:
    """Yield the lines of one row; more than one where a cell is folded."""
    pieces = [
        chop_cells(cell, room) if _width(cell) > room else [cell]
        for cell, room in zip(cells, widths, strict=True)
    ]
    for number in range(max(map(len, pieces))):
        parts = [piece[number] if number < len(piece) else "" for piece in pieces]
        aligned = [
            part + " " * (room - _width(part)) if is_text else " " * (room - _width(part)) + part
            for part, room, is_text in zip(parts, widths, folded, strict=True)
        ]
        yield _GAP.join(aligned).rstrip()


def _listed(names: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield each row as its values, one below the other."""
    room = max(map(_width, names))
    for number, row in enumerate(rows, 1):
        yield f"── {number} ──"
        for name, cell in zip(names, row, strict=True):
            yield f"{name}{' ' * (room - _width(name))}{_GAP}{cell}".rstrip()


def _width(text: str) -> int:
    return len(text) if text.isascii() else cell_len(text)
