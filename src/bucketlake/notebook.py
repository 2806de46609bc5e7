"""How values look in a notebook: short pieces of HTML, for `_repr_html_`.

All text is escaped: nothing that stands in a table is ever read as markup. There are no colours, so a dark notebook
stays dark, and long lists are cut, with a word on how much is missing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from html import escape

ROWS_SHOWN = 20
_LEFT = ' style="text-align:left"'


def facts_html(title: str, facts: Mapping[str, object]) -> str:
    """Show names and values side by side; what is None or empty is left out.

    >>> facts_html("orders", {"key": ("id",), "ordering": ()})
    '<b>orders</b><table><tr><th style="text-align:left">key</th><td style="text-align:left">id</td></tr></table>'
    """
    rows = "".join(
        f"<tr><th{_LEFT}>{escape(name)}</th><td{_LEFT}>{escape(_text(value))}</td></tr>"
        for name, value in facts.items()
        if value is not None and value != "" and value != ()
    )
    return f"<b>{escape(title)}</b><table>{rows}</table>"


def grid_html(columns: Sequence[str], rows: Collection[Sequence[str]]) -> str:
    """Show rows under their headings, and how many more there are.

    >>> grid_html(["name"], [["<b>"]])
    '<table><tr><th style="text-align:left">name</th></tr><tr><td style="text-align:left">&lt;b&gt;</td></tr></table>'
    """
    shown = [row for row, _ in zip(rows, range(ROWS_SHOWN), strict=False)]
    lines = [_row("th", columns), *(_row("td", row) for row in shown)]
    return f"<table>{''.join(lines)}</table>{_more(len(rows) - len(shown), 'rows')}"


def lines_html(title: str, text: str) -> str:
    """Show lines as they are printed, the first of them.

    >>> lines_html("plan", "a < b")
    '<b>plan</b><pre>a &lt; b</pre>'
    """
    lines = text.splitlines()
    shown = escape("\n".join(lines[:ROWS_SHOWN]))
    return f"<b>{escape(title)}</b><pre>{shown}</pre>{_more(len(lines) - ROWS_SHOWN, 'lines; print(...) shows all')}"


def _row(tag: str, cells: Iterable[str]) -> str:
    return f"<tr>{''.join(f'<{tag}{_LEFT}>{escape(cell)}</{tag}>' for cell in cells)}</tr>"


def _text(value: object) -> str:
    if isinstance(value, tuple | list):
        return ", ".join(map(str, value))
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def _more(count: int, what: str) -> str:
    return f"<p>and {count:,} more {what}</p>" if count > 0 else ""
