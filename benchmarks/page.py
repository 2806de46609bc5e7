"""Tables on the pages of docs: each stands between two markers of its name, and is replaced by what was measured."""

from __future__ import annotations

import datetime
import re
from collections.abc import Sequence
from pathlib import Path

from rich.table import Table as Shown

from benchmarks.meter import machine

DOCS = Path(__file__).parents[1] / "docs"
BENCHMARKS = DOCS / "benchmarks.md"


def filled(text: str, name: str, lines: Sequence[str]) -> str:
    """Replace what stands between the markers of a name.

    >>> filled("a\\n<!-- x: start -->\\nold\\n<!-- x: end -->\\nb", "x", ["new"])
    'a\\n<!-- x: start -->\\nnew\\n<!-- x: end -->\\nb'
    """
    start, end = f"<!-- {name}: start -->", f"<!-- {name}: end -->"
    between = "\n".join([start, *lines, end])
    replaced, count = re.subn(f"{start}.*?{end}", lambda _: between, text, flags=re.DOTALL)
    if count != 1:
        raise ValueError(f"the page has {count} places for {name}; expected one, between {start} and {end}")
    return replaced


def fill(page: Path, name: str, tables: Sequence[Shown]) -> None:
    """Put tables into a page, with the day and the machine."""
    today = datetime.datetime.now(tz=datetime.UTC).date().isoformat()
    lines = [f"Measured {today} on {machine()}."]
    for table in tables:
        lines += ["", *markdown(table)]
    page.write_text(filled(page.read_text(), name, lines))


def markdown(table: Shown) -> list[str]:
    """Write a table of the terminal in Markdown.

    >>> shown = Shown(title="CPU s")
    >>> shown.add_column("table")
    >>> shown.add_column("load", justify="right")
    >>> shown.add_row("ours", "1.2")
    >>> markdown(shown)
    ['**CPU s**', '', '| table | load |', '|---|---:|', '| ours | 1.2 |']
    """
    columns = [list(column.cells) for column in table.columns]
    heads = [str(column.header) for column in table.columns]
    rules = ["---:" if column.justify == "right" else "---" for column in table.columns]
    rows = [heads, *zip(*columns, strict=True)]
    lines = [f"| {' | '.join(map(str, row))} |" for row in rows]
    return [f"**{table.title}**", "", lines[0], f"|{'|'.join(rules)}|", *lines[1:]]
