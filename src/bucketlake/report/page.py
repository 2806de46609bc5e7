"""The page of a report: one file that needs nothing else, light and dark, and works offline.

The template is `page.html`, which has the styles and the script. What is said of the table goes in as JSON; the script
writes it as text, so that no name in a table is ever read as markup.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from html import escape
from importlib.resources import files
from os import PathLike
from pathlib import Path

from bucketlake.report.facts import TableFacts

_FACTS = "/*FACTS*/null"
_TITLE = "<!--TITLE-->"


@dataclass(frozen=True, slots=True)
class TableReport:
    """A table on one page; a notebook shows it, and `save` keeps it."""

    facts: TableFacts

    @property
    def html(self) -> str:
        """The page."""
        template = (files("bucketlake.report") / "page.html").read_text("utf-8")
        # In a script, only `<` could end it early; the two line separators are no JSON in old readers.
        text = json.dumps(self.facts.as_json(), ensure_ascii=True, separators=(",", ":")).replace(
            "<", "\\u003c"
        )
        return template.replace(_TITLE, escape(self.facts.description.name)).replace(_FACTS, text)

    def save(self, path: str | PathLike[str]) -> Path:
        """Write the page to a file, and return its path."""
        file = Path(path)
        file.write_text(self.html, "utf-8")
        return file

    def _repr_html_(self) -> str:
        return f'<iframe srcdoc="{escape(self.html)}" style="width:100%;height:640px;border:0"></iframe>'

    def __str__(self) -> str:
        lines = [f"{self.facts.description.name}: {self.facts.layout.index}"]
        lines += [f"- {one.what}. {one.why} {one.command}".rstrip() for one in self.facts.advice]
        return "\n".join(lines if self.facts.advice else [*lines, "Nothing to do."])
